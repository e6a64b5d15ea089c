"""FedAvg: local steps on the plain risk, weighted mean of the updates.

McMahan et al. 2017. The weights p_k are the problem's: 1/K or by rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from pffl.methods import _steps
from pffl.methods.base import Grid, check_choice
from pffl.methods.inner import Inner, LocalTraining
from pffl.problem import Point, Problem
from pffl.questions import Curvature, CurvatureTotal, Train, TrainTotal
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class State:
    """Where FedAvg stands."""

    round: int
    inner: Inner
    w_sum: FloatArray


@dataclass(frozen=True, kw_only=True)
class FedAvg(LocalTraining[State]):
    """Federated averaging.

    Parameters
    ----------
    rounds
        Number of rounds.
    iterate
        What to return: "last" or "average".
    local_steps, step_size, schedule, batch_size, proximal, server, …
        See `LocalTraining`: with them this is also FedProx, FedAvgM, FedAdam, FedYogi.
    """

    rounds: int = 200
    iterate: Literal["last", "average"] = "last"
    name: ClassVar[str] = "fedavg"
    steps_without_some: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"server_step_size": (1.0, 0.5, 1.5)}

    def __post_init__(self) -> None:
        self.check(counts=("rounds",))
        check_choice(self, "iterate", ("last", "average"))

    @property
    def planned_rounds(self) -> int:
        """Number of rounds."""
        return self.rounds

    def init(self, problem: Problem) -> State:
        """Start at the model's first w."""
        inner = self.start(problem)
        return State(0, inner, np.zeros_like(inner.w))

    def weights(self, problem: Problem) -> FloatArray:
        """λ in use: none, so that only the risk is descended."""
        return np.zeros(problem.n_cells)

    def plain(self, problem: Problem) -> Problem:
        """Return the problem with β = 1: a minimax constraint would set it to 0."""
        return replace(problem, risk_weight=1.0)

    def question(self, problem: Problem, state: State) -> Train | Curvature | None:
        """Ask for local steps."""
        if state.round == self.rounds:
            return None
        if state.inner.smoothness is None and self.wants_majorant(problem):
            return self.ask_majorant(problem)
        weights = problem.cell_weights(self.weights(problem))
        plain = self.plain(problem)
        return self.ask(plain, state.inner, state.round, cell_weights=weights)

    def step(
        self, problem: Problem, state: State, total: TrainTotal | CurvatureTotal
    ) -> State:
        """Move by the mean update."""
        if isinstance(total, CurvatureTotal):
            plain = self.plain(problem)
            majorant = plain.expand(state.inner.w, total)
            L = _steps.smoothness(majorant, plain, self.weights(problem))
            return replace(state, inner=replace(state.inner, smoothness=L))
        inner = self.move(problem, state.inner, state.round, total)
        return State(state.round + 1, inner, state.w_sum + inner.w)

    def finish(self, problem: Problem, state: State) -> Point:
        """Return the last or the average w, and the multipliers in use."""
        average = self.iterate == "average" and state.round > 0
        w = state.w_sum / state.round if average else state.inner.w
        return Point(w, self.weights(problem))
