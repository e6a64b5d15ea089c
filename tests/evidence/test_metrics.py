"""Metrics from `evaluate` totals against fairlearn on the predictions themselves."""

from __future__ import annotations

import numpy as np
import pytest
from fairlearn import metrics as fairlearn_metrics
from sklearn.metrics import accuracy_score

import pffl
from pffl.data import Rows, Silo
from pffl.engines import Local
from pffl.queries import Evaluate
from tests.helpers import (
    from_silos,
    group_masks,
    make_federation,
    make_problem,
    make_schema,
)
from tests.inside import conclude, group_means, mean_losses, metrics
from tests.saddle import Oracle

SCHEMA = make_schema(attributes=(("group", ("a", "b", "c")),))


def evaluated(federation, w, *, split="train", constraint=None):
    engine = Local(federation, threads=1)
    problem = make_problem(engine, constraint or pffl.BoundedGroupLoss(0.5))
    total = engine.ask(Evaluate(problem.task, w, split))
    return metrics(total, federation.schema), total


def predictions(federation, w, split="train"):
    """Scale by the training rows' moments and predict, in plain NumPy."""
    train, rows = federation.pooled("train"), federation.pooled(split)
    X = (rows.X - train.X.mean(axis=0)) / train.X.std(axis=0)
    return rows.y, (X @ w[:-1] + w[-1] > 0).astype(float), rows.group


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("seed", range(4))
def test_gaps_agree_with_fairlearn(seed, split):
    federation = make_federation(seed, schema=SCHEMA, sizes=(90, 60, 150), test=40)
    w = np.random.default_rng(seed).normal(size=4)
    found, _ = evaluated(federation, w, split=split)
    y, predicted, group = predictions(federation, w, split)
    arguments = {"y_true": y, "y_pred": predicted, "sensitive_features": group}
    parity = fairlearn_metrics.demographic_parity_difference(**arguments)
    odds = fairlearn_metrics.equalized_odds_difference(**arguments)
    true_positive = fairlearn_metrics.MetricFrame(
        metrics=fairlearn_metrics.true_positive_rate, **arguments
    ).difference()
    assert found.rows == len(y)
    assert found.dp_gap == pytest.approx(parity, abs=1e-12)
    assert found.eo_gap == pytest.approx(true_positive, abs=1e-12)
    assert found.equalized_odds_gap == pytest.approx(odds, abs=1e-12)
    assert found.error == pytest.approx(1 - accuracy_score(y, predicted), abs=1e-12)


def test_rates_per_group_agree_with_fairlearn():
    federation = make_federation(7, schema=SCHEMA, sizes=(90, 60))
    w = np.random.default_rng(7).normal(size=4)
    _, total = evaluated(federation, w)
    y, predicted, group = predictions(federation, w)
    for label, metric in [
        (None, fairlearn_metrics.selection_rate),
        (1, fairlearn_metrics.true_positive_rate),
        (0, fairlearn_metrics.false_positive_rate),
    ]:
        frame = fairlearn_metrics.MetricFrame(
            metrics=metric, y_true=y, y_pred=predicted, sensitive_features=group
        )
        found = group_means(total, SCHEMA, "positive", label)
        np.testing.assert_allclose(found, frame.by_group.to_numpy(float), atol=1e-12)


def test_risk_and_cell_losses_agree_with_the_oracle():
    federation = make_federation(5, schema=SCHEMA, sizes=(90, 20, 5))
    w = np.random.default_rng(5).normal(size=4)
    found, total = evaluated(federation, w)
    oracle = Oracle.of(federation, group_masks(federation), [0.0] * 3, l2=0.0)
    losses = oracle.violation(w)
    np.testing.assert_allclose(mean_losses(total), losses, rtol=1e-12)
    assert found.worst_cell_loss == pytest.approx(losses.max(), rel=1e-12)
    assert found.risk == pytest.approx(oracle.risk(w), rel=1e-12)


def with_rows(*rows):
    """Build a federation of one silo from (x, label, group) triples, train = test."""
    schema = make_schema(features=1, attributes=(("group", ("a", "b", "c")),))
    x, y, group = (np.array(column) for column in zip(*rows, strict=True))
    part = Rows.of(x[:, None].astype(float), y, group)
    base = make_federation(0, schema=schema, sizes=(5,))
    return from_silos(base, [Silo("only", 0, {"train": part, "test": part})])


PREDICT_SIGN = np.array([1.0, 0.0])  # of the scaled input


def test_groups_without_the_label_are_left_out_of_its_gap():
    # Nobody of group c has y = 1. fairlearn calls its true positive rate 0, which
    # would make the gap 1; it is undefined, and the gap is between a and b.
    federation = with_rows(
        *[(2, 1, 0), (2, 1, 0), (-2, 1, 1), (2, 1, 1)],
        *[(-2, 0, 0), (-2, 0, 1), (2, 0, 2), (-2, 0, 2)],
    )
    found, total = evaluated(federation, PREDICT_SIGN)
    np.testing.assert_array_equal(
        group_means(total, federation.schema, "positive", 1), [1.0, 0.5, np.nan]
    )
    assert found.eo_gap == pytest.approx(0.5)
    assert found.equalized_odds_gap == pytest.approx(0.5)
    assert found.dp_gap == pytest.approx(2 / 3 - 1 / 3)


@pytest.mark.parametrize("labels", [0, 3])
def test_rates_are_for_two_classes_only(labels):
    federation = make_federation(0, labels=labels)
    w = np.zeros(4 * max(1, labels))
    found, _ = evaluated(federation, w)
    assert (found.dp_gap, found.eo_gap, found.equalized_odds_gap) == (None,) * 3
    assert (found.error is None) == (labels == 0)
    if labels:
        predicted = 0  # all scores are equal: the first class
        wrong = np.mean(federation.pooled("train").y != predicted)
        assert found.error == pytest.approx(wrong)


def solved_groups(labels=2, **options):
    federation = make_federation(3, labels=labels, test=40)
    settings = pffl.Options(**options)
    solution = pffl.solve(
        federation, pffl.BoundedGroupLoss(5.0), options=settings, random_state=0
    )
    return federation, solution


def test_rates_of_groups_are_those_of_the_rows_with_exact_intervals():
    from scipy.stats import binomtest

    federation, solution = solved_groups(confidence=0.9)
    rows = federation.pooled("test")
    _, predicted, _ = predictions(federation, solution.w, "test")
    wrong = predicted != rows.y
    found = {one.group: one for one in conclude(solution.evidence).rates}
    assert set(found) == set(federation.schema.groups)
    for a, group in enumerate(federation.schema.groups):
        one = found[group]
        assert one.rows == "test"
        for rate, among in (
            (one.error, rows.group == a),
            (one.false_positive, (rows.group == a) & (rows.y == 0)),
            (one.false_negative, (rows.group == a) & (rows.y == 1)),
        ):
            k, n = int(wrong[among].sum()), int(among.sum())
            assert (rate.people, rate.value) == (n, k / n)
            exact = binomtest(k, n).proportion_ci(0.9, "exact")
            assert rate.lower == pytest.approx(exact.low, abs=1e-9)
            assert rate.upper == pytest.approx(exact.high, abs=1e-9)
