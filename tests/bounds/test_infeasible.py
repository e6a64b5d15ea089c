"""A witness is a proof; intervals hold the number they claim to hold."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from pffl.bounds import infeasible as inf
from pffl.bounds.checks import Interval
from pffl.errors import UsageError
from tests.bounds.problems import Problem, cvx_means, draw, draw_model, minimax

SEEDS = st.integers(0, 2**32 - 1)
RADIUS = 3.0


def witness_at(problem: Problem, lam: np.ndarray, w: np.ndarray) -> float:
    return inf.witness_bound(lam, problem.violation(w), problem.jacobian(w), w, RADIUS)


@settings(max_examples=120, deadline=None)
@given(seed=SEEDS, squared=st.booleans(), overlap=st.booleans())
def test_witness_bound_is_below_every_model_of_the_ball(
    seed: int, squared: bool, overlap: bool
) -> None:
    problem = draw(seed, squared=squared, overlap=overlap)
    rng = np.random.default_rng(seed)
    lam = rng.dirichlet(np.ones(len(problem.cells)))
    low = witness_at(problem, lam, draw_model(rng, problem.X.shape[1], 2 * RADIUS))
    for _ in range(40):
        v = draw_model(rng, problem.X.shape[1], RADIUS)
        assert low <= problem.violation(v).max() + 1e-9


def sharpest(problem: Problem, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimax model and its multipliers, from cvxpy's duals."""
    w, s = cp.Variable(problem.X.shape[1]), cp.Variable()
    rows = [
        m - b <= s for m, b in zip(cvx_means(problem, w), problem.bounds, strict=True)
    ]
    ball = [cp.norm(w) <= radius]
    cp.Problem(cp.Minimize(s), rows + ball).solve(solver=cp.CLARABEL)
    return np.array(w.value), np.array([float(row.dual_value) for row in rows])


@pytest.mark.parametrize("seed", range(10))
def test_a_near_minimiser_gives_a_sharp_proof(seed: int) -> None:
    problem = replace(draw(seed, squared=seed % 3 == 0, overlap=seed % 2 == 0))
    value = minimax(problem, RADIUS)
    problem = replace(problem, bounds=np.full(len(problem.cells), value - 1e-3))
    w, lam = sharpest(problem, RADIUS)
    witness = inf.Witness.of(lam, problem.violation(w), problem.jacobian(w), w, RADIUS)
    assert witness.proves
    assert witness.bound == pytest.approx(1e-3, abs=2e-4)
    # The re-check of anyone: minimise λᵀr over the ball, independently.
    check = minimize(
        lambda v: witness.multipliers @ problem.violation(v),
        np.zeros_like(w),
        jac=lambda v: problem.jacobian(v).T @ witness.multipliers,
        method="SLSQP",
        constraints=[{"type": "ineq", "fun": lambda v: RADIUS**2 - v @ v}],
    )
    assert check.fun >= witness.bound - 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_no_proof_where_a_model_exists(seed: int) -> None:
    problem = draw(seed)
    value = minimax(problem, RADIUS)
    problem = replace(problem, bounds=np.full(len(problem.cells), value + 1e-6))
    w, lam = sharpest(problem, RADIUS)
    assert not inf.proves_infeasible(witness_at(problem, np.maximum(lam, 0), w))


@pytest.mark.parametrize("seed", range(6))
def test_smallest_common_bound_is_enclosed(seed: int) -> None:
    problem = replace(draw(seed))
    problem = replace(problem, bounds=np.zeros(len(problem.cells)))
    w, lam = sharpest(problem, RADIUS)
    w = w * min(1.0, RADIUS / np.linalg.norm(w))
    interval = inf.attainable(
        witness_at(problem, np.maximum(lam, 0), w), problem.means(w)
    )
    value = minimax(problem, RADIUS)
    assert interval.lower - 1e-7 <= value <= interval.upper + 1e-7
    assert interval.width < 1e-3


@pytest.mark.parametrize("seed", range(6))
def test_bound_of_one_cell_with_the_others_fixed(seed: int) -> None:
    problem = draw(seed, overlap=seed % 2 == 0)
    some = draw_model(np.random.default_rng(seed), problem.X.shape[1], RADIUS)
    problem = replace(problem, bounds=problem.means(some) + 0.05)
    w, cell = cp.Variable(problem.X.shape[1]), 1
    means = cvx_means(problem, w)
    rows = [means[z] <= b for z, b in enumerate(problem.bounds) if z != cell]
    ball = [cp.norm(w) <= RADIUS]
    value = cp.Problem(cp.Minimize(means[cell]), rows + ball).solve(solver=cp.CLARABEL)
    lam = np.insert([max(0.0, float(row.dual_value)) for row in rows], cell, 0.0)
    point = np.array(w.value)
    low = inf.cell_lower(
        cell,
        lam,
        problem.violation(point),
        problem.jacobian(point),
        bound=problem.bounds[cell],
        w=point,
        radius=RADIUS,
    )
    assert low <= value + 1e-7
    assert low == pytest.approx(value, abs=2e-3)
    interval = inf.cell_attainable(
        cell, low, problem.means(some), problem.violation(some)
    )
    assert interval is not None
    assert interval.lower - 1e-7 <= value <= interval.upper + 1e-7
    broken = problem.violation(some).copy()
    broken[0] = 0.01
    assert inf.cell_attainable(cell, low, problem.means(some), broken) is None


def test_intervals() -> None:
    assert 0.5 in Interval(0.0, 1.0)
    with pytest.raises(UsageError):
        Interval(1.0, 0.0)
    with pytest.raises(UsageError):
        Interval(0.0, np.nan)


def test_a_tie_within_rounding_is_no_proof() -> None:
    # r is exactly 0 at the minimiser: feasible, though only just.
    assert not inf.proves_infeasible(
        inf.witness_bound([1.0], [1e-17], [[0.0]], [1.0], 1)
    )
    assert inf.witness_bound([1.0], [0.0], [[0.0]], [1.0], 1.0) <= 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: inf.witness_bound([0.0], [1.0], [[0.0]], [0.0], 1.0),
        lambda: inf.witness_bound([-1.0, 2.0], [1.0, 1.0], np.eye(2), [0.0, 0.0], 1.0),
        lambda: inf.witness_bound([1.0], [np.nan], [[0.0]], [0.0], 1.0),
        lambda: inf.witness_bound([1.0], [1.0], [[0.0, 1.0]], [0.0], 1.0),
        lambda: inf.witness_bound([1.0], [1.0], [[0.0]], [0.0], -1.0),
    ],
)
def test_refusals(call) -> None:
    with pytest.raises(UsageError, match="must be"):
        call()
