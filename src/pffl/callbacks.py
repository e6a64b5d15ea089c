"""What may happen between rounds, and at the end: five empty methods to fill.

See `progress`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pffl.problem import Problem
from pffl.typing import FloatArray

if TYPE_CHECKING:
    from pffl.queries import Query
    from pffl.solution import Solution


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
    planned
        Rounds in all, where that is known.
    problem
        What is solved.
    """

    number: int
    risk: float
    violation: FloatArray
    multipliers: FloatArray
    upper: float
    gap: float | None
    seconds: float
    loss: float = 0.0
    planned: int | None = None
    problem: Problem | None = field(default=None, repr=False)


class Callback:
    """Override what you need; `after_round` may return True to stop the run."""

    def after_round(self, row: Round) -> bool:
        """After each round; of a run that goes on, also after those of before."""
        return False

    def releasing(self, lines: Sequence[str]) -> None:
        """Before the first query of a run with noise: what it will release."""

    def asking(self, queries: Sequence[Query[Any]]) -> None:
        """Before queries go out."""

    def ended(self) -> None:
        """After the last query of the run, also after an error."""

    def solved(self, solution: Solution) -> None:
        """After everything was measured, at the end of `solve`."""
