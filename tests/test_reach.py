"""How low each cell alone can go, beside what a run reached."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

import pffl
from pffl.prepare import Options
from tests.helpers import make_federation
from tests.verifying import not_verified


def test_the_lowest_of_each_cell_alone_is_its_own_best_fit(tmp_path: Path) -> None:
    rows = make_federation(0)
    solution = pffl.solve(
        rows, pffl.BoundedGroupLoss(0.7), options=Options(reach=True), seed=0
    )
    pooled = rows.pooled("train")
    inputs = solution.model.inputs
    X = np.column_stack([inputs.apply(pooled.X), np.ones(len(pooled.X))])
    for a, name in enumerate(rows.schema.groups):
        own, y = X[pooled.group == a], pooled.y[pooled.group == a]

        def mean(w: np.ndarray, own: np.ndarray = own, y: np.ndarray = y) -> float:
            z = own @ w
            return float((np.logaddexp(0.0, z) - y * z).mean())

        best = minimize(mean, np.zeros(X.shape[1]), method="BFGS", tol=1e-10).fun
        row = solution.cells.loc[name]
        assert row["alone"] == pytest.approx(best, abs=1e-6)
        assert row["alone"] <= row["train_loss"] + 1e-9
    assert not_verified(solution, rows, tmp_path) == []


def test_one_label_has_nothing_to_reach() -> None:
    solution = pffl.solve(
        make_federation(0),
        pffl.ConditionalBoundedGroupLoss(0.9),
        options=Options(reach=True),
        seed=0,
    )
    assert solution.cells["alone"].isna().all()
