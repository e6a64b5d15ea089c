"""The numerically delicate primitives, in one place, each with its reason."""

from __future__ import annotations

import numpy as np

from pffl.typing import BoolArray, FloatArray


def is_number(value: object) -> bool:
    """Whether a value is a finite real number (and not True, nor text)."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return False
    try:
        return bool(np.isreal(value) and np.isfinite(float(value)))
    except OverflowError:  # a whole number beyond any float
        return False


def divisors(weights: FloatArray) -> FloatArray:
    """Return weights to divide by: 1 for empty cells, whose sums are 0."""
    return np.where(weights > 0, weights, 1.0)


def capped_softmax(theta: FloatArray, total: float) -> FloatArray:
    """Map θ to ``total · exp(θ_z) / (1 + Σ exp(θ))``, safe for any finite θ.

    The exponent is shifted by max(0, max θ): an unshifted one is NaN at θ = 800.

    >>> capped_softmax(np.array([1e6, -1e6]), 5.0)
    array([5., 0.])
    """
    shift = max(0.0, float(theta.max(initial=0.0)))
    exponentials = np.exp(theta - shift)
    return total * exponentials / (np.exp(-shift) + exponentials.sum())


def project_simplex(v: FloatArray, total: float = 1.0) -> FloatArray:
    """Euclidean projection on ``{x ≥ 0, Σx = total}``.

    >>> project_simplex(np.array([0.9, 0.5]))
    array([0.7, 0.3])
    """
    u = np.sort(v)[::-1]
    excess = (total - np.cumsum(u)) / np.arange(1, len(u) + 1)
    rho = int(np.flatnonzero(u + excess > 0)[-1])
    return np.maximum(v + excess[rho], 0.0)


def project_capped_simplex(v: FloatArray, total: float) -> FloatArray:
    """Euclidean projection on ``{x ≥ 0, Σx ≤ total}``."""
    clipped = np.maximum(v, 0.0)
    return clipped if clipped.sum() <= total else project_simplex(v, total)


def logistic_losses(scores: FloatArray, labels: FloatArray) -> FloatArray:
    """Return ``log(1 + exp(z)) − y·z`` without overflow, for y in [0, 1].

    Written as max(z, 0) − y z + log1p(exp(−|z|)): no exponent is ever positive.
    """
    return np.maximum(scores, 0.0) - labels * scores + np.log1p(np.exp(-np.abs(scores)))


def logistic_losses_and_slopes(
    scores: FloatArray, labels: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the logistic losses and their slopes σ(z) − y from one exponential."""
    e = np.abs(scores)
    np.negative(e, out=e)
    np.exp(e, out=e)
    losses = np.log1p(e)
    losses += np.maximum(scores, 0.0)
    losses -= labels * scores
    # σ(|z|) = 1/(1+e) and σ(−|z|) = e/(1+e): neither cancels.
    numerator = np.where(scores > 0, 1.0, e)
    e += 1.0
    numerator /= e
    numerator -= labels
    return losses, numerator


def sigmoid(scores: FloatArray) -> FloatArray:
    """Return ``1 / (1 + exp(−z))``; where the exponential overflows, that is 0."""
    with np.errstate(over="ignore"):
        out = np.negative(scores)
        np.exp(out, out=out)
        out += 1.0
        np.reciprocal(out, out=out)
    return out


def bounded_log_losses(losses: FloatArray, bound: float, classes: int) -> FloatArray:
    """Return −log of the labels' probabilities after `bounded_probabilities`.

    A label's probability is e^−ℓ. Of two classes the losses themselves are clipped. Of
    more it is in logarithms: max(·, −M) is inside `logaddexp`, so no loss is above M.
    """
    if classes == 2:
        return np.clip(losses, -np.log1p(-np.exp(-bound)), bound)
    kept = np.log1p(-classes * np.exp(-bound))
    return np.clip(-np.logaddexp(kept - losses, -bound), 0.0, bound)


def smallest_probability(bound: float) -> float:
    """Return e⁻ᴹ, rounded up so that −log of it is at most M."""
    found = max(np.exp(-bound), np.finfo(np.float64).tiny)
    while -np.log(found) > bound:
        found = np.nextafter(found, 1.0)
    return float(found)


def bounded_probabilities(p: FloatArray, bound: float) -> FloatArray:
    """Return class probabilities with no −log above `bound`, shape (n, classes).

    Two are clipped to [e⁻ᴹ, 1 − e⁻ᴹ]; more are mixed: p′ = (1 − C·e⁻ᴹ)p + e⁻ᴹ.
    """
    least, classes = smallest_probability(bound), p.shape[1]
    if classes == 2:
        return np.clip(p, least, 1.0 - least)
    return np.maximum((1.0 - classes * least) * p + least, least)


def log_softmax(scores: FloatArray) -> FloatArray:
    """Row-wise log-softmax with shifted exponents."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def row_lengths(rows: FloatArray) -> FloatArray:
    """Return the length of each row, which depends on no other row, to the last bit.

    Column by column: sums along rows can depend on where rows stand in memory.
    """
    squares = np.zeros(len(rows))
    for column in rows.T:
        squares += column * column
    return np.sqrt(squares)


def front(values: FloatArray) -> BoolArray:
    """Mark the rows of `values`, shape (n, 2), that no other row beats.

    Smaller is better. A row is beaten if another is at least as small in both columns
    and smaller in one. Of equal rows the first is kept; rows with NaN are never on it.

    >>> front(np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 4.0], [np.nan, 0.0]]))
    array([ True,  True, False, False])
    """
    mark = np.zeros(len(values), dtype=bool)
    known = np.flatnonzero(~np.isnan(values).any(axis=1))
    order = known[np.lexsort((values[known, 1], values[known, 0]))]
    lowest = np.inf
    for index in order:
        if values[index, 1] < lowest:
            lowest = values[index, 1]
            mark[index] = True
    return mark
