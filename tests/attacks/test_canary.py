"""A canary: how well can one person be told to be there, from what is released?

In whole runs (benchmarks/privacy_audit.py), and for a server that chooses w at will.
What the account allows is not exceeded, and half of the noise is caught.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import privacy_audit as audit
from pffl._solve import setting_of
from pffl.driver import drive
from pffl.engines import Local
from pffl.methods import method_of
from pffl.prepare import Options
from pffl.privacy import Privacy
from pffl.queries import Census
from tests.inside import PARTS, mu_of, running, seeded_source
from tests.queries.test_release import queries, seen, task_of

EPSILON = 4.0


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "caught"), [("", False), ("noise", True)])
def test_a_canary_is_told_no_better_than_the_account_allows(bug, caught):
    least, _ = audit.audit(EPSILON, 600, bug)
    assert (least > EPSILON) == caught


def asked(epsilon: float) -> list:
    """The releases of a run with `exact` about training rows, w where it is worst."""
    mu, often = mu_of(epsilon, audit.DELTA), {"gradients": 5, "losses": 5}

    def noise(*names: str) -> np.ndarray:
        parts = [(often.get(n, 1), PARTS["exact"].get(n, 0.0)) for n in names]
        return np.array([np.sqrt(t / p) / mu if p else 0.0 for t, p in parts])

    census, evaluate, expand, _ = queries(task_of(4.0), [-1e3, -1e3, -1e3, 0.0])
    none = np.zeros((len(evaluate.bets), 0))
    final = noise("", "final losses", "final errors", "")
    return [
        replace(census, noise=noise("counts", "inputs")),
        replace(expand, noise=noise("", "", "curvature")),
        *[replace(expand, noise=noise("losses", "gradients", ""))] * 5,
        replace(evaluate, noise=final, bets=none),
    ]


@pytest.mark.parametrize("epsilon", [1.0, pytest.param(4.0, marks=pytest.mark.slow)])
def test_a_server_that_chooses_w_tells_a_canary_no_better_either(epsilon):
    """It knows all other rows, and asks where the canary's loss is the steepest."""
    random, source = np.random.default_rng(0), seeded_source("canary", epsilon)
    X, atom = random.normal(size=(40, 3)), random.integers(0, 4, 40)
    far, raw = np.full(3, 1e9), np.array([6.0, 6.0, 1e6])
    told = []
    for query in asked(epsilon):
        other = raw if isinstance(query, Census) else far
        rows = (np.vstack([X, other]), np.append(atom, 1))
        view = seen(query, task_of(4.0), *rows)
        base = query.answer(view.take(np.arange(40)))
        shift = {
            n: query.real(query.answer(view), n) - query.real(base, n)
            for n in query.parts
        }
        told.append((query, base, shift))
    whole = sum(
        (s**2).sum() / q.sigma[n] ** 2 for q, _, f in told for n, s in f.items()
    )
    # All but a wrong prediction that is none: the audit is as sharp as it can be.
    assert 0.93 * mu_of(epsilon, audit.DELTA) < np.sqrt(whole)
    assert np.sqrt(whole) <= mu_of(epsilon, audit.DELTA)

    def score(there: bool, factor: float) -> float:
        found = 0.0
        for query, base, shift in told:
            drawn = query.noised(base, source, factor=factor)
            for name, own in shift.items():
                off = query.real(drawn, name) - query.real(base, name) + there * own
                part = (off * own).sum() - (own * own).sum() / 2
                found += float(part) / query.sigma[name] ** 2
        return found

    for factor, caught in ((1.0, False), (0.25, True)):  # of the variance
        scores = [[score(there, factor) for _ in range(400)] for there in (True, False)]
        least, _ = audit.lower_bound(*map(np.array, scores))
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
    adding = running.adding_of(setting, privacy, shared=True)
    drive(engine, running.run(setting, None, plan, model, used, options, 0, adding))
    half = audit.Halved(adding.source, adding.sites, adding.shared, 0)
    steep = [q for q, _ in engine.heard if "gradients" in q.parts]
    assert len(steep) == plan.rounds
    for query in steep:
        row = Local(more).views(query)[0].X[-1]
        assert np.sqrt(row @ row + 1) == pytest.approx(privacy.clip, rel=1e-9)
        sigma = query.sigma["gradients"]
        assert query.deviation("gradients", half) == pytest.approx(sigma / 2)
