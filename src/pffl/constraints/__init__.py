"""Constraints: what is promised to whom; metrics: how to measure it."""

from pffl.constraints.base import Both as Both
from pffl.constraints.base import Cells as Cells
from pffl.constraints.base import Constraint as Constraint
from pffl.constraints.conditional import (
    ConditionalBoundedGroupLoss as ConditionalBoundedGroupLoss,
)
from pffl.constraints.group_loss import BoundedGroupLoss as BoundedGroupLoss
from pffl.constraints.minmax import MinMax as MinMax
from pffl.constraints.per_silo import PerSilo as PerSilo
