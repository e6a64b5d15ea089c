"""The dual side of Algorithm 1: θ → λ, and one step of θ."""

from __future__ import annotations

from pffl.numerics import capped_softmax
from pffl.typing import FloatArray


def multipliers(theta: FloatArray, multiplier_bound: float) -> FloatArray:
    """Return ``λ_z = B e^{θ_z} / (1 + Σ e^θ)``: λ ≥ 0 and ‖λ‖₁ ≤ B.

    Reference: Algorithm 1, line 3.
    """
    return capped_softmax(theta, multiplier_bound)


def ascend(theta: FloatArray, violation: FloatArray, step_size: float) -> FloatArray:
    """Return ``θ + η_θ r(w)``. Reference: Algorithm 1, line 8."""
    return theta + step_size * violation
