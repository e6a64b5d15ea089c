"""Optima of what baselines descend.

A method with local training that has converged ends at the minimum of one objective
(FedAvg, group-weighted FedAvg), or at the saddle point of local bounds. For linear
models both can be had in a few `curvature` rounds, with a proof:

    one objective   f − ‖∇f‖²/(2μ) is below its minimum wherever it is taken, and
                    hardly so after Newton's steps
    local bounds    P(w) = βF(w) + B Σ_k p_k max(0, max_z r_{k,z}(w)), smoothed:
                    min over t_k of  B p_k t − τ log t − τ Σ_z log(t − r_{k,z})
                    is smooth in w. Newton's steps go down βF + Σ_k of these while τ
                    falls; λ_{k,z} = τ/(t_k − r_{k,z}) are prices, Σ_z λ_{k,z} ≤ B p_k,
                    and prove how low P goes
                    (Boyd and Vandenberghe, *Convex Optimization*, chapter 11)

No federation has to train so: a study asks what a baseline could have reached at best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pffl.constraints import Cells
from pffl.errors import UsageError
from pffl.flow import Bounds, Flow, Run, ask
from pffl.methods.base import MAX_HESSIAN_PARAMETERS, Method
from pffl.methods.fedavg import FedAvg
from pffl.methods.group_weighted import GroupWeighted
from pffl.methods.local import LocalTraining, Objective
from pffl.methods.local_bgl import LocalBGL, SiloBounds
from pffl.models.linear import LinearModel
from pffl.problem import Point, Problem
from pffl.queries import Expand, ExpandTotal
from pffl.typing import FloatArray, IntArray

NEWTON = 30  # steps on one objective
SHORTENED = 6  # times that such a step may be shortened
TIGHT = 1e-9  # what the proof of a minimum may leave open
ROUNDING = 1e-12  # of a value, relative
CLOSE = 1e-4  # gap of local bounds at which it ends, about, in units of a loss
STEPS = 80  # at most, on the way there
SMOOTH = 0.1  # τ at the start, in parts of B / number of cells
SHARPER = 0.1  # times τ, once its minimum is near
NEAR = 0.01  # of τ's own gap: what is left of its minimum then
LAST = 1e-6  # the same for the last τ, whose prices prove
BISECTIONS = 60


def solved(
    problem: Problem, method: Method, start: FloatArray | None = None
) -> Flow[Run]:
    """Return the optimum of what a method descends, as if it had been trained to it."""
    w = problem.task.model.start(problem.seed) if start is None else start
    if isinstance(method, LocalBGL) and problem.modulus > 0:
        return (yield from _local(problem, method, w))
    objective = _one_objective(problem, method)
    if objective is None:
        raise UsageError(f"'{method.name}' has no one objective that could be solved")
    found = yield from lowest(objective, w)
    bounds = (found.value + ROUNDING * abs(found.value), found.below, found.w, np.inf)
    point = Point(found.w, np.zeros(problem.n_cells))
    return Run(point, bounds=bounds, rounds=found.rounds)


def _modulus(objective: Objective) -> float:
    """How strongly convex it is."""
    mu = objective.task.model.mu
    return objective.risk_weight * mu if objective.ridge is None else objective.ridge


def _one_objective(problem: Problem, method: Method) -> Objective | None:
    """What all rounds of a method descend, if it is one, and strongly convex."""
    model, trains = problem.task.model, isinstance(method, LocalTraining)
    small = (
        isinstance(model, LinearModel) and model.n_parameters <= MAX_HESSIAN_PARAMETERS
    )
    if not (trains and type(method) in (FedAvg, GroupWeighted) and small):
        return None
    query = next(replace(method, step_size=1.0).run(problem))
    objective = Objective(
        query.task, query.cell_weights, query.risk_weight, query.ridge
    )
    return objective if _modulus(objective) > 0 else None


# One objective


@dataclass(frozen=True, eq=False)
class Lowest:
    """The lowest point of an objective that was found.

    Attributes
    ----------
    w, value, below
        Where it is, what it has, and a number below the minimum.
    rounds
        Queries that were asked.
    """

    w: FloatArray
    value: float
    below: float
    rounds: int


def lowest(objective: Objective, w: FloatArray) -> Flow[Lowest]:
    """Go down an objective from w by Newton's steps."""
    mu, below, rounds = _modulus(objective), -np.inf, 1
    value, gradient, total = yield from _expanded(objective, w)
    for _ in range(NEWTON):
        left = float(gradient @ gradient) / (2 * mu)
        below = max(below, value - left)
        if left <= TIGHT:
            break
        hessian = objective.risk_weight * total.hessians[0] + mu * np.eye(len(w))
        hessian += np.tensordot(objective.cell_weights, total.hessians[1:], axes=1)
        step = np.linalg.solve(hessian, -gradient)
        for scale in 0.25 ** np.arange(SHORTENED):
            found = yield from _expanded(objective, w + scale * step)
            rounds += 1
            if found[0] <= value:
                break
        w, (value, gradient, total) = w + scale * step, found
    return Lowest(w, value, below, rounds)


def _expanded(
    objective: Objective, w: FloatArray
) -> Flow[tuple[float, FloatArray, ExpandTotal]]:
    """Value and gradient of an objective at w, and what they were taken from."""
    total = yield from ask(Expand(objective.task, w, 2))
    beta, weights, mu = (
        objective.risk_weight,
        objective.cell_weights,
        _modulus(objective),
    )
    value = beta * total.losses[0] + weights @ total.losses[1:] + mu / 2 * (w @ w)
    gradient = beta * total.gradients[0] + weights @ total.gradients[1:] + mu * w
    return float(value), gradient, total


# Local bounds


@dataclass(frozen=True, eq=False)
class Smoothed:
    """βF + Σ_k min_t …, at one w and for one τ.

    Attributes
    ----------
    w, value, gradient, hessian
        Where, and its expansion there.
    lam
        λ_{k,z}.
    upper
        P(w).
    """

    w: FloatArray
    value: float
    gradient: FloatArray
    hessian: FloatArray
    lam: FloatArray
    upper: float


def _local(problem: Problem, method: LocalBGL, w: FloatArray) -> Flow[Run]:
    """Go down as τ falls; then prove how low it goes, with the last prices."""
    local, prices = SiloBounds(problem), problem.risk_weight + problem.multiplier_bound
    cells = local.cells
    terms = len(cells) + len(problem.silo_names)
    tau = SMOOTH * problem.multiplier_bound / terms
    task = local.own.task
    total = yield from ask(Expand(task, w, 2))
    here, rounds = smoothed(problem, cells, w, total, tau), 1
    best = here
    while rounds < STEPS:
        step = np.linalg.solve(here.hessian, -here.gradient)
        left, last = float(step @ -here.gradient), tau * terms <= CLOSE * prices
        if left <= (LAST if last else NEAR) * tau * terms:
            if last:
                break
            tau *= SHARPER
            here = smoothed(problem, cells, here.w, total, tau)
            step = np.linalg.solve(here.hessian, -here.gradient)
        for scale in 0.25 ** np.arange(SHORTENED):
            w = here.w + scale * step
            total = yield from ask(Expand(task, w, 2))
            rounds += 1
            found = smoothed(problem, cells, w, total, tau)
            if found.value <= here.value:
                break
        here = found
        best = here if here.upper < best.upper else best
    lam = here.lam / problem.task.shares[cells.silo]
    priced = local.objective(problem.with_cells(cells), lam, None)
    proof = yield from lowest(priced, here.w)
    lower = proof.below - float(here.lam @ cells.bounds)
    rounding = ROUNDING * (abs(best.upper) + abs(proof.below))
    bounds: Bounds = (best.upper + rounding, lower, proof.w, np.inf)
    point = Point(best.w, np.zeros(problem.n_cells))
    return Run(point, bounds=bounds, rounds=rounds + proof.rounds)


def smoothed(
    problem: Problem, cells: Cells, w: FloatArray, total: ExpandTotal, tau: float
) -> Smoothed:
    """Return what a total at w says of local bounds, smoothed by τ."""
    beta, mu, silo = problem.risk_weight, problem.mu, cells.silo
    prices = problem.multiplier_bound * problem.task.shares  # B p_k
    counts, silos = problem.count(cells), len(prices)
    r = total.losses[1:] / counts - cells.bounds
    slopes = total.gradients[1:] / counts[:, None]
    t = levels(r, silo, prices, tau)
    room = t[silo] - r
    lam = tau / room
    risk = beta * (float(total.losses[0]) + mu / 2 * float(w @ w))
    gradient = beta * (total.gradients[0] + mu * w) + lam @ slopes
    # Second derivatives, t_k taken out.
    bend = lam / room
    flat = np.zeros((silos, len(w)))
    np.add.at(flat, silo, bend[:, None] * slopes)
    stiff = np.bincount(silo, bend, silos) + tau / t**2
    hessian = beta * (total.hessians[0] + mu * np.eye(len(w)))
    hessian += np.tensordot(lam / counts, total.hessians[1:], axes=1)
    hessian += (slopes.T * bend) @ slopes - (flat.T / stiff) @ flat
    logs = np.bincount(silo, np.log(room), silos) + np.log(t)
    worst = np.zeros(silos)
    np.maximum.at(worst, silo, r)
    return Smoothed(
        w,
        risk + float(prices @ t - tau * logs.sum()),
        gradient,
        hessian,
        lam,
        risk + float(prices @ worst),
    )


def levels(r: FloatArray, silo: IntArray, prices: FloatArray, tau: float) -> FloatArray:
    """Return t_k: where  τ/t + Σ_z τ/(t − r_{k,z})  is the price of silo k.

    It lies above max(0, max_z r) by τ over the price at least, and by as many times
    that as there are terms at most.
    """
    floor = np.zeros(len(prices))
    np.maximum.at(floor, silo, r)
    terms = 1.0 + np.bincount(silo, minlength=len(prices))
    low, high = floor + tau / prices, floor + terms * tau / prices
    for _ in range(BISECTIONS):
        t = 0.5 * (low + high)
        dear = tau / t + np.bincount(silo, tau / (t[silo] - r), len(prices)) > prices
        low, high = np.where(dear, t, low), np.where(dear, high, t)
    return high
