"""Faults 30, 35–37 and 39: numbers that are too large, too small or too short."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.engines import Local, Reference
from pffl.methods import PFFL, FedAvg
from pffl.queries import Evaluate, Expand
from tests.driving import iterate
from tests.helpers import (
    from_silos,
    make_federation,
    make_problem,
    repartition,
    train_query,
)
from tests.oracles import MODELS

TOO_LARGE = [
    PFFL(step_size=1e4, dual_rounds=5),
    PFFL(step_size=1e4, dual_rounds=5, iterate="last"),
    PFFL(step_size=1e4, dual_rounds=5, iterate="best"),
    FedAvg(step_size=1e4),
]


@pytest.mark.parametrize("labels", [0, 2])
@pytest.mark.parametrize("method", TOO_LARGE)
def test_fault_30_step_size_too_large_is_noticed(method, labels):
    """And the last good model is kept."""
    federation = make_federation(0, labels=labels)
    solution = pffl.solve(
        federation, pffl.BoundedGroupLoss(0.7), method=method, random_state=0
    )
    assert (solution.status, solution.exit_code) == ("diverged", 4)
    assert solution.rounds <= 5
    assert np.isfinite(solution.w).all()
    assert np.isfinite(solution.multipliers).all()
    assert np.isfinite(solution.history["upper"]).all()
    assert solution.train.risk <= 10 * solution.history["risk"].iloc[0]


@pytest.mark.parametrize("iterate", ["average", "last", "best"])
def test_fault_30_non_finite_updates_never_enter_the_model(iterate):
    # 500 local steps that each multiply the error overflow within one round.
    method = PFFL(step_size=50.0, local_steps=500, dual_rounds=5, iterate=iterate)
    federation, bound = make_federation(0, labels=0), pffl.BoundedGroupLoss(0.7)
    solution = pffl.solve(federation, bound, method=method, random_state=0)
    assert solution.status == "diverged"
    assert np.isfinite(solution.w).all()
    assert np.isfinite(solution.train.risk)


@pytest.mark.parametrize("engine_type", [Local, Reference])
@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_fault_36_margins_of_ten_thousand(kind, engine_type):
    cls, labels = MODELS[kind]
    federation = make_federation(0, labels=labels)
    engine = engine_type(federation)
    problem = make_problem(
        engine, pffl.BoundedGroupLoss(0.5), model=cls(standardize=False)
    )
    w = 1e4 * np.random.default_rng(0).normal(size=problem.n_parameters)
    lam = np.ones(2)
    for steps in ([0.1], [0.1, 0.1]):
        total = engine.ask(train_query(problem, w, lam, steps=steps))
        assert np.isfinite(total.update).all()
        assert np.isfinite(total.risk)
        assert total.risk > 1e3
        assert np.isfinite(total.cell_losses).all()
    at = engine.ask(Expand(problem.task, w, 2))
    assert np.isfinite(at.hessians).all()
    evaluated = engine.ask(Evaluate(problem.task, w, "test", loss_bound=4.0))
    assert np.isfinite(evaluated.strata).all()
    assert (evaluated.column("bounded_loss") <= 4 * evaluated.column("count")).all()


def assert_same_runs(one, other, method, **options):
    """Compare G, r and λ of all rounds to 1e-12."""
    runs = []
    for data in (one, other):
        engine = Local(data, threads=1)
        problem = make_problem(engine, pffl.BoundedGroupLoss(0.6), **options)
        runs.append(iterate(engine, problem, method))
    a, b = runs
    for x, y in zip(a.history, b.history, strict=True):
        assert x.risk == pytest.approx(y.risk, abs=1e-12)
        assert x.upper == pytest.approx(y.upper, abs=1e-11)
        np.testing.assert_allclose(x.violation, y.violation, rtol=0, atol=1e-12)
        np.testing.assert_allclose(x.multipliers, y.multipliers, rtol=0, atol=1e-11)
    np.testing.assert_allclose(a.point.w, b.point.w, rtol=0, atol=1e-12)


SHORT = {"dual_rounds": 6, "rounds_per_dual": 3, "dual_step_size": 3.0}


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6))
def test_fault_39_order_of_silos(seed):
    federation = make_federation(seed, sizes=(30, 45, 20, 60))
    order = np.random.default_rng(seed).permutation(4)
    shuffled = from_silos(federation, [federation.silos[k] for k in order])
    method = PFFL(**SHORT, local_steps=4, step_size=0.1)
    assert_same_runs(federation, shuffled, method)


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), parts=st.integers(1, 12))
def test_fault_39_silos_split_or_merged(seed, parts):
    # With one local step a run depends on sums over all rows only: with p_k = m_k/m it
    # cannot tell how the rows are shared out.
    federation = make_federation(seed, sizes=(30, 45, 25))
    places = np.random.default_rng(seed).integers(parts, size=100)
    method = PFFL(**SHORT, local_steps=1, step_size=0.2)
    by_rows = pffl.Options(weighting="rows")
    assert_same_runs(
        federation, repartition(federation, places), method, options=by_rows
    )
