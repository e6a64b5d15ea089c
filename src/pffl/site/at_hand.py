"""Secure sums in one process: sites over silos that are at hand, each with its keys.

The same messages, masks, floor, shares of noise and checks as between machines. Nothing
is kept from anybody here, since whoever runs it has the rows: no limit applies, and no
account is charged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pffl.constraints.base import Constraint
from pffl.data.federation import Federation
from pffl.engines.remote import InMemory, Secured
from pffl.models import rebuild
from pffl.models.base import Model
from pffl.parcel import LARGEST
from pffl.privacy.terms import Privacy
from pffl.queries import Query
from pffl.queries.base import Rebuild
from pffl.site.agreement import Agreement
from pffl.site.answer import Site
from pffl.site.config import Rules
from pffl.site.floor import sets_of
from pffl.solving import sharing
from pffl.wire import Policy
from pffl.wire.keys import SiteKeys

FLOOR = Rules().floor
ALL = 1 << 50  # more than is ever asked
FOR_EVER = 1e9  # seconds: there is nothing to wait for
OPEN = Rules(
    floor=1,
    queries=ALL,
    runs=ALL,
    radius=math.inf,
    batches=True,
    layouts=ALL,
    largest_message=LARGEST,
)


class Unguarded(Site):
    """A site that answers whatever is asked under masks."""

    def _check(self, query: Query[Any], shown: int) -> None:
        """Refuse nothing: whoever asks has the rows."""

    def _check_budget(self, asked: Sequence[Query[Any]]) -> None:
        """Have no budget: whoever asks has the rows."""


def secured(
    federation: Federation,
    model: Model | None = None,
    privacy: Privacy | None = None,
    constraint: Constraint | None = None,
    floor: int = FLOOR,
) -> Secured:
    """Return an engine that asks a federation's silos for secure sums.

    `model` is the one that is trained, which may be one of the user's own. With
    `privacy` the silos share its noise; without it each leaves out its own people of a
    set of the `constraint` with fewer than `floor`.
    """
    keys = {name: SiteKeys.generate() for name in federation.silo_names}
    public = {name: own.public for name, own in keys.items()}
    agreed = replace(
        Agreement.of(federation), keys=public, secure_sum=True, floor=floor
    )
    sets = sets_of(constraint, agreed.schema, agreed.sites)
    sites = {
        silo.name: Unguarded(
            silo,
            agreed.schema,
            OPEN,
            own_model=_rebuilding(model),
            agreement=agreed,
            keys=keys[silo.name],
            sets=sets,
        )
        for silo in federation.silos
    }
    if privacy is not None:
        for name, site in sites.items():
            site.adding = sharing(len(sites), privacy, name)
    engine = Secured(
        InMemory({name: site.answer for name, site in sites.items()}),
        agreed.encoding,
        agreed.sites,
        agreed.keys,
        agreement=agreed.hash,
        splits=agreed.splits,
        floor=agreed.floor,
        policy=Policy(weight_bound=_heaviest(federation), seconds=FOR_EVER),
        name=federation.name,
        noise=privacy is not None,
    )
    engine.federation = federation
    return engine


def _rebuilding(model: Model | None) -> Rebuild | None:
    """Return what rebuilds the model from its description, and others of ours."""
    if model is None:
        return None
    known = json.loads(json.dumps(dict(model.describe())))
    return lambda found, size: model if found == known else rebuild(found, size)


def _heaviest(federation: Federation) -> float | None:
    """Return the largest weight of any row; None where all count alike."""
    if not federation.weighted:
        return None
    parts = [rows for silo in federation.silos for rows in silo.splits.values()]
    return max(float(rows.weights.max(initial=0.0)) for rows in parts)
