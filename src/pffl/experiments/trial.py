"""One trial: a method with some parameters, trained once and measured on all splits.

A record keeps what was counted, sums per group and label, per cell and per silo. Every
measure is a pure function of these sums (`measures`), so that cells with too few people
can be left out of "the worst" later, when all seeds are in.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np

from pffl._solve import open_engine, setting_of
from pffl.constraints import Constraint, PerSilo
from pffl.data.federation import Federation
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import PFFLError
from pffl.evidence.looks import bounds_settings, hashed
from pffl.evidence.rates import group_means, largest, metrics, ratio, spread, top
from pffl.files import key_of
from pffl.flow import Flow, Run, Start, ask_all, gather, rounds
from pffl.methods import METHODS
from pffl.methods.base import Method
from pffl.models.base import Model
from pffl.models.linear import LinearModel
from pffl.prepare import Options, Setting, prepare
from pffl.problem import Point, Problem
from pffl.queries import Evaluate, EvaluateTotal
from pffl.typing import FloatArray

MAX_STACK = 48  # trials that are trained side by side
COLUMNS = ("count", "weight", "loss", "correct", "positive")
MEASURES = (
    "error",
    "risk",
    "worst_cell_loss",
    "worst_group_loss",
    "dp_gap",
    "eo_gap",
    "equalized_odds_gap",
    "worst_silo_loss",
)
COSTS = ("rounds", "seconds")
OF_PROBLEM = ("bound", "l2")  # parameters that are not the method's

AnyMethod: TypeAlias = "str | Method"
LeftOut: TypeAlias = frozenset[tuple[str, str]]


@dataclass(frozen=True, eq=False)
class Trial:
    """A method with the parameters that differ from its defaults.

    Attributes
    ----------
    name
        What the method is called in the comparison.
    method
        Its name in `METHODS`, or the object.
    constraint
        Its cells are measured; its bound steers only methods that take one.
    parameters
        Fields of the method; ``bound`` is the constraint's, ``l2`` the model's.
    """

    name: str
    method: AnyMethod
    constraint: Constraint
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def build(self, budget: int | None) -> Method:
        """Return the method; one given by name is held to the budget of gradients."""
        own = {k: v for k, v in self.parameters.items() if k not in OF_PROBLEM}
        if not isinstance(self.method, str):
            return replace(self.method, **own)  # type: ignore[type-var]
        kind = METHODS[self.method]
        return kind(**own) if budget is None else kind.within(budget, **own)

    @property
    def bounded(self) -> Constraint:
        """The constraint, at the bound that is tried."""
        if "bound" not in self.parameters:
            return self.constraint
        bound = float(self.parameters["bound"])
        if not hasattr(self.constraint, "bound"):
            return self.constraint.at(bound)
        return replace(self.constraint, bound=bound)  # type: ignore[type-var]


@dataclass(frozen=True)
class TrialRecord:
    """What a trial came to on one seed.

    Attributes
    ----------
    method, seed, parameters
        What was tried.
    sums
        For each split ``strata`` (group × label), ``cells`` and ``silos`` with their
        names and columns, ``risk`` and ``share``.
    costs
        `COSTS` of training: rounds; seconds, of a stack of trials the equal share.
    reason
        Why there are no sums, if the trial failed.
    settings
        As in `Look`.
    """

    method: str
    seed: int
    parameters: Mapping[str, Any]
    sums: Mapping[str, Any] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None
    settings: str = ""

    @property
    def point(self) -> str:
        """Parameters as one text."""
        return key_of(dict(self.parameters))


# Measures


def few_people(sums: Mapping[str, Any], fewest: int) -> LeftOut:
    """Name where fewer people are than `fewest`, as (kind, name).

    Kinds are cells, silos, groups, and groups among the positive and the negative.
    """
    strata = sums["strata"]
    groups = list(dict.fromkeys(group for group, _ in strata["names"]))
    by = np.array(strata["count"], dtype=float).reshape(len(groups), -1)
    counts = {
        "cells": zip(sums["cells"]["names"], sums["cells"]["count"], strict=True),
        "silos": zip(sums["silos"]["names"], sums["silos"]["count"], strict=True),
        "groups": zip(groups, by.sum(axis=1), strict=True),
        "positives": zip(groups, by[:, -1], strict=True),
        "negatives": zip(groups, by[:, 0], strict=True),
    }
    return frozenset(
        (kind, name)
        for kind, pairs in counts.items()
        for name, count in pairs
        if count < fewest
    )


class _Sums:
    """Sums of a split, without those who are left out, as `evidence.metrics` reads."""

    def __init__(
        self, sums: Mapping[str, Any], left_out: LeftOut, groups: str = "groups"
    ) -> None:
        names = sums["strata"]["names"]
        self.groups = tuple(dict.fromkeys(group for group, _ in names))
        self.labels = tuple(dict.fromkeys(label for _, label in names))
        self._sums, self._left_out, self._groups = sums, left_out, groups
        self.risk = self.bounded_risk = float(sums["risk"])
        self.share = float(sums["share"])

    def column(self, name: str, *, of: str = "strata") -> FloatArray:
        """One column by name."""
        values = np.array(self._sums[of][name], dtype=float)
        for i, called in enumerate(self._sums[of]["names"]):
            place = (self._groups, called[0]) if of == "strata" else (of, called)
            if place in self._left_out:
                values[i] = 0.0
        return values


def measures(
    record: TrialRecord, split: str, left_out: LeftOut = frozenset()
) -> dict[str, float | None]:
    """Return `MEASURES` on a split; what is undefined is None, never 0."""
    if split not in record.sums:
        return dict.fromkeys(MEASURES)
    sums = record.sums[split]
    whole, some = _Sums(sums, frozenset()), _Sums(sums, left_out)
    found = metrics(some, some, judged="loss")
    every = metrics(whole, whole, judged="loss") if left_out else found
    among: list[float | None] = [None, None]
    if len(whole.labels) == 2:
        parts = [_Sums(sums, left_out, kind) for kind in ("negatives", "positives")]
        among = [spread(group_means(p, p, "positive", y)) for y, p in enumerate(parts)]
    loss, weight = (some.column(name, of="silos") for name in ("loss", "weight"))
    out = asdict(found) | {
        "error": every.error,
        "risk": every.risk,
        "eo_gap": among[1],
        "equalized_odds_gap": largest(*among),
        "worst_silo_loss": top(ratio(loss, weight)),
    }
    return {name: out[name] for name in MEASURES}


def counted(
    problem: Problem, silos: Sequence[str], total: EvaluateTotal
) -> dict[str, Any]:
    """Return what is kept of a total; silos are cells after the problem's own."""
    schema, z = problem.schema, problem.n_cells
    names = [[group, label] for group in schema.groups for label in schema.labels]
    strata: dict[str, Any] = {"names": names or [[g, ""] for g in schema.groups]}
    strata |= {name: total.column(name).tolist() for name in COLUMNS}
    out: dict[str, Any] = {"strata": strata}
    for key, called, place in (
        ("cells", problem.cells.names, slice(0, z)),
        ("silos", silos, slice(z, None)),
    ):
        out[key] = {"names": list(called)} | {
            name: total.column(name, of="cells")[place].tolist() for name in COLUMNS[:3]
        }
    return {**out, "risk": total.risk, "share": total.share}


# Training


@dataclass(frozen=True, eq=False)
class Draw:
    """The data of one seed, on which trials are trained.

    Attributes
    ----------
    federation, model, options
        The rows, the model (a trial may have another l2), how silos are weighed.
    budget
        Gradients per silo that a method given by name may take; None for its default.
    seed
        Its number, which methods draw batches from, too.
    """

    federation: Federation
    model: Model
    seed: int = 0
    budget: int | None = None
    options: Options = field(default_factory=Options)

    @cached_property
    def engine(self) -> Engine:
        """The rows, laid out once for all trials."""
        return open_engine(self.federation, "local")

    @cached_property
    def setting(self) -> Setting:
        """What is known of the silos."""
        return setting_of(self.engine)

    def key(self, trial: Trial) -> str:
        """Name a record, and all that it depends on."""
        method: Any = trial.method
        method = method if isinstance(method, str) else dict(method.describe())
        described = [dict(x.describe()) for x in (trial.constraint, self.model)]
        asked = (trial.name, method, dict(trial.parameters), *described)
        run = (asdict(self.options), self.budget, self.seed)
        return key_of(self.federation.fingerprint, *asked, *run)

    def train(self, trials: Sequence[Trial]) -> Iterator[TrialRecord]:
        """Yield each trial's record, in their order.

        Trials of one method go side by side. Methods that can start at a pair start at
        the last trial's, one by one.
        """
        for _, several in groupby(trials, key=lambda trial: trial.name):
            group, start = list(several), None
            size = 1 if self._resumes(group[0]) else MAX_STACK
            for at in range(0, len(group), size):
                part = group[at : at + size]
                for run, record in self._stack(part, start):
                    yield record
                    start = None if run is None else run.point

    def _resumes(self, trial: Trial) -> bool:
        try:
            method = trial.build(self.budget)
        except PFFLError:
            return True
        linear = isinstance(self.model, LinearModel)
        return not linear or method.resumes

    def _stack(
        self, trials: Sequence[Trial], start: Point | None
    ) -> list[tuple[Run | None, TrialRecord]]:
        """Train trials side by side; where one fails, each alone."""
        flows = [self.training_of(trial, start, len(trials)) for trial in trials]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of bounds that are only tried
                return list(drive(self.engine, gather(*flows)))
        except (PFFLError, ArithmeticError, ValueError) as error:
            if len(trials) == 1:
                head = (trials[0].name, self.seed, dict(trials[0].parameters))
                return [(None, TrialRecord(*head, reason=str(error)))]
        return [self._stack([trial], start)[0] for trial in trials]

    def training_of(
        self, trial: Trial, start: Point | None = None, parallel: int = 1
    ) -> Flow[tuple[Run, TrialRecord]]:
        """Train, say what it cost, and measure on all splits."""
        method, model = trial.build(self.budget), self.model
        if "l2" in trial.parameters and isinstance(model, LinearModel):
            model = replace(model, l2=float(trial.parameters["l2"]))
        shared = (trial.bounded, model, method, self.options, self.seed)
        problem, _ = yield from prepare(self.setting, *shared)
        near = None if start is None or not method.resumes else Start(start)
        began = time.monotonic()
        run = yield from rounds(problem, method, start=near)
        seconds = (time.monotonic() - began) / parallel
        costs = dict(zip(COSTS, (float(run.rounds), seconds), strict=True))
        head = (trial.name, self.seed, dict(trial.parameters))
        if run.stopped == "interrupted":
            raise KeyboardInterrupt  # an unfinished model is no record
        if run.stopped is not None:
            reason = f"the run {run.stopped}"
            return run, TrialRecord(*head, costs=costs, reason=reason)
        silos = PerSilo(0.0).cells(problem.schema, problem.silo_names)
        task, splits = problem.with_cells(silos), self.federation.splits
        totals = yield from ask_all([Evaluate(task, run.point.w, s) for s in splits])
        counts = [counted(problem, silos.names, total) for total in totals]
        sums, cells = dict(zip(splits, counts, strict=True)), problem.cells
        asked = bounds_settings(cells.names, cells.bounds.tolist(), model.describe())
        settings = f"{asked}/{hashed(self.key(trial))}"
        return run, TrialRecord(*head, sums, costs, None, settings)
