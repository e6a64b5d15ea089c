"""What training rows say about unseen people, for all models of a ball at once.

The model was fitted to the training rows, so the bound must hold for every model that
might have come out. For linear models in a ball, with probability at least 1 − δ, for
all cells z and all ‖w‖ ≤ R at once,

    |E ℓ − mean_z ℓ|  ≤  2·Rad_z + M·√(log(2Z/δ)/(2m_z)),     Rad_z ≤ c·R·X/√m_z

with ‖x‖ ≤ X for every person and c the Lipschitz constant of the loss in the score
(1 for logistic). It is often vacuous (above M), and is shown all the same. Least
squares has the same form with c = 2(RX + Y).

The paper's Propositions 1 and 2 print another term; `printed_term` has it, for
comparison only. It is **not valid**: it falls as 1/m instead of 1/√m.

Reference: Bartlett and Mendelson, JMLR 3, 2002; Mohri, Rostamizadeh and Talwalkar,
*Foundations of Machine Learning*, theorem 3.3 and lemma 5.7; Maurer, *A
vector-contraction inequality*, ALT 2016, for several outputs.
"""

from __future__ import annotations

import numpy as np

from pffl.bounds.checks import (
    Numbers,
    nonnegative,
    positive,
    probability,
    whole,
)
from pffl.typing import FloatArray


def contraction(lipschitz: float, outputs: int = 1) -> float:
    """Return the factor that a loss puts before the complexity of the scores.

    The Lipschitz constant L of the loss for one score; ``√2·L·√C`` for C scores
    (softmax: L = √2), by vector contraction.
    """
    L = float(nonnegative("lipschitz", lipschitz))
    C = float(whole("outputs", outputs, least=1))
    return L if C == 1 else L * float(np.sqrt(2.0 * C))


def rademacher_ball(
    count: Numbers, *, radius: float, feature_bound: float, factor: float = 1.0
) -> FloatArray:
    """Return ``c·R·X/√m``: the complexity of the ball, before the rows are seen."""
    size = float(nonnegative("factor", factor)) * float(nonnegative("radius", radius))
    X = float(nonnegative("feature_bound", feature_bound))
    return size * X / np.sqrt(whole("count", count, least=1))


def rademacher_rows(
    count: Numbers, squared_norms: Numbers, *, radius: float, factor: float = 1.0
) -> FloatArray:
    """Return ``c·R·√(Σ‖x‖²)/m``: the complexity of the ball on these rows."""
    size = float(nonnegative("factor", factor)) * float(nonnegative("radius", radius))
    total = nonnegative("squared_norms", squared_norms)
    m = whole("count", count, least=1)
    return np.asarray(size * np.sqrt(total) / m)


def mcdiarmid(count: Numbers, loss_bound: float, delta: float) -> FloatArray:
    """Return ``M·√(log(1/δ)/(2m))``: how far a supremum strays from its mean."""
    log_term = -np.log(probability("delta", delta))
    m = whole("count", count, least=1)
    return np.asarray(
        positive("loss_bound", loss_bound) * np.sqrt(log_term / (2.0 * m))
    )


def deviation(
    count: Numbers,
    *,
    radius: float,
    feature_bound: float,
    loss_bound: float,
    delta: float,
    factor: float = 1.0,
) -> FloatArray:
    """Return ``2cRX/√m_z + M√(log(2Z/δ)/(2m_z))`` for all Z cells and both sides.

    Parameters
    ----------
    count
        m, one number per cell, all of them at least 1, shape (Z,).
    radius, feature_bound
        R and X, declared.
    loss_bound
        M on the ball, for example `loss_bounds.loss_bound_linear`.
    delta
        Probability of being wrong, over all cells together.
    factor
        c, see `contraction`.
    """
    m = whole("count", count, least=1)
    complexity = rademacher_ball(
        m, radius=radius, feature_bound=feature_bound, factor=factor
    )
    part = probability("delta", delta) / (2.0 * m.size)
    return 2.0 * complexity + mcdiarmid(m, loss_bound, part)


def deviation_rows(
    count: Numbers,
    squared_norms: Numbers,
    *,
    radius: float,
    feature_bound: float,
    loss_bound: float,
    delta: float,
    factor: float = 1.0,
) -> FloatArray:
    """Return the bound that uses the rows' own norms, for the upper side only.

    ``2cR√(Σ‖x‖²)/m_z + (M + 2cRX)·√(log(2Z/δ)/(2m_z))``. √(Σ‖x‖²) moves by at most X
    when one row changes, so McDiarmid brings it to its mean at the price of the
    second term. Better than `deviation` where most rows are far shorter than X.
    """
    m = whole("count", count, least=1)
    complexity = rademacher_rows(m, squared_norms, radius=radius, factor=factor)
    part = probability("delta", delta) / (2.0 * m.size)
    change = positive("loss_bound", loss_bound) + 2.0 * factor * radius * float(
        nonnegative("feature_bound", feature_bound)
    )
    return 2.0 * complexity + mcdiarmid(m, change, part)


def upper_bounds(mean: Numbers, deviation: Numbers, loss_bound: float) -> FloatArray:
    """Return ``min(mean + deviation, M)``; M says "vacuous"."""
    M = positive("loss_bound", loss_bound)
    total = nonnegative("mean", mean) + nonnegative("deviation", deviation)
    return np.minimum(total, M)


def printed_term(
    count: Numbers, loss_bound: float, *, silos: int, cells: int, delta: float
) -> FloatArray:
    """Return the paper's term ``(M/m_a)·√((K/2)·log(2|A|/δ))``, which is not valid.

    To be shown only with the words "as printed, not valid". With a fixed predictor it
    failed in 95–99 % of the draws at δ = 0.05.

    Reference: Hu, Wu, Smith, Propositions 1 and 2.
    """
    K = float(whole("silos", silos, least=1))
    A = float(whole("cells", cells, least=1))
    log_term = np.log(2.0 * A / probability("delta", delta))
    M = positive("loss_bound", loss_bound)
    m = whole("count", count, least=1)
    return np.asarray(M / m * np.sqrt(0.5 * K * log_term))


# Loss bounds M that are known before any row is seen. The largest loss in the data is
# not M: the next person may have a larger one. M comes from a bound on the score, and
# that from a bound on the model and one on the inputs of *every* person, seen or not.


def score_bound_ball(radius: float, feature_bound: float) -> float:
    """Return ``R·X ≥ |wᵀx|`` for ‖w‖ ≤ R and ‖x‖ ≤ X (Cauchy and Schwarz)."""
    R = float(nonnegative("radius", radius))
    return R * float(nonnegative("feature_bound", feature_bound))


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
