"""What can be proved of the training rows: gaps, and how low bounds can go.

The gap of a pair is max_λ' G(w; λ') − min_w' G(w'; λ). The maximum is known in closed
form, the minimum is bounded from below: one gradient at *any* w' gives a bound
(`problem.lower_value`), and Newton steps on G(·; λ) make it tight. Where Hessians are
not asked for, equations in them are solved by conjugate gradients, each of which asks
for the product with one direction.

Whether bounds can be met at all is the sign of min_w max_z r_z(w), a minimax problem:
the method that fits solves it, with β = 0 and B = 1, and its λ is the witness. What it
proves of all models is asked with the query `witness`; see `bounds.infeasible`, and
docs/certificates.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from pffl.bounds.gap import gap_unit
from pffl.bounds.infeasible import FAR, SHARP, Support, support
from pffl.evidence.record import Least, Missing
from pffl.flow import Bounds, Flow, Run, Start, ask, given, rounds
from pffl.methods.auto import Auto, choose
from pffl.methods.saddle_bounds import inside
from pffl.models.linear import LinearModel
from pffl.problem import Expansion, Point, Problem, lower_value, upper_value, value
from pffl.queries import Expand, Witness
from pffl.typing import FloatArray, IntArray

POLISH = 6  # rounds spent on a sharper witness
PRODUCTS = 80  # with Hessians, where these are not known, spent on it
CORRECTIONS = 30  # queries that may correct its slopes at one w, while they help
ENCLOSED = 1e-4  # target gap of an enclosure: what its proof reaches for costs as much
ROUNDS = 100  # that it may take
NEWTON_ROUNDS = 50  # that it may take with Hessians
INTERRUPTED = Missing("the run was interrupted")
EFFORT = 30  # rounds that a best response may take
SHARPNESS = 0.01  # stop when what is left is this small a part of the gap
FINE = 1e-8  # or this small a part of the losses' unit, times β + Σλ
SOLVED = 1e-6  # of what it was: what is left of an equation

#: Solves H v = target for one H.
Solver: TypeAlias = Callable[[FloatArray], Flow[FloatArray]]


# The best response to λ: how low G(·; λ) can go


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
    losses = np.append(start.risk, start.violation + problem.cells.bounds)
    fine = FINE * gap_unit(float(losses.max()), problem.unit)
    fine *= problem.risk_weight + float(multipliers.sum())
    while True:
        bound = lower_value(here, multipliers, problem, problem.errors(here))
        noise = lower_value(here, multipliers, problem) - bound
        if bound > lower:
            lower, proved = bound, here.w
        g_here = _value(problem, here, multipliers)  # ≥ the minimum
        left = g_here - lower
        sharp = max(SHARPNESS * (upper - lower), 2.0 * noise, fine)
        if left <= sharp or rounds >= EFFORT:
            return lower, proved
        if here.risk_hessian.size:
            step = newton_step(here, multipliers, problem)
        else:
            weights = problem.risk_weight, multipliers
            solve = solver(problem, *weights, here, iter(range(PRODUCTS)))
            step = -(yield from solve(_gradient(problem, here, multipliers)))
            if problem.modulus == 0:
                step = inside(problem, here.w + step) - here.w
        scale = 1.0
        while rounds < EFFORT:
            trial = yield from expand(problem, here.w + scale * step)
            rounds += 1
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


def solver(
    problem: Problem,
    risk_weight: float,
    multipliers: FloatArray,
    here: Expansion,
    products: Iterator[object],
) -> Solver:
    """Return what solves H v = target, H that of βF + λᵀr at a w; it may be singular.

    Each product with a Hessian that is not known takes one of `products`; what is found
    when there are no more of them is the best so far.
    """
    if here.hessians.size:
        hessian = np.tensordot(multipliers, here.hessians, axes=1)
        hessian = hessian + risk_weight * here.risk_hessian
        cut = problem.n_parameters * float(np.finfo(np.float64).eps)
        inverse = np.linalg.pinv(hessian, rcond=cut, hermitian=True)
        return lambda target: given(np.asarray(inverse @ target, np.float64))
    weights = np.append(risk_weight, problem.cell_weights(multipliers))

    def conjugate(target: FloatArray) -> Flow[FloatArray]:
        """Solve by conjugate gradients, from 0 (Nocedal and Wright, algorithm 5.2)."""
        v, left = np.zeros_like(target), target
        direction, size = target, float(target @ target)
        goal = SOLVED**2 * size
        while size > goal and next(products, None) is not None:
            asked = Expand(problem.task, here.w, directions=direction[:, None])
            total = yield from ask(asked)
            product = weights @ total.products[:, 0]
            product = product + risk_weight * problem.mu * direction
            curvature = float(direction @ product)
            if not curvature > 0:
                break
            v = v + (size / curvature) * direction
            left = left - (size / curvature) * product
            before, size = size, float(left @ left)
            direction = left + (size / before) * direction
        return v

    return conjugate


# How low bounds can go


def unmeasurable(problem: Problem) -> Missing | None:
    """Say why nothing can be proved of all models; None if it can."""
    model = problem.task.model
    if not model.convex:
        reason = "needs convexity, and the loss is not convex in the weights of this "
        return Missing(f"{reason}model")
    if not isinstance(model, LinearModel):
        return Missing("needs gradients per group, and the model is not linear")
    return None


def enclose(problem: Problem, start: Start | None = None) -> Flow[Least | Missing]:
    """Enclose how low the bounds can go together, as far as it costs little."""
    if (why := unmeasurable(problem)) is not None:
        return why
    hessians, _ = choose(problem)
    most = NEWTON_ROUNDS if hessians else ROUNDS
    rough = Auto(target_gap=ENCLOSED, max_rounds=most)
    return (yield from find_least(problem, start, method=rough))


def find_least(
    problem: Problem, start: Start | None = None, *, method: Auto | None = None
) -> Flow[Least | Missing]:
    """Enclose how low the bounds can go together, the differences between them kept.

    Only the offsets ζ_z − max ζ play a part: r > 0 everywhere then, so s ≥ 0 never
    binds and Σλ = 1.
    """
    offsets = problem.cells.bounds - float(problem.cells.bounds.max())
    bare = replace(problem.with_bounds(offsets), risk_weight=0.0, multiplier_bound=1.0)
    method = replace(method or Auto(), multiplier_bound=1.0, risk_weight=0.0)
    near = None if start is None else start.sharing(1.0, problem.n_cells)
    run: Run = yield from rounds(bare, method, start=near)
    if run.stopped is not None:
        return INTERRUPTED
    at = run.expansion
    if at is None:
        at = yield from expand(bare, run.point.w)
    lam = run.point.multipliers
    lam = lam / lam.sum() if lam.sum() > 0 else np.full(len(lam), 1.0 / len(lam))
    room = max(problem.radius, 10.0 * float(np.linalg.norm(at.w)))
    proof = yield from polish(replace(bare, radius=room), lam, at)
    upper, found = float(at.violation.max()), proof.support
    longest = longest_of(problem, at.w, proof.w)
    reach = found.reach(longest, upper)
    return Least(
        min(found.within(reach), upper),
        upper,
        lam.tolist(),
        proof.w.tolist(),
        proof.direction.tolist(),
        reach,
        found.slope,
        longest,
        at.w.tolist(),
        offsets.tolist(),
        at.risk,
    )


@dataclass(frozen=True, eq=False)
class Proof:
    """What a `witness` proves, and at which w and v it was asked."""

    support: Support
    w: FloatArray
    direction: FloatArray
    residual: FloatArray

    def rank(self, longest: float) -> float:
        """Return what it proves of models far away."""
        return self.support.within(FAR * longest)


def polish(problem: Problem, lam: FloatArray, here: Expansion) -> Flow[Proof]:
    """Move the point of a witness, by Newton steps, to where it proves most."""
    longest, before = longest_of(problem, here.w), -np.inf
    small = SHARP * problem.scales.max()
    products = iter(range(PRODUCTS if float(lam @ here.violation) > small else 0))
    best, correction = yield from _corrected(problem, lam, here, products)
    for _ in range(POLISH):
        proved = max(best.rank(longest), 0.0)  # no loss is below 0
        left = float(lam @ here.violation) - proved
        if left <= small or proved - before <= 0.1 * left:
            break
        if here.hessians.size:
            w = here.w + newton_step(here, lam, problem)
        else:
            w = inside(problem, here.w - correction)
        here = yield from expand(problem, w)
        if not (np.isfinite(here.jacobian).all() and np.isfinite(here.hessians).all()):
            break
        found, correction = yield from _corrected(problem, lam, here, products)
        best, before = max(best, found, key=lambda one: one.rank(longest)), proved
    return best


def _corrected(
    problem: Problem, lam: FloatArray, here: Expansion, products: Iterator[object]
) -> Flow[tuple[Proof, FloatArray]]:
    """Correct the slopes at w until their residual is rounding: v ← v + H⁺·residual.

    H = Σ λ_z ∇²r_z, so that the residual g − Hv is 0 at once where no slope is cut.
    Also returns the first correction: the Newton step from w, turned round.
    """
    solve = solver(problem, 0.0, lam, here, products)
    best = yield from _ask(problem, lam, here.w, np.zeros(problem.n_parameters))
    first = yield from solve(best.residual)
    step, refused = first, 0
    for _ in range(CORRECTIONS):
        direction = best.direction + step
        rounding = np.linalg.norm(best.residual) <= 0.1 * best.support.slope
        far = not np.linalg.norm(direction) <= problem.radius
        if rounding or far or refused > 1 or not step.any():
            break
        found = yield from _ask(problem, lam, here.w, direction)
        if found.support.slope < 0.7 * best.support.slope:
            best, step, refused = found, (yield from solve(found.residual)), 0
        else:  # too far: many slopes were cut
            step, refused = 0.25 * step, refused + 1
    return best, first


def _ask(
    problem: Problem, lam: FloatArray, w: FloatArray, direction: FloatArray
) -> Flow[Proof]:
    """Ask for a witness."""
    weights = problem.cell_weights(lam)
    total = yield from ask(Witness(problem.task, w, 0.0, weights, direction))
    found = support(
        total.value,
        total.residual,
        total.sizes,
        multipliers=lam,
        bounds=problem.cells.bounds,
        outputs=problem.task.model.n_outputs,
    )
    return Proof(found, w, direction, total.residual)


def longest_of(problem: Problem, *seen: FloatArray) -> float:
    """Return the length of the longest w; at least one at which weights matter."""
    return max(0.01 * problem.radius, *(float(np.linalg.norm(w)) for w in seen))


def of_cells(problem: Problem, chosen: IntArray) -> Problem:
    """Return the problem with some of its cells only."""
    task = replace(problem.task, cells=problem.cells.take(chosen))
    return replace(problem, task=task, counts=problem.counts[chosen])
