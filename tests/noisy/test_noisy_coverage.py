"""Monte Carlo: what is said under noise holds as often as it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

from tests.oracles import COUNTED, NOISY_BETS, noisy_bets, noisy_mean_ends, noisy_upper


def test_mean_losses_are_enclosed():
    """Fieller's ends hold the true mean as often as they say, whatever the noise."""
    random, runs = np.random.default_rng(0), 6_000
    for people, loss, s, t, z in (
        (900.0, 540.0, 30.0, 10.0, 1.96),
        (60.0, 40.0, 20.0, 15.0, 1.645),  # the noise is as large as the count
        (5000.0, 20.0, 30.0, 30.0, 2.5),
    ):
        L = loss + random.normal(0, s, runs)
        n = people + random.normal(0, t, runs)
        held = 0
        for one, many in zip(L.tolist(), n.tolist(), strict=True):
            low, high = noisy_mean_ends(one, many, s, t, z, 3.0)
            assert 0 <= low <= high <= 3.0
            held += low <= loss / people <= high
        expected = math.erf(z / math.sqrt(2))
        assert held / runs >= expected - 4 * math.sqrt(expected * (1 - expected) / runs)


@pytest.mark.parametrize("mu", [0.05, 0.25, 1.0])
def test_unseen_people_are_covered(mu):
    """Log-sums with noise still miss the true mean in at most δ of all draws."""
    random, runs, delta, n = np.random.default_rng(2), 1200, 0.05, 400
    bets = noisy_bets(np.array([n]), 1 / mu, delta)
    unit = math.sqrt(len(bets)) / mu
    off = unit * -np.log1p(-bets)
    missed, shown = 0, 0
    for law in (lambda: random.beta(1, 4, n), lambda: (random.random(n) < 0.2) * 1.0):
        for _ in range(runs // 2):
            logs = np.log1p(-bets * law()[:, None]).sum(axis=0)
            noisy = logs + random.normal(0, off)
            # n by its lower end, which is at most n but with a part of δ.
            bound = noisy_upper(noisy, off, bets, n, 0.9 * delta)
            missed += bound < 0.2
            shown += bound < 1.0
    assert missed / runs <= delta + 3 * math.sqrt(delta / runs)
    assert mu < 0.2 or shown > 0.9 * runs  # and is not empty


def test_unseen_people_are_covered_with_counts_that_are_drawn():
    """Everything random: who is in the cell, labels, losses, all noise; and the bets.

    The loss of a person depends on the label, cells are of both.
    """
    random, runs, delta, many, mu = np.random.default_rng(3), 800, 0.1, 500, 1.0
    truth = 0.3 * 0.6 + 0.7 * 0.1
    missed = 0
    for _ in range(runs):
        trained = random.binomial(4 * many, 0.5) + random.normal(0, 1 / mu)
        total = many + random.normal(0, 2 / mu)
        people = np.array([trained, 4 * many - trained]) * total / (4 * many)
        bets = noisy_bets(people, 1 / mu, delta)
        n = random.binomial(many, 0.5)
        label = random.random(n) < 0.3
        x = (random.random(n) < np.where(label, 0.6, 0.1)) * 1.0
        off = math.sqrt(NOISY_BETS) / mu * -np.log1p(-bets)
        logs = np.log1p(-bets * x[:, None]).sum(axis=0) + random.normal(0, off)
        low = n + random.normal(0, 3.0) + ndtri(COUNTED * delta) * 3.0
        missed += noisy_upper(logs, off, bets, low, (1 - COUNTED) * delta) < truth
    assert missed / runs <= delta + 3 * math.sqrt(delta / runs)
