"""Rates of unseen people, from counts.

A rate is k of n held-out rows (errors; predicted positive; …). Clopper and Pearson's
bounds are exact: they invert the binomial distribution, without an approximation. Of a
group without rows it may be anything between 0 and 1.

Rows of different silos are independent but not identical, and then the binomial tail is
an upper bound only for k ≤ np − 1 (Hoeffding 1956). For δ ≤ 1/4 the one place where
the bounds of Clopper and Pearson need the other case is k = n − 1 (k = 1 below); there
``Pr[any success] ≤ np`` replaces ``1 − (1 − p)ⁿ``, which costs at most δ²/n.

Reference: Clopper and Pearson, *Biometrika* 26, 1934; Hoeffding, *Ann. Math. Stat.*
27, 1956, theorem 4; Greenberg and Mohri, *Stat. Probab. Lett.* 86, 2014.
"""

from __future__ import annotations

import numpy as np

from pffl.bounds.checks import Numbers, probability, refuse, whole
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
