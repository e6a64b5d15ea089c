"""Delicate primitives against closed forms, brute force and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.special import log_softmax as scipy_log_softmax

from pffl import numerics

coordinates = st.floats(-1e6, 1e6)
thetas = st.lists(coordinates, max_size=8).map(np.array)
bounds = st.floats(1e-3, 1e6)


@given(theta=thetas, total=bounds)
@example(theta=np.array([1e6, 1e6]), total=5.0)
@example(theta=np.array([-1e6, -1e6]), total=5.0)
@example(theta=np.array([800.0, -800.0]), total=5.0)
@example(theta=np.array([]), total=5.0)
def test_capped_softmax_stays_on_the_capped_simplex(theta, total):
    lam = numerics.capped_softmax(theta, total)
    assert lam.shape == theta.shape
    assert np.isfinite(lam).all()
    assert (lam >= 0).all()
    assert lam.sum() <= total * (1 + 1e-12)
    if max(theta, default=0.0) >= 50:
        assert lam.sum() == pytest.approx(total)


@pytest.mark.parametrize("seed", range(3))
def test_projections_solve_their_quadratic_programs(seed):
    v = np.random.default_rng(seed).normal(size=6) * 3
    cp = pytest.importorskip("cvxpy")
    x = cp.Variable(6, nonneg=True)
    distance = cp.Minimize(cp.sum_squares(x - v))
    cp.Problem(distance, [cp.sum(x) == 2]).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(numerics.project_simplex(v, 2.0), x.value, atol=1e-4)
    cp.Problem(distance, [cp.sum(x) <= 2]).solve(solver=cp.CLARABEL)
    capped = numerics.project_capped_simplex(v, 2.0)
    np.testing.assert_allclose(capped, x.value, atol=1e-4)


MARGINS = np.array([0.0, 1e-8, 1.0, 36.0, 40.0, 700.0, 745.0, 1e4])


def test_logistic_losses_keep_their_digits_at_every_margin():
    # With margin m = ±z on the right side the loss is log1p(e^−m), never 0 − noise.
    right = [math.log1p(math.exp(-m)) for m in MARGINS]
    wrong = [m + math.log1p(math.exp(-m)) for m in MARGINS]
    one, nought = np.ones_like(MARGINS), np.zeros_like(MARGINS)
    for z, y, expected in [
        (MARGINS, one, right),
        (-MARGINS, nought, right),
        (MARGINS, nought, wrong),
        (-MARGINS, one, wrong),
    ]:
        losses = numerics.logistic_losses(z, y)
        np.testing.assert_allclose(losses, expected, rtol=1e-14, atol=0)


@given(z=st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=5).map(np.array))
def test_sigmoid_agrees_with_scipy(z):
    np.testing.assert_allclose(numerics.sigmoid(z), expit(z), rtol=1e-14, atol=1e-300)


@given(
    z=st.lists(st.tuples(*[st.floats(-1e4, 1e4)] * 3), min_size=1, max_size=4).map(
        np.array
    )
)
def test_log_softmax_agrees_with_scipy(z):
    found = numerics.log_softmax(z)
    np.testing.assert_allclose(found, scipy_log_softmax(z, axis=1), atol=1e-11)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0, rtol=1e-12)
