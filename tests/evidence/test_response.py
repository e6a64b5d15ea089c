"""What is measured without Hessians, against what is true and what Hessians say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.engines import Local
from pffl.models import LogisticRegression
from pffl.queries import Expand, Query
from tests.helpers import make_federation
from tests.inside import Before, Pair, auto
from tests.verifying import not_verified


def watch(patch: pytest.MonkeyPatch) -> None:
    """Let no query for Hessians pass."""
    passed = Local.ask_many

    def ask_many(self: Local, queries: Sequence[Query[Any]]) -> list[Any]:
        assert not any(isinstance(q, Expand) and q.order == 2 for q in queries)
        return passed(self, queries)

    patch.setattr(Local, "ask_many", ask_many)


BOUND = pffl.BoundedGroupLoss(0.66)
SLOW = ("softmax", "no ridge")
CASES = {
    "met": (BOUND, None, 2),
    "infeasible": (pffl.BoundedGroupLoss({"f": 0.69, "m": 0.3}), None, 2),
    "softmax": (pffl.BoundedGroupLoss(1.0), None, 3),
    "least squares": (pffl.BoundedGroupLoss(1.2), None, 0),
    "minmax": (pffl.MinMax(), None, 2),
    "no ridge": (BOUND, LogisticRegression(l2=0.0), 2),
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] * (case in SLOW)) for case in CASES],
)
def test_a_run_without_hessians_says_what_one_with_them_says(
    case, monkeypatch, tmp_path
):
    constraint, model, labels = CASES[case]
    rows = make_federation(3, sizes=(150, 80, 220), test=60, labels=labels)
    how: dict[str, Any] = {"model": model, "random_state": 0}
    exact = pffl.solve(rows, constraint, **how)
    monkeypatch.setattr(auto, "MAX_HESSIAN_PARAMETERS", 2)
    watch(monkeypatch)
    found = pffl.solve(rows, constraint, **how)
    assert found.as_dict()["method"]["kind"] == "first-order"
    assert exact.as_dict()["method"]["kind"] == "exact"
    assert found.status == exact.status
    assert found.as_dict()["converged"] is exact.as_dict()["converged"]
    one, other = found.evidence.proofs, exact.evidence.proofs
    assert isinstance(one.gap, Pair)
    assert isinstance(other.gap, Pair)
    assert one.gap.lower <= other.gap.upper + 1e-12
    assert one.gap.upper >= other.gap.lower - 1e-12
    assert isinstance(found.evidence.before, Before) == isinstance(
        exact.evidence.before, Before
    )
    losses = [[c.train_loss for c in s.cell_results] for s in (found, exact)]
    np.testing.assert_allclose(*losses, atol=2e-3)
    assert not_verified(found, rows, tmp_path) == []
