"""G, its weights, and bounds on its saddle value, against an oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.engines import Reference
from pffl.preparation import Options
from pffl.problem import lower_value, upper_value, value
from pffl.questions import View
from tests.driving import expand
from tests.helpers import (
    draw_multipliers,
    group_masks,
    make_federation,
    make_problem,
    setting,
    train_question,
)
from tests.oracles import MODELS
from tests.saddle import Oracle

KINDS = list(MODELS)


@pytest.mark.parametrize("weighting", ["silos", "rows"])
@pytest.mark.parametrize("kind", KINDS)
def test_g_is_a_weighted_sum_of_losses(kind, weighting):
    # G = Σ c_i ℓ_i − λᵀζ + β(μ/2)‖w‖², docs/architecture.md.
    _, engine, problem, oracle, w, lam = setting(kind, weighting=weighting, beta=0.3)
    at = expand(engine, problem, w)
    g = value(at.risk, at.violation, lam, problem.risk_weight)
    by_rows = oracle.row_weights(lam) @ oracle.losses(w)
    expected = by_rows - lam @ oracle.bounds + 0.3 * oracle.l2 / 2 * w @ w
    assert g == pytest.approx(expected, rel=1e-12)
    assert g == pytest.approx(oracle.value(w, lam), rel=1e-12)


def test_the_weights_a_silo_uses_are_c_over_p():
    federation, engine, problem, oracle, w, lam = setting(beta=0.3, weighting="rows")
    question = train_question(problem, w, lam)
    shares = np.array([40, 7, 90]) / 137
    silo = federation.pooled("train").silo
    for k, view in enumerate(engine.views(question)):
        assert isinstance(view, View)
        np.testing.assert_allclose(
            question.row_weights(view),
            oracle.row_weights(lam)[silo == k] / shares[k],
            rtol=1e-12,
        )


def test_upper_value_is_the_largest_g_over_lambda():
    _, engine, problem, oracle, w, _ = setting(budget=3.0)
    at = expand(engine, problem, w)
    upper = upper_value(at.risk, at.violation, problem)
    assert upper == pytest.approx(oracle.upper(w), rel=1e-12)
    corners = [np.zeros(5), *(3.0 * np.eye(5))]
    largest = max(oracle.value(w, corner) for corner in corners)
    assert upper == pytest.approx(largest, rel=1e-12)


def test_upper_value_without_violation_is_the_risk():
    engine = Reference(make_federation(0))
    problem = make_problem(engine, pffl.BoundedGroupLoss(9.0), beta=2.0)
    at = expand(engine, problem, np.ones(4))
    assert (at.violation < 0).all()
    assert upper_value(at.risk, at.violation, problem) == 2.0 * at.risk


def drawn(seed, *, kind, beta, radius=None, l2=0.05):
    """Return a small problem, its oracle, an expansion at a random w, and λ."""
    cls, labels = MODELS[kind]
    rng = np.random.default_rng(seed)
    sizes = rng.integers(10, 40, size=3).tolist()
    federation = make_federation(seed, sizes=sizes, labels=labels)
    engine = Reference(federation)
    options = Options() if radius is None else Options(radius=radius)
    problem = make_problem(
        engine,
        pffl.BoundedGroupLoss(0.5),
        model=cls(l2=l2),
        beta=beta,
        budget=4.0,
        options=options,
    )
    oracle = Oracle.of(
        federation,
        group_masks(federation),
        [0.5, 0.5],
        kind=kind,
        beta=beta,
        budget=4.0,
        l2=l2,
    )
    w = rng.normal(size=problem.n_parameters)
    w *= rng.choice([0.01, 1.0, 10.0])
    if radius is not None:
        w *= radius * rng.random() / np.linalg.norm(w)
    return problem, oracle, expand(engine, problem, w), draw_multipliers(rng, problem)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(KINDS),
    beta=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_lower_value_holds_where_g_is_strongly_convex(seed, kind, beta):
    problem, oracle, at, lam = drawn(seed, kind=kind, beta=beta)
    assert problem.modulus == pytest.approx(beta * oracle.l2)
    lower = lower_value(at, lam, problem)
    least = oracle.least(lam)
    assert lower <= least + 1e-9 * max(1.0, abs(least))


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["logistic", "least-squares"]),
    case=st.sampled_from([(0.0, 0.05), (1.0, 0.0)]),
    radius=st.sampled_from([0.3, 2.0, 20.0]),
)
def test_lower_value_holds_over_the_ball(seed, kind, case, radius):
    beta, l2 = case
    problem, oracle, at, lam = drawn(seed, kind=kind, beta=beta, l2=l2, radius=radius)
    assert problem.modulus == 0
    lower = lower_value(at, lam, problem)
    assert lower <= oracle.least(lam, radius) + 1e-9
    # … also at random models, up to the boundary.
    rng = np.random.default_rng(seed)
    for _ in range(20):
        v = rng.normal(size=len(at.w))
        v *= radius * rng.random() ** 0.2 / np.linalg.norm(v)
        assert lower <= oracle.value(v, lam) + 1e-9


def test_lower_value_is_tight_at_the_minimum():
    # Least squares: one Newton step from anywhere is the minimum.
    _, engine, problem, oracle, w, lam = setting("least-squares")
    at = expand(engine, problem, w)
    hessian = at.risk_hessian + np.tensordot(lam, at.hessians, axes=1)
    gradient = at.risk_gradient + lam @ at.jacobian
    best = w - np.linalg.solve(hessian, gradient)
    lower = lower_value(expand(engine, problem, best), lam, problem)
    assert lower == pytest.approx(oracle.value(best, lam), rel=1e-10)
    assert lower == pytest.approx(oracle.least(lam), rel=1e-8)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(KINDS))
def test_g_is_convex_along_segments(seed, kind):
    rng = np.random.default_rng(seed)
    _, engine, problem, _, w, lam = setting(kind, seed=seed % 50)
    v = w + rng.normal(size=len(w)) * rng.choice([0.1, 10.0])
    t = rng.random()
    a, b, middle = (
        value(at.risk, at.violation, lam, problem.risk_weight)
        for at in (expand(engine, problem, u) for u in (w, v, (1 - t) * w + t * v))
    )
    convex = (1 - t) * a + t * b
    strong = problem.modulus / 2 * t * (1 - t) * float((v - w) @ (v - w))
    assert middle <= convex - strong + 1e-9 * max(1.0, abs(convex))


def test_other_bounds_leave_everything_else():
    _, _, problem, *_ = setting()
    moved = problem.with_bounds(np.arange(5.0))
    np.testing.assert_array_equal(moved.cells.bounds, np.arange(5.0))
    np.testing.assert_array_equal(problem.cells.bounds, [0.4, 0.4, 0.6, 0.6, 0.6])
    assert moved.task.model is problem.task.model
    assert moved.cells.membership is problem.cells.membership
