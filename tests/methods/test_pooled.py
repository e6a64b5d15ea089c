"""Pooled: the minimiser over all rows, however they are shared out."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.engines import Local, Reference
from pffl.errors import UsageError
from pffl.methods.pooled import Newton, Pooled
from tests.driving import iterate
from tests.helpers import (
    make_federation,
    make_problem,
    make_schema,
    repartition,
)
from tests.oracles import MODELS
from tests.raising import raises
from tests.saddle import Oracle


def fit(federation, constraint=None, *, engine=Local, **parameters):
    asker = engine(federation)
    return iterate(asker, make_problem(asker, constraint, **parameters), Pooled())


@pytest.mark.parametrize("weighting", ["silos", "rows"])
@pytest.mark.parametrize("kind", list(MODELS))
def test_it_is_the_minimiser_over_all_rows_whatever_the_weighting(kind, weighting):
    cls, labels = MODELS[kind]
    federation = make_federation(0, sizes=(60, 10, 90), labels=labels)
    run = fit(
        federation,
        model=cls(l2=0.02),
        options=pffl.Options(weighting=weighting),
    )
    oracle = Oracle.of(federation, [], [], kind=kind, l2=0.02, weighting="rows")
    slope = oracle.gradient(run.point.w, np.zeros(0))
    assert np.linalg.norm(slope) < 1e-10
    assert oracle.risk(run.point.w) <= oracle.saddle()[0] + 1e-9
    assert run.rounds < 12


def test_the_constraint_and_the_engine_do_not_matter():
    federation = make_federation(1)
    alone = fit(federation).point.w
    for engine in (Local, Reference):
        for constraint in (pffl.BoundedGroupLoss(0.1), pffl.MinMax()):
            run = fit(federation, constraint, engine=engine)
            np.testing.assert_allclose(run.point.w, alone, atol=1e-10)
            np.testing.assert_array_equal(run.point.multipliers, [0.0, 0.0])


def test_any_partition_of_the_rows_gives_the_same_model():
    federation = make_federation(2, sizes=(50, 30, 40))
    shuffled = np.random.default_rng(0).integers(5, size=120)
    np.testing.assert_allclose(
        fit(federation).point.w,
        fit(repartition(federation, shuffled)).point.w,
        atol=1e-9,
    )


def test_directions_without_curvature_are_left_alone():
    schema = make_schema(features=2)
    federation = make_federation(3, schema=schema, sizes=(50, 50))
    for silo in federation.silos:
        X = silo.rows("train").X
        X.flags.writeable = True
        X[:, 1] = X[:, 0]
    run = fit(federation, model=pffl.LogisticRegression(l2=0.0))
    assert run.point.w[0] == pytest.approx(run.point.w[1], abs=1e-9)
    oracle = Oracle.of(federation, [], [], l2=0.0, weighting="rows")
    assert np.linalg.norm(oracle.gradient(run.point.w, np.zeros(0))) < 1e-10


def test_newton_takes_back_steps_that_do_not_help():
    # From |x| > 1, undamped Newton on √(1 + x²) goes to −x³ and never comes back.
    search, asked = Newton.at(np.array([3.0])), 0
    while not search.done:
        x, asked = search.w, asked + 1
        size = np.sqrt(1 + x @ x)
        search = search.told(size, x / size, np.eye(1) / size**3, 1e-10)
        assert asked < 30
    assert abs(search.w[0]) < 1e-10


def test_newton_takes_back_steps_that_leave_the_numbers():
    search = Newton.at(np.array([0.0]))
    search = search.told(1.0, np.array([1.0]), np.eye(1), 1e-10)
    assert search.w == pytest.approx([-1.0])
    search = search.told(np.nan, np.array([np.nan]), np.eye(1), 1e-10)
    assert search.w == pytest.approx([-0.5])
    assert search.origin == pytest.approx([0.0])


def test_bad_parameters_are_refused():
    with raises(UsageError, "wrong-value", "tolerance"):
        Pooled(tolerance=0.0)
