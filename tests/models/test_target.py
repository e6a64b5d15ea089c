"""Numeric targets in any unit: the same model, the same words (faults 79, 82)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.data import Rows, Silo
from pffl.methods import Exact
from pffl.models import HuberRegression, LeastSquares
from pffl.prepare import Options
from tests.helpers import from_silos, make_federation

UNITS = [1e-4, 5e4, 1e9]
QUICK = Options(baseline=False)


def in_units(unit, *, inputs=1.0, labels=0, seed=4):
    """Return a federation with its targets (around 5) and inputs in other units."""
    base = make_federation(seed, sizes=(60, 45, 80), test=0, labels=labels)
    silos = []
    for silo in base.silos:
        rows = silo.rows("train")
        y = rows.y if labels else unit * (rows.y + 5.0)
        train = Rows.of(np.asarray(rows.X) * inputs, y, rows.group)
        silos.append(Silo(silo.name, silo.index, {"train": train}))
    return from_silos(base, silos)


def model_of(kind, unit, l2):
    if kind == "squares":
        return LeastSquares(l2=l2)
    return HuberRegression(l2=l2, delta=0.7 * unit)


@pytest.mark.parametrize("l2", [1e-3, 0.0])
@pytest.mark.parametrize("kind", ["squares", "huber"])
def test_a_unit_changes_neither_model_nor_status(kind, l2):
    def solved(unit, bound):
        return pffl.solve(
            in_units(unit),
            pffl.BoundedGroupLoss(bound * unit**2),
            model=model_of(kind, unit, l2),
            method=Exact(multiplier_bound=20.0),
            options=QUICK,
            random_state=0,
        )

    bounds = (0.6, 1.4) if kind == "squares" else (0.4, 1.0)
    seen = set()
    for bound in bounds:
        plain = solved(1.0, bound)
        seen.add(plain.status)
        for unit in UNITS:
            other = solved(unit, bound)
            assert other.status == plain.status
            np.testing.assert_allclose(other.w, plain.w, rtol=0, atol=1e-8)
            assert other.train.risk == pytest.approx(
                plain.train.risk * unit**2, rel=1e-8
            )
            assert other.gap / other.problem.unit < 1e-6
            np.testing.assert_allclose(
                other.problem.scales, plain.problem.scales * unit**2, rtol=1e-9
            )
    assert len(seen) > 1


def test_the_ball_comes_from_the_data_and_grows_unless_declared():
    federation = in_units(1.0, inputs=1e-3)
    sizes = np.sqrt(np.mean(federation.pooled("train").X ** 2, axis=0))
    for l2, radius in ((1e-3, 100 / sizes.min()), (0.0, 100.0)):
        raw = LeastSquares(l2=l2, standardize=False)
        free = pffl.solve(federation, None, model=raw, options=QUICK, random_state=0)
        assert free.problem.radius == pytest.approx(radius, rel=1e-2)
    declared = replace(QUICK, radius=0.3)
    held = pffl.solve(federation, None, model=raw, options=declared, random_state=0)
    assert np.linalg.norm(held.w) == pytest.approx(0.3)
    assert held.evidence.proofs.gap.radius == 0.3
    assert held.train.risk > 1.01 * free.train.risk
    # Nearly equal columns: the best weights are long, and no ridge shortens them.
    rows = federation.pooled("train")
    x = np.asarray(rows.X)[:, :1] * 1e3
    X = np.column_stack([x, x + 0.1 * np.asarray(rows.X)[:, 1:2], x[:, 0] * 0])
    y = X[:, 1] * 1e3 - X[:, 0] * 1e3 + 0.1 * rows.y
    train = Rows.of(X, y, rows.group)
    twins = from_silos(federation, [Silo("only", 0, {"train": train})])
    long = pffl.solve(
        twins, None, model=LeastSquares(l2=0.0), options=QUICK, random_state=0
    )
    assert np.linalg.norm(long.w) > long.problem.radius
    assert np.linalg.norm(long.w) < long.evidence.proofs.gap.radius
    design = np.column_stack([X[:, :2] - X[:, :2].mean(axis=0), np.ones(len(y))])
    least = np.linalg.lstsq(design, y, rcond=None)[1][0] / len(y)
    assert long.train.risk == pytest.approx(least, rel=1e-5)
