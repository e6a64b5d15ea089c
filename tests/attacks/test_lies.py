"""Sites that lie: gradients with a wrong sign are refused, easy rows change little."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pffl
from pffl.engines.remote import InMemory, Remote
from pffl.errors import PFFLError
from pffl.solution import Solution
from pffl.wire import Policy, convexity
from tests.attacks.askers import tell
from tests.engines.sites import sites_of, spoil
from tests.helpers import make_federation

FEDERATION = make_federation(5, sizes=(120, 150, 180), test=60)


def flipped(arrays: dict[str, Any]) -> dict[str, Any]:
    """Turn the signs of all gradients."""
    return {
        name: -array if name.endswith(("gradient", "gradients")) else array
        for name, array in arrays.items()
    }


def trained(*, liar: bool) -> Solution:
    """Solve over three sites, the last of which may lie."""
    sites = sites_of(FEDERATION)
    if liar:
        last = list(sites)[-1]
        kinds = ("curvature", "slopes", "questions")
        sites[last] = spoil(sites[last], kinds, change=flipped)
    engine = Remote(
        InMemory(sites), FEDERATION.schema, FEDERATION.silo_names, policy=Policy()
    )
    return pffl.solve(engine, pffl.BoundedGroupLoss(0.66), method="exact")


def test_gradients_with_the_wrong_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = worst(trained(liar=False))
    with pytest.raises(PFFLError, match="no convex loss has both") as refused:
        trained(liar=True)
    assert "site 2" in str(refused.value)
    monkeypatch.setattr(convexity.Convexity, "judge", lambda *_: None)
    misled = worst(trained(liar=True))
    assert misled > honest + 0.01
    tell(
        "one site of three turns the sign of its gradients",
        f"admitted: a group's loss is {misled:.3f}, not {honest:.3f}",
        "refused",
    )


def worst(solution: Solution) -> float:
    """The largest loss of a group, on the true rows of all sites."""
    return max(loss_of(solution, group) for group in (0, 1))


def loss_of(solution: Solution, group: int) -> float:
    """A group's mean loss on the true rows of all sites."""
    rows = FEDERATION.pooled("train")
    model: Any = solution.model
    z = model.scores(solution.w, model.inputs.apply(rows.X))
    losses = np.logaddexp(0, z) - rows.y * z
    return float(losses[rows.group == group].mean())
