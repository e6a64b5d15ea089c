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
from tests.driving import expand
from tests.helpers import (
    draw_multipliers,
    group_masks,
    make_federation,
    make_problem,
    setting,
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


def test_upper_value_is_the_largest_g_over_lambda():
    _, engine, problem, oracle, w, _ = setting(budget=3.0)
    at = expand(engine, problem, w)
    upper = upper_value(at.risk, at.violation, problem)
    assert upper == pytest.approx(oracle.upper(w), rel=1e-12)
    corners = [np.zeros(5), *(3.0 * np.eye(5))]
    largest = max(oracle.value(w, corner) for corner in corners)
    assert upper == pytest.approx(largest, rel=1e-12)


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
