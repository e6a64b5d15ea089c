"""Rates of groups at any threshold are those of fairlearn's `MetricFrame`."""

from __future__ import annotations

import numpy as np
import pytest
from fairlearn.metrics import (
    MetricFrame,
    false_negative_rate,
    false_positive_rate,
    selection_rate,
)
from sklearn.metrics import zero_one_loss

import pffl

METRICS = {
    "error": zero_one_loss,
    "false_positive": false_positive_rate,
    "false_negative": false_negative_rate,
    "selected": selection_rate,
}


@pytest.mark.parametrize("threshold", [0.5, 0.2, 0.8])
def test_rates_of_groups(threshold):
    people = pffl.datasets.synthetic(3000, silos=3, groups=["f", "m"], random_state=4)
    model = pffl.LogisticRegression(threshold=threshold)
    solution = pffl.solve(people, 0.64, model=model, random_state=0)
    rows = people.pooled("test")
    p = solution.predict_proba(rows.X)[:, 1]
    groups = np.array(people.schema.groups)[rows.group]
    expected = MetricFrame(
        metrics=METRICS,
        y_true=rows.y,
        y_pred=(p > threshold).astype(int),
        sensitive_features=groups,
    ).by_group
    shares = expected["selected"]
    ratio = solution.conclusions.selection_ratio
    assert ratio["value"] == pytest.approx(shares.min() / shares.max(), abs=1e-12)
    for found in solution.conclusions.rates:
        for name in METRICS:
            rate = getattr(found, name)
            assert rate.value == pytest.approx(
                expected.loc[found.group, name], abs=1e-12
            )
            assert rate.lower <= rate.value <= rate.upper


def test_run_takes_a_threshold_and_says_so(command):
    seen = command("run", "synthetic", "--bound", "0.7", "--threshold", "0.3")
    assert seen.code == 0
    assert "on test rows, threshold 0.3, unconstrained → constrained" in seen.out
    assert command("verify", "runs/synthetic-001").code == 0
