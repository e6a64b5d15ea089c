"""Weighted rows: what is said of unseen people, from the table to `verify`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from tests.inside import Audited, Judged, conclude


def federation(
    weight: object = "drawn", n: int = 1500, classes: int = 2
) -> pffl.Federation:
    """Two groups; people who are hard to judge weigh more."""
    rng = np.random.default_rng(3)
    X, a, silo = rng.normal(size=(n, 2)), rng.integers(2, size=n), np.arange(n) % 2
    score = X @ [1.0, 0.5] + 0.3 * a
    y = np.digitize(score + rng.logistic(size=n), np.linspace(0, 1, classes - 1))
    drawn = 1 + np.floor(20 * rng.random(n) * (1 + (np.abs(score) < 0.5)))
    return pffl.Federation.from_arrays(
        X,
        y,
        sensitive_features={"a": a},
        silo=silo,
        sample_weight=drawn if isinstance(weight, str) else weight,
        test_fraction=0.4,
    )


@pytest.fixture(scope="module")
def rows() -> pffl.Federation:
    return federation()


@pytest.fixture(scope="module")
def run(rows: pffl.Federation) -> pffl.Solution:
    options = pffl.Options(radius=10.0, weight_bound=60.0)
    bound = pffl.BoundedGroupLoss(0.72)
    return pffl.solve(rows, bound, options=options, random_state=0)


def said(e: pffl.evidence.Evidence, kind: str) -> pffl.evidence.Statement:
    found = conclude(e).certificate.statements
    return next(one for one in found if one.kind == kind)


def test_the_figure_is_that_of_the_rows(rows, run):
    e = run.evidence
    M, s_max = e.terms.loss_bound, e.terms.weight_bound
    assert e.data.weights == [1.0, 40.0]
    assert s_max == 60.0
    model, planned = run.model, e.heldout.planned
    for z in range(2):
        t, x = [], []
        for silo in rows.silos:
            part = silo.rows("test")
            mine = part.group == z
            X = model.inputs.apply(part.X)
            losses = model.bounded_losses(run.w, X, part.y, M)
            t += (part.weight[mine] / s_max).tolist()
            x += (losses[mine] / M).tolist()
        t, x = np.array(t), np.array(x)

        def wealth(zeta: float, t=t, x=x, z=z) -> float:
            level, total = zeta / M, 0.0
            for g, pi in zip(planned.gammas[z], planned.weights[z], strict=True):
                factors = 1 - g * t * (x - level) / (1 - g * level)
                total += pi * np.exp(np.log(factors).sum())
            return total

        upper = float(Judged(e).heldout.upper[z])
        mean = M * (t * x).sum() / t.sum()
        assert e.heldout.means[z] == pytest.approx(mean)
        assert wealth(upper) >= 20 * (1 - 1e-6)
        assert wealth(upper - 0.01 * (upper - mean)) < 20
        assert mean < upper < M


def test_a_weight_above_the_bound_and_no_bound_at_all(rows, run):
    heavy = federation(n=1500)
    test = [replace(r, weight=r.weight * 2) for r in _tests(heavy)]
    for people, most in ((rows, 39.0), (_with_tests(heavy, test), 40.0)):
        options = pffl.Options(weight_bound=most)
        found = pffl.audit(run, people, pffl.BoundedGroupLoss(0.9), options=options)
        assert not said(found.evidence, "holdout").available
    other = Audited(replace(run.predictor, loss_bound=None))
    found = pffl.audit(other, rows, pffl.BoundedGroupLoss(0.72))
    assert not said(found.evidence, "holdout").available
    options = pffl.Options(weight_bound=40.0)
    found = pffl.audit(
        other,
        rows,
        pffl.BoundedGroupLoss(0.9),
        options=options,
        clip=0.01,
    )
    assert said(found.evidence, "holdout").available
    undeclared = pffl.solve(rows, pffl.BoundedGroupLoss(0.72), random_state=0)
    assert not said(undeclared.evidence, "holdout").available


def _tests(federation: pffl.Federation):
    return [silo.rows("test") for silo in federation.silos]


def _with_tests(federation: pffl.Federation, tests):
    silos = tuple(
        replace(silo, splits={**silo.splits, "test": rows})
        for silo, rows in zip(federation.silos, tests, strict=True)
    )
    return replace(federation, silos=silos)
