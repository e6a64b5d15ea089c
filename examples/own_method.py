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

A method is a generator: it yields queries, whose totals come back, and a `Round` after
each round. `pffl.methods.local` has local training, and every engine, verdict, report
and comparison works with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import pffl
from pffl.flow import Round, Start, Steps
from pffl.methods.base import Positive
from pffl.methods.local import Descent, Objective, Trainer
from pffl.problem import Point, Problem


@dataclass(frozen=True, kw_only=True)
class TiltedLoss(Descent):
    """Tilted empirical risk over the cells of the constraint."""

    tilt: Positive = 2.0
    name: ClassVar[str] = "tilted"

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Train, and weigh the cells by what comes back."""
        own = problem.over(problem.cells)  # step sizes come from the cells' curvature
        trainer, w = Trainer(problem, self, own), problem.start()  # line 1
        yield from trainer.tune()
        lam = problem.counts / problem.counts.sum()
        for _ in range(self.rounds):  # line 2
            L = trainer.smoothness(lam)
            weighed = Objective(problem.task, own.cell_weights(lam), 0.0, problem.mu, L)
            w, total = yield from trainer.descend(w, weighed)  # lines 3 and 4
            r = problem.violation_among(total.cell_losses, trainer.silos)
            losses = r + problem.cells.bounds
            losses = np.where(np.isnan(losses), np.nanmean(losses), losses)  # not asked
            lam = problem.counts * np.exp(self.tilt * (losses - losses.max()))
            lam = lam / lam.sum()  # line 5
            yield Round(Point(w, np.zeros(problem.n_cells)))
        return Point(w, np.zeros(problem.n_cells))  # line 6


def main() -> None:
    """Compare the groups' losses with those of FedAvg."""
    federation = pffl.datasets.synthetic(
        3000, silos=5, groups=2, features=6, random_state=2
    )
    for method in (pffl.methods.FedAvg(), TiltedLoss(tilt=2.0), TiltedLoss(tilt=20.0)):
        solution = pffl.solve(
            federation, pffl.BoundedGroupLoss(0.63), method=method, random_state=0
        )
        print(dict(method.describe())["kind"], solution.status)
        print(solution.cells[["count", "train_loss"]], "\n")


if __name__ == "__main__":
    main()
