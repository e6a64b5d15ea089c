"""An engine that asks no question twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.engines import Local
from pffl.engines.remembered import Remembered
from pffl.questions import Census, Curvature, Evaluate, Train
from tests.helpers import assert_same_total, make_federation, make_problem


class Noting(Local):
    """A local engine that notes what it is asked."""

    def __init__(self, federation):
        super().__init__(federation)
        self.asked = []

    def ask_many(self, questions):
        self.asked += [type(question).__name__ for question in questions]
        return super().ask_many(questions)


@pytest.fixture
def inner():
    return Noting(make_federation())


def questions(engine):
    problem = make_problem(engine, pffl.PerSilo(0.6))
    task, w = problem.task, np.full(problem.n_parameters, 0.1)
    return [
        Evaluate(task, w, "test"),
        Evaluate(task, w, "train"),
        Evaluate(task, w, "train", loss_bound=2.0),
        Curvature(task, w),
        Curvature(task, w, majorant=True),
        Curvature(task, w, order=1),
        Curvature(task, w + 1e-16 + 1e-9),
        Evaluate(replace(task, shares=task.shares[::-1] ** 2), w, "train"),
        Evaluate(replace(task, cells=task.cells.take([0, 1])), w, "train"),
        Evaluate(
            replace(task, cells=replace(task.cells, silo=task.cells.silo[::-1])),
            w,
            "train",
        ),
    ]


def test_different_questions_are_all_asked_and_none_twice(inner):
    engine = Remembered(inner)
    different = questions(inner)
    inner.asked.clear()
    first = [engine.ask(question) for question in different]
    assert len(inner.asked) == len(different)
    again = engine.ask_many(questions(inner))
    inner.asked = [
        name for name in inner.asked if not name.lower().startswith("census")
    ]
    assert len(inner.asked) == len(different)
    for one, other, question in zip(first, again, different, strict=True):
        assert one is other
        assert_same_total(other, Local(inner.federation).ask(question), 1e-12)


def test_training_is_always_asked(inner):
    engine, problem = Remembered(inner), make_problem(inner, pffl.PerSilo(0.6))
    weights = problem.cell_weights(np.ones(problem.n_cells))
    w = np.zeros(problem.n_parameters)
    question = Train(problem.task, w, 1.0, weights, np.full(2, 0.1))
    inner.asked.clear()
    engine.ask(question)
    engine.ask(question)
    assert inner.asked == ["Train", "Train"]


def test_a_census_is_taken_once_a_split(inner):
    engine = Remembered(inner)
    inner.asked.clear()
    for split in ("train", "test", "train"):
        engine.ask(Census(inner.schema, split))
    assert inner.asked == ["Census", "Census"]


def test_the_oldest_answers_go_first(inner):
    one, other = questions(inner)[:2]
    size = sum(np.asarray(v).nbytes for v in vars(inner.ask(one)).values())
    engine = Remembered(inner, most_bytes=size)
    inner.asked.clear()
    for question in (one, one, other, other, one):
        engine.ask(question)
    assert len(inner.asked) == 3


def test_a_certificate_asks_what_solve_did_not(inner):
    plain = Noting(inner.federation)
    solution = pffl.solve(plain, pffl.BoundedGroupLoss(0.75), seed=0)
    pffl.certify(solution, plain)
    solution = pffl.solve(Remembered(inner), pffl.BoundedGroupLoss(0.75), seed=0)
    engine = Remembered(inner)
    inner.asked.clear()
    solution = pffl.solve(engine, pffl.BoundedGroupLoss(0.75), seed=0)
    pffl.certify(solution, engine)
    assert len(inner.asked) < 0.7 * len(plain.asked)
