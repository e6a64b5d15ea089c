"""Huber regression: its definition, its curvature, and exact solutions with it."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from sklearn.linear_model import HuberRegressor

import pffl
from pffl.data import Rows, Silo
from pffl.methods import Exact
from pffl.models import HuberRegression, Inputs
from tests.helpers import from_silos, group_masks, make_federation, make_schema

DELTAS = [0.1, 1.0, 10.0]


def bound(delta=1.0, features=3, **options):
    model = HuberRegression(delta=delta, **options)
    schema = make_schema(features=features, labels=0)
    return model.bind(schema, Inputs.identity(features))


def draw(seed=0, n=60, features=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, features))
    y = X @ np.linspace(1, -1, features) + rng.standard_t(2, size=n)
    return rng, X, y, rng.uniform(0, 2, n)


@pytest.mark.parametrize("delta", DELTAS)
def test_losses_are_their_definition(delta):
    model = bound(delta)
    rng, X, y, _ = draw()
    w = rng.normal(size=4)
    expected = []
    for x, target in zip(X, y, strict=True):
        r = abs(x @ w[:3] + w[3] - target)
        expected.append(r**2 if r <= delta else 2 * delta * r - delta**2)
    np.testing.assert_allclose(model.losses(w, X, y), expected, rtol=1e-12)


@pytest.mark.parametrize("delta", DELTAS)
def test_gradient_and_curvature_agree_with_differences(delta):
    model = bound(delta)
    rng, X, y, weights = draw(2)
    w = rng.normal(size=4)
    _, gradient = model.losses_and_gradient(w, X, y, weights)
    numeric = approx_fprime(w, lambda v: weights @ model.losses(v, X, y), 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4)
    # Up to δ the curvature is that of the loss.
    z = model.scores(w, X)
    inside = np.abs(z - y) < 0.99 * delta
    step = 1e-6
    slopes = (model.score_slopes(z + step, y) - model.score_slopes(z - step, y)) / (
        2 * step
    )
    found = model.score_curvatures(z, y)
    np.testing.assert_allclose(found[inside], slopes[inside], rtol=1e-6)
    # Beyond it the loss has none; the stand-in is positive, and no more than a tenth
    # of that of the parabola that touches the loss from above.
    outside = np.abs(z - y) > 1.01 * delta
    assert outside.any()
    parabola = 2 * delta / np.abs(z - y)
    np.testing.assert_allclose(found[outside], 0.1 * parabola[outside])


@pytest.mark.parametrize("delta", DELTAS)
def test_exact_finds_what_a_general_solver_finds(delta):
    federation = make_federation(4, sizes=(70,), labels=0)
    solution = pffl.solve(
        federation, None, model=HuberRegression(l2=0.01, delta=delta), random_state=0
    )
    pooled = federation.pooled("train")
    model = solution.problem.task.model
    X = model.inputs.apply(pooled.X)

    def objective(w):
        losses, gradient = model.losses_and_gradient(
            w, X, pooled.y, np.full(len(X), 1 / len(X))
        )
        mu = 0.01 * model.unit
        return losses.mean() + 0.5 * mu * w @ w, gradient + mu * w

    found = minimize(objective, np.zeros(4), jac=True, method="BFGS", tol=1e-11)
    assert objective(solution.w)[0] == pytest.approx(found.fun, abs=2e-8)
    np.testing.assert_allclose(solution.w, found.x, atol=2e-3)
    assert solution.gap < 1e-7


def test_scikit_learns_regressor_agrees():
    # Its scale σ is estimated; with ours set to ε·σ both minimise the same function.
    rng, X, y, _ = draw(5, n=300)
    theirs = HuberRegressor(epsilon=1.5, alpha=1e-10, max_iter=1000, tol=1e-9).fit(X, y)
    rows = Rows.of(X, y, rng.integers(2, size=300))
    federation = from_silos(
        make_federation(0, labels=0), [Silo("only", 0, {"train": rows})]
    )
    model = HuberRegression(l2=1e-10, delta=1.5 * theirs.scale_, standardize=False)
    ours = pffl.solve(federation, None, model=model, random_state=0)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-4)


def saddle(federation, solution, delta, zeta, price, l2):
    """Solve min βF + B·max(0, max r) by cvxpy, from pooled rows."""
    pooled = federation.pooled("train")
    inputs = solution.problem.task.model.inputs
    X = np.column_stack([inputs.apply(pooled.X), np.ones(len(pooled.y))])
    w, worst = cp.Variable(X.shape[1]), cp.Variable(nonneg=True)
    target, mu = solution.problem.task.model.target, l2 * solution.problem.unit
    losses = cp.huber(target.mean + target.scale * (X @ w) - pooled.y, delta)
    sizes = np.bincount(pooled.silo)
    risk = (1 / len(sizes) / sizes[pooled.silo]) @ losses + mu / 2 * cp.sum_squares(w)
    limits = [
        cell / cell.sum() @ losses - zeta <= worst for cell in group_masks(federation)
    ]
    problem = cp.Problem(cp.Minimize(risk + price * worst), limits)
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


@pytest.mark.filterwarnings("ignore:the bounds ask for nothing")
@pytest.mark.parametrize("delta", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("share", [0.5, 0.97])
def test_exact_reaches_the_saddle_point_of_bounded_group_loss(delta, share):
    federation = make_federation(6, sizes=(50, 40, 30), labels=0)
    model = HuberRegression(l2=0.01, delta=delta)
    free = pffl.solve(
        federation, pffl.BoundedGroupLoss(1e6), model=model, random_state=0
    )
    zeta = share * max(row.train_loss for row in free.cell_results)
    solution = pffl.solve(
        federation,
        pffl.BoundedGroupLoss(zeta),
        model=model,
        method=Exact(multiplier_bound=5.0),
        random_state=0,
    )
    expected = saddle(federation, solution, delta, zeta, 5.0, 0.01)
    worst = max(row.violation for row in solution.cell_results)
    ridge = 0.005 * solution.problem.unit
    reached = solution.train.risk + ridge * solution.w @ solution.w
    reached += 5.0 * max(0.0, worst)
    assert reached == pytest.approx(expected, abs=1e-6)
    assert solution.gap < 1e-6
