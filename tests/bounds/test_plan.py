"""The plan's two terms are bounds: on regret, and on FedAvg's error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from pffl.bounds import gap as g
from pffl.bounds import plan as pl
from pffl.errors import UsageError
from pffl.numerics import capped_softmax
from tests.bounds.problems import draw


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rounds=st.integers(1, 200),
    best=st.booleans(),
    nasty=st.booleans(),
)
def test_dual_term_bounds_the_regret_of_any_sequence(
    seed: int, rounds: int, best: bool, nasty: bool
) -> None:
    rng = np.random.default_rng(seed)
    cells, B, rho = int(rng.integers(1, 6)), 3.0, 0.8
    eta = pl.dual_step_size(rounds, cells=cells, violation_bound=rho)
    eta = eta if best else float(10 ** rng.uniform(-2, 2))
    theta, gain, total = np.zeros(cells), 0.0, np.zeros(cells)
    for _ in range(rounds):
        lam = capped_softmax(theta, B)
        r = rng.uniform(-rho, rho, cells)
        if nasty:  # the adversary punishes what λ favours
            r = np.where(lam == lam.max(), -rho, rho)
        gain, total, theta = gain + float(lam @ r), total + r, theta + eta * r
    regret = (B * max(0.0, total.max()) - gain) / rounds
    assert regret <= pl.dual_term(
        rounds, cells=cells, multiplier_bound=B, violation_bound=rho, step_size=eta
    )


@settings(max_examples=100, deadline=None)
@given(
    target=st.floats(1e-3, 10.0),
    cells=st.integers(1, 100),
    B=st.floats(0.1, 500.0),
    rho=st.floats(0.1, 5.0),
)
def test_dual_rounds_are_the_least_that_suffice(
    target: float, cells: int, B: float, rho: float
) -> None:
    args = {"cells": cells, "multiplier_bound": B, "violation_bound": rho}
    E = pl.dual_rounds_for(target, **args)
    assert pl.dual_term(E, **args) <= target * (1 + 1e-9)
    if E > 1:
        assert pl.dual_term(E - 1, **args) > target * (1 - 1e-9)
    eta = pl.dual_step_size(E, cells=cells, violation_bound=rho)
    here = pl.dual_term(E, **args)
    assert here == pytest.approx(2 * B * rho * np.sqrt(np.log(cells + 1) / E))
    for other in (0.5 * eta, 2.0 * eta):
        assert pl.dual_term(E, step_size=other, **args) > here


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("local_steps", [1, 4])
@pytest.mark.parametrize("rounds", [1, 10, 60])
def test_primal_term_bounds_the_error_of_fedavg(
    seed: int, local_steps: int, rounds: int
) -> None:
    """Silos with different quadratics, full batches, the theorem's step sizes."""
    rng = np.random.default_rng(seed)
    K, d = 4, 3
    A = [np.diag(rng.uniform(0.5, 2.0, d)) for _ in range(K)]
    a = rng.normal(size=(K, d))
    value = lambda w: np.mean([(w - a[k]) @ A[k] @ (w - a[k]) / 2 for k in range(K)])  # noqa: E731
    best = np.linalg.solve(sum(A), sum(A[k] @ a[k] for k in range(K)))
    w = np.zeros(d)
    inner = pl.InnerProblem(
        smoothness=2.0,
        modulus=0.5,
        gradient_bound=0.0,
        distance=float(np.linalg.norm(w - best)),
        heterogeneity=float(value(best)),  # every silo's own minimum is 0
    )
    delay, steepest, t = inner.delay(local_steps), 0.0, 0
    for _ in range(rounds):
        copies = np.tile(w, (K, 1))
        for _ in range(local_steps):
            slopes = np.array([A[k] @ (copies[k] - a[k]) for k in range(K)])
            steepest = max(steepest, float(np.linalg.norm(slopes, axis=1).max()))
            copies -= 2.0 / (inner.modulus * (delay + t)) * slopes
            t += 1
        w = copies.mean(axis=0)
    inner = replace(inner, gradient_bound=steepest)
    assert value(w) - value(best) <= pl.primal_term(inner, rounds, local_steps)


@settings(max_examples=100, deadline=None)
@given(target=st.floats(1e-4, 5.0), J=st.integers(1, 20), spread=st.floats(0, 3))
def test_rounds_per_dual_are_the_least_that_suffice(
    target: float, J: int, spread: float
) -> None:
    inner = pl.InnerProblem(4.0, 0.1, 2.0, 3.0, heterogeneity=spread)
    T = pl.rounds_per_dual_for(target, inner, J)
    assert pl.primal_term(inner, T, J) <= target * (1 + 1e-9)
    if T > 1:
        assert pl.primal_term(inner, T - 1, J) > target * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_averages_reach_the_planned_gap(seed: int) -> None:
    """Exact inner solves: the dual term alone is the plan, and is kept."""
    problem = replace(draw(seed, overlap=True), budget=1.0, beta=1.0, l2=0.1)
    rounds, rho = 60, 1.5
    eta = pl.dual_step_size(rounds, cells=4, violation_bound=rho)
    theta, w = np.zeros(4), np.zeros(problem.X.shape[1])
    models, multipliers = [], []
    for _ in range(rounds):
        lam = capped_softmax(theta, problem.budget)
        w = minimize(
            problem.lagrangian, w, (lam,), "BFGS", jac=problem.lagrangian_gradient
        ).x
        r = problem.violation(w)
        assert np.abs(r).max() <= rho
        models, multipliers = [*models, w], [*multipliers, lam]
        theta = theta + eta * r
    w, lam = np.mean(models, axis=0), np.mean(multipliers, axis=0)
    high = g.upper(
        problem.risk(w), problem.violation(w), risk_weight=1.0, multiplier_bound=1.0
    )
    true_gap = high - problem.best_response(lam)
    term = pl.dual_term(rounds, cells=4, multiplier_bound=1.0, violation_bound=rho)
    assert true_gap <= term + 1e-6


def test_plan_adds_up() -> None:
    inner = pl.InnerProblem(4.0, 0.1, 2.0, 3.0, heterogeneity=0.5)
    out = pl.plan(
        0.1, inner, cells=2, multiplier_bound=5.0, violation_bound=1.0, local_steps=5
    )
    assert out.gap <= 0.1
    assert out.rounds == out.dual_rounds * out.rounds_per_dual
    assert out.dual_rounds == pytest.approx(4 * 25 * np.log(3) / 0.05**2, rel=1e-3)
    assert out.assumptions


def test_with_one_dual_round_the_gap_never_closes() -> None:
    inner = pl.InnerProblem(4.0, 0.1, 2.0, 3.0, heterogeneity=0.5)
    args = {"cells": 2, "multiplier_bound": 5.0, "violation_bound": 1.0}
    assert pl.primal_term(inner, 10**12, 5) < 1e-3
    assert pl.dual_term(1, **args) > 10.0


def test_local_smoothness_bounds_every_silo_hessian() -> None:
    rng = np.random.default_rng(0)
    for seed in range(10):
        problem = draw(seed, overlap=True)
        silos = np.unique(problem.silo)
        p = np.full(len(silos), 1 / len(silos))
        shares = np.array(
            [
                [(c & (problem.silo == k)).sum() / c.sum() for c in problem.cells]
                for k in silos
            ]
        )
        lam = rng.dirichlet(np.ones(len(problem.cells))) * problem.budget
        L = np.square(problem.X).sum(axis=1).max() / 4
        bound = pl.local_smoothness(
            L,
            shares,
            p,
            risk_weight=problem.beta,
            l2=problem.l2,
            multiplier_bound=problem.budget,
        )
        weights = (
            problem.beta * problem.q + (lam / problem.cells.sum(1)) @ problem.cells
        )
        for k in silos:
            rows = problem.silo == k
            H = (problem.X[rows].T * weights[rows] / 4) @ problem.X[rows] / p[0]
            H += problem.beta * problem.l2 * np.eye(len(H))
            assert np.linalg.eigvalsh(H).max() <= bound * (1 + 1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda: pl.InnerProblem(1.0, 0.0, 1.0, 1.0, 0.0),
        lambda: pl.InnerProblem(1.0, 2.0, 1.0, 1.0, 0.0),
        lambda: pl.InnerProblem(1.0, 0.5, np.inf, 1.0, 0.0),
        lambda: pl.dual_rounds_for(0.0, cells=1, multiplier_bound=1, violation_bound=1),
        lambda: pl.dual_step_size(0, cells=1, violation_bound=1),
        lambda: pl.local_smoothness(
            1.0, [[1.0]], [0.0], risk_weight=1, l2=0, multiplier_bound=1
        ),
    ],
)
def test_refusals(call) -> None:
    with pytest.raises(UsageError, match="must be"):
        call()


def test_primal_term_by_hand() -> None:
    # κ = 8, γ = max(64, 3), 𝓑 = 0.7 + 6·4·0.2 + 8·2²·1.5², T·J = 12
    inner = pl.InnerProblem(4.0, 0.5, 1.5, 2.0, heterogeneity=0.2, noise=0.7)
    spread = 0.7 + 4.8 + 72.0
    expected = 8.0 / (64 + 12 - 1) * (2 * spread / 0.5 + 0.5 * 64 / 2 * 2.0**2)
    assert pl.primal_term(inner, 4, 3) == pytest.approx(expected)
