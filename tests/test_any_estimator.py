"""`FairClassifier(estimator=…)`: bounds for any estimator, and what is said of it."""

from __future__ import annotations

import io

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import pffl
from pffl.errors import NotMetError, UsageError
from pffl.methods import Exact
from tests.raising import raises

BOOSTING = HistGradientBoostingClassifier(max_depth=3, max_iter=15, random_state=0)


def people(n: int, seed: int = 0, classes: int = 2):
    """Two groups whose labels depend on the inputs in opposite ways."""
    rng = np.random.default_rng(seed)
    X, group = rng.normal(size=(n, 3)), rng.choice(["a", "b"], n, p=[0.2, 0.8])
    slope = np.where(group == "a", -1.0, 1.5)
    score = slope * X[:, 0] + X[:, 1] + rng.logistic(size=n)
    edges = np.quantile(score, np.arange(1, classes) / classes)
    return X, np.searchsorted(edges, score), group


def group_losses(clf, X, y, group):
    table = pffl.metrics.group_losses(y, clf.predict_proba(X), sensitive_features=group)
    return table["loss"]


@pytest.fixture(scope="module")
def bounded():
    X, y, group = people(3000)
    clf = pffl.FairClassifier(0.66, estimator=BOOSTING, dual_rounds=8)
    return clf.fit(X, y, sensitive_features=group)


def test_a_bound_that_is_never_exceeded_changes_nothing():
    X, y, group = people(800)
    plain = clone(BOOSTING).fit(X, y)
    clf = pffl.FairClassifier(3.0, estimator=BOOSTING)
    clf.fit(X, y, sensitive_features=group)
    assert clf.status_ == "met"
    assert clf.n_iter_ == 1
    assert not clf.multipliers_.any()
    np.testing.assert_array_equal(clf.predict(X), plain.predict(X))
    np.testing.assert_allclose(clf.predict_proba(X), plain.predict_proba(X), atol=1e-2)


def test_a_bound_moves_the_worst_group_on_rows_that_nobody_trained_on(bounded):
    X, y, group = people(3000, seed=1)
    plain = clone(BOOSTING).fit(*people(3000)[:2])
    before = group_losses(plain, X, y, group)
    after = group_losses(bounded, X, y, group)
    assert bounded.status_ == "met"
    assert "cross-fitted" in bounded.message_
    assert (bounded.group_loss_["loss"] <= 0.66).all()
    assert before["a"] > 0.73
    assert after["a"] < 0.70
    assert bounded.multipliers_["a"] > 0
    assert bounded.multipliers_["b"] == 0


def test_the_verdict_is_of_rows_that_a_model_was_not_fitted_on():
    """A tree that knows its rows by heart has no loss there, and meets no bound."""
    X, y, group = people(600)
    tree = DecisionTreeClassifier(random_state=0)
    assert tree.fit(X, y).score(X, y) == 1.0
    clf = pffl.FairClassifier(0.6, estimator=tree, infeasible="nearest", dual_rounds=3)
    clf.fit(X, y, sensitive_features=group)
    assert clf.status_ == "not met"
    assert (clf.group_loss_["loss"] > 0.6).any()
    assert any("cross-fitted" in note for note in clf.solution_.evidence.notes)
    with raises(NotMetError, "not-met"):
        clone(clf).set_params(infeasible="raise").fit(X, y, sensitive_features=group)


def test_the_mean_of_probabilities_is_shipped_within_its_limits(bounded):
    X, least = people(500, seed=2)[0], np.exp(-bounded.loss_bound_)
    mean = np.mean([one.predict_proba(X) for one in bounded.estimators_], axis=0)
    shipped = bounded.predict_proba(X)
    np.testing.assert_allclose(shipped, mean.clip(least, 1 - least), rtol=1e-12)


def test_what_is_certified_holds_for_new_people():
    """Of 40 certificates on rows of their own, at most 5 % may be wrong: 2 + 3σ."""
    X, y, group = people(100_000, seed=3)
    clf = pffl.FairClassifier(0.66, estimator=BOOSTING, dual_rounds=4)
    clf.set_params(infeasible="nearest").fit(
        *people(1500)[:2], sensitive_features=people(1500)[2]
    )
    truth = group_losses(clf, X, y, group)
    wrong = 0
    for seed in range(40):
        rows = people(300, seed=10 + seed)
        found = clf.certificate(*rows[:2], sensitive_features=rows[2])
        clf.looks_ = []  # every certificate is the first one on its rows
        upper = {r["cell"]: r["upper"] for r in found.of_kind("holdout")[0].per_cell}
        wrong += any(upper[name] < truth[name] for name in truth.index)
    assert wrong <= 6


def test_the_certificate_names_the_model_by_what_it_predicts(bounded):
    X, y, group = people(400, seed=4)
    other = pffl.FairClassifier(2.0, estimator=BOOSTING)
    other.fit(*people(3000)[:2], sensitive_features=people(3000)[2])
    found = [
        clf.certificate(X, y, sensitive_features=group).fingerprints["model"]
        for clf in (bounded, other)
    ]
    assert found[0] != found[1]


def test_frames_pipelines_weights_and_several_classes():
    X, y, group = people(900, classes=3)
    frame = pd.DataFrame(X, columns=["p", "q", "r"]).assign(
        place=np.where(X[:, 1] > 0, "north", "south")
    )
    names = np.array(["low", "middle", "high"])[y]
    model = make_pipeline(
        OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=150)
    )
    clf = pffl.FairClassifier(1.4, estimator=model, dual_rounds=3)
    clf.fit(
        frame[["place"]],
        names,
        sensitive_features=group,
        sample_weight=np.r_[np.zeros(10), np.ones(890)],
    )
    assert clf.predict_proba(frame[["place"]]).shape == (900, 3)
    assert set(clf.predict(frame[["place"]])) <= set(names)
    assert clf.feature_names_in_.tolist() == ["place"]
    assert clf.group_loss_["rows"].sum() == 890


def test_numbers():
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(1500, 2)), rng.choice(["a", "b"], 1500)
    y = X[:, 0] * np.where(group == "a", 1.0, 3.0) + rng.normal(size=1500)
    plain = LinearRegression().fit(X, y)
    loss = (plain.predict(X) - y) ** 2
    bound = 0.5 * (loss[group == "a"].mean() + loss[group == "b"].mean()) * 1.15
    boosting = HistGradientBoostingRegressor(max_iter=30, max_depth=3, random_state=0)
    clf = pffl.FairRegressor(bound, estimator=boosting, target_range=(-40, 40))
    clf.fit(X, y, sensitive_features=group)
    assert clf.status_ == "met"
    assert clf.predict(X).shape == (1500,)
    found = clf.certificate(X[:700], y[:700], sensitive_features=group[:700])
    assert found.of_kind("holdout")[0].available
    same = pffl.FairRegressor(2 * loss.max(), estimator=LinearRegression())
    same.fit(X, y, sensitive_features=group)
    np.testing.assert_array_equal(same.predict(X), plain.predict(X))


def test_it_is_saved_and_explained_as_any_estimator(bounded):
    X, y, _ = people(300, seed=5)
    file = io.BytesIO()
    joblib.dump(bounded, file)
    file.seek(0)
    again = joblib.load(file)
    np.testing.assert_array_equal(again.predict_proba(X), bounded.predict_proba(X))
    found = permutation_importance(bounded, X, y, n_repeats=3, random_state=0)
    assert found.importances_mean[:2].min() > found.importances_mean[2]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"estimator": KNeighborsClassifier()}, "no-weights"),
        ({"l2": 0.1}, "options-conflict"),
        ({"method": Exact()}, "options-conflict"),
        ({"bound": "auto"}, "auto-refused"),
        ({"dual_rounds": 0}, "wrong-value"),
        ({"dual_rounds": 2.5}, "wrong-value"),
    ],
)
def test_what_does_not_fit_is_refused(options, code):
    X, y, group = people(200)
    clf = pffl.FairClassifier(0.6, estimator=BOOSTING).set_params(**options)
    with raises(UsageError, code):
        clf.fit(X, y, sensitive_features=group)


def test_a_threshold_changes_decisions_and_no_loss(bounded):
    X, y, group = people(1000)
    for estimator in (None, BOOSTING):
        clf = pffl.FairClassifier(2.0, estimator=estimator)
        clf.fit(X, y, sensitive_features=group)
        low = clone(clf).set_params(threshold=0.2).fit(X, y, sensitive_features=group)
        p = low.predict_proba(X)[:, 1]
        np.testing.assert_array_equal(p, clf.predict_proba(X)[:, 1])
        np.testing.assert_array_equal(low.predict(X) == 1, p > 0.2)
        rows = people(500, seed=9)
        found = low.certificate(*rows[:2], sensitive_features=rows[2])
        said = {row["cell"]: row for row in found.of_kind("holdout_error")[0].per_cell}
        wrong = low.predict(rows[0]) != rows[1]
        for name in ("a", "b"):
            own = wrong[rows[2] == name].mean()
            assert said[name]["error"] == pytest.approx(own, rel=1e-12)
    with raises(UsageError, "wrong-value"):
        pffl.FairClassifier(2.0, threshold=1.0).fit(X, y, sensitive_features=group)
    with raises(UsageError, "wrong-model"):
        pffl.FairClassifier(2.0, threshold=0.4).fit(
            X, y % 2 + (X[:, 0] > 1), sensitive_features=group
        )
