"""FedAvg: local steps on the plain risk, weighted mean of the updates.

Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Agüera y Arcas.
*Communication-Efficient Learning of Deep Networks from Decentralized Data*, 2017.

    1  w ← 0
    2  for t = 1 … T:
    3      each silo: J steps of size η on its mean loss
    4      w ← w + Σ p_k Δ_k / Σ p_k                        p_k: 1/K or by rows
    5  return w

`run` is a generator: each `yield from trainer.descend(w, risk)` sends w to the silos,
which take lines 3 and 4, and receives the sum of their updates Δ_k; `yield Round(…)`
tells whoever watches which w would be returned now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pffl.flow import Round, Start, Steps
from pffl.methods.base import Grid
from pffl.methods.local import Descent, Objective, Trainer
from pffl.problem import Point, Problem


@dataclass(frozen=True, kw_only=True)
class FedAvg(Descent):
    """Federated averaging.

    Parameters
    ----------
    rounds
        Number of rounds.
    local_steps, step_size, batch_size, proximal, server, …
        See `LocalTraining`: with them this is also FedProx, FedAvgM, FedAdam, FedYogi.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    Federated averaging ignores the bounds; its model is still judged against them.

    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> method = pffl.methods.FedAvg(rounds=20, local_steps=2)
    >>> bounds = pffl.BoundedGroupLoss(0.65)
    >>> solution = pffl.solve(people, bounds, method=method, random_state=0)
    >>> solution.status, solution.rounds
    ('not met', 21)
    """

    name: ClassVar[str] = "fedavg"
    ignores_cells: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"local_steps": (5, 1, 2, 10, 20)}

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Train on the mean loss F alone: β is 1 even where minimax would make it 0."""
        none = np.zeros(problem.n_cells)
        risk = Objective(problem.task, none, risk_weight=1.0)
        trainer, w = Trainer(problem, self), problem.start()  # line 1
        yield from trainer.tune()
        for _ in range(self.rounds):  # line 2
            w, _ = yield from trainer.descend(w, risk)  # lines 3 and 4
            yield Round(Point(w, none))
        return Point(w, none)  # line 5
