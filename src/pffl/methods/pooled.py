"""Pooled: the plain regularised fit, as if all rows were in one place.

    min_w  (1/m) Σ_i ℓ_i(w) + (μ/2)‖w‖²            whatever weights p_k the silos have

A reference point, not a paper. Newton's method with backtracking (Boyd, Vandenberghe,
*Convex Optimization*, algorithm 9.5), on `curvature` totals with p_k = m_k/m:

    1  w ← 0
    2  repeat:
    3      ask for value, gradient g and Hessian H at w
    4      if the value did not fall as promised: halve the step to w, ask again
    5      stop if ‖g‖ is small
    6      w ← w − H⁻¹ g
    7  return w
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pffl.flow import Round, Start, Steps
from pffl.methods.base import Count, Method, Positive, check_hessians
from pffl.problem import Point, Problem
from pffl.queries import Expand, Task
from pffl.queries.expand import linear
from pffl.typing import FloatArray

ARMIJO = 1e-4
ROUNDING = 1e-15
RANK = 1e-13  # relative size below which a direction has no curvature


@dataclass(frozen=True, eq=False)
class Newton:
    """A search for the minimum of a convex function, fed with its expansions.

    Attributes
    ----------
    w
        Where to look next; once `done`, the minimiser.
    origin, value
        The last accepted w, and the function there.
    step, slope
        From `origin` to `w`, and how fast the function falls along it.
    """

    w: FloatArray
    origin: FloatArray
    value: float = np.inf
    step: FloatArray | None = None
    slope: float = 0.0
    done: bool = False

    @classmethod
    def at(cls, w: FloatArray) -> Newton:
        """Start a search."""
        return cls(w, w)

    def told(
        self, value: float, gradient: FloatArray, hessian: FloatArray, tolerance: float
    ) -> Newton:
        """Lines 4 to 6, for what was found at `w`."""
        noise = ROUNDING * max(1.0, abs(value))
        fell = value <= self.value + ARMIJO * self.slope + noise
        if self.step is not None and not fell:  # NaN does not fall
            half = self.step / 2
            return replace(self, w=self.origin + half, step=half, slope=self.slope / 2)
        d = -np.linalg.pinv(hessian, rcond=RANK, hermitian=True) @ gradient
        slope = float(gradient @ d)  # −gᵀH⁻¹g: half of it is what is left to gain
        if float(np.linalg.norm(gradient)) <= tolerance or -slope <= noise * ROUNDING:
            return Newton(self.w, self.w, value, done=True)
        return Newton(self.w + d, self.w, value, d, slope)


@dataclass(frozen=True, kw_only=True)
class Pooled(Method):
    """Plain regularised fit on pooled rows.

    Parameters
    ----------
    tolerance
        Length of the gradient at which to stop.
    max_rounds
        Rounds after which to stop in any case.
    """

    tolerance: Positive = 1e-10
    max_rounds: Count = 50
    name: ClassVar[str] = "pooled"
    ignores_cells: ClassVar[bool] = True

    @property
    def planned_rounds(self) -> int:
        """Rounds at most."""
        return self.max_rounds

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Newton's method on the mean loss of all rows."""
        check_hessians(self, problem, "`method='first-order'` without bounds")
        search = Newton.at(linear(problem.task).start(problem.seed))  # line 1
        task, none = by_rows(problem), np.zeros(problem.n_cells)
        for _ in range(self.max_rounds):  # line 2
            total = yield Expand(task, search.w, 2)  # line 3
            at = problem.expand(search.w, total)
            found = (at.risk, at.risk_gradient, at.risk_hessian)
            search = search.told(*found, self.tolerance)  # lines 4 to 6
            yield Round(Point(search.origin, none))
            if search.done:
                break
        return Point(search.origin, none)  # line 7


def by_rows(problem: Problem) -> Task:
    """Return the task with p_k = m_k/m: its risk is the mean over all rows."""
    m, pool = problem.silo_weights.sum(axis=1), problem.task.pool
    shared = None if pool is None else replace(pool, by_rows=True)
    return replace(problem.task, shares=m / m.sum(), pool=shared)
