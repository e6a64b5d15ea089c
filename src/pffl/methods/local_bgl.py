"""Local BGL: Algorithm 1 with every silo's bounds on its own rows only.

The baseline "local" of Figure 1 in Hu, Wu, Smith, *Fair Federated Learning via Bounded
Group Loss*. Silo k has its own cells (k, z): its rows of the constraint's cells, where
it has any; its own θ_k and λ_k; and one model w is shared.

    1  w ← 0, θ_k ← 0
    2  for e = 1 … E:
    3      λ_{k,z} ← B e^{θ_{k,z}} / (1 + Σ_z e^{θ_{k,z}}), in each silo
    4      for t = 1 … T:
    5          silo k: J steps of size η_w on β f_k + λ_kᵀ r_k, r_{k,z} = L_{k,z} − ζ_z
    6          w ← w + Σ p_k Δ_k / Σ p_k
    7          w̄, λ̄ ← averages over all E·T rounds
    8      θ_{k,z} ← θ_{k,z} + η_θ r_{k,z}(w)
    9  return w̄

Rows of the cell (k, z) weigh β p_k/m_k + p_k λ_{k,z}/m_{k,z} in the mean of line 6, so
the saddle value is  min_w βF(w) + B Σ_k p_k max(0, max_z r_{k,z}(w)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pffl.flow import Round, Start, Steps
from pffl.methods.base import MULTIPLIER_BOUNDS, Grid
from pffl.methods.local import (
    STABLE,
    DualStep,
    Iterate,
    Objective,
    Trainer,
    kept_iterate,
)
from pffl.methods.pffl import PrimalDual
from pffl.problem import Point, Problem
from pffl.queries import Task
from pffl.typing import FloatArray


@dataclass(frozen=True, kw_only=True)
class LocalBGL(PrimalDual):
    """PFFL with local constraints.

    As there, every cell weighs B/(Z+1) in the first round: an inactive bound changes
    the iterates, and less the longer it stays inactive.

    Parameters
    ----------
    multiplier_bound, risk_weight
        B, of each silo, and β.
    dual_rounds, rounds_per_dual, dual_step_size
        E, T and η_θ, as for `PFFL`.
    iterate
        What to return: the "average" of all rounds, the "recent" mean or the "last", as
        for `PFFL`; None takes the recent for convex models and the last for others.
    local_steps, step_size, batch_size, …
        J, η_w and the rest of the local training, see `LocalTraining`.
    """

    iterate: Literal["average", "recent", "last"] | None = None
    name: ClassVar[str] = "local-bgl"
    looks_at_silos: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"multiplier_bound": MULTIPLIER_BOUNDS}

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Algorithm 1 with the cells (k, z), and a separate λ in every silo."""
        local, w, n = SiloBounds(problem), problem.start(), problem.n_cells
        trainer = Trainer(problem, self, local.own, local.cells)
        yield from trainer.tune()
        convex, theta = problem.task.model.convex, np.zeros(len(local.cells))  # line 1
        kind: Iterate = self.iterate or ("recent" if convex else "last")
        averages = kept_iterate(trainer, kind)
        rounds, size = self.dual_rounds, self.dual_step_size
        dual_step = DualStep(rounds, size, problem, local.length)
        for _ in range(self.dual_rounds):  # line 2
            lam = local.multipliers(theta)  # line 3
            objective = local.objective(trainer.task, lam, trainer.curvatures)
            for _ in range(self.rounds_per_dual):  # line 4
                w, total = yield from trainer.descend(w, objective)  # lines 5 and 6
                averages.add(w, lam)  # line 7
                yield Round(local.point(averages.point()))
            r = local.own.violation_among(total.cell_losses[n:], trainer.silos)
            theta = theta + dual_step(theta, r) * np.nan_to_num(r)  # line 8
        return local.point(averages.point())  # line 9


class SiloBounds:
    """The cells (k, z) of a problem that have rows, and what their λ_{k,z} come to.

    Attributes
    ----------
    cells, parent
        These, and the cell z of each.
    own
        The problem of weighing their mean losses.
    """

    def __init__(self, problem: Problem) -> None:
        cells, silos = problem.cells, problem.silo_names
        there = cells.everywhere | (np.arange(len(silos))[:, None] == cells.silo)
        copies = cells.in_each_silo(silos)
        kept = np.flatnonzero(there.reshape(-1) & (problem.count(copies) > 0))
        self.problem, self.cells = problem, copies.take(kept)
        self.parent = kept % max(1, problem.n_cells)
        self.own = problem.over(self.cells)

    def multipliers(self, theta: FloatArray) -> FloatArray:
        """Line 3: λ_{k,z}, a `capped_softmax` in every silo."""
        silo, silos = self.cells.silo, len(self.problem.silo_names)
        shift = np.zeros(silos)
        np.maximum.at(shift, silo, theta)
        exponentials = np.exp(theta - shift[silo])
        below = np.exp(-shift) + np.bincount(silo, exponentials, silos)
        return self.problem.multiplier_bound * exponentials / below[silo]

    def objective(
        self, task: Task, lam: FloatArray, curvatures: FloatArray | None
    ) -> Objective:
        """Line 5: p_k λ_{k,z} is what (k, z) weighs in the mean over silos."""
        problem, silo, L = self.problem, self.cells.silo, None
        weights = problem.task.shares[silo] * lam / self.own.counts
        weights = np.append(np.zeros(problem.n_cells), weights)
        if curvatures is not None:
            whole, local = curvatures
            curved = np.bincount(silo, lam * whole[1:]).max(initial=0.0)
            risk = max(float(whole[0]), float(local[0]) / STABLE)
            L = problem.risk_weight * risk + float(curved)
        return Objective(task, weights, problem.risk_weight, smoothness=L)

    def length(self, theta: FloatArray, v: FloatArray) -> float:
        """Return how long a move v from θ is as the λ_k see it, silo by silo."""
        problem, silo, lam = self.problem, self.cells.silo, self.multipliers(theta)
        silos = len(problem.silo_names)
        mean = np.bincount(silo, lam * v, silos) ** 2 / problem.multiplier_bound
        own = np.bincount(silo, lam * v**2, silos) - mean
        return math.sqrt(max(0.0, float(problem.task.shares @ own)))

    def point(self, pair: Point) -> Point:
        """Return the pair with Σ_k p_k λ_{k,z} as the multiplier of the cell z."""
        lam = np.zeros(self.problem.n_cells)
        shares = self.problem.task.shares[self.cells.silo]
        np.add.at(lam, self.parent, shares * pair.multipliers)
        return Point(pair.w, lam)
