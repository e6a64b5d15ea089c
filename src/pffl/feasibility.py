"""Can the bounds be met at all? A proof when not, and the smallest that can.

The question is the sign of  min_{‖w‖≤R} max_z r_z(w), a minimax problem: `Exact` with
β = 0 and B = 1 solves it, and its λ is the witness of infeasibility.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pffl.certificates.infeasible import witness_bound
from pffl.certificates.interval import Interval
from pffl.engines.base import Engine
from pffl.gap import expand, newton_step
from pffl.loop import iterate
from pffl.methods.exact import Exact
from pffl.problem import Expansion, Problem
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class Feasibility:
    """How far the bounds are from what is possible.

    Attributes
    ----------
    excess
        Encloses the least s such that all bounds ζ_z + s can be met at once: positive
        means impossible, negative means there is room.
    witness
        λ on the simplex with λᵀr(w) ≥ excess.lower for every ‖w‖ ≤ R.
    model, risk
        A w whose worst violation is excess.upper, and its F(w).
    rounds
        Rounds spent.
    """

    excess: Interval
    witness: FloatArray
    model: FloatArray
    risk: float
    rounds: int

    def at(self, shift: float) -> Feasibility:
        """Return what this says of bounds that are all higher by `shift`."""
        excess = Interval(self.excess.lower - shift, self.excess.upper - shift)
        return replace(self, excess=excess, rounds=0)

    @property
    def impossible(self) -> bool:
        """Whether the witness proves that no model meets all bounds."""
        return self.excess.lower > 0


def feasibility(engine: Engine, problem: Problem) -> Feasibility:
    """Enclose the smallest excess, with a witness anyone can re-check."""
    # Shift the bounds so that r > 0 everywhere: then s ≥ 0 never binds and Σλ = 1.
    ceiling = float(problem.cells.bounds.max())
    shifted = replace(
        problem.with_bounds(problem.cells.bounds - ceiling),
        risk_weight=0.0,
        multiplier_bound=1.0,
    )
    run = iterate(engine, shifted, Exact(multiplier_bound=1.0, risk_weight=0.0))
    at = expand(engine, problem, run.point.w)
    lam = run.point.multipliers
    lam = lam / lam.sum() if lam.sum() > 0 else np.full(len(lam), 1.0 / len(lam))
    lower, extra = _raise_bound(engine, shifted, problem, lam, at)
    upper = float(at.violation.max())
    return Feasibility(
        Interval(min(lower, upper), upper),
        lam,
        run.point.w,
        at.risk,
        run.rounds + 1 + extra,
    )


def _raise_bound(
    engine: Engine,
    shifted: Problem,
    problem: Problem,
    lam: FloatArray,
    at: Expansion,
    effort: int = 5,
) -> tuple[float, int]:
    """Polish min λᵀr by Newton steps; every one gives a valid bound."""
    best, here = -np.inf, at
    for rounds in range(effort + 1):
        bound = witness_bound(
            lam, here.violation, here.jacobian, here.w, problem.radius
        )
        best = max(best, bound)
        if float(lam @ here.violation) - best <= 1e-9 or rounds == effort:
            break
        here = expand(engine, problem, here.w + newton_step(here, lam, shifted))
    return best, rounds
