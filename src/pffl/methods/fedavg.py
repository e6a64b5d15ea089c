"""FedAvg: local steps on the plain risk, weighted mean of the updates.

McMahan et al. 2017. The weights p_k are the problem's: 1/K or by rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pffl.methods.base import Grid
from pffl.methods.descent import Descent, Iterates, Objective, State
from pffl.problem import Problem


@dataclass(frozen=True, kw_only=True)
class FedAvg(Descent[State]):
    """Federated averaging.

    Parameters
    ----------
    rounds
        Number of rounds.
    iterate
        What to return: "last" or "average".
    local_steps, step_size, batch_size, proximal, server, …
        See `LocalTraining`: with them this is also FedProx, FedAvgM, FedAdam, FedYogi.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    Federated averaging does not know of bounds; it is judged by them.

    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> method = pffl.FedAvg(rounds=20, local_steps=2)
    >>> bounds = pffl.BoundedGroupLoss(0.65)
    >>> solution = pffl.solve(people, bounds, method=method, seed=0)
    >>> solution.status, solution.rounds
    ('not met', 21)
    """

    iterate: Literal["last", "average"] = "last"
    iterates: ClassVar[Iterates] = ("last", "average")
    name: ClassVar[str] = "fedavg"
    ignores_cells: ClassVar[bool] = True
    steps_without_some: ClassVar[bool] = True
    one_objective: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"local_steps": (5, 1, 2, 10, 20)}

    def start(self, problem: Problem) -> State:
        """Start at the model's first w."""
        return State.at_start(problem)

    def objective(self, problem: Problem, state: State) -> Objective:
        """Return F alone: a minimax constraint would set β to 0."""
        return Objective(problem.task, np.zeros(problem.n_cells), risk_weight=1.0)
