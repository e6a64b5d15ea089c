"""What may happen between rounds: three empty methods to fill (see `progress`)."""

from __future__ import annotations

from dataclasses import dataclass

from pffl.problem import Problem
from pffl.typing import FloatArray


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
