"""What held-out rows say about unseen people: shares of δ, and Chernoff's bound.

It takes totals (count n, Σℓ) per cell and a loss bound M that was known before the rows
were seen, and is vectorised over cells. With probability at least 1 − δ over the draw
of the held-out rows, the mean loss of unseen people of the cell is below

    the largest q with n·kl(mean/M ‖ q/M) ≤ log(1/δ)

**Assumption.** Held-out rows are drawn like the unseen people and independently of
training. They may come from silos with different distributions: rows must be
independent, not identically distributed, and "unseen people" then means the mixture
of the silos with the shares that the cell has in the held-out rows. **Group sizes**
may be random: the bound holds conditionally on the counts, hence also without.

`logsum` has the bound that is tighter for most losses, and uses this one beside it.

Reference: Hoeffding 1963, theorem 1.
"""

from __future__ import annotations

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


def split_delta(delta: float, cells: int = 1, candidates: int = 1) -> float:
    """Return ``δ/(cells · candidates)``: the union bound.

    If the model was picked among s candidates by looking at the same held-out rows,
    each candidate gets 1/s of δ. Rows that nobody looked at need no such division.
    """
    parts = whole("cells", cells, least=1) * whole("candidates", candidates, least=1)
    return probability("delta", delta) / float(parts)


def _kl(p: FloatArray, q: FloatArray) -> FloatArray:
    """Relative entropy of Bernoulli p to Bernoulli q, with 0 log 0 = 0."""
    from scipy.special import rel_entr

    out: FloatArray = rel_entr(p, q) + rel_entr(1.0 - p, 1.0 - q)
    return out


def chernoff_upper(
    count: Numbers, total: Numbers, loss_bound: float, delta: float
) -> FloatArray:
    """Return the largest mean that the sample does not contradict at level δ.

    ``sup{q : n·kl(mean/M ‖ q/M) ≤ log(1/δ)}`` by bisection, rounded up; M for an empty
    cell. It shrinks with the mean, so a large M costs little.

    Reference: Hoeffding 1963, theorem 1 (also for independent, not identical rows).
    """
    n, s = np.broadcast_arrays(whole("count", count), nonnegative("total", total))
    M = positive("loss_bound", loss_bound)
    if (s > n * M * (1.0 + 1e-9)).any():
        raise refuse("total", "at most count · loss_bound", total)
    budget = -np.log(probability("delta", delta)) / np.maximum(n, 1.0)
    p = np.clip(s / (np.maximum(n, 1.0) * M), 0.0, 1.0)
    low, high = p.copy(), np.ones_like(p)
    for _ in range(60):
        middle = 0.5 * (low + high)
        inside = _kl(p, middle) <= budget
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.where(n > 0, M * high, M)
