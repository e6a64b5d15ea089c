"""`solve`: from a federation and a constraint to a model with a verdict."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pffl.callbacks import Callback
from pffl.certificates import CellLosses
from pffl.certificates.holdout import split_delta, upper_bounds
from pffl.data.federation import Federation
from pffl.engines.base import Engine
from pffl.errors import UsageError
from pffl.fairness.base import Constraint
from pffl.fairness.metrics import mean_losses, metrics
from pffl.feasibility import Feasibility, feasibility
from pffl.gap import Gap, measure
from pffl.loop import Run, iterate, iterate_many
from pffl.methods.base import Method, describe
from pffl.methods.exact import Exact
from pffl.methods.pffl import PFFL
from pffl.models.base import Model
from pffl.models.linear import LinearModel
from pffl.objective import Problem
from pffl.preparation import (
    LOSS_BOUND,
    Options,
    default_model,
    open_engine,
    prepare,
    prices,
    reprice,
)
from pffl.questions import Evaluate, EvaluateTotal
from pffl.solution import CellResult, Solution
from pffl.typing import FloatArray
from pffl.verdict import TOLERANCE, judge


def solve(
    federation: Federation | Engine,
    constraint: Constraint | None,
    *,
    model: Model | None = None,
    method: Method[Any] | None = None,
    engine: str = "local",
    options: Options | None = None,
    seed: int | None = None,
    callbacks: Sequence[Callback] = (),
    gap_every: int = 0,
) -> Solution:
    """Train one model under a bound per cell, and say how far the promise holds.

    Parameters
    ----------
    federation
        The silos; or an engine that reaches them.
    constraint
        What is promised to whom; None for plain risk minimisation.
    model
        Default: logistic, softmax or least squares, as the labels ask for.
    method
        Default: `Exact` for linear models, `PFFL` for others.
    engine
        "local" or "reference", if a federation is given.
    options
        Silo weights, norm ball, confidence; see `Options`.
    seed
        Seed of the run; drawn and recorded if None.
    callbacks, gap_every
        Shown between rounds; see `loop.iterate`.
    """
    settings = options or Options()
    started = time.monotonic()
    asker = open_engine(federation, engine)
    seed = secrets.randbits(32) if seed is None else int(seed)
    bound_model = model or default_model(asker.schema)
    chosen = default_method(bound_model) if method is None else method
    problem, notes = prepare(asker, constraint, bound_model, chosen, settings, seed)
    run = iterate(asker, problem, chosen, callbacks=callbacks, gap_every=gap_every)
    return conclude(asker, problem, run, constraint, chosen, settings, notes, started)


def solve_many(
    federation: Federation | Engine,
    points: Sequence[tuple[Constraint, Method[Any]]],
    *,
    model: Model | None = None,
    engine: str = "local",
    options: Options | None = None,
    seed: int = 0,
) -> list[Solution]:
    """Solve many (constraint, method) points at once: one pass over the rows a round.

    The constraints must have the same cells; bounds and the methods' parameters differ.
    """
    settings = options or Options()
    started = time.monotonic()
    asker = open_engine(federation, engine)
    first, notes = prepare(asker, points[0][0], model, points[0][1], settings, seed)
    problems = []
    for constraint, method in points:
        cells = constraint.cells(asker.schema, asker.silo_names)
        if not set(first.cells.names) <= set(cells.names):
            raise UsageError("the constraints of a stack must have the same cells")
        kept = [cells.names.index(name) for name in first.cells.names]
        problems.append(reprice(first, cells.bounds[kept], *prices(constraint, method)))
    runs = iterate_many(asker, problems, [method for _, method in points])
    return [
        conclude(asker, problem, run, constraint, method, settings, notes, started)
        for problem, run, (constraint, method) in zip(
            problems, runs, points, strict=True
        )
    ]


def default_method(model: Model) -> Method[Any]:
    """Return `Exact` where it applies, `PFFL` elsewhere."""
    return Exact() if isinstance(model, LinearModel) else PFFL()


def conclude(
    engine: Engine,
    problem: Problem,
    run: Run,
    constraint: Constraint | None,
    method: Method[Any],
    options: Options,
    notes: Sequence[str],
    started: float,
    *,
    feasible: Feasibility | None = None,
) -> Solution:
    """Measure what the run reached, and judge it; `feasible` may be known already."""
    point, finished = run.point, run.stopped is None
    loss_bound = options.loss_bound or (LOSS_BOUND if engine.schema.labels else None)
    totals = {
        split: engine.ask(Evaluate(problem.task, point.w, split, loss_bound or np.inf))
        for split in ("train", "test")
        if split in engine.splits
    }
    losses = CellLosses.of(
        problem.cells.names,
        problem.counts,
        totals["train"].column("loss", of="cells"),
        problem.cells.bounds,
    )
    gap = _gap(engine, problem, run)
    minimax = problem.risk_weight == 0 and getattr(constraint, "name", "") == "minmax"
    if not (finished and not minimax and _violated(losses.violation)):
        feasible = None
    elif feasible is None and _linear(problem):
        feasible = feasibility(engine, problem)
    verdict = judge(
        problem,
        losses=losses,
        gap=None if gap is None else gap.value,
        feasible=feasible,
        stopped=run.stopped,
        minimax=minimax,
    )
    impossible = verdict.status == "infeasible" and feasible is not None
    test = totals.get("test")
    return Solution(
        status=verdict.status,
        message=verdict.message,
        w=point.w,
        multipliers=point.multipliers,
        gap=None if gap is None else gap.value,
        slack=verdict.slack,
        rounds=run.rounds,
        measuring_rounds=(gap.rounds if gap else 0)
        + (feasible.rounds if feasible else 0),
        seconds=time.monotonic() - started,
        cell_results=cell_results(
            problem, point.multipliers, totals["train"], test, options, loss_bound
        ),
        train=metrics(totals["train"], engine.schema),
        test=None if test is None else metrics(test, engine.schema),
        rows=run.history,
        problem=problem,
        schema=engine.schema,
        silo_names=engine.silo_names,
        method=describe(method),
        constraint={} if constraint is None else constraint.describe(),
        weighting=options.weighting,
        seed=problem.seed,
        data=data_facts(engine),
        confidence=options.confidence,
        loss_bound=loss_bound,
        witness=_witness(problem, feasible) if impossible else None,
        smallest_bound=_smallest(problem, losses.violation) if impossible else None,
        notes=tuple(notes),
    )


def cell_results(
    problem: Problem,
    multipliers: FloatArray,
    train: EvaluateTotal,
    test: EvaluateTotal | None,
    options: Options,
    loss_bound: float | None,
) -> tuple[CellResult, ...]:
    """Build the rows of the verdict table."""
    z = problem.n_cells
    train_loss = mean_losses(train)
    counts = np.zeros(z) if test is None else test.column("count", of="cells")
    test_loss = np.full(z, np.nan) if test is None else mean_losses(test)
    upper = np.full(z, np.nan)
    if test is not None and loss_bound is not None and z:
        upper = upper_bounds(
            counts,
            test.column("capped_loss", of="cells"),
            test.column("capped_loss_squared", of="cells"),
            loss_bound=loss_bound,
            delta=split_delta(1 - options.confidence, z),
        )
        upper[counts == 0] = np.nan
    return tuple(
        CellResult(
            problem.cells.names[i],
            float(problem.cells.bounds[i]),
            int(problem.counts[i]),
            float(train_loss[i]),
            float(train_loss[i] - problem.cells.bounds[i]),
            float(multipliers[i]),
            _known(test_loss[i]),
            int(counts[i]),
            _known(upper[i]),
        )
        for i in range(z)
    )


def data_facts(engine: Engine) -> Mapping[str, object]:
    """Say which data a result belongs to."""
    federation = getattr(engine, "federation", None)
    facts: dict[str, object] = {
        "silos": len(engine.silo_names),
        "schema": engine.schema.hash,
    }
    if isinstance(federation, Federation):
        facts |= {
            "name": federation.name,
            "synthetic": federation.synthetic,
            "fingerprint": federation.fingerprint,
            "notes": list(federation.notes),
        }
    return facts


def _gap(engine: Engine, problem: Problem, run: Run) -> Gap | None:
    """Measure the gap of the pair returned, where that is possible."""
    if not _linear(problem) or not np.isfinite(run.point.w).all():
        return None
    return measure(engine, problem, run.point)


def _linear(problem: Problem) -> bool:
    return isinstance(problem.task.model, LinearModel)


def _violated(violation: FloatArray) -> bool:
    return bool(len(violation)) and float(violation.max()) > TOLERANCE


def _witness(
    problem: Problem, feasible: Feasibility | None
) -> Mapping[str, float] | None:
    if feasible is None:
        return None
    names = problem.cells.names
    return dict(zip(names, feasible.witness.tolist(), strict=True))


def _smallest(problem: Problem, violation: FloatArray) -> float:
    """Return the smallest common bound that this run meets; or what all must rise by.

    With impossible bounds the price is at B, and the model does not depend on the
    bounds any more: its worst loss is the smallest bound that it meets.
    """
    excess = float(violation.max())
    common = float(np.ptp(problem.cells.bounds)) == 0
    smallest = excess + (float(problem.cells.bounds[0]) if common else 0.0)
    return float(np.ceil(smallest * 1e6) / 1e6)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
