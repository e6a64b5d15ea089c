"""The loop that every method runs in: ask, step, check, record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from pffl.callbacks import Callback, Round
from pffl.checkpoint import Checkpoint, Standing
from pffl.engines.base import Engine
from pffl.gap import measure
from pffl.methods.base import Method
from pffl.problem import Point, Problem, upper_value
from pffl.questions import (
    Curvature,
    CurvatureTotal,
    Question,
    Total,
    Train,
    TrainTotal,
)
from pffl.typing import FloatArray

DIVERGED = 10.0  # times the first loss


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
        Questions asked of the federation.
    stopped
        Why the run ended before the method was finished, if it did.
    """

    point: Point
    history: tuple[Round, ...]
    rounds: int
    stopped: Literal["diverged", "interrupted"] | None


def iterate(
    engine: Engine,
    problem: Problem,
    method: Method[Any],
    *,
    callbacks: Sequence[Callback] = (),
    gap_every: int = 0,
    checkpoint: Checkpoint | None = None,
) -> Run:
    """Run one method to its end.

    With `gap_every`, the gap is measured every so many rounds and shown; it does not
    change the run. With a `checkpoint`, the run goes on where that one stands, and
    saves where it stands itself; callbacks see the rounds from there on.
    """
    at = _begin(problem, method, checkpoint)
    started = time.monotonic() - at.seconds
    stopped: Literal["diverged", "interrupted"] | None = None
    for callback in callbacks:
        callback.before(problem, method.planned_rounds)
    try:
        while (question := _next(problem, method, at)) is not None:
            total = engine.ask(question)
            seconds = time.monotonic() - started
            lam = method.multipliers(problem, at.state)
            row = observe(problem, question, total, lam, seconds)
            if diverged(row, at.log, total):
                stopped = "diverged"
                break
            state = method.step(problem, at.state, total)
            if row is not None:
                row = replace(row, number=at.rounds + 1, gap=_finite(method.gap(state)))
                if gap_every and row.number % gap_every == 0 and _convex(problem):
                    pair = method.finish(problem, state)
                    row = replace(row, gap=measure(engine, problem, pair).value)
            # One assignment: an interruption comes before a round or after it.
            at = at.after(state, row, seconds)
            if checkpoint is not None:
                checkpoint.offer(at)
            if row is None:
                continue
            answers = [callback.after_round(problem, row) for callback in callbacks]
            if any(answers):
                at = replace(at, ended=True)
                if checkpoint is not None:
                    checkpoint.offer(at)
                    checkpoint.flush()
    except BaseException as error:
        if checkpoint is not None:
            checkpoint.flush()
        if not isinstance(error, KeyboardInterrupt):
            raise
        stopped = "interrupted"
    finally:
        for callback in callbacks:
            callback.after(problem)
    failed = stopped == "diverged"
    point = method.finish(problem, at.good if failed else at.state)
    return Run(point, at.history, at.rounds + failed, stopped)


def _begin(
    problem: Problem, method: Method[Any], checkpoint: Checkpoint | None
) -> Standing:
    """Start at the method's first state, or where the checkpoint stands."""
    first = method.init(problem)
    saved = None if checkpoint is None else checkpoint.load(first)
    return Standing(first, first, 0, [], 0) if saved is None else saved


def _next(problem: Problem, method: Method[Any], at: Standing) -> Question[Any] | None:
    return None if at.ended else method.question(problem, at.state)


def iterate_many(
    engine: Engine, problems: Sequence[Problem], methods: Sequence[Method[Any]]
) -> list[Run]:
    """Run several methods side by side: each round is one pass over the rows.

    All must share model, cells and silo weights; bounds, B, β, and the methods'
    parameters may differ.
    """
    runs = [
        _Running(problem, method, method.init(problem))
        for problem, method in zip(problems, methods, strict=True)
    ]
    started = time.monotonic()
    while True:
        asked = [(run, q) for run in runs if (q := run.question()) is not None]
        if not asked:
            return [run.result() for run in runs]
        totals = engine.ask_many([question for _, question in asked])
        for (run, question), total in zip(asked, totals, strict=True):
            run.take(question, total, time.monotonic() - started)


class _Running:
    """One of several methods that run side by side."""

    def __init__(self, problem: Problem, method: Method[Any], state: Any) -> None:
        self.problem, self.method = problem, method
        self.state = self.good = state
        self.history: list[Round] = []
        self.rounds = 0
        self.stopped: Literal["diverged"] | None = None

    def question(self) -> Question[Any] | None:
        """What to ask next; None when finished."""
        if self.stopped is not None:
            return None
        return self.method.question(self.problem, self.state)

    def take(self, question: Question[Any], total: Total, seconds: float) -> None:
        """Step, unless the total shows that the run diverged."""
        lam = self.method.multipliers(self.problem, self.state)
        row = observe(self.problem, question, total, lam, seconds)
        self.rounds += 1
        if diverged(row, self.history, total):
            self.stopped, self.state = "diverged", self.good
            return
        self.good = self.state
        self.state = self.method.step(self.problem, self.state, total)
        if row is not None:
            gap = _finite(self.method.gap(self.state))
            self.history.append(replace(row, number=self.rounds, gap=gap))

    def result(self) -> Run:
        """How it went."""
        point = self.method.finish(self.problem, self.state)
        return Run(point, tuple(self.history), self.rounds, self.stopped)


def observe(
    problem: Problem,
    question: Question[Any],
    total: Total,
    multipliers: FloatArray,
    seconds: float,
) -> Round | None:
    """Read risk and violation at the w that was sent; None if there is none to read.

    `multipliers` go with a w that was asked for its curvature.
    """
    if isinstance(question, Train) and isinstance(total, TrainTotal):
        risk = problem.risk(question.w, total)
        lam: FloatArray = question.cell_weights[: problem.n_cells] * problem.counts
        silos = question.silos
    elif isinstance(total, CurvatureTotal) and isinstance(question, Curvature):
        if question.majorant:
            return None
        risk = total.risk + problem.ridge(question.w)
        lam = multipliers
        silos = None
    else:
        return None
    violation = problem.violation_among(total.cell_losses[: problem.n_cells], silos)
    known = ~np.isnan(violation)
    losses = (violation + problem.cells.bounds)[known]
    loss = max(risk, float(losses.max(initial=0.0)))
    if not np.isfinite(loss):
        return Round(0, risk, violation, lam, np.inf, None, seconds, loss)
    # A cell that is not known is not one without a violation (fault 41).
    upper = upper_value(risk, violation, problem) if known.all() else np.nan
    return Round(0, risk, violation, lam, upper, None, seconds, loss)


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


def _finite(gap: float | None) -> float | None:
    return float(gap) if gap is not None and np.isfinite(gap) else None


def _convex(problem: Problem) -> bool:
    return problem.task.model.convex
