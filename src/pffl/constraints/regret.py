"""Bounded regret: no group's mean loss is far above what the group alone could reach.

    L_a(w) − L_a* ≤ ζ_a,     L_a* = min over w of L_a(w)

L_a* is a constant of the training rows, so this is a bound on the loss, L_a* + ζ_a, and
convex. It is found by a search of its own and enclosed: a bound counts from the lower
end, so that one that is met is met wherever L_a* lies, and is called impossible only by
the upper end. See `preparation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pffl.constraints.base import Cells
from pffl.constraints.group_loss import BoundedGroupLoss
from pffl.data.schema import Schema


@dataclass(frozen=True)
class RegretBound(BoundedGroupLoss):
    """``mean loss of group a ≤ lowest that a model for it alone has + ζ_a``.

    For linear models, and at most 20 groups. The lowest is over all models of the same
    kind on the same inputs, without ridge, on the group's own training rows.

    Parameters
    ----------
    bound
        ζ: how far above its own lowest a group's mean loss may be; one number for all
        groups, or a mapping, as for `BoundedGroupLoss`.
    by, upper_bound
        As for `BoundedGroupLoss`.

    Raises
    ------
    UsageError
        There is no bound, or two, or one that is no number.

    Examples
    --------
    >>> fair = RegretBound(0.05, by="sex")
    """

    name: ClassVar[str] = "regret"

    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """One cell per group; nothing is known yet of where its bound counts from."""
        cells = super().cells(schema, silos)
        return replace(cells, floors=np.tile([0.0, np.inf], (len(cells), 1)))
