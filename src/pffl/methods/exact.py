"""Exact: the saddle point of G for convex linear models, in few Newton steps.

    min_{w, s ≥ 0}  βF(w) + B s    subject to    r_z(w) ≤ s

One round brings value and gradient of F and of every cell at one w, with their
Hessians. Then, without asking again,

    1  upper ← βF + B·max(0, max r);  lower ← its best λ at this w    saddle_bounds
    2  w is accepted if the merit βF + ρ·max(0, max r) fell as promised    accepted
    3  d, λ ← saddle point of the second-order model around w                saddle
    4  ask at w + d

until the gap upper − lower is small enough. A refused step is shortened to where values
and slopes at both its ends promise most. Of many cells the model has those that may
bind; cells that its step would violate join them. ρ is twice Σλ and at most B: the
merit needs no higher penalty than the one that closes the violation.

**Last rounds need no Hessian.** Where Newton's next step should close the gap, only
values and gradients are asked for. Should it not, the Hessians known so far are updated
by how the gradients changed (BFGS, of each function), and the next round asks for
Hessians again. Sites always send them: a message costs more than its numbers.

**Many rows** (in one process). Hessians are estimated from some rows of each stratum
as long as steps converge, and kept where they converge fast: a Hessian costs p times as
much as a gradient. Values and gradients, and so both bounds, are of all rows always.

**Without Hessians** (in one process). Where they would be large, or rows
are sparse, line 3 is solved in the span of w, of the last step and of H(λ)⁻¹ times the
gradients of G and of the cells that may bind. The inverse is taken by conjugate
gradients with products, preconditioned by the diagonal of H(λ); λ and the span are
found again should λ have moved much. See docs/paper.md.

Reference: Nocedal and Wright, *Numerical Optimization*, sections 5.1, 6.1 and 7.1.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pffl.methods import saddle
from pffl.methods.base import (
    GRADIENTS_ONLY,
    MAX_HESSIAN_NUMBERS,
    MAX_HESSIAN_PARAMETERS,
    check_hessians,
)
from pffl.methods.saddle_bounds import (
    GapMethod,
    SaddleState,
    ScaledTerms,
    step_to_saddle,
)
from pffl.problem import Expansion, Point, Problem
from pffl.queries import Expand, ExpandTotal
from pffl.queries.expand import MAX_DIRECTIONS
from pffl.typing import FloatArray, IntArray

SAMPLE = 16  # rows of a stratum for each parameter, in a sample
MIN_SAMPLED_WORK = 5e7  # n·p², below which the Hessians of all rows cost little
MIN_CURVATURE = 1e-10  # sᵀy, in parts of ‖s‖·‖y‖, of a change that says nothing
MAX_SOLVES = 3  # of H(λ)⁻¹, each at another λ, for one step
MAX_PRODUCTS = 150  # of one solve
MOVED = 0.2  # of β + Σλ: then H(λ) is another
NEAR = 0.02  # of its bound: a cell that may come to bind
MAX_BINDING = 16  # cells whose gradients are solved for
MAX_PRODUCT_NUMBERS = 2**25  # of one answer: a quarter of a GB


@dataclass(frozen=True, kw_only=True)
class Exact(GapMethod):
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
        Newton steps after which to stop in any case.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> method = pffl.methods.Exact(multiplier_bound=20.0)
    >>> bounds = pffl.BoundedGroupLoss(0.65)
    >>> solution = pffl.solve(people, bounds, method=method, random_state=0)
    >>> solution.status, solution.rounds < 10, solution.gap < 1e-6
    ('met', True, True)
    """

    name: ClassVar[str] = "exact"

    def initial(self, problem: Problem, start: Point | None) -> SaddleState:
        """Start at w = 0, or at a pair that is given."""
        import scipy.linalg  # noqa: F401, the saddle's: loaded before its threads count

        if not with_products(problem):
            check_hessians(self, problem, GRADIENTS_ONLY)
        return replace(super().initial(problem, start), rough=can_sample(problem))

    def closer(self, problem: Problem, state: SaddleState) -> float:
        """Newton's last round squares the gap; others do not."""
        linear = state.rough or with_products(problem)
        return super().closer(problem, state) if linear else 0.01

    def query(self, problem: Problem, state: SaddleState) -> Expand:
        """Ask for the expansion at the next w (line 4)."""
        if with_products(problem) or state.order == 1:
            return Expand(problem.task, state.w)
        sample = SAMPLE * problem.n_parameters if state.rough else 0
        return Expand(problem.task, state.w, 2, sample=sample)

    def known(
        self, problem: Problem, state: SaddleState, raw: Expansion
    ) -> Expansion | None:
        """Add Hessians where none were asked for; None where none are known."""
        if raw.risk_hessian.size or with_products(problem):
            return raw
        here = state.here
        return None if here is None else _updated(here.times(state.unit), raw)

    def aim(
        self, problem: Problem, state: SaddleState, here: Expansion
    ) -> Generator[Expand, ExpandTotal, SaddleState]:
        """Choose the next w and λ (line 3)."""
        terms = ScaledTerms.of(problem, state.radius)
        if not with_products(problem):
            return aimed(terms, state, here, here, np.eye(len(here.w)))
        asked = Products(problem, state, here)
        span = [here.w] if state.last is None else [here.w, state.last]
        # As exact as the gap needs that is aimed at, or that Newton's step would leave.
        target = max(self.target(problem, state), 1e-300)
        relative = max(state.gap, target) * self.target_gap / target
        share = np.sqrt(max(0.1 * self.target_gap / relative, relative))
        share = float(np.clip(share, 3e-4, 0.1))
        found = state
        for _ in range(MAX_SOLVES):
            guess = found.multipliers
            cells = may_bind(here, guess, problem.cells.bounds / state.unit)
            gradient = terms.risk_weight * here.risk_gradient + guess @ here.jacobian
            goals = np.vstack([gradient, here.jacobian[cells]])
            span += list((yield from asked.solve(guess, goals, share)))
            basis = saddle.span_of(span)
            model = yield from asked.within(basis)
            near = replace(state, multipliers=guess)
            found = aimed(terms, near, here, model, basis)
            moved = float(np.abs(found.multipliers - guess).sum())
            if moved <= MOVED * (terms.risk_weight + float(found.multipliers.sum())):
                break
        return found


def with_products(problem: Problem) -> bool:
    """Whether products are asked for, and no Hessians: of rows in this process."""
    return not (hessians_small(problem) or problem.access.elsewhere)


def can_sample(problem: Problem) -> bool:
    """Whether Hessians are estimated from a sample of the rows, to begin with."""
    work = float(problem.silo_counts.sum()) * problem.n_parameters**2
    there = not (problem.access.elsewhere or problem.stored)
    return there and work >= MIN_SAMPLED_WORK


def hessians_small(problem: Problem) -> bool:
    """Whether Hessians of all cells can be sent and kept."""
    p, z = problem.n_parameters, problem.n_cells
    return p <= MAX_HESSIAN_PARAMETERS and (1 + z) * p**2 <= MAX_HESSIAN_NUMBERS


def aimed(
    terms: ScaledTerms,
    state: SaddleState,
    here: Expansion,
    model: Expansion,
    basis: FloatArray,
) -> SaddleState:
    """Choose the next w and λ by the model in the span of a basis."""

    def some(cells: IntArray) -> tuple[Expansion, FloatArray]:
        few = replace(
            model,
            violation=model.violation[cells],
            jacobian=model.jacobian[cells],
            hessians=model.hessians[cells],
        )
        return few, basis

    def ahead(d: FloatArray) -> FloatArray:
        e = d @ basis
        bent = (model.hessians @ e) @ e
        return np.asarray(model.violation + model.jacobian @ e + 0.5 * bent)

    return step_to_saddle(terms, state, here, some, ahead)


def _updated(here: Expansion, there: Expansion) -> Expansion:
    """Give an expansion the Hessians of another, updated by the gradients of both."""
    s = there.w - here.w
    y = np.vstack([there.risk_gradient, there.jacobian])
    y = y - np.vstack([here.risk_gradient, here.jacobian])
    hessians = np.concatenate([here.risk_hessian[None], here.hessians])
    hessians = bfgs(hessians, s, y)
    return replace(there, risk_hessian=hessians[0], hessians=hessians[1:])


def bfgs(hessians: FloatArray, s: FloatArray, y: FloatArray) -> FloatArray:
    """Update Hessians of several functions, (f, q, q), by a step and changes (f, q).

    A function whose gradient did not change along the step is left as it is.
    """
    along, bent = y @ s, hessians @ s
    good = along > MIN_CURVATURE * np.linalg.norm(y, axis=1) * np.linalg.norm(s)
    good &= bent @ s > 0
    less = np.where(good, 1.0 / np.where(good, bent @ s, 1.0), 0.0)
    more = np.where(good, 1.0 / np.where(good, along, 1.0), 0.0)
    old = (less[:, None] * bent)[:, :, None] * bent[:, None, :]
    return np.asarray(hessians - old + (more[:, None] * y)[:, :, None] * y[:, None, :])


# Products in the place of Hessians


def may_bind(here: Expansion, guess: FloatArray, bounds: FloatArray) -> IntArray:
    """Return cells with a multiplier, and those at their bound or nearly."""
    violation, near = here.violation, -NEAR * bounds
    ranks = np.argsort(-violation, kind="stable")[:MAX_BINDING]
    found = np.union1d(ranks, np.argsort(-guess, kind="stable")[:MAX_BINDING])
    return found[(guess[found] > 0) | (violation[found] > near[found])]


@dataclass(frozen=True, eq=False)
class Products:
    """Products with the Hessians of F and of every cell at one w."""

    problem: Problem
    state: SaddleState
    here: Expansion

    @property
    def scales(self) -> FloatArray:
        """What sums of F and of each cell are divided by."""
        return np.append(1.0, self.problem.counts) * self.state.unit

    def asked(
        self, columns: FloatArray, fold: Callable[[FloatArray], FloatArray]
    ) -> Generator[Expand, ExpandTotal, FloatArray]:
        """Ask for products with some columns; return them folded, (columns, …)."""
        p, many = columns.shape
        most = MAX_PRODUCT_NUMBERS // (len(self.scales) * p)
        most, found = max(1, min(MAX_DIRECTIONS, most)), []
        for first in range(0, many, most):
            some = columns[:, first : first + most]
            total = yield Expand(self.problem.task, self.here.w, directions=some)
            found.append(fold(np.moveaxis(total.products, 0, 2) / self.scales))
        return np.concatenate(found)

    def solve(
        self, multipliers: FloatArray, goals: FloatArray, share: float
    ) -> Generator[Expand, ExpandTotal, FloatArray]:
        """Solve H(λ) v = goal for each row, until a share of what was left is left."""
        problem, state = self.problem, self.state
        weights = np.append(problem.risk_weight, multipliers)
        ridge = problem.modulus / state.unit + state.ball_multiplier / state.radius
        total = yield Expand(problem.task, self.here.w, diagonal=True)
        diagonal = (weights / self.scales) @ total.diagonals + ridge
        inverse = 1.0 / np.maximum(diagonal, 1e-12 * diagonal.max())
        v, left = np.zeros_like(goals), goals.copy()
        direction = left * inverse
        size = first = (left * direction).sum(axis=1)
        for _ in range(MAX_PRODUCTS):
            open_ = np.flatnonzero(size > share**2 * first)
            if not len(open_):
                break
            q = direction[open_]
            product = yield from self.asked(q.T, lambda found: found @ weights)
            product = product + ridge * q
            bent = (q * product).sum(axis=1)
            length = np.where(bent > 0, size[open_] / np.where(bent > 0, bent, 1), 0.0)
            v[open_] += length[:, None] * q
            left[open_] -= length[:, None] * product
            better = left[open_] * inverse
            after = (left[open_] * better).sum(axis=1)
            direction[open_] = better + (after / size[open_])[:, None] * q
            size = size.copy()
            size[open_] = np.where(bent > 0, after, 0.0)
        return v

    def within(self, basis: FloatArray) -> Generator[Expand, ExpandTotal, Expansion]:
        """Return the expansion in a span, to second order."""
        here, problem = self.here, self.problem
        fold = lambda found: np.moveaxis(found, 1, 2) @ basis  # noqa: E731
        seen = yield from self.asked(basis, fold)  # (q, 1 + Z, q)
        hessians = np.moveaxis(seen, 1, 0)
        hessians = 0.5 * (hessians + hessians.mT)
        mu = problem.mu / self.state.unit
        return Expansion(
            here.w @ basis,
            here.risk,
            here.risk_gradient @ basis,
            hessians[0] + mu * np.eye(basis.shape[1]),
            here.violation,
            here.jacobian @ basis,
            hessians[1:],
        )
