"""PFFL: Algorithm 1 of *Fair Federated Learning via Bounded Group Loss*.

Shengyuan Hu, Zhiwei Steven Wu, Virginia Smith. Corrected as docs/paper.md says.

    1  θ ← 0, w ← 0
    2  for e = 1 … E:                                       dual rounds
    3      λ_z ← B e^{θ_z} / (1 + Σ e^θ)                    numerics.capped_softmax
    4      for t = 1 … T:                                   rounds per dual round
    5          each silo: J steps of size η_w on G_k(·; λ)  queries.train
    6          w ← w + Σ p_k Δ_k / Σ p_k
    7          w̄, λ̄ ← averages over all E·T rounds
    8      θ ← θ + η_θ r(w)
    9  return (w̄, λ̄)

r in line 8 is taken at the w that was sent in the last of the T rounds: it comes with
the same reply, and no extra round is spent on it.

Beyond the paper, each by its own parameter: local steps corrected for drift (line 5),
averages in which later rounds count more (line 7), an η_θ that follows how r answered
(line 8), and an end as soon as the gap of (w̄, λ̄), asked for now and then, is small
enough. docs/methods.md, 2 has the settings that converge fastest.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar, get_args

import numpy as np

from pffl.bounds.gap import gap_unit
from pffl.flow import Bounds
from pffl.methods import descent
from pffl.methods.base import PRICES, Grid
from pffl.methods.descent import Iterate, Iterates, LocalTraining, Objective
from pffl.methods.step_sizes import (
    FARTHEST,
    answered_step,
    regret_dual_step,
    smoothness,
    smoothness_by_mass,
)
from pffl.models.linear import LinearModel
from pffl.numerics import capped_softmax
from pffl.problem import Expansion, Point, Problem, lower_value, upper_value
from pffl.queries import Expand, ExpandTotal, Train, TrainTotal
from pffl.typing import FloatArray

FIRST_LOOK = 10  # rounds before the gap is measured for the first time, at least
LATER = 1.5  # times as many rounds as at the last look, before the next


@dataclass(frozen=True, eq=False, kw_only=True)
class Prices(descent.State):
    """Where Algorithm 1 stands after `round` rounds of training."""

    theta: FloatArray  # θ
    multiplier_sum: FloatArray  # Σ λ over rounds, each as often as it counts
    dual_step_size: float | None  # η_θ
    growth: float = 1.0  # how many times the η_θ before it was
    before: FloatArray | None = None  # θ and r of the last dual round


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
        η_θ; None takes one from the scale of r after the first dual round and then, for
        convex models, what r's answers to the last steps allow.
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

    def length(self, problem: Problem, lam: FloatArray, v: FloatArray) -> float:
        """Return how long a move v of θ is, as λ sees it: √vᵀDv, D = ∂λ/∂θ."""
        return mirror_length(lam, v, problem.multiplier_bound)

    @abstractmethod
    def smoothed(self, problem: Problem, state: S) -> S:
        """Return the state with L of the local objectives for its λ."""

    def step(self, problem: Problem, state: S, total: TrainTotal) -> S:
        """Lines 6 to 8: what the total does to the state."""
        lam, r = self.prices(problem, state), self.violation(problem, state, total)
        state = self.descend(problem, state, total)  # lines 6 and 7
        lam_sum = state.multiplier_sum + self.count(problem, state.round) * lam
        state = replace(state, multiplier_sum=lam_sum)
        if state.round % self.rounds_per_dual or (len(r) and np.isnan(r).all()):
            return state
        return self.climb(problem, state, r)

    def climb(self, problem: Problem, state: S, r: FloatArray) -> S:
        """Line 8: what r at the end of a dual round does to θ."""
        eta, growth = self.ascent(problem, state, r)
        known = np.nan_to_num(r)  # a cell that nobody reported does not move its θ
        state = replace(
            state,
            theta=state.theta + eta * known,  # line 8
            dual_step_size=eta,
            growth=growth,
            before=np.stack([state.theta, self.heard(state, r)]),
        )
        return self.smoothed(problem, state)

    def heard(self, state: S, violation: FloatArray) -> FloatArray:
        """Return r, as it last was for cells that nobody reported."""
        known = np.zeros_like(violation) if state.before is None else state.before[1]
        return np.where(np.isnan(violation), known, violation)

    def ascent(
        self, problem: Problem, state: S, violation: FloatArray
    ) -> tuple[float, float]:
        """Return η_θ, and how many times the one before it is."""
        eta, r = state.dual_step_size, self.heard(state, violation)
        if eta is None:
            return regret_dual_step(r, self.dual_rounds), 1.0
        fixed = self.dual_step_size is not None or not problem.task.model.convex
        if fixed or state.before is None or not eta:
            return eta, 1.0
        lam = self.prices(problem, replace(state, theta=state.before[0]))
        moves = np.stack([state.theta, r]) - state.before
        moved, answer = (self.length(problem, lam, v) for v in moves)
        farthest = FARTHEST / max(float(np.abs(r).max(initial=0.0)), 1e-12)
        new = answered_step(eta, state.growth, moved, answer, farthest)
        return new, new / eta

    def returned(self, problem: Problem) -> Iterate:
        """Which w is returned; unasked, the recent mean where losses are convex."""
        free = self.iterate is None and problem.task.model.convex
        return "recent" if free else super().returned(problem)

    def averaged(self, problem: Problem, state: S) -> Point:
        """Line 9, or the last pair."""
        lam = self.prices(problem, state)
        return Point(
            self.mean(problem, state, state.w_sum, state.w),
            self.mean(problem, state, state.multiplier_sum, lam),
        )


def mirror_length(lam: FloatArray, v: FloatArray, bound: float) -> float:
    """Return √(Σλv² − (Σλv)²/B): how far λ moves with θ, beside λ itself."""
    return math.sqrt(max(0.0, float(lam @ v**2) - float(lam @ v) ** 2 / bound))


@dataclass(frozen=True, eq=False)
class Seen:
    """The gap of a pair, from values and gradients at its w alone."""

    upper: float
    lower: float
    w: FloatArray
    radius: float  # R of the ball for which it holds; infinite for all models
    closed: bool  # whether it is small enough

    @classmethod
    def nothing(cls, w: FloatArray) -> Seen:
        """Return that nothing was measured."""
        return cls(np.inf, -np.inf, w, np.inf, closed=False)

    @classmethod
    def of(
        cls, problem: Problem, at: Expansion, multipliers: FloatArray, target: float
    ) -> Seen:
        """Measure it; w is well inside the ball, if there is one."""
        radius = max(problem.radius, 10.0 * float(np.linalg.norm(at.w)))
        problem, errors = replace(problem, radius=radius), problem.errors(at)
        upper = upper_value(at.risk, at.violation, problem)
        upper += errors.upper(problem.risk_weight, problem.multiplier_bound)
        lower = lower_value(at, multipliers, problem, errors)
        largest = float((at.violation + problem.cells.bounds).max(initial=at.risk))
        unit = gap_unit(largest, problem.unit)
        weight = problem.risk_weight + float(multipliers.sum())
        everywhere = problem.modulus > 0
        return cls(
            upper,
            lower,
            at.w,
            np.inf if everywhere else radius,
            bool(upper - lower <= target * weight * unit),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class State(Prices):
    """Where PFFL stands."""

    best: Point
    best_value: float = np.inf  # smallest βF + B·max(0, max r) seen, at `best`
    look: int  # the round after which the gap is measured next
    seen: Seen  # what was measured after the last round of training


@dataclass(frozen=True, kw_only=True)
class PFFL(PrimalDual[State]):
    """Algorithm 1, as printed: λ begins at B/(Z+1) for every cell.

    So an inactive bound changes the iterates, and less the longer it stays inactive.

    Parameters
    ----------
    multiplier_bound, risk_weight, dual_rounds, rounds_per_dual, dual_step_size
        B, β, E, T and η_θ, see `PrimalDual`.
    target_gap
        Gap ν, in parts of β + Σλ and of the losses' unit, at which it counts as
        converged. Linear models end there: the gap is measured now and then, by a
        round of `slopes` of all silos.
    iterate
        What to return: the paper's "average" over all rounds (guaranteed for convex
        models); a mean in which round t counts t⁷ times, so that the last eighth
        decides ("recent"); the "last"; or the "best" (smallest βF + B·max(0, max r) on
        training rows). None takes the recent for convex models, whose gap is measured
        whatever it is; for others the best, or the last where rounds ask some silos
        only, so that the best would be the luckiest draw.
    local_steps, step_size, batch_size, …
        J, η_w and the rest of the local training, see `LocalTraining`.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> method = pffl.PFFL(multiplier_bound=5.0, dual_rounds=100, rounds_per_dual=3)
    >>> bounds = pffl.BoundedGroupLoss(0.68)
    >>> solution = pffl.solve(people, bounds, method=method, seed=0)
    >>> solution.status, solution.rounds
    ('met', 309)
    """

    target_gap: float = 1e-2
    iterate: Iterate | None = None
    iterates: ClassVar[Iterates] = (None, *get_args(Iterate))
    name: ClassVar[str] = "pffl"
    saddle: ClassVar[bool] = True
    grid: ClassVar[Grid] = {
        "multiplier_bound": PRICES,
        "iterate": ("recent", "average"),
    }

    def check(self, **kinds: tuple[str, ...]) -> None:
        """Refuse bad parameters, the target among them."""
        positive = (*kinds.get("positive", ()), "target_gap")
        super().check(**{**kinds, "positive": positive})

    def own(self, problem: Problem) -> Problem:
        """Return the problem itself: its smoothness gives η_w."""
        return problem

    def start(self, problem: Problem) -> State:
        """Line 1."""
        theta, w = np.zeros(problem.n_cells), problem.task.model.start(problem.seed)
        return State.at_start(
            problem,
            theta=theta,
            multiplier_sum=theta,
            dual_step_size=self.dual_step_size,
            best=Point(w, theta),
            look=self.after(0),
            seen=Seen.nothing(w),
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

    @property
    def planned_rounds(self) -> int:
        """E·T, and those that measure the gap."""
        look, looks = self.after(0), 0
        while look < self.last_round:
            look, looks = self.after(look), looks + 1
        return self.last_round + looks

    def after(self, round: int) -> int:
        """Return the round after which the gap is measured next."""
        wait = max(FIRST_LOOK, math.ceil(LATER * round) - round)
        return round + math.ceil(wait / self.rounds_per_dual) * self.rounds_per_dual

    def query(self, problem: Problem, state: State) -> Train | Expand | None:
        """Ask for training; or, now and then, for the gap of what stands so far."""
        if state.seen.closed:
            return None
        if self.looks(problem, state):
            return Expand(problem.task, self.finish(problem, state).w)
        return self.training(problem, state)

    def looks(self, problem: Problem, state: State) -> bool:
        """Whether the gap is to be measured now."""
        due = state.look == state.round < self.last_round
        linear = isinstance(problem.task.model, LinearModel)
        # A silo that is away for a while would end the run at a look.
        whole = self.asked(problem, state.round) is None and not problem.access.partial
        return due and linear and whole

    def step(
        self,
        problem: Problem,
        state: State,
        total: TrainTotal | ExpandTotal | Expansion,
    ) -> State:
        """Lines 6 to 8, and the best pair so far; or the gap."""
        if not isinstance(total, TrainTotal):
            pair = self.finish(problem, state)
            at = problem.expand(pair.w, total)
            seen = Seen.of(problem, at, pair.multipliers, self.target_gap)
            return replace(state, seen=seen, look=self.after(state.round))
        state = replace(state, seen=Seen.nothing(state.w))
        r = self.violation(problem, state, total)
        reached = upper_value(problem.risk(state.w, total), r, problem)
        if reached < state.best_value:
            best = Point(state.w, self.prices(problem, state))
            state = replace(state, best=best, best_value=reached)
        return super().step(problem, state, total)

    def gap(self, state: State) -> float:
        """ν, where it has just been measured."""
        return state.seen.upper - state.seen.lower

    def bounds(self, state: State) -> Bounds | None:
        """Return both ends of the gap, where it was small enough."""
        seen = state.seen
        if not seen.closed:
            return None
        return seen.upper, seen.lower, seen.w, seen.radius

    def multipliers(self, problem: Problem, state: State) -> FloatArray:
        """λ of the pair whose gap is measured."""
        return self.finish(problem, state).multipliers

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

    def tuned(self, problem: Problem, state: State) -> State:
        """Return the first state with L for the first λ."""
        return self.smoothed(problem, state)

    def smoothed(self, problem: Problem, state: State) -> State:
        """Return the state with L of the local objectives for its λ."""
        if state.curvatures is None:
            return state
        of = smoothness_by_mass if self.divides(problem) else smoothness
        L = of(state.curvatures, problem, self.prices(problem, state))
        return replace(state, smoothness=L)

    def divides(self, problem: Problem) -> bool:
        """Whether silos' steps are divided by their mass; by default where η_w is ours.

        Who asks for the paper's average is given the paper's steps.
        """
        free = self.by_mass is None and problem.risk_weight > 0
        convex = problem.task.model.convex
        ours = self.step_size is None and self.iterate != "average"
        return (free and (ours or not convex)) or super().divides(problem)
