"""Constraints: what is promised to whom; metrics: how to measure it."""

from pffl.fairness.base import Both as Both
from pffl.fairness.base import Cells as Cells
from pffl.fairness.base import Constraint as Constraint
from pffl.fairness.conditional import (
    ConditionalBoundedGroupLoss as ConditionalBoundedGroupLoss,
)
from pffl.fairness.group_loss import BoundedGroupLoss as BoundedGroupLoss
from pffl.fairness.minmax import MinMax as MinMax
from pffl.fairness.per_silo import PerSilo as PerSilo
