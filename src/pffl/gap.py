"""How far a pair (w, λ) is from the saddle point, measured, never assumed.

The gap is max_λ' G(w; λ') − min_w' G(w'; λ). The maximum is known in closed form. The
minimum is bounded from below by one gradient at *any* w'; a few Newton steps on
G(·; λ) make that bound tight. See docs/certificates.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pffl.engines.base import Engine
from pffl.problem import (
    Expansion,
    Point,
    Problem,
    lower_value,
    upper_value,
    value,
)
from pffl.questions import Curvature
from pffl.typing import FloatArray

EFFORT = 30  # curvature rounds that a best response may take
SHARPNESS = 0.01  # stop when what is left is this small a part of the gap


@dataclass(frozen=True, eq=False)
class Gap:
    """A measured duality gap.

    Attributes
    ----------
    upper
        βF(w) + B·max(0, max r(w)).
    lower
        A number that G(·; λ) never goes below.
    rounds
        `curvature` rounds spent on measuring.
    """

    upper: float
    lower: float
    rounds: int

    @property
    def value(self) -> float:
        """ν: upper − lower, at least what rounding can hide."""
        rounding = 1e-15 * max(1.0, abs(self.upper), abs(self.lower))
        return max(self.upper - self.lower, rounding)


def measure(
    engine: Engine, problem: Problem, point: Point, *, lower: float = -np.inf
) -> Gap:
    """Measure the gap of a pair; `lower` is a bound already known for its λ."""
    at_w = expand(engine, problem, point.w)
    upper = upper_value(at_w.risk, at_w.violation, problem)
    found, rounds = best_response(
        engine, problem, point.multipliers, start=at_w, upper=upper, known=lower
    )
    return Gap(upper, found, rounds + 1)


def expand(engine: Engine, problem: Problem, w: FloatArray) -> Expansion:
    """Ask for the expansion at w."""
    return problem.expand(w, engine.ask(Curvature(problem.task, w)))


def best_response(
    engine: Engine,
    problem: Problem,
    multipliers: FloatArray,
    *,
    start: Expansion,
    upper: float,
    known: float = -np.inf,
) -> tuple[float, int]:
    """Raise the lower bound on G(·; λ) by damped Newton steps from `start`.

    Returns the best bound and the rounds spent. Stops as soon as more steps could not
    lower the gap to `upper` by more than a hundredth.
    """
    lower, rounds = known, 0
    here = start
    while True:
        lower = max(lower, lower_value(here, multipliers, problem))
        g_here = value(
            here.risk, here.violation, multipliers, problem.risk_weight
        )  # ≥ the minimum
        left = g_here - lower
        if left <= SHARPNESS * max(upper - lower, 1e-14) or rounds >= EFFORT:
            return lower, rounds
        step = newton_step(here, multipliers, problem)
        scale = 1.0
        while rounds < EFFORT:
            trial = expand(engine, problem, here.w + scale * step)
            rounds += 1
            at_trial = value(
                trial.risk, trial.violation, multipliers, problem.risk_weight
            )
            if at_trial <= g_here or scale < 1e-3:
                break
            scale /= 4
        here = trial


def newton_step(at: Expansion, multipliers: FloatArray, problem: Problem) -> FloatArray:
    """Minimise the second-order model of G(·; λ) over the ball ‖w‖ ≤ R.

    With modulus βμ > 0 there is no ball and the step is Newton's.
    """
    beta, lam = problem.risk_weight, multipliers
    gradient = beta * at.risk_gradient + lam @ at.jacobian
    hessian = beta * at.risk_hessian + np.tensordot(lam, at.hessians, axes=1)
    eigenvalues, basis = np.linalg.eigh(hessian)
    floor = 1e-12 * max(float(eigenvalues[-1]), 1e-12)
    eigenvalues = np.maximum(eigenvalues, floor)
    if problem.modulus > 0:
        return -basis @ ((basis.T @ gradient) / eigenvalues)
    # (H + νI)(w + d) = Hw − g with the smallest ν ≥ 0 that keeps ‖w + d‖ ≤ R.
    target = eigenvalues * (basis.T @ at.w) - basis.T @ gradient
    low, high = 0.0, 0.0
    if np.linalg.norm(target / eigenvalues) > problem.radius:
        high = float(np.linalg.norm(target)) / problem.radius
        for _ in range(60):
            middle = 0.5 * (low + high)
            outside = np.linalg.norm(target / (eigenvalues + middle)) > problem.radius
            low, high = (middle, high) if outside else (low, middle)
    return basis @ (target / (eigenvalues + high)) - at.w
