"""What frozen attacks know of the product: edited when it changes, and they are not."""

# ruff: noqa: F401 — names are here to be imported by others.
from __future__ import annotations

import pffl
from pffl.constraints.base import Cells
from pffl.data import Federation, Rows, Silo
from pffl.data.schema import Schema
from pffl.models import Inputs
from pffl.questions import Census, Curvature, Slopes, Task, Train
from pffl.site import Agreement, Rules, Site
