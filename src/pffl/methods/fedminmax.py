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
from pffl.flow import Round, Start, Steps
from pffl.methods.local import (
    STABLE,
    DescentAscent,
    Last,
    Objective,
    Trainer,
    WeightStep,
    kept_iterate,
)
from pffl.numerics import project_simplex
from pffl.problem import Problem
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
    name: ClassVar[str] = "fedminmax"

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Algorithm 1. μ are multipliers only of a minimax problem, with B = 1."""
        if problem.n_cells == 0:
            raise UsageError("needs-constraint:run")
        own, ridge = problem.over(problem.cells), self.decay(problem)
        trainer, w = Trainer(problem, self, own), problem.start()
        yield from trainer.tune()
        L, B = self.steepest(trainer.curvatures, ridge), problem.multiplier_bound
        mu = problem.counts / problem.counts.sum()  # line 1
        kept, dual_step = kept_iterate(trainer, self.iterate), WeightStep(self, problem)
        for _ in range(self.rounds):  # line 2
            weights = own.cell_weights(mu)  # ω_a/m
            weighed = Objective(problem.task, weights, 0.0, ridge, L)
            w, total = yield from trainer.descend(w, weighed)  # lines 3 and 4
            losses = own.violation_among(total.cell_losses, trainer.silos)  # line 5
            losses = losses + own.cells.bounds
            losses = np.where(np.isnan(losses), np.nanmean(losses), losses)  # not asked
            eta, used = dual_step(mu, losses), mu
            mu = project_simplex(mu + eta * losses)  # line 6
            kept.add(w, min(B, 1.0) * (mu if isinstance(kept, Last) else used))
            yield Round(kept.point())
        return kept.point()  # line 7

    def steepest(self, curvatures: FloatArray | None, ridge: float) -> float | None:
        """Return L of the group that curves most, in a silo if J > 1."""
        if curvatures is None:
            return None
        whole, local = curvatures[:, 1:].max(axis=1)
        one = self.local_steps == 1
        return float(whole if one else max(whole, local / STABLE)) + ridge
