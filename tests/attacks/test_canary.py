"""A canary in whole runs with noise: benchmarks/privacy_audit.py.

What the account allows is not exceeded, and half of the noise is caught.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import privacy_audit as audit
from pffl.driver import drive
from pffl.engines import Local
from pffl.methods import method_of
from pffl.preparation import Options
from pffl.privacy import Privacy
from pffl.solving import adding_of, setting_of
from tests.inside import running

EPSILON = 4.0


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "caught"), [("", False), ("noise", True)])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_a_canary_is_told_no_better_than_the_account_allows(epsilon, bug, caught):
    least, _ = audit.audit(epsilon, 600, bug)
    assert (least > epsilon) == caught


def test_the_canary_is_as_long_as_the_clip_allows():
    """Otherwise the audit would show nothing; and half of the noise is half."""
    less, more = audit.federations()
    many = len(less.silos[0].splits["train"])
    assert len(more.silos[0].splits["train"]) == 1 + many
    ranges = {str(name): (-4.0, 4.0) for name in less.schema.features}
    privacy = Privacy(EPSILON, audit.DELTA, ranges=ranges, noise_seed=1)
    engine, used = audit.Overheard(more), method_of("exact")
    setting, options = setting_of(engine), Options()
    plan, model = running.planned(setting, None, None, used, options, privacy)
    adding = adding_of(setting, privacy, shared=True)
    drive(engine, running.run(setting, None, plan, model, used, options, 0, adding))
    half = audit.Halved(adding.source, adding.sites, adding.shared, 0)
    steep = [q for q, _ in engine.heard if "gradients" in q.asked_for]
    assert len(steep) == plan.rounds
    for query in steep:
        row = Local(more).views(query)[0].X[-1]
        assert np.sqrt(row @ row + 1) == pytest.approx(privacy.clip, rel=1e-9)
        sigma = query.sigma["gradients"]
        assert query.deviation("gradients", half) == pytest.approx(sigma / 2)
