"""Huber regression: its definition, its curvature, and exact solutions with it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

import pffl
from pffl.models import HuberRegression, Inputs
from tests.helpers import make_federation, make_schema

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
