"""How curvature will change along the next step, learnt from the last one.

A logistic loss flattens as it is fitted; Newton's method, which believes that curvature
stays, then takes many short steps. Two Hessians of G(·; λ) tell more. In the basis V in
which both are diagonal,  Vᵀ H_before V = I  and  Vᵀ H_here V = diag(κ):  while
coordinate i moved by a_i, its curvature changed by the factor κ_i. If it goes on like
that, then after a step b_i = t_i a_i it is κ_i^{t_i}, and its mean on the way is

    θ_i = (κ_i^{t_i} − 1) / (t_i log κ_i).

The model is solved again with curvature θ_i in direction i. It stays convex, its value
and slope at w stay exact, and θ → 1 as steps become short: quadratic convergence is
kept, and slow phases are left in few rounds. After a step that went too far, the way
back has t < 0, and the same formula interpolates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.linalg import LinAlgError

from pffl.problem import Expansion, Problem
from pffl.typing import FloatArray

STEEPEST = 1e6  # κ and 1/κ: larger changes say nothing about the next step


@dataclass(frozen=True, eq=False)
class Forecast:
    """A trend of the curvature of G(·; λ) per direction."""

    directions: FloatArray  # V, (p, p)
    coordinates: FloatArray  # V⁻¹
    log_factors: FloatArray  # log κ
    last: FloatArray  # a

    def mean_curvature(self, d: FloatArray, farthest: float) -> FloatArray:
        """Return θ for the step d; the trend is followed for −1 ≤ t ≤ `farthest`."""
        ahead, last = self.coordinates @ d, self.last
        moved = np.abs(last) > 1e-9 * np.abs(last).max(initial=0.0)
        t = np.divide(ahead, last, out=np.zeros_like(ahead), where=moved)
        exponent = np.clip(t, -1.0, farthest) * self.log_factors
        small = np.abs(exponent) < 1e-6
        safe = np.where(small, 1.0, exponent)
        return np.where(small, 1.0, np.expm1(safe) / safe)

    def basis(self, theta: FloatArray) -> FloatArray:
        """Return V diag(θ)^{-1/2} V⁻¹: unit curvature there is curvature θ here."""
        return (self.directions / np.sqrt(theta)) @ self.coordinates


def forecast(
    here: Expansion, before: Expansion, multipliers: FloatArray, problem: Problem
) -> Forecast | None:
    """Compare the Hessians of G(·; λ), without ridge, at two points."""
    from scipy.linalg import eigh

    if not np.any(here.w != before.w):
        return None
    now = _loss_hessian(here, multipliers, problem)
    then = _loss_hessian(before, multipliers, problem)
    diagonal = np.diag(then)
    floor = 1e-9 * (diagonal + float(diagonal.mean()))
    if not floor.max(initial=0.0) > 0:
        return None
    then = then + np.diag(floor)
    try:
        kappa, directions = eigh(now + np.diag(floor), then, check_finite=False)
    except LinAlgError:
        return None
    coordinates = directions.T @ then
    return Forecast(
        directions,
        coordinates,
        np.log(np.clip(kappa, 1.0 / STEEPEST, STEEPEST)),
        coordinates @ (here.w - before.w),
    )


def _loss_hessian(
    at: Expansion, multipliers: FloatArray, problem: Problem
) -> FloatArray:
    """Return ∇²G(w; λ) without the ridge, which never changes."""
    hessian = problem.risk_weight * at.risk_hessian
    hessian = hessian + np.tensordot(multipliers, at.hessians, axes=1)
    return np.asarray(hessian - problem.modulus * np.eye(len(at.w)))
