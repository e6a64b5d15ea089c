"""A run is a generator that yields queries and receives their totals.

    total = yield from ask(query)                 one query
    a, b = yield from together(flow_a, flow_b)       independent parts, in lockstep
    run = yield from iterate(problem, method)        the rounds of a method
    result = drive(engine, flow)                     carry the queries to an engine

A flow has no engine, no file and no clock, and draws nothing at random but from the
run's seed: it follows from the totals that it hears. So a run that was stopped is begun
anew, and first hears what it heard (`log`). Beside queries a flow yields `Round`s,
for callbacks: each is answered with the seconds so far, and whether to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar, overload

import numpy as np

from pffl.bounds.gap import gap_of
from pffl.callbacks import Round
from pffl.methods.base import Bounds, Method
from pffl.problem import Expansion, Point, Problem, upper_value
from pffl.queries import (
    Expand,
    ExpandTotal,
    Query,
    Total,
    Train,
    TrainTotal,
)
from pffl.typing import FloatArray

DIVERGED = 10.0  # times the first loss
ABOVE = 4.0  # times a loss: a bound of it that leaves its last digits alone

R = TypeVar("R")
T = TypeVar("T", bound=Total)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
Signal: TypeAlias = Sequence[Query[Any]] | Round
Flow: TypeAlias = Generator[Signal, Any, R]


def ask(query: Query[T]) -> Flow[T]:
    """Ask one query; return its total."""
    totals = yield from ask_all([query])
    return totals[0]


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


@overload
def together(first: Flow[A], /) -> Flow[tuple[A]]: ...
@overload
def together(first: Flow[A], second: Flow[B], /) -> Flow[tuple[A, B]]: ...
@overload
def together(
    first: Flow[A], second: Flow[B], third: Flow[C], /
) -> Flow[tuple[A, B, C]]: ...
@overload
def together(
    first: Flow[A], second: Flow[B], third: Flow[C], fourth: Flow[D], /
) -> Flow[tuple[A, B, C, D]]: ...
@overload
def together(*flows: Flow[A]) -> Flow[tuple[A, ...]]: ...
def together(*flows: Flow[Any]) -> Flow[tuple[Any, ...]]:
    """Advance independent flows in lockstep: what they ask goes out at once.

    An exception that is thrown in reaches every flow that waits for an answer.
    """
    results: list[Any] = [None] * len(flows)
    waiting: dict[int, Sequence[Query[Any]]] = {}

    def advance(i: int, step: Callable[[Any], Signal], value: Any) -> Flow[None]:
        """Go on with one flow until it asks or ends."""
        try:
            while isinstance(signal := step(value), Round):
                try:
                    value = yield signal
                    step = flows[i].send
                except BaseException as error:
                    value, step = error, flows[i].throw
            waiting[i] = signal
        except StopIteration as done:
            results[i] = done.value

    try:
        for i, flow in enumerate(flows):
            yield from advance(i, flow.send, None)
        while waiting:
            asked, waiting = waiting, {}
            try:
                totals = yield [q for part in asked.values() for q in part]
            except GeneratorExit:
                raise
            except BaseException as error:
                for i in asked:
                    yield from advance(i, flows[i].throw, error)
                continue
            found = iter(totals)
            for i, part in asked.items():
                yield from advance(i, flows[i].send, [next(found) for _ in part])
    finally:
        for flow in flows:
            flow.close()
    return tuple(results)


# Rounds of a method


@dataclass(frozen=True, eq=False)
class Run:
    """How a method's run went.

    Attributes
    ----------
    point
        The pair (w, λ) that the method stands for.
    history
        One entry per round.
    rounds
        Queries asked of the federation.
    stopped
        Why the run ended before the method was finished, if it did.
    expansion
        The expansion at `point`, where the method asked for it.
    bounds
        Upper and lower end of the duality gap of `point`, and the w at which the lower
        one was proved, where the method knows them.
    remark
        What the method has to say of where it ended.
    """

    point: Point
    history: tuple[Round, ...]
    rounds: int
    stopped: Literal["diverged", "interrupted"] | None
    expansion: Expansion | None = None
    bounds: Bounds | None = None
    remark: str | None = None


@dataclass(frozen=True, eq=False)
class Start:
    """Where to start from: a pair that was found under other bounds.

    Attributes
    ----------
    point
        The pair (w, λ).
    expansion, bounds
        The expansion there, if it is at hand: what it tells need not be asked. And the
        bounds under which it was taken.
    """

    point: Point
    expansion: Expansion | None
    bounds: FloatArray

    @classmethod
    def of(cls, run: Run, problem: Problem) -> Start:
        """Start where a run on a problem ended."""
        return cls(run.point, run.expansion, problem.cells.bounds)

    def sharing(self, total: float, cells: int) -> Start:
        """Return it with multipliers that have a sum; alike where none is above 0."""
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
        """Return the expansion under the bounds of a problem; None if not at hand.

        What a bound far above its loss has rounded off is not to be had again.
        """
        if self.expansion is None or len(self.bounds) != problem.n_cells:
            return None
        losses = np.abs(self.expansion.violation + self.bounds)
        if (np.abs(self.bounds) > ABOVE * losses).any():
            return None
        shift = self.bounds - problem.cells.bounds
        return replace(self.expansion, violation=self.expansion.violation + shift)


Gauge: TypeAlias = Callable[[Problem, Point], Flow[Bounds]]


def iterate(
    problem: Problem,
    method: Method[Any],
    *,
    gap_every: int = 0,
    gauge: Gauge | None = None,
    watched: bool = False,
    start: Start | None = None,
) -> Flow[Run]:
    """Run one method to its end: ask, check, step, record.

    With `gap_every`, `gauge` measures the gap every so many rounds, to be shown; it
    does not change the run. Callbacks see a run that is `watched`. A method that can
    starts at `start`.
    """
    method, _ = method.resolved(problem)
    again = None if start is None else method.resumed(start.point)
    method = again or method
    state = good = method.init(problem)
    rounds, history, bounds = 0, list[Round](), None
    if start is not None and again is not None:
        state = good = _at_hand(problem, method, state, start)
    stopped: Literal["diverged", "interrupted"] | None = None
    try:
        setup = method.setup(problem)
        if setup is not None:
            state = good = method.init(problem, (yield from ask(setup)))
            rounds = 1
        while (query := method.query(problem, state)) is not None:
            total = yield from ask(query)
            lam = method.multipliers(problem, state)
            row = observe(problem, query, total, lam)
            if diverged(row, history, total):
                stopped = "diverged"
                break
            good, state = state, method.step(problem, state, total)
            rounds, bounds = rounds + 1, None
            if row is None:
                continue
            gap = method.gap(state)
            gap = None if gap is None or not np.isfinite(gap) else float(gap)
            row = replace(row, number=rounds, gap=gap, planned=method.planned_rounds)
            history.append(row)
            if gap_every and rounds % gap_every == 0 and gauge is not None:
                pair = method.finish(problem, state)
                bounds = yield from gauge(problem, pair)
                history[-1] = row = replace(row, gap=gap_of(*bounds[:2]))
            if watched:
                seconds, enough = yield row
                history[-1] = replace(row, seconds=seconds)
                if enough:
                    break
    except KeyboardInterrupt:
        stopped = "interrupted"
    failed = stopped == "diverged"
    state = good if failed else state
    return Run(
        method.finish(problem, state),
        tuple(history),
        rounds + failed,
        stopped,
        method.expansion(state),
        method.bounds(state) or (None if failed else bounds),
        None if stopped else method.remark(problem, state),
    )


def _at_hand(problem: Problem, method: Method[Any], state: Any, start: Start) -> Any:
    """Take a method's first step by what is known already, if that is what it asks."""
    known, query = start.under(problem), method.query(problem, state)
    if known is None or not isinstance(query, Expand):
        return state
    enough = query.order == 1 or known.risk_hessian.size > 0
    if not enough or not np.array_equal(query.w, known.w):
        return state
    return method.step(problem, state, known)


def observe(
    problem: Problem, query: Query[Any], total: Total, multipliers: FloatArray
) -> Round | None:
    """Read risk and violation at the w that was sent; None if there is none to read."""
    heard = True  # whether a silo that counts was among those asked
    if isinstance(query, Train) and isinstance(total, TrainTotal):
        risk, heard = problem.risk(query.w, total), total.share > 0
        lam: FloatArray = query.cell_weights[: problem.n_cells] * problem.counts
        silos, sums = query.silos, total.cell_losses
    elif isinstance(query, Expand) and isinstance(total, ExpandTotal):
        if not query.order:
            return None
        risk = float(total.losses[0]) + problem.ridge(query.w)
        lam, silos, sums = multipliers, None, total.losses[1:]
    else:
        return None
    violation = problem.violation_among(sums[: problem.n_cells], silos)
    known = ~np.isnan(violation)
    losses = (violation + problem.cells.bounds)[known]
    worst = float(losses.max(initial=0.0))
    loss = max(risk, worst) if heard else worst
    if not np.isfinite(loss):
        return Round(0, risk, violation, lam, np.inf, None, 0.0, loss, problem=problem)
    # A cell that is not known is not one without a violation (fault 41).
    upper = upper_value(risk, violation, problem) if known.all() else np.nan
    return Round(0, risk, violation, lam, upper, None, 0.0, loss, problem=problem)


def diverged(row: Round | None, history: Sequence[Round], total: Total) -> bool:
    """Whether a number is not finite, or a loss ten times that of the start.

    The largest of F and the cells' mean losses is compared: neither a high price B nor
    a tight bound makes it large. Reference: fault 30.
    """
    if isinstance(total, TrainTotal) and not np.isfinite(total.update).all():
        return True
    if row is None:
        return False
    if np.isinf(row.upper):
        return True
    first = history[0].loss if history else row.loss
    return isinstance(total, TrainTotal) and row.loss > DIVERGED * max(first, 1e-12)
