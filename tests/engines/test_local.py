"""The fast engine answers as the plain loop does, whatever the silos look like."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.engines import Local, Reference
from pffl.models import HuberRegression, LeastSquares
from pffl.queries import Census, Evaluate, Expand, Train
from tests.helpers import (
    assert_same_total,
    draw_multipliers,
    evaluate_query,
    from_silos,
    make_federation,
    make_problem,
    make_schema,
    train_query,
    witness_query,
)
from tests.inside import local, processors
from tests.inside import local as layouts
from tests.oracles import MODELS

KINDS = list(MODELS)
UNEQUAL = (1, 600, 2, 3000, 9, 10, 11)


@pytest.fixture(params=["as it is", "many pieces, two threads"])
def local_engine(request, monkeypatch):
    """Return a way to build `Local`, with pieces and threads on small data too."""
    if request.param == "as it is":
        return Local
    monkeypatch.setattr(processors, "SMALL", 0)
    monkeypatch.setattr(layouts, "PIECE_BYTES", 1)
    monkeypatch.setattr(local, "JOINED", 900)
    return lambda federation: Local(federation, threads=2)


def without_a_group(federation):
    """Leave the first silo without group 1, and the last without label 0."""
    silos = list(federation.silos)
    for k, change in ((0, "group"), (-1, "y")):
        rows = silos[k].rows("train")
        value = np.zeros_like(rows.group) if change == "group" else np.ones_like(rows.y)
        train = replace(rows, **{change: value})
        silos[k] = replace(silos[k], splits={**silos[k].splits, "train": train})
    return from_silos(federation, silos)


FEDERATIONS = {
    "three silos": lambda labels: make_federation(0, labels=labels),
    "unequal": lambda labels: make_federation(
        1, sizes=UNEQUAL, test=(0, 5, 0, 700, 1, 2, 3), labels=labels
    ),
    "one silo": lambda labels: make_federation(2, sizes=(70,), labels=labels),
    "equal sizes": lambda labels: make_federation(3, sizes=(20,) * 9, labels=labels),
    "single rows": lambda labels: make_federation(4, sizes=(1,) * 15, labels=labels),
    "missing group and label": lambda labels: without_a_group(
        make_federation(5, labels=labels)
    ),
    "no test rows": lambda labels: make_federation(6, test=0, labels=labels),
    "single precision": lambda labels: make_federation(
        7, sizes=(50, 300, 7), labels=labels, dtype=np.float32
    ),
    "two attributes": lambda labels: make_federation(
        8,
        sizes=(200, 300, 90),
        schema=make_schema(
            labels=labels, attributes=(("a", ("p", "q")), ("b", ("r", "s", "t")))
        ),
    ),
}


def both(federation, kind, build, **options):
    """Return both engines, the problem and a random (w, λ)."""
    fast, plain = build(federation), Reference(federation)
    attribute = federation.schema.attributes[0].name
    problem = make_problem(
        plain,
        pffl.BoundedGroupLoss(0.5, by=attribute) & pffl.PerSilo(0.7),
        model=MODELS[kind][0](l2=0.01, **options),
        beta=0.8,
    )
    rng = np.random.default_rng(9)
    w = 0.5 * rng.normal(size=problem.n_parameters)
    return fast, plain, problem, w, draw_multipliers(rng, problem)


TRAINING = {
    "one step": {"steps": [0.1]},
    "five steps": {"steps": [0.1, 0.09, 0.08, 0.07, 0.06]},
    "proximal": {"steps": [0.1] * 3, "proximal": 0.7},
    "batches": {"steps": [0.1] * 4, "batch_size": 8, "seed": 5, "round": 2},
    "one batch": {"steps": [0.1], "batch_size": 8, "seed": 5, "round": 2},
    "large batches": {"steps": [0.05] * 3, "batch_size": 250, "seed": 1},
    "batches of all": {"steps": [0.05] * 3, "batch_size": 10_000},
    "no cells": {"steps": [0.1] * 2},
    "own ridge": {"steps": [0.1] * 2, "ridge": 0.3},
    "loss power": {"steps": [0.1] * 2, "loss_power": 1.5},
    "loss power, one step": {"steps": [0.1], "loss_power": 0.5},
    "by mass": {"steps": [0.1, 0.05], "by_mass": True},
    "by mass, one step": {"steps": [0.1], "by_mass": True},
    "by mass, batches": {"steps": [0.1] * 3, "batch_size": 8, "by_mass": True},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", FEDERATIONS)
def test_train(local_engine, shape, kind):
    federation = FEDERATIONS[shape](MODELS[kind][1])
    fast, plain, problem, w, lam = both(federation, kind, local_engine)
    for training, changes in TRAINING.items():
        multipliers = np.zeros_like(lam) if training == "no cells" else lam
        # Steps as small as the largest local curvature asks for: nothing explodes.
        steps = 0.02 * np.asarray(changes["steps"])
        query = train_query(problem, w, multipliers, **{**changes, "steps": steps})
        assert_same_total(fast.ask(query), plain.ask(query), 1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", FEDERATIONS)
def test_evaluate_and_curvature(local_engine, shape, kind):
    federation = FEDERATIONS[shape](MODELS[kind][1])
    fast, plain, problem, w, lam = both(federation, kind, local_engine)
    queries = [
        Census(problem.schema),
        Census(problem.schema, "test"),
        witness_query(problem, w, lam),
        Evaluate(problem.task, w, "train"),
        evaluate_query(problem.task, w),
        Expand(problem.task, w, 2),
        Expand(problem.task, w, 0),
        Expand(problem.task, w),
        Expand(problem.task, w, directions=np.stack([w, w[::-1]], axis=1)),
        Expand(problem.task, w, diagonal=True),
    ]
    if kind != "softmax":
        queries.append(Expand(problem.task, w, sharpness=10.0))
    for query in queries:
        assert_same_total(fast.ask(query), plain.ask(query), 1e-10)


@pytest.mark.parametrize("batch_size", [None, 16])
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_is_its_queries_one_by_one(local_engine, kind, steps, batch_size):
    federation = make_federation(1, sizes=(1, 40, 300, 41), labels=MODELS[kind][1])
    fast, plain, problem, _, _ = both(federation, kind, local_engine)
    rng = np.random.default_rng(3)
    queries = []
    for s in range(5):
        bounds = rng.uniform(0.1, 1, problem.n_cells)
        other = replace(problem.with_bounds(bounds), risk_weight=0.2 * s)
        queries.append(
            train_query(
                other,
                0.3 * rng.normal(size=problem.n_parameters),
                draw_multipliers(rng, problem),
                steps=rng.uniform(0, 0.002, steps),
                batch_size=batch_size,
                round=4,
            )
        )
    together = fast.ask_many(queries)
    assert len(together) == 5
    for query, total in zip(queries, together, strict=True):
        assert_same_total(total, fast.ask(query), 1e-12)
        assert_same_total(total, plain.ask(query), 1e-10)


def mixed(problem, w, lam):
    """Return queries of all kinds, about one task, an equal one and another."""
    again = replace(
        problem.task,
        model=replace(problem.task.model),
        cells=replace(problem.task.cells, bounds=9 * problem.task.cells.bounds),
        shares=problem.task.shares.copy(),
    )
    bare = replace(problem.task, cells=problem.task.cells.take([]))
    return [
        train_query(problem, w, lam),
        Evaluate(problem.task, w),
        Census(problem.schema),
        train_query(problem, w, lam, steps=[0.1, 0.1]),
        Evaluate(problem.task, 2 * w, "train"),
        train_query(problem, -w, lam, proximal=2.0, steps=[0.1, 0.1]),
        Expand(problem.task, w, 2),
        witness_query(problem, w, lam),
        replace(train_query(problem, -w, lam), task=again),
        Evaluate(again, w.copy()),
        evaluate_query(problem.task, w),
        Expand(again, -w),
        replace(witness_query(problem, -w, lam, risk_weight=0.0), task=again),
        Census(problem.schema),
        Census(problem.schema, "test"),
        Expand(problem.task, w.copy(), 2),
        Expand(bare, w, 2),
        train_query(problem, w, lam),
        train_query(problem, w, lam, silos=(2,)),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_any_mix_of_queries_is_answered_in_order(local_engine, kind):
    federation = make_federation(1, labels=MODELS[kind][1])
    fast, plain, problem, w, lam = both(federation, kind, local_engine)
    queries = mixed(problem, w, lam)
    totals = fast.ask_many(queries)
    for query, total, plain_total in zip(
        queries, totals, plain.ask_many(queries), strict=True
    ):
        assert_same_total(total, plain_total, 1e-10)
        if not isinstance(query, Train):  # a stack of them is another product
            assert_same_total(total, fast.ask(query), 0.0)
    assert fast.ask_many([]) == []


def test_models_that_differ_are_never_taken_for_one():
    federation = make_federation(1, labels=0)
    engine, queries = Local(federation), []
    for model in (
        HuberRegression(delta=1.0),
        HuberRegression(delta=0.1),
        LeastSquares(),
        LeastSquares(standardize=False),
        LeastSquares(l2=0.5),
    ):
        problem = make_problem(engine, pffl.BoundedGroupLoss(0.5), model=model)
        w = np.ones(4)
        queries += [
            train_query(problem, w, np.ones(2), steps=[0.01]),
            Evaluate(problem.task, w, "train"),
            Expand(problem.task, w, 2),
        ]
    for query, total in zip(queries, engine.ask_many(queries), strict=True):
        assert_same_total(total, Reference(federation).ask(query), 1e-10)


def test_the_answer_does_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(processors, "SMALL", 0)
    monkeypatch.setattr(layouts, "PIECE_BYTES", 1)
    federation = make_federation(2, sizes=(500, 100, 300))
    problem = make_problem(Reference(federation), pffl.BoundedGroupLoss(0.5))
    rng = np.random.default_rng(0)
    w, lam = rng.normal(size=4), draw_multipliers(rng, problem)
    for steps in ([0.1], [0.1, 0.1]):
        query = train_query(problem, w, lam, steps=steps)
        totals = [Local(federation, threads=n).ask(query) for n in (1, 2, 5)]
        assert_same_total(totals[0], totals[1], 1e-13)
        assert_same_total(totals[0], totals[2], 1e-13)
        # … and twice the same number of threads, the same bits.
        again = Local(federation, threads=5).ask(query)
        np.testing.assert_array_equal(again.update, totals[2].update)
