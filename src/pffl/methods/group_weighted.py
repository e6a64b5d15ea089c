"""Group-weighted FedAvg: every group counts the same, however many rows it has.

Second baseline of Figure 2 in Hu, Wu, Smith, *Fair Federated Learning via Bounded Group
Loss*; FedAvg: McMahan et al. 2017. The |A| groups are those of the data that have rows,
whatever the constraint: under a constraint on one label it still trains on all rows.

    min_w  (1/|A|) Σ_a L_a(w) + (μ/2)‖w‖²          L_a = (1/m_a) Σ_{i∈a} ℓ_i

    1  w ← 0
    2  for t = 1 … T:
    3      each silo: J steps on its rows, each weighted m/(|A| m_a)
    4      w ← w + Σ p_k Δ_k / Σ p_k
    5  return w

With p_k = m_k/m line 3 is a silo's mean of weighted losses. With other p_k the weight
is (m_k/p_k)/(|A| m_a): the p_k-mean of the silos' objectives stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pffl.constraints import BoundedGroupLoss
from pffl.flow import Round, Start, Steps
from pffl.methods.base import Grid, check_groups
from pffl.methods.local import Descent, Trainer
from pffl.problem import Point, Problem


@dataclass(frozen=True, kw_only=True)
class GroupWeighted(Descent):
    """FedAvg on the mean of the groups' mean losses.

    Parameters
    ----------
    rounds
        T.
    by
        Attributes that cut out the groups: None for all of them crossed.
    local_steps, step_size, batch_size, proximal, server, …
        J, η_w and the rest of the local training, see `LocalTraining`.
    """

    by: str | tuple[str, ...] | None = None
    name: ClassVar[str] = "group-weighted"
    ignores_cells: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"local_steps": (5, 1, 2, 10, 20)}

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """FedAvg on rows that weigh by their group."""
        groups = BoundedGroupLoss(0.0, by=self.by)
        cells = groups.cells(problem.schema, problem.silo_names)
        cells = cells.take(np.flatnonzero(problem.count(cells)))  # with rows
        check_groups(self, len(cells) > 1)
        own, shares = problem.over(cells), np.full(len(cells), 1.0 / len(cells))
        trainer, w = Trainer(problem, self, own, cells), problem.start()  # line 1
        yield from trainer.tune()
        L = trainer.smoothness(shares)
        mean = trainer.weighing(own.cell_weights(shares), L)
        none = np.zeros(problem.n_cells)
        for _ in range(self.rounds):  # line 2
            w, _ = yield from trainer.descend(w, mean)  # lines 3 and 4
            yield Round(Point(w, none))
        return Point(w, none)  # line 5
