"""FedMinMax: descent and ascent by hand, PFFL's limit, and the minimax point."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import pffl
from pffl.engines import Local
from pffl.errors import UsageError
from pffl.methods.fedminmax import FedMinMax
from pffl.numerics import project_simplex
from tests.driving import iterate
from tests.helpers import (
    group_masks,
    make_federation,
    make_problem,
)
from tests.oracles import MODELS
from tests.raising import raises
from tests.saddle import Oracle


def nearest_on_simplex(v):
    """Project by bisection on the shift, not by sorting."""
    low, high = v.min() - 1, v.max()
    for _ in range(200):
        middle = (low + high) / 2
        above = np.maximum(v - middle, 0).sum() > 1
        low, high = (middle, high) if above else (low, middle)
    return np.maximum(v - high, 0)


def setting(kind="logistic", *, constraint=None, weighting="silos", seed=0):
    cls, labels = MODELS[kind]
    federation = make_federation(seed, sizes=(60, 8, 90), labels=labels)
    masks = group_masks(federation)
    oracle = Oracle.of(
        federation, masks, [0.0, 0.0], kind=kind, beta=0.0, budget=1.0, l2=0.02
    )
    engine = Local(federation, threads=1)
    problem = make_problem(
        engine,
        constraint or pffl.MinMax(),
        model=cls(l2=0.02),
        beta=0.0,
        budget=1.0,
        options=pffl.Options(weighting=weighting),
    )
    return federation, oracle, engine, problem


def naive(oracle, *, rounds, eta, eta_mu, ridge):
    w = np.zeros(oracle.classes * oracle.X.shape[1])
    sizes = oracle.cells.sum(axis=1)
    mu, ws, mus = sizes / sizes.sum(), [], []
    for _ in range(rounds):
        losses = oracle.violation(w)  # L: the bounds are 0
        slope = oracle.weighted_gradient(w, (mu / sizes) @ oracle.cells)
        w, before = w - eta * (slope + ridge * w), mu
        mu = nearest_on_simplex(mu + eta_mu * losses)
        ws.append(w)
        mus.append(before)
    return np.array(ws), np.array(mus), mu


@pytest.mark.parametrize("ridge", [0.0, 0.3, None])
@pytest.mark.parametrize("weighting", ["silos", "rows"])
@pytest.mark.parametrize("kind", list(MODELS))
def test_every_round_is_descent_and_projected_ascent(kind, weighting, ridge):
    _, oracle, engine, problem = setting(kind, weighting=weighting)
    decay = problem.mu if ridge is None else ridge
    ws, mus, last = naive(oracle, rounds=12, eta=0.1, eta_mu=0.7, ridge=decay)
    method = FedMinMax(rounds=12, step_size=0.1, dual_step_size=0.7, ridge=ridge)
    run = iterate(engine, problem, method)
    np.testing.assert_allclose(run.point.w, ws[-1], atol=1e-12)
    np.testing.assert_allclose(run.point.multipliers, last, atol=1e-12)
    mean = iterate(engine, problem, replace(method, iterate="average")).point
    np.testing.assert_allclose(mean.w, ws.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(mean.multipliers, mus.mean(axis=0), atol=1e-12)
    assert np.ptp(mus[:, 0]) > 0, "the weights moved"


@dataclass(frozen=True, kw_only=True)
class FromShares(pffl.PFFL):
    """PFFL whose prices start at the groups' shares of the rows and are projected."""

    def start(self, problem):
        return replace(super().start(problem), theta=problem.counts / len_rows(problem))

    def prices(self, problem, state):
        return state.theta

    def step(self, problem, state, total):
        after = super().step(problem, state, total)
        return replace(after, theta=project_simplex(after.theta))


def len_rows(problem):
    return problem.silo_counts.sum()


def test_it_is_pffl_without_risk_and_bounds_with_projection_for_softmax():
    _, _, engine, problem = setting()
    parameters = {"step_size": 0.2, "dual_step_size": 0.5, "local_steps": 1}
    ours = iterate(engine, problem, FedMinMax(rounds=15, ridge=0.0, **parameters))
    limit = FromShares(
        risk_weight=0.0,
        multiplier_bound=1.0,
        dual_rounds=15,
        rounds_per_dual=1,
        iterate="last",
        **parameters,
    )
    theirs = iterate(engine, problem, limit)
    np.testing.assert_allclose(ours.point.w, theirs.point.w, atol=1e-13)
    np.testing.assert_allclose(
        ours.point.multipliers, theirs.point.multipliers, atol=1e-13
    )


def test_the_gap_of_a_minimax_problem_closes_and_other_bounds_play_no_part():
    federation = make_federation(2, sizes=(80, 40))
    method = FedMinMax(rounds=500, ridge=0.0)
    minimax = pffl.solve(federation, pffl.MinMax(), method=method, seed=0)
    assert minimax.gap < 1e-6
    bounded = pffl.solve(federation, pffl.BoundedGroupLoss(0.5), method=method, seed=0)
    np.testing.assert_array_equal(bounded.w, minimax.w)
    np.testing.assert_array_equal(bounded.multipliers, [0.0, 0.0])
    assert bounded.train.worst_cell_loss == minimax.train.worst_cell_loss


def test_more_local_steps_and_fewer_silos_still_lower_the_worst_loss():
    federation = make_federation(3, sizes=(50, 60, 70, 40, 80), heterogeneity=0.2)
    engine = Local(federation, threads=1)
    problem = make_problem(engine, pffl.MinMax(), beta=0.0, budget=1.0)
    best = iterate(engine, problem, pffl.Exact()).point.w
    masks = group_masks(federation)
    oracle = Oracle.of(federation, masks, [0.0, 0.0], beta=0.0, budget=1.0)
    for parameters, slack in (
        ({"local_steps": 5, "rounds": 200}, 0.01),
        ({"participation": 0.4, "rounds": 600, "iterate": "average"}, 0.05),
    ):
        run = iterate(engine, problem, FedMinMax(ridge=0.0, **parameters))
        worst = oracle.violation(run.point.w).max()
        assert worst <= oracle.violation(best).max() + slack
        assert run.point.multipliers.sum() == pytest.approx(1.0)


def test_a_group_that_nobody_reports_keeps_its_standing():
    federation = make_federation(4, sizes=(30, 30))
    engine = Local(federation, threads=1)
    problem = make_problem(engine, pffl.PerSilo(0.0), beta=0.0, budget=1.0)
    method = FedMinMax(participation=0.5, step_size=0.1, dual_step_size=0.3)
    state = method.init(problem)
    after = method.step(problem, state, engine.ask(method.question(problem, state)))
    np.testing.assert_allclose(after.weights, state.weights, atol=1e-15)


def test_it_refuses_to_run_without_groups_and_with_bad_parameters():
    engine = Local(make_federation(5), threads=1)
    with raises(UsageError, "needs-constraint"):
        FedMinMax().init(make_problem(engine, None))
    with pytest.raises(UsageError) as caught:
        FedMinMax(rounds=0, ridge=-1.0, dual_step_size=0.0)
    assert "3 problems" in str(caught.value)
