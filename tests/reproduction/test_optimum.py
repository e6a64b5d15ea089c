"""Optima of baselines: against loops over rows and minimisers that know no prices."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize

import pffl
from pffl import methods
from pffl.driver import drive
from pffl.flow import ask
from pffl.queries import Expand
from reproduction import optimum
from reproduction.bench import L2, Bench
from tests.inside import SiloBounds

FINE = {"xatol": 1e-9, "fatol": 1e-13, "maxfev": 1_500}
BOUND = 0.5


@pytest.fixture(scope="module")
def bench():
    federation = pffl.datasets.synthetic(
        400, silos=3, features=3, random_state=0, validation_fraction=0.2
    )
    return Bench(federation, 0)


@pytest.fixture(autouse=True)
def fine(monkeypatch):
    """Local bounds solved ten times as finely as in a study."""
    monkeypatch.setattr(optimum, "CLOSE", 1e-5)


def problem_of(bench, method):
    return bench.priced("bgl", L2, BOUND, method.multiplier_bound)


def losses(federation, w):
    """Each silo's groups and losses, row by row, inputs in units of all rows."""
    every = np.vstack([silo.rows().X for silo in federation.silos])
    for silo in federation.silos:
        rows = silo.rows()
        scores = (rows.X - every.mean(axis=0)) / every.std(axis=0) @ w[:-1] + w[-1]
        yield rows.group, np.logaddexp(0.0, np.where(rows.y == 1, -scores, scores))


def fedavg_value(federation, problem, w):
    mean = np.mean([own.mean() for _, own in losses(federation, w)])
    return mean + problem.mu / 2 * (w @ w)


def weighted_value(federation, problem, w):
    groups, own = map(np.concatenate, zip(*losses(federation, w), strict=True))
    means = [own[groups == a].mean() for a in np.unique(groups)]
    return np.mean(means) + problem.mu / 2 * (w @ w)


def local_value(federation, problem, w):
    """βF + B Σ_k p_k max(0, max_a r_{k,a})."""
    total, share = fedavg_value(federation, problem, w), 1 / len(federation.silos)
    for groups, own in losses(federation, w):
        means = np.array([own[groups == a].mean() for a in np.unique(groups)])
        worst = max(0.0, float((means - 0.5).max()))
        total += share * problem.multiplier_bound * worst
    return total


@pytest.mark.parametrize(
    ("method", "value"),
    [
        (methods.FedAvg(), fedavg_value),
        (methods.GroupWeighted(), weighted_value),
        (methods.LocalBGL(multiplier_bound=0.1), local_value),
        (methods.LocalBGL(multiplier_bound=5.0), local_value),
        (methods.LocalBGL(multiplier_bound=200.0), local_value),
    ],
    ids=["fedavg", "weighted", "local 0.1", "local 5", "local 200"],
)
def test_no_other_model_is_better_than_the_gap_says(bench, method, value):
    problem = problem_of(bench, method)
    run = drive(bench.engine, optimum.solved(problem, method))
    of = partial(value, bench.federation, problem)
    w, (upper, lower, *_) = run.point.w, run.bounds
    assert upper == pytest.approx(of(w), rel=1e-9)
    assert 0 < (upper - lower) / (1.0 + problem.multiplier_bound) < 2e-5
    # From there, and from a training that is far from done.
    rough = bench.trained("bgl", [type(method).within(30)], BOUND)[0].run.point.w
    assert of(rough) > of(w)
    for start in (w, rough):
        best = minimize(of, start, method="Nelder-Mead", options=FINE)
        assert best.fun >= lower - 1e-12
    warm = drive(bench.engine, optimum.solved(problem, method, rough))
    assert of(warm.point.w) == pytest.approx(of(w), abs=2e-5 * 201)


def test_the_smoothed_objective_has_the_gradient_and_hessian_that_differences_have(
    bench,
):
    """And its prices are prices: no silo pays more than B p_k in all."""
    problem = problem_of(bench, methods.LocalBGL(multiplier_bound=5.0))
    cells, tau = SiloBounds(problem).cells, 0.01
    task = problem.over(cells).task

    def at(w):
        total = drive(bench.engine, ask(Expand(task, w, 2)))
        return optimum.smoothed(problem, cells, w, total, tau)

    w, h = np.array([0.2, -0.1, 0.3, 0.05]), 1e-5
    here = at(w)
    for i, step in enumerate(h * np.eye(len(w))):
        above, below = at(w + step), at(w - step)
        slope = (above.value - below.value) / (2 * h)
        assert here.gradient[i] == pytest.approx(slope, rel=1e-6)
        bend = (above.gradient - below.gradient) / (2 * h)
        np.testing.assert_allclose(here.hessian[i], bend, rtol=1e-4, atol=1e-6)
    paid = np.bincount(cells.silo, here.lam)
    limit = problem.multiplier_bound * problem.task.shares
    assert (here.lam > 0).all()
    assert (paid < limit).all()
    assert here.value > here.upper - tau * 10  # P, smoothed
