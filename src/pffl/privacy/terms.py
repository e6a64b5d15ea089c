"""What is declared for a run with noise: the budget, and what bounds each person.

Everything here is an input. Nothing of it may be chosen in view of the rows, and no
figure of the rows but released ones enters anything that a run does.

**The account** is of Gaussian differential privacy, in closed form.

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from pffl.bounds.checks import finite, nonnegative, positive, probability
from pffl.records import Interval, Probability, check_parameters

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


@dataclass(frozen=True)
class Privacy:
    """A budget for people: person-level differential privacy, add or remove one.

    Parameters
    ----------
    epsilon, delta
        ε and δ of everything that is released about one person, training rows and
        test rows each: no person is in both.
    clip
        What bounds a person's gradient: rows are shortened to ‖(x, 1)‖ ≤ clip, x
        scaled, and the shipped predictor shortens its inputs, too.
    loss_bound
        M: losses count up to M, and the shipped predictor's are.
    ranges
        What an input is between, by its name: known beforehand, not looked up in the
        rows. Inputs that are 0 or 1 by their coding need none.
    rounds
        T of the method; None: as the plan has it.
    colluding
        Sites of a secure sum whose noise is not counted on: the others add enough. At
        least 1, since each site sees the totals and knows its own noise.
    noise_seed
        Repeats the noise, for experiments: whoever knows it can take the noise off, so
        that nothing is private. None: drawn from the operating system.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(6000, silos=3, groups=["f", "m"])
    >>> ends = [(0.0, 100.0), (0.0, 1.0), (0.0, 10.0)]  # ages, flags, counts
    >>> ranges = {n: ends[i % 3] for i, n in enumerate(people.schema.features)}
    >>> budget = pffl.Privacy(epsilon=2.0, delta=1e-6, ranges=ranges)
    >>> solution = pffl.solve(
    ...     people, 0.69, privacy=budget, secure_sum=True, random_state=0
    ... )
    >>> solution.certificate.of_kind("privacy")[0].value <= 2.0
    True
    """

    epsilon: Annotated[float, Field(gt=0, lt=100)]
    delta: Probability = 1e-6
    clip: Annotated[float, Field(gt=1, lt=64)] = 4.0  # products are exact in 64 bits
    loss_bound: Annotated[float, Field(gt=math.log(2), lt=100)] = 3.0
    ranges: Mapping[str, Interval] = field(default_factory=dict)
    rounds: Annotated[int, Field(ge=1, le=10_000)] | None = None
    colluding: Annotated[int, Field(ge=0, le=1 << 12)] = 1
    noise_seed: Annotated[int, Field(ge=0, le=1 << 63)] | None = None

    def __post_init__(self) -> None:
        check_parameters(self)

    @property
    def mu(self) -> float:
        """μ of everything about a training row, that (ε, δ) allows."""
        return mu_of(self.epsilon, self.delta)

    @property
    def repeatable(self) -> bool:
        """Whether a seed repeats the noise: then nothing is private."""
        return self.noise_seed is not None

    def describe(self) -> dict[str, object]:
        """Plain form, for run files and agreements; without what is None."""
        plain = {k: v for k, v in vars(self).items() if v is not None and k != "ranges"}
        ranges = {name: list(ends) for name, ends in self.ranges.items()}
        return {**plain, "ranges": ranges} if ranges else plain
