"""What frozen attacks know of the product: edited when it changes, and they are not."""

# ruff: noqa: F401 — names are here to be imported by others.
from __future__ import annotations

from typing import Any

import numpy as np

import pffl
from pffl.constraints import Cells
from pffl.data import Federation, Rows, Schema, Silo
from pffl.errors import DataError, Refused, UsageError
from pffl.models import Inputs
from pffl.parcel import Parcel
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
    Policy,
    Request,
    question_body,
    read_answer,
    read_masked,
    read_request,
    signed_content,
    write_answer,
)
from tests.engines.test_secure import engine_of
from tests.inside import EVERY_SILO, masks, mu_of


class Unguarded(Site):
    """A site without limits and floor, which keeps what it answered last."""

    said: tuple[Any, Any] | None = None  # questions, and its own totals

    def hidden(self, split: str) -> Any:
        return np.zeros(self.schema.n_atoms, dtype=bool)

    def _check_all(self, asked: Any) -> None:
        """Refuse nothing."""

    def _totals(self, asked: Any, index: int) -> Any:
        totals = super()._totals(asked, index)
        self.said = asked, totals
        return totals


def relayed(content: bytes, asked: Any) -> Any:
    """Totals of all sites in the step before, as a site is shown them; or None."""
    relay = read_request(content).relay
    length = sum(map(masks.size, asked))
    flats = [read_masked(read_answer(c), length) for c in relay]
    return masks.decode_all(asked, masks.add(flats), len(flats)) if relay else None


def heard_by(engine: Any, name: str, answer: Any) -> None:
    """Let a function answer for a site."""
    engine._transport.sites = {**engine._transport.sites, name: answer}
