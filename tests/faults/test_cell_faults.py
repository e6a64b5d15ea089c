"""Faults 2–4, 10, 16, 17, 26–28: silos, cells and bounds that are odd or hopeless."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.engines import Local, Reference
from pffl.errors import DataError
from pffl.methods import PFFL, Exact, FedAvg
from pffl.queries import Evaluate, Expand
from tests.helpers import (
    assert_same_total,
    from_silos,
    group_masks,
    make_federation,
    make_problem,
    make_schema,
    train_query,
)
from tests.raising import raises
from tests.saddle import Oracle


def changed(federation, change):
    """Apply a change to the rows of all silos and splits."""
    silos = [
        replace(silo, splits={name: change(r) for name, r in silo.splits.items()})
        for silo in federation.silos
    ]
    return from_silos(federation, silos)


ABSENT = make_schema(attributes=(("sex", ("f", "m", "x")),))


def without_x():
    federation = make_federation(0, schema=ABSENT)
    return changed(federation, lambda rows: replace(rows, group=rows.group % 2))


@pytest.mark.parametrize(
    "constraint", [pffl.BoundedGroupLoss(0.9), pffl.MinMax()], ids=["bgl", "minmax"]
)
def test_fault_03_declared_group_absent_everywhere(constraint):
    with raises(DataError, "empty-cells", "'x'"):
        pffl.solve(without_x(), constraint, random_state=0)


def without_cell(federation, group, label):
    """Flip the label of all rows of one (group, label)."""

    def flipped(rows):
        hit = (rows.group == group) & (rows.y == label)
        return replace(rows, y=np.where(hit, 1 - label, rows.y))

    return changed(federation, flipped)


def test_fault_04_empty_conditional_cell():
    federation = without_cell(make_federation(0), 1, 0)
    constraint = pffl.ConditionalBoundedGroupLoss(0.95)
    with raises(DataError, "empty-cells", "m, class 0"):
        pffl.solve(federation, constraint, random_state=0)
    known = {"options": pffl.Options(empty_cells="remove"), "random_state": 0}
    solution = pffl.solve(federation, constraint, **known)
    names = [row.cell for row in solution.cell_results]
    assert names == ["f, class 0", "f, class 1", "m, class 1"]
    assert "m, class 0" in " ".join(solution.as_dict()["notes"])
    # Asking only for the label that everybody has needs no permission.
    only = pffl.ConditionalBoundedGroupLoss(0.95, labels=("class 1",))
    assert len(pffl.solve(federation, only, random_state=0).cell_results) == 2


UNEQUAL = make_federation(
    1, sizes=(600, 37_000, 1), test=5, schema=make_schema(features=8)
)


def test_fault_17_very_unequal_silos_answer_as_the_plain_loop():
    fast, plain = Local(UNEQUAL), Reference(UNEQUAL)
    problem = make_problem(plain, pffl.BoundedGroupLoss(0.5))
    rng = np.random.default_rng(0)
    w, lam = 0.3 * rng.normal(size=9), np.array([1.0, 2.0])
    for query in (
        train_query(problem, w, lam, steps=[0.01]),
        train_query(problem, w, lam, steps=[0.01] * 5),
        train_query(problem, w, lam, steps=[0.01] * 5, batch_size=64),
        Expand(problem.task, w, 2),
        Evaluate(problem.task, w, "train"),
    ):
        assert_same_total(fast.ask(query), plain.ask(query), 1e-10)


def test_fault_17_very_unequal_silos_fit_in_memory():
    # One scaled copy of the rows, and buffers that do not grow with them. Padding the
    # silos to the largest one would take three copies.
    parts = [rows for silo in UNEQUAL.silos for rows in silo.splits.values()]
    data = sum(a.nbytes for rows in parts for a in (rows.X, rows.y, rows.group))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        engine = Local(UNEQUAL)
        problem = make_problem(engine, pffl.BoundedGroupLoss(0.5))
        w, lam = np.zeros(9), np.ones(2)
        for steps in ([0.1], [0.1] * 5):
            engine.ask(train_query(problem, w, lam, steps=steps))
        engine.ask(Expand(problem.task, w, 2))
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before <= 1.2 * data
    assert peak - before <= 1.2 * data + 6e6


CONFLICT = pffl.datasets.synthetic(
    600, silos=4, groups=("f", "m"), group_conflict=0.9, features=4, random_state=1
)


@pytest.fixture(scope="module")
def attainable():
    """Return the smallest common bound of both groups, by cvxpy."""
    oracle = Oracle.of(
        CONFLICT, group_masks(CONFLICT), [0.0, 0.0], beta=0.0, budget=1.0
    )
    return oracle.saddle(radius=100)[0]


@pytest.mark.parametrize("seed", range(6))
def test_fault_27_infeasible_is_never_said_of_bounds_that_can_be_met(seed, attainable):
    # However the model was trained: "infeasible" is a proof, not an impression.
    step = float(np.random.default_rng(seed).uniform(0.0005, 0.05))
    above, below = (pffl.BoundedGroupLoss(attainable + s) for s in (step, -step))
    for method in (FedAvg(rounds=3), PFFL(dual_rounds=2), Exact(multiplier_bound=0.1)):
        known = {"method": method, "random_state": 0}
        assert pffl.solve(CONFLICT, above, **known).status != "impossible"
        assert pffl.solve(CONFLICT, below, **known).status == "impossible"
