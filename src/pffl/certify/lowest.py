"""How low the bound of one cell can go while the others keep theirs.

    t* = min_{‖w‖ ≤ R} R_c(w)   subject to   r_z(w) ≤ 0 for z ≠ c

With ``φ(t) = min_w max(R_c(w) − t, max_{z≠c} r_z(w))`` it is the root of φ, which is
convex and falling with slope −λ_c: Newton's iterates ``t + φ(t)/λ_c`` from t = 0 come
up to t* from below. Every one of them is a minimax problem that `feasibility` solves,
and its multipliers, divided by λ_c, prove a lower bound by weak duality.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pffl.certificates.infeasible import Witness, cell_attainable, cell_lower
from pffl.certificates.interval import Interval
from pffl.engines.base import Engine
from pffl.feasibility import Feasibility, feasibility
from pffl.gap import expand, newton_step
from pffl.problem import Expansion, Problem
from pffl.typing import FloatArray

STEPS = 30  # of Newton's method
CLOSE = 1e-9  # φ this small: at the root
ROOM = 1e-8  # first step beyond the root, to a model that keeps the other bounds
POLISH = 6  # curvature rounds spent on a sharper plane


@dataclass(frozen=True, eq=False)
class Lowest:
    """The smallest bound of one cell, with what shows it.

    Attributes
    ----------
    interval
        Encloses it; None if no model that keeps the other bounds was found.
    lower
        What it is at least.
    multipliers, at
        λ, with 1 for the cell itself, and the point of the plane that prove `lower`.
    model
        A model that keeps the other bounds and attains the upper end.
    impossible
        Whether the other bounds cannot be kept, whatever this one is.
    """

    interval: Interval | None
    lower: float
    multipliers: FloatArray
    at: FloatArray
    model: FloatArray
    impossible: bool = False


def polished(
    engine: Engine, problem: Problem, lam: FloatArray, w: FloatArray
) -> Witness:
    """Move the point of a witness to where its plane proves most."""
    bare = replace(problem, risk_weight=0.0)
    here = expand(engine, problem, w)
    best = _witness(problem, lam, here)
    for _ in range(POLISH):
        if float(lam @ here.violation) - best.bound <= CLOSE:
            break
        here = expand(engine, problem, here.w + newton_step(here, lam, bare))
        best = max(best, _witness(problem, lam, here), key=lambda one: one.bound)
    return best


def _witness(problem: Problem, lam: FloatArray, at: Expansion) -> Witness:
    return Witness.of(lam, at.violation, at.jacobian, at.w, problem.radius)


def lowest(engine: Engine, problem: Problem, cell: int) -> Lowest:
    """Enclose how low the bound of one cell can go with the others fixed."""
    others = np.delete(np.arange(problem.n_cells), cell)
    if len(others):
        alone = replace(
            problem,
            task=replace(problem.task, cells=problem.cells.take(others)),
            counts=problem.counts[others],
        )
        if feasibility(engine, alone).impossible:
            return _impossible(problem)
    search = _Search(engine, problem, cell)
    return search.run()


def _impossible(problem: Problem) -> Lowest:
    nothing = np.zeros(problem.n_parameters)
    lam = np.zeros(problem.n_cells)
    return Lowest(None, 0.0, lam, nothing, nothing, impossible=True)


@dataclass(eq=False)
class _Search:
    """Newton's method on φ, and the best of what it met on the way."""

    engine: Engine
    problem: Problem
    cell: int

    def __post_init__(self) -> None:
        self.lower = -np.inf
        self.multipliers = np.zeros(self.problem.n_cells)
        self.at = self.model = np.zeros(self.problem.n_parameters)
        self.interval: Interval | None = None

    def run(self) -> Lowest:
        """Come up to the root from below, then step over it."""
        t, room = 0.0, ROOM
        for _ in range(STEPS):
            found = self._solve(t)
            share = float(found.witness[self.cell])
            if found.excess.upper <= 0:  # beyond the root: this model keeps the others
                self._attained(found)
                break
            if found.excess.upper > CLOSE and share > 1e-12:
                t += max(found.excess.lower, CLOSE) / share
            else:
                t, room = t + room, 4.0 * room
        return Lowest(
            self.interval,
            max(0.0, self.lower),
            self.multipliers,
            self.at,
            self.model,
        )

    def _solve(self, t: float) -> Feasibility:
        bounds = self.problem.cells.bounds.copy()
        bounds[self.cell] = t
        shifted = self.problem.with_bounds(bounds)
        found = feasibility(self.engine, shifted)
        share = float(found.witness[self.cell])
        if share > 1e-12:
            at = polished(self.engine, shifted, found.witness, found.model).w
            self._raise(found.witness / share, at)
        return found

    def _raise(self, lam: FloatArray, w: FloatArray) -> None:
        here = expand(self.engine, self.problem, w)
        lower = cell_lower(
            self.cell,
            lam,
            here.violation,
            here.jacobian,
            bound=float(self.problem.cells.bounds[self.cell]),
            w=w,
            radius=self.problem.radius,
        )
        if lower > self.lower:
            self.lower, self.multipliers, self.at = lower, lam, w

    def _attained(self, found: Feasibility) -> None:
        here = expand(self.engine, self.problem, found.model)
        means = here.violation + self.problem.cells.bounds
        self.model = found.model
        self.interval = cell_attainable(
            self.cell, max(0.0, self.lower), means, here.violation
        )
