"""Lemma 1 on random problems, and what bounds on cells imply for the risk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from pffl.bounds import empirical as e
from pffl.bounds import gap as g
from pffl.errors import UsageError
from pffl.numerics import capped_softmax
from tests.bounds.problems import (
    Problem,
    draw,
    draw_model,
    draw_multipliers,
    minimax,
)

SEEDS = st.integers(0, 2**32 - 1)
RADIUS = 3.0


def implied_risk_disjoint(counts: object, weights: object, bounds: object) -> float:
    """Bound the data term of F for disjoint cells that cover every example.

    The closed form of `implied_risk`; the caller answers for disjoint and covering.

    ``Σ_z m_z ζ_z · max{q_k : silo k has rows of z}`` with ``q_k = p_k/m_k``: the loss
    that cell z may hold in total, m_z ζ_z, weighs most where one example weighs most.
    With p_k = m_k/m it is ``Σ_z (m_z/m) ζ_z``.

    Parameters
    ----------
    counts
        Examples per silo and cell, shape (K, Z).
    weights
        q, weight of one example of each silo, shape (K,); see `example_weights`.
    bounds
        ζ, shape (Z,).
    """
    m = np.asarray(counts, dtype=float)
    q = np.asarray(weights, dtype=float)[:, None]
    heaviest = np.where(m > 0, q, 0.0).max(axis=0)
    return float(heaviest @ (m.sum(axis=0) * np.asarray(bounds, dtype=float)))


def refutes_feasibility(
    worst_violation: float,
    slack: float,
    *,
    scale: float = 1.0,
) -> bool:
    """Say whether Lemma 1 read backwards proves that no model meets the bounds.

    True if the violation is above the slack by more than rounding can explain
    (1e-9 of `scale`). The slack must come from an *implied* M: F of a feasible model
    already shows the opposite.
    """
    margin = 1e-9 * scale
    worst = worst_violation
    return worst > slack + margin


def measured_gap(
    problem: Problem, w: np.ndarray, lam: np.ndarray, radius: float | None = None
) -> float:
    low = g.lower(
        problem.lagrangian(w, lam),
        problem.lagrangian_gradient(w, lam),
        w,
        modulus=problem.beta * problem.l2,
        radius=radius,
    )
    high = g.upper(
        problem.risk(w),
        problem.violation(w),
        risk_weight=problem.beta,
        multiplier_bound=problem.budget,
    )
    return g.gap(high, low)


def atoms_of(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every row its own atom: the finest description."""
    return np.ones(len(problem.y)), problem.q, problem.cells.astype(float)


def with_feasible(
    seed: int, *, overlap: bool, squared: bool
) -> tuple[Problem, np.ndarray]:
    problem, rng = (
        draw(seed, overlap=overlap, squared=squared),
        np.random.default_rng(seed),
    )
    feasible = draw_model(rng, problem.X.shape[1], RADIUS)
    room = rng.choice([0.0, 0.1], len(problem.cells))
    return replace(problem, bounds=problem.means(feasible) + room), feasible


@settings(max_examples=120, deadline=None)
@given(seed=SEEDS, overlap=st.booleans(), squared=st.booleans(), ball=st.booleans())
def test_lemma_1_when_some_model_is_feasible(
    seed: int, overlap: bool, squared: bool, ball: bool
) -> None:
    problem, feasible = with_feasible(seed, overlap=overlap, squared=squared)
    rng = np.random.default_rng(seed + 1)
    w, lam = draw_model(rng, len(feasible), 2.0), draw_multipliers(rng, problem)
    if rng.random() < 0.5:  # near the answer, where the lemma is sharp
        w, lam = feasible + 1e-3 * w, 1e-3 * lam
    nu = measured_gap(problem, w, lam, RADIUS if ball else None)
    worst = problem.violation(w).max()
    implied = e.implied_risk(*atoms_of(problem), problem.bounds)
    assert implied is not None
    for M in (
        problem.risk(feasible),
        e.with_ridge(implied, l2=problem.l2, radius=RADIUS),
    ):
        kwargs = {"risk_weight": problem.beta, "multiplier_bound": problem.budget}
        tight = e.tight_threshold(M, nu, problem.risk(w), **kwargs)
        assert tight <= e.threshold(M, nu, **kwargs) + 1e-12
        assert max(0.0, worst) <= tight + 1e-9 * (1 + abs(tight))
        assert not refutes_feasibility(worst, tight, scale=1 + abs(tight))


def near_saddle(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Multiplicative weights with exact best responses: slow, obvious, enough."""
    theta, w = np.zeros(len(problem.cells)), np.zeros(problem.X.shape[1])
    best = (np.inf, w, theta)
    for step in range(60):
        lam = capped_softmax(theta, problem.budget)
        w = minimize(
            problem.lagrangian, w, (lam,), "BFGS", jac=problem.lagrangian_gradient
        ).x
        nu = measured_gap(problem, w, lam)
        best = min(best, (nu, w, lam), key=lambda found: found[0])
        theta = theta + 2.0 / np.sqrt(step + 1.0) * problem.violation(w)
    return best[1], best[2]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("part", "impossible"), [(0.5, True), (0.9, True), (1.02, False)]
)
def test_lemma_1_read_backwards(seed: int, part: float, impossible: bool) -> None:
    # Bounds at a part of the smallest common bound, known from cvxpy.
    problem = replace(draw(seed), budget=2000.0, beta=0.2, l2=0.1)
    bounds = np.full(len(problem.cells), part * minimax(problem, RADIUS))
    problem = replace(problem, bounds=bounds)
    w, lam = near_saddle(problem)
    implied = e.implied_risk(*atoms_of(problem), problem.bounds)
    assert implied is not None
    slack = e.tight_threshold(
        e.with_ridge(implied, l2=problem.l2, radius=RADIUS),
        measured_gap(problem, w, lam, RADIUS),
        problem.risk(w),
        risk_weight=problem.beta,
        multiplier_bound=problem.budget,
    )
    assert refutes_feasibility(problem.violation(w).max(), slack) == impossible


def test_lemma_1_does_refute_at_least_once() -> None:
    X, y = np.ones((8, 1)), np.array([0.0, 1.0] * 4)
    cells = np.array([np.arange(8) < 4, np.arange(8) >= 4])
    problem = Problem(
        X, y, np.arange(8) % 2, cells, np.full(2, 0.1), beta=1.0, budget=100.0, l2=0.1
    )
    w, lam = np.zeros(1), np.full(2, 50.0)
    nu = measured_gap(problem, w, lam, RADIUS)
    implied = e.implied_risk(*atoms_of(problem), problem.bounds)
    assert implied == pytest.approx(0.1)
    M = e.with_ridge(implied, l2=0.1, radius=RADIUS)
    slack = e.threshold(M, nu, risk_weight=1.0, multiplier_bound=100.0)
    assert slack < 0.02
    assert refutes_feasibility(problem.violation(w).max(), slack)


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, overlap=st.booleans())
def test_implied_risk_bounds_every_loss_vector_within_the_bounds(
    seed: int, overlap: bool
) -> None:
    problem, rng = draw(seed, overlap=overlap), np.random.default_rng(seed)
    implied = e.implied_risk(*atoms_of(problem), problem.bounds)
    assert implied is not None
    losses = rng.exponential(size=(200, len(problem.y)))
    losses *= rng.random(losses.shape) < rng.choice([0.05, 0.3, 1.0])
    means = losses @ problem.cells.T / problem.cells.sum(axis=1)
    shrink = np.min(problem.bounds / np.maximum(means, 1e-12), axis=1)
    assert ((losses * shrink[:, None]) @ problem.q).max() <= implied + 1e-9


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, boxed=st.booleans())
def test_implied_risk_is_the_optimum_of_the_linear_program(
    seed: int, boxed: bool
) -> None:
    rng = np.random.default_rng(seed)
    A, Z = int(rng.integers(2, 9)), int(rng.integers(1, 5))
    n, q = rng.integers(0, 9, A).astype(float), rng.random(A) / 10
    member = rng.random((Z, A)) < 0.5
    member[rng.integers(0, Z, A), np.arange(A)] = True
    zeta, L = rng.uniform(0.0, 1.0, Z), 1.3 if boxed else None
    ceiling = [(0, None if L is None else L * count) for count in n]
    # Empty atoms have no loss; without a box the primal must say so itself.
    ceiling = [(0, 0) if n[a] == 0 else ceiling[a] for a in range(A)]
    truth = linprog(
        -q, A_ub=member.astype(float), b_ub=(member @ n) * zeta, bounds=ceiling
    )
    implied = e.implied_risk(n, q, member.astype(float), zeta, loss_bound=L)
    assert implied == pytest.approx(-truth.fun, rel=1e-6, abs=1e-9)
    assert implied >= -truth.fun - 1e-12


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
def test_closed_form_for_disjoint_cells(seed: int) -> None:
    rng = np.random.default_rng(seed)
    K, Z = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    counts = rng.integers(0, 9, (K, Z)).astype(float)
    counts[:, 0] += 1
    q = e.example_weights(np.full(K, 1 / K), counts.sum(axis=1))
    zeta = rng.uniform(0.0, 1.0, Z)
    member = np.kron(np.ones((1, K)), np.eye(Z))
    flat = e.implied_risk(counts.ravel(), np.repeat(q, Z), member, zeta)
    assert flat == pytest.approx(implied_risk_disjoint(counts, q, zeta), rel=1e-9)


def test_by_rows_it_is_the_mean_of_the_bounds() -> None:
    counts = np.array([[10.0, 30.0], [5.0, 55.0]])
    q = e.example_weights(counts.sum(axis=1) / 100, counts.sum(axis=1))
    assert implied_risk_disjoint(counts, q, [0.2, 0.6]) == pytest.approx(
        0.15 * 0.2 + 0.85 * 0.6
    )


def test_uncovered_examples_need_a_loss_bound() -> None:
    args = ([5.0, 5.0], [0.1, 0.1], [[1.0, 0.0]], [0.5])
    assert e.implied_risk(*args) is None
    assert e.implied_risk(*args, loss_bound=2.0) == pytest.approx(0.25 + 1.0)
    # An uncovered atom without rows, or without weight, does no harm.
    assert e.implied_risk([5, 0], [0.1, 0.1], [[1, 0]], [0.5]) == pytest.approx(0.25)
    assert e.implied_risk([5, 5], [0.1, 0.0], [[1, 0]], [0.5]) == pytest.approx(0.25)


def test_prices_are_repaired_whatever_the_solver_says() -> None:
    q, member = np.array([0.3, 0.2]), np.array([[True, True], [False, True]])
    budget = np.array([1.0, 0.5])
    exact = e._priced(np.array([0.3, 0.0]), q, member, budget, None)
    assert exact == pytest.approx(0.3)
    for prices in ([0.0, 0.0], [-1.0, 5.0], [0.29, 0.0], [9.0, 9.0]):
        assert e._priced(np.array(prices), q, member, budget, None) >= exact - 1e-15
        boxed = e._priced(np.array(prices), q, member, budget, np.array([9.0, 9.0]))
        assert boxed >= exact - 1e-15


def test_choice_of_the_risk_bound() -> None:
    assert e.choose_risk_bound() is None
    assert e.choose_risk_bound(implied=0.7) == e.RiskBound(0.7, "implied by the bounds")
    both = e.choose_risk_bound(feasible_risk=0.6, implied=0.7)
    assert both == e.RiskBound(0.6, "feasible model")
    assert e.threshold(0.0, 0.1, risk_weight=0.0, multiplier_bound=2.0) == 0.1


@pytest.mark.parametrize(
    "call",
    [
        lambda: e.threshold(-1, 0, risk_weight=1, multiplier_bound=1),
        lambda: e.threshold(1, np.nan, risk_weight=1, multiplier_bound=1),
        lambda: e.implied_risk([1], [0.1], [[1.0]], [-0.1]),
        lambda: e.implied_risk([1.5], [0.1], [[1.0]], [0.1]),
        lambda: e.implied_risk([1], [0.1], [[1.0, 1.0]], [0.1]),
        lambda: e.example_weights([1.0], [0.0]),
    ],
)
def test_refusals(call) -> None:
    with pytest.raises(UsageError, match="must be"):
        call()
