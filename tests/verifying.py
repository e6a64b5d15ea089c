"""Save what was found, and ask `verify` about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pffl
from pffl import runs
from pffl._solve import open_engine
from pffl.certifying import Request, examine
from pffl.data import Federation
from pffl.solution import Solution


def not_verified(
    solution: Solution, rows: Federation, folder: Path, **asked: Any
) -> list[str]:
    """Return what `verify` does not agree with, of a run and of a request."""
    engine, request = open_engine(rows, "local"), Request(**asked)
    found = examine(solution, engine, request)
    with runs.lock(folder / "run") as place:
        place.save(solution, "")
    rows.export(folder / "rows.npz")
    same = rows.fingerprint == solution.evidence.data.fingerprint
    checks = pffl.verify(folder / "run", folder / "rows.npz" if same else None)
    with runs.lock(folder / "more") as place:
        place.save(replace(solution, evidence=found), "")
    checks += pffl.verify(folder / "more", folder / "rows.npz")
    assert len(checks) > 40
    return [str(check) for check in checks if not check.agrees]
