"""The laws of sums: additivity, order, splitting, identical silos, convex means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.data import Rows, Silo
from pffl.engines import Local, Reference
from pffl.preparation import Options
from pffl.questions import Curvature, Evaluate, View, add_all
from tests.helpers import (
    assert_same_total,
    draw_multipliers,
    from_silos,
    group_masks,
    make_federation,
    make_problem,
    repartition,
    setting,
    train_question,
    witness_question,
)
from tests.oracles import MODELS
from tests.saddle import Oracle

KINDS = list(MODELS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_total_is_the_sum_of_the_silos_answers(kind):
    federation, _, problem, _, w, lam = setting(kind)
    engine = Local(federation)
    for question in (
        train_question(problem, w, lam, steps=[0.1, 0.1]),
        Evaluate(problem.task, w, "train"),
        Evaluate(problem.task, w, "test"),
        Curvature(problem.task, w),
        witness_question(problem, w, lam),
    ):
        answers = [
            question.answer(
                View.of(silo, federation.schema, problem.task.model, question.split)
            )
            for silo in federation.silos
        ]
        one_by_one = answers[0] + answers[1] + answers[2]
        other_way = answers[2] + (answers[1] + answers[0])
        assert_same_total(one_by_one, other_way, 1e-13)
        assert_same_total(engine.ask(question), one_by_one, 1e-12)
        assert_same_total(add_all(answers), one_by_one, 1e-13)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), parts=st.integers(1, 6))
def test_the_answer_of_a_union_is_the_sum_of_answers(seed, parts):
    federation = make_federation(seed, sizes=(60,))
    engine = Reference(federation)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.5))
    rng = np.random.default_rng(seed)
    w = rng.normal(size=4)
    rows = federation.silos[0].rows("train")
    whole = engine.ask(Evaluate(problem.task, w, "train"))
    owner = rng.integers(parts, size=60)
    answers = [
        Evaluate(problem.task, w, "train").answer(
            View.of(
                Silo("part", 0, {"train": rows.take(np.flatnonzero(owner == part))}),
                federation.schema,
                problem.task.model,
                "train",
            )
        )
        for part in range(parts)
    ]
    total = add_all(answers)
    np.testing.assert_allclose(total.atoms, whole.atoms, rtol=1e-12)
    np.testing.assert_allclose(total.cells, whole.cells, rtol=1e-12)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), weighting=st.sampled_from(["silos", "rows"]))
def test_the_order_of_silos_does_not_matter(seed, weighting):
    federation = make_federation(seed, sizes=(30, 41, 25, 50))
    rng = np.random.default_rng(seed)
    w = rng.normal(size=4)
    order = rng.permutation(4)
    shuffled = from_silos(federation, [federation.silos[k] for k in order])
    totals = []
    for data in (federation, shuffled):
        engine = Local(data, threads=1)
        problem = make_problem(
            engine, pffl.BoundedGroupLoss(0.5), options=Options(weighting=weighting)
        )
        lam = draw_multipliers(np.random.default_rng(seed), problem)
        question = train_question(problem, w, lam, steps=[0.2, 0.1])
        totals.append(engine.ask(question))
    assert_same_total(totals[0], totals[1], 1e-12)


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
        total = engine.ask(train_question(problem, w, lam))
        found.append((problem.risk(w, total), total))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    assert_same_total(found[0][1], found[1][1], 1e-12)


@pytest.mark.parametrize("engine_type", [Local, Reference])
@pytest.mark.parametrize("kind", KINDS)
def test_identical_silos_train_like_one_pooled_silo(kind, engine_type):
    cls, labels = MODELS[kind]
    one = make_federation(1, sizes=(40,), labels=labels)
    five = from_silos(
        one, [Silo(f"copy {k}", k, one.silos[0].splits) for k in range(5)]
    )
    steps, beta, l2 = [0.2, 0.1, 0.05], 0.6, 0.02
    oracle = Oracle.of(one, group_masks(one), [0.4, 0.4], kind=kind, beta=beta, l2=l2)
    rng = np.random.default_rng(2)
    w = rng.normal(size=oracle.classes * 4)
    lam = rng.uniform(0, 2, 2)
    v = w.copy()
    for step in steps:
        v = v - step * oracle.gradient(v, lam)
    engine = engine_type(five)
    problem = make_problem(
        engine, pffl.BoundedGroupLoss(0.4), model=cls(l2=l2), beta=beta
    )
    total = engine.ask(train_question(problem, w, lam, steps=steps))
    np.testing.assert_allclose(w + total.update / total.share, v, rtol=1e-10)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_the_new_model_is_the_weighted_mean_of_the_local_ones(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(15, 60, size=4)
    federation = make_federation(seed, sizes=sizes.tolist())
    engine = Local(federation, threads=1)
    problem = make_problem(
        engine, pffl.BoundedGroupLoss(0.5), options=Options(weighting="rows")
    )
    w, lam = rng.normal(size=4), draw_multipliers(rng, problem)
    question = train_question(problem, w, lam, steps=[0.3] * 4)
    local = []
    for view in Reference(federation).views(question):
        answer = question.answer(view)
        local.append(w + answer.update / answer.share)
    total = engine.ask(question)
    aggregated = w + total.update / total.share
    mean = (sizes / sizes.sum()) @ np.array(local)
    np.testing.assert_allclose(aggregated, mean, rtol=0, atol=1e-12)
    # … hence inside their hull, coordinate by coordinate too.
    assert (aggregated >= np.min(local, axis=0) - 1e-12).all()
    assert (aggregated <= np.max(local, axis=0) + 1e-12).all()


def test_a_question_does_not_change_what_it_was_asked_with():
    federation, engine, problem, _, w, lam = setting()
    kept = w.copy()
    rows = federation.silos[0].rows("train")
    inputs = rows.X.copy()
    for asker in (engine, Local(federation)):
        asker.ask(train_question(problem, w, lam, steps=[0.1] * 3))
        asker.ask(train_question(problem, w, lam, steps=[0.1] * 3, batch_size=5))
        asker.ask(Curvature(problem.task, w))
    np.testing.assert_array_equal(w, kept)
    np.testing.assert_array_equal(rows.X, inputs)


def test_a_silo_without_a_group_answers_zero_for_it():
    federation = make_federation(0, sizes=(30, 40))
    rows = federation.silos[1].rows("train")
    only_f = Rows(rows.X, rows.y, np.zeros_like(rows.group))
    silos = [
        federation.silos[0],
        Silo("only f", 1, {"train": only_f, "test": rows}),
    ]
    federation = from_silos(federation, silos)
    engine = Reference(federation)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.5))
    w = np.ones(4)
    question = train_question(problem, w, np.ones(2))
    answer = question.answer(engine.views(question)[1])
    assert answer.cell_losses[1] == 0.0
    assert answer.cell_losses[0] > 0.0
