"""FedMinMax: the worst group's loss as small as possible, by descent and ascent.

Afroditi Papadaki, Natalia Martinez, Martin Bertran, Guillermo Sapiro, Miguel Rodrigues.
*Minimax Demographic Group Fairness in Federated Learning*, 2022, Algorithm 1. The
groups are the constraint's cells; its bounds play no part.

    min_w max_{μ ∈ simplex}  Σ_a μ_a L_a(w)          L_a = (1/m_a) Σ_{i∈a} ℓ_i

    1  w ← 0, μ_a ← ρ_a = m_a/m
    2  for t = 1 … T:
    3      each silo: a gradient step on (1/m_k) Σ_{i∈k} ω_{a_i} ℓ_i, ω_a = μ_a/ρ_a
    4      w ← Σ_k (m_k/m) w_k
    5      L_a ← Σ_k Σ_{i∈k∩a} ℓ_i / m_a, at the w that was sent
    6      μ ← projection of μ + η_μ L on the simplex
    7  return w

Lines 3 and 4 are one gradient step on Σ μ_a L_a, whatever the weights p_k of the silos:
the problem's are used. More local steps are possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pffl.errors import UsageError
from pffl.methods.descent import Iterates, Objective
from pffl.methods.minimax import DescentAscent, Weighing
from pffl.methods.step_sizes import STABLE
from pffl.problem import Point, Problem
from pffl.queries import TrainTotal
from pffl.typing import FloatArray


@dataclass(frozen=True, kw_only=True)
class FedMinMax(DescentAscent):
    """Gradient descent in w, projected gradient ascent in the groups' weights.

    Parameters
    ----------
    rounds
        T.
    dual_step_size, ridge
        η_μ, and the weight of (ridge/2)‖w‖², see `DescentAscent`.
    iterate
        What to return: "last" or "average" (guaranteed for convex models).
    local_steps, step_size, batch_size, …
        J, η_w and the rest of the local training, see `LocalTraining`.
    """

    iterate: Literal["last", "average"] = "last"
    iterates: ClassVar[Iterates] = ("last", "average")
    name: ClassVar[str] = "fedminmax"

    def own(self, problem: Problem) -> Problem:
        """Return the problem of weighing cells."""
        return problem.over(problem.cells)

    def start(self, problem: Problem) -> Weighing:
        """Line 1."""
        if problem.n_cells == 0:
            raise UsageError(
                "[needs-constraint] FedMinMax needs groups to weigh: give a constraint"
            )
        return self.weighing(problem, problem.counts / problem.counts.sum())  # ρ

    def steepest(self, curvatures: FloatArray) -> float:
        """Return L of the group that curves most, in a silo if J > 1."""
        whole, local = curvatures[:, 1:].max(axis=1)
        return float(whole if self.local_steps == 1 else max(whole, local / STABLE))

    def objective(self, problem: Problem, state: Weighing) -> Objective:
        """Line 3."""
        weights = self.own(problem).cell_weights(state.weights)  # ω_a/m
        return Objective(problem.task, weights, 0.0, ridge=self.decay(problem))

    def losses(self, problem: Problem, round: int, total: TrainTotal) -> FloatArray:
        """Line 5; a group that nobody reported counts as the mean of the others."""
        own, asked = self.own(problem), self.asked(problem, round)
        losses = own.violation_among(total.cell_losses, asked) + own.cells.bounds
        return np.where(np.isnan(losses), np.nanmean(losses), losses)

    def finish(self, problem: Problem, state: Weighing) -> Point:
        """Line 7. The weights are multipliers only of a minimax problem, with B = 1."""
        mu = self.mean(problem, state, state.weight_sum, state.weights)
        w = super().finish(problem, state).w
        return Point(w, min(problem.multiplier_bound, 1.0) * mu)
