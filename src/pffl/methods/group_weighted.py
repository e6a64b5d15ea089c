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

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from pffl.constraints.base import Cells
from pffl.constraints.group_loss import BoundedGroupLoss, attribute_names
from pffl.errors import UsageError
from pffl.methods.base import Grid
from pffl.methods.descent import Descent, Iterates, Objective, State
from pffl.methods.step_sizes import weighted_smoothness
from pffl.problem import Problem
from pffl.typing import FloatArray


@dataclass(frozen=True, kw_only=True)
class GroupWeighted(Descent[State]):
    """FedAvg on the mean of the groups' mean losses.

    Parameters
    ----------
    rounds
        T.
    iterate
        What to return: "last" or "average".
    by
        Attributes that cut out the groups: None for all of them crossed.
    local_steps, step_size, batch_size, proximal, server, …
        J, η_w and the rest of the local training, see `LocalTraining`.
    """

    iterate: Literal["last", "average"] = "last"
    by: str | tuple[str, ...] | None = None
    iterates: ClassVar[Iterates] = ("last", "average")
    name: ClassVar[str] = "group-weighted"
    ignores_cells: ClassVar[bool] = True
    steps_without_some: ClassVar[bool] = True
    one_objective: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"local_steps": (5, 1, 2, 10, 20)}

    def cells(self, problem: Problem) -> Cells:
        """Return the groups that have rows."""

        def made() -> Cells:
            every = BoundedGroupLoss(0.0, by=self.by)
            groups = every.cells(problem.schema, problem.silo_names)
            return groups.take(np.flatnonzero(problem.count(groups)))

        return problem.once(("groups", attribute_names(self.by)), made)

    def start(self, problem: Problem) -> State:
        """Line 1."""
        if len(self.cells(problem)) < 2:
            raise UsageError(
                "[too-few-groups] GroupWeighted weighs groups, and fewer than two "
                "have rows"
            )
        return State.at_start(problem)

    def weights(self, problem: Problem) -> FloatArray:
        """1/|A| for each group."""
        groups = len(self.cells(problem))
        return np.full(groups, 1.0 / groups)

    def objective(self, problem: Problem, state: State) -> Objective:
        """Line 3."""
        own = self.own(problem)
        weights = own.cell_weights(self.weights(problem))
        return Objective.over(problem, own.cells, weights)

    def own(self, problem: Problem) -> Problem:
        """Return the problem of weighing groups."""
        return problem.over(self.cells(problem))

    def tuned(self, problem: Problem, state: State) -> State:
        """Return the first state with L of line 3."""
        own, weights = self.own(problem), self.weights(problem)
        L = weighted_smoothness(state.curvatures, own, weights)
        return replace(state, smoothness=L)
