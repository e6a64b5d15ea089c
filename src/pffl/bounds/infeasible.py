"""Proofs that no model of a ball meets the bounds, and the smallest bounds that do.

λ on the simplex is a **witness**: if ``λᵀr(w) > 0`` for every ‖w‖ ≤ R then in every
model some cell is above its bound. As λᵀr is convex, its tangent plane at any point
w₀ lies below it, and the minimum of a plane over a ball is known exactly:

    min_{‖w‖≤R} max_z r_z(w)  ≥  λᵀr(w₀) − gᵀw₀ − R‖g‖,     g = J(w₀)ᵀλ

r has no ridge term, so the ball is needed, and R belongs to the statement. Anyone
with the rows can re-compute λᵀr(w₀) and g: the witness needs no trust in the solver.

Reference: Boyd and Vandenberghe, section 5.8 (theorems of alternatives).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pffl.bounds.checks import Interval, Numbers, finite, nonnegative, refuse
from pffl.bounds.gap import lower_ball
from pffl.typing import FloatArray

#: Relative size of what rounding may explain: below it a witness proves nothing.
ROUNDING = 1e-10


def witness_bound(
    multipliers: Numbers,
    violation: Numbers,
    jacobian: Numbers,
    w: Numbers,
    radius: float,
) -> float:
    """Return a certified lower bound on ``min_{‖w‖≤R} max_z r_z(w)``.

    ``λᵀr(w₀) − gᵀw₀ − R‖g‖`` with ``g = Jᵀλ``, minus what rounding may explain.
    Positive: no model of the ball meets all bounds. With ζ = 0, so that r is the
    cells' mean loss, it is a lower bound on the smallest attainable common bound.

    Parameters
    ----------
    multipliers
        λ ≥ 0, not all zero; scaled here to sum to 1.
    violation, jacobian
        r(w₀), shape (Z,), and its derivative, shape (Z, p).
    w
        w₀, where they were measured.
    radius
        R of the declared ball.
    """
    lam = nonnegative("multipliers", multipliers)
    if not lam.sum() > 0:
        raise refuse("multipliers", "not all zero", multipliers)
    r, J, point = _expansion(violation, jacobian, w)
    return _plane(lam / lam.sum(), r, J, point, radius)


def proves_infeasible(bound: float) -> bool:
    """Say whether a `witness_bound` is a proof: it already carries its margin."""
    return float(finite("bound", bound)) > 0.0


def _expansion(
    violation: Numbers, jacobian: Numbers, w: Numbers
) -> tuple[FloatArray, FloatArray, FloatArray]:
    r, J = finite("violation", violation), finite("jacobian", jacobian)
    point = finite("w", w)
    if J.shape != (len(r), len(point)):
        raise refuse("jacobian", f"of shape {(len(r), len(point))}", J.shape)
    return r, J, point


def _plane(
    lam: FloatArray, r: FloatArray, J: FloatArray, point: FloatArray, radius: float
) -> float:
    g = J.T @ lam
    value = float(lam @ r)
    # r is a difference of numbers of order 1, mean loss and bound: hence the λᵀ1.
    size = float(lam @ (1.0 + np.abs(r))) + float(np.abs(g) @ np.abs(point))
    size += radius * float(np.linalg.norm(g))
    return lower_ball(value, g, point, radius) - ROUNDING * size


def attainable(lower: float, mean_loss: Numbers) -> Interval:
    """Enclose the smallest common bound: ``min_w max_z R_z(w)``.

    Parameters
    ----------
    lower
        `witness_bound` with ζ = 0 (r = mean loss); cut at 0, as losses are ≥ 0.
    mean_loss
        Mean loss per cell of a model of the ball: its worst cell shows that this
        much is attained.
    """
    worst = float(nonnegative("mean_loss", mean_loss).max())
    return Interval(min(max(0.0, lower), worst), worst)


def cell_lower(
    cell: int,
    multipliers: Numbers,
    violation: Numbers,
    jacobian: Numbers,
    *,
    bound: float,
    w: Numbers,
    radius: float,
) -> float:
    """Bound how low the mean loss of one cell can go with the other bounds kept.

    ``min R_c(w) s.t. r_z(w) ≤ 0 (z ≠ c), ‖w‖ ≤ R`` is at least
    ``ζ_c + r_c(w₀) + Σ_{z≠c} λ_z r_z(w₀) − gᵀw₀ − R‖g‖``, ``g = ∇r_c + Σ λ_z∇r_z``,
    for any λ ≥ 0 (weak duality). `bound` is ζ_c; λ_c is ignored.
    """
    r, J, point = _expansion(violation, jacobian, w)
    lam = nonnegative("multipliers", multipliers).copy()
    lam[cell] = 1.0
    return max(0.0, float(bound) + _plane(lam, r, J, point, radius))


def cell_attainable(
    cell: int, lower: float, mean_loss: Numbers, violation: Numbers
) -> Interval | None:
    """Enclose how low the bound of one cell can go with the other bounds kept.

    None if the model given does not keep the other bounds itself: then it does not
    show that anything is attained. Only `lower` is known in that case.
    """
    others = np.delete(finite("violation", violation), cell)
    if (others > 0).any():
        return None
    reached = float(nonnegative("mean_loss", mean_loss)[cell])
    return Interval(min(max(0.0, lower), reached), reached)


@dataclass(frozen=True)
class Witness:
    """What anyone needs to re-check a proof of infeasibility."""

    multipliers: FloatArray
    w: FloatArray
    radius: float
    bound: float

    @classmethod
    def of(
        cls,
        multipliers: Numbers,
        violation: Numbers,
        jacobian: Numbers,
        w: Numbers,
        radius: float,
    ) -> Witness:
        """Compute the bound of these multipliers and keep them with it."""
        lam = nonnegative("multipliers", multipliers)
        bound = witness_bound(lam, violation, jacobian, w, radius)
        return cls(lam / lam.sum(), finite("w", w), float(radius), bound)

    @property
    def proves(self) -> bool:
        """Whether no model with ‖w‖ ≤ R meets all bounds."""
        return proves_infeasible(self.bound)
