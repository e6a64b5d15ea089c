"""What frozen attacks know of the product: edited when it changes, and they are not."""

# ruff: noqa: F401 — names are here to be imported by others.
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from pffl.constraints import Cells
from pffl.data import Federation, Rows, Schema, Silo
from pffl.deploy import Agreement, InMemory
from pffl.deploy import Limits as SiteLimits
from pffl.deploy import Site as OwnSite
from pffl.errors import DataError, Malformed, Refused, UsageError
from pffl.models import Inputs
from pffl.queries import (
    Census,
    Expand,
    ExpandTotal,
    Policy,
    Pool,
    Task,
    Train,
    read_query,
)
from pffl.tensors import Parcel
from tests.deploy.sites import alone, keys_of
from tests.deploy.sites import engine_of as engine_over
from tests.inside import (
    EVERY_SILO,
    Answer,
    Request,
    mu_of,
    query_body,
    read_answer,
    read_masked,
    read_request,
    signed_content,
    write_answer,
    write_request,
)
from tests.inside import secure_sum as masks
from tests.oracles import pffl


def engine_of(federation: Any, sites: Any, agreed: Agreement, **options: Any) -> Any:
    """Ask sites that are elsewhere, as far as the server can tell."""
    return engine_over(sites, agreed, **options)


class Site(OwnSite):
    """A site, made as attacks make one."""

    def __init__(
        self,
        silo: Silo,
        schema: Schema,
        rules: Any,
        state: Any = None,
        *,
        agreement: Agreement | None = None,
        keys: Any = None,
    ) -> None:
        if state is not None:
            state.mkdir(parents=True, exist_ok=True)
        agreed = agreement or alone(silo, schema)
        super().__init__(silo, agreed, rules, state, key=keys)
        self.rules = rules

    def shown(self, split: str) -> Any:
        """Count the rows of each stratum of a split that is not left out."""
        return np.where(self.hidden(split), 0, self.counts(split))


def Rules(*, questions: int | None = None, runs: int = 0, **given: Any) -> SiteLimits:
    """A site's limits; attacks say questions for queries, and count runs."""
    return SiteLimits(**given | ({} if questions is None else {"queries": questions}))


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

    def hidden(self, split: str, record: Any = None) -> Any:
        return np.zeros(self.schema.n_strata, dtype=bool)

    def _check_all(self, asked: Any, hidden: Any) -> None:
        """Refuse nothing."""

    def _totals(self, asked: Any, index: int, hidden: Any) -> Any:
        totals = super()._totals(asked, index, hidden)
        self.said = asked, list(map(told, totals))
        return totals


def relayed(content: bytes, asked: Any) -> Any:
    """Totals of all sites in the step before, as a site is shown them; or None."""
    request = read_request(content)
    relay = request.relay if request.step > 1 else ()  # at first, keys of the run
    length = sum(map(masks.size, asked))
    try:
        flats = [read_masked(read_answer(c), length) for c in relay]
    except Malformed:  # of another run, or of the step that counts sites
        return None
    if not relay:
        return None
    return list(map(told, masks.decode_all(asked, masks.add(flats), len(flats))))


def refused_by(site: Any, request: Any) -> str:
    """The code of the error by which a site refuses; empty if it answers."""
    try:
        with site.memory.turn():
            site._answered(request)
            raise KeyError  # nothing is remembered
    except KeyError:
        return ""
    except Refused as error:
        return error.code


def masked_words(content: bytes) -> Any:
    """What a site answered under its mask."""
    return read_answer(content).bodies[0].arrays["masked"].view(np.uint64)


def plain_words(site: Any, request: Any) -> Any:
    """What it would have said without a mask."""
    hidden = {split: site.hidden(split) for split in site.silo.splits}
    place = site._place(hidden["train"])
    asked = [
        read_query(body.header, body.arrays, site.schema, place=place)[0]
        for body in request.bodies
    ]
    totals = site._totals(asked, site.records.index, hidden)
    return masks.encode_all(asked, totals, len(site.agreement.sites))


def apart(one: Any, other: Any) -> Any:
    """The difference of two answers, each integer mod 2^128."""
    return masks._minus(one, other)


def believing(site: Any) -> Any:
    """A site that does not look whether its rows are those of the run."""
    site.records._identity = lambda run: {}
    return site


def heard_by(engine: Any, name: str, answer: Any) -> None:
    """Let a function answer for a site."""
    engine._transport.sites = {**engine._transport.sites, name: answer}
