"""Descent in w, ascent in weights on a simplex: AFL over silos, FedMinMax over cells.

min_w max_{λ ∈ simplex}  Σ_z λ_z L_z(w) + (ρ/2)‖w‖²
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pffl.methods.base import Count, NonNegative, Positive
from pffl.methods.local import Descent, DualStep
from pffl.problem import Problem
from pffl.typing import FloatArray

ANSWER_ROUNDS = 25  # until losses have answered to a step of their weights


@dataclass(frozen=True, kw_only=True)
class DescentAscent(Descent):
    """min_w max_{λ ∈ simplex} Σ_z λ_z L_z(w) by gradients, one of each a round.

    Parameters
    ----------
    dual_step_size
        η_λ; None takes √(2/T)/‖L‖ and then, for convex models, what the losses'
        answers to the last steps of λ allow. A step that is too long makes λ jump from
        corner to corner for ever.
    ridge
        Weight of (ridge/2)‖w‖² in the objective; None for the model's μ, 0 for none, as
        in the papers.
    """

    local_steps: Count = 1
    rounds: Count = 1000
    dual_step_size: Positive | None = None
    ridge: NonNegative | None = None

    def decay(self, problem: Problem) -> float:
        """Weight of (·/2)‖w‖²."""
        return problem.mu if self.ridge is None else self.ridge


class WeightStep(DualStep):
    """η_λ of weights on a simplex, looked at when losses have answered to the last."""

    caution = 0.2  # w is still on its way

    def __init__(self, method: DescentAscent, problem: Problem) -> None:
        super().__init__(
            method.rounds,
            method.dual_step_size,
            problem,
            lambda _, v: float(np.linalg.norm(v)),
        )
        self.calls = 0

    def first(self, r: FloatArray) -> float:
        """√2, the width of the simplex, over all rounds."""
        return math.sqrt(2 / self.rounds) / max(float(np.linalg.norm(r)), 1e-6)

    def largest(self, r: FloatArray) -> float:
        """Return a step across the whole simplex."""
        return 1.0 / max(float(np.ptp(r)), 1e-12)

    def __call__(self, theta: FloatArray, r: FloatArray) -> float:
        """Return η_λ after a round at these weights, with the losses at the w sent."""
        self.calls += 1
        if self.size is None or self.calls % ANSWER_ROUNDS == 1:
            return super().__call__(theta, r)
        return self.size
