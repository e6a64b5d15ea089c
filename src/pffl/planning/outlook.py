"""Before a promise is tested: what the calibration rows of a cell will about show.

A cell's mean loss falls with the rows that a model is trained on. With n of them the
model is about b/n above the best one, on other people, and about b/n below it on the
rows that it was fitted to (for an empirical minimiser, to first order in 1/n). So of a
model that was fitted to n₀ rows, whose mean losses are m_in there and m_out on others,

    a = (m_in + m_out)/2,     b = n₀(m_out − m_in)/2 ≥ 0,     μ(n) = a + b/n

The upper end U that m calibration rows show is forecast from mean and variance, as bets
are planned (`bounds.mean`); what comes will lie around it as their mean does
around μ. The cell's bound ζ is shown with a probability of about

    Φ((ζ − U)/se),     se² = σ²(1/m + 1/m₀)

m₀ the people by whom μ is known; of rows that are yet to come, those that are trained
on: the mean loss of a model that meets its bounds on m₀ people is off by as much for
others. A forecast, by which nothing is shown.

Reference: Akaike 1974 and Takeuchi 1976 for the two sides of b/n.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from pffl.bounds.checks import probability
from pffl.bounds.mean import LOG_SUM, Moments, best

POWER = 0.8  # of a promise for which rows are forecast: it is made in 4 of 5 cases
MOST, LEAST = 1e6, 1e-6  # times the rows that there are
STEPS = 22  # of a bisection


@dataclass(frozen=True)
class Outlook:
    """What is known of one cell before its calibration rows are looked at.

    Attributes
    ----------
    bound
        ζ.
    limit, slope
        a, and b in rows that are trained on.
    moments, mean
        Of people who were not trained on, t = 1 where rows count alike; and what the
        mean of theirs was.
    people
        How many of them there were, m₀.
    loss_bound
        M.
    weighted
        Whether rows have weights.
    """

    bound: float
    limit: float
    slope: float
    moments: Moments
    people: float
    loss_bound: float
    weighted: bool = False

    @classmethod
    def of(
        cls,
        bound: float,
        *,
        trained: float,
        rows: float,
        moments: Moments,
        people: float,
        loss_bound: float,
        weighted: bool = False,
    ) -> Outlook:
        """Tell it from a model's mean loss on the rows that it was fitted to.

        Parameters
        ----------
        trained, rows
            That mean, m_in, and how many training rows there were in all, n₀.
        moments, people, bound, loss_bound, weighted
            As for the class.
        """
        other = moments.mean * loss_bound
        excess = max(0.0, 0.5 * (other - trained))
        return cls(
            bound,
            other - excess,
            excess * rows,
            moments,
            people,
            loss_bound,
            weighted,
        )

    def mean(self, trained: float) -> float:
        """Return μ for so many training rows."""
        return min(self.limit + self.slope / max(trained, 1.0), self.loss_bound)

    @property
    def deviation(self) -> float:
        """Standard deviation that a mean over n people has, times √n."""
        known = self.moments
        return self.loss_bound * known.deviation * float(np.sqrt(known.tt)) / known.t

    def upper(self, people: float, trained: float, delta: float) -> float:
        """Return the upper end U that so many calibration people will about show."""
        if people < 1:
            return self.loss_bound
        M, risk = self.loss_bound, probability("delta", delta)
        known = self._moved(self.mean(trained) / M)
        risk *= 1.0 if self.weighted else LOG_SUM
        return M * best(people, -float(np.log(risk)), known)[1]

    def room(self, people: float, trained: float, delta: float) -> float:
        """Return (ζ − U)/se: by how many standard errors the bound is shown."""
        if self.bound >= self.loss_bound:
            return np.inf
        if people < 1:
            return -np.inf
        apart = self.bound - self.upper(people, trained, delta)
        error = self.deviation * np.sqrt(1.0 / people + 1.0 / max(self.people, 1.0))
        return float(apart / max(error, 1e-12))

    def _moved(self, mean: float) -> Moments:
        """Return the moments of people whose losses have another mean."""
        old, by = self.moments, mean - self.moments.mean
        return replace(
            old,
            tx=old.t * mean,
            ttx=old.ttx + by * old.tt,
            ttxx=max(0.0, old.ttxx + 2.0 * by * old.ttx + by * by * old.tt),
        )


def chance(rooms: ArrayLike) -> float:
    """Return about how probable it is that every bound is shown: Π Φ(room)."""
    from scipy.special import ndtr

    return float(np.prod(ndtr(np.asarray(rooms, np.float64))))


def times(
    cells: list[Outlook],
    people: ArrayLike,
    others: ArrayLike,
    trained: float,
    delta: float,
    power: float = POWER,
) -> float | None:
    """Return how many times the rows it takes to show all bounds with this chance.

    Training and calibration rows alike. None if no number of rows would do.

    Parameters
    ----------
    cells
        What is known of them.
    people, others
        Calibration and training people of each cell, as they are.
    trained
        Training rows in all.
    delta, power
        δ, and the chance that is wanted.
    """
    many, kept = (np.asarray(a, np.float64) for a in (people, others))
    if any(cell.limit >= cell.bound for cell in cells) or not many.all():
        return None

    def enough(by: float) -> bool:
        rooms = [
            replace(cell, people=by * k).room(by * n, by * trained, delta)
            for cell, n, k in zip(cells, many, kept, strict=True)
        ]
        return chance(rooms) >= power

    low, high = np.log(LEAST), np.log(MOST)
    if not enough(MOST):
        return None
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if enough(np.exp(middle)) else (middle, high)
    return float(np.exp(high))
