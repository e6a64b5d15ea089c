"""Theorem 1's dual term, corrected: it bounds the regret of λ, which moves E times.

ν  ≤  B·log(Z+1)/(η_θE) + η_θρ²B  where every inner problem is solved exactly, with
|r_z| ≤ ρ (Agarwal et al., ICML 2018, theorem 1).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from pffl.numerics import capped_softmax
from tests.bounds.problems import draw
from tests.inside import gap as g


def best_step(rounds: int, cells: int, rho: float) -> float:
    return float(np.sqrt(np.log(cells + 1) / rounds) / rho)


def dual_term(rounds: int, cells: int, B: float, rho: float, eta: float) -> float:
    return float(B * np.log(cells + 1) / (eta * rounds) + eta * rho**2 * B)


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
    eta = best_step(rounds, cells, rho)
    eta = eta if best else float(10 ** rng.uniform(-2, 2))
    theta, gain, total = np.zeros(cells), 0.0, np.zeros(cells)
    for _ in range(rounds):
        lam = capped_softmax(theta, B)
        r = rng.uniform(-rho, rho, cells)
        if nasty:  # the adversary punishes what λ favours
            r = np.where(lam == lam.max(), -rho, rho)
        gain, total, theta = gain + float(lam @ r), total + r, theta + eta * r
    regret = (B * max(0.0, total.max()) - gain) / rounds
    assert regret <= dual_term(rounds, cells, B, rho, eta)


@pytest.mark.parametrize("seed", range(3))
def test_averages_reach_that_gap(seed: int) -> None:
    """Exact inner solves: the dual term alone bounds the gap."""
    problem = replace(draw(seed, overlap=True), budget=1.0, beta=1.0, l2=0.1)
    rounds, rho = 60, 1.5
    eta = best_step(rounds, 4, rho)
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
    assert true_gap <= dual_term(rounds, 4, 1.0, rho, eta) + 1e-6
