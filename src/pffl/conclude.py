"""What a finished run comes to: measure the model, judge it, lay out the numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pffl.certificates import CellLosses
from pffl.certificates.holdout import split_delta, upper_bounds
from pffl.constraints.base import Cells, Constraint
from pffl.constraints.metrics import mean_losses, metrics
from pffl.data.federation import Federation
from pffl.engines.base import Engine
from pffl.feasibility import Feasibility, feasibility
from pffl.gap import Gap, measure
from pffl.loop import Run, iterate
from pffl.methods.base import Method
from pffl.methods.exact import LARGEST, Exact
from pffl.models.linear import LinearModel
from pffl.preparation import (
    LOSS_BOUND,
    Options,
)
from pffl.problem import Problem
from pffl.questions import Evaluate, EvaluateTotal
from pffl.solution import CellResult, Solution
from pffl.typing import FloatArray
from pffl.verdict import TOLERANCE, judge

NEAR = 1e-3  # of a bound, in loss
FLOOR = 10  # counts below it are withheld in reports
MOST_SILOS = 200  # for which counts are reported one by one


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
    totals = _evaluated(engine, problem, point.w, loss_bound)
    before, extra = {}, 0
    if options.baseline and finished and problem.n_cells and _small(problem):
        free, extra = unbounded(engine, problem)
        before = _evaluated(engine, problem, free, loss_bound)
    losses = CellLosses.of(
        problem.cells.names,
        problem.counts,
        totals["train"].column("loss", of="cells"),
        problem.cells.bounds,
    )
    gap = _gap(engine, problem, run)
    minimax = constraint is not None and constraint.minimax
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
        + (feasible.rounds if feasible else 0)
        + extra,
        seconds=time.monotonic() - started,
        cell_results=cell_results(
            problem, point.multipliers, totals, before, options, loss_bound
        ),
        train=metrics(totals["train"], engine.schema),
        test=None if test is None else metrics(test, engine.schema),
        rows=run.history,
        problem=problem,
        schema=engine.schema,
        silo_names=engine.silo_names,
        method=method.describe(),
        constraint={} if constraint is None else constraint.describe(),
        weighting=options.weighting,
        seed=problem.seed,
        data={**data_facts(engine), "card": data_card(engine, problem)},
        confidence=options.confidence,
        loss_bound=loss_bound,
        witness=_witness(problem, feasible) if impossible else None,
        smallest_bound=_smallest(problem, losses.violation, feasible),
        notes=tuple(dict.fromkeys([*notes, *getattr(engine, "notes", ())])),
    )


def cell_results(
    problem: Problem,
    multipliers: FloatArray,
    totals: Mapping[str, EvaluateTotal],
    before: Mapping[str, EvaluateTotal],
    options: Options,
    loss_bound: float | None,
) -> tuple[CellResult, ...]:
    """Build the rows of the verdict table."""
    z, nothing = problem.n_cells, np.full(problem.n_cells, np.nan)
    train_loss, test = mean_losses(totals["train"]), totals.get("test")
    counts = np.zeros(z) if test is None else test.column("count", of="cells")
    test_loss = nothing if test is None else mean_losses(test)
    upper = nothing if test is None else _upper(test, options, loss_bound)
    old = {split: mean_losses(total) for split, total in before.items()}
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
            _known(old.get("train", nothing)[i]),
            _known(old.get("test", nothing)[i]),
        )
        for i in range(z)
    )


def _upper(
    test: EvaluateTotal, options: Options, loss_bound: float | None
) -> FloatArray:
    """Bound the mean loss of unseen people, all cells together; NaN where unknown."""
    counts = test.column("count", of="cells")
    if loss_bound is None or not len(counts):
        return np.full(len(counts), np.nan)
    upper = upper_bounds(
        counts,
        test.column("capped_loss", of="cells"),
        test.column("capped_loss_squared", of="cells"),
        loss_bound=loss_bound,
        delta=split_delta(1 - options.confidence, len(counts)),
    )
    return np.where(counts > 0, upper, np.nan)


def unbounded(engine: Engine, problem: Problem) -> tuple[FloatArray, int]:
    """Fit the model without bounds; return w and the rounds that it took."""
    free = replace(
        problem,
        task=replace(problem.task, cells=Cells.none(problem.schema)),
        counts=np.zeros(0),
        risk_weight=1.0,
    )
    run = iterate(engine, free, Exact())
    return run.point.w, run.rounds


def data_facts(engine: Engine) -> Mapping[str, object]:
    """Say which data a result belongs to."""
    federation = getattr(engine, "federation", None)
    facts: dict[str, object] = {
        "silos": len(engine.silo_names),
        "schema": engine.schema.hash,
        "name": getattr(engine, "name", "data"),
        "synthetic": None,  # rows that are elsewhere: not known
    }
    if isinstance(federation, Federation):
        facts |= {
            "name": federation.name,
            "synthetic": federation.synthetic,
            "fingerprint": federation.fingerprint,
            "notes": list(federation.notes),
        }
    return facts


def data_card(engine: Engine, problem: Problem) -> Mapping[str, object] | None:
    """Rows per silo and group, small ones withheld; None for very many silos.

    No totals stand beside the counts, so a single withheld one cannot be recovered. Of
    silos that are elsewhere only totals are shown: what one of them has is its own.
    """
    silos: Sequence[str] = problem.silo_names
    schema = problem.schema
    shape = (len(silos), len(schema.groups), schema.n_labels)
    counts = problem.silo_counts.reshape(shape).sum(axis=2)
    if not isinstance(getattr(engine, "federation", None), Federation):
        silos, counts = [f"all {len(silos)} silos"], counts.sum(axis=0, keepdims=True)
    if len(silos) > MOST_SILOS:
        return None
    return {
        "silos": list(silos),
        "groups": list(schema.groups),
        "rows": [
            [n if n == 0 or n >= FLOOR else None for n in r] for r in counts.tolist()
        ],
        "floor": FLOOR,
    }


def _gap(engine: Engine, problem: Problem, run: Run) -> Gap | None:
    """Measure the gap of the pair returned, where that is possible."""
    if not _linear(problem) or not np.isfinite(run.point.w).all():
        return None
    return measure(engine, problem, run.point)


def _evaluated(
    engine: Engine, problem: Problem, w: FloatArray, loss_bound: float | None
) -> dict[str, EvaluateTotal]:
    """Evaluate w on the training and test rows."""
    return {
        split: engine.ask(Evaluate(problem.task, w, split, loss_bound or np.inf))
        for split in ("train", "test")
        if split in engine.splits
    }


def _small(problem: Problem) -> bool:
    return _linear(problem) and problem.n_parameters <= LARGEST


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


def _smallest(
    problem: Problem, violation: FloatArray, feasible: Feasibility | None
) -> float | None:
    """Return the smallest common bound, where the bounds are impossible.

    (Or what all bounds must rise by, where they differ.) With impossible bounds the
    price is at B and the model no longer depends on the bounds: its worst loss is the
    smallest bound that the same run meets, a little above the smallest of all. Where it
    is far above, as after a method that knows no bounds, the latter is returned.
    """
    if feasible is None or not feasible.impossible:
        return None
    own, least = float(violation.max()), feasible.excess.upper
    excess = own if own - least <= NEAR else least
    common = float(np.ptp(problem.cells.bounds)) == 0
    smallest = excess + (float(problem.cells.bounds[0]) if common else 0.0)
    return float(np.ceil(smallest * 1e6) / 1e6)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
