"""One trial of a comparison: one method, one seed, measured on one split."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from pffl.compare.candidates import Candidate, Parameters
from pffl.constraints.base import Constraint
from pffl.constraints.metrics import mean_losses, metrics
from pffl.constraints.per_silo import PerSilo
from pffl.data.federation import Federation
from pffl.engines.base import Engine
from pffl.engines.counted import Counted
from pffl.engines.local import Local
from pffl.errors import PFFLError
from pffl.loop import iterate
from pffl.models.base import Model
from pffl.preparation import Options, prepare
from pffl.problem import Problem
from pffl.questions import Evaluate
from pffl.typing import FloatArray

MEASURES = (
    "error",
    "risk",
    "worst_cell_loss",
    "dp_gap",
    "eo_gap",
    "equalized_odds_gap",
    "fedfb_dp",
    "worst_silo_loss",
)
COSTS = ("rounds", "gradients", "bytes", "seconds")


@dataclass(frozen=True)
class Row:
    """What one trial came to.

    Attributes
    ----------
    method, seed, split, parameters
        What was tried, and on which split it was measured.
    measures
        `MEASURES` on that split; None where undefined.
    costs
        `COSTS` of training: rounds, gradients per silo, bytes (both ways, all silos),
        seconds.
    reason
        Why there are no measures, if the trial failed.
    """

    method: str
    seed: int
    split: str
    parameters: Mapping[str, Any]
    measures: Mapping[str, float | None] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain form."""
        return asdict(self)


@dataclass(frozen=True)
class Setting:
    """What all methods of a comparison share."""

    constraint: Constraint
    model: Model
    options: Options
    budget: int


def trial(
    setting: Setting,
    federation: Federation,
    candidate: Candidate,
    parameters: Parameters,
    *,
    seed: int,
    splits: Sequence[str] = ("test",),
) -> list[Row]:
    """Train one method once and measure it on each split.

    A failure is a row with its reason.
    """

    def rows(
        measures: Mapping[str, Mapping[str, float | None]],
        costs: Mapping[str, float],
        reason: str | None = None,
    ) -> list[Row]:
        return [
            Row(candidate.name, seed, s, parameters, measures.get(s, {}), costs, reason)
            for s in splits
        ]

    try:
        method = candidate.build(setting.budget, parameters)
        engine = Counted(Local(federation))
        problem, _ = prepare(
            engine, setting.constraint, setting.model, method, setting.options, seed
        )
        started = time.perf_counter()
        run = iterate(engine, problem, method)
        costs = {
            "rounds": run.rounds,
            "gradients": engine.bill.gradients,
            "bytes": engine.bill.sent + engine.bill.received,
            "seconds": time.perf_counter() - started,
        }
        if run.stopped is not None:
            return rows({}, costs, f"the run {run.stopped}")
        found = {s: measured(engine.engine, problem, run.point.w, s) for s in splits}
        return rows(found, costs)
    except (PFFLError, ArithmeticError, ValueError) as error:
        return rows({}, {}, str(error))


def measured(
    engine: Engine, problem: Problem, w: FloatArray, split: str
) -> dict[str, float | None]:
    """Return `MEASURES` of w on a split."""
    silos = PerSilo(0.0).cells(problem.schema, problem.silo_names)
    total = engine.ask(Evaluate(problem.with_cells(silos), w, split))
    found = metrics(total, problem.schema, n_cells=problem.n_cells).as_dict()
    found["worst_silo_loss"] = float(np.nanmax(mean_losses(total)[problem.n_cells :]))
    return {name: found[name] for name in MEASURES}
