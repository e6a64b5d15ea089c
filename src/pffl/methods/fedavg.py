"""FedAvg: local steps on the plain risk, weighted mean of the updates.

McMahan et al. 2017. The weights p_k are the problem's: 1/K or by rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from pffl.methods import _steps
from pffl.methods.base import check_parameters
from pffl.objective import Point, Problem
from pffl.questions import Curvature, CurvatureTotal, Train, TrainTotal
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class State:
    """Where FedAvg stands."""

    round: int
    w: FloatArray
    w_sum: FloatArray
    smoothness: float | None = None  # L


@dataclass(frozen=True, kw_only=True)
class FedAvg:
    """Federated averaging.

    Parameters
    ----------
    rounds, local_steps
        Rounds, and local steps J in each.
    step_size
        η_w; None takes 1/L, from one `curvature` round.
    schedule
        "constant", or "decay" for η_w = 2/(μ(γ + t)) with γ = 8L/μ.
    batch_size
        Rows per local step; None for all.
    iterate
        What to return: "last" or "average".
    """

    rounds: int = 200
    local_steps: int = 5
    step_size: float | None = None
    schedule: Literal["constant", "decay"] = "constant"
    batch_size: int | None = None
    iterate: Literal["last", "average"] = "last"
    name: ClassVar[str] = "fedavg"
    multiplier_bound: ClassVar[float] = 0.0
    risk_weight: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_parameters(
            self,
            positive=("step_size",),
            counts=("rounds", "local_steps", "batch_size"),
            optional=("step_size", "batch_size"),
        )

    def init(self, problem: Problem) -> State:
        """Start at the model's first w."""
        w = problem.task.model.start(problem.seed)
        return State(0, w, np.zeros_like(w))

    def question(self, problem: Problem, state: State) -> Train | Curvature | None:
        """Ask for local steps on the risk alone."""
        if state.round == self.rounds:
            return None
        if state.smoothness is None and _steps.wanted(self, problem):
            return Curvature(problem.task, state.w, majorant=True)
        return Train(
            problem.task,
            state.w,
            problem.risk_weight,
            np.zeros(problem.n_cells),
            _steps.step_sizes(self, problem, state.smoothness, state.round),
            self.batch_size,
            seed=problem.seed,
            round=state.round,
        )

    def step(
        self, problem: Problem, state: State, total: TrainTotal | CurvatureTotal
    ) -> State:
        """Move by the mean update."""
        if isinstance(total, CurvatureTotal):
            majorant = problem.expand(state.w, total)
            no_cells = np.zeros(problem.n_cells)
            smoothness = _steps.smoothness(majorant, problem, no_cells)
            return replace(state, smoothness=smoothness)
        w = state.w + total.update / total.share
        return replace(state, round=state.round + 1, w=w, w_sum=state.w_sum + w)

    def finish(self, problem: Problem, state: State) -> Point:
        """Return the last or the average w, and no multipliers."""
        average = self.iterate == "average" and state.round > 0
        w = state.w_sum / state.round if average else state.w
        return Point(w, np.zeros(problem.n_cells))
