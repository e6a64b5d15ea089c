"""Where to ask next: a full step, or less of one that went too far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.linalg import LinAlgError

from pffl.methods import _saddle
from pffl.methods._forecast import forecast
from pffl.problem import Expansion, Problem
from pffl.typing import FloatArray

DAMPING = (1e-10, 1e-7, 1e-4)  # relative; where βμ = 0, or where the model is too stiff
FORECASTS = 6  # times the model is solved again with forecast curvature


@dataclass(frozen=True, eq=False)
class Guess:
    """What is known before a step: multipliers, and how far to follow a trend."""

    multipliers: FloatArray
    ball_price: float
    trust: float


def next_step(
    problem: Problem, here: Expansion, other: Expansion | None, guess: Guess
) -> _saddle.Step:
    """Solve the model at `here`; `other`, an expansion close by, shows the trend."""
    try:
        step, damping = _model_step(problem, here, guess)
        if other is None:
            return step
        return _forecast_step(problem, here, other, guess, step, damping)
    except LinAlgError:
        return _gradient_step(problem, here)


def merit(problem: Problem, at: Expansion, price: float) -> float:
    """Return βF + ρ·max(0, max r)."""
    worst = float(at.violation.max(initial=0.0))
    return problem.risk_weight * at.risk + price * max(0.0, worst)


def shorten(problem: Problem, here: Expansion, trial: Expansion, price: float) -> float:
    """Return the part of a refused step that two expansions promise most from.

    The larger of the two follows a convex function around a kink, such as an outlier
    that the step misclassified and that the expansion at `here` could not see.
    """
    d, t = trial.w - here.w, np.linspace(0.02, 0.5, 25)
    path = np.maximum(along(here, d, t), along(trial, d, t - 1.0))
    worst = np.maximum(path[1:].max(axis=0, initial=0.0), 0.0)
    return float(t[np.argmin(problem.risk_weight * path[0] + price * worst)])


def along(at: Expansion, d: FloatArray, t: FloatArray) -> FloatArray:
    """Second-order F and r at w + t d, shape (1 + Z, len(t))."""
    value = np.append(at.risk, at.violation)
    slope = np.append(at.risk_gradient @ d, at.jacobian @ d)
    bend = np.append(d @ at.risk_hessian @ d, (at.hessians @ d) @ d)
    return np.asarray(
        value[:, None] + slope[:, None] * t + 0.5 * bend[:, None] * np.square(t)
    )


def _model_step(
    problem: Problem, here: Expansion, guess: Guess
) -> tuple[_saddle.Step, float]:
    """Solve the model with as little damping as it takes; also return that."""
    undamped = (0.0,) if problem.modulus > 0 else ()
    for damping in undamped + DAMPING:
        model = _saddle.Model.at(here, problem, damping=damping)
        step = _saddle.solve(model, guess.multipliers, guess.ball_price)
        if step.solved:
            break
    return step, damping


def _forecast_step(
    problem: Problem,
    here: Expansion,
    other: Expansion,
    guess: Guess,
    step: _saddle.Step,
    damping: float,
) -> _saddle.Step:
    """Solve the model again and again, with the curvature forecast for its own step."""
    trend = forecast(here, other, step.multipliers, problem)
    if trend is None:
        return step
    theta = np.ones(len(here.w))
    for _ in range(FORECASTS):
        last, theta = theta, trend.mean_curvature(step.d, guess.trust)
        if np.abs(theta / last - 1.0).max() < 0.01:
            break
        basis = trend.basis(theta)
        model = _saddle.Model.at(here, problem, basis=basis, damping=damping)
        step = _saddle.solve(model, step.multipliers, step.ball_price)
    return step


def _gradient_step(problem: Problem, here: Expansion) -> _saddle.Step:
    """A short step down βF + B·max(0, max r), for Hessians that no ridge can repair."""
    lam = np.zeros(problem.n_cells)
    if here.violation.max(initial=0.0) > 0:
        lam[int(np.argmax(here.violation))] = problem.multiplier_bound
    gradient = problem.risk_weight * here.risk_gradient + lam @ here.jacobian
    hessian = problem.risk_weight * here.risk_hessian
    hessian = hessian + np.tensordot(lam, here.hessians, axes=1)
    size = max(float(np.abs(hessian).sum(axis=1).max()), 1e-12)
    d = -gradient / size
    return _saddle.Step(d, lam, float(gradient @ d) / 2, here.violation)
