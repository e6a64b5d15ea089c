"""The reported gap is never below the true one."""

from __future__ import annotations

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
from tests.oracles import UsageError
from tests.oracles import gap as g
from tests.raising import raises

SEEDS = st.integers(0, 2**32 - 1)


def upper_of(problem: Problem, w: np.ndarray) -> float:
    return g.upper(
        problem.risk(w),
        problem.violation(w),
        risk_weight=problem.beta,
        multiplier_bound=problem.budget,
    )


def test_upper_is_the_maximum_over_multipliers() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        r, F = rng.normal(size=3), rng.random()
        lam = rng.dirichlet(np.ones(4), size=2000)[:, :-1] * 7.0
        corners = np.vstack([np.zeros(3), 7.0 * np.eye(3)])
        top = g.upper(F, r, risk_weight=2.0, multiplier_bound=7.0)
        assert (2 * F + lam @ r).max() <= top + 1e-12
        assert top == pytest.approx((2 * F + corners @ r).max())


def test_upper_without_cells_is_the_risk() -> None:
    assert g.upper(0.5, [], risk_weight=2.0, multiplier_bound=1.0) == 1.0


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
    assert g.gap(upper_of(problem, w), low) >= upper_of(problem, w) - truth - 1e-9


@settings(max_examples=80, deadline=None)
@given(
    seed=SEEDS,
    squared=st.booleans(),
    radius=st.sampled_from([0.1, 1.0, 5.0]),
    ridge=st.booleans(),
)
def test_ball_lower_bound_is_below_every_model_of_the_ball(
    seed: int, squared: bool, radius: float, ridge: bool
) -> None:
    problem, rng = draw(seed, squared=squared), np.random.default_rng(seed)
    lam, w = draw_multipliers(rng, problem), draw_model(rng, problem.X.shape[1], 2.0)
    value, slope = problem.lagrangian(w, lam), problem.lagrangian_gradient(w, lam)
    modulus = problem.beta * problem.l2 if ridge else 0.0
    low = g.lower_ball(value, slope, w, radius, modulus=modulus)
    truth = problem.best_response(lam, radius)
    assert low <= truth + 1e-9 * (1 + abs(truth))
    loose = value - np.linalg.norm(slope) * (radius + np.linalg.norm(w))
    assert low >= loose - 1e-9 * (1 + abs(loose))


@settings(max_examples=200, deadline=None)
@given(seed=SEEDS, modulus=st.sampled_from([1e-12, 1e-3, 0.5, 10.0]))
def test_ball_with_ridge_is_the_exact_minimum_of_the_parabola(
    seed: int, modulus: float
) -> None:
    rng = np.random.default_rng(seed)
    slope, w, R = rng.normal(size=3), rng.normal(size=3), float(rng.uniform(0.1, 4.0))
    low = g.lower_ball(0.0, slope, w, R, modulus=modulus)
    v = w - slope / modulus
    v = v if np.linalg.norm(v) <= R else R * v / np.linalg.norm(v)
    truth = slope @ (v - w) + 0.5 * modulus * (v - w) @ (v - w)
    assert low == pytest.approx(truth, rel=1e-6, abs=1e-9)
    assert low >= g.lower_ball(0.0, slope, w, R) - 1e-12


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
        low = g.lower(
            problem.lagrangian(w, lam),
            problem.lagrangian_gradient(w, lam),
            w,
            modulus=problem.beta * problem.l2,
        )
        assert low <= value + 1e-6
        assert upper_of(problem, w) >= value - 1e-6


def test_gap_closes_at_an_exact_saddle_point() -> None:
    # min ½·2w² with no active cell: w = 0, λ = 0 is the saddle point.
    low = g.lower_strong(0.0, np.zeros(2), 2.0)
    assert g.gap(g.upper(0.0, [-1.0], risk_weight=1, multiplier_bound=9), low) == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: g.lower_strong(1.0, [1.0], 0.0),
        lambda: g.lower_strong(np.nan, [1.0], 1.0),
        lambda: g.lower_ball(1.0, [1.0, np.inf], [0.0, 0.0], 1.0),
        lambda: g.lower_ball(1.0, [1.0], [0.0, 0.0], 1.0),
        lambda: g.lower_ball(1.0, [1.0], [0.0], -1.0),
        lambda: g.lower(1.0, [1.0], [0.0], modulus=0.0),
        lambda: g.upper(1.0, [0.0], risk_weight=1.0, multiplier_bound=-1.0),
        lambda: g.upper(np.nan, [0.0], risk_weight=1.0, multiplier_bound=1.0),
        lambda: g.gap(1.0),
        lambda: g.gap(np.inf, 0.0),
    ],
)
def test_refusals(call) -> None:
    with raises(UsageError, "wrong-value"):
        call()
