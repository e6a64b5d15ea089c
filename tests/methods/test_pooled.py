"""Pooled: the minimiser over all rows, however they are shared out."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.engines import Local
from pffl.methods.pooled import Newton, Pooled
from tests.driving import iterate
from tests.helpers import (
    make_federation,
    make_problem,
    make_schema,
)
from tests.saddle import Oracle


def fit(federation, constraint=None, *, engine=Local, **parameters):
    asker = engine(federation)
    return iterate(asker, make_problem(asker, constraint, **parameters), Pooled())


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
