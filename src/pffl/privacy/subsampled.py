"""The account where people are drawn: subsampled Gaussian releases beside plain ones.

A round that asks a secret sample, each person drawn with probability q by a throw of
their own (Poisson), and adds noise of σ = m·Δ to what they add, tells less of a person
than one that asks all. How much less has no closed form: the distribution of its
privacy loss is composed numerically, by dp-accounting, rounded so that ε is never too
small; plain Gaussian releases, μ-GDP together, are composed with it.

Who was drawn must stay secret, and is drawn anew in every round.

Reference: Abadi et al., *Deep learning with differential privacy*, CCS 2016; Koskela,
Jälkö and Honkela, AISTATS 2020; Doroshenko et al., *Connect the dots*, PoPETs 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from pffl.bounds.checks import nonnegative, positive, probability
from pffl.errors import MissingExtraError, UsageError
from pffl.privacy.accounting import mu_of

STEP = 1e-3  # of privacy losses: what it adds to ε is below 1e-3
NARROW = 1e-3  # relative: as near as noise is found to what is needed, from above
MOST_NOISE = 1e6  # times what a person adds: beyond, nothing would be learnt


@dataclass(frozen=True)
class Draws:
    """Releases about people who are drawn anew each time.

    Attributes
    ----------
    rate
        q: the probability of each person to be drawn, below 1.
    times
        How many there are.
    noise
        m: standard deviation of the noise, in multiples of what one person adds.
    """

    rate: float
    times: int
    noise: float


def epsilon_of(mu: float, draws: Draws, delta: float) -> float:
    """Return ε of plain releases, μ-GDP together, and of subsampled ones."""
    mu, delta = float(nonnegative("mu", mu)), probability("delta", delta)
    return _composed(mu, draws.rate, draws.times, draws.noise, delta)


@lru_cache(maxsize=512)
def _composed(mu: float, rate: float, times: int, noise: float, delta: float) -> float:
    try:
        from dp_accounting import dp_event
        from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
        from dp_accounting.privacy_accountant import NeighboringRelation
    except ModuleNotFoundError as error:
        raise MissingExtraError("privacy", "an account of sampled people") from error

    account = PLDAccountant(
        NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=STEP
    )
    one = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    account.compose(one, times)
    if mu > 0:
        account.compose(dp_event.GaussianDpEvent(1 / mu))
    return float(account.get_epsilon(delta))


@lru_cache(maxsize=128)
def noise_of(epsilon: float, delta: float, mu: float, rate: float, times: int) -> float:
    """Return the least noise m with which all releases are (ε, δ)-private together.

    `mu` is of the plain ones. It is too large rather than too small, by 0.1 % at most.
    """
    epsilon = positive("epsilon", epsilon)

    def enough(noise: float) -> bool:
        return epsilon_of(mu, Draws(rate, times, noise), delta) <= epsilon

    high = max(0.5, rate * math.sqrt(times) / mu_of(epsilon, delta))
    while not enough(high):
        high *= 2
        if high > MOST_NOISE:
            raise UsageError(
                f"ε = {epsilon:g} is spent by the plain releases alone (μ = {mu:.4g})"
            )
    low = high / 2
    while enough(low):
        low, high = low / 2, low
    while high > low * (1 + NARROW):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
