"""What held-out rows say: of a mean loss in [0, M] (log-sums, Chernoff), and of rates.

**Bets.** The mean of people with weights s ∈ [0, s_max] is μ = Σ E[s_iℓ_i]/Σ E[s_i]. A
row counts with the part t = s/s_max by its own loss, and with the rest by a level: with
x = ℓ/M and z = ζ/M let

    u_i(z) = t_i x_i + (1 − t_i) z ∈ [0, 1],     Σ E[u_i − z] ≥ 0  ⇔  μ ≥ ζ

Let bets γ_j ∈ (0, 1) with weights π_j, Σπ_j = 1, be fixed before the rows are seen.
Π_i (1 − γu_i)/(1 − γE[u_i]) has mean 1, and by the means of numbers Π_i (1 − γE[u_i])
is at most (1 − γū)ⁿ, ū the mean of E[u_i]. So if μ ≥ ζ, by Markov's inequality,

    e(z) = Σ_j π_j Π_i (1 − γ_j u_i(z))/(1 − γ_j z) ≥ 1/δ

with probability at most δ. Rows must be independent, not identical: μ is that of the
mixture of silos that the cell's rows are. It is a test of one ζ. It tells of all:

1.  A factor is 1 − t + t(1 − γx)v with v = 1/(1 − γz), and grows with z. Whatever is
    rejected at ζ is so above it; if a figure is below μ, then μ itself is rejected,
    which is one test, of probability δ.
2.  Products are known at a few levels only, fixed before as well. Factors are linear
    in v, so their geometric mean is concave: between two levels it is at least the
    chord, and a chord that rejects shows that the product does.

**Unweighted rows** are the case t = 1: u = x whatever the level, the chord from 0
to M is exact, and Σ_i log(1 − γ_j x_i) is all that is needed. Nearly Bernoulli losses
are then better served by Chernoff's bound, which gets a part of δ (`upper_bounds`).

Sums add over silos. Levels and bets are planned from n, δ, the bounds asked for and
moments of the *training* rows: a wrong plan costs width, and never validity. That no
weight is above s_max must be known.

**Rates.** A rate is k of n held-out rows (errors; predicted positive; …). Clopper and
Pearson's bounds are exact: they invert the binomial distribution, without an
approximation. Of a group without rows it may be anything between 0 and 1.

Rows of different silos are independent but not identical, and then the binomial tail is
an upper bound only for k ≤ np − 1 (Hoeffding 1956). For δ ≤ 1/4 the one place where
the bounds of Clopper and Pearson need the other case is k = n − 1 (k = 1 below); there
``Pr[any success] ≤ np`` replaces ``1 − (1 − p)ⁿ``, which costs at most δ²/n.

Reference: Waudby-Smith and Ramdas, *Estimating means of bounded random variables by
betting*, JRSS B 2024, for bets; here they are not predictable but mixed. Hoeffding
1963, theorem 1, for `chernoff_upper`; Clopper and Pearson, *Biometrika* 26, 1934;
Hoeffding, *Ann. Math. Stat.* 27, 1956, theorem 4; Greenberg and Mohri, *Stat. Probab.
Lett.* 86, 2014.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from pffl.typing import FloatArray

BETS = 9  # per cell
LARGEST = 0.99  # of a bet: no row can change a sum by more than −log(0.01)
PLANNED = 0.6  # weight of the planned bet; the rest is spread
LOG_SUM, CHERNOFF = 0.8, 0.2  # parts of δ, without weights
TRIED = np.geomspace(1e-6, LARGEST, 200)  # bets that a plan compares
MOST_ROWS = 10**12
EPS = float(np.finfo(np.float64).eps)
#: Levels near the mean of the training rows, in steps of at least `STEP` standard
#: deviations of their losses, or half of what is promised.
BESIDE, STEP = (-1.0, 0.0, 1.0, 3.0), 0.25
BLIND = (0.05, 0.15, 0.3, 0.6)  # times M, where nothing is known
#: What `Moments` are sums of, over people.
MOMENTS = ("t", "tx", "tt", "ttx", "ttxx")


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


@dataclass(frozen=True)
class Moments:
    """Means over a cell's people of t, tx, t², t²x and t²x²; t = s/s_max, x = ℓ/M."""

    t: float
    tx: float
    tt: float
    ttx: float
    ttxx: float

    @classmethod
    def of(cls, sums: FloatArray, count: float) -> Moments | None:
        """Return the means of n people; None without weights."""
        if count <= 0 or sums[0] <= 0:
            return None
        return cls(*(sums / count).tolist())

    @classmethod
    def alike(cls, mean: float, variance: float, M: float) -> Moments:
        """Return those of unweighted people, from mean and variance of ℓ."""
        x = mean / M
        return cls(1.0, x, 1.0, x, variance / M**2 + x * x)

    @property
    def mean(self) -> float:
        """Weighted mean of x."""
        return min(self.tx / self.t, 1.0)

    @property
    def deviation(self) -> float:
        """Standard deviation of x, each person with the square of their weight."""
        m = self.mean
        square = self.ttxx - 2.0 * m * self.ttx + m * m * self.tt
        return float(np.sqrt(max(square, 0.0) / self.tt)) if self.tt > 0 else 0.0

    def diluted(self, z: float) -> tuple[float, float]:
        """Return mean and variance of u(z), such as a number in [0, 1] can have."""
        level = self.tx + (1.0 - self.t) * z
        second = self.ttxx + 2.0 * z * (self.tx - self.ttx)
        second += z * z * (1.0 - 2.0 * self.t + self.tt)
        level = min(max(level, 1e-9), 1 - 1e-9)
        return level, min(max(second - level**2, 1e-12), level * (1 - level))


# The plan, before the rows are seen


def plan(
    counts: Numbers,
    *,
    delta: float,
    loss_bound: float,
    known: Sequence[Moments | None] | None = None,
    bounds: Numbers | None = None,
) -> tuple[Bets, FloatArray]:
    """Return `BETS` bets and the levels per cell, fixed without a held-out loss.

    Parameters
    ----------
    counts
        Held-out people per cell: the number expected.
    delta
        Probability of being wrong, per cell.
    loss_bound
        M.
    known
        Moments of each cell's *training* rows; None where nothing is known: all weight
        is then spread.
    bounds
        ζ of each cell, where rows have weights: a separate level, at which the test
        is exact; infinite or NaN without one. None: rows are unweighted, and the
        levels are 0 and M.
    """
    M, risk = positive("loss_bound", loss_bound), probability("delta", delta)
    log_term = -float(np.log(risk if bounds is not None else LOG_SUM * risk))
    n = np.maximum(np.atleast_1d(whole("counts", counts)), 1.0)
    # With a variance of 1/4 and without; most bets of use lie between.
    few = np.minimum(np.sqrt(8.0 * log_term / n), 0.5 * LARGEST)
    asked = np.nan_to_num(np.asarray(M if bounds is None else bounds, float), nan=M)
    own = np.clip(np.broadcast_to(asked, n.shape) / M, 0.0, 1.0)
    gammas, weights, levels = [], [], []
    for z, cell in enumerate(known or [None] * len(n)):
        steps = np.linspace(0.0, 1.0, BETS if cell is None else BETS - 1)
        spread = few[z] ** (1 - steps) * LARGEST**steps
        share, near = np.full(BETS, 1.0 / BETS), np.array(BLIND)
        if cell is not None:
            one, end = best(float(n[z]), log_term, cell)
            spread = np.append(one, spread)
            share[:] = (1.0 - PLANNED) / (BETS - 1)
            share[0] = PLANNED
            step = max(STEP * cell.deviation, 0.5 * (end - cell.mean))
            near = cell.mean + step * np.array(BESIDE)
        inner = [] if bounds is None else np.clip([*near, own[z]], 0.0, 1.0)
        gammas.append(np.minimum(spread, LARGEST))
        weights.append(share)
        levels.append(M * np.sort([0.0, *inner, 1.0]))
    return Bets(np.array(gammas), np.array(weights)), np.array(levels)


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


def best(n: float, log_term: float, known: Moments) -> tuple[float, float]:
    """Return the bet that promises the smallest upper end, and that end, of x."""
    price = (log_term - np.log(PLANNED)) / n

    def end_at(z: float) -> tuple[float, float]:
        ends = -np.expm1(expected(TRIED, *known.diluted(z)) - price) / TRIED
        j = int(np.argmin(ends))
        return float(TRIED[j]), float(ends[j])

    low, high = known.mean, 1.0
    gamma, end = end_at(high)
    if end > high or known.t == known.tt == 1.0:  # then u does not depend on z
        return gamma, min(end, high)
    for _ in range(40):
        middle = 0.5 * (low + high)
        one, end = end_at(middle)
        if end <= middle:
            high, gamma = middle, one
        else:
            low = middle
    return gamma, high


def rows_needed(
    bound: float, *, known: Moments, loss_bound: float, delta: float, weighted: bool
) -> int | None:
    """Return about how many held-out people would bring a cell's figure to its bound.

    A forecast, for people with these moments; None if no number would, because their
    mean is not below the bound.
    """
    z = bound / positive("loss_bound", loss_bound)
    if z >= 1:
        return 0
    if known.mean >= z:
        return None
    gain = float((expected(TRIED, *known.diluted(z)) - np.log1p(-TRIED * z)).max())
    share = probability("delta", delta) * (1.0 if weighted else LOG_SUM)
    many = np.inf if gain <= 0 else np.ceil(-np.log(share * PLANNED) / gain)
    return int(many) if many <= MOST_ROWS else None


# The bounds


def upper(
    bets: Bets,
    sums: FloatArray,
    counts: Numbers,
    *,
    loss_bound: float,
    delta: float,
    levels: FloatArray | None = None,
) -> FloatArray:
    """Return, per cell, the log-sum bound on the mean loss of unseen people.

    Each entry holds with probability ≥ 1 − δ **alone**. Found by bisection in
    logarithms, and rounded up; M means that nothing is known.

    Parameters
    ----------
    bets
        As planned before the rows were seen.
    sums
        Σ log(1 − γ_j u(z_g)) per cell, bet and level, shape (…, Z, J, G); without
        levels Σ log(1 − γ_j x), shape (…, Z, J).
    counts
        n per cell.
    loss_bound, delta
        M, and the probability of being wrong.
    levels
        ζ of shape (Z, G), from 0 to M, as planned; None without weights.
    """
    n, M = whole("counts", counts), positive("loss_bound", loss_bound)
    target, S = -np.log(probability("delta", delta)), np.asarray(sums, np.float64)
    g, prior = bets.gammas, np.log(bets.weights)
    if levels is None:
        levels, S = np.tile([0.0, M], (len(g), 1)), np.stack([S, S], axis=-1)
    z = levels / M
    if (z[:, 0] != 0).any() or (z[:, -1] != 1).any() or (np.diff(z) < 0).any():
        raise refuse("levels", "from 0 to the loss bound, in order", levels)
    if S.shape[-3:] != (*g.shape, z.shape[1]):
        raise refuse("sums", "one log-sum per cell, bet and level", S.shape)
    rows = n[..., None, None]
    least = rows * np.log1p(-g[..., None])
    if not ((S <= 0) & (least - 1e-9 * (1 - least) <= S)).all():
        raise refuse("sums", "sums of log(1 − γu) with u in [0, 1]", "others")
    # Adding n numbers of one sign can be off by n·eps, and each by a few eps/(1 − γ).
    lost = (rows + 16.0) * EPS * np.abs(S) + 8.0 * EPS * rows / (1.0 - g[..., None])
    # The logarithm of the factors' geometric mean, at each level.
    logs = (S - lost) / np.maximum(rows, 1.0) - np.log1p(-g[..., None] * z[:, None])
    won = logsumexp(np.moveaxis(prior[..., None] + rows * logs, -2, -1)) >= target
    # The first level from which on all are rejected.
    first = z.shape[1] - np.cumprod(won[..., ::-1], axis=-1).sum(axis=-1)
    end, cell = np.clip(first, 1, z.shape[1] - 1), np.arange(len(g))
    left, right = z[cell, end - 1], z[cell, end]
    at = end[..., None, None]
    A = np.take_along_axis(logs, at - 1, axis=-1)[..., 0]
    rise = np.expm1(np.take_along_axis(logs, at, axis=-1)[..., 0] - A)
    low, high = left, right
    for _ in range(60):
        middle = 0.5 * (low + high)
        part = (middle - left) / np.maximum(right - left, 1e-300)
        turned = (1 - g * right[..., None]) / (1 - g * middle[..., None])
        gained = A + np.log1p(part[..., None] * turned * rise)
        inside = logsumexp(prior + n[..., None] * gained) < target
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    shown = (n > 0) & (first < z.shape[1])
    return np.where(shown, np.minimum(M * high, M), M)


def upper_bounds(
    bets: Bets,
    sums: FloatArray,
    counts: Numbers,
    totals: Numbers,
    *,
    loss_bound: float,
    delta: float,
) -> FloatArray:
    """Return, per cell, a bound on the mean loss of unseen unweighted people.

    The log-sum bound at 0.8 δ or Chernoff's at 0.2 δ, whichever is smaller: each entry
    holds with probability ≥ 1 − δ alone. `totals` are Σℓ; the rest as for `upper`.
    """
    share = probability("delta", delta)
    found = upper(bets, sums, counts, loss_bound=loss_bound, delta=LOG_SUM * share)
    rare = chernoff_upper(counts, totals, loss_bound, CHERNOFF * share)
    return np.minimum(found, rare)


def chernoff_upper(
    count: Numbers, total: Numbers, loss_bound: float, delta: float
) -> FloatArray:
    """Return the largest mean that the sample does not contradict at level δ.

    ``sup{q : n·kl(mean/M ‖ q/M) ≤ log(1/δ)}`` by bisection, rounded up; M for an empty
    cell. It holds for rows that are independent, not identical, and unweighted.
    """
    from scipy.special import rel_entr

    n, s = np.broadcast_arrays(whole("count", count), nonnegative("total", total))
    M = positive("loss_bound", loss_bound)
    if (s > n * M * (1.0 + 1e-9)).any():
        raise refuse("total", "at most count · loss_bound", total)
    budget = -np.log(probability("delta", delta)) / np.maximum(n, 1.0)
    p = np.clip(s / (np.maximum(n, 1.0) * M), 0.0, 1.0)
    low, high = p.copy(), np.ones_like(p)
    for _ in range(60):
        middle = 0.5 * (low + high)
        inside = rel_entr(p, middle) + rel_entr(1.0 - p, 1.0 - middle) <= budget
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.where(n > 0, M * high, M)


def clopper_pearson_upper(
    events: Numbers, count: Numbers, *, delta: float
) -> FloatArray:
    """Return the largest rate p with ``Pr[Bin(n, p) ≤ k] ≥ δ``; 1 if n = 0.

    The (1 − δ)-quantile of Beta(k + 1, n − k); ``1 − δ/n`` if k = n − 1.
    """
    from scipy.special import betainccinv

    k, n = _events(events, count)
    level = probability("delta", delta)
    inner = betainccinv(k + 1.0, np.maximum(n - k, 1.0), level)
    inner = np.where(k == n - 1, 1.0 - level / np.maximum(n, 1.0), inner)
    return np.where(k < n, inner, 1.0)


def clopper_pearson_lower(
    events: Numbers, count: Numbers, *, delta: float
) -> FloatArray:
    """Return the smallest rate p with ``Pr[Bin(n, p) ≥ k] ≥ δ``; 0 if n = 0.

    The δ-quantile of Beta(k, n − k + 1); ``δ/n`` if k = 1.
    """
    from scipy.special import betaincinv

    k, n = _events(events, count)
    level = probability("delta", delta)
    inner = betaincinv(np.maximum(k, 1.0), n - k + 1.0, level)
    inner = np.where(k == 1, level / np.maximum(n, 1.0), inner)
    return np.where(k > 0, inner, 0.0)


def _events(events: Numbers, count: Numbers) -> tuple[FloatArray, FloatArray]:
    k, n = np.broadcast_arrays(whole("events", events), whole("count", count))
    if (k > n).any():
        raise refuse("events", "at most 'count'", events)
    return k, n


def logsumexp(terms: FloatArray) -> FloatArray:
    """Return log Σ exp over the last axis, without overflow."""
    most = terms.max(axis=-1, keepdims=True)
    total: FloatArray = np.log(np.exp(terms - most).sum(axis=-1)) + most[..., 0]
    return total
