"""Per silo: every site's mean loss stays under a bound.

With bound 0, β = 0 and B = 1 this is the objective of AFL (Mohri et al. 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pffl.constraints.base import Bound, Cells, Constraint, settled
from pffl.constraints.group_loss import describe, one_bound
from pffl.data.schema import Schema


@dataclass(frozen=True)
class PerSilo(Constraint):
    """``mean loss of silo k ≤ ζ_k`` for every silo.

    Parameters
    ----------
    bound
        ζ: one number for all silos, or a mapping from silo name to number (others are
        not bounded); "auto" as for `BoundedGroupLoss`.
    upper_bound
        fairlearn's name for `bound`.

    Raises
    ------
    UsageError
        There is no bound, or two, or one that is no number.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> solution = pffl.solve(people, pffl.PerSilo(0.65), seed=0)
    >>> solution.status, len(solution.cells)
    ('met', 3)
    """

    bound: Bound = None
    upper_bound: float | None = None
    name: ClassVar[str] = "per-silo"

    def __post_init__(self) -> None:
        bound = one_bound(self.bound, self.upper_bound, type(self).__name__)
        object.__setattr__(self, "bound", bound)
        object.__setattr__(self, "upper_bound", None)

    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """One cell per silo, over all its rows."""
        n = len(silos)
        member = np.ones((n, schema.n_atoms), dtype=bool)
        cells = Cells(tuple(silos), np.zeros(n), member, np.arange(n))
        return cells.bounded(self.bound, type(self).__name__)

    def at(self, bound: float) -> PerSilo:
        """Return the constraint with this bound wherever it has ``"auto"``."""
        return replace(self, bound=settled(self.bound, bound))

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        return describe(self.name, self.bound, None)
