"""Whole runs with noise: what is asked, what it costs, what is said of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.engines import Local
from pffl.errors import DataError, UsageError
from pffl.methods import PFFL, FedAvg
from pffl.models import LeastSquares
from pffl.privacy import Privacy
from tests.helpers import make_federation
from tests.inside import (
    PARTS,
    Conclusions,
    Evidence,
    Judged,
    bets_of,
    composed,
    epsilon_of,
)
from tests.raising import raises


def federation(rows: int = 1500, silos: int = 4, seed: int = 0):
    return make_federation(seed, sizes=(rows,) * silos, test=rows // 2)


def ranges_for(data) -> dict[str, tuple[float, float]]:
    return {str(name): (-6.0, 6.0) for name in data.schema.features}


class Watched(Local):
    """Keeps every query that is asked."""

    def ask_many(self, queries):
        self.asked = [*getattr(self, "asked", []), *queries]
        return super().ask_many(queries)


def solve(data, method="exact", bound=0.69, **terms):
    engine = Watched(data.keyed())
    privacy = Privacy(
        **{"epsilon": 4.0, "noise_seed": 1, "ranges": ranges_for(data), **terms}
    )
    constraint = None if bound is None else pffl.BoundedGroupLoss(bound)
    found = pffl.solve(
        engine, constraint, method=method, random_state=0, privacy=privacy
    )
    return found, engine.asked


@pytest.fixture(scope="module")
def data():
    return federation()


@pytest.mark.parametrize("method", sorted(PARTS))
@pytest.mark.parametrize("bound", [0.69, None])
def test_all_that_is_asked_is_paid_for(data, method, bound):
    """The account is that of the queries themselves, not of the plan's words."""
    found, asked = solve(data, method, bound)
    assert all(q.released for q in asked)
    for split, limit in (("train", 4.0), ("test", 4.0)):
        mus = [q.mu for q in asked if q.split == split]
        assert epsilon_of(composed(mus), 1e-6) == pytest.approx(limit, rel=1e-6)
        part = found.evidence.privacy
        stated = part.mu if split == "train" else part.heldout_mu
        assert stated == pytest.approx(composed(mus), rel=1e-9)
    for q in asked:
        for name, part in q.parts.items():
            assert q.sigma[name] == part.noise * part.sensitivity


def test_the_releases_stated_are_those_that_were_asked(data):
    found, asked = solve(data, "exact")
    stated = {(r.name, r.split): r for r in found.evidence.privacy.releases}
    first = asked[0]
    assert stated["counts", "train"].sigma == pytest.approx(first.sigma["counts"])
    assert stated["inputs", "train"].sigma == pytest.approx(first.sigma["features"])
    bent = next(q for q in asked if "curvatures" in q.parts)
    assert stated["curvature", "train"].sigma == pytest.approx(bent.sigma["curvatures"])
    steps = [q for q in asked if "gradients" in q.parts]
    release = stated["gradients", "train"]
    assert release.times == len(steps) == 5
    assert release.sigma == pytest.approx(steps[0].sigma["gradients"])
    mu = math.sqrt(release.times) * release.sensitivity / release.sigma
    assert release.mu == pytest.approx(mu)
    logs = next(q for q in asked if "logs" in q.parts)
    assert stated["logs", "test"].sigma == pytest.approx(logs.sigma["logs"])
    total = composed(r.mu for r in stated.values() if r.split == "train")
    assert total == pytest.approx(found.evidence.privacy.mu)


def test_nothing_exact_is_written_down(data):
    """No hash of rows, no exact count: only released figures stand in the evidence."""
    found, _ = solve(data)
    e = found.evidence
    text = json.dumps(e.as_dict())
    assert data.fingerprint not in text
    assert all(value not in text for value in data.held_out.values())
    assert e.data.overlap is None
    exact = [len(silo) for silo in data.silos]
    assert found.problem.silo_counts.sum() != sum(exact)
    assert found.predictor.fingerprint is None
    assert Evidence.from_dict(json.loads(text)) == e
    assert found.as_dict()["privacy"]["epsilon"] == 4.0


def test_the_same_seed_repeats_the_noise_and_secrets_do_not(data):
    first, _ = solve(data, noise_seed=5)
    again, _ = solve(data, noise_seed=5)
    other, _ = solve(data, noise_seed=6)
    assert np.array_equal(first.w, again.w)
    assert not np.array_equal(first.w, other.w)
    one, _ = solve(data, noise_seed=None)
    two, _ = solve(data, noise_seed=None)
    assert not np.array_equal(one.w, two.w)
    # Who knows a seed can take the noise off: privacy is not claimed.
    assert not first.certificate.of_kind("privacy")[0].available
    assert one.certificate.of_kind("privacy")[0].available


def test_without_a_secure_sum_each_site_adds_all_of_it(data):
    apart, _ = solve(data)
    privacy = Privacy(4.0, noise_seed=1, ranges=ranges_for(data), colluding=1)
    shared = pffl.solve(
        data,
        pffl.BoundedGroupLoss(0.69),
        method="exact",
        random_state=0,
        privacy=privacy,
        secure_sum=True,
    )
    many = {
        name: [r.deviation / r.sigma for r in one.evidence.privacy.releases]
        for name, one in (("apart", apart), ("shared", shared))
    }
    assert many["apart"] == pytest.approx([2.0] * len(many["apart"]))  # √4
    assert many["shared"] == pytest.approx([math.sqrt(4 / 3)] * len(many["shared"]))
    assert apart.evidence.privacy.mu == shared.evidence.privacy.mu
    with raises(UsageError, "too-few-sites", "3", "2"):
        pffl.solve(
            federation(silos=2),
            None,
            privacy=Privacy(1.0, ranges=ranges_for(data)),
            secure_sum=True,
        )
    for colluding in (0, 4):
        with raises(UsageError, "wrong-colluding"):
            pffl.solve(
                data,
                None,
                privacy=Privacy(1.0, colluding=colluding, ranges=ranges_for(data)),
                secure_sum=True,
            )


def test_too_few_people_are_refused_by_released_counts():
    small = federation(rows=30)
    with raises(DataError, "too-few-people"):
        solve(small, epsilon=0.1)


def test_verdicts_are_never_optimistic(data):
    """Met only where the true losses are within, over many draws of noise."""
    found, _ = solve(data, epsilon=8.0)
    e, part = found.evidence, found.evidence.privacy
    seen = part.seen
    n, losses = np.array(seen.counts), np.array(seen.losses)  # taken for the truth
    inside = Judged(e).member
    true = (inside @ losses) / (inside @ n)
    random, wrong, runs = np.random.default_rng(0), 0, 2000
    words = {"met": 0, "not met": 0, "not decided": 0}
    for shift in (-0.01, 0.0, 0.01):
        cells = [
            replace(c, bound=float(t + shift))
            for c, t in zip(e.cells, true, strict=True)
        ]
        asked = replace(e, cells=cells)
        for _ in range(runs // 3):
            drawn = replace(
                seen,
                counts=(n + random.normal(0, seen.count_deviation, len(n))).tolist(),
                losses=(
                    losses + random.normal(0, seen.loss_deviation, len(n))
                ).tolist(),
            )
            noisy = replace(part, seen=drawn)
            low, high = Judged(replace(asked, privacy=noisy)).ends(noisy.seen)
            wrong += bool(((true < low) | (true > high)).any())
            status = Conclusions(replace(asked, privacy=noisy)).judged.word
            words[status] += 1
            if status == "met":
                assert shift >= 0 or (true > high).any()
    assert wrong <= runs * 0.05 + 3 * math.sqrt(runs * 0.05)
    assert words["not decided"] > 0


@pytest.mark.parametrize(
    ("given", "code", "name"),
    [
        ({"model": LeastSquares()}, "not-under-noise", "LeastSquares"),
        ({"constraint": pffl.MinMax()}, "not-under-noise", "minimax"),
        ({"constraint": pffl.PerSilo(0.7)}, "not-under-noise", "silos"),
        ({"method": "qffl"}, "not-under-noise", "qffl"),
        ({"method": PFFL(local_steps=7)}, "not-under-noise", "local"),
        ({"method": FedAvg(batch_size=10)}, "not-under-noise", "batch"),
        ({"ranges": {}}, "needs-ranges", "x0"),
        ({"ranges": {"nothing": (0, 1)}}, "unknown-column", "nothing"),
    ],
)
def test_refused_by_name(data, given, code, name):
    own = given.get("ranges", {})
    ranges = {**ranges_for(data), **own} if own or "ranges" not in given else {}
    asked = {"constraint": pffl.BoundedGroupLoss(0.69), "method": "exact", **given}
    asked.pop("ranges", None)
    constraint = asked.pop("constraint")
    with raises(UsageError, code, name):
        pffl.solve(data, constraint, privacy=Privacy(1.0, ranges=ranges), **asked)


@pytest.mark.parametrize(
    "bad",
    [{"epsilon": 0.0}, {"epsilon": 1, "delta": 1.5}, {"epsilon": 1, "clip": 0.5}],
)
def test_budgets_that_are_none_are_refused(bad):
    with raises(UsageError, "wrong-value", "Privacy"):
        Privacy(**bad)


def test_bets_follow_from_training_counts_and_one_total(data):
    """Counts of held-out people by label would say something of their losses."""
    found, _ = solve(data, epsilon=1.0)
    e, part = found.evidence, found.evidence.privacy
    logs = next(r for r in part.releases if r.name == "logs")
    share = sum(part.heldout.counts) / sum(part.seen.counts)
    people = Judged(e).member @ np.array(part.seen.counts) * share
    noise, delta = logs.deviation / logs.sensitivity, 1 - e.terms.confidence
    assert part.heldout.bets == pytest.approx(bets_of(people, noise, delta).tolist())
