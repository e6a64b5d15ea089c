"""AFL: agnostic federated learning, the worst silo's loss as small as possible.

Mehryar Mohri, Gary Sivek, Ananda Theertha Suresh. *Agnostic Federated Learning*, 2019,
Figure 2 (Stochastic-AFL, with full gradients).

    min_w max_{λ ∈ simplex}  Σ_k λ_k f_k(w)          f_k: mean loss of silo k

    1  w ← 0, λ_k ← 1/K
    2  for t = 1 … T:
    3      every silo: w_k ← J steps of size η_w on f_k, from w
    4      w ← w + Σ_k λ_k (w_k − w)                 J = 1: w − η_w Σ λ_k ∇f_k(w)
    5      λ ← projection of λ + η_λ (f_1 … f_K) on the simplex, f_k at the w sent
    6  return the mean of all w

J = 1 is the paper's; J > 1 are local steps as in flgo's port. A silo with λ_k = 0 does
not move w, and still tells its loss. In the history, `risk` is Σ λ_k f_k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from pffl.constraints.per_silo import PerSilo
from pffl.methods.descent import Iterates, Objective
from pffl.methods.minimax import DescentAscent, Weighing
from pffl.problem import Problem
from pffl.queries import TrainTotal
from pffl.typing import FloatArray


@dataclass(frozen=True, kw_only=True)
class AFL(DescentAscent):
    """Gradient descent in w, projected gradient ascent in the silos' weights.

    Parameters
    ----------
    rounds
        T.
    dual_step_size, ridge
        η_λ, and the weight of (ridge/2)‖w‖², see `DescentAscent`.
    iterate
        What to return: "average" or "last"; None takes the average for convex models
        (guaranteed) and the last for others.
    local_steps, step_size, batch_size, …
        J, η_w and the rest of the local training, see `LocalTraining`.
    """

    iterate: Literal["average", "last"] | None = None
    iterates: ClassVar[Iterates] = (None, "last", "average")
    name: ClassVar[str] = "afl"
    ignores_cells: ClassVar[bool] = True
    weighs_silos: ClassVar[bool] = True
    looks_at_silos: ClassVar[bool] = True
    weighs_updates: ClassVar[bool] = True

    def own(self, problem: Problem) -> Problem:
        """Return the problem of weighing silos: one cell for each."""
        schema, silos = problem.schema, problem.silo_names
        cells = problem.once("silos", lambda: PerSilo(0.0).cells(schema, silos))
        return problem.over(cells)

    def start(self, problem: Problem) -> Weighing:
        """Line 1."""
        silos = len(problem.silo_names)
        return self.weighing(problem, np.full(silos, 1.0 / silos))

    def steepest(self, curvatures: FloatArray) -> float:
        """Return L of the silo that curves most."""
        return float(curvatures[0, 1:].max())

    def objective(self, problem: Problem, state: Weighing) -> Objective:
        """Line 3, and the weights of line 4."""
        task = problem.with_cells(self.own(problem).cells)
        weighted, none = replace(task, shares=state.weights), np.zeros(len(task.cells))
        return Objective(weighted, none, risk_weight=1.0, ridge=self.decay(problem))

    def losses(self, problem: Problem, round: int, total: TrainTotal) -> FloatArray:
        """Return f of line 5."""
        f = total.cell_losses[problem.n_cells :] / self.own(problem).counts
        asked = self.asked(problem, round)
        if asked is None:
            return f
        # 0 where not asked; scaled so that its expectation is that of all
        return f * (len(f) / len(asked))
