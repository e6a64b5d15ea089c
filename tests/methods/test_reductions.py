"""Algorithm 2 of Agarwal et al. against the same loop on pooled rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import pffl
from pffl.engines import Local, Reference
from pffl.errors import UsageError
from pffl.methods.reductions import Reductions
from tests.driving import iterate, measure
from tests.helpers import (
    group_masks,
    make_federation,
    make_problem,
)
from tests.oracles import MODELS
from tests.saddle import Oracle


def naive(oracle, *, iterations, eta):
    """Run it on rows with weights (1 + λ_a/p_a)/m, p_a = m_a/m, and scipy's oracle."""
    m, sizes = len(oracle.X), oracle.cells.sum(axis=1)
    theta, hs, lams = np.zeros(len(sizes)), [], []
    for _ in range(iterations):
        lam = oracle.budget * np.exp(theta) / (1 + np.exp(theta).sum())
        rows = (1 + (lam / (sizes / m)) @ oracle.cells) / m

        def cost(w, rows=rows):
            return rows @ oracle.losses(w) + oracle.l2 / 2 * w @ w

        def slope(w, rows=rows):
            return oracle.weighted_gradient(w, rows) + oracle.l2 * w

        start = np.zeros(oracle.classes * oracle.X.shape[1])
        h = minimize(cost, start, jac=slope, method="BFGS", options={"gtol": 1e-9}).x
        hs.append(h)
        lams.append(lam)
        theta = theta + eta * oracle.violation(h)
    return np.array(hs), np.array(lams)


def setting(kind="logistic", bounds=(0.55, 0.62), *, budget=4.0, weighting="rows"):
    cls, labels = MODELS[kind]
    federation = make_federation(0, sizes=(60, 15, 90), labels=labels)
    oracle = Oracle.of(
        federation,
        group_masks(federation),
        bounds,
        kind=kind,
        l2=0.02,
        budget=budget,
        weighting=weighting,
    )
    engine = Local(federation, threads=1)
    problem = make_problem(
        engine,
        pffl.BoundedGroupLoss(dict(zip(("f", "m"), bounds, strict=True))),
        model=cls(l2=0.02),
        budget=budget,
        options=pffl.Options(weighting=weighting),
    )
    return federation, oracle, engine, problem


@pytest.mark.parametrize("kind", list(MODELS))
def test_on_totals_it_is_the_algorithm_on_pooled_rows(kind):
    bounds = (0.55, 0.62) if kind == "logistic" else (0.9, 1.0)
    _, oracle, engine, problem = setting(kind, bounds)
    hs, lams = naive(oracle, iterations=4, eta=3.0)
    method = Reductions(iterations=4, dual_step_size=3.0, target_gap=1e-12)
    run = iterate(engine, problem, method)
    np.testing.assert_allclose(run.point.w, hs.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(run.point.multipliers, lams.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("weighting", ["silos", "rows"])
@pytest.mark.parametrize("bounds", [(0.9, 0.9), (0.66, 0.645), (0.55, 0.62)])
def test_it_reaches_the_saddle_point(bounds, weighting):
    _, oracle, engine, problem = setting(bounds=bounds, weighting=weighting)
    run = iterate(engine, problem, Reductions(iterations=1000, target_gap=6e-4))
    best = oracle.saddle()[0]
    # The oracle, of another kind, is itself only near the saddle.
    assert best - 1e-8 <= oracle.upper(run.point.w) <= best + 3e-3


def test_its_gap_is_never_below_the_true_one_nor_far_above():
    _, _, engine, problem = setting()
    method = Reductions(target_gap=1e-3)
    state = method.init(problem)
    while (question := method.question(problem, state)) is not None:
        state = method.step(problem, state, engine.ask(question))
    true = measure(engine, problem, method.finish(problem, state)).gap
    assert true <= state.gap <= 1e-2


def test_the_mean_model_loses_no_more_than_the_mixture():
    _, oracle, engine, problem = setting()
    method = Reductions(iterations=10, target_gap=1e-9)
    state = method.init(problem)
    while (question := method.question(problem, state)) is not None:
        state = method.step(problem, state, engine.ask(question))
    w = method.finish(problem, state).w
    assert (oracle.violation(w) <= state.violation_sum / 10 + 1e-12).all()
    assert oracle.risk(w) <= state.risk_sum / 10 + 1e-12


def test_loose_bounds_leave_the_pooled_fit():
    federation, _, engine, problem = setting(bounds=(5.0, 5.0))
    run = iterate(engine, problem, Reductions(iterations=200, target_gap=1e-5))
    free = Oracle.of(federation, [], [], l2=0.02, weighting="rows").saddle()[1]
    np.testing.assert_allclose(run.point.w, free, atol=0.02)
    assert run.point.multipliers.sum() < 0.1


def test_without_cells_one_best_response_is_the_answer():
    federation = make_federation(1)
    engine = Reference(federation)
    problem = make_problem(engine, None, model=pffl.LogisticRegression(l2=0.05))
    run = iterate(engine, problem, Reductions())
    optimum = Oracle.of(federation, [], [], l2=0.05)
    assert run.rounds < 12
    assert np.linalg.norm(optimum.gradient(run.point.w, np.zeros(0))) < 1e-8


def test_solve_reports_it_and_the_minimax_constraint_is_obeyed():
    federation = make_federation(2)
    method = Reductions(iterations=300)
    solution = pffl.solve(federation, pffl.MinMax(), method=method, seed=0)
    exact = pffl.solve(federation, pffl.MinMax(), method=pffl.Exact(), seed=0)
    assert solution.train.worst_cell_loss <= exact.train.worst_cell_loss + 2e-3
    assert solution.gap < 5e-3


def test_bad_parameters_are_refused():
    with pytest.raises(UsageError) as caught:
        Reductions(multiplier_bound=-1.0, iterations=0)
    assert "2 problems" in str(caught.value)


def test_a_response_begins_with_what_is_known_of_the_one_before():
    """Each w is asked about once, however many responses it is."""
    federation = make_federation(sizes=(200, 150, 250), test=60)
    found = pffl.solve(federation, pffl.BoundedGroupLoss(0.7), method=Reductions())
    asked = found.evidence.training.questions
    assert asked["asked"] == asked["distinct"] < 100
