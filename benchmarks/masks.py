"""What masks cost a site and the server, in processor milliseconds; see masks.md.

    .venv/bin/python benchmarks/masks.py

One message with a `curvature` query of Z cells, as COMPAS (p = 10) and ACS (p = 24)
ask it, and with a `slopes` query of a wide model. `first` is a site's mask in a new
process, which agrees with every other site on a secret; `mask` the next one; `write`
the numbers on their grid; `sign` and `verify` the signature of the site's answer and of
all answers; `add` and `read` what the server, and every site that follows, does with
them. The least of a few repeats.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

from pffl.wire import masks
from pffl.wire.keys import SiteKeys, announced

CASES = {  # numbers of a gradient's kind, and others
    "curvature, p 10, Z 4": (5 * (10 + 55), 5),
    "curvature, p 24, Z 4": (5 * (24 + 300), 5),
    "slopes, p 5,000, Z 4": (5 * 5_000, 5),
}
SITES = (3, 10, 50, 200)
COLUMNS = "first", "mask", "write", "sign", "verify", "add", "read"


def spent(work: Callable[[], object], repeats: int = 3) -> float:
    """Return processor milliseconds, of the quickest repeat."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return 1e3 * min(found)


def written(gradients: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Return an answer before it is masked."""
    parts = (masks.GRADIENTS.write(gradients), masks.SUMS.write(sums))
    return np.concatenate([part.ravel() for part in parts])


def measure(gradients: np.ndarray, sums: np.ndarray, sites: int) -> list[float]:
    """Return what one site, and the server, do in one message."""
    flat = written(gradients, sums)
    keys = {f"{k:03d}": SiteKeys.generate() for k in range(sites)}
    own, *others = keys
    secret = os.urandom(32)
    public = {other: announced(os.urandom(32)) for other in others}
    content, body = flat.tobytes(), flat[: masks.GRADIENTS.limbs * len(gradients)]
    signature = keys[own].sign(content)

    def mask() -> np.ndarray:
        return masks.mask(secret, own, public, b"", len(flat))

    def verify() -> bool:
        return all(keys[own].public.verify(content, signature) for _ in keys)

    total = masks.add([body] * sites).reshape(-1, masks.GRADIENTS.limbs)
    return [
        spent(mask, repeats=1),
        spent(mask),
        spent(lambda: written(gradients, sums)),
        spent(lambda: keys[own].sign(content)),
        spent(verify),
        spent(lambda: masks.add([flat] * sites)),
        spent(lambda: masks.GRADIENTS.read(total, sites)),
    ]


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(0)
    print("| query | bytes | sites |", " | ".join(COLUMNS), "|")
    print("|---" * (3 + len(COLUMNS)) + "|")
    for name, (many, few) in CASES.items():
        gradients, sums = rng.normal(size=many), rng.normal(size=few)
        size = written(gradients, sums).nbytes
        for sites in SITES:
            row = measure(gradients, sums, sites)
            shown = " | ".join(f"{ms:.1f}" for ms in row)
            print(f"| {name} | {size:,} | {sites} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
