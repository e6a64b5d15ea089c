"""What frozen attacks know of the product: edited when it changes, and they are not."""

# ruff: noqa: F401 — names are here to be imported by others.
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import pffl
from pffl.constraints import Cells
from pffl.data import Federation, Rows, Schema, Silo
from pffl.errors import DataError, Refused, UsageError
from pffl.models import Inputs
from pffl.parcel import Parcel
from pffl.queries import (
    Census,
    Expand,
    ExpandTotal,
    Pool,
    Task,
    Train,
)
from pffl.site import Agreement, Site
from pffl.site import Rules as SiteRules
from pffl.wire import (
    Answer,
    Policy,
    Request,
    query_body,
    read_answer,
    read_masked,
    read_request,
    signed_content,
    write_answer,
    write_request,
)
from tests.engines.test_secure import engine_of
from tests.inside import EVERY_SILO, InMemory, masks, mu_of


def Rules(*, questions: int | None = None, **given: Any) -> SiteRules:
    """A site's limits; attacks say questions for queries."""
    return SiteRules(**given | ({} if questions is None else {"queries": questions}))


class Kind(type):
    """Queries for an expansion of one order, as attacks make and recognise them."""

    order: int

    def __call__(cls, task: Task, w: Any) -> Any:
        return Expand(task, w, cls.order)

    def __instancecheck__(cls, one: Any) -> bool:
        return isinstance(one, Expand) and one.order == cls.order


class Slopes(metaclass=Kind):
    """Values and gradients."""

    order = 1


class Curvature(metaclass=Kind):
    """Values, gradients and Hessians."""

    order = 2


CurvatureTotal = Any


def told(total: Any) -> Any:
    """What a total says of F and of cells, each by its name."""
    if not (isinstance(total, ExpandTotal) and total.losses.size):
        return total
    (risk, *_), cells = total.losses, total.losses[1:]
    known = {"risk": float(risk), "cell_losses": cells}
    known |= {
        "risk_gradient": total.gradients[0],
        "cell_gradients": total.gradients[1:],
    }
    if total.hessians.size:
        known |= {
            "risk_hessian": total.hessians[0],
            "cell_hessians": total.hessians[1:],
        }
    return SimpleNamespace(**known)


class Unguarded(Site):
    """A site without limits and floor, which keeps what it answered last."""

    said: tuple[Any, Any] | None = None  # queries, and its own totals

    def hidden(self, split: str) -> Any:
        return np.zeros(self.schema.n_atoms, dtype=bool)

    def _check_all(self, asked: Any) -> None:
        """Refuse nothing."""

    def _totals(self, asked: Any, index: int) -> Any:
        totals = super()._totals(asked, index)
        self.said = asked, list(map(told, totals))
        return totals


def relayed(content: bytes, asked: Any) -> Any:
    """Totals of all sites in the step before, as a site is shown them; or None."""
    request = read_request(content)
    relay = request.relay if request.step > 1 else ()  # at first, keys of the run
    length = sum(map(masks.size, asked))
    flats = [read_masked(read_answer(c), length) for c in relay]
    if not relay:
        return None
    return list(map(told, masks.decode_all(asked, masks.add(flats), len(flats))))


def refused_by(site: Any, request: Any) -> str:
    """The code of the error by which a site refuses; empty if it answers."""
    try:
        site._answer(request, remember=False)
    except Refused as error:
        return error.code
    return ""


def masked_number(content: bytes) -> int:
    """What a site answered under its mask, as the one whole number that it is."""
    flat = read_answer(content).bodies[0].arrays["masked"]
    return int.from_bytes(flat.astype("<i8").tobytes(), "little")


def plain_number(site: Any, request: Any) -> int:
    """What it would have said without a mask."""
    place = site._place(site._member)
    asked = [site._read(body, place)[0] for body in request.bodies]
    flat = masks.encode_all(asked, site._totals(asked, site._member.index))
    return int.from_bytes(flat.astype("<u8").tobytes(), "little")


def believing(site: Any) -> Any:
    """A site that does not look whether its rows are those of the run."""
    site._member._refuse_other = lambda *_: None
    return site


def heard_by(engine: Any, name: str, answer: Any) -> None:
    """Let a function answer for a site."""
    engine._transport.sites = {**engine._transport.sites, name: answer}
