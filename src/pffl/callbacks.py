"""What may happen between rounds, and at the end: five empty methods to fill.

See `progress`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pffl.flow import Round

if TYPE_CHECKING:
    from pffl.queries import Query
    from pffl.solution import Solution


class Callback:
    """Override what you need; `after_round` may return True to stop the run."""

    def after_round(self, row: Round) -> bool:
        """After each round; of a resumed run, also after those of before."""
        return False

    def releasing(self, lines: Sequence[str]) -> None:
        """Before the first query of a run with noise: what it will release."""

    def asking(self, queries: Sequence[Query[Any]]) -> None:
        """Before queries go out."""

    def ended(self) -> None:
        """After the last query of the run, also after an error."""

    def solved(self, solution: Solution) -> None:
        """After everything was measured, at the end of `solve`."""
