"""PFFL: Algorithm 1 of *Fair Federated Learning via Bounded Group Loss*.

Shengyuan Hu, Zhiwei Steven Wu, Virginia Smith. Corrected as DESIGN §2 says.

    1  θ ← 0, w ← 0
    2  for e = 1 … E:                                       dual rounds
    3      λ_z ← B e^{θ_z} / (1 + Σ e^θ)                    dual.multipliers
    4      for t = 1 … T:                                   rounds per dual round
    5          each silo: J steps of size η_w on G_k(·; λ)  questions.train
    6          w ← w + Σ p_k Δ_k / Σ p_k
    7          w̄, λ̄ ← averages over all E·T rounds
    8      θ ← θ + η_θ r(w)                                 dual.ascend
    9  return (w̄, λ̄)

r in line 8 is taken at the w that was sent in the last of the T rounds: it comes with
the same reply, and no extra round is spent on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from pffl import dual
from pffl.methods import _steps
from pffl.methods.base import check_parameters
from pffl.models.linear import LinearModel
from pffl.objective import Expansion, Point, Problem, upper_value
from pffl.questions import Curvature, CurvatureTotal, Train, TrainTotal
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class State:
    """Where Algorithm 1 stands after `round` rounds of training."""

    round: int
    w: FloatArray
    theta: FloatArray  # θ
    w_sum: FloatArray  # Σ w over rounds
    multiplier_sum: FloatArray  # Σ λ over rounds
    best: Point
    best_value: float  # smallest βF + B·max(0, max r) seen, at `best`
    dual_step_size: float | None  # η_θ
    majorant: Expansion | None = None  # curvature that holds at every w
    smoothness: float | None = None  # L of G_k(·; λ) for the λ in use


@dataclass(frozen=True, kw_only=True)
class PFFL:
    """Algorithm 1.

    Parameters
    ----------
    multiplier_bound, risk_weight
        B and β.
    dual_rounds, rounds_per_dual, local_steps
        E, T and J.
    step_size
        η_w; None takes 1/L for the current λ, from one `curvature` round.
    schedule
        "constant", or "decay" for η_w = 2/(βμ(γ + t)) with γ = 8L/(βμ).
    dual_step_size
        η_θ; None takes the largest one at which dual ascent contracts, or, for models
        without curvature, one from the scale of r after the first dual round.
    batch_size
        Rows per local step; None for all.
    iterate
        What to return: the "average" (guaranteed for convex models), "last" or "best".
    """

    multiplier_bound: float = 10.0
    risk_weight: float = 1.0
    dual_rounds: int = 100
    rounds_per_dual: int = 10
    local_steps: int = 5
    step_size: float | None = None
    schedule: Literal["constant", "decay"] = "constant"
    dual_step_size: float | None = None
    batch_size: int | None = None
    iterate: Literal["average", "last", "best"] = "average"
    name: ClassVar[str] = "pffl"

    def __post_init__(self) -> None:
        check_parameters(
            self,
            positive=("multiplier_bound", "step_size", "dual_step_size"),
            nonnegative=("risk_weight",),
            counts=("dual_rounds", "rounds_per_dual", "local_steps", "batch_size"),
            optional=("step_size", "dual_step_size", "batch_size"),
        )

    def init(self, problem: Problem) -> State:
        """Line 1."""
        w, theta = problem.task.model.start(problem.seed), np.zeros(problem.n_cells)
        return State(
            0,
            w,
            theta,
            np.zeros_like(w),
            np.zeros_like(theta),
            Point(w, theta),
            np.inf,
            self.dual_step_size,
        )

    def question(self, problem: Problem, state: State) -> Train | Curvature | None:
        """Lines 3 to 5: what the silos are asked."""
        if state.round == self.dual_rounds * self.rounds_per_dual:
            return None
        if state.majorant is None and self._wants_majorant(problem):
            return Curvature(problem.task, state.w, majorant=True)
        lam = dual.multipliers(state.theta, problem.multiplier_bound)  # λ
        return Train(
            problem.task,
            state.w,
            problem.risk_weight,
            problem.cell_weights(lam),
            _steps.step_sizes(self, problem, state.smoothness, state.round),
            self.batch_size,
            seed=problem.seed,
            round=state.round,
        )

    def step(
        self, problem: Problem, state: State, total: TrainTotal | CurvatureTotal
    ) -> State:
        """Lines 6 to 8: what the total does to the state."""
        if isinstance(total, CurvatureTotal):
            majorant = problem.expand(state.w, total)
            eta = state.dual_step_size or _steps.contracting_dual_step(
                majorant, problem
            )
            state = replace(state, majorant=majorant, dual_step_size=eta)
            return self._with_smoothness(problem, state)
        lam = dual.multipliers(state.theta, problem.multiplier_bound)
        r = problem.violation(total.cell_losses)
        reached = upper_value(problem.risk(state.w, total), r, problem)
        if reached < state.best_value:
            state = replace(state, best=Point(state.w, lam), best_value=reached)
        w = state.w + total.update / total.share
        state = replace(
            state,
            round=state.round + 1,
            w=w,
            w_sum=state.w_sum + w,
            multiplier_sum=state.multiplier_sum + lam,
        )
        if state.round % self.rounds_per_dual:
            return state
        eta = state.dual_step_size or _steps.regret_dual_step(
            r, self.dual_rounds
        )  # η_θ
        theta = dual.ascend(state.theta, r, eta)
        return self._with_smoothness(
            problem, replace(state, theta=theta, dual_step_size=eta)
        )

    def finish(self, problem: Problem, state: State) -> Point:
        """Line 9."""
        rounds = max(1, state.round)
        average = Point(state.w_sum / rounds, state.multiplier_sum / rounds)
        if self.iterate == "best":
            return state.best
        if self.iterate == "last":
            return Point(
                state.w, dual.multipliers(state.theta, problem.multiplier_bound)
            )
        return average

    def _wants_majorant(self, problem: Problem) -> bool:
        linear = isinstance(problem.task.model, LinearModel)
        return _steps.wanted(self, problem) or (linear and self.dual_step_size is None)

    def _with_smoothness(self, problem: Problem, state: State) -> State:
        if state.majorant is None or not _steps.wanted(self, problem):
            return state
        lam = dual.multipliers(state.theta, problem.multiplier_bound)
        smoothness = _steps.smoothness(state.majorant, problem, lam)
        return replace(state, smoothness=smoothness)
