"""What methods that close the gap of G share: where they stand, and its two bounds.

One round brings F and every cell at one w, with gradients at least. From them

    upper ← βF + B·max(0, max r)      lower ← the best λ at this w, from one gradient

whatever proposes the next w. All of it is in the losses' own unit (`Problem.unit`), so
that no constant below has one. Where βμ = 0 the ball ‖w‖ ≤ R keeps w finite. Unless it
was declared, it grows tenfold when the best w of it lies near its end; should no gap be
closed over the larger ball, the smaller one's result stands.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.linalg import LinAlgError

from pffl.bounds.gap import Errors, gap_unit
from pffl.errors import UsageError
from pffl.flow import Bounds, Finished, Round, Start, Steps, Stop
from pffl.methods import saddle
from pffl.methods.base import (
    MULTIPLIER_BOUNDS,
    Count,
    Grid,
    Method,
    NonNegative,
    Positive,
)
from pffl.numerics import project_capped_simplex
from pffl.problem import (
    Expansion,
    Point,
    Problem,
    SaddleTerms,
    lower_value,
    upper_value,
)
from pffl.queries import Expand, ExpandTotal
from pffl.queries.expand import linear
from pffl.typing import FloatArray, IntArray

ARMIJO = 1e-4
NEAR_END = 0.9  # of the ball's radius: then it grows
RADIUS_GROWTH = 10.0
MAX_RADIUS = 1e9  # times the radius at the start
ROUNDING = 1e-14
FEW_CELLS = 40  # that a step may always weigh; of more, those that may bind
MORE_CELLS = 20  # that are added at once
FAST = 0.05  # of the gap: where a step leaves less, estimated Hessians are kept
SLOW = 0.5  # of the gap: where a step leaves more, no Hessian is estimated any more


@dataclass(frozen=True, eq=False)
class SaddleState:
    """Where such a method stands.

    Attributes
    ----------
    round
        Rounds so far.
    w, multipliers
        The next w to ask at, and the λ that goes with it.
    best, upper, lower
        The pair to return, and the bounds on the saddle value that it gives: `upper`
        at its w, `lower` for its λ (by an expansion at any w).
    proved
        The w at which `lower` was proved.
    found
        Expansion at the w of the pair to return.
    here
        Expansion at the last accepted w.
    last
        The step to it, where the next is looked for in its span.
    steps, changes
        Pairs of `FirstOrder`, the oldest first: s, and ΔJ of F's losses and of every
        cell.
    penalty, promised
        ρ of the merit, and how much of it the step to `w` should save.
    refused, order, rough
        Trials refused since `here`, the order of the next expansion, and whether a
        sample of the rows is enough for its Hessians.
    idle, stalled
        Rounds since a bound moved, and whether nothing more can be gained.
    above, below
        What rounding can have taken off `upper`, and added to `lower`.
    closed, sure
        Whether the gap is as small as it was to be, and with rounding still small.
    radius
        R of the ball, as far as it has grown; infinite where βμ > 0.
    unit
        What the losses were divided by.
    settled
        Where it stood when the gap was closed over a smaller ball.
    ball_multiplier
        Multiplier of the ball ‖w‖ ≤ R, where βμ = 0.
    """

    round: int
    w: FloatArray
    multipliers: FloatArray
    best: Point
    upper: float = np.inf
    lower: float = -np.inf
    proved: FloatArray | None = None
    found: Expansion | None = None
    here: Expansion | None = None
    penalty: float = 0.0
    promised: float = 0.0
    last: FloatArray | None = None
    steps: tuple[FloatArray, ...] = ()
    changes: tuple[FloatArray, ...] = ()
    refused: int = 0
    order: int = 2
    rough: bool = False
    idle: int = 0
    stalled: bool = False
    above: float = 0.0
    below: float = 0.0
    closed: bool = False
    sure: bool = False
    radius: float = np.inf
    unit: float = 1.0
    settled: SaddleState | None = None
    ball_multiplier: float = 0.0

    @property
    def gap(self) -> float:
        """Return ν of the pair `best`, in parts of the unit."""
        return self.upper - self.lower

    @property
    def rounded_gap(self) -> float:
        """Return ν with what rounding can have hidden; it may be infinite."""
        return self.unit * (self.gap + self.above + self.below)

    @property
    def bounds(self) -> Bounds | None:
        """Return both ends of the gap, where they are known."""
        if self.proved is None or not np.isfinite(self.gap):
            return None
        upper, lower = self.upper + self.above, self.lower - self.below
        return self.unit * upper, self.unit * lower, self.proved, self.radius

    @property
    def ending(self) -> SaddleState:
        """Return the state whose pair stands, should nothing more be asked.

        A larger ball counts if its gap is closed for sure; or if its w is better than
        all of the smaller one's for sure.
        """
        if self.settled is None or (self.closed and self.sure):
            return self
        least = self.settled.lower - self.settled.below
        better = self.closed and self.upper + self.above < least - 1e-3 * abs(least)
        return self if better or not self.settled.sure else self.settled


@dataclass(frozen=True)
class ScaledTerms:
    """β, B, βμ and R of a problem whose losses are divided by their unit."""

    risk_weight: float
    multiplier_bound: float
    modulus: float
    radius: float
    n_cells: int

    @classmethod
    def of(cls, problem: Problem, radius: float) -> ScaledTerms:
        """Divide by the unit."""
        return cls(
            problem.risk_weight,
            problem.multiplier_bound,
            problem.modulus / problem.unit,
            radius,
            problem.n_cells,
        )


@dataclass(frozen=True, kw_only=True)
class GapMethod(Method):
    """A method that bounds the saddle value itself, and ends when its gap is closed.

    Attributes
    ----------
    patience
        Rounds in which no bound moved, before giving up.
    """

    multiplier_bound: Positive | None = None
    risk_weight: NonNegative = 1.0
    target_gap: Positive = 1e-6
    max_rounds: Count = 50
    resumes: ClassVar[bool] = True
    saddle: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"multiplier_bound": MULTIPLIER_BOUNDS}
    patience: ClassVar[int] = 10

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Ask and step until the gap is closed, or nothing more can be gained."""
        state = self.initial(problem, None if start is None else start.point)
        known = None if start is None else start.under(problem)
        if known is not None and np.array_equal(state.w, known.w):
            state = self.step(problem, state, known)
        method: GapMethod = self
        try:
            while not method.finished(state):
                if state.here is not None and not state.refused:
                    state = yield from method.aim(problem, state, state.here)
                if (other := method.successor(problem, state)) is not None:
                    method = other
                    state = replace(state, w=state.best.w, here=None, refused=0, idle=0)
                lam = state.multipliers  # of the model around the last w
                total = yield method.query(problem, state)
                state = method.step(problem, state, total)
                yield Round(state.ending.best, state.ending.rounded_gap, lam)
        except (Stop, LinAlgError):  # the latter: Hessians of no convex function
            pass
        end = state.ending
        found = None if end.found is None else end.found.times(end.unit)
        return Finished(end.best, found, end.bounds)

    @abstractmethod
    def query(self, problem: Problem, state: SaddleState) -> Expand:
        """Return what is asked at the next w."""

    @abstractmethod
    def aim(
        self, problem: Problem, state: SaddleState, here: Expansion
    ) -> Generator[Expand, ExpandTotal, SaddleState]:
        """Choose the next w and λ by a model around an accepted w."""

    def closer(self, problem: Problem, state: SaddleState) -> float:
        """Return the part of the target gap at which to stop."""
        return 0.4

    def successor(self, problem: Problem, state: SaddleState) -> GapMethod | None:
        """Return the method that continues from here, should this one be slow."""
        return None

    def known(
        self, problem: Problem, state: SaddleState, raw: Expansion
    ) -> Expansion | None:
        """Return what is known at the next w; None if that is too little."""
        return raw

    def remember(
        self, problem: Problem, state: SaddleState, here: Expansion, trial: Expansion
    ) -> SaddleState:
        """Learn from what changed on the way to a trial."""
        return state

    def initial(self, problem: Problem, start: Point | None) -> SaddleState:
        """Return the first state, at w = 0 or at a pair that is given."""
        p, z = problem.n_parameters, problem.n_cells
        linear(problem.task)
        if start is None:
            start = Point(np.zeros(p), np.full(z, 1.0 / (z + 1)))
        if len(start.w) != p or len(start.multipliers) != z:
            raise UsageError(
                "wrong-start",
                name=type(self).__name__,
                p=p,
                z=z,
                n_w=len(start.w),
                n_multipliers=len(start.multipliers),
            )
        lam = project_capped_simplex(start.multipliers, problem.multiplier_bound)
        radius = problem.radius if problem.modulus == 0 else np.inf
        if not problem.fixed_ball:
            radius = max(radius, RADIUS_GROWTH * float(np.linalg.norm(start.w)))
        w = inside(ScaledTerms.of(problem, radius), start.w)
        return SaddleState(0, w, lam, Point(w, lam), radius=radius, unit=problem.unit)

    def step(
        self, problem: Problem, state: SaddleState, total: ExpandTotal | Expansion
    ) -> SaddleState:
        """Improve the bounds by a total, and accept its w or shorten the step."""
        raw = self.known(problem, state, problem.expand(state.w, total))
        if raw is None:
            return state
        trial = raw.times(1.0 / state.unit)
        state = replace(state, round=state.round + 1)
        if not finite(trial):
            return replace(state, stalled=True)
        here, before = state.here, state.gap
        state = self.update_bounds(problem, state, raw)
        if self.finished(state):
            return state
        if here is None:
            return replace(state, here=trial, refused=0, order=2, last=None)
        state = self.remember(problem, state, here, trial)
        terms = ScaledTerms.of(problem, state.radius)
        if accepted(terms, state, here, trial):
            last = self.nearly_closed(problem, state, before)
            last = last and not problem.access.elsewhere
            fast = state.rough and state.round > 1 and state.gap <= FAST * before
            return replace(
                state,
                here=trial,
                refused=0,
                order=1 if last or fast else 2,
                rough=state.rough and state.gap <= SLOW * before,
                last=trial.w - here.w,
            )
        length = saddle.shorten(terms, here, trial, state.penalty)
        return replace(
            state,
            w=here.w + length * (trial.w - here.w),
            promised=length * state.promised,
            refused=state.refused + 1,
            order=2,
            rough=False,
        )

    def finished(self, state: SaddleState) -> bool:
        """Whether nothing more is asked."""
        return state.closed or state.stalled or state.round >= self.max_rounds

    def update_bounds(
        self, problem: Problem, state: SaddleState, raw: Expansion
    ) -> SaddleState:
        """Improve the bounds and, where it is due, the ball (line 1)."""
        per = 1.0 / state.unit
        at, errors = raw.times(per), problem.errors(raw).times(per)
        state = self._closed(problem, self._bounded(problem, state, at, errors))
        if state.closed and state.ending is state and _near(problem, state):
            return self._grown(problem, state, at, errors)
        return state

    def _bounded(
        self, problem: Problem, state: SaddleState, at: Expansion, errors: Errors
    ) -> SaddleState:
        """Improve the bounds on the saddle value."""
        terms = ScaledTerms.of(problem, state.radius)
        upper = upper_value(at.risk, at.violation, terms)
        candidates = candidate_multipliers(terms, at, state.multipliers)
        bounds = lower_values(at, candidates, terms)
        lower = float(bounds.max())
        noise = ROUNDING * (abs(upper) + abs(lower))
        moved = upper < state.upper - noise or lower > state.lower + noise
        idle = 0 if moved else state.idle + 1
        w, lam = state.best.w, state.best.multipliers
        found, proved = state.found, state.proved
        above, below = state.above, state.below
        if upper <= state.upper:
            w, found = at.w, at
            above = errors.upper(terms.risk_weight, terms.multiplier_bound)
        if lower >= state.lower:
            lam, proved = candidates[int(np.argmax(bounds))], at.w
            below = lower - lower_value(at, lam, terms, errors)
        return replace(
            state,
            best=Point(w, lam),
            upper=min(upper, state.upper),
            lower=max(lower, state.lower),
            proved=proved,
            found=found,
            idle=idle,
            above=above,
            below=below,
        )

    def target(self, problem: Problem, state: SaddleState) -> float:
        """Return the gap that is aimed at: in parts of β + Σλ, and of the losses."""
        weight = problem.risk_weight + float(state.best.multipliers.sum())
        return self.target_gap * weight * gap_unit(_largest(problem, state), 1.0)

    def nearly_closed(
        self, problem: Problem, state: SaddleState, before: float
    ) -> bool:
        """Whether the next step closes the gap, as fast as Newton's steps converge."""
        expected = state.gap * (state.gap / before) ** (1 if state.rough else 2)
        enough = self.closer(problem, state) * self.target(problem, state)
        return 0 < before < np.inf and expected <= enough

    def _closed(self, problem: Problem, state: SaddleState) -> SaddleState:
        """Say whether the gap is as small as it was to be, and in floating point.

        Or whether no bound has moved for too long.
        """
        target = self.target(problem, state)
        # What rounding hides is no reason to go on, once the target is reached.
        hidden = max(
            ROUNDING * abs(state.upper), min(state.above + state.below, target)
        )
        closed = state.gap <= max(self.closer(problem, state) * target, hidden)
        sure = state.gap + state.above + state.below <= 0.5 * target
        stalled = state.idle >= self.patience
        return replace(state, closed=bool(closed), sure=bool(sure), stalled=stalled)

    def _grown(
        self, problem: Problem, state: SaddleState, at: Expansion, errors: Errors
    ) -> SaddleState:
        """Go on over a larger ball; what was found over this one is kept."""
        far = replace(
            state,
            radius=RADIUS_GROWTH * state.radius,
            lower=-np.inf,
            proved=None,
            idle=-1,
        )
        far = self._closed(problem, self._bounded(problem, far, at, errors))
        return far if far.closed else replace(far, settled=replace(state, settled=None))


def _largest(problem: Problem, state: SaddleState) -> float:
    """Return the largest of F and the cells' mean losses at the best w, in units."""
    if state.found is None:
        return np.inf
    losses = state.found.violation + problem.cells.bounds / state.unit
    return max(state.found.risk, float(losses.max(initial=0.0)))


def finite(at: Expansion) -> bool:
    """Whether all of it are numbers."""
    parts = (at.risk, at.risk_gradient, at.risk_hessian)
    cells = (at.violation, at.jacobian, at.hessians)
    return all(bool(np.isfinite(part).all()) for part in (*parts, *cells))


def relevant_cells(violation: FloatArray, multipliers: FloatArray) -> IntArray:
    """Return the cells that may bind: those with a multiplier, and the most violated.

    The cost of a step grows with the cube of the cells that it has to weigh.
    """
    if len(violation) <= FEW_CELLS:
        return np.arange(len(violation))
    ranks = np.argsort(-violation, kind="stable")[:MORE_CELLS]
    weighed = np.argsort(-multipliers, kind="stable")[:FEW_CELLS]
    return np.union1d(ranks, weighed[multipliers[weighed] > 0])


def step_to_saddle(
    terms: ScaledTerms,
    state: SaddleState,
    here: Expansion,
    model: Callable[[IntArray], tuple[Expansion, FloatArray]],
    ahead: Callable[[FloatArray], FloatArray],
) -> SaddleState:
    """Choose the next w and λ: the saddle point of a model of the cells that may bind.

    Cells that its step would violate join them.

    Parameters
    ----------
    model
        The model of some cells in the span of a basis, and that basis.
    ahead
        What the model says of the violations of all cells after d.
    """
    cells = relevant_cells(here.violation, state.multipliers)
    while True:
        few, (seen, basis) = replace(terms, n_cells=len(cells)), model(cells)
        guess = state.multipliers[cells], state.ball_multiplier
        step = saddle.next_step(few, seen, *guess)
        d = basis @ step.d
        left = max(0.0, float(step.violation.max(initial=0.0)))
        if len(cells) == terms.n_cells:
            break
        after = ahead(d)
        after[cells] = -np.inf
        missed = np.flatnonzero(after > left)
        if len(missed) == 0:
            break
        worst = missed[np.argsort(-after[missed], kind="stable")[:MORE_CELLS]]
        cells = np.sort(np.append(cells, worst))
    lam = np.zeros(terms.n_cells)
    lam[cells] = step.multipliers
    penalty = max(2.0 * float(lam.sum()), float(state.multipliers.sum()))
    penalty = min(terms.multiplier_bound, penalty)  # ρ
    worst_now = max(0.0, float(here.violation.max(initial=0.0)))
    return replace(
        state,
        w=inside(terms, here.w + d),
        multipliers=lam,
        penalty=penalty,
        promised=max(0.0, penalty * (worst_now - left) - step.risk_change),
        ball_multiplier=step.ball_multiplier,
    )


def lower_values(
    at: Expansion, candidates: FloatArray, terms: SaddleTerms
) -> FloatArray:
    """Return `lower_value` for each row of multipliers."""
    values = terms.risk_weight * at.risk + candidates @ at.violation
    gradients = terms.risk_weight * at.risk_gradient + candidates @ at.jacobian
    squares = np.square(gradients).sum(axis=1)
    if terms.modulus > 0:
        return np.asarray(values - squares / (2.0 * terms.modulus))
    return np.asarray(values - gradients @ at.w - terms.radius * np.sqrt(squares))


def candidate_multipliers(
    problem: ScaledTerms, at: Expansion, guess: FloatArray
) -> FloatArray:
    """Candidates for the λ with the largest `lower_value` at one w: guess, 0, and more.

    With βμ > 0 that λ solves a QP. Over the ball the norm ‖g‖ is not squared; it is
    min_η (‖g‖²/η + η)/2, so η ← ‖g‖ turns it into a few QPs. Only cells that may bind
    have a multiplier.
    """
    cells = relevant_cells(at.violation, guess)
    jacobian, violation = at.jacobian[cells], at.violation[cells]
    risk, modulus = problem.risk_weight * at.risk_gradient, problem.modulus
    gram, zero = jacobian @ jacobian.T, np.zeros(len(cells))
    constant = violation if modulus > 0 else violation - jacobian @ at.w
    found = [zero, guess[cells]]
    for _ in range(1 if modulus > 0 else 4):
        norm = float(np.linalg.norm(risk + found[-1] @ jacobian))  # η
        weight = 1.0 / modulus if modulus > 0 else problem.radius / max(norm, 1e-15)
        better = saddle.maximise_capped(
            weight * gram,
            constant - weight * (jacobian @ risk),
            zero,
            problem.multiplier_bound,
            len(zero),
        )
        if better is None:
            break
        found.append(better)
    whole = np.zeros((len(found), len(guess)))
    whole[:, cells] = found
    return whole


def accepted(
    problem: SaddleTerms, state: SaddleState, here: Expansion, trial: Expansion
) -> bool:
    """Whether the merit fell as promised, up to rounding."""
    before = saddle.merit(problem, here, state.penalty)
    noise = ROUNDING * max(abs(before), problem.risk_weight, state.penalty)
    saved = before - saddle.merit(problem, trial, state.penalty)
    return saved >= ARMIJO * state.promised - noise


def _near(problem: Problem, state: SaddleState) -> bool:
    """Whether the best w lies near the end of a ball that may grow."""
    if problem.fixed_ball or state.radius >= MAX_RADIUS * problem.radius:
        return False
    return float(np.linalg.norm(state.best.w)) > NEAR_END * state.radius


def inside(problem: SaddleTerms, w: FloatArray) -> FloatArray:
    """Where only the ball bounds w, bring it back into the ball."""
    length = float(np.linalg.norm(w))
    if length <= problem.radius:
        return w
    return np.asarray(w * (problem.radius / length))
