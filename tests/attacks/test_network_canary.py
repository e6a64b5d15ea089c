"""A canary in the training of a tiny network: benchmarks/privacy_network_audit.py.

What the account allows is not exceeded, and planted bugs are caught: half of the noise,
and a clip of the whole batch instead of each person.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("dp_accounting")

from benchmarks import privacy_network_audit as audit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "caught"), [("", False), ("noise", True), ("batch", True)]
)
def test_a_canary_is_told_no_better_than_the_account_allows(bug, caught):
    low, _, most = audit.audit(800, 0.3, bug)
    assert (low > most) == caught


@pytest.mark.slow
def test_the_canary_is_as_long_as_the_clip_allows():
    """Otherwise the audit would show nothing; and half of the noise is half."""
    less, more, canary = audit.hardest()
    assert len(more.silos[0].splits["train"]) == 1 + len(less.silos[0].splits["train"])
    for bug in ("", "noise"):
        engine = audit.Heard(more)
        audit.run_once(engine, 0.3, 1, bug)
        assert len(engine.heard) == audit.ROUNDS
        for question, throws, _ in engine.heard:
            atoms = less.schema.atoms(canary.group, canary.y)
            own = audit.added(question.task.model, question, canary, atoms)
            assert own @ own == pytest.approx(audit.CLIP**2, rel=1e-6)
            assert len(throws[0]) == len(more.silos[0].splits["train"])
            times = question.deviation("gradients", question.adding)
            times /= question.sigma["gradients"]
            assert times == pytest.approx(0.5 if bug else 1.0)
