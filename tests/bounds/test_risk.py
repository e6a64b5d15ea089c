"""Monte Carlo: the risk half of Theorem 2 (docs/paper.md) holds as often as it says.

For a fixed w* that meets every bound in the population, with losses of at most M,

    F(w) − F(w*) ≤ F̂′(w) − F̂(w) + ν/β + M·√(½ log((Z+2)/δ))·
                   (√(Σ p_k²/n_k) + √(Σ p_k²/m_k) + (1/β) Σ_z λ_z/√m_z)

with probability 1 − δ; F̂′ is the risk on n held-out rows. It is nowhere stated.

Classes of 2 and of 200 models whose losses, 0 or M, are drawn apart from each other in
two groups of three unequal silos: the best on training rows owes much to luck. Of a
grid of prices the pair with the smallest gap is taken, so that λ is lucky as well.
"""

from __future__ import annotations

import numpy as np
import pytest

DELTA, M, B = 0.1, 2.0, 4.0
ROWS = np.array([[6, 3], [30, 10], [60, 45]])  # of each silo and group
HELD = np.array([[4, 2], [12, 5], [30, 9]])
DRAWS = 1500
PRICES = [(x, y) for x in (0.0, 0.5, 1, 2) for y in (0.0, 0.5, 1, 2)]


def risk(p, means, rows):
    """Σ p_k × the mean loss of silo k; `means` of silos and groups last."""
    return ((means * rows).sum(axis=-1) / rows.sum(axis=1)) @ p


def group_means(means, rows):
    return (means * rows).sum(axis=-2) / rows.sum(axis=0)


@pytest.mark.parametrize("beta", [1.0, 0.5])
@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("models", [2, 200])
def test_a_model_is_seldom_further_from_the_best_than_it_says(models, beta, equal):
    rng = np.random.default_rng([int(10 * beta), equal, models])
    p = np.full(3, 1 / 3) if equal else ROWS.sum(axis=1) / ROWS.sum()
    rate = rng.uniform(0.2, 0.3, (models, 1, 1)) + rng.uniform(-0.1, 0.1, (1, 3, 2))
    truth = M * rate
    bounds = np.quantile(group_means(truth, ROWS), 0.3, axis=0)
    fair = (group_means(truth, ROWS) <= bounds).all(axis=1)
    best = risk(p, truth, ROWS)[fair].min()
    prices, missed, without = np.array(PRICES), 0, 0
    for _ in range(DRAWS):
        means = M * rng.binomial(ROWS, rate) / ROWS
        F, r = risk(p, means, ROWS), group_means(means, ROWS) - bounds
        G = beta * F + prices @ r.T  # of each λ and model
        upper = beta * F + B * np.maximum(0, r.max(axis=1))
        gaps = upper[None] - G.min(axis=1)[:, None]
        at, w = np.unravel_index(gaps.argmin(), gaps.shape)
        unseen = risk(p, M * rng.binomial(HELD, rate[w]) / HELD, HELD)
        draws = (prices[at] / np.sqrt(ROWS.sum(axis=0))).sum() / beta
        for rows in (HELD, ROWS):
            draws += np.sqrt((p**2 / rows.sum(axis=1)).sum())
        wide = M * np.sqrt(0.5 * np.log((len(bounds) + 2) / DELTA))
        bound = unseen - F[w] + gaps[at, w] / beta + wide * draws
        # Held-out rows have other shares of the groups: the truth is theirs.
        excess = risk(p, truth[w], HELD) - best
        missed += excess > bound
        without += excess > unseen - F[w] + gaps[at, w] / beta
    assert missed <= DELTA * DRAWS
    assert models > 2 or without > DELTA * DRAWS  # the deviations are needed
