"""The account of people who are drawn: against dp-accounting, Rényi, and draws."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant

from pffl.errors import MissingExtraError, UsageError
from pffl.evidence.verify import drawn_delta
from pffl.privacy import subsampled
from pffl.privacy.accounting import mu_of
from pffl.privacy.subsampled import Draws, epsilon_of, noise_of


def cases(many: int, seed: int = 0):
    random = np.random.default_rng(seed)
    for _ in range(many):
        draws = Draws(
            float(random.uniform(0.01, 0.6)),
            int(random.integers(1, 300)),
            float(random.uniform(0.8, 8.0)),
        )
        yield float(random.uniform(0, 0.5)), draws, float(10 ** -random.uniform(3, 7))


def by_hand(mu: float, draws: Draws, delta: float, *, pessimistic: bool) -> float:
    """Compose distributions one by one, on a finer grid, without the accountant."""
    one = pld.from_gaussian_mechanism(
        draws.noise,
        pessimistic_estimate=pessimistic,
        value_discretization_interval=2e-4,
        use_connect_dots=pessimistic,
        sampling_prob=draws.rate,
    )
    whole = one.self_compose(draws.times)
    if mu > 0:
        rest = pld.from_gaussian_mechanism(
            1 / mu,
            pessimistic_estimate=pessimistic,
            value_discretization_interval=2e-4,
            use_connect_dots=pessimistic,
        )
        whole = whole.compose(rest)
    return float(whole.get_epsilon_for_delta(delta))


def test_between_what_is_surely_too_small_and_what_is_surely_too_large():
    """Never below an optimistic composition, never above Rényi's bound."""
    for mu, draws, delta in cases(6):
        found = epsilon_of(mu, draws, delta)
        assert found == pytest.approx(
            by_hand(mu, draws, delta, pessimistic=True), rel=1e-3, abs=1e-4
        )
        assert found >= by_hand(mu, draws, delta, pessimistic=False)
        account = RdpAccountant()
        event = dp_event.GaussianDpEvent(draws.noise)
        account.compose(dp_event.PoissonSampledDpEvent(draws.rate, event), draws.times)
        if mu:
            account.compose(dp_event.GaussianDpEvent(1 / mu))
        assert found <= account.get_epsilon(delta) * (1 + 1e-9)


def test_verification_composes_it_alike():
    """`verify` has another composition, of its own: δ at our ε is δ."""
    for mu, draws, delta in cases(6, seed=1):
        epsilon = epsilon_of(mu, draws, delta)
        found = drawn_delta(mu, draws.rate, draws.noise, draws.times, epsilon)
        assert found == pytest.approx(delta, rel=1e-4)


def test_against_draws_of_privacy_losses():
    """δ(ε) is the mean of (1 − e^(ε − loss))⁺ over draws of the worst pair."""
    random, many = np.random.default_rng(0), 200_000
    rate, noise, times, mu, epsilon = 0.2, 1.1, 12, 0.4, 1.2
    total = random.normal(mu**2 / 2, mu, many)
    for _ in range(times):
        there = random.random(many) < rate
        x = random.normal(0, noise, many) + there
        total += np.log1p(rate * np.expm1((2 * x - 1) / (2 * noise**2)))
    values = np.maximum(0.0, -np.expm1(epsilon - total))
    low = values.mean() - 4 * values.std() / math.sqrt(many)
    high = values.mean() + 4 * values.std() / math.sqrt(many)
    found = drawn_delta(mu, rate, noise, times, epsilon)
    assert low <= found <= high
    draws = Draws(rate, times, noise)
    assert epsilon_of(mu, draws, found) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_noise_is_enough_and_not_much_more(epsilon):
    mu = mu_of(epsilon, 1e-6) * math.sqrt(0.3)
    noise = noise_of(epsilon, 1e-6, mu, 0.1, 100)
    assert epsilon_of(mu, Draws(0.1, 100, noise), 1e-6) <= epsilon
    assert epsilon_of(mu, Draws(0.1, 100, 0.998 * noise), 1e-6) > epsilon
    # Half of the noise is far above what is claimed, by verify's own account.
    assert drawn_delta(mu, 0.1, noise / 2, 100, epsilon) > 1e-5


def test_to_be_drawn_less_often_costs_less():
    found = [epsilon_of(0.1, Draws(q, 50, 1.5), 1e-6) for q in (0.02, 0.1, 0.5)]
    assert found == sorted(found)
    plain = math.sqrt(0.1**2 + 50 / 1.5**2)
    assert found[-1] < epsilon_of(plain, Draws(0.5, 1, 1e3), 1e-6)


def test_refusals(monkeypatch):
    with pytest.raises(UsageError, match="spent by the plain releases"):
        noise_of(1.0, 1e-6, 2 * mu_of(1.0, 1e-6), 0.1, 10)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    subsampled._composed.cache_clear()
    with pytest.raises(MissingExtraError, match=r"pffl\[privacy\]"):
        epsilon_of(0.123, Draws(0.1, 7, 1.7), 1e-6)
