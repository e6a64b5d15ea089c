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

from pffl.constraints import PerSilo
from pffl.flow import Round, Start, Steps
from pffl.methods.local import (
    DescentAscent,
    Objective,
    Trainer,
    WeightStep,
    kept_iterate,
)
from pffl.numerics import project_simplex
from pffl.problem import Problem


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
    name: ClassVar[str] = "afl"
    ignores_cells: ClassVar[bool] = True
    looks_at_silos: ClassVar[bool] = True
    weighs_updates: ClassVar[bool] = True

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Figure 2, with full gradients."""
        names, none = problem.silo_names, np.zeros(problem.n_cells)
        cells = PerSilo(0.0).cells(problem.schema, names)
        own, ridge = problem.over(cells), self.decay(problem)
        trainer = Trainer(problem, self, own, cells)
        yield from trainer.tune()
        task = trainer.task
        found = trainer.curvatures
        L = None if found is None else float(found[0, 1:].max()) + ridge  # the steepest
        w, lam = problem.start(), np.full(len(names), 1.0 / len(names))  # line 1
        convex, dual_step = problem.task.model.convex, WeightStep(self, problem)
        kept = kept_iterate(trainer, self.iterate or ("average" if convex else "last"))
        plain = Objective(task, np.zeros(len(task.cells)), 1.0, ridge, L)
        for _ in range(self.rounds):  # line 2
            weighed = replace(plain, task=replace(task, shares=lam))
            w, total = yield from trainer.descend(w, weighed)  # lines 3 and 4
            f = total.cell_losses[problem.n_cells :] / own.counts
            if trainer.silos is not None:  # 0 where not asked; its expectation is f
                f = f * (len(f) / len(trainer.silos))
            lam = project_simplex(lam + dual_step(lam, f) * f)  # line 5
            kept.add(w, none)
            yield Round(kept.point())
        return kept.point()  # line 6
