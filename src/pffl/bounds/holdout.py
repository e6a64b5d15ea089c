"""What held-out rows say about unseen people: confidence bounds on a mean loss.

All functions take totals (count n, Σℓ, Σℓ²) per cell and a loss bound M that was
known before the rows were seen; they are vectorised over cells. With probability at
least 1 − δ over the draw of the held-out rows, the mean loss of unseen people of the
cell is below the bound returned:

    hoeffding   mean + M·√(log(1/δ)/(2n))
    chernoff    the largest q with n·kl(mean/M ‖ q/M) ≤ log(1/δ): never above hoeffding
    bernstein   mean + √(2V log(2/δ)/n) + 7M log(2/δ)/(3(n − 1)), V the sample variance
    combined    the smaller of chernoff and bernstein, each at δ/2

**Assumption.** Held-out rows are drawn like the unseen people and independently of
training. They may come from silos with different distributions: rows must be
independent, not identically distributed, and "unseen people" then means the mixture
of the silos with the shares that the cell has in the held-out rows. **Group sizes**
may be random: every bound holds conditionally on the counts, hence also without.

A loss without a bound (logistic loss of a network) is clipped: if the sums are of
min(ℓ, M), the statement is about the mean of min(ℓ, M), and must say so.

Reference: Hoeffding 1963, theorems 1 and 2; Maurer and Pontil, *Empirical Bernstein
Bounds and Sample Variance Penalization*, COLT 2009, theorem 4, and theorem 11 for rows
that are independent, but not alike.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

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

Method: TypeAlias = Literal["hoeffding", "chernoff", "bernstein", "combined"]
METHODS: tuple[Method, ...] = get_args(Method)


def split_delta(delta: float, cells: int = 1, candidates: int = 1) -> float:
    """Return ``δ/(cells · candidates)``: the union bound.

    If the model was picked among s candidates by looking at the same held-out rows,
    each candidate gets 1/s of δ. A fresh split needs no such division.
    """
    parts = whole("cells", cells, least=1) * whole("candidates", candidates, least=1)
    return probability("delta", delta) / float(parts)


def sample_variance(count: Numbers, total: Numbers, squares: Numbers) -> FloatArray:
    """Return ``V = (Σℓ² − (Σℓ)²/n)/(n − 1)``, rounded up; 0 for fewer than two rows.

    The difference cancels when losses are nearly equal, and a variance that is too
    small makes a bound that is too good: what rounding can hide is added back.
    """
    n, s, sq = np.broadcast_arrays(
        whole("count", count),
        nonnegative("total", total),
        nonnegative("squares", squares),
    )
    safe = np.maximum(n, 2.0)
    rounding = 4.0 * np.finfo(np.float64).eps * np.sqrt(safe) * sq
    spread = np.maximum(sq - s * (s / safe), 0.0) + rounding
    return np.where(n >= 2, spread / (safe - 1.0), 0.0)


def hoeffding_radius(count: Numbers, loss_bound: float, delta: float) -> FloatArray:
    """Return ``M·√(log(1/δ)/(2n))``; M for an empty cell.

    Reference: Hoeffding 1963, theorem 2.
    """
    n = whole("count", count)
    M, log_term = (
        positive("loss_bound", loss_bound),
        -np.log(probability("delta", delta)),
    )
    return np.where(n > 0, M * np.sqrt(log_term / (2.0 * np.maximum(n, 1.0))), M)


def bernstein_radius(
    count: Numbers, variance: Numbers, loss_bound: float, delta: float
) -> FloatArray:
    """Return ``√(2V log(2/δ)/n) + 7M log(2/δ)/(3(n − 1))``; M for fewer than 2 rows.

    Reference: Maurer and Pontil 2009, theorem 4, scaled from [0, 1] to [0, M].
    """
    n, V = whole("count", count), nonnegative("variance", variance)
    M, log_term = (
        positive("loss_bound", loss_bound),
        np.log(2.0 / probability("delta", delta)),
    )
    safe = np.maximum(n, 2.0)
    spread = np.sqrt(2.0 * V * log_term / safe)
    return np.where(n >= 2, spread + 7.0 * M * log_term / (3.0 * (safe - 1.0)), M)


def _kl(p: FloatArray, q: FloatArray) -> FloatArray:
    """Relative entropy of Bernoulli p to Bernoulli q, with 0 log 0 = 0."""
    from scipy.special import rel_entr

    out: FloatArray = rel_entr(p, q) + rel_entr(1.0 - p, 1.0 - q)
    return out


def chernoff_upper(
    count: Numbers, total: Numbers, loss_bound: float, delta: float
) -> FloatArray:
    """Return the largest mean that the sample does not contradict at level δ.

    ``sup{q : n·kl(mean/M ‖ q/M) ≤ log(1/δ)}`` by bisection, rounded up. Unlike
    Hoeffding's radius it shrinks with the mean, so a large M costs little.

    Reference: Hoeffding 1963, theorem 1 (also for independent, not identical rows).
    """
    n, s = np.broadcast_arrays(whole("count", count), nonnegative("total", total))
    M = positive("loss_bound", loss_bound)
    budget = -np.log(probability("delta", delta)) / np.maximum(n, 1.0)
    p = np.clip(s / (np.maximum(n, 1.0) * M), 0.0, 1.0)
    low, high = p.copy(), np.ones_like(p)
    for _ in range(60):
        middle = 0.5 * (low + high)
        inside = _kl(p, middle) <= budget
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.where(n > 0, M * high, M)


def upper_bounds(
    count: Numbers,
    total: Numbers,
    squares: Numbers,
    *,
    loss_bound: float,
    delta: float,
    method: Method = "combined",
) -> FloatArray:
    """Return, per cell, a bound on the mean loss of unseen people.

    Each entry holds with probability ≥ 1 − δ **by itself**; for all cells at once,
    and after a choice among candidates, pass ``split_delta(δ, cells, candidates)``.
    A bound is cut at M, which holds without any data: M means "vacuous".

    Parameters
    ----------
    count, total, squares
        n, Σℓ and Σℓ² per cell, with 0 ≤ ℓ ≤ M.
    loss_bound
        M, known without the held-out rows.
    delta
        Probability of being wrong.
    method
        Chosen before the rows were seen, for example by `choose_method`.
    """
    n, s, V, M = _totals(count, total, squares, loss_bound)
    return _upper(n, s, V, M, delta, method)


def lower_bounds(
    count: Numbers,
    total: Numbers,
    squares: Numbers,
    *,
    loss_bound: float,
    delta: float,
    method: Method = "combined",
) -> FloatArray:
    """Return, per cell, what the mean loss of unseen people is at least.

    `upper_bounds` of M − ℓ, turned round; the variance is the same.
    """
    n, s, V, M = _totals(count, total, squares, loss_bound)
    return M - _upper(n, np.maximum(n * M - s, 0.0), V, M, delta, method)


def _upper(
    n: FloatArray,
    s: FloatArray,
    V: FloatArray,
    M: float,
    delta: float,
    method: Method,
) -> FloatArray:
    mean = s / np.maximum(n, 1.0)
    if method == "hoeffding":
        bound = mean + hoeffding_radius(n, M, delta)
    elif method == "chernoff":
        bound = chernoff_upper(n, s, M, delta)
    elif method == "bernstein":
        bound = mean + bernstein_radius(n, V, M, delta)
    elif method == "combined":
        half = 0.5 * probability("delta", delta)
        spread = bernstein_radius(n, V, M, half)
        bound = np.minimum(chernoff_upper(n, s, M, half), mean + spread)
    else:
        raise refuse("method", f"one of {METHODS}", method)
    return np.minimum(np.where(n > 0, bound, M), M)


def _totals(
    count: Numbers, total: Numbers, squares: Numbers, loss_bound: float
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Refuse impossible totals: a loss sum outside [0, nM] is not a loss sum."""
    M, slack = positive("loss_bound", loss_bound), 1.0 + 1e-9
    n, s, sq = np.broadcast_arrays(
        whole("count", count),
        nonnegative("total", total),
        nonnegative("squares", squares),
    )
    if (s > n * M * slack).any():
        raise refuse("total", "at most count · loss_bound (clip the loss)", total)
    if (sq > M * s * slack).any() or (sq * n * slack < s * s).any():
        raise refuse("squares", "in [total²/count, loss_bound · total]", squares)
    return n, s, sample_variance(n, s, sq), M


def choose_method(
    count: float,
    *,
    loss_bound: float,
    delta: float,
    planned_mean: float | None = None,
    planned_deviation: float | None = None,
) -> Method:
    """Choose the bound for a cell without looking at its held-out losses.

    The rule may use the number of rows, M, δ, and what *training* rows suggest for
    the mean and the standard deviation: all independent of the held-out losses, so
    the bound chosen keeps its level. With planned figures it predicts both bounds and
    takes the smaller. Without: "chernoff" where Bernstein's last term alone is wider
    than Hoeffding's radius, else "combined", which pays for both.
    """
    n, M = whole("count", count), positive("loss_bound", loss_bound)
    if planned_mean is None or planned_deviation is None:
        least = bernstein_radius(n, 0.0, M, 0.5 * delta)
        hopeless = bool(least >= hoeffding_radius(n, M, delta))
        return "chernoff" if hopeless else "combined"
    mean = min(float(nonnegative("planned_mean", planned_mean)), M)
    V = float(nonnegative("planned_deviation", planned_deviation)) ** 2
    chernoff = float(chernoff_upper(n, n * mean, M, delta))
    bernstein = mean + float(bernstein_radius(n, V, M, delta))
    return "chernoff" if chernoff <= bernstein else "bernstein"
