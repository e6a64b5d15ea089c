"""The log-sum bound for rows with sample weights: by betting on diluted losses.

The mean of people with weights s ∈ [0, s_max] and losses ℓ ∈ [0, M] is
μ = Σ E[s_iℓ_i]/Σ E[s_i]. A row counts with the part t = s/s_max by its own loss, and
with the rest by a level: with x = ℓ/M and z = ζ/M let

    u_i(z) = t_i x_i + (1 − t_i) z ∈ [0, 1],     Σ E[u_i − z] ≥ 0  ⇔  μ ≥ ζ

So if μ ≥ ζ, the mean of u is z or more, and `logsum` says that for bets γ_j and weights
π_j that were fixed before

    e(z) = Σ_j π_j Π_i (1 − γ_j u_i(z))/(1 − γ_j z) ≥ 1/δ

with probability at most δ: by the means of numbers rows must be independent, not alike,
and μ is that of the mixture of the silos that the cell's rows are, weighted. (A factor
is 1 − γt(x − z)/(1 − γz): a bet on s(ℓ − ζ).) It is a test of one ζ. It tells of all:

1.  A factor is 1 − t + t(1 − γx)v with v = 1/(1 − γz), and grows with z. Whatever is
    rejected at ζ is so above it; if a figure is below μ, then μ itself is rejected,
    which is one test, of probability δ.
2.  Products are known at a few levels only, fixed before as well. Factors are linear
    in v, so their geometric mean is concave: between two levels it is at least the
    chord, and a chord that rejects shows that the product does. With equal weights
    s = s_max nothing is lost at all: factors are (1 − γx)v, and the chord is exact.

Only Σ_i log(1 − γ_j u_i(z_g)) are needed, of one sign, and they add over silos. Levels
and bets are planned from n, δ, the bounds asked for, and moments of the *training*
rows; a wrong plan costs width, and never validity. That no weight is above s_max must
be known; a larger s_max costs little as long as there are rows enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pffl.bounds.checks import Numbers, positive, probability, refuse, whole
from pffl.bounds.logsum import (
    BETS,
    EPS,
    LARGEST,
    MOST_ROWS,
    PLANNED,
    TRIED,
    Bets,
    expected,
    logsumexp,
)
from pffl.typing import FloatArray

#: Levels beside the mean of the training rows, in steps of at least `STEP` standard
#: deviations of their losses, or half of what is promised.
BESIDE, STEP = (-1.0, 0.0, 1.0, 3.0), 0.25
BLIND = (0.05, 0.15, 0.3, 0.6)  # times M, where nothing is known
#: What `Moments` are sums of, over people.
MOMENTS = ("t", "tx", "tt", "ttx", "ttxx")


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
        """Return the means of so many people; None where nobody has a weight."""
        if count <= 0 or sums[0] <= 0:
            return None
        return cls(*(sums / count).tolist())

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


def plan(
    counts: Numbers,
    *,
    delta: float,
    moments: FloatArray | None = None,
    seen: Numbers | None = None,
    bounds: Numbers,
    loss_bound: float,
) -> tuple[Bets, FloatArray]:
    """Return bets and levels per cell, fixed without looking at a held-out row.

    Parameters
    ----------
    counts
        Held-out people per cell: about so many are expected.
    delta
        Probability of being wrong, per cell.
    moments, seen
        Sums of `MOMENTS` over each cell's *training* rows, shape (Z, 5), and how many
        there are; None where nothing is known.
    bounds
        ζ of each cell: a level of its own, at which the test is exact; infinite or NaN
        where there is none.
    loss_bound
        M.
    """
    M, log_term = positive("loss_bound", loss_bound), -np.log(probability("δ", delta))
    n = np.maximum(np.atleast_1d(whole("counts", counts)), 1.0)
    asked = np.nan_to_num(np.asarray(bounds, np.float64), nan=M)
    own = np.clip(np.broadcast_to(asked, n.shape) / M, 0.0, 1.0)
    few = np.minimum(np.sqrt(8.0 * log_term / n), 0.5 * LARGEST)
    gammas, weights, levels = [], [], []
    for z, many in enumerate(n):
        known = None
        if moments is not None and seen is not None:
            known = Moments.of(moments[z], float(np.atleast_1d(seen)[z]))
        steps = np.linspace(0.0, 1.0, BETS if known is None else BETS - 1)
        spread = np.minimum(few[z] ** (1 - steps) * LARGEST**steps, LARGEST)
        if known is None:
            gammas.append(spread)
            weights.append(np.full(BETS, 1.0 / BETS))
            beside = np.array(BLIND)
        else:
            one, end = best(float(many), log_term, known)
            gammas.append(np.append(one, spread))
            weights.append(np.full(BETS, (1.0 - PLANNED) / (BETS - 1)))
            weights[-1][0] = PLANNED
            step = max(STEP * known.deviation, 0.5 * (end - known.mean))
            beside = known.mean + step * np.array(BESIDE)
        inner = np.clip([*beside, own[z]], 0.0, 1.0)
        levels.append(M * np.sort([0.0, *inner, 1.0]))
    return Bets(np.array(gammas), np.array(weights)), np.array(levels)


def best(n: float, log_term: float, known: Moments) -> tuple[float, float]:
    """Return the bet that promises the smallest upper end, and that end, of x."""
    low, high, gamma = known.mean, 1.0, LARGEST
    for _ in range(40):
        middle = 0.5 * (low + high)
        one, gain = _gain(known, middle)
        if n * gain >= log_term - np.log(PLANNED):
            high, gamma = middle, one
        else:
            low = middle
    return gamma, high


def _gain(known: Moments, z: float) -> tuple[float, float]:
    """Return the bet at which a row adds most to log e(z), and about how much."""
    gains = expected(TRIED, *known.diluted(z)) - np.log1p(-TRIED * z)
    j = int(np.argmax(gains))
    return float(TRIED[j]), float(gains[j])


def upper(
    bets: Bets,
    levels: FloatArray,
    sums: FloatArray,
    *,
    counts: Numbers,
    loss_bound: float,
    delta: float,
) -> FloatArray:
    """Return, per cell, a bound on the weighted mean loss of unseen people.

    Each entry holds with probability ≥ 1 − δ **by itself**. M means that nothing is
    known.

    Parameters
    ----------
    bets, levels
        As planned before the rows were seen; levels ζ of shape (Z, G), from 0 to M.
    sums
        Σ log(1 − γ_j u(z_g)) per cell, bet and level, shape (Z, J, G).
    counts
        n per cell.
    loss_bound, delta
        M, and the probability of being wrong.
    """
    n, M = whole("counts", counts), positive("loss_bound", loss_bound)
    z, prior = levels / M, np.log(bets.weights)
    if (z[:, 0] != 0).any() or (z[:, -1] != 1).any() or (np.diff(z) < 0).any():
        raise refuse("levels", "from 0 to the loss bound, in order", levels)
    logs = _logs(bets, z, np.asarray(sums, np.float64), n)
    target = -np.log(probability("delta", delta))
    won = prior[..., None] + n[:, None, None] * logs
    rejected = logsumexp(np.moveaxis(won, 1, -1)) >= target
    # The first level from which on all are rejected.
    first = z.shape[1] - np.cumprod(rejected[:, ::-1], axis=1).sum(axis=1)
    end, cell = np.clip(first, 1, z.shape[1] - 1), np.arange(len(n))
    left, right = z[cell, end - 1], z[cell, end]
    A, B = logs[cell, :, end - 1], logs[cell, :, end]
    low, high, rise, g = left, right, np.expm1(B - A), bets.gammas
    for _ in range(60):
        middle = 0.5 * (low + high)
        part = (middle - left) / np.maximum(right - left, 1e-300)
        part = part[:, None] * (1 - g * right[:, None]) / (1 - g * middle[:, None])
        inside = logsumexp(prior + n[:, None] * (A + np.log1p(part * rise))) < target
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    shown = (n > 0) & (first < z.shape[1])
    return np.where(shown, np.minimum(M * high, M), M)


def _logs(bets: Bets, z: FloatArray, sums: FloatArray, n: FloatArray) -> FloatArray:
    """Return the logarithm of the factors' geometric mean, rounded down."""
    g, rows = bets.gammas[..., None], n[:, None, None]
    if sums.shape != (*bets.gammas.shape, z.shape[-1]):
        raise refuse("sums", "one per cell, bet and level", sums.shape)
    least = rows * np.log1p(-g)
    if (sums > 0).any() or (sums < least - 1e-9 * (1 - least)).any():
        raise refuse("sums", "sums of log(1 − γu) with u in [0, 1]", "others")
    # Adding n numbers of one sign can be off by n·eps, and each by a few eps/(1 − γ).
    lost = (rows + 16.0) * EPS * np.abs(sums) + 64.0 * EPS * rows / (1.0 - g)
    logs: FloatArray = (sums - lost) / np.maximum(rows, 1.0)
    return logs - np.log1p(-g * z[:, None, :])


def rows_needed(
    bound: float, *, moments: Moments, loss_bound: float, delta: float
) -> int | None:
    """Return about how many held-out people would bring a cell's figure to its bound.

    A forecast, for people with these moments; None if no number would, because their
    mean is not below the bound.
    """
    z = bound / positive("loss_bound", loss_bound)
    if z >= 1:
        return 0
    if moments.mean >= z:
        return None
    gain = _gain(moments, z)[1]
    term = -np.log(probability("delta", delta)) - np.log(PLANNED)
    many = np.inf if gain <= 0 else np.ceil(term / gain)
    return int(many) if many <= MOST_ROWS else None
