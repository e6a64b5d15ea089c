"""A line for every round of a deployed run: in the ServerApp's log, and in the record.

`pffl run --engine flower` shows the same lines, read from the record.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import numpy as np

from pffl.callbacks import Callback, Round
from pffl.engines.remote import Record
from pffl.problem import Problem
from pffl.progress import measured
from pffl.runs.overview import ASKING, ROUND, line


@dataclass
class Live(Callback):
    """Write a line and an entry after each round, and for what is measured beside them.

    The figures are totals over all silos, as in `history.csv`; none is of one silo.
    """

    record: Record
    silos: int
    stream: TextIO = field(default_factory=lambda: sys.stdout)
    _planned: int | None = field(default=None, init=False)
    _first: tuple[int, float] | None = field(default=None, init=False)
    _training: bool = field(default=False, init=False)

    def before(self, problem: Problem, planned_rounds: int | None) -> None:
        """Note how many rounds are planned."""
        self._planned, self._training = planned_rounds, True

    def after(self, problem: Problem) -> None:
        """Note that the rounds are over."""
        self._training = False

    def asking(self, parts: Sequence[tuple[str, ...]]) -> None:
        """Write what is asked; in the log only beside the rounds, which tell of it."""
        what = "the next round" if self._training else measured(parts)
        entry = {"event": ASKING, "what": what, "training": self._training}
        self.record.write(entry)
        if not self._training:
            print(f"asking: {what}", file=self.stream, flush=True)

    def after_round(self, problem: Problem, row: Round) -> bool:
        """Tell how the run goes."""
        entry: dict[str, Any] = {
            "event": ROUND,
            "round": row.number,
            "planned": self._planned,
            "silos": self.silos,
            "answered": self._answered(),
            "risk": _finite(row.risk),
            "gap": _finite(row.gap),
            "seconds": round(row.seconds, 3),
            "left": self._left(row),
        }
        if problem.n_cells and not np.isnan(row.violation).all():
            worst = int(np.nanargmax(row.violation))
            violation = float(row.violation[worst])
            entry["worst"] = problem.cells.names[worst]
            entry["loss"] = _finite(violation + float(problem.cells.bounds[worst]))
            entry["violation"] = _finite(violation)
        self.record.write(entry)
        print(line(entry), file=self.stream, flush=True)
        return False

    def _answered(self) -> int:
        """How many silos answered the last question."""
        for entry in reversed(self.record.entries):
            if "answered" in entry and "asked" in entry:
                return len(entry["answered"])
        return self.silos

    def _left(self, row: Round) -> float | None:
        """Seconds to the planned end; None where there is no plan."""
        if self._first is None:
            self._first = (row.number, row.seconds)
        number, seconds = self._first
        if self._planned is None or row.number == number:
            return None
        pace = (row.seconds - seconds) / (row.number - number)
        return round((self._planned - row.number) * pace, 1)


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None
