"""Columns and targets whose mean is large beside their spread (shifted sums)."""

from __future__ import annotations

import numpy as np

import pffl
from pffl.data import Rows, Silo
from pffl.driver import drive
from pffl.engines import Local, Reference
from pffl.prepare import count
from tests.helpers import from_silos, make_federation, make_problem

DATE = 1.7e12  # milliseconds


def dated(labels=2, *, column=DATE, target=0.0, constant=None):
    """Return a federation whose first input is a date, spread by about a minute."""
    base = make_federation(2, sizes=(60, 40, 70), labels=labels)
    silos = []
    for silo in base.silos:
        splits = {}
        for split, rows in silo.splits.items():
            X = np.array(rows.X, dtype=np.float64)
            X[:, 0] = column + 6e4 * X[:, 0]
            if constant is not None:
                X[:, 1] = constant
            splits[split] = Rows.of(X, rows.y + target, rows.group)
        silos.append(Silo(silo.name, silo.index, splits))
    return from_silos(base, silos)


def test_a_date_is_no_constant():
    federation = dated()
    problem = make_problem(Reference(federation), pffl.BoundedGroupLoss(0.6))
    inputs, X = problem.task.model.inputs, federation.pooled("train").X
    np.testing.assert_allclose(inputs.mean, X.mean(axis=0), rtol=1e-12)
    true = (X - X.mean(axis=0)).std(axis=0)
    np.testing.assert_allclose(inputs.scale, true, rtol=1e-6)
    plain = pffl.solve(dated(column=0.0), pffl.BoundedGroupLoss(0.6), random_state=0)
    far = pffl.solve(federation, pffl.BoundedGroupLoss(0.6), random_state=0)
    np.testing.assert_allclose(far.w, plain.w, atol=1e-6)
    assert far.status == plain.status


def asked(federation):
    engine = Local(federation)
    counted = drive(engine, count(federation.schema))
    return counted.centre


def test_it_is_asked_only_where_sums_cancel():
    assert not asked(make_federation(2)).any()
    assert not asked(make_federation(2, labels=0)).any()
    assert not asked(dated(column=0.0, constant=0.0)).any()
    assert not asked(dated(column=0.0, constant=1.0)).any()  # sums are exact
    assert np.flatnonzero(asked(dated())).tolist() == [1]
    assert np.flatnonzero(asked(dated(0, target=1e9))).tolist() == [0, 1]
    constant = dated(column=0.0, constant=1.7e12 + 0.1)
    assert np.flatnonzero(asked(constant)).tolist() == [2]
    problem = make_problem(Reference(constant), pffl.BoundedGroupLoss(0.6))
    assert problem.task.model.inputs.scale[1] == 1.0  # it is one, after all
