"""The loop that every method runs in: ask, step, check, record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from pffl.callbacks import Callback, Round
from pffl.engines.base import Engine
from pffl.gap import measure
from pffl.methods.base import Method
from pffl.objective import Point, Problem, upper_value
from pffl.questions import (
    Curvature,
    CurvatureTotal,
    Question,
    Total,
    Train,
    TrainTotal,
)
from pffl.typing import FloatArray

DIVERGED = 10.0  # times the first objective


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
) -> Run:
    """Run one method to its end.

    With `gap_every`, the gap is measured every so many rounds and shown; it does not
    change the run.
    """
    state = method.init(problem)
    history: list[Round] = []
    rounds, started = 0, time.monotonic()
    stopped: Literal["diverged", "interrupted"] | None = None
    for callback in callbacks:
        callback.before(problem, getattr(method, "planned_rounds", None))
    try:
        while (question := method.question(problem, state)) is not None:
            total = engine.ask(question)
            after = method.step(problem, state, total)
            rounds += 1
            row = observe(problem, question, total, state, time.monotonic() - started)
            if row is None:
                state = after
                continue
            if _diverged(row, history, question):
                stopped = "diverged"
                break
            state = after
            known = getattr(state, "gap", None)  # some methods bound it themselves
            gap = known if known is not None and np.isfinite(known) else None
            if gap_every and rounds % gap_every == 0 and problem.task.model.convex:
                gap = measure(engine, problem, method.finish(problem, state)).value
            row = replace(row, number=rounds, gap=gap)
            history.append(row)
            answers = [callback.after_round(problem, row) for callback in callbacks]
            if any(answers):
                break
    except KeyboardInterrupt:
        stopped = "interrupted"
    finally:
        for callback in callbacks:
            callback.after(problem)
    return Run(method.finish(problem, state), tuple(history), rounds, stopped)


def iterate_many(
    engine: Engine, problems: Sequence[Problem], methods: Sequence[Method[Any]]
) -> list[Run]:
    """Run several methods side by side: each round is one pass over the rows.

    All must share model, cells and silo weights; bounds, B, β, and the methods'
    parameters may differ.
    """
    pairs = list(zip(problems, methods, strict=True))
    states = [method.init(problem) for problem, method in pairs]
    histories: list[list[Round]] = [[] for _ in pairs]
    rounds = [0] * len(pairs)
    stopped: list[Literal["diverged", "interrupted"] | None] = [None] * len(pairs)
    active = list(range(len(pairs)))
    started = time.monotonic()
    while active:
        asked = [(i, pairs[i][1].question(pairs[i][0], states[i])) for i in active]
        going = [(i, question) for i, question in asked if question is not None]
        active = [i for i, _ in going]
        if not going:
            break
        totals = engine.ask_many([question for _, question in going])
        seconds = time.monotonic() - started
        for (i, question), total in zip(going, totals, strict=True):
            problem, method = pairs[i]
            row = observe(problem, question, total, states[i], seconds)
            rounds[i] += 1
            if row is not None and _diverged(row, histories[i], question):
                stopped[i] = "diverged"
                active.remove(i)
                continue
            states[i] = method.step(problem, states[i], total)
            if row is not None:
                histories[i].append(replace(row, number=rounds[i]))
    return [
        Run(m.finish(p, s), tuple(h), n, why)
        for (p, m), s, h, n, why in zip(
            pairs, states, histories, rounds, stopped, strict=True
        )
    ]


def observe(
    problem: Problem, question: Question, total: Total, state: object, seconds: float
) -> Round | None:
    """Read risk and violation at the w that was sent; None if there is none to read."""
    if isinstance(question, Train) and isinstance(total, TrainTotal):
        risk = problem.risk(question.w, total)
        lam: FloatArray = question.cell_weights[: problem.n_cells] * problem.counts
        silos = question.silos
    elif isinstance(total, CurvatureTotal) and isinstance(question, Curvature):
        if question.majorant:
            return None
        risk = total.risk + problem.ridge(question.w)
        lam = getattr(state, "multipliers", np.zeros(problem.n_cells))
        silos = None
    else:
        return None
    violation = problem.violation_among(total.cell_losses[: problem.n_cells], silos)
    upper = upper_value(risk, violation[~np.isnan(violation)], problem)
    return Round(0, risk, violation, lam, upper, None, seconds)


def _diverged(row: Round, history: Sequence[Round], question: Question) -> bool:
    """Non-finite, or ten times worse than at the start (FAULTS 30)."""
    if not np.isfinite(row.upper):
        return True
    first = history[0].upper if history else row.upper
    return isinstance(question, Train) and row.upper > DIVERGED * max(first, 1e-12)
