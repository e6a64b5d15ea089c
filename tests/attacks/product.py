"""What frozen attacks know of the product: edited when it changes, and they are not."""

# ruff: noqa: F401 — names are here to be imported by others.
from __future__ import annotations

import pffl
from pffl.constraints.base import EVERY_SILO, Cells
from pffl.data import Federation, Rows, Silo
from pffl.data.schema import Schema
from pffl.errors import UsageError
from pffl.models import Inputs
from pffl.questions import (
    Census,
    CensusTotal,
    Curvature,
    CurvatureTotal,
    Pool,
    Slopes,
    Task,
    Train,
)
from pffl.site import Agreement, Rules, Site, SiteConfig, consent, store
from pffl.wire.keys import FILE as KEY
