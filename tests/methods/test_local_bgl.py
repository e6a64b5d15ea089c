"""Local BGL: Algorithm 1 with every silo's own bounds, and its saddle point."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.data import Rows
from pffl.engines import Local, Reference
from pffl.errors import UsageError
from pffl.methods.local_bgl import LocalBGL, own_cells
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

BOUNDS = {"f": 0.55, "m": 0.6}


def without_a_group(federation):
    """Leave silo 1 without group 1."""
    silos = list(federation.silos)
    rows = silos[1].rows("train")
    train = Rows.of(rows.X, rows.y, np.zeros_like(rows.group))
    silos[1] = replace(silos[1], splits={**silos[1].splits, "train": train})
    return from_silos(federation, silos)


def setting(kind="logistic", *, weighting="silos", engine=Local, budget=3.0, beta=0.8):
    cls, labels = MODELS[kind]
    shape = {"sizes": (60, 20, 90), "heterogeneity": 1.0}
    federation = without_a_group(make_federation(0, labels=labels, **shape))
    bounds = BOUNDS if labels == 2 else {"f": 0.9, "m": 1.0}
    oracle = Oracle.of(
        federation,
        group_masks(federation),
        list(bounds.values()),
        kind=kind,
        beta=beta,
        budget=budget,
        l2=0.02,
        weighting=weighting,
    )
    asker = engine(federation)
    problem = make_problem(
        asker,
        pffl.BoundedGroupLoss(bounds),
        model=cls(l2=0.02),
        beta=beta,
        budget=budget,
        options=pffl.Options(weighting=weighting),
    )
    return federation, oracle, asker, problem


def local_masks(federation, oracle):
    """Mark the rows of (k, z), with k and z, where there are any."""
    silo = federation.pooled("train").silo
    return [
        (k, z, (silo == k) & cell)
        for k in range(silo.max() + 1)
        for z, cell in enumerate(oracle.cells)
        if ((silo == k) & cell).any()
    ]


def naive(federation, oracle, *, dual_rounds, rounds, steps, eta, dual_eta):
    """One dictionary of θ per silo."""
    silo, cells = federation.pooled("train").silo, local_masks(federation, oracle)
    thetas = [{z: 0.0 for j, z, _ in cells if j == k} for k in range(silo.max() + 1)]
    w, ws, prices = np.zeros(oracle.classes * oracle.X.shape[1]), [], []
    p = [oracle.risk_weights[silo == k].sum() for k in range(len(thetas))]
    for _ in range(dual_rounds):
        lams = []
        for theta in thetas:
            below = 1 + sum(np.exp(v) for v in theta.values())
            lams.append(
                {z: oracle.budget * np.exp(v) / below for z, v in theta.items()}
            )
        for _ in range(rounds):
            losses, mean = oracle.losses(w), np.zeros_like(w)
            for k, lam in enumerate(lams):
                own = oracle.beta * (silo == k) / (silo == k).sum()
                for j, z, rows in cells:
                    if j == k:
                        own = own + lam[z] * rows / rows.sum()
                v = w.copy()
                for _ in range(steps):
                    slope = oracle.weighted_gradient(v, own)
                    v = v - eta * (slope + oracle.beta * oracle.l2 * v)
                mean += p[k] * v
            w = mean
            ws.append(w)
            prices.append(
                [
                    sum(p[k] * lam.get(z, 0.0) for k, lam in enumerate(lams))
                    for z in (0, 1)
                ]
            )
        for k, z, rows in cells:
            thetas[k][z] += dual_eta * (losses[rows].mean() - oracle.bounds[z])
    return np.array(ws), np.array(prices)


@pytest.mark.parametrize("engine", [Local, Reference])
@pytest.mark.parametrize("weighting", ["silos", "rows"])
@pytest.mark.parametrize("kind", list(MODELS))
def test_every_iterate_is_the_naive_loops(kind, weighting, engine):
    federation, oracle, asker, problem = setting(
        kind, weighting=weighting, engine=engine
    )
    ws, prices = naive(
        federation, oracle, dual_rounds=4, rounds=3, steps=2, eta=0.03, dual_eta=4.0
    )
    method = LocalBGL(
        dual_rounds=4,
        rounds_per_dual=3,
        local_steps=2,
        step_size=0.03,
        dual_step_size=4.0,
        iterate="average",
    )
    point = iterate(asker, problem, method).point
    np.testing.assert_allclose(point.w, ws.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(point.multipliers, prices.mean(axis=0), atol=1e-12)
    last = iterate(asker, problem, replace(method, iterate="last")).point
    np.testing.assert_allclose(last.w, ws[-1], atol=1e-12)


def test_with_one_silo_and_with_silos_alike_it_is_pffl():
    silo = make_federation(1, sizes=(70,)).silos[0]
    parameters = {
        "dual_rounds": 5,
        "rounds_per_dual": 4,
        "step_size": 0.1,
        "dual_step_size": 3.0,
    }
    found = []
    for copies in (1, 4):
        silos = [replace(silo, name=f"copy {k}") for k in range(copies)]
        engine = Local(from_silos(make_federation(1), silos), threads=1)
        problem = make_problem(engine, pffl.BoundedGroupLoss(0.5))
        found += [
            iterate(engine, problem, kind(**parameters)).point
            for kind in (LocalBGL, pffl.PFFL)
        ]
    for point in found[1:]:
        np.testing.assert_allclose(point.w, found[0].w, atol=1e-13)
        np.testing.assert_allclose(point.multipliers, found[0].multipliers, atol=1e-12)


def test_cells_are_those_with_rows_in_their_silo():
    _, _, _, problem = setting()
    cells = own_cells(problem)
    assert cells.names == (
        "site 0: f",
        "site 0: m",
        "site 1: f",
        "site 2: f",
        "site 2: m",
    )
    assert (problem.count(cells) > 0).all()
    np.testing.assert_array_equal(cells.bounds, [0.55, 0.6, 0.55, 0.55, 0.6])


def test_bounds_per_silo_are_local_already():
    engine = Local(make_federation(2), threads=1)
    problem = make_problem(engine, pffl.PerSilo(0.5))
    cells = own_cells(problem)
    np.testing.assert_array_equal(cells.silo, problem.cells.silo)
    np.testing.assert_array_equal(problem.count(cells), problem.counts)


def test_it_meets_local_bounds_that_the_global_method_leaves_broken():
    # The worst of (silo, group) is what local bounds are about.
    federation = make_federation(3, sizes=(150, 150, 150), heterogeneity=2.0)
    engine = Local(federation, threads=1)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.5), budget=20.0)
    masks = local_masks(
        federation, Oracle.of(federation, group_masks(federation), [0.5, 0.5])
    )
    worst = {}
    for method in (LocalBGL(dual_rounds=60), pffl.Exact()):
        w = iterate(engine, problem, method).point.w
        losses = Oracle.of(federation, [], []).losses(w)
        excess = [max(0.0, losses[rows].mean() - 0.5) for _, _, rows in masks]
        worst[method.name] = sum(
            max(e for e, (j, _, _) in zip(excess, masks, strict=True) if j == k)
            for k in range(3)
        )
    assert worst["local-bgl"] < worst["exact"]


def test_prices_stay_within_the_budget_and_solve_reports_them():
    federation = make_federation(4)
    method = LocalBGL(multiplier_bound=2.0, dual_rounds=10)
    solution = pffl.solve(federation, pffl.BoundedGroupLoss(0.3), method=method, seed=0)
    assert 0 < solution.multipliers.sum() <= 2.0 + 1e-12
    assert solution.gap >= 0
    assert solution.method["kind"] == "local-bgl"


def test_some_silos_at_a_time_move_only_their_own_prices():
    federation = make_federation(5, sizes=(40, 40, 40, 40))
    engine = Local(federation, threads=1)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.3))
    method = LocalBGL(
        participation=0.5, rounds_per_dual=1, step_size=0.1, dual_step_size=1.0
    )
    state = method.init(problem)
    question = method.question(problem, state)
    after = method.step(problem, state, engine.ask(question))
    moved = np.isin(after.cells.silo, question.silos)
    assert (after.theta[moved] > 0).all()
    np.testing.assert_array_equal(after.theta[~moved], 0.0)


def test_without_cells_it_is_fedavg():
    engine = Local(make_federation(6), threads=1)
    problem = make_problem(engine, None)
    a = iterate(engine, problem, LocalBGL(dual_rounds=2, iterate="last"))
    b = iterate(engine, problem, pffl.FedAvg(rounds=20))
    np.testing.assert_allclose(a.point.w, b.point.w, atol=1e-13)


def test_bad_parameters_are_refused():
    with pytest.raises(UsageError) as caught:
        LocalBGL(multiplier_bound=0.0, dual_rounds=0)
    assert "2 problems" in str(caught.value)
    with raises(UsageError, "wrong-value", "iterate"):
        LocalBGL(iterate="best")
