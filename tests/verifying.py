"""Save what was found, and ask `verify` about it."""

from __future__ import annotations

from pathlib import Path

import pffl
from pffl import runs
from pffl.data import Federation
from pffl.solution import Solution


def not_verified(solution: Solution, rows: Federation, folder: Path) -> list[str]:
    """Return what `verify` does not agree with, of a run."""
    rows.export(folder / "rows.npz")
    with runs.lock(folder / "run") as place:
        place.save(solution, "")
    checks = pffl.verify(folder / "run", folder / "rows.npz")
    assert len(checks) > 20
    return [str(check) for check in checks if not check.agrees]
