"""Rows by stratum, equal ones merged, answer as the plain loop does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pffl
from pffl.engines import Local, Reference
from pffl.prepare import Options
from pffl.queries import Evaluate, Expand
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
from tests.inside import equal_rows, processors
from tests.inside import local as layouts
from tests.oracles import MODELS

KINDS = list(MODELS)


@pytest.fixture
def always(monkeypatch):
    """Lay rows out by stratum, merge however few; in pieces and two threads."""
    monkeypatch.setattr(layouts, "FEW", 0)
    monkeypatch.setattr(layouts, "WORTH", 2.0)
    monkeypatch.setattr(layouts, "LONG", 10**9)
    monkeypatch.setattr(processors, "SMALL", 0)
    monkeypatch.setattr(layouts, "PIECE_BYTES", 1)


def repeated(seed, *, sizes, labels=2, weights=False, groups=2, test=8):
    """Draw silos whose inputs have few values, so that many rows are equal."""
    rng = np.random.default_rng(seed)
    schema = make_schema(
        features=3, labels=labels, attributes=(("g", list("abcdef")[:groups]),)
    )
    federation = make_federation(seed, sizes=sizes, test=test, schema=schema)
    silos = []
    for silo in federation.silos:
        splits = {}
        for name, rows in silo.splits.items():
            X, y = np.sign(rows.X) * (np.abs(rows.X) > 1), rows.y
            if labels == 0:
                y = np.round(y)
            own = rng.choice([0.0, 0.5, 1.0, 3.0], len(rows)) if weights else None
            if own is not None and len(own):
                own[0] = 1.0
            splits[name] = replace(rows, X=X, y=y, weight=own)
        silos.append(replace(silo, splits=splits))
    return from_silos(federation, silos)


def queries_about(problem, seed):
    """Return every query that does not have to tell silos apart."""
    rng = np.random.default_rng(seed)
    w, lam = rng.normal(size=problem.n_parameters), draw_multipliers(rng, problem)
    task = problem.task
    yield train_query(problem, w, lam)
    yield witness_query(problem, w, lam)
    yield Evaluate(task, w, "train")
    yield evaluate_query(task, w)
    yield evaluate_query(task, w, "train")
    yield Expand(task, w, 2)
    yield Expand(task, w, directions=rng.normal(size=(len(w), 2)))
    if task.model.n_outputs == 1:
        yield Expand(task, w, sharpness=5.0)
    if task.model.n_classes:
        bets = np.full((len(task.cells), 2), 0.4)
        levels = np.tile([0.2, 1.0], (len(task.cells), 1))
        yield Evaluate(task, w, "test", 1.5, bets=bets, weight_bound=3.0, levels=levels)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=9),
    kind=st.sampled_from(KINDS),
    weights=st.booleans(),
    weighting=st.sampled_from(["silos", "rows"]),
    groups=st.integers(1, 5),
)
def test_all_totals_are_those_of_the_plain_loop(
    always, seed, sizes, kind, weights, weighting, groups
):
    federation = repeated(
        seed, sizes=[40, *sizes], labels=MODELS[kind][1], weights=weights, groups=groups
    )
    fast, plain = Local(federation, threads=2), Reference(federation)
    problem = make_problem(
        plain,
        pffl.BoundedGroupLoss(0.5),
        model=MODELS[kind][0](l2=0.01),
        options=Options(weighting=weighting),
    )
    for query in queries_about(problem, seed):
        assert_same_total(fast.ask(query), plain.ask(query), 1e-12)
        layout = fast.layout([query])
        assert not layout.apart
        assert len(layout) <= sum(len(s.rows(query.split)) for s in federation.silos)


@pytest.mark.parametrize("kind", KINDS)
def test_what_silos_have_to_be_told_apart_for_is_by_silo(always, kind):
    federation = repeated(1, sizes=(30, 50, 20), labels=MODELS[kind][1])
    fast, plain = Local(federation, threads=2), Reference(federation)
    model = MODELS[kind][0]()
    problem = make_problem(plain, pffl.BoundedGroupLoss(0.5), model=model)
    rng = np.random.default_rng(0)
    w, lam = rng.normal(size=problem.n_parameters), draw_multipliers(rng, problem)
    own = make_problem(plain, pffl.PerSilo(0.5), model=model)
    none = replace(problem, task=replace(problem.task, shares=np.array([0.5, 0, 0.5])))
    for query in (
        train_query(problem, w, lam, steps=[0.01, 0.01]),
        train_query(problem, w, lam, steps=[0.01], batch_size=5),
        train_query(problem, w, lam, steps=[0.01], silos=(1,)),
        train_query(problem, w, lam, steps=[0.01], loss_power=1.0),
        train_query(none, w, lam, steps=[0.01]),
        Expand(problem.task, w, 0),
        Evaluate(own.task, w),
        Expand(own.task, w),
    ):
        assert fast.layout([query]).apart
        assert_same_total(fast.ask(query), plain.ask(query), 1e-12)


def table(seed, rows=400, types=np.float64):
    """Return raw inputs, labels and strata, with few distinct rows."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (rows, 2)).astype(types)
    return X, rng.integers(0, 2, rows).astype(float), rng.integers(0, 3, rows)


@pytest.mark.parametrize("types", [np.float64, np.float32, np.uint8])
def test_equal_rows_are_found_all_of_them(monkeypatch, types):
    monkeypatch.setattr(layouts, "FEW", 0)
    monkeypatch.setattr(layouts, "PRINTED", 16)
    X, y, strata = table(0, types=types)
    order, starts = equal_rows(X, y, strata, np.ones(2))
    rows = np.column_stack([strata, y, X])
    assert len(starts) == len(np.unique(rows, axis=0))
    assert sorted(order) == list(range(len(X)))
    for part in np.split(rows[order], starts[1:]):
        assert (part == part[0]).all()
    assert (np.diff(strata[order]) >= 0).all()


@pytest.mark.parametrize("prints", ["all equal", "of the first input", "not numbers"])
def test_rows_with_equal_prints_that_differ_are_never_merged(monkeypatch, prints):
    monkeypatch.setattr(layouts, "FEW", 0)
    monkeypatch.setattr(layouts, "WORTH", 2.0)
    X, y, strata = table(1)
    false = {
        "all equal": np.zeros(len(y)),
        "of the first input": X[:, 0],
        "not numbers": np.full(len(y), np.nan),
    }
    monkeypatch.setattr(layouts, "row_prints", lambda *_: false[prints].copy())
    order, starts = equal_rows(X, y, strata, np.ones(2))
    rows = np.column_stack([strata, y, X])
    for part in np.split(rows[order], starts[1:]):
        assert (part == part[0]).all()


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_estimates_hessians_and_nothing_else(kind, weights):
    build, labels = MODELS[kind]
    federation = repeated(3, sizes=(900, 900, 700), labels=labels, weights=weights)
    engine = Local(federation)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.6), model=build())
    w = np.random.default_rng(0).normal(size=problem.n_parameters)
    every = engine.ask(Expand(problem.task, w, 2))
    some = engine.ask(Expand(problem.task, w, 2, sample=60))
    np.testing.assert_array_equal(some.losses, every.losses)
    np.testing.assert_array_equal(some.gradients, every.gradients)
    assert not np.allclose(some.hessians, every.hessians, rtol=1e-6)
    for estimate, hessian in zip(some.hessians, every.hessians, strict=True):
        scale = np.linalg.norm(hessian, 2)
        assert np.linalg.norm(estimate - hessian, 2) < 0.3 * scale
        assert np.linalg.eigvalsh(estimate).min() > -1e-12 * scale
    enough = engine.ask(Expand(problem.task, w, 2, sample=10**6))
    np.testing.assert_array_equal(enough.hessians, every.hessians)


def test_rows_that_are_laid_out_by_silo_are_not_copied_for_sums(monkeypatch):
    monkeypatch.setattr(layouts, "LONG", 1)
    federation = make_federation(5, sizes=[40] * 3)
    fast, plain = Local(federation), Reference(federation)
    problem = make_problem(plain, pffl.BoundedGroupLoss(0.5))
    w = np.zeros(problem.n_parameters)
    asked = Expand(problem.task, w, 2)
    assert not Local(federation).layout([asked]).apart
    steps = train_query(problem, w, np.zeros(problem.n_cells), steps=[0.1, 0.1])
    assert fast.layout([steps]) is fast.layout([asked])
    assert_same_total(fast.ask(asked), plain.ask(asked), 1e-12)
