"""The statistical bounds once more, each straight from its definition."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv

from pffl.typing import FloatArray


def mean_loss_upper(losses: FloatArray, loss_bound: float, delta: float) -> float:
    """Return the smaller of Chernoff's and Bernstein's bound, each at δ/2."""
    n, M, half = len(losses), loss_bound, 0.5 * delta
    if n == 0:
        return M
    mean = float(losses.mean())
    chernoff = M * _kl_inverse(min(mean / M, 1.0), math.log(1.0 / half) / n)
    bernstein = M
    if n > 1:
        log_term = math.log(2.0 / half)
        spread = math.sqrt(2.0 * float(losses.var(ddof=1)) * log_term / n)
        bernstein = mean + spread + 7.0 * M * log_term / (3.0 * (n - 1))
    return min(chernoff, bernstein, M)


def _kl_inverse(p: float, budget: float) -> float:
    """Return the largest q with kl(p ‖ q) ≤ budget."""

    def beyond(q: float) -> float:
        left = p * math.log(p / q) if p > 0 else 0.0
        right = (1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0
        return left + right - budget

    top = 1.0 - 1e-16
    if p >= top or beyond(top) <= 0:
        return 1.0
    low = p if p > 0 else 1e-300
    return float(brentq(beyond, low, top, xtol=1e-15))


def rate_upper(events: float, count: float, delta: float) -> float:
    """Return Clopper and Pearson's upper bound, valid for rows that are not alike."""
    k, n = events, count
    if k >= n:
        return 1.0
    if k == n - 1:
        return 1.0 - delta / n
    return float(betaincinv(k + 1.0, n - k, 1.0 - delta))


def rate_lower(events: float, count: float, delta: float) -> float:
    """Return the lower bound: one minus the upper bound of the opposite event."""
    return 1.0 - rate_upper(count - events, count, delta) if count else 0.0


def spread(
    events: Sequence[float], counts: Sequence[float], delta: float
) -> tuple[float | None, float, float]:
    """Return the spread of rates in the rows, and the ends of its interval."""
    side = delta / (2.0 * len(counts))
    pairs = list(zip(events, counts, strict=True))
    low = [rate_lower(k, n, side) for k, n in pairs]
    high = [rate_upper(k, n, side) for k, n in pairs]
    least = max(0.0, max(low) - min(high))
    most = max(
        (high[a] - low[b] for a in range(len(low)) for b in range(len(low)) if a != b),
        default=0.0,
    )
    rates = [k / n for k, n in pairs if n]
    value = max(rates) - min(rates) if len(rates) == len(pairs) else None
    return value, least, max(least, most)


def metric(
    kind: str, positive: FloatArray, count: FloatArray, delta: float
) -> tuple[float | None, float, float]:
    """Return a fairness metric in the rows, and the ends of its interval.

    `positive` and `count` have shape (groups, 2).
    """
    if kind == "dp_gap":
        return spread(positive.sum(axis=1).tolist(), count.sum(axis=1).tolist(), delta)
    if kind == "eo_gap":
        return spread(positive[:, 1].tolist(), count[:, 1].tolist(), delta)
    both = [
        spread(positive[:, y].tolist(), count[:, y].tolist(), delta / 2) for y in (0, 1)
    ]
    values = [value for value, _, _ in both if value is not None]
    return (
        max(values) if len(values) == 2 else None,
        max(low for _, low, _ in both),
        max(high for _, _, high in both),
    )


def uniform_deviation(
    counts: FloatArray,
    *,
    kind: str,
    outputs: int,
    radius: float,
    feature_bound: float,
    delta: float,
) -> tuple[float, FloatArray]:
    """Return M on the ball, and ``2cRX/√m + M√(log(2Z/δ)/(2m))`` per cell."""
    reach = radius * feature_bound
    if kind == "softmax":
        margin = math.sqrt(2.0) * reach
        M = float(np.logaddexp(0.0, math.log(outputs - 1.0) + margin))
        factor = math.sqrt(2.0) * math.sqrt(2.0 * outputs)
    else:
        M, factor = float(np.logaddexp(0.0, reach)), 1.0
    log_term = math.log(2.0 * len(counts) / delta)
    radius_term = 2.0 * factor * reach / np.sqrt(counts)
    return M, radius_term + M * np.sqrt(log_term / (2.0 * counts))
