"""G, its weights, and bounds on its saddle value, against an oracle."""

from __future__ import annotations

import numpy as np
import pytest

from pffl.problem import lower_value, value
from tests.driving import expand
from tests.helpers import setting
from tests.oracles import MODELS

KINDS = list(MODELS)


@pytest.mark.parametrize("weighting", ["silos", "rows"])
@pytest.mark.parametrize("kind", KINDS)
def test_g_is_a_weighted_sum_of_losses(kind, weighting):
    # G = Σ c_i ℓ_i − λᵀζ + β(μ/2)‖w‖², CONTRIBUTING.md.
    _, engine, problem, oracle, w, lam = setting(kind, weighting=weighting, beta=0.3)
    at = expand(engine, problem, w)
    g = value(at.risk, at.violation, lam, problem.risk_weight)
    by_rows = oracle.row_weights(lam) @ oracle.losses(w)
    expected = by_rows - lam @ oracle.bounds + 0.3 * oracle.l2 / 2 * w @ w
    assert g == pytest.approx(expected, rel=1e-12)
    assert g == pytest.approx(oracle.value(w, lam), rel=1e-12)


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
