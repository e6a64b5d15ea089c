"""Whom bounds bind, and what was overfitted: sentences that must be true."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.data import Federation
from tests.inside import Conclusions, Evidence, Missing, Sample, conclude

BOUND = pffl.BoundedGroupLoss(5.0)


def uneven(seed: int = 0, rows: int = 600, columns: int = 2) -> Federation:
    """Two groups whose labels depend on the inputs differently, one hardly at all."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    group = rng.choice(["hard", "easy"], size=rows, p=[0.3, 0.7])
    slope = np.where(group == "hard", 0.5, 2.5)
    y = (slope * X[:, 0] + rng.logistic(size=rows) > 0).astype(int)
    return Federation.from_arrays(
        X, y, sensitive_features=group, silo=np.arange(rows) % 3, seed=seed
    )


def solved(bound: Any, **more: Any) -> pffl.Solution:
    model = pffl.LogisticRegression(l2=1e-4)
    options = pffl.Options(smallest_bound=False)
    return pffl.solve(uneven(), bound, model=model, options=options, seed=0, **more)


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


# Overfitting


def fit(columns: int, rows: int, l2: float = 1e-6) -> Evidence:
    model = pffl.LogisticRegression(l2=l2)
    options = pffl.Options(baseline=False, smallest_bound=False)
    federation = uneven(rows=rows, columns=columns)
    return pffl.solve(federation, BOUND, model=model, options=options, seed=0).evidence


def test_many_inputs_and_few_rows_are_overfitted_and_a_ridge_helps():
    assert Conclusions(fit(80, 240)).overfitted is not None
    assert Conclusions(fit(80, 240, l2=30.0)).overfitted is None
    assert Conclusions(fit(2, 1200)).overfitted is None


def drawn(e: Evidence, sample: Sample, losses: np.ndarray, seed: int) -> Sample:
    """The sums of a sample whose losses are drawn, all from one law."""
    rng = np.random.default_rng(seed)
    count = np.array(sample.cells["count"], int)
    parts = [rng.choice(losses, size=n) for n in count]
    sums = [float(p.sum()) for p in parts]
    squares = [float((p**2).sum()) for p in parts]
    columns = {"bounded_loss": sums, "bounded_loss_squared": squares}
    share = [1 / len(e.labels)] * len(e.labels)
    strata = {
        name: [value * part for value in values for part in share]
        for name, values in columns.items()
    }
    return replace(
        sample,
        cells={**sample.cells, **columns},
        strata={**sample.strata, **strata},
    )


@pytest.mark.parametrize("skew", ["even", "rare disasters"])
def test_chance_alone_is_not_called_overfitting(skew):
    e = fit(2, 1200)
    assert isinstance(e.heldout, Sample)
    losses = np.array([0.2, 0.4, 0.6, 1.0] if skew == "even" else [0.1] * 19 + [3.0])
    alarms = sum(
        Conclusions(
            replace(
                e,
                seen=drawn(e, e.seen, losses, 2 * i),
                heldout=drawn(e, e.heldout, losses, 2 * i + 1),
            )
        ).overfitted
        is not None
        for i in range(400)
    )
    assert alarms <= 2
    worse = replace(e, heldout=drawn(e, e.heldout, losses + 0.5, 1))
    same = replace(worse, seen=drawn(e, e.seen, losses, 0))
    assert Conclusions(same).overfitted is not None


def test_few_rows_and_no_rows_say_nothing():
    e = fit(20, 60)
    assert Conclusions(e).overfitted is None
    gone = replace(e, heldout=Missing("needs held-out rows, and there are none"))
    assert Conclusions(gone).overfitted is None
