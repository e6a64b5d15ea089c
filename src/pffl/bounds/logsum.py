"""The log-sum bound: what held-out rows say of a mean loss in [0, M], by betting.

Let x = ℓ/M ∈ [0, 1], and let bets γ_j ∈ (0, 1) with weights π_j, Σπ_j = 1, be fixed
before the rows are seen. Then Π_i (1 − γx_i)/(1 − γμ_i) has mean 1, and by the means of
numbers Π_i (1 − γμ_i) ≤ (1 − γμ̄)ⁿ, so that by Markov's inequality, with probability at
least 1 − δ,

    Σ_j π_j exp(S_j) / (1 − γ_j μ̄)ⁿ < 1/δ,    S_j = Σ_i log(1 − γ_j x_i)

The left side grows with μ̄: the bound is where it reaches 1/δ. Lower bounds are those of
1 − x, turned round. Only sums over rows are needed, and they add over silos. Rows must
be independent, not alike: μ̄ is the mixture of the silos that the cell's rows are. Bets
are planned from n, δ, and mean and variance of the *training* losses; a wrong plan
costs width, and never validity.

Nearly Bernoulli losses are better served by Chernoff's bound, which gets a part of δ
beside it: `upper_bounds` and `lower_bounds` are the ones to use.

Reference: Waudby-Smith and Ramdas, *Estimating means of bounded random variables by
betting*, JRSS B 2024, for bets; here they are not predictable but mixed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pffl.bounds.checks import (
    Numbers,
    nonnegative,
    positive,
    probability,
    refuse,
    whole,
)
from pffl.bounds.holdout import chernoff_upper
from pffl.typing import FloatArray

BETS = 9  # per cell
LARGEST = 0.99  # of a bet: no row can change a sum by more than −log(0.01)
PLANNED = 0.6  # weight of the planned bet; the rest is spread
LOG_SUM, CHERNOFF = 0.8, 0.2  # parts of δ
GRID = 200  # bets that a plan compares
TRIED = np.geomspace(1e-6, LARGEST, GRID)
MOST_ROWS = 10**12
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Bets:
    """Bets γ in (0, 1) and their weights π, both of shape (Z, J), for each cell."""

    gammas: FloatArray
    weights: FloatArray

    def __post_init__(self) -> None:
        g, w = self.gammas, self.weights
        if g.ndim != 2 or g.shape != w.shape:
            raise refuse("weights", "one per bet, cell by cell", w.shape)
        if not ((g > 0) & (g <= LARGEST)).all():
            raise refuse("gammas", f"above 0, and at most {LARGEST}", g)
        if not (w > 0).all() or (w.sum(axis=1) > 1 + 1e-12).any():
            raise refuse("weights", "> 0, with a sum of 1", w)


def plan_bets(
    counts: Numbers,
    *,
    delta: float,
    mean: Numbers | None = None,
    variance: Numbers | None = None,
    loss_bound: float,
) -> Bets:
    """Return `BETS` bets per cell, fixed without looking at a held-out loss.

    Parameters
    ----------
    counts
        Held-out rows per cell: about so many are expected.
    delta
        Probability of being wrong, per cell.
    mean, variance
        Of the cells' *training* losses; None, or NaN for a cell, where nothing is
        known: all weight is then spread.
    loss_bound
        M.
    """
    n, M = np.atleast_1d(whole("counts", counts)), positive("loss_bound", loss_bound)
    log_term = -np.log(LOG_SUM * probability("delta", delta))
    n = np.maximum(n, 1.0)
    # With a variance of 1/4 and without; most bets of use lie between.
    smallest = np.minimum(np.sqrt(8.0 * log_term / n), 0.5 * LARGEST)
    steps = np.linspace(0.0, 1.0, BETS)
    spread = np.minimum(smallest[:, None] ** (1 - steps) * LARGEST**steps, LARGEST)
    weights = np.full_like(spread, 1.0 / BETS)
    if mean is None or variance is None:
        return Bets(spread, weights)
    m, v = (
        np.broadcast_to(np.asarray(a, np.float64), n.shape) for a in (mean, variance)
    )
    for z in np.flatnonzero(np.isfinite(m) & np.isfinite(v)):
        level, width = scaled(float(m[z]), float(v[z]), M)
        planned = best(float(n[z]), log_term, level, width)[0]
        others = np.linspace(0.0, 1.0, BETS - 1)
        spread[z, 1:] = smallest[z] ** (1 - others) * LARGEST**others
        spread[z, 0] = planned
        weights[z] = (1 - PLANNED) / (BETS - 1)
        weights[z, 0] = PLANNED
    return Bets(np.minimum(spread, LARGEST), weights)


def scaled(mean: float, variance: float, M: float) -> tuple[float, float]:
    """Return mean and variance of ℓ/M, such as a number in [0, 1] can have."""
    level = min(max(mean / M, 1e-9), 1 - 1e-9)
    width = min(max(variance / M**2, 1e-12), level * (1 - level))
    return level, width


def expected(gamma: FloatArray, level: float, width: float) -> FloatArray:
    """Return about E log(1 − γx), of x in [0, 1] with this mean and variance.

    As of the two numbers with the mean, variance and skewness of a beta law: its Gauss
    nodes. For nearly Bernoulli losses they are 0 and 1.
    """
    most = level * (1.0 - level)
    kappa = max(most / width - 1.0, 0.0)
    skew = 2.0 * (1.0 - 2.0 * level) * np.sqrt(kappa + 1.0)
    skew /= (kappa + 2.0) * np.sqrt(most)
    root, deviation = np.sqrt(skew**2 + 4.0), np.sqrt(width)
    low, high = (level + deviation * (skew + side * root) / 2.0 for side in (-1, 1))
    share = 0.5 * (1.0 - skew / root)  # of the higher one
    below, above = (np.log1p(-gamma * min(max(x, 0.0), 1.0)) for x in (low, high))
    about: FloatArray = (1.0 - share) * below + share * above
    return about


def best(n: float, log_term: float, level: float, width: float) -> tuple[float, float]:
    """Return the bet that promises the smallest upper end, and that end, of x."""
    log_left = expected(TRIED, level, width) - (log_term - np.log(PLANNED)) / n
    ends = -np.expm1(log_left) / TRIED
    j = int(np.argmin(ends))
    return float(TRIED[j]), float(ends[j])


def upper(
    bets: Bets, below: FloatArray, counts: Numbers, loss_bound: float, delta: float
) -> FloatArray:
    """Return, per cell, the log-sum bound at δ; `below` are the S_j, shape (…, Z, J).

    Found by bisection in logarithms, and rounded up; M for an empty cell.
    """
    n, M = whole("counts", counts), positive("loss_bound", loss_bound)
    sums = np.asarray(below, np.float64)
    g, pi = bets.gammas, bets.weights
    if sums.shape[-2:] != g.shape:
        raise refuse("below", f"of shape {g.shape}", sums.shape)
    rows = n[..., None]
    least = rows * np.log1p(-g)
    if not ((sums <= 0) & (sums >= least - 1e-9 * (1 - least))).all():
        raise refuse("below", "sums of log(1 − γx) with x in [0, 1]", "others")
    # Adding n numbers of one sign can be off by n·eps, and what follows by a few eps.
    lowest = sums - (rows + 16.0) * EPS * np.abs(sums) + np.log(pi)
    target = -np.log(probability("delta", delta))
    target = target + 16.0 * EPS * (1.0 - least).max(axis=-1)
    shape = np.broadcast_shapes(sums.shape[:-1], n.shape)
    low, high = np.zeros(shape), np.ones(shape)
    for _ in range(60):
        middle = 0.5 * (low + high)
        terms = lowest - rows * np.log1p(-g * middle[..., None])
        inside = logsumexp(terms) < target
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.where(n > 0, np.minimum(M * high, M), M)


def lower(
    bets: Bets, above: FloatArray, counts: Numbers, loss_bound: float, delta: float
) -> FloatArray:
    """Return, per cell, what the mean is at least; `above` are Σ log(1 − γ(1 − x))."""
    return positive("loss_bound", loss_bound) - upper(
        bets, above, counts, loss_bound, delta
    )


def logsumexp(terms: FloatArray) -> FloatArray:
    """Return log Σ exp over the last axis, without overflow."""
    most = terms.max(axis=-1, keepdims=True)
    total: FloatArray = np.log(np.exp(terms - most).sum(axis=-1)) + most[..., 0]
    return total


def upper_bounds(
    bets: Bets,
    below: FloatArray,
    counts: Numbers,
    totals: Numbers,
    *,
    loss_bound: float,
    delta: float,
) -> FloatArray:
    """Return, per cell, a bound on the mean loss of unseen people.

    Each entry holds with probability ≥ 1 − δ **by itself**: the log-sum bound at 0.8 δ
    or Chernoff's at 0.2 δ, whichever is smaller. M means that nothing is known.

    Parameters
    ----------
    bets
        As planned before the rows were seen.
    below
        Σ log(1 − γ_j x) per cell and bet, x = ℓ/M, shape (…, Z, J).
    counts, totals
        n and Σℓ per cell, with 0 ≤ ℓ ≤ M.
    loss_bound, delta
        M, and the probability of being wrong.
    """
    share = probability("delta", delta)
    found = upper(bets, below, counts, loss_bound, LOG_SUM * share)
    rare = chernoff_upper(counts, totals, loss_bound, CHERNOFF * share)
    return np.minimum(found, rare)


def lower_bounds(
    bets: Bets,
    above: FloatArray,
    counts: Numbers,
    totals: Numbers,
    *,
    loss_bound: float,
    delta: float,
) -> FloatArray:
    """Return, per cell, what the mean loss of unseen people is at least.

    `upper_bounds` of M − ℓ, turned round; `above` are Σ log(1 − γ_j(1 − x)).
    """
    M = positive("loss_bound", loss_bound)
    left = np.maximum(M * whole("counts", counts) - nonnegative("totals", totals), 0.0)
    args = {"loss_bound": M, "delta": delta}
    return np.maximum(M - upper_bounds(bets, above, counts, left, **args), 0.0)


def rows_needed(
    bound: float, *, mean: float, variance: float, loss_bound: float, delta: float
) -> int | None:
    """Return about how many held-out rows would bring a cell's upper end to its bound.

    A forecast, for rows whose losses have this mean and variance; None if no number of
    rows would, because the mean is not below the bound.
    """
    M = positive("loss_bound", loss_bound)
    log_term = -np.log(LOG_SUM * probability("delta", delta))
    level, width = scaled(mean, variance, M)
    if bound >= M:
        return 0
    if mean >= bound:
        return None
    few, many = 1, 1
    while best(many, log_term, level, width)[1] * M > bound:
        few, many = many, 2 * many
        if many > MOST_ROWS:
            return None
    while many - few > 1:
        middle = (few + many) // 2
        good = best(middle, log_term, level, width)[1] * M <= bound
        few, many = (few, middle) if good else (middle, many)
    return many
