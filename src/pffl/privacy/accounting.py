"""The account of Gaussian releases: Gaussian differential privacy, in closed form.

A release of sums with noise of standard deviation σ, to which one person adds a vector
no longer than Δ, is μ-GDP with μ = Δ/σ: telling whether the person is among the rows is
no easier than telling N(0, 1) from N(μ, 1). Releases compose to √Σμ², also where each
is asked in view of those before, and

    δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)

is exact for the whole: no bound is lost in composition. Everything is planned: what
is asked, and at which cost, is fixed beforehand.

Reference: Dong, Roth and Su, *Gaussian differential privacy*, JRSS B 2022, Corollaries
1 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from pffl.bounds.checks import finite, nonnegative, positive, probability

LARGEST = 1e3  # μ and ε beyond which nothing is private
SLACK = 1e-9  # relative, of Σμ²: what adding up in another order can change


def delta_of(mu: float, epsilon: float) -> float:
    """Return δ(ε) of releases that are μ-GDP together."""
    mu, epsilon = float(nonnegative("mu", mu)), float(nonnegative("epsilon", epsilon))
    if mu == 0:
        return 0.0
    from scipy.special import log_ndtr, ndtr

    first = float(ndtr(-epsilon / mu + mu / 2))
    second = math.exp(min(0.0, epsilon + float(log_ndtr(-epsilon / mu - mu / 2))))
    return max(0.0, first - second)


def epsilon_of(mu: float, delta: float) -> float:
    """Return the smallest ε with δ(ε) ≤ δ of releases that are μ-GDP together."""
    mu, delta = float(nonnegative("mu", mu)), probability("delta", delta)
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_of(mu, high) > delta:
        high *= 2
        finite("mu", mu if high < LARGEST**3 else math.inf)
    from scipy.optimize import brentq

    return float(brentq(lambda e: delta_of(mu, e) - delta, 0.0, high, xtol=1e-13))


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest μ for which releases are (ε, δ)-private together."""
    epsilon, delta = positive("epsilon", epsilon), probability("delta", delta)
    high = 1.0
    while delta_of(high, epsilon) < delta and high < LARGEST:
        high *= 2
    from scipy.optimize import brentq

    found = brentq(lambda mu: delta_of(mu, epsilon) - delta, 0.0, high, xtol=1e-14)
    # By a little too small rather than too large.
    return float(found) * (1 - 1e-12)


def composed(mus: Iterable[float]) -> float:
    """Return μ of several releases together: the root of the sum of squares."""
    return math.sqrt(math.fsum(float(nonnegative("mu", mu)) ** 2 for mu in mus))
