"""Exact: the saddle point of G for convex linear models, in few `curvature` rounds.

    min_{w, s ≥ 0}  βF(w) + B s    subject to    r_z(w) ≤ s

One round brings value, gradient and Hessian of F and of every cell at one w. Then,
without asking again,

    1  upper ← βF + B·max(0, max r);  lower ← its best λ at this w    saddle_bounds
    2  w is accepted if the merit βF + ρ·max(0, max r) fell as promised    accepted
    3  d, λ ← saddle point of the second-order model around w                saddle
    4  the same again, with the curvature that its trend predicts   saddle.forecast
    5  ask at w + d

until the gap upper − lower is small enough.

A refused w is no waste: its expansion corrects the curvature (line 4); if that is
refused too, the step is shortened to where both expansions promise most. ρ is twice Σλ
and at most B: the merit needs no higher price than the one that closes the violation.
See docs/paper.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from pffl.methods import saddle
from pffl.methods.base import GRADIENTS_ONLY, check_hessians
from pffl.methods.saddle_bounds import (
    GapMethod,
    InUnits,
    SaddleState,
    accepted,
    finite,
    inside,
)
from pffl.problem import Expansion, Point, Prices, Problem
from pffl.queries import Expand, ExpandTotal


@dataclass(frozen=True, eq=False)
class State(SaddleState):
    """Where the method stands.

    Attributes
    ----------
    ball_price
        Multiplier of the ball ‖w‖ ≤ R, where βμ = 0.
    trust
        How far a trend of curvature is followed.
    """

    ball_price: float = 0.0
    trust: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Exact(GapMethod[State]):
    """Second-order saddle point method for convex linear models.

    Parameters
    ----------
    multiplier_bound
        B; None starts at 10 and raises it until the bounds are met or proved
        impossible.
    risk_weight
        β.
    target_gap
        Gap ν, in parts of β + Σλ and of the losses' unit, at which it counts as
        converged. It stops at a hundredth of it; never below what rounding hides.
    max_rounds
        Rounds after which to stop in any case.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> method = pffl.Exact(multiplier_bound=20.0)
    >>> bounds = pffl.BoundedGroupLoss(0.65)
    >>> solution = pffl.solve(people, bounds, method=method, seed=0)
    >>> solution.status, solution.rounds < 10, solution.gap < 1e-6
    ('met', True, True)
    """

    name: ClassVar[str] = "exact"
    order: ClassVar[int] = 2
    closer: ClassVar[float] = 0.01  # the last round squares the gap

    def initial(self, problem: Problem, start: Point | None) -> State:
        """Start at w = 0, or at a pair that is given."""
        import scipy.linalg  # noqa: F401, the saddle's: loaded before its threads count

        check_hessians(self, problem, GRADIENTS_ONLY)
        return self.started(problem, start, State)

    def query(self, problem: Problem, state: State) -> Expand:
        """Ask for the expansion at the next w (line 5)."""
        return Expand(problem.task, state.w, 2)

    def step(
        self, problem: Problem, state: State, total: ExpandTotal | Expansion
    ) -> State:
        """Lines 1 to 4."""
        raw = problem.expand(state.w, total)
        trial = raw.times(1.0 / state.unit)
        state = replace(state, round=state.round + 1)
        if not finite(trial):
            return replace(state, stalled=True)
        here = state.here
        state = self.update_bounds(problem, state, raw)
        if self.finished(state):
            return state
        prices = InUnits.of(problem, state.radius)
        if here is None or accepted(prices, state, here, trial):
            trust = min(1.0, 2.0 * state.trust)
            state = replace(state, here=trial, trust=trust, refused=0)
            return _stepped(prices, state, trial, here)
        refused, trust = state.refused + 1, 0.25 * state.trust
        state = replace(state, trust=trust, refused=refused)
        if refused == 1:
            return _stepped(prices, state, here, trial)
        length = saddle.shorten(prices, here, trial, state.price)
        w = here.w + length * (trial.w - here.w)
        return replace(state, w=w, promised=length * state.promised)


def _stepped(
    problem: Prices, state: State, here: Expansion, other: Expansion | None
) -> State:
    """Choose the next w and λ (lines 3 and 4)."""
    guess = saddle.Guess(state.multipliers, state.ball_price, state.trust)
    step = saddle.next_step(problem, here, other, guess)
    price = max(2.0 * float(step.multipliers.sum()), float(state.multipliers.sum()))
    price = min(problem.multiplier_bound, price)  # ρ
    worst = max(0.0, float(here.violation.max(initial=0.0)))
    left = max(0.0, float(step.violation.max(initial=0.0)))
    return replace(
        state,
        w=inside(problem, here.w + step.d),
        multipliers=step.multipliers,
        price=price,
        promised=max(0.0, price * (worst - left) - step.risk_change),
        ball_price=step.ball_price,
    )
