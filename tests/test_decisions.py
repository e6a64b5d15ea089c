"""Decisions: thresholds, selection rates, ranking, calibration, what a page explores.

Every figure is computed again from predictions, by scikit-learn and fairlearn.
"""

import html
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equalized_odds_difference,
    true_positive_rate_difference,
)
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.inspection import permutation_importance
from sklearn.metrics import confusion_matrix, roc_auc_score

import pffl
from pffl.errors import PFFLError
from pffl.models import LogisticRegression
from tests.raising import raises
from tests.reports.browsing import window as window
from tests.verifying import not_verified


@pytest.fixture(scope="module")
def people():
    made = pffl.datasets.synthetic(4000, silos=3, groups=["f", "m"], random_state=4)
    return made.with_calibration(0.3)


@pytest.fixture(scope="module")
def solution(people):
    return pffl.solve(people, 0.66, certify=True, random_state=0)


@pytest.fixture(scope="module")
def test_rows(people, solution):
    rows = people.pooled("test")
    groups = np.array(people.schema.groups)[rows.group]
    return rows.y, groups, solution.predict_proba(rows.X)[:, 1]


def by_label(y, chosen):
    """Missed, false alarms, errors and selected, by their definitions."""
    tn, fp, fn, tp = confusion_matrix(y, chosen, labels=[0, 1]).ravel()
    return fn / (fn + tp), fp / (fp + tn), (fn + fp) / len(y), (fp + tp) / len(y)


def test_ranking_and_calibration_are_scikit_learns(solution, test_rows):
    y, groups, p = test_rows
    found = {one["group"]: one for one in solution.conclusions.result()["ranking"]}
    assert {*found} == {*groups}
    for name in found:
        own, one = groups == name, found[name]
        assert one["auc"] == pytest.approx(roc_auc_score(y[own], p[own]), abs=1e-12)
        pairs = p[own][y[own] == 1][:, None] - p[own][y[own] == 0]
        area = (pairs > 0).mean() + (pairs == 0).mean() / 2
        assert one["auc"] == pytest.approx(area, abs=1e-12)
        assert one["predicted"] == pytest.approx(p[own].mean(), abs=1e-12)
        assert one["observed"] == pytest.approx(y[own].mean(), abs=1e-12)


def test_equal_rows_are_ties(people):
    """A column of two values: whole groups of rows share a probability."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (2000, 3)).astype(float)
    y = X.sum(axis=1) + rng.logistic(size=2000) > 1.5
    here = pffl.Federation.from_arrays(
        X,
        y.astype(int),
        sensitive_features=rng.choice(["a", "b"], 2000),
        silo=rng.choice(["s", "t"], 2000),
    )
    found = pffl.solve(here, None, random_state=0)
    rows = here.pooled("test")
    p = np.round(found.predict_proba(rows.X)[:, 1], 9)
    for a, one in enumerate(found.conclusions.result()["ranking"]):
        own = rows.group == a
        assert one["auc"] == pytest.approx(
            roc_auc_score(rows.y[own], p[own]), abs=1e-12
        )


def test_thresholds_are_those_of_predictions(solution, test_rows):
    y, groups, p = test_rows
    scores = solution.evidence.scores
    assert scores.thresholds[0] == 0.5
    assert len({*scores.thresholds}) == len(scores.thresholds) == 19
    for cut, chosen in zip(scores.thresholds, scores.selected, strict=True):
        for a, name in enumerate(solution.evidence.groups):
            for label in (0, 1):
                own = (groups == name) & (y == label)
                assert chosen[2 * a + label] == (p[own] > cut).sum()


def test_differences_are_fairlearns(solution, test_rows):
    y, groups, p = test_rows
    given = {"sensitive_features": groups}
    chosen = (p > 0.5).astype(int)
    found = solution.conclusions.test
    for value, oracle in (
        (found.dp_gap, demographic_parity_difference),
        (found.eo_gap, true_positive_rate_difference),
        (found.equalized_odds_gap, equalized_odds_difference),
    ):
        assert value == pytest.approx(oracle(y, chosen, **given), abs=1e-12)


def test_figures_are_verified_and_forgeries_found(people, solution, tmp_path):
    assert not_verified(solution, people, tmp_path) == []
    scores = solution.evidence.scores
    for number, change in enumerate(
        (
            {"auc": [0.9, *scores.auc[1:]]},
            {"selected": [[0.0] * 4, *scores.selected[1:]]},
            {"free_auc": [0.2, 0.2]},
            {"probabilities": scores.probabilities[::-1]},
        )
    ):
        forged = replace(solution.evidence, scores=replace(scores, **change))
        folder = tmp_path / str(number)
        folder.mkdir()
        found = not_verified(replace(solution, evidence=forged), people, folder)
        assert any(text.startswith("scores") for text in found)


# A selection rate


@pytest.mark.parametrize("rate", [0.1, 0.35, 0.8])
def test_a_selection_rate_is_kept_on_training_rows(people, rate):
    options = pffl.Options(selection_rate=rate)
    found = pffl.solve(people, 0.68, options=options, random_state=0)
    plain = pffl.solve(people, 0.68, random_state=0)
    np.testing.assert_allclose(found.w, plain.w)
    p = found.predict_proba(people.pooled("train").X)[:, 1]
    share = (p > found.model.threshold).mean()
    assert rate - 2 / len(p) - 1e-3 <= share <= rate
    told = f"{100 * rate:g} % of the training rows are selected, at most"
    assert any(told in note for note in found.evidence.notes)
    assert found.conclusions.train.error == pytest.approx(
        ((p > found.model.threshold) != people.pooled("train").y).mean(), abs=1e-12
    )


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"options": {"selection_rate": 0.0}}, "wrong-value"),
        ({"options": {"selection_rate": 0.2, "certify": True}}, "options-conflict"),
        (
            {
                "options": {"selection_rate": 0.2},
                "model": LogisticRegression(threshold=0.3),
            },
            "options-conflict",
        ),
    ],
)
def test_refused(people, given, code):
    with raises(PFFLError, code):
        made = pffl.Options(**given.pop("options"))
        pffl.solve(people, 0.68, options=made, random_state=0, **given)


def test_commands_take_a_selection_rate_and_audits_a_threshold(command):
    seen = command("run", "synthetic", "--bound", "0.7", "--threshold", "30%")
    assert seen.code == 0
    assert command("verify", "runs/synthetic-001").code == 0
    typed = ("audit", "runs/synthetic-001", "synthetic", "--threshold")
    seen = command(*typed, "0.9")
    assert "on audited rows, threshold 0.9" in seen.out
    assert command("verify", "audits/synthetic-001").code == 0
    assert command(*typed, "1.5").code == 2


def test_audit_at_a_threshold():
    rng = np.random.default_rng(0)
    p, group = rng.uniform(size=800), rng.choice(["a", "b"], 800)
    y = (rng.uniform(size=800) < p).astype(int)
    found = pffl.audit(p, y=y, sensitive_features=group, threshold=0.7)
    for one in found.conclusions.rates:
        own = group == one.group
        missed, alarms, errors, selected = by_label(y[own], p[own] > 0.7)
        assert one.false_negative.value == pytest.approx(missed, abs=1e-12)
        assert one.false_positive.value == pytest.approx(alarms, abs=1e-12)
        assert one.error.value == pytest.approx(errors, abs=1e-12)
        assert one.selected.value == pytest.approx(selected, abs=1e-12)


# The page


def figures_of(page):
    found = re.findall(r'data-figures="([^"]*)"', page)
    return [json.loads(html.unescape(text)) for text in found]


def test_sliders_hold_the_figures(solution, test_rows):
    p = test_rows[2]
    thresholds, path = figures_of(pffl.report(solution))
    assert thresholds["steps"][thresholds["at"]] == "threshold 0.5"
    assert thresholds["steps"] == sorted(thresholds["steps"])
    for k, step in enumerate(thresholds["steps"]):
        cut = float(step.removeprefix("threshold "))
        assert sum(thresholds["selected"][k]) == (p > cut).sum()
    evidence = solution.evidence
    assert path["at"] == evidence.path.chosen
    assert len(path["steps"]) == len(evidence.path.candidates)
    assert pffl.report(solution) == pffl.report(solution)


# Explaining other estimators


def test_permutation_importance_of_boosting():
    """scikit-learn's own function, with the error under bounds as its score."""
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(600, 3)), rng.choice(["a", "b"], 600)
    y = X[:, 0] + 0.2 * rng.normal(size=600) > 0
    boosting = HistGradientBoostingClassifier(max_iter=20, random_state=0)
    clf = pffl.FairClassifier(
        0.6, estimator=boosting, dual_rounds=2, infeasible="nearest", random_state=0
    )
    clf.fit(X, y, sensitive_features=group)
    e = clf.solution_.evidence  # its figures are cross-fitted, at its own threshold
    assert e.scores.selected[0] == e.seen.strata["positive"]
    assert all(0.9 < area <= 1 for area in e.scores.auc)
    found = permutation_importance(clf, X, y, n_repeats=3, random_state=0)
    assert found.importances_mean.argmax() == 0
    assert found.importances_mean[0] > 10 * abs(found.importances_mean[1:]).max()


@pytest.mark.parametrize("bound", [0.62, 0.64, 0.69, 3.0])
def test_who_gains_and_who_loses(bound):
    """The groups are those whose loss changes most, and nobody is named in vain."""
    people = pffl.datasets.synthetic(
        3000, silos=3, groups=["f", "m", "x"], random_state=4
    )
    constraint = pffl.ConditionalBoundedGroupLoss(bound)
    solution = pffl.solve(people, constraint, random_state=0)
    cells = solution.cell_results
    change = {c.cell: c.train_loss - c.before_train_loss for c in cells}
    told = solution.conclusions.changes
    least, most = min(change, key=change.get), max(change, key=change.get)
    expected = [f"'{least}' gains most"] * (change[least] <= -1e-3)
    expected += [f"'{most}' loses most"] * (change[most] >= 1e-3)
    assert [text.split(" most")[0] + " most" for text in told] == expected
    assert bool(told) == (bound < 1)
    for text, name in zip(told, (least, most), strict=False):
        cell = next(c for c in cells if c.cell == name)
        assert f"from {cell.before_train_loss:.4g} to {cell.train_loss:.4g}" in text
