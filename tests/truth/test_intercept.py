"""Without an intercept a model is scikit-learn's without one: nothing is centred.

Truth is scikit-learn's, or a minimum that SciPy finds, on rows whose means are far from
0, so that a centred model would be another one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array
from sklearn.linear_model import LinearRegression, LogisticRegression

import pffl
from pffl import FairClassifier, FairRegressor, runs
from pffl.models import HuberRegression, LeastSquares, SoftmaxRegression

RNG = np.random.default_rng(0)
ROWS = 400
BY_ROWS = pffl.Options(weighting="rows")
#: Means far from 0 and, in the last column, no variance at all.
X = np.column_stack(
    [RNG.normal(5, 1, ROWS), RNG.normal(-200, 30, ROWS), np.full(ROWS, 0.01)]
)
SCORE = 1.5 * (X[:, 0] - 5) + (X[:, 1] + 200) / 30 + 0.5
GROUP = RNG.choice(["a", "b"], ROWS)
NUMBER = 2 * X[:, 0] + 0.1 * RNG.normal(size=ROWS)
TWO = (SCORE + RNG.logistic(size=ROWS) > 0).astype(int)
THREE = np.digitize(SCORE + 2 * RNG.logistic(size=ROWS), [-1.0, 1.5])


def federation(y: Any, *, sparse: bool = False) -> pffl.Federation:
    return pffl.Federation.from_arrays(
        csr_array(X) if sparse else X,
        y,
        sensitive_features=GROUP,
        silo=np.arange(ROWS) % 3,
        classification=y is not NUMBER,
        test_fraction=0.0,
    )


def coefficients(solution: Any) -> Any:
    """Coefficients of the raw inputs, and the scores where all of them are 0."""
    model = solution.model
    table = solution.w.reshape(model.n_outputs, -1) * model.target.scale
    assert table.shape[1] == X.shape[1]
    coef = table / model.inputs.scale
    return coef, model.target.mean - coef @ model.inputs.mean


def test_least_squares_are_scikit_learns() -> None:
    theirs = LinearRegression(fit_intercept=False).fit(X, NUMBER)
    own = FairRegressor(l2=0.0, fit_intercept=False).fit(X, NUMBER)
    assert own.intercept_ == 0.0
    np.testing.assert_allclose(own.coef_, theirs.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(own.predict(X), theirs.predict(X), rtol=1e-8)
    again = own.predict(np.zeros((1, X.shape[1])))
    assert again == 0.0


def test_logistic_regression_is_scikit_learns() -> None:
    theirs = LogisticRegression(C=np.inf, fit_intercept=False, solver="newton-cholesky")
    theirs.set_params(tol=1e-12, max_iter=1000).fit(X, TWO)
    own = FairClassifier(l2=0.0, fit_intercept=False).fit(X, TWO)
    assert (own.intercept_ == 0.0).all()
    np.testing.assert_allclose(own.coef_, theirs.coef_, rtol=1e-4, atol=1e-6)
    least = np.exp(-own.loss_bound_)
    expected = theirs.predict_proba(X).clip(least, 1 - least)
    np.testing.assert_allclose(own.predict_proba(X), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two classes", "three classes"])
def test_the_same_penalty_gives_scikit_learns_coefficients(y: Any) -> None:
    kind = pffl.models.LogisticRegression if y is TWO else SoftmaxRegression
    model = kind(1e-2, intercept=False, standardize=False)
    own = pffl.solve(federation(y), None, model=model, options=BY_ROWS, random_state=0)
    theirs = LogisticRegression(C=1 / (1e-2 * ROWS), fit_intercept=False)
    theirs.set_params(tol=1e-12, max_iter=10_000, solver="newton-cg").fit(X, y)
    coef, at_zero = coefficients(own)
    assert (at_zero == 0.0).all()
    np.testing.assert_allclose(coef, theirs.coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("way", ["dense", "sparse", "masked"])
def test_every_kind_of_model_is_the_minimum_over_raw_inputs(way: str) -> None:
    """Scaled for the arithmetic, and still the best model of the rows themselves."""

    def huber(r: Any) -> Any:
        cut = np.minimum(np.abs(r), 0.5)
        return cut * (2 * np.abs(r) - cut)

    def softmax(w: Any) -> Any:
        z = scaled @ w.reshape(3, -1).T
        return np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(ROWS), THREE])

    size = np.sqrt((X**2).mean(axis=0))
    scaled = X / size
    cases: list[tuple[Any, Any, Any]] = [
        (LeastSquares, NUMBER, lambda w: ((scaled @ w - NUMBER) ** 2).mean()),
        (HuberRegression, NUMBER, lambda w: huber(scaled @ w - NUMBER).mean()),
        (
            pffl.models.LogisticRegression,
            TWO,
            lambda w: np.logaddexp(0, (1 - 2 * TWO) * (scaled @ w)).mean(),
        ),
        (SoftmaxRegression, THREE, softmax),
    ]
    for kind, y, loss in cases[::2] if way == "masked" else cases:
        more = {"delta": 0.5} if kind is HuberRegression else {}
        model = kind(0.0, intercept=False, **more)
        own = pffl.solve(
            federation(y, sparse=way == "sparse"),
            None,
            model=model,
            options=BY_ROWS,
            secure_sum=way == "masked",
            random_state=0,
        )
        coef, at_zero = coefficients(own)
        assert (at_zero == 0.0).all(), kind
        found = loss((coef * size).ravel())
        start = np.zeros(coef.size)
        best = minimize(loss, start, method="BFGS", options={"gtol": 1e-9})
        assert found <= best.fun + 1e-6 * max(1.0, best.fun), kind


def test_a_bound_that_a_model_without_intercept_meets_is_met(tmp_path: Any) -> None:
    own = FairRegressor(0.5, l2=0.0, fit_intercept=False)
    own.fit(X, NUMBER, sensitive_features=GROUP)
    assert own.status_ == "met"
    assert own.group_loss_["loss"].max() < 0.02
    model = LeastSquares(0.0, intercept=False)
    solution = pffl.solve(
        federation(NUMBER), pffl.BoundedGroupLoss(0.5), model=model, random_state=0
    )
    assert solution.status == "met"
    runs.save(solution, tmp_path / "run")
    federation(NUMBER).export(tmp_path / "rows.npz")
    checks = pffl.verify(tmp_path / "run", tmp_path / "rows.npz")
    assert [check.what for check in checks if not check.agrees] == []
    found = pffl.feasible(federation(NUMBER), pffl.BoundedGroupLoss(0.5), model=model)
    assert not found.impossible
    assert found.common.upper < 0.02
