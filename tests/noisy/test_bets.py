"""Bets are planned from what says nothing of held-out people's losses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

import pffl
from pffl.evidence.noise import COUNTED, Figures, log_sum_upper, member
from pffl.noisy.plan import BETS, bets_of
from pffl.privacy import Privacy
from tests.helpers import make_federation


def test_they_follow_from_training_counts_and_one_total():
    """Counts of held-out people by label would say something of their losses."""
    data = make_federation(0, sizes=(1200,) * 2, test=500)
    ranges = {str(name): (-6.0, 6.0) for name in data.schema.features}
    found = pffl.solve(
        data,
        pffl.BoundedGroupLoss(0.69),
        method="exact",
        seed=0,
        privacy=Privacy(1.0, ranges=ranges),
    )
    e, part = found.evidence, found.evidence.privacy
    logs = next(r for r in part.releases if r.name == "logs")
    noise = logs.deviation / logs.sensitivity
    share = sum(part.heldout.counts) / sum(part.seen.counts)
    people = member(e) @ np.array(part.seen.counts) * share
    delta = 1 - e.terms.confidence
    assert part.heldout.bets == pytest.approx(bets_of(people, noise, delta).tolist())


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
        bets = bets_of(people, 1 / mu, delta)
        n = random.binomial(many, 0.5)
        label = random.random(n) < 0.3
        x = (random.random(n) < np.where(label, 0.6, 0.1)) * 1.0
        off = math.sqrt(BETS) / mu * -np.log1p(-bets)
        logs = np.log1p(-bets * x[:, None]).sum(axis=0) + random.normal(0, off)
        low = n + random.normal(0, 3.0) + ndtri(COUNTED * delta) * 3.0
        part = Figures([], [], [], 0, 0, 0, [], [], bets.tolist(), [1 / BETS] * BETS)
        args = logs.tolist(), off.tolist(), part, low, (1 - COUNTED) * delta
        missed += log_sum_upper(*args) < truth
    assert missed / runs <= delta + 3 * math.sqrt(delta / runs)
