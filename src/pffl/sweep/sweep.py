"""Train a whole grid: `Exact` from neighbour to neighbour, `PFFL` as one stack."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pffl.certificates.holdout import lower_bounds, split_delta
from pffl.certificates.rates import clopper_pearson_lower, clopper_pearson_upper
from pffl.conclude import conclude
from pffl.constraints.metrics import mean_losses, metrics
from pffl.data.federation import Federation
from pffl.engines.base import Engine
from pffl.engines.local import Local
from pffl.errors import PFFLError
from pffl.feasibility import Feasibility, feasibility
from pffl.files import Journal, key_of
from pffl.loop import Run, iterate, iterate_many
from pffl.methods.base import Method
from pffl.methods.exact import Exact
from pffl.models.base import Model
from pffl.models.linear import LinearModel
from pffl.preparation import Options, default_model, prepare, prices, reprice
from pffl.problem import Point, Problem
from pffl.questions import Evaluate
from pffl.solution import Solution
from pffl.sweep.grid import GridPoint
from pffl.sweep.table import Sweep

STACK = 64  # configurations trained side by side

Report = Callable[[str, int, int], None]
Trained: TypeAlias = "tuple[GridPoint, Problem, Run | PFFLError, float]"


@dataclass(frozen=True)
class Plan:
    """What all points of a sweep share."""

    model: Model
    method: Method[Any]
    options: Options
    seed: int


def sweep(
    federation: Federation,
    points: Sequence[GridPoint],
    *,
    method: Method[Any] | Sequence[Method[Any]] | None = None,
    model: Model | None = None,
    options: Options | None = None,
    seed: int = 0,
    out: Path | None = None,
    report: Report = lambda what, done, total: None,
) -> Sweep:
    """Train every point and measure it on every split.

    Parameters
    ----------
    method
        One, or several that each train every point. Its parameters hold for every
        point, except for the multiplier bound, which is the point's. Default: `Exact`.
    out
        A folder: finished points are kept in ``points.jsonl`` and not run again.
    report
        Called with what runs now, how many are done, and how many there are.
    """
    methods = method if isinstance(method, Sequence) else [method or Exact()]
    chosen_model = model or default_model(federation.schema)
    settings = replace(options or Options(), baseline=False)
    plans = [Plan(chosen_model, each, settings, seed) for each in methods]
    journal = Journal(None if out is None else out / "points.jsonl")
    keys = {
        (number, point): _key(federation, plan, point)
        for number, plan in enumerate(plans)
        for point in points
    }
    wanted = [
        place
        for place, key in keys.items()
        if key not in journal or journal[key]["reason"] is not None
    ]
    engine, done = Local(federation), len(keys) - len(wanted)
    for number, notion in dict.fromkeys((n, point.notion) for n, point in wanted):
        chosen = sorted(
            (p for n, p in wanted if (n, p.notion) == (number, notion)),
            key=lambda p: (p.multiplier_bound, p.bound),
        )
        plan = plans[number]
        what = notion if len(plans) == 1 else f"{plan.method.name}, {notion}"
        report(what, done, len(keys))
        for point, row in _run(engine, plan, chosen):
            journal.put(keys[number, point], row)
            done += 1
            report(what, done, len(keys))
    rows = tuple(journal[key] for key in keys.values())
    return Sweep(rows, federation.name, federation.synthetic)


def _key(federation: Federation, plan: Plan, point: GridPoint) -> str:
    return key_of(
        federation.fingerprint,
        dict(plan.model.describe()),
        dict(plan.method.describe()),
        plan.options.weighting,
        plan.seed,
        [point.notion, point.bound, point.multiplier_bound],
    )


def _run(
    engine: Engine, plan: Plan, points: Sequence[GridPoint]
) -> Iterator[tuple[GridPoint, dict[str, Any]]]:
    """Train points of one notion; a failure is a row with its reason."""
    try:
        first, _ = prepare(
            engine,
            points[0].constraint,
            plan.model,
            plan.method,
            plan.options,
            plan.seed,
        )
    except PFFLError as error:
        yield from ((point, failed(point, plan, str(error))) for point in points)
        return
    known: Feasibility | None = None
    if isinstance(plan.model, LinearModel):
        known = feasibility(engine, first)
    if isinstance(plan.method, Exact) or not isinstance(plan.model, LinearModel):
        runs = _one_by_one(engine, plan, first, points)
    else:
        runs = _stacked(engine, plan, first, points)
    base = float(first.cells.bounds[0])
    for point, problem, run, started in runs:
        if isinstance(run, PFFLError):
            yield point, failed(point, plan, str(run))
            continue
        shifted = None if known is None else known.at(point.bound - base)
        solution = conclude(
            engine,
            problem,
            run,
            point.constraint,
            plan.method,
            plan.options,
            (),
            started,
            feasible=shifted,
        )
        yield point, measured(engine, point, plan, solution)


def _problem(first: Problem, plan: Plan, point: GridPoint) -> Problem:
    bounds = np.full(first.n_cells, point.bound)
    beta, _ = prices(point.constraint, plan.method)
    return reprice(first, bounds, beta, point.multiplier_bound)


def _one_by_one(
    engine: Engine, plan: Plan, first: Problem, points: Sequence[GridPoint]
) -> Iterator[Trained]:
    """Each point starts from its neighbour's solution, where the method can."""
    start: Point | None = None
    for point in points:
        started = time.monotonic()
        problem, method = _problem(first, plan, point), plan.method
        if isinstance(method, Exact):
            method = replace(method, warm_start=start)
        try:
            run = iterate(engine, problem, method)
        except PFFLError as error:
            yield point, problem, error, started
            continue
        start = run.point
        yield point, problem, run, started


def _stacked(
    engine: Engine, plan: Plan, first: Problem, points: Sequence[GridPoint]
) -> Iterator[Trained]:
    """Points side by side: each round is one pass over the rows."""
    for at in range(0, len(points), STACK):
        started, part = time.monotonic(), points[at : at + STACK]
        problems = [_problem(first, plan, point) for point in part]
        runs: Sequence[Run | PFFLError]
        try:
            runs = iterate_many(engine, problems, [plan.method] * len(part))
        except PFFLError as error:
            runs = [error] * len(part)
        for point, problem, run in zip(part, problems, runs, strict=True):
            yield point, problem, run, started


def failed(point: GridPoint, plan: Plan, reason: str) -> dict[str, Any]:
    """Return the row of a point that could not be trained."""
    return {**_head(point, plan), "status": None, "reason": reason}


def _head(point: GridPoint, plan: Plan) -> dict[str, Any]:
    return {
        "notion": point.notion,
        "bound": point.bound,
        "multiplier_bound": point.multiplier_bound,
        "method": plan.method.name,
    }


def measured(
    engine: Engine, point: GridPoint, plan: Plan, solution: Solution
) -> dict[str, Any]:
    """Return the row of a trained point: verdict, and measures on every split."""
    task, schema = solution.problem.task, engine.schema
    row: dict[str, Any] = {
        **_head(point, plan),
        "status": solution.status,
        "reason": None,
        "gap": solution.gap,
        "rounds": solution.rounds,
        "seconds": solution.seconds,
        "cells": [dict(vars(cell)) for cell in solution.cell_results],
    }
    delta = 1 - plan.options.confidence
    for split in engine.splits:
        total = engine.ask(
            Evaluate(task, solution.w, split, solution.loss_bound or np.inf)
        )
        found = metrics(total, schema).as_dict()
        row |= {f"{split}_{name}": value for name, value in found.items()}
        if split == "train" or not schema.labels or found["rows"] == 0:
            continue
        wrong = total.column("count").sum() - total.column("correct").sum()
        count = total.column("count").sum()
        side = delta / 2
        row[f"{split}_error_low"] = float(
            clopper_pearson_lower(wrong, count, delta=side)
        )
        row[f"{split}_error_high"] = float(
            clopper_pearson_upper(wrong, count, delta=side)
        )
        row[f"{split}_worst_low"] = _worst_low(total, solution, delta)
        uppers = [c.test_upper for c in solution.cell_results]
        if split == "test" and None not in uppers and uppers:
            row["test_worst_high"] = max(u for u in uppers if u is not None)
    return row


def _worst_low(total: Any, solution: Solution, delta: float) -> float | None:
    """Lower confidence bound of the worst cell's (capped) mean loss."""
    if solution.loss_bound is None or np.isnan(mean_losses(total)).any():
        return None
    low = lower_bounds(
        total.column("count", of="cells"),
        total.column("capped_loss", of="cells"),
        total.column("capped_loss_squared", of="cells"),
        loss_bound=solution.loss_bound,
        delta=split_delta(delta, solution.problem.n_cells),
    )
    return float(low.max())
