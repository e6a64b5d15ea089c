"""θ → λ and one step of θ."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pffl import dual


@given(
    theta=st.lists(st.sampled_from([-1e6, -800.0, 0.0, 1.0, 800.0, 1e6]), min_size=1),
    bound=st.floats(0.01, 1e4),
)
def test_multipliers_stay_on_the_simplex(theta, bound):
    lam = dual.multipliers(np.array(theta), bound)
    assert np.isfinite(lam).all()
    assert (lam >= 0).all()
    assert lam.sum() <= bound * (1 + 1e-12)


def test_multipliers_are_line_3_of_algorithm_1():
    theta = np.array([0.3, -1.2, 2.0])
    plain = [5.0 * np.exp(t) / (1 + np.exp(theta).sum()) for t in theta]
    np.testing.assert_allclose(dual.multipliers(theta, 5.0), plain, rtol=1e-14)


def test_ascend_raises_the_price_of_what_is_violated():
    theta, r = np.zeros(2), np.array([0.2, -0.1])
    after = dual.ascend(theta, r, 3.0)
    np.testing.assert_allclose(after, [0.6, -0.3], rtol=1e-15)
    lam = dual.multipliers(after, 1.0)
    assert lam[0] > dual.multipliers(theta, 1.0)[0] > lam[1]
    np.testing.assert_array_equal(theta, np.zeros(2))


def test_best_price_of_a_repeated_violation_is_the_whole_budget():
    theta, r = np.zeros(2), np.array([0.2, 0.1])
    for _ in range(2000):
        theta = dual.ascend(theta, r, 1.0)
    np.testing.assert_allclose(dual.multipliers(theta, 7.0), [7.0, 0.0], atol=1e-12)
