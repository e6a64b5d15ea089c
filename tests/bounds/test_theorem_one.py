"""Theorem 1's dual term, corrected: it bounds the regret of λ, which moves E times.

ν  ≤  B·log(Z+1)/(η_θE) + η_θρ²B  where every inner problem is solved exactly, with
|r_z| ≤ ρ (Agarwal et al., ICML 2018, theorem 1).
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pffl.numerics import capped_softmax


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
