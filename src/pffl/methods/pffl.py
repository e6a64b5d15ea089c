"""PFFL: Algorithm 1 of *Fair Federated Learning via Bounded Group Loss*.

Shengyuan Hu, Zhiwei Steven Wu, Virginia Smith. Corrected as docs/paper.md says.

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
from typing import Any, ClassVar, Literal, Self

import numpy as np

from pffl import dual
from pffl.methods import _steps
from pffl.methods.base import PRICES, Grid, check_choice
from pffl.methods.inner import Inner, LocalTraining
from pffl.models.linear import LinearModel
from pffl.problem import Expansion, Point, Problem, upper_value
from pffl.questions import Curvature, CurvatureTotal, Train, TrainTotal
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class State:
    """Where Algorithm 1 stands after `round` rounds of training."""

    round: int
    inner: Inner  # w, and the server optimiser's memory
    theta: FloatArray  # θ
    w_sum: FloatArray  # Σ w over rounds
    multiplier_sum: FloatArray  # Σ λ over rounds
    best: Point
    best_value: float  # smallest βF + B·max(0, max r) seen, at `best`
    dual_step_size: float | None  # η_θ
    majorant: Expansion | None = None  # curvature that holds at every w


@dataclass(frozen=True, kw_only=True)
class PFFL(LocalTraining[State]):
    """Algorithm 1.

    Parameters
    ----------
    multiplier_bound, risk_weight
        B and β.
    dual_rounds, rounds_per_dual
        E and T.
    dual_step_size
        η_θ; None takes the largest one at which dual ascent contracts, or, for models
        without curvature, one from the scale of r after the first dual round.
    iterate
        What to return: the "average" (guaranteed for convex models), "last" or "best"
        (smallest βF + B·max(0, max r) on training rows). None takes the average for
        convex models; for others the best, or the last where rounds ask some silos
        only, so that the best would be the luckiest draw.
    local_steps, step_size, schedule, batch_size, …
        J, η_w and the rest of the inner solver, see `LocalTraining`.
    """

    multiplier_bound: float = 10.0
    risk_weight: float = 1.0
    dual_rounds: int = 100
    rounds_per_dual: int = 10
    dual_step_size: float | None = None
    iterate: Literal["average", "last", "best"] | None = None
    name: ClassVar[str] = "pffl"
    steps_without_some: ClassVar[bool] = True
    approaches_saddle: ClassVar[bool] = True
    grid: ClassVar[Grid] = {
        "multiplier_bound": PRICES,
        "iterate": ("average", "last"),
    }

    def __post_init__(self) -> None:
        self.check(
            positive=("multiplier_bound", "dual_step_size"),
            nonnegative=("risk_weight",),
            counts=("dual_rounds", "rounds_per_dual"),
            optional=("dual_step_size",),
        )
        check_choice(self, "iterate", (None, "average", "last", "best"))

    @classmethod
    def within(cls, budget: int, **parameters: Any) -> Self:
        """Build it with as many dual rounds as the budget allows."""
        steps = int(parameters.get("local_steps", cls.local_steps))
        inner = int(parameters.get("rounds_per_dual", cls.rounds_per_dual))
        return cls(**{**parameters, "dual_rounds": max(1, budget // (steps * inner))})

    @property
    def planned_rounds(self) -> int:
        """E·T."""
        return self.dual_rounds * self.rounds_per_dual

    def init(self, problem: Problem) -> State:
        """Line 1."""
        inner, theta = self.start(problem), np.zeros(problem.n_cells)
        return State(
            0,
            inner,
            theta,
            np.zeros_like(inner.w),
            np.zeros_like(theta),
            Point(inner.w, theta),
            np.inf,
            self.dual_step_size,
        )

    def question(self, problem: Problem, state: State) -> Train | Curvature | None:
        """Lines 3 to 5: what the silos are asked."""
        if state.round == self.planned_rounds:
            return None
        if state.majorant is None and self.wants_majorant(problem):
            return self.ask_majorant(problem)
        lam = dual.multipliers(state.theta, problem.multiplier_bound)  # λ
        weights = problem.cell_weights(lam)
        return self.ask(problem, state.inner, state.round, cell_weights=weights)

    def step(
        self, problem: Problem, state: State, total: TrainTotal | CurvatureTotal
    ) -> State:
        """Lines 6 to 8: what the total does to the state."""
        if isinstance(total, CurvatureTotal):
            return self._with_constants(problem, state, total)
        lam = dual.multipliers(state.theta, problem.multiplier_bound)
        asked = self.asked(problem, state.round)
        r = problem.violation_among(total.cell_losses, asked)
        reached = upper_value(problem.risk(state.inner.w, total), r, problem)
        if reached < state.best_value:
            best = Point(state.inner.w, lam)
            state = replace(state, best=best, best_value=reached)
        inner = self.move(problem, state.inner, state.round, total)
        state = replace(
            state,
            round=state.round + 1,
            inner=inner,
            w_sum=state.w_sum + inner.w,
            multiplier_sum=state.multiplier_sum + lam,
        )
        if state.round % self.rounds_per_dual or (len(r) and np.isnan(r).all()):
            return state
        known = np.nan_to_num(r)  # a cell that nobody reported does not move its θ
        eta = state.dual_step_size or _steps.regret_dual_step(known, self.dual_rounds)
        theta = dual.ascend(state.theta, known, eta)
        return self._smooth(problem, replace(state, theta=theta, dual_step_size=eta))

    def finish(self, problem: Problem, state: State) -> Point:
        """Line 9."""
        chosen = self.returned(problem)
        if chosen == "best" and np.isfinite(state.best_value):
            return state.best
        if chosen != "average" or state.round == 0:
            lam = dual.multipliers(state.theta, problem.multiplier_bound)
            return Point(state.inner.w, lam)
        return Point(state.w_sum / state.round, state.multiplier_sum / state.round)

    def returned(self, problem: Problem) -> Literal["average", "last", "best"]:
        """Which iterate is returned."""
        if self.iterate is not None:
            return self.iterate
        if problem.task.model.convex:
            return "average"
        return "best" if self.asked(problem, 0) is None else "last"

    def wants_majorant(self, problem: Problem) -> bool:
        """Whether η_w or η_θ is to be derived from the curvature."""
        linear = isinstance(problem.task.model, LinearModel)
        return super().wants_majorant(problem) or (
            linear and problem.n_cells > 0 and self.dual_step_size is None
        )

    def _with_constants(
        self, problem: Problem, state: State, total: CurvatureTotal
    ) -> State:
        """Derive step sizes from the majorant."""
        majorant = problem.expand(state.inner.w, total)
        eta = state.dual_step_size or _steps.contracting_dual_step(majorant, problem)
        return self._smooth(
            problem, replace(state, majorant=majorant, dual_step_size=eta)
        )

    def _smooth(self, problem: Problem, state: State) -> State:
        """Know L of the local objectives for the new λ."""
        if state.majorant is None or not _steps.wanted(self, problem):
            return state
        lam = dual.multipliers(state.theta, problem.multiplier_bound)
        smoothness = _steps.smoothness(state.majorant, problem, lam)
        return replace(state, inner=replace(state.inner, smoothness=smoothness))
