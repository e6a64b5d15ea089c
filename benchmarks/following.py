"""What following a run costs a site, and what another processor's rounding does to it.

    .venv/bin/python benchmarks/following.py

Runs are recorded once: what was asked in each step, and the totals. They are then
replayed as a site does, a new process for each kernel of OpenBLAS; the table has the
least `replay_tolerance`, a power of ten, by which every step is accepted. See
following.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pffl import datasets
from pffl.checkpoint import content_of, read_file, take_up
from pffl.data import Federation
from pffl.driver import pack_total, unpack_total
from pffl.errors import Refused
from pffl.parcel import Parcel
from pffl.privacy import Privacy
from pffl.site import Agreement, Rules
from pffl.site.at_hand import secured
from pffl.site.follow import Follower
from tests.site.following import run
from tests.site.noisy import sites_behind
from tests.site.secure import Server, agree, sites_of

KERNELS = ("", "Haswell", "Sandybridge", "Nehalem")
OPEN = Rules(floor=1, questions=10_000, radius=1e9)
TOLERANCES = (0.0, *(10.0**-k for k in range(15, 0, -1)))


def cases() -> Iterator[tuple[str, Federation, dict[str, Any]]]:
    """Yield the runs."""
    compas, adult = datasets.compas(silos=3), datasets.adult(silos=3)
    pffl = {"kind": "pffl", "dual_rounds": 5}
    for name, federation, l2, constraint, method in (
        ("COMPAS, BGL, exact", compas, 1e-3, ("bgl", 0.62), {"kind": "exact"}),
        ("COMPAS, CBGL, first", compas, 1e-3, ("cbgl", 0.75), {"kind": "first-order"}),
        ("COMPAS, BGL, pffl", compas, 1e-2, ("bgl", 0.62), pffl),
        ("Adult, BGL, exact", adult, 1e-4, ("bgl", 0.33), {"kind": "exact"}),
        ("Adult, BGL, first", adult, 1e-4, ("bgl", 0.33), {"kind": "first-order"}),
    ):
        kind, bound = constraint
        yield (
            name,
            federation,
            {
                "model": {"l2": l2},
                "constraint": {"kind": kind, "bound": bound},
                "method": method,
                "run": {"seed": 7},
            },
        )
    for name, federation, method in (
        ("COMPAS, ε = 2, exact", compas, "exact"),
        ("COMPAS, ε = 2, pffl", compas, "pffl"),
        ("Adult, ε = 2, first", adult, "first-order"),
    ):
        between = [f"{n}={low},{high}" for n, (low, high) in federation.ranges.items()]
        sections = {
            "constraint": {"kind": "bgl", "bound": 0.62},
            "method": {"kind": method},
            "run": {"seed": 7},
            "privacy": {"epsilon": 2.0, "range": between},
        }
        yield name, federation, sections


def record(place: Path) -> None:
    """Run everything over sites that do not follow, and keep what was said."""
    for name, federation, sections in cases():
        agreed = agree(federation, run=sections)
        sites = sites_of(federation, agree(federation), rules=OPEN)
        if "privacy" in sections:
            sites = sites_behind(secured(federation, None, Privacy(2.0)))
        server = Server(sites, federation.schema.hash)
        steps: list[Any] = []

        def ask(asked: list[Any], server: Any = server, steps: Any = steps) -> Any:
            totals = server.ask(asked)
            bodies = [Parcel(*question.plain(0)) for question in asked]
            steps.append(
                {
                    "bodies": [[dict(b.header), dict(b.arrays)] for b in bodies],
                    "totals": [pack_total(total) for total in totals],
                }
            )
            return totals

        found = run(server, agreed, ask=ask)
        kept = {"text": agreed.text(), "p": found.problem.n_parameters, "steps": steps}
        (place / f"{name}.safetensors").write_bytes(content_of(kept, {}))


def replay(path: Path) -> dict[str, Any]:
    """Follow a recorded run; return the least tolerance that accepts all of it."""
    parcel = read_file(path)
    kept = take_up(parcel.header["tree"], parcel.arrays)
    agreed, steps = Agreement.from_dict(json.loads(kept["text"])), kept["steps"]
    for tolerance in TOLERANCES:
        follower = Follower(agreed, Rules(replay_tolerance=tolerance))
        journal, totals, began = None, [], time.process_time()
        try:
            for step in steps:
                bodies = [Parcel(*body) for body in step["bodies"]]
                journal = follower.next(journal, totals, bodies)
                totals = [unpack_total(total) for total in step["totals"]]
        except Refused:
            continue
        spent = 1e3 * (time.process_time() - began) / len(steps)
        return {"p": kept["p"], "n": len(steps), "ms": spent, "tolerance": tolerance}
    raise SystemExit("not followed")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if len(sys.argv) > 1:
        print(json.dumps(replay(Path(sys.argv[1]))))
        sys.exit()
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder))
        print("| run | p | steps | kernel | ms a step | tolerance |")
        print("|---|---|---|---|---|---|")
        for path in sorted(Path(folder).iterdir()):
            for kernel in KERNELS:
                environment = {**os.environ, "OPENBLAS_CORETYPE": kernel}
                done = subprocess.run(
                    [sys.executable, __file__, str(path)],
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if done.returncode:
                    print(f"| {path.stem} | | | {kernel} | {done.stderr[-200:]} | |")
                    continue
                found = json.loads(done.stdout)
                print(
                    f"| {path.stem} | {found['p']} | {found['n']} | "
                    f"{kernel or 'as recorded'} | {found['ms']:.0f} | "
                    f"{found['tolerance']:.0e} |"
                )
