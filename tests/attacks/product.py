"""What frozen attacks know of the product: edited when it changes, and they are not."""

# ruff: noqa: F401 — names are here to be imported by others.
from __future__ import annotations

import pffl
from pffl.constraints.base import EVERY_SILO, Cells
from pffl.data import Federation, Rows, Silo
from pffl.data.schema import Schema
from pffl.errors import Refused, UsageError
from pffl.models import Inputs
from pffl.parcel import Parcel
from pffl.privacy.accounting import mu_of
from pffl.questions import (
    Census,
    Curvature,
    CurvatureTotal,
    Pool,
    Slopes,
    Task,
    Train,
)
from pffl.site import Agreement, Rules, Site
from pffl.wire import (
    Answer,
    Request,
    masks,
    question_body,
    read_answer,
    read_masked,
    signed_content,
    write_answer,
)
