"""Exact: the saddle point of G for convex linear models, in few `expand` rounds.

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
refused too, the step is shortened to where both expansions promise most. Of many cells
the model has those that may bind; cells that its step would violate join them. ρ is
twice Σλ and at most B: the merit needs no higher penalty than the one that closes the
violation. See docs/paper.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pffl.methods import saddle
from pffl.methods.base import GRADIENTS_ONLY, check_hessians
from pffl.methods.saddle_bounds import (
    MAX_TRUST,
    GapMethod,
    SaddleState,
    ScaledTerms,
    accepted,
    finite,
    step_to_saddle,
    take_cells,
)
from pffl.problem import Expansion, Point, Problem
from pffl.queries import Expand, ExpandTotal
from pffl.typing import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Exact(GapMethod[SaddleState]):
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

    def initial(self, problem: Problem, start: Point | None) -> SaddleState:
        """Start at w = 0, or at a pair that is given."""
        import scipy.linalg  # noqa: F401, the saddle's: loaded before its threads count

        check_hessians(self, problem, GRADIENTS_ONLY)
        return self.started(problem, start, SaddleState)

    def query(self, problem: Problem, state: SaddleState) -> Expand:
        """Ask for the expansion at the next w (line 5)."""
        return Expand(problem.task, state.w, 2)

    def step(
        self, problem: Problem, state: SaddleState, total: ExpandTotal | Expansion
    ) -> SaddleState:
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
        terms = ScaledTerms.of(problem, state.radius)
        if here is None or accepted(terms, state, here, trial):
            trust = min(MAX_TRUST, 2.0 * state.trust)
            state = replace(state, here=trial, trust=trust, refused=0)
            return _stepped(terms, state, trial, here)
        refused, trust = state.refused + 1, 0.25 * state.trust
        state = replace(state, trust=trust, refused=refused)
        if refused == 1:
            return _stepped(terms, state, here, trial)
        length = saddle.shorten(terms, here, trial, state.penalty)
        w = here.w + length * (trial.w - here.w)
        return replace(state, w=w, promised=length * state.promised)


def _stepped(
    terms: ScaledTerms, state: SaddleState, here: Expansion, other: Expansion | None
) -> SaddleState:
    """Choose the next w and λ (lines 3 and 4)."""

    def solve(cells: IntArray) -> tuple[saddle.SaddleStep, FloatArray]:
        few, near = replace(terms, n_cells=len(cells)), take_cells(here, cells)
        trend = None if other is None else take_cells(other, cells)
        guess = state.multipliers[cells], state.ball_multiplier
        step = saddle.next_step(few, near, *guess, trend, state.trust)
        return step, step.d

    def ahead(d: FloatArray) -> FloatArray:
        bent = (here.hessians @ d) @ d
        return np.asarray(here.violation + here.jacobian @ d + 0.5 * bent)

    return step_to_saddle(terms, state, here, solve, ahead)
