"""FirstOrder: the saddle point of G for convex linear models, from gradients alone.

    min_{w, s ≥ 0}  βF(w) + B s    subject to    r_z(w) ≤ s

One round brings value and gradient of F and of every cell at one w: (Z + 1)(p + 1)
numbers, where `Exact` asks for Hessians. Then, without asking again,

    1  upper ← βF + B·max(0, max r);  lower ← its best λ at this w    saddle_bounds
    2  how all gradients changed since `here` is remembered            quasi_newton
    3  w is accepted if the merit βF + ρ·max(0, max r) fell as promised    accepted
    4  λ ← argmax over λ ≥ 0, Σλ ≤ B of the dual of the linearised bounds,
           λᵀr − ½ (β∇F + Jᵀλ)ᵀ H(λ)⁻¹ (β∇F + Jᵀλ);   d = −H(λ)⁻¹ (β∇F + Jᵀλ)
    5  ask at w + d

until the gap upper − lower is small enough. H is that of G(·; λ), learnt for any λ; so
4 is repeated until λ and H(λ) agree. A refused w is no waste: it is remembered as well,
and on the way to it every function is known by values and slopes at both ends, which
tells where the merit is least. See docs/methods.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pffl.methods import saddle
from pffl.methods.quasi_newton import Inverse, room
from pffl.methods.saddle_bounds import (
    GapMethod,
    InUnits,
    Standing,
    accepted,
    finite,
    inside,
)
from pffl.problem import Expansion, Prices, Problem
from pffl.questions import Slopes, SlopesTotal
from pffl.questions.plausible import SHAPES
from pffl.typing import FloatArray

AGREEMENTS = 4  # times that λ and H(λ) are fitted to each other
AGREED = 0.01  # parts of β + Σλ by which λ still moves then
LENGTHS = np.linspace(0.02, 0.9, 45)  # parts of a refused step


@dataclass(frozen=True, eq=False)
class State(Standing):
    """Where the method stands.

    Attributes
    ----------
    steps, changes
        Pairs, the oldest first: s, and ΔJ of F's losses and of every cell.
    """

    steps: tuple[FloatArray, ...] = ()
    changes: tuple[FloatArray, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FirstOrder(GapMethod[State]):
    """Quasi-Newton saddle point method for convex linear models of any width.

    Parameters
    ----------
    multiplier_bound
        B; None starts at 10 and raises it until the bounds are met or proved
        impossible.
    risk_weight
        β.
    target_gap
        Gap ν, in parts of β + Σλ and of the losses' unit, at which it counts as
        converged.
    max_rounds
        Rounds after which to stop in any case.
    warm_start
        A pair to start from, such as the solution of a neighbouring problem.
    """

    max_rounds: int = 200
    name: ClassVar[str] = "first-order"
    closer: ClassVar[float] = 0.4
    patience: ClassVar[int] = 30

    @property
    def most_rounds(self) -> int:
        """Its rounds, those for the model without bounds, and some dozens of proofs."""
        return 2 * self.max_rounds + 100

    def init(self, problem: Problem, constants: None = None) -> State:
        """Start at w = 0, or at the warm start."""
        return self.begun(problem, State)

    def question(self, problem: Problem, state: State) -> Slopes | None:
        """Ask for values and gradients at the next w (line 5)."""
        over = self.finished(state)
        return None if over else Slopes(problem.task, state.w)

    def step(self, problem: Problem, state: State, total: SlopesTotal) -> State:
        """Lines 1 to 4."""
        raw = problem.expand(state.w, total)
        trial = raw.times(1.0 / state.unit)
        state = replace(state, round=state.round + 1)
        if not finite(trial):
            return replace(state, stalled=True)
        here = state.here
        state = self.judged(problem, state, raw)
        if self.finished(state):
            return state
        prices = InUnits.of(problem, state.radius)
        if here is not None:
            state = _remembering(problem, state, here, trial)
        if here is None or accepted(prices, state, here, trial):
            state = replace(state, here=trial, refused=0)
            return _stepped(prices, state, trial, sizes_of(problem))
        length = _shorter(prices, here, trial, state.price)
        return replace(
            state,
            w=here.w + length * (trial.w - here.w),
            promised=length * state.promised,
            refused=state.refused + 1,
        )


def sizes_of(problem: Problem) -> FloatArray:
    """Return the curvature that each parameter can have in a mean of losses: c."""
    model = problem.task.model
    known = SHAPES.get(type(model))
    steepest = 1.0 if known is None else known(model).curvature / problem.unit
    squares = problem.column_sizes**2 / float(problem.masses.sum())
    sizes = steepest * np.maximum(squares, 1e-12 * squares.max())
    return np.tile(sizes, problem.n_parameters // len(sizes))


def _remembering(
    problem: Problem, state: State, here: Expansion, trial: Expansion
) -> State:
    """Add a pair (line 2)."""
    s = trial.w - here.w
    risk = trial.risk_gradient - here.risk_gradient - (problem.mu / state.unit) * s
    change = np.vstack([risk, trial.jacobian - here.jacobian])
    most = room(len(s), problem.n_cells)
    return replace(
        state,
        steps=(*state.steps, s)[-most:],
        changes=(*state.changes, change)[-most:],
    )


def _stepped(prices: Prices, state: State, here: Expansion, sizes: FloatArray) -> State:
    """Choose the next w and λ (line 4)."""
    beta, z, lam = prices.risk_weight, prices.n_cells, state.multipliers
    columns = np.vstack([beta * here.risk_gradient, here.jacobian]).T
    for _ in range(AGREEMENTS):
        inverse = Inverse.of(
            state.steps,
            state.changes,
            np.append(beta, lam) if beta + lam.sum() > 0 else np.full(1 + z, 1e-3),
            sizes=sizes,
            modulus=prices.modulus,
        )
        solved = inverse.times(columns)
        gram = columns.T @ solved
        gram = 0.5 * (gram + gram.T)
        before, found = (
            lam,
            saddle.maximise_capped(
                gram[1:, 1:],
                here.violation - gram[1:, 0],
                np.zeros(z),
                prices.multiplier_bound,
                z,
            ),
        )
        lam = lam if found is None else found
        if float(np.abs(lam - before).sum()) <= AGREED * (beta + lam.sum()):
            break
    d = -(solved[:, 0] + solved[:, 1:] @ lam)
    price = max(2.0 * float(lam.sum()), float(state.multipliers.sum()))
    price = min(prices.multiplier_bound, price)  # ρ
    worst = max(0.0, float(here.violation.max(initial=0.0)))
    left = max(0.0, float((here.violation + here.jacobian @ d).max(initial=0.0)))
    saved = price * (worst - left) - beta * float(here.risk_gradient @ d)
    return replace(
        state,
        w=inside(prices, here.w + d),
        multipliers=lam,
        price=price,
        promised=max(0.0, saved),
    )


def _shorter(prices: Prices, here: Expansion, trial: Expansion, price: float) -> float:
    """Return the part of a refused step at which the merit is least.

    Between values and slopes at both ends every function is taken for a cubic, but for
    no less than its two tangents.
    """
    d, t = trial.w - here.w, LENGTHS
    a, b = np.append(here.risk, here.violation), np.append(trial.risk, trial.violation)
    slope = np.append(here.risk_gradient @ d, here.jacobian @ d)
    after = np.append(trial.risk_gradient @ d, trial.jacobian @ d)
    path = np.outer(a, 2 * t**3 - 3 * t**2 + 1) + np.outer(b, 3 * t**2 - 2 * t**3)
    path += np.outer(slope, t**3 - 2 * t**2 + t) + np.outer(after, t**3 - t**2)
    path = np.maximum(path, a[:, None] + np.outer(slope, t))
    path = np.maximum(path, b[:, None] + np.outer(after, t - 1.0))
    worst = np.maximum(path[1:].max(axis=0, initial=0.0), 0.0)
    return float(t[np.argmin(prices.risk_weight * path[0] + price * worst)])
