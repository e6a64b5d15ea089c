"""A method of your own in about 40 lines: groups weigh more, the larger their loss.

Tian Li, Ahmad Beirami, Maziar Sanjabi, Virginia Smith. *Tilted Empirical Risk
Minimization*, 2021, with a tilt t over groups.

    min_w  (1/t) log Σ_a (m_a/m) exp(t L_a(w)) + (μ/2)‖w‖²

    1  w ← 0, λ_a ← m_a/m
    2  for each round:
    3      every silo: J steps on Σ_a λ_a L_a + ridge
    4      w ← w + Σ p_k Δ_k
    5      λ_a ← m_a exp(t L_a) / Σ m_a exp(t L_a), at the w that was sent
    6  return w

A method is its objective (line 3) and its update (line 5): `pffl.methods.descent` has
the rest, and every engine, verdict, report and comparison works with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import pffl
from pffl.methods.descent import Descent, Objective, State
from pffl.methods.step_sizes import weighted_smoothness
from pffl.problem import Problem
from pffl.queries import TrainTotal
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Weights(State):
    """Where the method stands."""

    weights: FloatArray  # λ, one per cell


@dataclass(frozen=True, kw_only=True)
class TiltedLoss(Descent[Weights]):
    """Tilted empirical risk over the cells of the constraint."""

    tilt: float = 2.0
    name: ClassVar[str] = "tilted"

    def __post_init__(self) -> None:
        self.check(positive=("tilt",))

    def own(self, problem: Problem) -> Problem:
        """Step sizes come from the curvature of the cells."""
        return problem.over(problem.cells)

    def start(self, problem: Problem) -> Weights:
        """Line 1."""
        shares = problem.counts / problem.counts.sum()
        return Weights.at_start(problem, weights=shares)

    def tuned(self, problem: Problem, state: Weights) -> Weights:
        """Leave it at that: L follows from the weights of each round."""
        return state

    def objective(self, problem: Problem, state: Weights) -> Objective:
        """Line 3."""
        own = self.own(problem)
        L = weighted_smoothness(state.curvatures, own, state.weights)
        weights = own.cell_weights(state.weights)
        return Objective(problem.task, weights, 0.0, ridge=problem.mu, smoothness=L)

    def step(self, problem: Problem, state: Weights, total: TrainTotal) -> Weights:
        """Lines 4 and 5."""
        asked = self.asked(problem, state.round)
        violation = problem.violation_among(total.cell_losses, asked)
        losses = violation + problem.cells.bounds
        losses = np.where(np.isnan(losses), np.nanmean(losses), losses)  # not asked
        weights = problem.counts * np.exp(self.tilt * (losses - losses.max()))
        moved = self.descend(problem, state, total)
        return replace(moved, weights=weights / weights.sum())


def main() -> None:
    """Compare the groups' losses with those of FedAvg."""
    federation = pffl.datasets.synthetic(3000, silos=5, groups=2, features=6, seed=2)
    for method in (pffl.FedAvg(), TiltedLoss(tilt=2.0), TiltedLoss(tilt=20.0)):
        solution = pffl.solve(
            federation, pffl.BoundedGroupLoss(0.63), method=method, seed=0
        )
        print(dict(method.describe())["kind"], solution.status)
        print(solution.cells[["count", "train_loss"]], "\n")


if __name__ == "__main__":
    main()
