"""Loss bounds M that are known before any row is seen.

The largest loss in the data is not M: the next person may have a larger one. M comes
from a bound on the score, and that from a bound on the model and one on the inputs
of *every* person, seen or not. For a model that is already fixed, its own norm (or
its own weights with the range of each input) may stand for the radius of the ball.
The intercept counts: with one, the inputs include the constant 1.
"""

from __future__ import annotations

import numpy as np

from pffl.certificates._checks import Numbers, finite, nonnegative, refuse, whole


def score_bound_ball(radius: float, feature_bound: float) -> float:
    """Return ``R·X ≥ |wᵀx|`` for ‖w‖ ≤ R and ‖x‖ ≤ X (Cauchy and Schwarz)."""
    R = float(nonnegative("radius", radius))
    return R * float(nonnegative("feature_bound", feature_bound))


def score_bound_box(
    w: Numbers, low: Numbers, high: Numbers, *, intercept: float = 0.0
) -> float:
    """Return the largest ``|wᵀx + b|`` over ``low ≤ x ≤ high``, for one fixed model.

    The inputs' ranges come from what they mean (an age, a share, a one-hot code), or
    from clipping every input, of unseen people too; not from the rows.
    """
    weights, lo, hi = finite("w", w), finite("low", low), finite("high", high)
    if (lo > hi).any():
        raise refuse("low", "at most 'high'", (low, high))
    ends = np.stack([weights * lo, weights * hi])
    b = float(finite("intercept", intercept))
    return max(
        abs(float(ends.max(axis=0).sum()) + b), abs(float(ends.min(axis=0).sum()) + b)
    )


def logistic_loss_bound(score_bound: float) -> float:
    """Return ``log(1 + e^s)``, the largest logistic loss with |score| ≤ s."""
    return float(np.logaddexp(0.0, float(nonnegative("score_bound", score_bound))))


def loss_bound_linear(radius: float, feature_bound: float) -> float:
    """Return ``M = log(1 + e^{RX})`` for logistic regression on a ball.

    >>> round(loss_bound_linear(0.0, 5.0), 6)
    0.693147
    """
    return logistic_loss_bound(score_bound_ball(radius, feature_bound))


def softmax_loss_bound(radius: float, feature_bound: float, classes: int) -> float:
    """Return ``log(1 + (C − 1)e^{√2·RX})`` for softmax regression, ‖W‖_F ≤ R.

    ``z_c − z_y = (w_c − w_y)ᵀx ≤ ‖w_c − w_y‖·‖x‖ ≤ √2·‖W‖_F·‖x‖``.
    """
    others = float(whole("classes", classes, least=2)) - 1.0
    margin = np.sqrt(2.0) * score_bound_ball(radius, feature_bound)
    return float(np.logaddexp(0.0, np.log(others) + margin))


def squared_loss_bound(score_bound: float, target_bound: float) -> float:
    """Return ``(s + Y)²``, the largest ``(z − y)²`` with |z| ≤ s and |y| ≤ Y."""
    s = float(nonnegative("score_bound", score_bound))
    return (s + float(nonnegative("target_bound", target_bound))) ** 2
