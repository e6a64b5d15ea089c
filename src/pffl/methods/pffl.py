"""PFFL: Algorithm 1 of *Fair Federated Learning via Bounded Group Loss*.

Shengyuan Hu, Zhiwei Steven Wu, Virginia Smith. Corrected as docs/paper.md says.

    1  θ ← 0, w ← 0
    2  for e = 1 … E:                                       dual rounds
    3      λ_z ← B e^{θ_z} / (1 + Σ e^θ)                    numerics.capped_softmax
    4      for t = 1 … T:                                   rounds per dual round
    5          each silo: J steps of size η_w on G_k(·; λ)  questions.train
    6          w ← w + Σ p_k Δ_k / Σ p_k
    7          w̄, λ̄ ← averages over all E·T rounds
    8      θ ← θ + η_θ r(w)
    9  return (w̄, λ̄)

r in line 8 is taken at the w that was sent in the last of the T rounds: it comes with
the same reply, and no extra round is spent on it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from pffl.methods import descent
from pffl.methods.base import LARGEST, PRICES, Grid
from pffl.methods.descent import Iterate, Iterates, LocalTraining, Objective
from pffl.models.linear import LinearModel
from pffl.numerics import capped_softmax
from pffl.problem import Expansion, Point, Problem, upper_value
from pffl.questions import TrainTotal
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Prices(descent.State):
    """Where Algorithm 1 stands after `round` rounds of training."""

    theta: FloatArray  # θ
    multiplier_sum: FloatArray  # Σ λ over rounds
    dual_step_size: float | None  # η_θ


S = TypeVar("S", bound=Prices)


@dataclass(frozen=True, kw_only=True)
class PrimalDual(LocalTraining[S]):
    """Algorithm 1 for cells of any kind.

    Parameters
    ----------
    multiplier_bound, risk_weight
        B and β.
    dual_rounds, rounds_per_dual
        E and T.
    dual_step_size
        η_θ; None takes the largest one at which dual ascent contracts, or, for models
        without curvature or with very many parameters, one from the scale of r after
        the first dual round.
    """

    multiplier_bound: float = 10.0
    risk_weight: float = 1.0
    dual_rounds: int = 100
    rounds_per_dual: int = 10
    dual_step_size: float | None = None
    steps_without_some: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check(
            positive=("multiplier_bound", "dual_step_size"),
            nonnegative=("risk_weight",),
            counts=("dual_rounds", "rounds_per_dual"),
            optional=("dual_step_size",),
        )

    @classmethod
    def within(cls, budget: int, **parameters: Any) -> Self:
        """Build it with as many dual rounds as the budget allows."""
        steps = int(parameters.get("local_steps", cls.local_steps))
        inner = int(parameters.get("rounds_per_dual", cls.rounds_per_dual))
        return cls(**{**parameters, "dual_rounds": max(1, budget // (steps * inner))})

    @property
    def last_round(self) -> int:
        """E·T."""
        return self.dual_rounds * self.rounds_per_dual

    @abstractmethod
    def prices(self, problem: Problem, state: S) -> FloatArray:
        """Line 3: λ."""

    @abstractmethod
    def violation(self, problem: Problem, state: S, total: TrainTotal) -> FloatArray:
        """Return r at the w that was sent; NaN for cells that nobody reported."""

    @abstractmethod
    def smoothed(self, problem: Problem, state: S) -> S:
        """Return the state with L of the local objectives for its λ."""

    def step(self, problem: Problem, state: S, total: TrainTotal) -> S:
        """Lines 6 to 8: what the total does to the state."""
        lam, r = self.prices(problem, state), self.violation(problem, state, total)
        state = self.descend(problem, state, total)  # lines 6 and 7
        state = replace(state, multiplier_sum=state.multiplier_sum + lam)
        if state.round % self.rounds_per_dual or (len(r) and np.isnan(r).all()):
            return state
        known = np.nan_to_num(r)  # a cell that nobody reported does not move its θ
        eta = state.dual_step_size or descent.regret_dual_step(known, self.dual_rounds)
        theta = state.theta + eta * known  # line 8
        return self.smoothed(problem, replace(state, theta=theta, dual_step_size=eta))

    def averaged(self, problem: Problem, state: S) -> Point:
        """Line 9, or the last pair."""
        if not self.averages(problem, state):
            return Point(state.w, self.prices(problem, state))
        return Point(state.w_sum / state.round, state.multiplier_sum / state.round)


@dataclass(frozen=True, eq=False, kw_only=True)
class State(Prices):
    """Where PFFL stands."""

    best: Point
    best_value: float = np.inf  # smallest βF + B·max(0, max r) seen, at `best`
    majorant: Expansion | None = None  # curvature that holds at every w


@dataclass(frozen=True, kw_only=True)
class PFFL(PrimalDual[State]):
    """Algorithm 1.

    Parameters
    ----------
    multiplier_bound, risk_weight, dual_rounds, rounds_per_dual, dual_step_size
        B, β, E, T and η_θ, see `PrimalDual`.
    target_gap
        Gap ν, in parts of β + Σλ, at which it counts as converged. It runs all of its
        rounds in any case.
    iterate
        What to return: the "average" (guaranteed for convex models), "last" or "best"
        (smallest βF + B·max(0, max r) on training rows). None takes the average for
        convex models; for others the best, or the last where rounds ask some silos
        only, so that the best would be the luckiest draw.
    local_steps, step_size, schedule, batch_size, …
        J, η_w and the rest of the local training, see `LocalTraining`.
    """

    target_gap: float = 1e-2
    iterate: Literal["average", "last", "best"] | None = None
    iterates: ClassVar[Iterates] = (None, "average", "last", "best")
    name: ClassVar[str] = "pffl"
    saddle: ClassVar[bool] = True
    grid: ClassVar[Grid] = {
        "multiplier_bound": PRICES,
        "iterate": ("average", "last"),
    }

    def check(self, **kinds: tuple[str, ...]) -> None:
        """Refuse bad parameters, the target among them."""
        positive = (*kinds.get("positive", ()), "target_gap")
        super().check(**{**kinds, "positive": positive})

    def own(self, problem: Problem) -> Problem:
        """Return the problem itself: its curvature gives η_w and η_θ."""
        return problem

    def start(self, problem: Problem) -> State:
        """Line 1."""
        theta = np.zeros(problem.n_cells)
        return State.at_start(
            problem,
            theta=theta,
            multiplier_sum=theta,
            dual_step_size=self.dual_step_size,
            best=Point(problem.task.model.start(problem.seed), theta),
        )

    def prices(self, problem: Problem, state: State) -> FloatArray:
        """Line 3: λ."""
        return capped_softmax(state.theta, problem.multiplier_bound)

    def objective(self, problem: Problem, state: State) -> Objective:
        """Line 5: G(·; λ)."""
        weights = problem.cell_weights(self.prices(problem, state))
        return Objective(problem.task, weights, problem.risk_weight)

    def violation(
        self, problem: Problem, state: State, total: TrainTotal
    ) -> FloatArray:
        """Return r at the w that was sent; NaN for cells that nobody reported."""
        asked = self.asked(problem, state.round)
        return problem.violation_among(total.cell_losses, asked)

    def step(self, problem: Problem, state: State, total: TrainTotal) -> State:
        """Lines 6 to 8, and the best pair so far."""
        r = self.violation(problem, state, total)
        reached = upper_value(problem.risk(state.w, total), r, problem)
        if reached < state.best_value:
            best = Point(state.w, self.prices(problem, state))
            state = replace(state, best=best, best_value=reached)
        return super().step(problem, state, total)

    def finish(self, problem: Problem, state: State) -> Point:
        """Line 9."""
        if self.returned(problem) == "best" and np.isfinite(state.best_value):
            return state.best
        return self.averaged(problem, state)

    def returned(self, problem: Problem) -> Iterate:
        """Which iterate is returned."""
        chosen = super().returned(problem)
        if self.iterate is None and chosen == "last":
            return "best" if self.asked(problem, 0) is None else "last"
        return chosen

    def wants_majorant(self, problem: Problem) -> bool:
        """Whether η_w or η_θ is to be derived from the curvature."""
        small = problem.n_parameters <= LARGEST
        linear = isinstance(problem.task.model, LinearModel)
        return super().wants_majorant(problem) or (
            linear and small and problem.n_cells > 0 and self.dual_step_size is None
        )

    def tuned(self, problem: Problem, state: State, majorant: Expansion) -> State:
        """Return the first state with η_θ, and L for the first λ."""
        eta = state.dual_step_size or descent.contracting_dual_step(majorant, problem)
        state = replace(state, majorant=majorant, dual_step_size=eta)
        return self.smoothed(problem, state)

    def smoothed(self, problem: Problem, state: State) -> State:
        """Return the state with L of the local objectives for its λ."""
        if state.majorant is None or not super().wants_majorant(problem):
            return state
        lam = self.prices(problem, state)
        L = descent.smoothness(state.majorant, problem, lam)
        return replace(state, smoothness=L)
