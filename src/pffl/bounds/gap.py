"""The duality gap of a pair (w, λ), from one value and one gradient.

For ``G(w; λ) = βF(w) + λᵀr(w)`` with λ ≥ 0 and ‖λ‖₁ ≤ B, weak duality gives

    min_v G(v; λ)  ≤  saddle value  ≤  max_λ G(w; λ) = βF(w) + B·max(0, max_z r_z(w))

The right side is measured. The left side is bounded from below by what convexity
says about all models, given the value and the gradient at one of them. The number
is therefore an upper bound of the true gap, whoever found the pair, and however.

Reference: Hu, Wu, Smith, *Fair Federated Learning via Bounded Group Loss*,
Theorem 1; Boyd and Vandenberghe, *Convex Optimization*, sections 5.4 and 9.1.2.
"""

from __future__ import annotations

import numpy as np

from pffl.bounds.checks import Numbers, finite, nonnegative, positive, refuse


def upper(
    risk: float, violation: Numbers, *, risk_weight: float, multiplier_bound: float
) -> float:
    """Return the most that any multipliers can charge this model.

    ``βF(w) + B·max(0, max_z r_z(w))``: the maximum of G(w; ·) over λ ≥ 0, ‖λ‖₁ ≤ B.

    Parameters
    ----------
    risk
        F(w), with its ridge term.
    violation
        r(w), one number per cell; may be empty.
    risk_weight
        β.
    multiplier_bound
        B.
    """
    worst = float(finite("violation", violation).max(initial=0.0))
    beta = float(nonnegative("risk_weight", risk_weight))
    budget = float(nonnegative("multiplier_bound", multiplier_bound))
    return beta * float(finite("risk", risk)) + budget * worst


def lower_strong(value: float, gradient: Numbers, modulus: float) -> float:
    """Bound min_v G(v) over **all** v, for G strongly convex.

    ``G(w) − ‖∇G(w)‖²/(2m)``, the minimum over v of
    ``G(w) + ∇G(w)ᵀ(v − w) + (m/2)‖v − w‖²``. Here m = βμ; the (β + B)μ of the paper
    is only an upper bound of the modulus.

    Reference: Boyd and Vandenberghe, equation (9.9).
    """
    m = positive("modulus", modulus)
    g = finite("gradient", gradient)
    return float(finite("value", value)) - float(g @ g) / (2.0 * m)


def lower_ball(
    value: float, gradient: Numbers, w: Numbers, radius: float, *, modulus: float = 0.0
) -> float:
    """Bound min G(v) over the declared ball ‖v‖ ≤ R.

    With modulus 0 it is ``G(w) − ∇G(w)ᵀw − R‖∇G(w)‖``, the exact minimum over the
    ball of the tangent plane, and never below the ``G − ‖∇G‖(R + ‖w‖)`` of the
    design. With modulus m > 0 it is the exact minimum of the tangent parabola: the
    value of `lower_strong` if its minimiser w − ∇G/m lies in the ball, else

        ``G(w) − ∇Gᵀw + m(‖w‖² + R²)/2 − R‖mw − ∇G‖``

    w itself need not lie in the ball.
    """
    g, point = finite("gradient", gradient), finite("w", w)
    if g.shape != point.shape:
        raise refuse("gradient", f"of the shape of w, {point.shape}", g.shape)
    m, R = float(nonnegative("modulus", modulus)), float(nonnegative("radius", radius))
    reach = float(np.linalg.norm(m * point - g))
    if m > 0 and reach <= m * R:
        return lower_strong(value, g, m)
    # Written without 1/m, so that it is continuous at m = 0.
    bend = 0.5 * m * (float(point @ point) + R * R)
    return float(finite("value", value)) - float(g @ point) + bend - R * reach


def lower(
    value: float,
    gradient: Numbers,
    w: Numbers,
    *,
    modulus: float,
    radius: float | None = None,
) -> float:
    """Bound min_v G(v) over the ball of `radius`, or over all models if it is None.

    All models need modulus > 0: a plane has no minimum (β = 0, or no ridge).
    """
    if radius is None:
        return lower_strong(value, gradient, modulus)
    return lower_ball(value, gradient, w, radius, modulus=modulus)


def gap(upper_value: float, *lower_values: float) -> float:
    """Return the duality gap ν: `upper_value` minus the best of the lower bounds.

    All lower bounds must speak of the same set of models (all of them, or one ball).
    Rounding may leave a value below zero at an exact saddle point: it is cut at zero.
    """
    if not lower_values:
        raise refuse("lower_values", "at least one number", lower_values)
    best = float(finite("lower_values", list(lower_values)).max())
    return max(0.0, float(finite("upper_value", upper_value)) - best)


def gap_unit(loss: float, unit: float) -> float:
    """Return what a gap is small beside: the unit of losses, or the loss at hand.

    The latter where it is much smaller, as where one wild value makes the unit; but not
    below a millionth of the unit, where rounding begins.
    """
    return min(max(10.0 * loss, 1e-6 * unit), unit)


def gap_of(upper_value: float, lower_value: float) -> float:
    """Return ν of two measured ends: their difference, at least what rounding hides."""
    rounding = 1e-15 * max(abs(upper_value), abs(lower_value))
    return max(upper_value - lower_value, rounding)
