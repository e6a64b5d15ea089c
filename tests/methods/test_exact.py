"""Exact as a method: start, refusals, faults, certificates round by round."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.engines import Local, Reference
from pffl.flow import Start
from pffl.methods import Exact
from pffl.models import LogisticRegression
from pffl.prepare import Options
from pffl.problem import Point, lower_value
from tests.driving import expand, iterate
from tests.helpers import make_federation, make_problem, setting
from tests.inside import (
    candidate_multipliers,
    exact,
    lower_values,
    relevant_cells,
    saddle,
)
from tests.methods.biased import states as rounds_of


def states(engine, problem, method, start=None):
    """Return the state after every round."""
    begun = None if start is None else Start(start)
    return [one.state for one in rounds_of(engine, problem, method, begun)]


class Spoiling:
    """An engine whose totals are changed from some round on."""

    def __init__(self, engine, change, first=0):
        self.engine, self.change, self.first, self.asked = engine, change, first, 0

    def ask(self, query):
        self.asked += 1
        total = self.engine.ask(query)
        return total if self.asked <= self.first else self.change(total)


def outlying(seed=0):
    """Return separable rows with heavy tails, unscaled: full steps go much too far."""
    rng = np.random.default_rng(seed)
    federation = make_federation(seed, sizes=(60, 60), test=0)
    silos = []
    for silo in federation.silos:
        rows = silo.rows("train")
        X = rows.X * np.exp(rng.standard_t(2, size=(len(rows.y), 1)))
        y = (X @ np.array([1.0, -2.0, 0.5]) > 0.2).astype(float)
        silos.append(replace(silo, splits={"train": replace(rows, X=X, y=y)}))
    return replace(federation, silos=tuple(silos))


def test_convergence_is_at_least_quadratic():
    engine = Reference(make_federation(2, sizes=(80, 50, 70)))
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.55), budget=5.0)
    gaps = [s.gap for s in states(engine, problem, Exact(target_gap=1e-12))]
    late = [g for g in gaps if g < 0.1]
    for before, after in itertools.pairwise(late):
        assert after <= max(20 * before**2, 1e-12)


@pytest.mark.parametrize("l2", [0.0, 1e-3])
def test_a_bound_that_is_met_anyway_costs_nothing(l2):
    engine = Reference(make_federation(4))
    model = LogisticRegression(l2=l2)
    free = make_problem(engine, None, model=model)
    loose = make_problem(engine, pffl.BoundedGroupLoss(5.0), model=model)
    plain = iterate(engine, free, Exact()).point
    point = iterate(engine, loose, Exact()).point
    np.testing.assert_allclose(point.w, plain.w, atol=1e-5)
    np.testing.assert_array_equal(point.multipliers, 0.0)


def test_a_start_outside_the_multipliers_is_projected():
    # λ beyond Σλ ≤ B would "prove" a lower bound above the value.
    _, engine, problem, oracle, w, _ = setting(seed=8, budget=0.5)
    far = Point(w, np.full(problem.n_cells, 1e3))
    value, _ = oracle.saddle()
    for state in states(engine, problem, Exact(), far):
        assert state.lower <= value + 1e-7
        assert state.best.multipliers.sum() <= 0.5 * (1 + 1e-12)


def test_refused_steps_are_recovered_from():
    refused = 0
    for seed in range(4):
        engine = Reference(outlying(seed))
        model = LogisticRegression(l2=1e-6, standardize=False)
        problem = make_problem(engine, pffl.BoundedGroupLoss(0.2), model=model)
        found = states(engine, problem, Exact(max_rounds=100))
        assert found[-1].gap <= 1e-8  # inputs of 1e24: a decade of the gap a round
        refused += sum(state.refused > 0 for state in found)
    assert refused > 0


def test_numbers_that_are_not_finite_stop_the_run_at_the_best_pair():
    _, engine, problem, _, _, _ = setting(seed=12)

    def spoilt(total):
        return replace(total, gradients=np.nan * total.gradients)

    *_, before, after = states(Spoiling(engine, spoilt, 2), problem, Exact())
    assert after.round == 3
    assert after.stalled
    assert after.ending.best is before.best


def test_a_failing_qp_solver_slows_but_does_not_stop(monkeypatch):
    _, engine, problem, _, _, _ = setting(seed=13)
    monkeypatch.setattr(
        saddle.daqp, "solve", lambda *a, **k: (np.zeros(0), 0.0, -1, {})
    )
    found = states(engine, problem, Exact(max_rounds=12))
    assert found[-1].gap < 0.2 * found[0].gap


def test_hessians_of_no_convex_function_are_survived():
    _, engine, problem, _, _, _ = setting(seed=15)

    def spoilt(total):
        return replace(total, triangles=-total.triangles)

    found = states(Spoiling(engine, spoilt), problem, Exact(max_rounds=6))
    assert np.isfinite(found[-1].gap)


@pytest.mark.parametrize(("beta", "l2"), [(1.0, 1e-3), (1.0, 0.0), (0.0, 1e-3)])
def test_the_best_multipliers_are_the_best_of_a_grid(beta, l2):
    engine = Reference(make_federation(16))
    problem = make_problem(
        engine,
        pffl.BoundedGroupLoss(0.5),
        model=LogisticRegression(l2=l2),
        beta=beta,
        budget=2.0,
        options=Options(radius=3.0),
    )
    rng = np.random.default_rng(0)
    for _ in range(5):
        at = expand(engine, problem, 0.3 * rng.normal(size=4))
        found = candidate_multipliers(problem, at, np.full(2, 0.3))
        plain = [lower_value(at, lam, problem) for lam in found]
        np.testing.assert_allclose(lower_values(at, found, problem), plain, rtol=1e-12)
        best = max(plain)
        ticks = np.linspace(0.0, 2.0, 81)
        grid = [np.array([a, b]) for a in ticks for b in ticks if a + b <= 2.0]
        top = max(lower_value(at, lam, problem) for lam in grid)
        assert best >= top - 1e-3 * abs(top)


def test_of_many_cells_those_that_may_bind_are_weighed():
    """120 cells: the same saddle point as with all of them at once."""
    rng = np.random.default_rng(3)
    X, group = rng.normal(size=(3000, 4)), np.arange(3000) % 120
    y = (X @ [1.0, -0.5, 0.2, 0.0] + 0.03 * (group - 60) + rng.normal(size=3000)) > 0
    people = pffl.Federation.from_arrays(X, y, sensitive_features=group)
    engine = Reference(people)
    for bound in (0.3, 0.55):
        problem = make_problem(engine, pffl.BoundedGroupLoss(bound), budget=20.0)
        few = states(engine, problem, Exact())[-1]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pffl.methods.saddle_bounds.FEW_CELLS", 120)
            whole = states(engine, problem, Exact())[-1]
        assert all((few.closed, few.sure, whole.closed))
        assert few.upper == pytest.approx(whole.upper, abs=1e-8)
        assert few.lower == pytest.approx(whole.lower, abs=1e-8)
        assert (few.best.multipliers > 0).sum() < 40
    chosen = relevant_cells(np.linspace(-1.0, 1.0, 120), np.eye(120)[5])
    np.testing.assert_array_equal(chosen, [5, *range(100, 120)])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("l2", [0.0, 1e-5])
@pytest.mark.parametrize("bound", [0.55, 0.3, 5.0])
def test_estimated_hessians_end_at_the_same_saddle_point(monkeypatch, seed, l2, bound):
    federation = make_federation(seed, sizes=(400, 300, 500))
    if seed == 2:  # a few rows decide, and a sample misses them
        federation = outlying(seed)
    engine, model = Local(federation), LogisticRegression(l2=l2)
    problem = make_problem(engine, pffl.BoundedGroupLoss(bound), model=model)
    method = Exact(max_rounds=100)
    plain = states(engine, problem, method)[-1]
    monkeypatch.setattr(exact, "MIN_SAMPLED_WORK", 0.0)
    monkeypatch.setattr(exact, "SAMPLE", 2)
    found = states(engine, problem, method)
    assert found[0].rough
    end = found[-1].ending
    unit = 1e-6 * (1 + end.best.multipliers.sum())
    assert end.gap <= unit
    assert end.lower <= plain.ending.upper + 1e-12
    assert abs(end.upper - plain.ending.upper) <= unit
