"""Constraints: what is promised to whom; metrics: how to measure it."""

from collections.abc import Mapping

from pffl.constraints.base import Both as Both
from pffl.constraints.base import Cells as Cells
from pffl.constraints.base import Constraint as Constraint
from pffl.constraints.conditional import (
    ConditionalBoundedGroupLoss as ConditionalBoundedGroupLoss,
)
from pffl.constraints.group_loss import BoundedGroupLoss as BoundedGroupLoss
from pffl.constraints.minmax import MinMax as MinMax
from pffl.constraints.per_silo import PerSilo as PerSilo
from pffl.registry import Registry

CONSTRAINTS: Registry[Constraint] = Registry(
    "pffl.constraints",
    Constraint,
    (BoundedGroupLoss, ConditionalBoundedGroupLoss, MinMax, PerSilo),
)


def is_minimax(described: Mapping[str, object]) -> bool:
    """Whether the constraint of this plain form has no bound to be met."""
    kind = str(described.get("kind"))
    return kind in CONSTRAINTS and CONSTRAINTS[kind].minimax
