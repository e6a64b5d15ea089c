"""Estimators as scikit-learn's users use them, held against independent truth."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import pffl
from pffl import FairClassifier, FairRegressor, metrics
from pffl.errors import DataError, NotMetError, PFFLError, UsageError
from pffl.methods import Exact
from tests.raising import raises


def checked(*estimators):
    """Return scikit-learn's checks of estimators, as a list: pytest wants one."""
    pairs = [pair for own in estimators for pair in estimator_checks_generator(own)]
    names = [f"{own} {getattr(check, 'func', check).__name__}" for own, check in pairs]
    return pytest.mark.parametrize(("estimator", "check"), pairs, ids=names)


@checked(FairClassifier(), FairRegressor())
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:cells with fewer than 10 training rows")
@checked(
    # Not "smallest": without the risk and its ridge, more inputs than rows leave many
    # models that are equally good, and weights another one of them than repeated rows.
    FairClassifier(bound=0.65, infeasible="nearest"),
    FairRegressor(bound=0.9, loss="huber", infeasible="nearest"),
)
def test_scikit_learn_checks_with_bounds(estimator, check):
    check(estimator)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


class Table:
    """People with a text column, of two sexes whose labels go two ways."""

    def __init__(self, rows=1200, seed=0):
        rng = np.random.default_rng(seed)
        self.X = pd.DataFrame(
            {
                "age": rng.normal(40, 10, rows).round(1),
                "pay": rng.lognormal(10, 0.5, rows).round(),
                "job": rng.choice(["clerk", "cook", "nurse"], rows),
            }
        )
        self.sex = pd.Series(rng.choice(["f", "m"], rows, p=[0.3, 0.7]), name="sex")
        slope = np.where(self.sex == "f", 0.15, -0.05)
        score = slope * (self.X.age - 40) + 3.0 * np.log(self.X.pay / 22_000)
        noise = rng.logistic(size=rows)
        self.y = pd.Series(np.where(score + noise > 0.7, "yes", "no"), name="hired")
        self.number = pd.Series(1_000.0 * (score + noise), name="income")
        self.plain = self.X[["age", "pay"]]
        self.rows, self.who = (self.plain, self.y), {"sensitive_features": self.sex}


@pytest.fixture(scope="module")
def people():
    return Table()


def fit(own, people, **more):
    return own.fit(*people.rows, **people.who, **more)


def pipeline(**given):
    columns = make_column_transformer(
        (OneHotEncoder(), ["job"]), remainder=StandardScaler()
    )
    return Pipeline([("columns", columns), ("clf", FairClassifier(**given))])


# Against independent truth


def test_without_a_bound_it_is_scikit_learns_regression(people):
    X, n = StandardScaler().fit_transform(people.plain), len(people.y)
    own = FairClassifier(l2=1e-2).fit(*people.rows)
    ones = np.column_stack([X, np.ones(n)])  # our ridge covers the constant, too
    theirs = LogisticRegression(
        C=1 / (1e-2 * n), solver="newton-cholesky", fit_intercept=False, tol=1e-12
    )
    theirs.fit(ones, people.y)
    least = np.exp(-own.loss_bound_)
    proba = theirs.predict_proba(ones).clip(least, 1 - least)
    np.testing.assert_allclose(own.predict_proba(people.plain), proba, atol=1e-4)
    assert (own.predict(people.plain) == theirs.predict(ones)).all()
    score = own.decision_function(people.plain)
    assert (own.classes_[(score > 0).astype(int)] == own.predict(people.plain)).all()


def test_a_regression_without_a_bound_is_ridge(people):
    X, y = StandardScaler().fit_transform(people.plain), people.number
    own = FairRegressor(l2=1e-2).fit(people.plain, y)
    # mean r² + (μ/2)·unit·‖w‖², w in units of the target: Σr² + (nμ/2)‖coef‖²
    theirs = Ridge(alpha=len(y) * 1e-2 / 2).fit(X, y)
    np.testing.assert_allclose(own.predict(people.plain), theirs.predict(X), rtol=1e-8)


def test_a_bounded_model_is_cvxpys(people):
    cp = pytest.importorskip("cvxpy")
    free = fit(FairClassifier(), people)
    bound = float(free.group_loss_["loss"].max()) - 0.02
    own = fit(FairClassifier(bound), people)
    X = np.column_stack(
        [StandardScaler().fit_transform(people.plain), np.ones(len(people.y))]
    )
    w, sign = cp.Variable(3), np.where(people.y == "yes", 1.0, -1.0)
    losses = cp.logistic(cp.multiply(-sign, X @ w))
    kept = [
        cp.mean(losses[np.flatnonzero(people.sex == sex)]) <= bound
        for sex in ("f", "m")
    ]
    risk = cp.mean(losses) + 5e-4 * cp.sum_squares(w)
    cp.Problem(cp.Minimize(risk), kept).solve(solver=cp.CLARABEL)
    assert own.status_ == "met"
    assert own.converged_ is True
    assert own.gap_ < 1e-5
    scores = own.decision_function(people.plain)
    np.testing.assert_allclose(scores, X @ w.value, atol=2e-3)
    assert (own.group_loss_["loss"] <= bound + 1e-9).all()
    assert own.multipliers_["f"] > 0.01
    assert own.multipliers_["m"] == pytest.approx(0.0, abs=1e-12)
    # What it ships has the losses that it says.
    proba = own.predict_proba(people.plain)
    for sex, row in own.group_loss_.iterrows():
        here = people.sex == sex
        found = log_loss(people.y[here], proba[here], labels=own.classes_)
        assert found == pytest.approx(row["loss"], rel=1e-3)  # within its limits
        assert row["rows"] == here.sum()


def test_a_bound_is_chosen_on_training_rows(people):
    clf = FairClassifier("auto")
    fit(clf, people)
    (bound,) = set(clf.group_loss_["bound"])
    assert clf.status_ == "met"
    assert fit(FairClassifier("smallest"), people).group_loss_["loss"].max() < bound
    assert any("set aside" in note for note in clf.solution_.notes)


def test_several_classes_keep_their_type():
    rng = np.random.default_rng(1)
    X, kind = rng.normal(size=(600, 3)), rng.integers(0, 2, 600)
    y = np.array([10, 20, 35])[(X[:, :2] + rng.gumbel(size=(600, 2))).argmax(1)]
    y[X[:, 2] > 1] = 35
    clf = FairClassifier("smallest").fit(X, y, sensitive_features=kind)
    assert clf.coef_.shape == (3, 3)
    assert clf.predict(X).dtype == y.dtype
    assert set(clf.predict(X)) <= {10, 20, 35}
    proba = clf.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert proba.min() >= np.exp(-clf.loss_bound_) * (1 - 1e-12)
    worst = metrics.worst_group_loss(y, proba, sensitive_features=kind)
    assert worst == pytest.approx(clf.group_loss_["loss"].max(), rel=1e-3)


def test_inputs_far_from_zero_keep_their_digits(people):
    dates = people.plain.assign(age=1.7e12 + people.plain.age)  # in milliseconds
    near = FairClassifier().fit(*people.rows)
    far = FairClassifier().fit(dates, people.y)
    lost = (dates.age - 1.7e12 - people.plain.age).abs().max()  # by the dates' floats
    scores = near.decision_function(people.plain)
    np.testing.assert_allclose(far.decision_function(dates), scores, atol=10 * lost)
    solved = far.solution_.decision_function(dates)
    np.testing.assert_allclose(far.decision_function(dates), solved, atol=1e-12)
    raw = people.plain @ near.coef_[0] + near.intercept_[0]
    np.testing.assert_allclose(scores, raw, atol=1e-9)


# In scikit-learn's hands


def test_in_a_pipeline_with_a_column_transformer(people, routing):
    pipe = pipeline(bound=0.58)
    pipe.fit(people.X, people.y, **people.who)
    clf = pipe["clf"]
    assert clf.status_ == "met"
    assert list(clf.group_loss_.index) == ["f", "m"]
    assert pipe.predict_proba(people.X).shape == (len(people.y), 2)
    assert pipe.score(people.X, people.y) > 0.6


def test_grid_search_routes_groups_to_fit_and_score(people, routing):
    grid = GridSearchCV(
        pipeline(infeasible="nearest"),
        {"clf__bound": [None, 0.56, {"f": 0.59}], "clf__l2": [1e-3]},
        scoring={"worst": metrics.worst_group_loss_scorer, "accuracy": "accuracy"},
        refit="worst",
        cv=3,
    )
    grid.fit(people.X, people.y, **people.who)
    assert grid.best_params_["clf__bound"] == 0.56
    found = grid.cv_results_
    assert (found["mean_test_worst"] < 0).all()
    assert found["mean_test_worst"][1] > found["mean_test_worst"][0]


def test_a_pickle_holds_no_rows_and_still_certifies(people):
    marked = people.plain.assign(pay=people.plain.pay + 0.123456789)
    clf = FairClassifier(0.6).fit(marked, people.y, **people.who)
    data = pickle.dumps(clf)
    assert len(data) < 12_000
    for value in marked.pay[:50]:
        assert np.float64(value).tobytes() not in data
        assert repr(value).encode() not in data
    again = pickle.loads(data)  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(again.predict(marked), clf.predict(marked))
    pd.testing.assert_frame_equal(again.group_loss_, clf.group_loss_)
    new = Table(500, seed=1)
    told = again.certificate(*new.rows, **new.who)
    assert told.verdicts["training"]["verdict"] == "met"
    assert told.as_dict() == clf.certificate(*new.rows, **new.who).as_dict()
    assert all(_is_plain(value) for value in vars(again).values()), vars(again)


def _is_plain(value):
    """Whether no class of ours is needed to read it."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, [*value, *value.values()]))
    return not type(value).__module__.startswith("pffl")


def test_skops_trusts_one_type_and_reads_the_same_model(people):
    skops = pytest.importorskip("skops.io")
    for own in (FairClassifier(0.6), FairRegressor()):
        y = people.y if isinstance(own, FairClassifier) else people.number
        data = skops.dumps(own.fit(people.plain, y, **people.who))
        types = skops.get_untrusted_types(data=data)
        assert len(types) <= 2, types
        again = skops.loads(data, trusted=types)
        np.testing.assert_array_equal(
            again.predict(people.plain), own.predict(people.plain)
        )
    new = Table(500, seed=1)
    assert again.certificate(new.plain, new.number, **new.who)


@pytest.mark.filterwarnings("ignore")  # its own
def test_mlflow_logs_the_model(people, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("skops")
    monkeypatch.chdir(tmp_path)
    clf, place = fit(FairClassifier(0.6), people), tmp_path / "model"
    name = f"{type(clf).__module__}.{type(clf).__qualname__}"
    mlflow.sklearn.save_model(clf, place, skops_trusted_types=[name])
    again = mlflow.sklearn.load_model(str(place))
    np.testing.assert_array_equal(
        again.predict(people.plain), clf.predict(people.plain)
    )


@pytest.mark.filterwarnings("ignore")  # its own
def test_shap_explains_predictions(people):
    """The attributions of a row and the base value add up to its log-odds."""
    shap = pytest.importorskip("shap")
    clf = fit(FairClassifier(0.6), people)
    rows = people.plain.to_numpy(dtype=float)

    def log_odds(X):
        p = clf.predict_proba(pd.DataFrame(X, columns=people.plain.columns))
        return np.log(p[:, 1] / p[:, 0])

    found = shap.Explainer(log_odds, rows[:50])(rows[:5])
    told = found.values.sum(axis=1) + found.base_values
    np.testing.assert_allclose(told, log_odds(rows[:5]), atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # its own
def test_dask_runs_a_grid_search(people, routing):
    distributed, joblib = (
        pytest.importorskip("distributed"),
        pytest.importorskip("joblib"),
    )
    clf = FairClassifier(0.6, infeasible="nearest")
    clf.set_fit_request(sensitive_features=True)
    grid = GridSearchCV(clf, {"l2": [1e-3, 1e-1]}, cv=2)
    here = {"processes": False, "n_workers": 1, "dashboard_address": None}
    with distributed.Client(**here), joblib.parallel_config("dask"):
        grid.fit(people.plain, people.y, **people.who)
    assert grid.best_params_["l2"] in (1e-3, 1e-1)


# Groups, silos, policies


def test_groups_in_every_form_keep_their_names(people):
    old = pd.Series(np.where(people.X.age > 40, "old", "young"), name="age group")
    both = pd.DataFrame({"sex": people.sex, "age group": old})
    forms: list[Any] = [both, both.to_dict("series"), both.to_numpy()]
    tables = [
        FairClassifier("smallest")
        .fit(*people.rows, sensitive_features=form)
        .group_loss_
        for form in forms
    ]
    names = ["f × old", "f × young", "m × old", "m × young"]
    assert all(list(table.index) == names for table in tables)
    one = FairClassifier(pffl.BoundedGroupLoss(0.6, by="sex"))
    one.fit(*people.rows, sensitive_features=both)
    assert list(one.group_loss_.index) == ["f", "m"]
    assert one.solution_.schema.features == ("age", "pay")
    nobody = FairClassifier(0.7).fit(*people.rows)
    assert list(nobody.group_loss_.index) == ["everyone"]
    codes = FairClassifier({1: 0.6}).fit(
        *people.rows, sensitive_features=(people.sex == "f") * 1.0
    )
    assert list(codes.group_loss_["bound"]) == [0.6]


def test_silos_count_as_the_weighting_says(people):
    silos = np.where(people.X.job == "cook", "a", "b")
    plain = fit(FairClassifier(), people)
    rows = FairClassifier(weighting="rows")
    fit(rows, people, silos=silos)
    np.testing.assert_allclose(rows.coef_, plain.coef_, rtol=1e-6)
    alike = fit(FairClassifier(), people, silos=silos)
    assert np.abs(alike.coef_ / plain.coef_ - 1).max() > 1e-4
    own = FairClassifier(pffl.PerSilo(0.6))
    fit(own, people, silos=silos)
    assert list(own.group_loss_.index) == ["a", "b"]
    some = {"sensitive_features": people.sex[:400], "silos": silos[:400]}
    own.certificate(people.plain[:400], people.y[:400], **some)
    with raises(DataError, "other-silos"):
        own.certificate(*people.rows, **people.who)


def test_what_cannot_be_met_is_raised_warned_of_or_kept(people):
    with raises(NotMetError, "not-met", "0"):
        fit(FairClassifier(0.3), people)
    with pytest.warns(UserWarning, match="proved"):
        told = fit(FairClassifier(0.3, infeasible="warn"), people)
    silent = FairClassifier(0.3, infeasible="nearest", method="exact")
    fit(silent, people)
    least = fit(FairClassifier("smallest"), people).group_loss_["loss"].max()
    for clf in (told, silent):
        assert clf.status_ == "impossible"
        assert clf.group_loss_["loss"].max() == pytest.approx(least, rel=1e-3)
    # A price that is too small is no proof, and no excuse either.
    with raises(NotMetError, "not-met"):
        fit(FairClassifier(0.6, method=Exact(multiplier_bound=1e-3)), people)


def test_a_model_that_did_not_converge_says_so(people):
    clf = FairClassifier(method=Exact(max_rounds=1))
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        clf.fit(*people.rows)
    assert clf.converged_ is False


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"bound": -1.0}, "wrong-value", "bound"),
        ({"bound": "lowest"}, "wrong-value", "bound"),
        ({"bound": "smallest", "constraint": "cbgl"}, "wrong-value", "bound"),
        ({"bound": 0.6, "constraint": "equal"}, "wrong-value", "bgl, cbgl"),
        ({"constraint": "equal"}, "wrong-value", "bgl, cbgl"),
        ({"constraint": "minmax"}, "wrong-value", "bgl, cbgl"),
        ({"bound": {"x": 0.6}}, "unknown-cell", "'x'"),
        ({"l2": -1}, "wrong-value", "l2"),
        ({"infeasible": "ignore"}, "wrong-value", "nearest"),
        ({"weighting": "people"}, "wrong-value", "'rows'"),
        ({"confidence": 1.0}, "wrong-value", "confidence"),
    ],
)
def test_wrong_parameters_are_refused(people, given, code, words):
    with raises(UsageError, code, words):
        fit(FairClassifier(**given), people)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"sensitive_features": ["f"] * 1_199}, "wrong-shape"),
        ({"sensitive_features": [None] + ["f"] * 1_199}, "missing-values"),
        ({"sample_weight": [1.0]}, "wrong-shape"),
        ({"sample_weight": [-1.0] * 1_200}, "bad-weights"),
    ],
)
def test_wrong_rows_are_refused(people, more, code):
    with raises(DataError, code):
        FairClassifier(0.65).fit(*people.rows, **more)


def test_wrong_inputs_and_targets_are_refused(people):
    clf = FairClassifier(0.65)
    with pytest.raises(NotFittedError):
        _ = clf.group_loss_
    with pytest.raises(ValueError, match="could not convert string to float"):
        clf.fit(people.X, people.y)
    with raises(UsageError, "wrong-value", "squared", "huber"):
        FairRegressor(loss="absolute").fit(people.plain, people.number)
    with raises(DataError, "outside-range"):
        FairRegressor(target_range=(0.0, 1.0)).fit(people.plain, people.number)
    with pytest.raises(ValueError, match="feature names"):
        fit(clf, people).predict(people.plain.rename(columns={"age": "years"}))


# Certificates


def test_a_certificate_speaks_of_the_rows_given(people):
    clf = fit(FairClassifier(0.65), people)
    new = Table(3_000, seed=1)
    told = clf.certificate(*new.rows, **new.who)
    held = told.of_kind("holdout")[0]
    assert held.holds
    proba = clf.predict_proba(new.plain)
    table = metrics.group_losses(new.y, proba, **new.who, labels=clf.classes_)
    for row in held.per_cell:
        assert row["rows"] == table["rows"][row["cell"]]
        assert row["loss"] == pytest.approx(table["loss"][row["cell"]])
        assert row["loss"] < row["upper"] <= 0.65
    # The same rows again at the same confidence are no second look; others are.
    assert len(clf.looks_) == 1
    clf.certificate(*new.rows, **new.who)
    assert len(clf.looks_) == 1
    later = clf.certificate(*new.rows, **new.who, confidence=0.9)
    assert "certificate 2 on these test rows" in str(later)
    other = Table(500, seed=2)
    first = clf.certificate(*other.rows, **other.who)
    assert "on these test rows" not in str(first)
    assert len(clf.looks_) == 3
    assert clf.solution_.status == told.verdicts["training"]["verdict"]


def test_a_certificate_counts_weights_or_says_why_not(people):
    rng, new = np.random.default_rng(4), Table(3_000, seed=1)
    s, own = rng.uniform(0.5, 2, len(people.y)), rng.uniform(0.5, 2, len(new.y))
    clf = fit(FairClassifier(0.65), people, sample_weight=s)
    about = {"sensitive_features": new.sex, "sample_weight": own}
    held = clf.certificate(*new.rows, **about, weight_bound=2.0).of_kind("holdout")[0]
    table = metrics.group_losses(
        new.y, clf.predict_proba(new.plain), labels=clf.classes_, **about
    )
    assert held.available
    for row in held.per_cell or ():
        assert row["loss"] == pytest.approx(table["loss"][row["cell"]])
        assert row["upper"] > row["loss"]
    with raises(UsageError, "needs-weights"):
        clf.certificate(*new.rows, **new.who)
    # Without a declared bound it is not known how heavy people can be.
    held = clf.certificate(*new.rows, **about).of_kind("holdout")[0]
    assert not held.available
    assert "weight" in held.text


def test_certificates_refuse_what_the_model_does_not_know(people):
    clf = fit(FairClassifier(0.6), people)
    own = clf.certificate(*people.rows, **people.who).of_kind("holdout")[0]
    assert not own.available  # the rows were used in training
    X, y, sex = people.plain[:300], people.y[:300], people.sex[:300]
    for labels, groups, code in (
        (y, None, "other-groups"),
        (y, sex.replace("f", "x"), "unknown-category"),
        (y.replace("no", "perhaps"), sex, "unknown-category"),
        (y, sex.rename("gender"), "other-groups"),
    ):
        with raises(PFFLError, code):
            clf.certificate(X, labels, sensitive_features=groups)
    assert clf.certificate(X, y, sensitive_features=sex.tolist())  # has no name
    with pytest.raises(NotFittedError):
        FairClassifier().certificate(X, y)


def test_a_range_of_targets_lets_a_regressor_certify(people):
    y = people.number.clip(-4_000, 4_000)
    own = FairRegressor(8e6, target_range=(-4_000, 4_000))
    own.fit(people.plain, y, **people.who)
    far = float(np.abs(own.predict(100 * people.plain)).max())
    assert far in [4_000 + 8_000 * part for part in (0, 0.25, 0.5, 1, 2)]
    new = Table(2_000, seed=2)
    told = own.certificate(new.plain, new.number.clip(-4_000, 4_000), **new.who)
    held = told.of_kind("holdout")[0]
    assert held.holds


# Scorers


def test_group_losses_are_the_plain_means():
    rng = np.random.default_rng(2)
    y, p, g = rng.integers(0, 2, 50), rng.random(50), rng.integers(0, 3, 50)
    s = rng.random(50)
    table = metrics.group_losses(y, p, sensitive_features=g, sample_weight=s)
    each = [log_loss(y[g == a], p[g == a], sample_weight=s[g == a]) for a in range(3)]
    np.testing.assert_allclose(table["loss"], each)
    assert metrics.worst_group_loss(y, p, sensitive_features=g) == pytest.approx(
        max(log_loss(y[g == a], p[g == a]) for a in range(3))
    )
    squares = metrics.group_losses(y, p, sensitive_features=g, loss="squared")
    np.testing.assert_allclose(
        squares["loss"], [((y - p)[g == a] ** 2).mean() for a in range(3)]
    )


@pytest.mark.parametrize(
    ("y", "p", "more", "code"),
    [
        ([0, 1, 2], [0.1, 0.2, 0.3], {}, "wrong-shape"),
        ([0, 1], [2.0, 0.1], {}, "bad-probabilities"),
        ([0, 3], [0.2, 0.1], {"labels": [0, 1]}, "unknown-label"),
        ([0, 1], [0.2, 0.1], {"sample_weight": [1, -1]}, "bad-weights"),
    ],
)
def test_what_cannot_be_measured_is_refused(y, p, more, code):
    with raises(DataError, code):
        metrics.group_losses(y, p, sensitive_features=[0] * len(y), **more)


def test_scorers_need_groups_and_take_any_estimator(people):
    clf = FairClassifier().fit(*people.rows)
    with raises(UsageError, "needs-groups"):
        metrics.worst_group_loss_scorer(clf, *people.rows)
    theirs = make_pipeline(StandardScaler(), LogisticRegression()).fit(*people.rows)
    found = metrics.worst_group_loss_scorer(theirs, *people.rows, **people.who)
    assert -1 < found < 0


def test_a_scorer_takes_rows_that_lack_a_class():
    """As folds do where a class is rare; `make_scorer` would not know of it."""
    rng = np.random.default_rng(0)
    X, y, group = rng.normal(size=(90, 2)), rng.integers(0, 3, 90), np.arange(90) % 2
    theirs, few = LogisticRegression().fit(X, y), y != 2
    given = {"sensitive_features": group[few]}
    found = metrics.worst_group_loss_scorer(theirs, X[few], y[few], **given)
    proba = theirs.predict_proba(X)
    each = -np.log(proba[np.arange(90), y])
    assert found == pytest.approx(-max(each[few & (group == a)].mean() for a in (0, 1)))
