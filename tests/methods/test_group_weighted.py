"""Group-weighted FedAvg: every group counts the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import pffl
from pffl.data import Rows
from pffl.engines import Local, Reference
from pffl.errors import UsageError
from pffl.methods.group_weighted import GroupWeighted
from tests.driving import iterate
from tests.helpers import (
    from_silos,
    group_masks,
    make_federation,
    make_problem,
)
from tests.oracles import MODELS
from tests.raising import raises
from tests.saddle import Oracle


def row_weights(oracle):
    """1/(|A| m_a) for each row: m/(|A| m_a), as a mean over the m rows."""
    sizes = oracle.cells.sum(axis=1)
    return (1 / (len(sizes) * sizes)) @ oracle.cells


def setting(kind="logistic", *, weighting="silos", l2=0.03, **parameters):
    cls, labels = MODELS[kind]
    federation = make_federation(0, labels=labels, **parameters)
    oracle = Oracle.of(
        federation, group_masks(federation), [0.1, 0.1], kind=kind, l2=l2
    )
    engine = Local(federation, threads=1)
    problem = make_problem(
        engine,
        pffl.BoundedGroupLoss(0.1),
        model=cls(l2=l2),
        options=pffl.Options(weighting=weighting),
    )
    return federation, oracle, engine, problem


@pytest.mark.parametrize("weighting", ["silos", "rows"])
@pytest.mark.parametrize("kind", list(MODELS))
def test_one_step_is_gradient_descent_on_the_mean_of_group_losses(kind, weighting):
    _, oracle, engine, problem = setting(kind, weighting=weighting)
    c, w = row_weights(oracle), np.zeros(oracle.classes * oracle.X.shape[1])
    for _ in range(8):
        w = w - 0.1 * (oracle.weighted_gradient(w, c) + oracle.l2 * w)
    method = GroupWeighted(rounds=8, local_steps=1, step_size=0.1)
    run = iterate(engine, problem, method)
    np.testing.assert_allclose(run.point.w, w, atol=1e-12)
    np.testing.assert_array_equal(run.point.multipliers, [0.0, 0.0])


def test_local_steps_are_those_of_rows_weighted_by_m_over_groups_times_group_size():
    federation, oracle, engine, problem = setting(weighting="rows")
    silo, m = federation.pooled("train").silo, len(oracle.X)
    weights = m * row_weights(oracle)  # m/(|A| m_a)
    w = np.zeros(4)
    for _ in range(5):
        mean = np.zeros(4)
        for k in range(3):
            v, m_k = w.copy(), (silo == k).sum()
            for _ in range(3):
                own = np.where(silo == k, weights / m_k, 0.0)
                v = v - 0.2 * (oracle.weighted_gradient(v, own) + oracle.l2 * v)
            mean += m_k / m * v
        w = mean
    method = GroupWeighted(rounds=5, local_steps=3, step_size=0.2)
    np.testing.assert_allclose(iterate(engine, problem, method).point.w, w, atol=1e-12)


@pytest.mark.parametrize("kind", list(MODELS))
def test_the_fixed_point_minimises_the_mean_of_group_losses(kind):
    _, oracle, engine, problem = setting(kind, l2=0.1)
    c = row_weights(oracle)
    best = minimize(
        lambda w: c @ oracle.losses(w) + oracle.l2 / 2 * w @ w,
        np.zeros(oracle.classes * oracle.X.shape[1]),
        jac=lambda w: oracle.weighted_gradient(w, c) + oracle.l2 * w,
        method="BFGS",
        options={"gtol": 1e-9},
    ).x
    run = iterate(engine, problem, GroupWeighted(rounds=400, local_steps=1))
    np.testing.assert_allclose(run.point.w, best, atol=1e-6)


def test_groups_of_equal_size_make_it_fedavg_by_rows():
    federation = make_federation(1, sizes=(40, 20, 60))
    silos = []
    for silo in federation.silos:
        rows = silo.rows("train")
        even = Rows.of(rows.X, rows.y, np.arange(len(rows)) % 2)
        silos.append(replace(silo, splits={**silo.splits, "train": even}))
    engine = Local(from_silos(federation, silos), threads=1)
    options = pffl.Options(weighting="rows")
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.5), options=options)
    a = iterate(engine, problem, GroupWeighted(rounds=6, step_size=0.3))
    b = iterate(engine, problem, pffl.FedAvg(rounds=6, step_size=0.3))
    np.testing.assert_allclose(a.point.w, b.point.w, atol=1e-12)


def test_the_constraint_gives_the_groups_and_nothing_else():
    federation = make_federation(2)
    method = GroupWeighted(rounds=5)
    ws = [
        pffl.solve(federation, constraint, method=method, seed=0).w
        for constraint in (
            pffl.BoundedGroupLoss(0.5),
            pffl.BoundedGroupLoss(9.0),
            pffl.MinMax(),
        )
    ]
    np.testing.assert_array_equal(ws[0], ws[1])
    np.testing.assert_array_equal(ws[0], ws[2])


def test_average_and_last_iterate():
    _, _, engine, problem = setting()
    state, ws = (method := GroupWeighted(rounds=4, step_size=0.1)).init(problem), []
    while (question := method.question(problem, state)) is not None:
        state = method.step(problem, state, engine.ask(question))
        ws.append(state.w)
    np.testing.assert_array_equal(method.finish(problem, state).w, ws[-1])
    average = replace(method, iterate="average").finish(problem, state).w
    np.testing.assert_allclose(average, np.mean(ws, axis=0), atol=1e-15)


def test_groups_are_weighed_whatever_the_constraint():
    """Under a constraint on one label, and under none, it trains on all rows."""
    federation = make_federation(2)
    method = GroupWeighted(rounds=5)
    wanted = pffl.solve(federation, pffl.BoundedGroupLoss(0.5), method=method, seed=0)
    for constraint in (
        pffl.ConditionalBoundedGroupLoss(0.5, labels=(1,)),
        pffl.ConditionalBoundedGroupLoss(0.5),
        pffl.PerSilo(0.5),
        None,
    ):
        found = pffl.solve(federation, constraint, method=method, seed=0)
        np.testing.assert_allclose(found.w, wanted.w, atol=1e-12)


def test_it_refuses_one_group_and_bad_parameters():
    federation = make_federation(3)
    silos = []
    for silo in federation.silos:
        rows = silo.rows("train")
        alone = Rows.of(rows.X, rows.y, np.zeros(len(rows), dtype=int))
        silos.append(replace(silo, splits={**silo.splits, "train": alone}))
    engine = Reference(from_silos(federation, silos))
    with raises(UsageError, "too-few-groups"):
        GroupWeighted().init(make_problem(engine, None))
    with raises(UsageError, "wrong-value", "iterate"):
        GroupWeighted(iterate="best")
