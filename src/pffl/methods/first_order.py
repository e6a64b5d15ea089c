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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from pffl.methods import saddle
from pffl.methods.base import Count
from pffl.methods.exact import Exact, NewtonCG, hessians_small, with_products
from pffl.methods.saddle_bounds import (
    GapMethod,
    SaddleState,
    ScaledTerms,
    accepted,
    finite,
    step_to_saddle,
)
from pffl.problem import Expansion, Point, Problem, loss_limits
from pffl.queries import Expand, ExpandTotal
from pffl.typing import FloatArray, IntArray

SLOW_ROUNDS = 30  # after which Hessians are asked for, where they are small enough
MAX_PAIRS, MIN_PAIRS = 30, 8
MAX_PAIR_NUMBERS = 2**26  # numbers of all pairs together: half a GB
MAX_PAIR_PRODUCTS = 2**25  # products of pairs with pairs in a round, of all functions
MIN_CURVATURE = 1e-10  # sᵀy, in parts of ‖s‖·‖y‖, of a pair that says nothing


@dataclass(frozen=True, eq=False)
class FirstOrderState(SaddleState):
    """Where the method stands.

    Attributes
    ----------
    steps, changes
        Pairs, the oldest first: s, and ΔJ of F's losses and of every cell, in the
        parameters that can matter, as `here` is.
    """

    steps: tuple[FloatArray, ...] = ()
    changes: tuple[FloatArray, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FirstOrder(GapMethod[FirstOrderState]):
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
    >>> pffl.solve(people, bounds, method=pffl.FirstOrder(), random_state=0).status
    'met'
    """

    max_rounds: Count = 200
    name: ClassVar[str] = "first-order"
    closer: ClassVar[float] = 0.4
    patience: ClassVar[int] = 30

    @property
    def most_rounds(self) -> int:
        """Its rounds, those for the model without bounds, and some dozens of proofs."""
        return 2 * self.max_rounds + 100

    def initial(self, problem: Problem, start: Point | None) -> FirstOrderState:
        """Start at w = 0, or at a pair; inputs of no row weigh nothing."""
        state = self.started(problem, start, FirstOrderState)
        w = np.zeros_like(state.w)
        w[used_of(problem)] = state.w[used_of(problem)]
        return replace(state, w=w, best=replace(state.best, w=w))

    def query(self, problem: Problem, state: FirstOrderState) -> Expand:
        """Ask for values and gradients at the next w (line 6)."""
        return Expand(problem.task, state.w)

    def successor(
        self, problem: Problem, state: FirstOrderState
    ) -> GapMethod[Any] | None:
        """Let Newton's method go on where gradients alone are slow."""
        if state.round < SLOW_ROUNDS:
            return None
        if with_products(problem):
            return NewtonCG(**vars(self))
        return Exact(**vars(self)) if hessians_small(problem) else None

    def step(
        self, problem: Problem, state: FirstOrderState, total: ExpandTotal | Expansion
    ) -> FirstOrderState:
        """Lines 1 to 5."""
        raw = problem.expand(state.w, total)
        used = used_of(problem)
        trial = raw.take(used).times(1.0 / state.unit)
        state = replace(state, round=state.round + 1)
        if not finite(trial):
            return replace(state, stalled=True)
        here = state.here
        state = self.update_bounds(problem, state, raw)
        if self.finished(state):
            return state
        terms = ScaledTerms.of(problem, state.radius)
        if here is not None:
            state = _remembering(problem, state, here, trial)
        if here is None or accepted(terms, state, here, trial):
            state = replace(state, here=trial, refused=0)
            state = _stepped(terms, state, trial, sizes_of(problem)[used])
        else:
            length = saddle.shorten(terms, here, trial, state.penalty)
            state = replace(
                state,
                w=here.w + length * (trial.w - here.w),
                promised=length * state.promised,
                refused=state.refused + 1,
            )
        w = np.zeros(problem.n_parameters)
        w[used] = state.w
        return replace(state, w=w)


def sizes_of(problem: Problem) -> FloatArray:
    """Return the curvature that each parameter can have in a mean of losses: c."""
    model = problem.task.model
    known = loss_limits(model)
    steepest = 1.0 if known is None else known[1] / problem.unit
    squares = problem.column_sizes**2 / float(problem.masses.sum())
    sizes = steepest * np.maximum(squares, 1e-12 * squares.max())
    return np.tile(sizes, problem.n_parameters // len(sizes))


def used_of(problem: Problem) -> IntArray | slice:
    """Return which parameters can matter: of hashed words, most inputs have no row."""
    sizes = problem.column_sizes
    if sizes.all():
        return slice(None)
    return np.flatnonzero(np.tile(sizes, problem.n_parameters // len(sizes)))


def _remembering(
    problem: Problem, state: FirstOrderState, here: Expansion, trial: Expansion
) -> FirstOrderState:
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


def _stepped(
    terms: ScaledTerms, state: FirstOrderState, here: Expansion, sizes: FloatArray
) -> FirstOrderState:
    """Choose the next w and λ (line 5)."""

    def solve(cells: IntArray) -> tuple[saddle.SaddleStep, FloatArray]:
        span, hessians = _learnt(terms, state, here, sizes=sizes, cells=cells)
        model = _model(terms, here, span, hessians, cells)
        few = replace(terms, n_cells=len(cells))
        lam = state.multipliers[cells]
        step = saddle.next_step(few, model, lam, state.ball_multiplier)
        return step, span.back(step.d)

    def ahead(d: FloatArray) -> FloatArray:
        return np.asarray(here.violation + here.jacobian @ d)

    return step_to_saddle(terms, state, here, solve, ahead)


def _learnt(
    terms: ScaledTerms,
    state: FirstOrderState,
    here: Expansion,
    *,
    sizes: FloatArray,
    cells: IntArray,
) -> tuple[Span, FloatArray]:
    """Return the span of what a quasi-Newton step is made of, and Hessians in it."""
    rows = np.append(0, 1 + cells)
    weights = np.append(terms.risk_weight, state.multipliers)
    slopes = [weights @ change for change in state.changes]
    slopes += [here.risk_gradient, *here.jacobian[cells]]
    curved = (float(weights.sum()) or 1.0) * sizes + terms.modulus
    span = Span.of([*state.steps, *(y / curved for y in slopes), here.w])
    steps = [span.seen(s) for s in state.steps]
    changes = [span.seen(change[rows]) for change in state.changes]
    start = span.diagonal(sizes)
    if not changes:
        return span, np.repeat(start[None], len(rows), axis=0)
    return span, learnt(steps, changes, start)


def _model(
    terms: ScaledTerms,
    here: Expansion,
    span: Span,
    hessians: FloatArray,
    cells: IntArray,
) -> Expansion:
    """Return what is known around `here`, in the span."""
    beta = terms.risk_weight
    mu = terms.modulus / beta if beta > 0 else 0.0
    return Expansion(
        span.seen(here.w),
        here.risk,
        span.seen(here.risk_gradient),
        hessians[0] + mu * np.eye(span.size),
        here.violation[cells],
        span.seen(here.jacobian[cells]),
        hessians[1:],
    )


def room(p: int, z: int) -> int:
    """Return how many pairs are kept of p parameters and z cells."""
    numbers = p * (z + 2)
    quick = np.clip(np.sqrt(MAX_PAIR_PRODUCTS / numbers), MIN_PAIRS, MAX_PAIRS)
    return max(3, int(min(quick, MAX_PAIR_NUMBERS // numbers)))


@dataclass(frozen=True, eq=False)
class Span:
    """A space of few dimensions, by an orthonormal basis; None for all of space."""

    basis: FloatArray | None  # (p, q)
    size: int  # q

    @classmethod
    def of(cls, vectors: Sequence[FloatArray]) -> Span:
        """Return the span of vectors."""
        p, q = len(vectors[0]), len(vectors)
        if q >= p:
            return cls(None, p)
        rows = np.stack(vectors)
        lengths = np.linalg.norm(rows, axis=1)
        rows = rows[lengths > 0] / lengths[lengths > 0, None]
        basis = saddle.orthonormal(rows.T)
        return cls(basis, basis.shape[1])

    def seen(self, vectors: FloatArray) -> FloatArray:
        """Return the coordinates of vectors, which are the last axis."""
        return vectors if self.basis is None else vectors @ self.basis

    def back(self, coordinates: FloatArray) -> FloatArray:
        """Return the vector that has these coordinates."""
        return coordinates if self.basis is None else self.basis @ coordinates

    def diagonal(self, sizes: FloatArray) -> FloatArray:
        """Return a diagonal matrix, as it is seen in the span."""
        if self.basis is None:
            return np.diag(sizes)
        return (self.basis.T * sizes) @ self.basis


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
    for s, y, product, kept in zip(all_steps, ys, along, good, strict=True):
        bent = hessians @ s
        less = np.where(kept, 1.0 / np.where(kept, bent @ s, 1.0), 0.0)
        more = np.where(kept, 1.0 / np.where(kept, product, 1.0), 0.0)
        hessians -= less[:, None, None] * bent[:, :, None] * bent[:, None, :]
        hessians += more[:, None, None] * y[:, :, None] * y[:, None, :]
    return hessians
