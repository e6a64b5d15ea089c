"""What may happen between rounds: three empty methods, and a few who fill them."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

import numpy as np

from pffl.problem import Problem
from pffl.typing import FloatArray

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


@dataclass(frozen=True, eq=False)
class Round:
    """What is known after a round, of the w that was sent in it.

    Attributes
    ----------
    number
        Rounds so far.
    risk
        F(w).
    violation
        r(w), shape (Z,).
    multipliers
        λ in use, shape (Z,).
    upper
        βF(w) + B·max(0, max r(w)); NaN where some r is not known.
    gap
        Measured gap of the pair so far, where it was measured.
    seconds
        Time since the start.
    loss
        The largest of F and the cells' mean losses.
    """

    number: int
    risk: float
    violation: FloatArray
    multipliers: FloatArray
    upper: float
    gap: float | None
    seconds: float
    loss: float = 0.0


class Callback:
    """Override what you need; `after_round` may return True to stop the run."""

    def before(self, problem: Problem, planned_rounds: int | None) -> None:
        """Before the first round."""

    def after_round(self, problem: Problem, row: Round) -> bool:
        """After each round."""
        return False

    def after(self, problem: Problem) -> None:
        """After the last round, also after an error."""


@dataclass
class Lines(Callback):
    """Plain lines for pipes and logs: about twenty a run."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    seconds_between: float = 5.0
    _last: float = field(default=-1e9, init=False)

    def after_round(self, problem: Problem, row: Round) -> bool:
        """Print a line now and then."""
        if time.monotonic() - self._last >= self.seconds_between:
            self._last = time.monotonic()
            print(f"round {row.number}: {describe(problem, row)}", file=self.stream)
        return False


@dataclass
class Progress(Callback):
    """A progress bar with the worst cell and the measured gap."""

    _bar: RichProgress | None = field(default=None, init=False)

    def before(self, problem: Problem, planned_rounds: int | None) -> None:
        """Show the bar."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("round {task.completed:.0f}"),
            BarColumn(bar_width=20),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._bar.add_task("", total=planned_rounds)

    def after_round(self, problem: Problem, row: Round) -> bool:
        """Move the bar."""
        if self._bar is not None:
            task = self._bar.task_ids[0]
            text = describe(problem, row).replace("[", "\\[")
            self._bar.update(task, completed=row.number, description=text)
        return False

    def after(self, problem: Problem) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


def describe(problem: Problem, row: Round) -> str:
    """One line about a round."""
    parts = [f"risk {row.risk:.4f}"]
    if problem.n_cells:
        worst = int(np.nan_to_num(row.violation, nan=-np.inf).argmax())
        loss = row.violation[worst] + problem.cells.bounds[worst]
        parts.append(
            f"worst {problem.cells.names[worst]} {loss:.4f} "
            f"({row.violation[worst]:+.4f} to its bound)"
        )
    if row.gap is not None:
        parts.append(f"gap {row.gap:.1e}")
    return ", ".join(parts)
