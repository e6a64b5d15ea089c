"""The best response to λ: how low G(·; λ) can go, bounded from below.

One gradient at *any* w' gives a bound (`problem.lower_value`); steps on G(·; λ) make it
tight. Where Hessians are asked for, they are Newton's. Elsewhere curvature is learnt
from gradients (`methods.quasi_newton`), and equations in a Hessian are solved by
conjugate gradients, each of which asks for its product with one direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from pffl.bounds.gap import gap_unit
from pffl.flow import Bounds, Flow, ask, given
from pffl.methods.auto import choose
from pffl.methods.base import MAX_HESSIAN_PARAMETERS
from pffl.methods.first_order import MAX_PAIRS, Span, learnt, sizes_of, used_of
from pffl.methods.saddle_bounds import inside
from pffl.problem import Expansion, Point, Problem, lower_value, upper_value, value
from pffl.queries import Expand
from pffl.typing import FloatArray

EFFORT = 30  # rounds that a best response may take
MORE = 5  # times as many where they are of gradients only
SHARPNESS = 0.01  # stop when what is left is this small a part of the gap
FINE = 1e-8  # or this small a part of the losses' unit, times β + Σλ
SOLVED = 1e-6  # of what it was: what is left of an equation

#: Solves H v = target for one H.
Solver: TypeAlias = Callable[[FloatArray], Flow[FloatArray]]


def expand(problem: Problem, w: FloatArray) -> Flow[Expansion]:
    """Ask for the expansion at w, to second order where Hessians are asked for."""
    if choose(problem)[0]:
        return problem.expand(w, (yield from ask(Expand(problem.task, w, 2))))
    return problem.expand(w, (yield from ask(Expand(problem.task, w))))


def measure_gap(problem: Problem, point: Point) -> Flow[Bounds]:
    """Measure the duality gap of a pair; w is well inside the ball, if there is one."""
    radius = max(problem.radius, 10.0 * float(np.linalg.norm(point.w)))
    problem = replace(problem, radius=radius)
    at_w = yield from expand(problem, point.w)
    upper = upper_value(at_w.risk, at_w.violation, problem)
    upper += problem.errors(at_w).upper(problem.risk_weight, problem.multiplier_bound)
    lower, at = yield from best_response(problem, point.multipliers, at_w, upper)
    return upper, lower, at, radius if problem.modulus == 0 else np.inf


def best_response(
    problem: Problem, multipliers: FloatArray, start: Expansion, upper: float
) -> Flow[tuple[float, FloatArray]]:
    """Raise the lower bound on G(·; λ) by damped steps from `start`.

    Returns the best bound and where it was proved. Stops as soon as more steps could
    not lower the gap to `upper` by more than a hundredth, or by nothing that anybody
    asks for.
    """
    lower, proved, rounds, here = -np.inf, start.w, 0, start
    effort = EFFORT if start.risk_hessian.size else MORE * EFFORT
    losses = np.append(start.risk, start.violation + problem.cells.bounds)
    fine = FINE * gap_unit(float(losses.max()), problem.unit)
    fine *= problem.risk_weight + float(multipliers.sum())
    known = Learnt()
    while True:
        bound = lower_value(here, multipliers, problem, problem.errors(here))
        noise = lower_value(here, multipliers, problem) - bound
        if bound > lower:
            lower, proved = bound, here.w
        g_here = _value(problem, here, multipliers)  # ≥ the minimum
        left = g_here - lower
        sharp = max(SHARPNESS * (upper - lower), 2.0 * noise, fine)
        if left <= sharp or rounds >= effort:
            return lower, proved
        if here.risk_hessian.size:
            step = newton_step(here, multipliers, problem)
        else:
            step = known.step(here, multipliers, problem)
        scale = 1.0
        while rounds < effort:
            trial = yield from expand(problem, here.w + scale * step)
            rounds += 1
            known = known.after(here, trial, multipliers, problem)
            if _value(problem, trial, multipliers) <= g_here or scale < 1e-3:
                break
            scale /= 4
        here = trial


def _value(problem: Problem, at: Expansion, multipliers: FloatArray) -> float:
    return value(at.risk, at.violation, multipliers, problem.risk_weight)


def _gradient(problem: Problem, at: Expansion, multipliers: FloatArray) -> FloatArray:
    return problem.risk_weight * at.risk_gradient + multipliers @ at.jacobian


def newton_step(at: Expansion, multipliers: FloatArray, problem: Problem) -> FloatArray:
    """Minimise the second-order model of G(·; λ) over the ball ‖w‖ ≤ R.

    With modulus βμ > 0 there is no ball and the step is Newton's.
    """
    gradient = _gradient(problem, at, multipliers)
    hessian = problem.risk_weight * at.risk_hessian
    hessian = hessian + np.tensordot(multipliers, at.hessians, axes=1)
    eigenvalues, basis = np.linalg.eigh(hessian)
    floor = 1e-12 * max(float(eigenvalues[-1]), 1e-12 * problem.unit)
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


@dataclass(frozen=True, eq=False)
class Learnt:
    """What steps on G(·; λ) told of its curvature: steps, and changes of the gradient.

    The ridge is known, and left out of the changes.
    """

    steps: tuple[FloatArray, ...] = ()
    changes: tuple[FloatArray, ...] = ()

    def after(
        self,
        here: Expansion,
        trial: Expansion,
        multipliers: FloatArray,
        problem: Problem,
    ) -> Learnt:
        """Remember a step."""
        if trial.risk_hessian.size:
            return self
        used, modulus = used_of(problem), problem.modulus
        here, trial = here.take(used), trial.take(used)
        s = trial.w - here.w
        change = _gradient(problem, trial, multipliers) - modulus * s
        change -= _gradient(problem, here, multipliers)
        return Learnt(
            (*self.steps, s)[-MAX_PAIRS:], (*self.changes, change[None])[-MAX_PAIRS:]
        )

    def step(
        self, here: Expansion, multipliers: FloatArray, problem: Problem
    ) -> FloatArray:
        """Return the quasi-Newton step; where there is a ball, one that stays in it."""
        used = used_of(problem)
        gradient = _gradient(problem, here.take(used), multipliers)
        weight = problem.risk_weight + float(multipliers.sum())
        sizes = weight * problem.unit * sizes_of(problem)[used]
        slopes = (*(y[0] for y in self.changes), gradient)
        curved = sizes + problem.modulus
        span = Span.of([*self.steps, *(y / curved for y in slopes)])
        steps = [span.seen(s) for s in self.steps]
        changes = [span.seen(y) for y in self.changes]
        hessian = learnt(steps, changes, span.diagonal(sizes))[0]
        hessian += problem.modulus * np.eye(span.size)
        step = np.zeros(problem.n_parameters)
        step[used] = span.back(-np.linalg.solve(hessian, span.seen(gradient)))
        return step if problem.modulus > 0 else inside(problem, here.w + step) - here.w


def solver(
    problem: Problem,
    multipliers: FloatArray,
    here: Expansion,
    products: Iterator[object],
) -> Solver:
    """Return what solves H v = target, H = Σ λ_z ∇²r_z at a w; it may be singular.

    Each product with a Hessian that is not known takes one of `products`; what is found
    when there are no more of them is the best so far. Where every query is a
    message, one Hessian is less than all these products.
    """
    if here.hessians.size:
        inverse = _inverse(problem, multipliers, here)
        return lambda target: given(inverse @ target)
    access = problem.access
    few = (access.elsewhere or access.pooled > 0) and access.hessians
    if few and problem.n_parameters <= MAX_HESSIAN_PARAMETERS:
        return _once(problem, multipliers, here)
    return lambda target: _conjugate(problem, multipliers, here.w, target, products)


def _inverse(problem: Problem, multipliers: FloatArray, at: Expansion) -> FloatArray:
    hessian = np.tensordot(multipliers, at.hessians, axes=1)
    cut = problem.n_parameters * float(np.finfo(np.float64).eps)
    return np.asarray(np.linalg.pinv(hessian, rcond=cut, hermitian=True), np.float64)


def _once(problem: Problem, multipliers: FloatArray, here: Expansion) -> Solver:
    """Solve with a Hessian that is asked for when it is needed first."""
    known: list[FloatArray] = []

    def solve(target: FloatArray) -> Flow[FloatArray]:
        if not known:
            total = yield from ask(Expand(problem.task, here.w, 2))
            at = problem.expand(here.w, total)
            known.append(_inverse(problem, multipliers, at))
        return known[0] @ target

    return solve


def _conjugate(
    problem: Problem,
    multipliers: FloatArray,
    w: FloatArray,
    target: FloatArray,
    products: Iterator[object],
) -> Flow[FloatArray]:
    """Solve by conjugate gradients, from 0.

    Reference: Nocedal and Wright, *Numerical Optimization*, algorithm 5.2.
    """
    v, left = np.zeros_like(target), target
    direction, size = target, float(target @ target)
    goal = SOLVED**2 * size
    weights = problem.cell_weights(multipliers)
    while size > goal and next(products, None) is not None:
        total = yield from ask(Expand(problem.task, w, directions=direction[:, None]))
        product = weights @ total.products[1:, 0]
        curvature = float(direction @ product)
        if not curvature > 0:
            break
        v = v + (size / curvature) * direction
        left = left - (size / curvature) * product
        before, size = size, float(left @ left)
        direction = left + (size / before) * direction
    return v
