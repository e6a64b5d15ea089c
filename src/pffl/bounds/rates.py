"""Error rates and fairness metrics of unseen people, from counts.

A rate is k of n held-out rows (errors; predicted positive; …). Clopper and Pearson's
bounds are exact: they invert the binomial distribution, without an approximation.
ΔDP, ΔEO and equalised odds are the spread of a rate over groups, largest minus
smallest; if every rate lies in its interval, so does the spread.

A group without rows has an undefined rate. It is reported, the point estimate is
None, and the interval still counts that group as anything between 0 and 1.

Rows of different silos are independent but not identical, and then the binomial tail is
an upper bound only for k ≤ np − 1 (Hoeffding 1956). For δ ≤ 1/4 the one place where
the bounds of Clopper and Pearson need the other case is k = n − 1 (k = 1 below); there
``Pr[any success] ≤ np`` replaces ``1 − (1 − p)ⁿ``, which costs at most δ²/n.

Reference: Clopper and Pearson, *Biometrika* 26, 1934; Hoeffding, *Ann. Math. Stat.*
27, 1956, theorem 4; Greenberg and Mohri, *Stat. Probab. Lett.* 86, 2014.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pffl.bounds.checks import Interval, Numbers, probability, refuse, whole
from pffl.typing import FloatArray


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


@dataclass(frozen=True)
class Spread:
    """Largest minus smallest rate over groups, with what is known of it.

    Attributes
    ----------
    value
        The spread in the held-out rows; None if a group has no rows.
    interval
        Holds the spread among unseen people with probability ≥ 1 − δ.
    undefined
        Indices of the groups without rows.
    """

    value: float | None
    interval: Interval
    undefined: tuple[int, ...]


def spread(events: Numbers, count: Numbers, *, delta: float) -> Spread:
    """Enclose ``max_a p_a − min_a p_a`` with probability ≥ 1 − δ.

    Each of the A rates gets a two-sided interval [l_a, u_a] at δ/A (δ/(2A) a side).
    The spread is at least ``max l − min u`` and at most ``max_{a≠b} u_a − l_b``.
    With a single group it is 0.
    """
    k, n = _events(events, count)
    if k.ndim != 1 or not len(k):
        raise refuse("events", "one number per group", events)
    side = probability("delta", delta) / (2.0 * len(k))
    low = clopper_pearson_lower(k, n, delta=side)
    high = clopper_pearson_upper(k, n, delta=side)
    missing = np.flatnonzero(n == 0)
    rates = k / np.maximum(n, 1.0)
    value = None if len(missing) else float(rates.max() - rates.min())
    return Spread(value, _spread_interval(low, high), tuple(missing.tolist()))


def _spread_interval(low: FloatArray, high: FloatArray) -> Interval:
    pairs = high[:, None] - low[None, :]
    np.fill_diagonal(pairs, 0.0)
    least = max(0.0, float(low.max() - high.min()))
    return Interval(least, max(least, float(pairs.max())))


def demographic_parity(positives: Numbers, count: Numbers, *, delta: float) -> Spread:
    """Enclose ΔDP: the spread of ``Pr[ŷ = 1 | a]``.

    Parameters
    ----------
    positives, count
        Predicted positive and all, per (group, label), shape (A, labels).
    delta
        Probability of being wrong.
    """
    k, n = _tables(positives, count)
    return spread(k.sum(axis=1), n.sum(axis=1), delta=delta)


def equal_opportunity(
    positives: Numbers, count: Numbers, *, delta: float, label: int = 1
) -> Spread:
    """Enclose ΔEO: the spread of ``Pr[ŷ = 1 | a, y = 1]``; arrays as in ΔDP."""
    k, n = _tables(positives, count)
    return spread(k[:, label], n[:, label], delta=delta)


def equalised_odds(positives: Numbers, count: Numbers, *, delta: float) -> Spread:
    """Enclose the larger of the spreads of ``Pr[ŷ = 1 | a, y]`` over labels y.

    As fairlearn's `equalized_odds_difference` with the worst case over labels; δ is
    divided among the labels. `undefined` lists groups without rows of some label.
    """
    k, n = _tables(positives, count)
    labels = range(k.shape[1])
    part = probability("delta", delta) / len(labels)
    parts = [spread(k[:, y], n[:, y], delta=part) for y in labels]
    values = [one.value for one in parts if one.value is not None]
    interval = Interval(
        max(one.interval.lower for one in parts),
        max(one.interval.upper for one in parts),
    )
    missing = sorted({a for one in parts for a in one.undefined})
    value = max(values) if len(values) == len(parts) else None
    return Spread(value, interval, tuple(missing))


def _tables(positives: Numbers, count: Numbers) -> tuple[FloatArray, FloatArray]:
    k, n = _events(positives, count)
    if k.ndim != 2:
        raise refuse("positives", "of shape (groups, labels)", k.shape)
    return k, n
