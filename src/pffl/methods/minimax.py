"""Descent in w, ascent in weights on a simplex: AFL over silos, FedMinMax over cells.

    min_w max_{λ ∈ simplex}  Σ_z λ_z L_z(w) + (ρ/2)‖w‖²

A step of λ that is too long makes it jump from corner to corner for ever, and the mean
of such rounds is not the minimax model either. So the duality gap of the means over the
last rounds is watched, at no cost: their replies have the losses L at w_t, and with one
full local step the update is the gradient h_t = Σ λ_t ∇L(w_t). For convex losses

    upper   max_z mean L_z(w_t) + (ρ/2) mean ‖w_t‖²  ≥  the largest loss of the mean w
    lower   mean (λ_tᵀL(w_t) − h_tᵀw_t) − ‖mean h_t‖²/(2ρ)  ≤  the minimum at the mean λ

and where the gap does not fall from one stretch of rounds to the next while λ goes to
and fro, η_λ is halved.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from pffl.methods.descent import Descent, State
from pffl.methods.step_sizes import answered_step, ascent_regret_step
from pffl.numerics import project_simplex
from pffl.problem import Problem
from pffl.queries import TrainTotal
from pffl.text import up
from pffl.typing import FloatArray

WAIT = 25  # rounds until losses have answered to a step of their weights
CAREFUL = 0.4  # part of the step that their answer allows: w is still on its way
TO_AND_FRO = 3.0
FALLS = 0.9  # of the gap before it, at most: less is no fall
CLOSED = 1e-2  # gap, in parts of the largest loss, above which a run says so
FAR = 10.0  # times as long as the last w: what is compared with, without a ridge


@dataclass(frozen=True, eq=False)
class Stretch:
    """Some rounds in a row, added up, and the gap that their means have.

    Attributes
    ----------
    rounds
        How many.
    losses, slopes, plane, square
        Sums of L, h, λᵀL − hᵀw and ‖w‖².
    first, last, path
        λ of the first and of the last of them, and how far it went in between.
    """

    rounds: int
    losses: FloatArray
    slopes: FloatArray
    first: FloatArray
    last: FloatArray
    plane: float = 0.0
    square: float = 0.0
    path: float = 0.0

    @classmethod
    def none(cls, weights: FloatArray, w: FloatArray) -> Stretch:
        """Return no rounds, from a λ on, for a w of this length."""
        return cls(0, np.zeros_like(weights), np.zeros_like(w), weights, weights)

    def and_round(
        self, w: FloatArray, weights: FloatArray, losses: FloatArray, slope: FloatArray
    ) -> Stretch:
        """Return them with one more: w and λ, and L and h there."""
        return Stretch(
            self.rounds + 1,
            self.losses + losses,
            self.slopes + slope,
            self.first,
            weights,
            self.plane + float(weights @ losses - slope @ w),
            self.square + float(w @ w),
            self.path + float(np.linalg.norm(weights - self.last)),
        )

    @property
    def swings(self) -> bool:
        """Whether λ went to and fro, several times as far as it came."""
        return self.path > TO_AND_FRO * float(np.linalg.norm(self.last - self.first))

    def gap(self, ridge: float, radius: float) -> float:
        """Return the gap of the means; over ‖w‖ ≤ R where there is no ridge."""
        n = self.rounds
        upper = float(self.losses.max()) / n + 0.5 * ridge * self.square / n
        length = float(np.linalg.norm(self.slopes)) / n
        below = length**2 / (2 * ridge) if ridge > 0 else radius * length
        return upper - self.plane / n + below


@dataclass(frozen=True, eq=False, kw_only=True)
class Weighing(State):
    """Where descent in w and ascent in weights stand; sums are over rounds."""

    weights: FloatArray  # λ, on the simplex
    weight_sum: FloatArray
    dual_step_size: float | None  # η_λ
    growth: float = 1.0  # how many times the η_λ before it was
    before: FloatArray | None = None  # the last round's weights and losses
    stretch: Stretch  # the rounds since η_λ was last looked at; none if unwatched
    gap: float = np.inf  # that of the rounds before them


@dataclass(frozen=True, kw_only=True)
class DescentAscent(Descent[Weighing]):
    """min_w max_{λ ∈ simplex} Σ_z λ_z L_z(w) by gradients, one of each a round.

    Parameters
    ----------
    dual_step_size
        η_λ; None takes √(2/T)/‖L‖ and then, for convex models, what the losses'
        answers to the last step of λ allow, halved while the gap does not fall.
    ridge
        Weight of (ridge/2)‖w‖² in the objective; None for the model's μ, 0 for none, as
        in the papers.
    """

    local_steps: int = 1
    rounds: int = 1000
    dual_step_size: float | None = None
    ridge: float | None = None

    def __post_init__(self) -> None:
        self.check(
            positive=("dual_step_size",),
            nonnegative=("ridge",),
            optional=("dual_step_size", "ridge"),
        )

    @abstractmethod
    def losses(self, problem: Problem, round: int, total: TrainTotal) -> FloatArray:
        """Return L at the w that was sent."""

    @abstractmethod
    def steepest(self, curvatures: FloatArray) -> float:
        """Return L of the local objectives, whatever λ, without the ridge."""

    def decay(self, problem: Problem) -> float:
        """Weight of (·/2)‖w‖²."""
        return problem.mu if self.ridge is None else self.ridge

    def weighing(self, problem: Problem, weights: FloatArray) -> Weighing:
        """Return the first state, with these weights."""
        w = problem.task.model.start(problem.seed)
        return Weighing.at_start(
            problem,
            weights=weights,
            weight_sum=np.zeros_like(weights),
            dual_step_size=self.dual_step_size,
            stretch=Stretch.none(weights, w),
        )

    def tuned(self, problem: Problem, state: Weighing) -> Weighing:
        """Return the first state with η_w."""
        if state.curvatures is None:
            return state
        L = self.steepest(state.curvatures) + self.decay(problem)
        return replace(state, smoothness=L)

    def step(self, problem: Problem, state: Weighing, total: TrainTotal) -> Weighing:
        """Descend in w, and ascend in λ by the losses at the w that was sent."""
        losses = self.losses(problem, state.round, total)
        settled = state.before is None or state.round % WAIT == 0
        gap = self.reached(problem, state) if settled else state.gap
        eta, growth = self.ascent(problem, replace(state, gap=gap), losses, state.gap)
        before = np.stack([state.weights, losses]) if settled else state.before
        none = Stretch.none(state.weights, state.w)
        stretch = none if settled else state.stretch
        after = self.descend(problem, state, total)
        counted = self.count(problem, after.round) * state.weights
        return replace(
            after,
            weights=project_simplex(state.weights + eta * losses),
            weight_sum=state.weight_sum + counted,
            dual_step_size=eta,
            growth=growth,
            before=before,
            stretch=self.watched(problem, state, stretch, total, losses),
            gap=gap,
        )

    def watched(
        self,
        problem: Problem,
        state: Weighing,
        stretch: Stretch,
        total: TrainTotal,
        losses: FloatArray,
    ) -> Stretch:
        """Return the stretch with this round, where updates are gradients."""
        whole = self.local_steps == 1 and self.batch_size is None
        all_of_them = self.asked(problem, state.round) is None
        if not (whole and all_of_them and problem.task.model.convex):
            return stretch
        size = self.step_sizes(self.objective(problem, state), state)[0]
        slope = -total.update / (total.share * size) - self.decay(problem) * state.w
        return stretch.and_round(state.w, state.weights, losses, slope)

    def reached(self, problem: Problem, state: Weighing) -> float:
        """Return the gap of the means over the last stretch; infinite if unknown."""
        if not state.stretch.rounds:
            return np.inf
        radius = FAR * float(np.linalg.norm(state.w))
        return state.stretch.gap(self.decay(problem), radius)

    def remark(self, problem: Problem, state: Weighing) -> str | None:
        """Say so where the gap of the last rounds is large."""
        if not state.stretch.rounds:
            return None
        gap = min(state.gap, self.reached(problem, state))
        largest = float(state.stretch.losses.max()) / state.stretch.rounds
        if gap <= CLOSED * largest:
            return None
        fixed = self.dual_step_size is not None and state.stretch.swings
        advice = "leave out 'dual_step_size'" if fixed else "raise 'rounds'"
        swings = "its weights swing to and fro, and " if state.stretch.swings else ""
        return (
            f"{self.name} has not converged: {swings}the duality gap of its last "
            f"rounds is {up(gap, digits=2)}: {advice}"
        )

    def ascent(
        self, problem: Problem, state: Weighing, losses: FloatArray, before: float
    ) -> tuple[float, float]:
        """Return η_λ, and how many times the one before it is.

        `before` is the gap of the stretch before the last.
        """
        eta = state.dual_step_size
        if eta is None:
            return ascent_regret_step(losses, self.rounds), 1.0
        fixed = self.dual_step_size is not None or not problem.task.model.convex
        if fixed or state.before is None or state.round % WAIT:
            return eta, state.growth
        moved, answer = np.linalg.norm([state.weights, losses] - state.before, axis=1)
        across = 1.0 / max(float(np.ptp(losses)), 1e-12)  # the whole simplex
        new = answered_step(eta, state.growth, CAREFUL * moved, answer, across)
        if state.stretch.swings and FALLS * before < state.gap:
            new = min(new, 0.5 * eta)
        return new, new / eta
