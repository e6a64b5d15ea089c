"""Group-weighted FedAvg: every group counts the same, however many rows it has.

Second baseline of Figure 2 in Hu, Wu, Smith, *Fair Federated Learning via Bounded Group
Loss*; FedAvg: McMahan et al. 2017. The groups are the |A| cells of the constraint.

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

from pffl.errors import UsageError
from pffl.methods import _steps
from pffl.methods.base import Grid, check_choice
from pffl.methods.inner import Inner, LocalTraining
from pffl.problem import Point, Problem
from pffl.questions import Curvature, CurvatureTotal, Train, TrainTotal
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class State:
    """Where the method stands."""

    round: int
    inner: Inner
    w_sum: FloatArray


@dataclass(frozen=True, kw_only=True)
class GroupWeighted(LocalTraining[State]):
    """FedAvg on the mean of the groups' mean losses.

    Parameters
    ----------
    rounds
        T.
    iterate
        What to return: "last" or "average".
    local_steps, step_size, schedule, batch_size, proximal, server, …
        J, η_w and the rest of the inner solver, see `LocalTraining`.
    """

    rounds: int = 200
    iterate: Literal["last", "average"] = "last"
    name: ClassVar[str] = "group-weighted"
    steps_without_some: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"server_step_size": (1.0, 0.5, 1.5)}

    def __post_init__(self) -> None:
        self.check(counts=("rounds",))
        check_choice(self, "iterate", ("last", "average"))

    @property
    def planned_rounds(self) -> int:
        """T."""
        return self.rounds

    def init(self, problem: Problem) -> State:
        """Line 1."""
        if problem.n_cells == 0:
            raise UsageError("GroupWeighted needs groups to weigh: give a constraint")
        inner = self.start(problem)
        return State(0, inner, np.zeros_like(inner.w))

    def weights(self, problem: Problem) -> FloatArray:
        """1/|A| for each cell."""
        return np.full(problem.n_cells, 1.0 / problem.n_cells)

    def question(self, problem: Problem, state: State) -> Train | Curvature | None:
        """Line 3."""
        if state.round == self.rounds:
            return None
        if state.inner.smoothness is None and self.wants_majorant(problem):
            return self.ask_majorant(problem)
        return self.ask(
            replace(problem, risk_weight=1.0),  # the ridge counts once
            state.inner,
            state.round,
            cell_weights=problem.cell_weights(self.weights(problem)),
            risk_weight=0.0,
            ridge=problem.l2,
        )

    def step(
        self, problem: Problem, state: State, total: TrainTotal | CurvatureTotal
    ) -> State:
        """Line 4."""
        if isinstance(total, CurvatureTotal):
            own = problem.over(problem.cells)
            majorant = own.expand(state.inner.w, total)
            L = _steps.smoothness(majorant, own, self.weights(problem)) + problem.l2
            return replace(state, inner=replace(state.inner, smoothness=L))
        inner = self.move(problem, state.inner, state.round, total)
        return State(state.round + 1, inner, state.w_sum + inner.w)

    def finish(self, problem: Problem, state: State) -> Point:
        """Line 5. No bound is priced, so λ = 0."""
        average = self.iterate == "average" and state.round > 0
        w = state.w_sum / state.round if average else state.inner.w
        return Point(w, np.zeros(problem.n_cells))
