"""Sites that lie: what comes of it, and that the certificate assumes that none does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.data import Federation
from pffl.solution import Solution
from tests.attacks.askers import tell
from tests.deploy.sites import OPEN, agree, engine_of, remote, sites_of
from tests.deploy.spoiling import spoil
from tests.helpers import from_silos, make_federation

FEDERATION = make_federation(5, sizes=(120, 150, 180), test=60)


def flipped(arrays: dict[str, Any]) -> dict[str, Any]:
    """Turn the signs of all gradients."""
    return {
        name: -array if name.endswith(("gradient", "gradients")) else array
        for name, array in arrays.items()
    }


def trained(*, liar: bool) -> Solution:
    """Solve over three sites, the last of which may lie."""
    agreed = agree(FEDERATION, secure_sum=False, floor=0)
    sites: dict[str, Any] = sites_of(FEDERATION, agreed, rules=OPEN)
    if liar:
        last = list(sites)[-1]
        sites[last] = spoil(sites[last], ("expand",), change=flipped)
    engine = engine_of(sites, agreed)
    return pffl.solve(engine, pffl.BoundedGroupLoss(0.68), method="exact")


def test_gradients_with_the_wrong_sign() -> None:
    """They mislead the training, and no bound is called met that is not."""
    honest, lied = trained(liar=False), trained(liar=True)
    misled = worst(lied)
    assert misled > worst(honest) + 0.01
    assert (honest.status, lied.status) == ("met", "not converged")
    assert assumes_honest_sums(lied)
    tell(
        "one site of three turns the sign of its gradients",
        f"a group's loss is {misled:.3f}, not {worst(honest):.3f}",
        f"{lied.status}; assumed: all silos reported their sums truthfully",
    )


def assumes_honest_sums(solution: Solution) -> bool:
    """Whether the certificate says that it takes the sites at their word."""
    (found,) = solution.certificate.of_kind("empirical")
    return any("truthfully" in one.text for one in found.assumptions)


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


def eased(share: float) -> Federation:
    """Let the last site put easy rows in the place of its hardest; all counts stay."""
    reference = pffl.solve(FEDERATION, pffl.BoundedGroupLoss(0.9), method="exact")
    *others, last = FEDERATION.silos
    rows, model = last.rows("train"), reference.model
    X: Any = np.array(rows.X)
    losses = model.losses(reference.w, model.inputs.apply(X), rows.y)
    for label in (0, 1):
        mine = np.flatnonzero((rows.group == 1) & (rows.y == label))
        order = mine[np.argsort(losses[mine])]
        many = int(share * len(mine))
        X[order[len(order) - many :]] = X[order[:many]]
    lying = {**last.splits, "train": replace(rows, X=X)}
    return from_silos(FEDERATION, [*others, replace(last, splits=lying)])


@pytest.mark.parametrize("share", [0.1, pytest.param(0.6, marks=pytest.mark.slow)])
def test_easy_rows_in_the_place_of_hard_ones(share: float) -> None:
    """A bound that nobody can meet is met: the certificate assumes honest sums."""
    bound = pffl.BoundedGroupLoss(0.6616)
    assert pffl.solve(FEDERATION, bound, method="exact").status == "impossible"
    solution = pffl.solve(remote(eased(share)), bound, method="exact")
    assert solution.status == "met"
    assert assumes_honest_sums(solution)
    true = [loss_of(solution, group) for group in (0, 1)]
    assert max(true) > 0.6616 + 0.02
    tell(
        f"one site of three has easy rows for {share:.0%} of its hard ones, bound 0.66",
        f"MET for a group whose true loss is {max(true):.3f}",
        "MET; assumed: all silos reported their sums truthfully",
    )
