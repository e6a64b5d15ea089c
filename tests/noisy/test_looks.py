"""Looks at the same held-out people under noise are counted, and paid for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.inside import Judged, Looks, conclude, look
from tests.noisy.test_running import federation, solve


@pytest.fixture(scope="module")
def runs():
    data = federation(silos=2)
    return [solve(data, noise_seed=None)[0] for _ in range(3)]


def test_no_hash_of_rows_is_kept_and_the_name_tells(runs):
    first, second, _ = (look(one.evidence) for one in runs)
    assert first.rows == []
    assert first.touches(second)
    assert first.certificate != second.certificate
    assert not first.touches(replace(second, named="another"))
    # A run without noise on data of that name may have been on the same people.
    assert first.touches(replace(second, rows=["a hash"]))
    assert not first.touches(replace(second, rows=["a hash"], named=None))


def stated(e):
    return conclude(e).certificate.of_kind("holdout")[0].assumptions


def test_the_third_certificate_has_a_sixth_of_the_risk(runs):
    """Three runs in one folder: δ, δ/2, δ/6, and a wider figure each time."""
    known, seen = Looks(), []
    for run in runs:
        e = known.counted(run.evidence)
        known = Looks(known.added(e))
        seen.append(e)
    assert [e.terms.later for e in seen] == [0, 1, 2]
    assert [round(0.05 / Judged(e).heldout.delta) for e in seen] == [1, 2, 6]
    for run, e in zip(runs[1:], seen[1:], strict=True):
        alone, paid = (Judged(one).upper for one in (run.evidence, e))
        assert (paid > alone).all()
    by_hand = replace(
        runs[2].evidence,
        terms=replace(runs[2].evidence.terms, confidence=1 - 0.05 / 6),
    )
    assert runs[2].evidence.terms.confidence == 0.95
    assert Judged(seen[2]).upper == pytest.approx(Judged(by_hand).upper)
    grounds = {a.text: a.state for a in stated(seen[2])}
    assert any("certificate 3" in text and "1/6" in text for text in grounds)
    # The same certificate again is the same look.
    assert known.counted(runs[1].evidence).terms.later == 1
