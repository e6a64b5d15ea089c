"""Whom bounds bind: sentences that must be true."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.data import Federation
from tests.inside import conclude


def uneven(seed: int = 0, rows: int = 600, columns: int = 2) -> Federation:
    """Two groups whose labels depend on the inputs differently, one hardly at all."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    group = rng.choice(["hard", "easy"], size=rows, p=[0.3, 0.7])
    slope = np.where(group == "hard", 0.5, 2.5)
    y = (slope * X[:, 0] + rng.logistic(size=rows) > 0).astype(int)
    return Federation.from_arrays(
        X, y, sensitive_features=group, silo=np.arange(rows) % 3, random_state=seed
    )


def solved(bound: Any, **more: Any) -> pffl.Solution:
    model = pffl.LogisticRegression(l2=1e-4)
    options = pffl.Options(smallest_bound=False)
    return pffl.solve(
        uneven(), bound, model=model, options=options, random_state=0, **more
    )


def risk_of(bounds: dict[str, float]) -> float:
    found = solved(pffl.BoundedGroupLoss(bounds)).evidence.risk
    assert found is not None
    return float(found)


def test_the_cell_named_is_the_one_whose_bound_costs_most():
    bounds = {"hard": 0.66, "easy": 0.48}
    text = conclude(solved(pffl.BoundedGroupLoss(bounds)).evidence).binding
    at, costs = risk_of(bounds), {}
    for cell in bounds:  # what a looser bound saves
        costs[cell] = at - risk_of({**bounds, cell: bounds[cell] + 1e-3})
    most = max(costs, key=lambda cell: costs[cell])
    assert costs[most] > 1e-5
    assert text.index(f"'{most}'") == text.index("'")


def test_shares_are_those_of_the_multipliers():
    bounds = {"hard": 0.66, "easy": 0.46}  # which cannot both be met
    e = solved(pffl.BoundedGroupLoss(bounds)).evidence
    text = conclude(e).binding
    assert text is not None
    told = dict(re.findall(r"'(\w+)' \((\d+) %\)", text))
    shares = 100 * e.multipliers / e.multipliers.sum()
    assert {e.names[z]: f"{shares[z]:.0f}" for z in range(2)} == told


@pytest.mark.parametrize(
    ("bound", "method", "named"),
    [
        (pffl.BoundedGroupLoss(0.66), pffl.Exact(), True),
        (pffl.BoundedGroupLoss(0.9), pffl.Exact(), False),
        (pffl.BoundedGroupLoss(0.66), pffl.PFFL(dual_rounds=2), None),
        (pffl.BoundedGroupLoss(0.66), pffl.FedAvg(rounds=20), None),
        (None, pffl.Exact(), None),
        (pffl.MinMax(), pffl.Exact(), None),
    ],
)
def test_a_group_is_named_where_its_bound_is_binding(bound, method, named):
    """By multipliers, where the method has found them."""
    text = conclude(solved(bound, method=method).evidence).binding
    assert (None if text is None else "'hard'" in text) is named
