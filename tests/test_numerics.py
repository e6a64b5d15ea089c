"""Delicate primitives against closed forms, brute force and scipy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import expit, logsumexp
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


@given(theta=thetas.filter(len), total=bounds)
def test_capped_softmax_is_its_formula_in_logarithms(theta, total):
    log_normaliser = logsumexp(np.append(theta, 0.0))
    expected = total * np.exp(theta - log_normaliser)
    # θ = 1e6 is known to 1e-10 only, and so is its exponential.
    np.testing.assert_allclose(
        numerics.capped_softmax(theta, total), expected, rtol=1e-9, atol=1e-300
    )


def nearest_by_supports(v: np.ndarray, total: float) -> np.ndarray:
    """Project on the simplex by trying every set of positive coordinates."""
    best, distance = None, np.inf
    for size in range(1, len(v) + 1):
        for chosen in map(list, itertools.combinations(range(len(v)), size)):
            x = np.zeros(len(v))
            x[chosen] = v[chosen] + (total - v[chosen].sum()) / size
            if (x >= 0).all() and np.linalg.norm(x - v) < distance:
                best, distance = x, np.linalg.norm(x - v)
    assert best is not None
    return best


@settings(max_examples=60)
@given(
    v=st.lists(st.floats(-10, 10), min_size=1, max_size=5).map(np.array),
    total=st.floats(0.1, 20),
)
def test_simplex_projection_is_the_nearest_point(v, total):
    projected = numerics.project_simplex(v, total)
    np.testing.assert_allclose(projected, nearest_by_supports(v, total), atol=1e-9)
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(total, rel=1e-12)


@settings(max_examples=60)
@given(
    v=st.lists(st.floats(-10, 10), min_size=1, max_size=5).map(np.array),
    total=st.floats(0.1, 20),
)
def test_capped_projection_is_the_nearest_point(v, total):
    inside = np.maximum(v, 0)
    if inside.sum() > total:
        inside = nearest_by_supports(v, total)
    projected = numerics.project_capped_simplex(v, total)
    np.testing.assert_allclose(projected, inside, atol=1e-9)


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


@given(z=st.floats(-1e4, 1e4), y=st.sampled_from([0.0, 1.0]))
def test_logistic_losses_and_slopes_agree_with_scipy(z, y):
    scores, labels = np.array([z]), np.array([y])
    losses, slopes = numerics.logistic_losses_and_slopes(scores, labels)
    truth = np.logaddexp(0.0, -z if y else z)
    np.testing.assert_allclose(losses, truth, rtol=1e-14, atol=1e-15 * (1 + abs(z)))
    np.testing.assert_allclose(slopes, expit(z) - y, rtol=0, atol=1e-15)
    assert (losses >= 0).all()
    assert scores[0] == z, "the scores must not be written to"


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
