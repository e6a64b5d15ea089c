"""Store the golden runs anew: python -m tests.golden.record [NAME…] [--real] [--dry].

NAME is the beginning of a run's name (03), or of a text (page). Each difference is
printed, old and new, before it is written. With --real the runs on the real files are
stored, which are fetched on first use; with --dry nothing is written.
"""

from __future__ import annotations

import difflib
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.golden import runs
from tests.golden.compare import HERE, differences, place, read, text_of

DRAWS = 12  # of the noise, for the interval of a figure that carries it


def main(arguments: list[str]) -> int:
    """Compare, print, and write."""
    wanted = tuple(one for one in arguments if not one.startswith("--"))
    real, dry = "--real" in arguments, "--dry" in arguments
    with tempfile.TemporaryDirectory() as folder:
        golden = runs.Golden(Path(folder), real=real)
        for name in runs.REAL if real else runs.RUNS:
            if not wanted or name.startswith(wanted):
                _figures(golden, name, real=real, dry=dry)
        texts = [name for name in runs.TEXTS if not wanted or name.startswith(wanted)]
        if texts and not real:
            found = golden.surfaces
            for name in texts:
                _text(name, found[name], dry=dry)
    return 0


def _figures(golden: runs.Golden, name: str, *, real: bool, dry: bool) -> None:
    found = golden.figures(name)
    path = place(name, real=real)
    old: Any = read(name, real=real) if path.is_file() else {}
    lines = differences(old, found, runs.TOLERANCES.get(name))
    print(f"{name}: {len(lines)} differences", *lines, sep="\n  ")
    if dry or not (lines or not path.is_file()):
        return
    if name in runs.NOISY:
        outer, last = runs.NOISY[name]
        draws = [golden.figures(name, noise_seed=k)[outer] for k in range(1, DRAWS + 1)]
        for draw in draws:  # whatever is compared exactly must not depend on the noise
            for line in differences({**draws[0], last: None}, {**draw, last: None}):
                print(f"  differs by the noise: {line}")
        found[outer][last] = _intervals([draw[last] for draw in draws])
    path.write_text(text_of(found), encoding="utf-8")


def _intervals(draws: list[Any]) -> Any:
    """From the smallest to the largest of some draws, wider by that on both sides."""
    first = draws[0]
    if isinstance(first, dict):
        return {key: _intervals([draw[key] for draw in draws]) for key in first}
    if isinstance(first, list):
        return [_intervals(list(part)) for part in zip(*draws, strict=True)]
    low, high = min(draws), max(draws)
    return {"from": low - (high - low), "to": high + (high - low)}


def _text(name: str, found: str, *, dry: bool) -> None:
    path = HERE / name
    old = path.read_text("utf-8") if path.is_file() else ""
    both = old.splitlines(), found.splitlines()
    lines = list(difflib.unified_diff(*both, lineterm="", n=0))
    print(f"{name}: {'differs' if lines else 'the same'}")
    print(*lines[2:], sep="\n  ")
    if lines and not dry:
        path.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
