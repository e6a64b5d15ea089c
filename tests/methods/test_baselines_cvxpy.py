"""Baselines against cvxpy: AFL, FedMinMax, LocalBGL and FCFL end at their optima."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import group_masks, make_federation, make_problem
from tests.methods.biased import biased, copies, fit
from tests.oracles import (
    MODELS,
    Local,
    least_norm,
    methods,
    people_of,
    pffl,
    train,
    with_groups,
)
from tests.saddle import Oracle


def setting(kind, cells_of, constraint, **shape):
    """Return the oracle of a minimax problem, an engine and the problem."""
    cls, labels = MODELS[kind]
    federation = make_federation(1, labels=labels, **shape)
    cells = cells_of(federation)
    free = {"beta": 0.0, "budget": 1.0}
    zeros = np.zeros(len(cells))
    oracle = Oracle.of(federation, cells, zeros, kind=kind, l2=0.02, **free)
    engine = Local(federation, threads=1)
    problem = make_problem(engine, constraint, model=cls(l2=0.02), **free)
    return oracle, engine, problem


def silo_masks(federation):
    silo = people_of(federation).silo
    return np.array([silo == k for k in range(silo.max() + 1)])


@pytest.mark.parametrize("kind", list(MODELS))
def test_afl_ends_at_the_best_model_for_the_worst_silo(kind):
    shape = {"sizes": (60, 12, 90, 30), "heterogeneity": 1.5}
    oracle, engine, problem = setting(kind, silo_masks, pffl.PerSilo(0.0), **shape)
    # The default is planned at the start, where a centred target has small slopes: it
    # needs more rounds than a test has time for.
    step = 0.03 if kind == "least-squares" else None
    method = methods.AFL(rounds=1200, ridge=0.0, iterate="last", dual_step_size=step)
    worst = oracle.violation(train(engine, problem, method).w).max()
    exact = train(engine, problem, pffl.Exact())
    assert worst <= oracle.violation(exact.w).max() + 1e-5
    assert worst <= oracle.saddle()[0] + 2e-5  # cvxpy


@pytest.mark.parametrize("kind", list(MODELS))
def test_fedminmax_ends_at_the_minimax_model(kind):
    shape = {"sizes": (60, 8, 90)}
    oracle, engine, problem = setting(kind, group_masks, pffl.MinMax(), **shape)
    run = train(engine, problem, methods.FedMinMax(rounds=500, ridge=0.0))
    worst = oracle.violation(run.w).max()
    exact = train(engine, problem, pffl.Exact())
    assert worst <= oracle.violation(exact.w).max() + 1e-6
    assert worst <= oracle.saddle()[0] + 1e-5  # cvxpy


def test_fedminmax_with_a_ridge_ends_at_the_regularised_minimax_model():
    shape = {"sizes": (60, 8, 90)}
    oracle, engine, problem = setting("logistic", group_masks, pffl.MinMax(), **shape)
    w = cp.Variable(4)
    losses = cp.logistic(cp.multiply(1 - 2 * oracle.y, oracle.X @ w))
    means = (oracle.cells / oracle.cells.sum(axis=1, keepdims=True)) @ losses
    cp.Problem(cp.Minimize(cp.max(means) + 0.05 * cp.sum_squares(w))).solve(
        solver=cp.CLARABEL
    )
    run = train(engine, problem, methods.FedMinMax(rounds=500, ridge=0.1))
    np.testing.assert_allclose(run.w, w.value, atol=1e-4)


@pytest.mark.parametrize(
    ("budget", "weighting"),
    [
        (0.5, "silos"),
        (5.0, "rows"),
        pytest.param(0.5, "rows", marks=pytest.mark.slow),
        pytest.param(5.0, "silos", marks=pytest.mark.slow),
    ],
)
def test_local_bgl_ends_at_the_saddle_point_of_the_silos_own_bounds(budget, weighting):
    federation = make_federation(0, sizes=(60, 20, 90), heterogeneity=1.0)
    federation = with_groups(federation, 1, np.zeros(20, int))  # without group 1
    bounds, masks = {"f": 0.55, "m": 0.6}, group_masks(federation)
    oracle = Oracle.of(
        federation,
        masks,
        list(bounds.values()),
        budget=budget,
        l2=0.02,
        weighting=weighting,
    )
    engine = Local(federation)
    problem = make_problem(
        engine,
        pffl.BoundedGroupLoss(bounds),
        model=pffl.LogisticRegression(l2=0.02),
        budget=budget,
        options=pffl.Options(weighting=weighting),
    )
    w = cp.Variable(4)
    losses = cp.logistic(cp.multiply(1 - 2 * oracle.y, oracle.X @ w))
    objective = oracle.risk_weights @ losses + 0.01 * cp.sum_squares(w)
    silo = people_of(federation).silo
    for k in range(3):
        excess = [
            (rows / rows.sum()) @ losses - bound
            for rows, bound in zip(masks & (silo == k), oracle.bounds, strict=True)
            if rows.any()
        ]
        share = oracle.risk_weights[silo == k].sum()
        objective += budget * share * cp.pos(cp.max(cp.hstack(excess)))
    best = cp.Problem(cp.Minimize(objective)).solve(solver=cp.CLARABEL)
    method = methods.LocalBGL(local_steps=1, dual_rounds=120, rounds_per_dual=8)
    w.value = train(engine, problem, method).w
    assert best - 1e-7 <= objective.value <= best + 1e-2
    w.value = train(engine, problem, replace(method, iterate="last")).w
    assert objective.value <= best + 2e-3


@given(st.integers(0, 100_000))
def test_fcfls_least_norm_is_the_quadratic_programs(seed):
    rng = np.random.default_rng(seed)
    D = rng.normal(size=(4, 6)) + 0.4
    c = cp.Variable(4, nonneg=True)
    cp.Problem(cp.Minimize(cp.sum_squares(D.T @ c)), [cp.sum(c) == 1]).solve(
        solver=cp.CLARABEL
    )
    ours = least_norm(D)
    assert ours.sum() == pytest.approx(1)
    assert np.linalg.norm(ours @ D) == pytest.approx(
        np.linalg.norm(c.value @ D), abs=1e-6
    )
    shortest = ours @ D
    assert (D @ shortest).min() >= shortest @ shortest - 1e-9


def test_fcfl_with_a_wide_bound_and_one_silo_ends_at_the_plain_optimum():
    federation = copies(biased(5), 1)
    method = methods.FCFL(gap_bound=10.0, stage_one_rounds=150, stage_two_rounds=50)
    optimum = Oracle.of(federation, [], [], l2=0.02).saddle()[1]
    np.testing.assert_allclose(fit(federation, method, l2=0.02), optimum, atol=0.02)
