"""A line for every round of a deployed run: in the ServerApp's log, and in the record.

`pffl run` shows the same lines, read from the record.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import numpy as np

from pffl.callbacks import Callback
from pffl.engines.remote import Record
from pffl.flow import Round
from pffl.progress import measured
from pffl.queries import Query
from pffl.runs.overview import ASKING, ROUND, line


@dataclass
class Live(Callback):
    """Write a line and an entry after each round, and for what is measured beside them.

    The figures are totals over all silos, as in `history.csv`; none is of one silo.
    """

    record: Record
    silos: int
    stream: TextIO = field(default_factory=lambda: sys.stdout)
    _first: tuple[int, float] | None = field(default=None, init=False)

    def asking(self, queries: Sequence[Query[Any]]) -> None:
        """Write what is asked."""
        entry = {"event": ASKING, "what": measured(queries)}
        self.record.write(entry)

    def after_round(self, row: Round) -> bool:
        """Tell how the run goes."""
        problem, known = row.problem, not np.isnan(row.violation).all()
        entry: dict[str, Any] = {
            "event": ROUND,
            "round": row.number,
            "planned": row.planned,
            "silos": self.silos,
            "answered": self._answered(),
            "risk": _finite(row.risk),
            "gap": _finite(row.gap),
            "seconds": round(row.seconds, 3),
            "left": self._left(row),
        }
        if problem is not None and problem.n_cells and known:
            worst = int(np.nanargmax(row.violation))
            violation = float(row.violation[worst])
            entry["worst"] = problem.cells.names[worst]
            entry["loss"] = _finite(violation + float(problem.cells.bounds[worst]))
            entry["violation"] = _finite(violation)
        self.record.write(entry)
        print(line(entry), file=self.stream, flush=True)
        return False

    def _answered(self) -> int:
        """How many silos answered the last query."""
        for entry in reversed(self.record.entries):
            if "answered" in entry and "asked" in entry:
                return len(entry["answered"])
        return self.silos

    def _left(self, row: Round) -> float | None:
        """Seconds to the planned end; None where there is no plan."""
        if self._first is None:
            self._first = (row.number, row.seconds)
        number, seconds = self._first
        if row.planned is None or row.number == number:
            return None
        pace = (row.seconds - seconds) / (row.number - number)
        return round((row.planned - row.number) * pace, 1)


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None
