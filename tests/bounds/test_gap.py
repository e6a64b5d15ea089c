"""The reported gap is never below the true one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bounds.problems import (
    Problem,
    cvx_means,
    draw,
    draw_model,
    draw_multipliers,
)
from tests.oracles import UsageError, upper_value
from tests.oracles import gap as g
from tests.raising import raises

SEEDS = st.integers(0, 2**32 - 1)


def upper_of(problem: Problem, w: np.ndarray) -> float:
    return upper(problem.risk(w), problem.violation(w), problem.beta, problem.budget)


def upper(risk: float, violation: np.ndarray, beta: float, budget: float) -> float:
    weights: Any = SimpleNamespace(risk_weight=beta, multiplier_bound=budget)
    return upper_value(risk, violation, weights)


def test_upper_is_the_maximum_over_multipliers() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        r, F = rng.normal(size=3), rng.random()
        lam = rng.dirichlet(np.ones(4), size=2000)[:, :-1] * 7.0
        corners = np.vstack([np.zeros(3), 7.0 * np.eye(3)])
        top = upper(F, r, 2.0, 7.0)
        assert (2 * F + lam @ r).max() <= top + 1e-12
        assert top == pytest.approx((2 * F + corners @ r).max())


def test_upper_without_cells_is_the_risk() -> None:
    assert upper(0.5, np.zeros(0), 2.0, 1.0) == 1.0


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, squared=st.booleans(), overlap=st.booleans())
def test_strong_lower_bound_is_below_every_model(
    seed: int, squared: bool, overlap: bool
) -> None:
    problem, rng = (
        draw(seed, squared=squared, overlap=overlap),
        np.random.default_rng(seed),
    )
    lam, w = draw_multipliers(rng, problem), draw_model(rng, problem.X.shape[1], 4.0)
    low = g.lower_strong(
        problem.lagrangian(w, lam),
        problem.lagrangian_gradient(w, lam),
        problem.beta * problem.l2,
    )
    truth = problem.best_response(lam)
    assert low <= truth + 1e-9 * (1 + abs(truth))
    assert upper_of(problem, w) >= truth - 1e-9


@settings(max_examples=80, deadline=None)
@given(
    seed=SEEDS,
    squared=st.booleans(),
    radius=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_ball_lower_bound_is_below_every_model_of_the_ball(
    seed: int, squared: bool, radius: float
) -> None:
    problem, rng = draw(seed, squared=squared), np.random.default_rng(seed)
    lam, w = draw_multipliers(rng, problem), draw_model(rng, problem.X.shape[1], 2.0)
    value, slope = problem.lagrangian(w, lam), problem.lagrangian_gradient(w, lam)
    low = g.lower_ball(value, slope, w, radius)
    truth = problem.best_response(lam, radius)
    assert low <= truth + 1e-9 * (1 + abs(truth))
    loose = value - np.linalg.norm(slope) * (radius + np.linalg.norm(w))
    assert low >= loose - 1e-9 * (1 + abs(loose))


def test_ball_bound_is_exact_for_a_plane() -> None:
    slope, w = np.array([3.0, 4.0]), np.array([1.0, -1.0])
    low = g.lower_ball(2.0, slope, w, 2.0)
    angles = np.linspace(0, 2 * np.pi, 100_001)
    ring = 2.0 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert low == pytest.approx((2.0 + (ring - w) @ slope).min(), abs=1e-6)


def saddle_value(problem: Problem) -> float:
    """Solve min βF + B s  s.t. r ≤ s, s ≥ 0 by cvxpy."""
    w, s = cp.Variable(problem.X.shape[1]), cp.Variable(nonneg=True)
    z = problem.X @ w
    losses = (
        cp.square(z - problem.y)
        if problem.squared
        else cp.logistic(z) - cp.multiply(problem.y, z)
    )
    F = problem.q @ losses + 0.5 * problem.l2 * cp.sum_squares(w)
    means = cvx_means(problem, w)
    rows = [mean - b <= s for mean, b in zip(means, problem.bounds, strict=True)]
    model = cp.Problem(cp.Minimize(problem.beta * F + problem.budget * s), rows)
    return float(model.solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("seed", range(12))
def test_the_saddle_value_lies_between_the_bounds(seed: int) -> None:
    problem = draw(seed, squared=seed % 3 == 0, overlap=seed % 2 == 0)
    rng = np.random.default_rng(seed)
    value = saddle_value(problem)
    for _ in range(20):
        lam = draw_multipliers(rng, problem)
        w = draw_model(rng, problem.X.shape[1], 3.0)
        low = g.lower_strong(
            problem.lagrangian(w, lam),
            problem.lagrangian_gradient(w, lam),
            problem.beta * problem.l2,
        )
        assert low <= value + 1e-6
        assert upper_of(problem, w) >= value - 1e-6


def test_gap_closes_at_an_exact_saddle_point() -> None:
    # min ½·2w² with no active cell: w = 0, λ = 0 is the saddle point.
    low = g.lower_strong(0.0, np.zeros(2), 2.0)
    assert upper(0.0, np.array([-1.0]), 1.0, 9.0) == low == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: g.lower_strong(1.0, [1.0], 0.0),
        lambda: g.lower_strong(np.nan, [1.0], 1.0),
        lambda: g.lower_ball(1.0, [1.0, np.inf], [0.0, 0.0], 1.0),
        lambda: g.lower_ball(1.0, [1.0], [0.0, 0.0], 1.0),
        lambda: g.lower_ball(1.0, [1.0], [0.0], -1.0),
    ],
)
def test_refusals(call) -> None:
    with raises(UsageError, "wrong-value"):
        call()
