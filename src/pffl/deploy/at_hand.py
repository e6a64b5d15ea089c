"""Secure sums in one process: sites over silos that are at hand, each with its key.

The same messages, masks, floor and shares of noise as between machines. Nothing is kept
from anybody here, since whoever runs it has the rows: no limit applies, and no account
is charged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pffl.constraints import Constraint
from pffl.data.federation import Federation
from pffl.deploy.federation import Agreement, sets_of
from pffl.deploy.keys import SiteKey
from pffl.deploy.limits import Limits
from pffl.deploy.server import InMemory, Remote
from pffl.deploy.site import Site
from pffl.models import rebuild
from pffl.models.base import Model
from pffl.privacy.run import sharing
from pffl.privacy.terms import Privacy
from pffl.queries import Query
from pffl.queries.base import Rebuild
from pffl.queries.validation import Policy
from pffl.tensors import MAX_BYTES
from pffl.typing import BoolArray

ALL = 1 << 50  # more than is ever asked
FOR_EVER = 1e9  # seconds: there is nothing to wait for
OPEN = Limits(
    floor=1,
    queries=ALL,
    radius=math.inf,
    batches=True,
    layouts=ALL,
    largest_message=MAX_BYTES,
)


class OpenSite(Site):
    """A site that answers whatever is asked under masks: whoever asks has the rows."""

    def _check_all(
        self, asked: Sequence[Query[Any]], hidden: Mapping[str, BoolArray]
    ) -> None:
        """Refuse nothing."""

    def _check_releases(self, asked: Sequence[Query[Any]]) -> None:
        """Refuse nothing but exact sums."""
        assert all(query.released for query in asked)  # noqa: S101

    def _task_marks(self, run: str, query: Query[Any]) -> dict[str, str]:
        """Let every query be another one."""
        return {}

    def _allow(self, costs: Sequence[float]) -> None:
        """Have no account."""


def secured(
    federation: Federation,
    model: Model | None = None,
    privacy: Privacy | None = None,
    constraint: Constraint | None = None,
    floor: int = Limits().floor,
) -> Remote:
    """Return an engine that asks a federation's silos for secure sums.

    `model` is the one that is trained, which may be one of the user's own. With
    `privacy` the silos share its noise; without it each leaves out its own people of a
    set of the `constraint` with fewer than `floor`.
    """
    keys = {name: SiteKey.generate() for name in federation.silo_names}
    public = {name: own.public for name, own in keys.items()}
    agreed = replace(
        Agreement.of(federation),
        keys=public,
        secure_sum=True,
        floor=floor if privacy is None else 1,  # a floor would break ε
    )
    sets = sets_of(constraint, agreed.schema, agreed.sites)
    rebuilding = _rebuilding(model)
    sites = {
        silo.name: OpenSite(
            silo,
            agreed,
            OPEN,
            key=keys[silo.name],
            own_model=rebuilding,
            sets=sets,
        )
        for silo in federation.silos
    }
    if privacy is not None:
        for name, site in sites.items():
            site.adding = sharing(len(sites), privacy, name)
    engine = Remote(
        InMemory({name: site.answer for name, site in sites.items()}),
        agreed,
        policy=Policy(weight_bound=_heaviest(federation), seconds=FOR_EVER),
    )
    engine.noisy = privacy is not None
    engine.federation, engine.sets = federation, sets
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
