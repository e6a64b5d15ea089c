"""A run is a generator that yields queries and receives their totals.

    total = yield from ask(query)                 one query
    a, b = yield from gather(flow_a, flow_b)      independent parts, in lockstep
    run = yield from rounds(problem, method)      a method's rounds, watched
    result = drive(engine, flow)                  carry the queries to an engine

A flow has no engine, no file and no clock, and draws nothing at random but from the
run's seed: it follows from the totals that it hears. So a run that was stopped is begun
anew, and first hears what it heard (`log`). Beside queries a flow yields `Round`s,
for callbacks: each is answered with the seconds so far, and whether to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from pffl.bounds.gap import gap_unit
from pffl.problem import (
    Expansion,
    Point,
    Problem,
    lower_value,
    upper_value,
)
from pffl.queries import (
    Expand,
    ExpandTotal,
    Query,
    Total,
    Train,
    TrainTotal,
)
from pffl.typing import FloatArray

if TYPE_CHECKING:
    from pffl.methods.base import Method

DIVERGED = 10.0  # times the first loss: a larger one ends the run
HIDDEN = 4.0  # times a loss: a bound above that rounds off the loss's last digits

#: Upper end of a gap, lower end, the w that proves it, and R of the ball for which it
#: does; infinite for all models.
Bounds: TypeAlias = tuple[float, float, FloatArray, float]

R = TypeVar("R")
T = TypeVar("T", bound=Total)
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, eq=False)
class Round:
    """What is known after a round: the one event of a run.

    A method gives the pair, and what it knows of it; `rounds` adds the rest.

    Attributes
    ----------
    point
        The pair (w, λ) that the method would return now. Not kept in a history.
    gap
        Gap of the pair, where the method knows it, or where it was measured.
    multipliers
        λ in use, shape (Z,); none leaves it to what was asked.
    number
        Queries so far.
    risk, violation
        F(w) and r(w) of the w that was sent.
    upper
        βF(w) + B·max(0, max r(w)); NaN where some r is not known.
    seconds
        Time since the start.
    loss
        The largest of F and the cells' mean losses.
    planned
        Queries in all, where that is known.
    problem
        What is solved.
    """

    point: Point | None = None
    gap: float | None = None
    multipliers: FloatArray = field(default_factory=lambda: np.zeros(0))
    number: int = 0
    risk: float = np.nan
    violation: FloatArray = field(default_factory=lambda: np.zeros(0))
    upper: float = np.nan
    seconds: float = 0.0
    loss: float = 0.0
    planned: int | None = None
    problem: Problem | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Finished:
    """Where a method ended, and what it knows of it, so that it is not asked again.

    Attributes
    ----------
    point
        The pair (w, λ) that the method stands for.
    expansion
        The expansion at its w.
    bounds
        Both ends of its duality gap.
    """

    point: Point
    expansion: Expansion | None = None
    bounds: Bounds | None = None


class Stop(Exception):
    """Thrown into a method that is to end: it may return what it knows."""


Signal: TypeAlias = Sequence[Query[Any]] | Round
Flow: TypeAlias = Generator[Signal, Any, R]
#: A method: it yields one query and receives its total, or a round.
Steps: TypeAlias = Generator[Query[Any] | Round, Any, Point | Finished]


def ask(query: Query[T]) -> Flow[T]:
    """Ask one query; return its total."""
    (total,) = yield [query]
    found: T = total
    return found


def ask_all(queries: Sequence[Query[T]]) -> Flow[list[T]]:
    """Ask several queries that go out together; return their totals, in order."""
    if not queries:
        return []
    totals: list[T] = yield queries
    return totals


def given(value: R) -> Flow[R]:
    """Return a value without asking anything."""
    yield from ()
    return value


def unless_interrupted(flow: Flow[A], otherwise: B) -> Flow[A | B]:
    """Run a flow that a run can do without: an interruption ends it, not the run."""
    try:
        return (yield from flow)
    except KeyboardInterrupt:
        return otherwise


def gather(*flows: Flow[Any]) -> Flow[tuple[Any, ...]]:
    """Advance independent flows in lockstep: what they ask goes out at once.

    An exception that is thrown in reaches every flow that waits for an answer.
    """
    results: list[Any] = [None] * len(flows)
    due: dict[int, tuple[Callable[[Any], Signal], Any]]
    due = {i: (flow.send, None) for i, flow in enumerate(flows)}
    try:
        while due:
            waiting: dict[int, Sequence[Query[Any]]] = {}
            for i, (step, value) in due.items():
                try:
                    while isinstance(signal := step(value), Round):
                        try:
                            step, value = flows[i].send, (yield signal)
                        except BaseException as error:
                            step, value = flows[i].throw, error
                    waiting[i] = signal
                except StopIteration as done:
                    results[i] = done.value
            if not waiting:
                break
            try:
                found = iter((yield [q for part in waiting.values() for q in part]))
            except GeneratorExit:
                raise
            except BaseException as error:
                due = {i: (flows[i].throw, error) for i in waiting}
                continue
            due = {
                i: (flows[i].send, [next(found) for _ in part])
                for i, part in waiting.items()
            }
    finally:
        for flow in flows:
            flow.close()
    return tuple(results)


# Rounds of a method


@dataclass(frozen=True, eq=False)
class Run(Finished):
    """How a method's run went, besides where it ended.

    Attributes
    ----------
    history
        One entry per round.
    rounds
        Queries asked of the federation.
    stopped
        Why the run ended before the method was finished, if it did.
    """

    history: tuple[Round, ...] = ()
    rounds: int = 0
    stopped: Literal["diverged", "interrupted"] | None = None


@dataclass(frozen=True, eq=False)
class Start:
    """Where to start from: a pair that was found under other bounds.

    Attributes
    ----------
    point
        The pair (w, λ).
    expansion, bounds
        The expansion there, if it is known: what it tells need not be asked. And the
        bounds under which it was taken.
    """

    point: Point
    expansion: Expansion | None = None
    bounds: FloatArray = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(cls, run: Run, problem: Problem) -> Start:
        """Start where a run on a problem ended."""
        return cls(run.point, run.expansion, problem.cells.bounds)

    def sharing(self, total: float, cells: int) -> Start:
        """Return it with multipliers that have a sum; equal where none is above 0."""
        lam = self.point.multipliers
        if len(lam) != cells or not lam.sum() > 0:
            lam = np.ones(cells)
        return replace(self, point=Point(self.point.w, total * lam / lam.sum()))

    def without_cells(self) -> Start:
        """Return it for the same problem without any cell."""
        at, none = self.expansion, np.zeros(0)
        if at is not None:
            J, H = at.jacobian[:0], at.hessians[:0]
            at = replace(at, violation=none, jacobian=J, hessians=H)
        return Start(Point(self.point.w, none), at, none)

    def under(self, problem: Problem) -> Expansion | None:
        """Return the expansion under the bounds of a problem; None if unknown.

        What a bound far above its loss has rounded off is not to be had again.
        """
        if self.expansion is None or len(self.bounds) != problem.n_cells:
            return None
        losses = np.abs(self.expansion.violation + self.bounds)
        if (np.abs(self.bounds) > HIDDEN * losses).any():
            return None
        shift = self.bounds - problem.cells.bounds
        return replace(self.expansion, violation=self.expansion.violation + shift)


def rounds(
    problem: Problem,
    method: Method,
    *,
    start: Start | None = None,
    watched: bool = False,
) -> Flow[Run]:
    """Run a method to its end: ask, check, record, and stop where that is due.

    A method that asks for it has its gap measured after some rounds, from one
    expansion, and ends where it is small enough (`gap_rounds`, `target_gap`). Callbacks
    see a run that is `watched`. A method that can starts at `start`.
    """
    method, _ = method.resolved(problem)
    watch = Watch(problem, method.planned_rounds, watched)
    steps, gaps = method.run(problem, start), method.gap_rounds(problem)
    before = now = problem.start_point() if start is None else start.point
    stopped: Literal["diverged", "interrupted"] | None = None
    end: Point | Finished | None = None
    value, trained = None, 0
    try:
        while end is None:
            try:
                signal = steps.send(value)
            except StopIteration as done:
                end = done.value
                break
            if not isinstance(signal, Round):
                value = yield from watch.ask(signal)
                continue
            value, trained = None, trained + 1
            before, now = now, signal.point or now
            enough = yield from watch.show(replace(signal, point=now))
            if not enough and trained in gaps:
                total = yield from watch.ask(Expand(problem.task, now.w))
                at = problem.expand(now.w, total)
                bounds, unit = measured_gap(problem, at, now.multipliers)
                gap = bounds[0] - bounds[1]
                small = gap <= (method.target_gap or 0.0) * unit
                enough = yield from watch.show(Round(now, gap, now.multipliers))
                if small:
                    end = Finished(now, None, bounds)
            if enough and end is None:
                end = _left(steps) or now
    except Diverged:
        stopped, end = "diverged", before
    except KeyboardInterrupt:
        stopped, end = "interrupted", _left(steps) or now
    finally:
        steps.close()
    end = Finished(end) if isinstance(end, Point) else end
    seen = tuple(watch.history), watch.asked, stopped
    return Run(end.point, end.expansion, end.bounds, *seen)


def _left(steps: Steps) -> Point | Finished | None:
    """End a method; return what it knows of where it stands, if it tells."""
    try:
        steps.throw(Stop())
    except StopIteration as done:
        end: Point | Finished = done.value
        return end
    except Stop:
        return None
    return None


class Diverged(Exception):
    """A number is not finite, or a loss far above that of the start."""


@dataclass(eq=False)
class Watch:
    """What is seen of a run: queries so far, the last of them, and a row per round."""

    problem: Problem
    planned: int | None
    watched: bool
    asked: int = 0
    row: Round | None = None
    history: list[Round] = field(default_factory=list)

    def ask(self, query: Query[T]) -> Flow[T]:
        """Ask, and check what comes back."""
        total = yield from ask(query)
        self.asked += 1
        self.row = observe(self.problem, query, total)
        if diverged(self.row, self.history, total):
            raise Diverged
        return total

    def show(self, told: Round) -> Flow[bool]:
        """Record a round, and show it to callbacks; return whether they stop the run.

        Nothing is shown where no w was looked at.
        """
        row, self.row = self.row, None
        if row is None or told.point is None:
            return False
        gap = told.gap if told.gap is not None and np.isfinite(told.gap) else None
        lam = told.multipliers if len(told.multipliers) else row.multipliers
        row = replace(
            row, gap=gap, multipliers=lam, number=self.asked, planned=self.planned
        )
        self.history.append(row)
        if not self.watched:
            return False
        seconds, enough = yield replace(row, point=told.point)
        self.history[-1] = replace(row, seconds=seconds)
        return bool(enough)


def measured_gap(
    problem: Problem, at: Expansion, multipliers: FloatArray
) -> tuple[Bounds, float]:
    """Return both ends of a pair's gap, and what a target is in parts of.

    From values and gradients at its w alone, which is well inside the ball, if there is
    one. The unit is β + Σλ, times that of the losses.
    """
    radius = max(problem.radius, 10.0 * float(np.linalg.norm(at.w)))
    inside, errors = replace(problem, radius=radius), problem.errors(at)
    upper = upper_value(at.risk, at.violation, inside)
    upper += errors.upper(problem.risk_weight, problem.multiplier_bound)
    lower = lower_value(at, multipliers, inside, errors)
    largest = float((at.violation + problem.cells.bounds).max(initial=at.risk))
    weight = problem.risk_weight + float(multipliers.sum())
    ball = np.inf if problem.modulus > 0 else radius
    return (upper, lower, at.w, ball), weight * gap_unit(largest, problem.unit)


def observe(problem: Problem, query: Query[Any], total: Total) -> Round | None:
    """Read risk and violation at the w that was sent; None without one."""
    lam, silos = np.zeros(problem.n_cells), None
    if isinstance(query, Train) and isinstance(total, TrainTotal):
        risk, silos, sums = problem.risk(query.w, total), query.silos, total.cell_losses
        lam = query.cell_weights[: problem.n_cells] * problem.counts
    elif isinstance(query, Expand) and isinstance(total, ExpandTotal) and query.order:
        risk, sums = float(total.losses[0]) + problem.ridge(query.w), total.losses[1:]
    else:
        return None
    violation = problem.violation_among(sums[: problem.n_cells], silos)
    known = ~np.isnan(violation)
    loss = float((violation + problem.cells.bounds)[known].max(initial=0.0))
    if not isinstance(total, TrainTotal) or total.share > 0:
        loss = max(risk, loss)  # a silo that counts was among those asked
    upper = np.inf
    if np.isfinite(loss):
        # A cell that is not known is not one without a violation (fault 41).
        upper = upper_value(risk, violation, problem) if known.all() else np.nan
    seen: Any = {"risk": risk, "violation": violation, "upper": upper, "loss": loss}
    return Round(multipliers=lam, problem=problem, **seen)


def diverged(row: Round | None, history: Sequence[Round], total: Total) -> bool:
    """Whether a number is not finite, or a loss ten times that of the start.

    The largest of F and the cells' mean losses is compared: neither a high B nor a
    tight bound makes it large. Reference: fault 30.
    """
    if isinstance(total, TrainTotal) and not np.isfinite(total.update).all():
        return True
    if row is None:
        return False
    if np.isinf(row.upper):
        return True
    first = history[0].loss if history else row.loss
    return isinstance(total, TrainTotal) and row.loss > DIVERGED * max(first, 1e-12)
