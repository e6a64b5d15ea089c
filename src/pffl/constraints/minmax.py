"""Minimax: make the worst group's loss as small as possible.

Reference: Papadaki et al. 2022 (FedMinMax). It is bounded group loss with ζ = 0,
β = 0 and B = 1: the risk plays no part and the price cannot grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pffl.constraints.base import Cells, Constraint
from pffl.constraints.group_loss import BoundedGroupLoss, describe
from pffl.data.schema import Schema


@dataclass(frozen=True)
class MinMax(Constraint):
    """``min over w of the largest group's mean loss``.

    Parameters
    ----------
    by
        Attributes that cut out the groups, as for `BoundedGroupLoss`.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> solution = pffl.solve(people, pffl.MinMax(), seed=0)
    >>> float(solution.cells["train_loss"].max().round(3))
    0.622
    """

    by: str | tuple[str, ...] | None = None
    name: ClassVar[str] = "minmax"
    minimax: ClassVar[bool] = True
    risk_weight: ClassVar[float | None] = 0.0
    multiplier_bound: ClassVar[float | None] = 1.0

    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """One cell per group, with bound 0."""
        return BoundedGroupLoss(0.0, by=self.by).cells(schema, silos)

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        return describe(self.name, None, self.by)
