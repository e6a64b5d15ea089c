"""FirstOrder: the saddle point of G for convex linear models, from gradients alone.

    min_{w, s ≥ 0}  βF(w) + B s    subject to    r_z(w) ≤ s

One round brings value and gradient of F and of every cell at one w: (Z + 1)(p + 1)
numbers, where `Exact` asks for Hessians. Then, without asking again,

    1  upper ← βF + B·max(0, max r);  lower ← its best λ at this w    saddle_bounds
    2  how all gradients changed since `here` is remembered
    3  w is accepted if the merit βF + ρ·max(0, max r) fell as promised    accepted
    4  Hessians of F and of every cell are learnt from that                  learnt
    5  d, λ ← saddle point of the second-order model around w                saddle
    6  ask at w + d

until the gap upper − lower is small enough: `Exact`, with Hessians that are learnt. The
curvature of each bound is in its own constraint, so that no step is refused for what
bends between its ends. The model has the few dimensions in which something was learnt,
and of many cells those that may bind; cells that its step would violate join them. A
refused w is remembered as well, and on the way to it every function is known by values
and slopes at both ends, which tells where the merit is least. See docs/methods.md.

**Hessians learnt from gradients.** A pair is a step s and how the gradients of F's
losses and of every cell changed along it: ΔJ, with 1 + Z rows. Each row alone is a
BFGS pair of one function, so that the curvature of each bound is known besides that of
G(·; λ) for any λ:

    B_z ← B_z − B_z s sᵀB_z / sᵀB_z s + y yᵀ / sᵀy        y = row z of ΔJ

begun at σ_z·diag(c): c_j is the curvature that input j can have, from the census, and
σ_z the mean of sᵀy / sᵀdiag(c)s over the pairs. All of it happens in the span Q of what
a quasi-Newton step is made of: pairs, gradients and w. With every s in the span,
projecting and updating go in any order: the update of QᵀBQ is that of B, projected.

Reference: Nocedal and Wright, *Numerical Optimization*, sections 6.1 and 7.2.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pffl.methods import saddle
from pffl.methods.base import Count
from pffl.methods.exact import MIN_CURVATURE, Exact, bfgs, hessians_small, with_products
from pffl.methods.saddle_bounds import (
    GapMethod,
    SaddleState,
    ScaledTerms,
    step_to_saddle,
)
from pffl.problem import Expansion, Problem, loss_limits
from pffl.queries import Expand, ExpandTotal
from pffl.typing import FloatArray, IntArray

SLOW_ROUNDS = 30  # after which Hessians are asked for, where they are small enough
MAX_PAIRS, MIN_PAIRS = 30, 8
MAX_PAIR_NUMBERS = 2**26  # numbers of all pairs together: half a GB
MAX_PAIR_PRODUCTS = 2**25  # products of pairs with pairs in a round, of all functions


@dataclass(frozen=True, kw_only=True)
class FirstOrder(GapMethod):
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

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> bounds = pffl.BoundedGroupLoss(0.65)
    >>> method = FirstOrder(multiplier_bound=20.0)
    >>> pffl.solve(people, bounds, method=method, random_state=0).status
    'met'
    """

    max_rounds: Count = 200
    name: ClassVar[str] = "first-order"
    patience: ClassVar[int] = 30

    @property
    def most_rounds(self) -> int:
        """Its rounds, those for the model without bounds, and some dozens of proofs."""
        return 2 * self.max_rounds + 100

    def query(self, problem: Problem, state: SaddleState) -> Expand:
        """Ask for values and gradients at the next w (line 6)."""
        return Expand(problem.task, state.w)

    def successor(self, problem: Problem, state: SaddleState) -> GapMethod | None:
        """Let Newton's method go on where gradients alone are slow."""
        able = hessians_small(problem) or with_products(problem)
        slow = able and state.round >= SLOW_ROUNDS
        return Exact(**vars(self)) if slow else None

    def remember(
        self, problem: Problem, state: SaddleState, here: Expansion, trial: Expansion
    ) -> SaddleState:
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

    def aim(
        self, problem: Problem, state: SaddleState, here: Expansion
    ) -> Generator[Expand, ExpandTotal, SaddleState]:
        """Choose the next w and λ (lines 4 and 5)."""
        yield from ()
        terms, sizes = ScaledTerms.of(problem, state.radius), sizes_of(problem)
        weights = np.append(terms.risk_weight, state.multipliers)
        slopes = [weights @ change for change in state.changes]
        slopes.append(here.risk_gradient)
        curved = (float(weights.sum()) or 1.0) * sizes + terms.modulus
        mu = terms.modulus / terms.risk_weight if terms.risk_weight > 0 else 0.0

        def model(cells: IntArray) -> tuple[Expansion, FloatArray]:
            """Return what is known around `here`, in the span of what is learnt."""
            bent = (y / curved for y in (*slopes, *here.jacobian[cells]))
            basis = saddle.span_of([*state.steps, *bent, here.w])
            rows = np.append(0, 1 + cells)
            changes = [change[rows] @ basis for change in state.changes]
            steps, start = [s @ basis for s in state.steps], (basis.T * sizes) @ basis
            hessians = np.repeat(start[None], len(rows), axis=0)
            if changes:
                hessians = learnt(steps, changes, start)
            seen = Expansion(
                here.w @ basis,
                here.risk,
                here.risk_gradient @ basis,
                hessians[0] + mu * np.eye(len(start)),
                here.violation[cells],
                here.jacobian[cells] @ basis,
                hessians[1:],
            )
            return seen, basis

        def ahead(d: FloatArray) -> FloatArray:
            return np.asarray(here.violation + here.jacobian @ d)

        return step_to_saddle(terms, state, here, model, ahead)


def sizes_of(problem: Problem) -> FloatArray:
    """Return the curvature that each parameter can have in a mean of losses: c."""
    known = loss_limits(problem.task.model)
    steepest = 1.0 if known is None else known[1] / problem.unit
    squares = problem.column_sizes**2 / float(problem.masses.sum())
    sizes = steepest * np.maximum(squares, 1e-12 * squares.max())
    return np.tile(sizes, problem.n_parameters // len(sizes))


def room(p: int, z: int) -> int:
    """Return how many pairs are kept of p parameters and z cells."""
    numbers = p * (z + 2)
    quick = np.clip(np.sqrt(MAX_PAIR_PRODUCTS / numbers), MIN_PAIRS, MAX_PAIRS)
    return max(3, int(min(quick, MAX_PAIR_NUMBERS // numbers)))


def learnt(
    steps: Sequence[FloatArray], changes: Sequence[FloatArray], start: FloatArray
) -> FloatArray:
    """Return the Hessians of all functions, (f, q, q).

    Parameters
    ----------
    steps, changes
        s, (q,), and y of each function, (f, q), of all pairs, the oldest first.
    start
        The first Hessian for σ = 1, (q, q).
    """
    f, q = changes[0].shape if changes else (1, len(start))
    all_steps, ys = np.reshape(steps, (-1, q)), np.reshape(changes, (-1, f, q))
    along = np.einsum("mfq,mq->mf", ys, all_steps)
    lengths = np.linalg.norm(ys, axis=2) * np.linalg.norm(all_steps, axis=1)[:, None]
    good = along > MIN_CURVATURE * lengths
    expected = np.einsum("mp,pq,mq->m", all_steps, start, all_steps)[:, None]
    ratios = np.where(good, along / np.where(good, expected, 1.0), 1.0)
    sigma = np.exp(np.log(ratios).sum(axis=0) / np.maximum(good.sum(axis=0), 1))
    hessians = sigma[:, None, None] * start
    for s, y in zip(all_steps, ys, strict=True):
        hessians = bfgs(hessians, s, y)
    return hessians
