"""The account against dp-accounting's PLD, and against plain integration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from tests.oracles import (
    UsageError,
    composed,
    delta_of,
    epsilon_of,
    mu_of,
)


def plainly(mus: list[float], epsilon: float) -> float:
    """δ(ε) by the definition: ∫ max(0, p − e^ε q), after composing privacy losses.

    The loss of each release is N(μ²/2, μ²) under p; their sum is integrated.
    """
    mean = sum(m * m for m in mus) / 2
    loss = norm(mean, math.sqrt(2 * mean))
    found, _ = quad(
        lambda x: -math.expm1(epsilon - x) * loss.pdf(x),
        epsilon,
        max(epsilon, mean) + 40 * math.sqrt(2 * mean),
        points=[max(epsilon, mean)],
        limit=500,
        epsabs=0,
        epsrel=1e-11,
    )
    return float(found)


def test_delta_by_integration():
    random = np.random.default_rng(0)
    for _ in range(100):
        mus = random.uniform(0.01, 1.5, random.integers(1, 40)).tolist()
        mu = composed(mus)
        epsilon = epsilon_of(mu, float(10.0 ** -random.uniform(2, 9)))
        expected = plainly(mus, epsilon)
        assert delta_of(mu, epsilon) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("compositions", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_equals_dp_accounting(compositions):
    """Random compositions, to 1e-6: the oracle discretises privacy losses."""
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import privacy_loss_distribution as pld

    random = np.random.default_rng(1)
    for _ in range(compositions):
        many = int(random.integers(1, 8))
        mus = random.uniform(0.05, 0.5, many)
        delta = float(10.0 ** -random.uniform(3, 7))
        whole = None
        for mu in mus:
            # 1e-4 and pessimistic: above by less than 1e-6 of ε, never below.
            one = pld.from_gaussian_mechanism(
                1 / mu, value_discretization_interval=1e-4, use_connect_dots=True
            )
            whole = one if whole is None else whole.compose(one)
        assert whole is not None
        expected = whole.get_epsilon_for_delta(delta)
        assert epsilon_of(composed(mus), delta) == pytest.approx(expected, abs=1e-6)


@given(st.floats(0.01, 50), st.floats(1e-12, 0.4))
def test_inverses(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-6, abs=1e-9)
    assert delta_of(mu, epsilon) <= delta * (1 + 1e-9)


def test_more_noise_is_more_private():
    mus = np.linspace(0.05, 3, 30)
    epsilons = [epsilon_of(mu, 1e-6) for mu in mus]
    assert (np.diff(epsilons) > 0).all()
    assert epsilon_of(0.0, 1e-6) == 0.0
    assert delta_of(0.0, 1.0) == 0.0


def test_wrong_numbers():
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(UsageError):
            delta_of(bad, 1.0)
    with pytest.raises(UsageError):
        mu_of(0.0, 1e-6)
    with pytest.raises(UsageError):
        epsilon_of(1.0, 0.0)
