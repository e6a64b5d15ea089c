"""The laws of sums: additivity, order, splitting, identical silos, convex means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.engines import Local
from pffl.prepare import Options
from pffl.queries import Evaluate, Expand, View, add_all
from tests.helpers import (
    assert_same_total,
    draw_multipliers,
    make_federation,
    make_problem,
    repartition,
    setting,
    train_query,
    witness_query,
)
from tests.oracles import MODELS

KINDS = list(MODELS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_total_is_the_sum_of_the_silos_answers(kind):
    federation, _, problem, _, w, lam = setting(kind)
    engine = Local(federation)
    for query in (
        train_query(problem, w, lam, steps=[0.1, 0.1]),
        Evaluate(problem.task, w, "train"),
        Evaluate(problem.task, w, "test"),
        Expand(problem.task, w, 2),
        witness_query(problem, w, lam),
    ):
        answers = [
            query.answer(
                View.of(silo, federation.schema, problem.task.model, query.split)
            )
            for silo in federation.silos
        ]
        one_by_one = answers[0] + answers[1] + answers[2]
        other_way = answers[2] + (answers[1] + answers[0])
        assert_same_total(one_by_one, other_way, 1e-13)
        assert_same_total(engine.ask(query), one_by_one, 1e-12)
        assert_same_total(add_all(answers), one_by_one, 1e-13)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), parts=st.integers(1, 10))
def test_splitting_and_merging_silos_changes_neither_g_nor_r(seed, parts):
    federation = make_federation(seed, sizes=(30, 41, 25))
    rng = np.random.default_rng(seed)
    anew = repartition(federation, rng.integers(parts, size=96))
    w = rng.normal(size=4)
    found = []
    for data in (federation, anew):
        engine = Local(data, threads=1)
        problem = make_problem(
            engine, pffl.BoundedGroupLoss(0.5), options=Options(weighting="rows")
        )
        lam = draw_multipliers(np.random.default_rng(seed), problem)
        total = engine.ask(train_query(problem, w, lam))
        found.append((problem.risk(w, total), total))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    assert_same_total(found[0][1], found[1][1], 1e-12)
