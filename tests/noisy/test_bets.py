"""Bets are planned from what says nothing of held-out people's losses."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.evidence.noise import member
from pffl.noisy.plan import bets_of
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
