"""One trial: a method with some parameters, trained once and measured on some rows.

A row keeps what was counted, sums per group and label, per cell and per silo, so that
every measure is a pure function of it (`measures`) and cells in which too few people
are can be left out of "the worst" later, when all seeds are in.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from pffl import files
from pffl.constraints.base import EVERY_SILO, Constraint
from pffl.constraints.per_silo import PerSilo
from pffl.data.federation import Federation
from pffl.driver import drive_many
from pffl.engines.base import Engine
from pffl.errors import PFFLError, UsageError
from pffl.evidence.looks import LOOKS, Look, hashed
from pffl.evidence.metrics import (
    group_rates,
    largest,
    metrics,
    ratio,
    spread,
    top,
)
from pffl.evidence.response import measure_gap
from pffl.files import Journal, key_of
from pffl.flow import Advanced, Clock, Event, Flow, Run, ask_all, iterate, stage
from pffl.methods import METHODS
from pffl.methods.base import LARGEST, Method
from pffl.methods.pffl import PFFL
from pffl.models.base import Model
from pffl.models.linear import LinearModel
from pffl.preparation import Options, Setting, prepare
from pffl.problem import Point, Problem
from pffl.questions import Evaluate, EvaluateTotal
from pffl.solving import open_engine, setting_of
from pffl.typing import FloatArray

STACK = 48  # trials that are trained side by side
BYTES = 8  # of a number
COUNTED = ("count", "weight", "loss", "correct", "positive")
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
COSTS = ("rounds", "passes", "bytes", "seconds")
NO_OPTIMA = "a baseline is solved from a checkout only: python -m reproduction"

Parameters: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Trial:
    """A method with parameters, and a constraint that says for which cells.

    Attributes
    ----------
    arm
        What the method is called in a study; one method may have several arms.
    method, parameters
        Its name, and what differs from its defaults. ``l2`` is that of the model.
    constraint
        Its cells are measured; its bound steers only methods that take one.
    bound
        That bound, where it was a parameter of the search.
    budget
        Gradients per silo, where they are not those of all trials.
    optimum
        Whether what the method descends is solved, instead of trained; see `Optima`.
    """

    arm: str
    method: str
    parameters: Parameters
    constraint: Constraint
    bound: float | None = None
    budget: int | None = None
    optimum: bool = False


@dataclass(frozen=True)
class Row:
    """What one trial came to on one split.

    Attributes
    ----------
    arm, method, seed, split, parameters, bound
        What was tried, and on which rows it was measured.
    sums
        What was counted: ``atoms`` (group × label), ``cells`` and ``silos``, columns
        `COUNTED` each with ``names``; ``risk`` and ``share``.
    costs
        `COSTS` of training: rounds; passes over a silo's rows, in gradients' worth of
        arithmetic; bytes, both ways and all silos; seconds, of a stack of trials the
        equal share.
    gap
        How far from its own optimum it ended at most, where that could be measured.
    reason
        Why there are no sums, if the trial failed.
    """

    arm: str
    method: str
    seed: int
    split: str
    parameters: Mapping[str, Any]
    bound: float | None = None
    sums: Mapping[str, Any] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    gap: float | None = None
    reason: str | None = None


# Measures


@dataclass(frozen=True, eq=False)
class Few:
    """Who is left out of "the worst" and of gaps, because too few people are there.

    Names of cells, of groups, of groups among the positive and the negative, of silos.
    """

    cells: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    positives: frozenset[str] = frozenset()
    negatives: frozenset[str] = frozenset()
    silos: frozenset[str] = frozenset()

    def __or__(self, other: Few) -> Few:
        return Few(
            *(getattr(self, f.name) | getattr(other, f.name) for f in fields(self))
        )

    @classmethod
    def of(cls, row: Row, least: int) -> Few:
        """Say where fewer people are than `least`."""
        if not row.sums:
            return cls()
        atoms = row.sums["atoms"]
        groups = list(dict.fromkeys(group for group, _ in atoms["names"]))
        by = np.array(atoms["count"], dtype=float).reshape(len(groups), -1)

        def few(names: Sequence[str], counts: FloatArray) -> frozenset[str]:
            return frozenset(
                name for name, count in zip(names, counts, strict=True) if count < least
            )

        return cls(
            few(row.sums["cells"]["names"], np.array(row.sums["cells"]["count"])),
            few(groups, by.sum(axis=1)),
            few(groups, by[:, -1]),
            few(groups, by[:, 0]),
            few(row.sums["silos"]["names"], np.array(row.sums["silos"]["count"])),
        )


class _Sums:
    """Sums of a row, without those who are left out, as `evidence.metrics` reads it."""

    def __init__(self, row: Row, few: Few, label: int | None = None) -> None:
        atoms = row.sums["atoms"]
        names = [group for group, _ in atoms["names"]]
        self.groups = tuple(dict.fromkeys(names))
        self.labels = tuple(dict.fromkeys(label for _, label in atoms["names"]))
        out = {None: few.groups, 0: few.negatives, 1: few.positives}[label]
        self._left = {"atoms": (names, out)}
        self._left |= {
            "cells": (row.sums["cells"]["names"], few.cells),
            "silos": (row.sums["silos"]["names"], few.silos),
        }
        self._sums = row.sums
        self.risk = self.bounded_risk = float(row.sums["risk"])
        self.share = float(row.sums["share"])

    def column(self, name: str, *, of: str = "atoms") -> FloatArray:
        """One column by name."""
        names, out = self._left[of]
        values = np.array(self._sums[of][name], dtype=float)
        if out:
            values[[name in out for name in names]] = 0.0
        return values


NOBODY = Few()


def measures(row: Row, few: Few = NOBODY) -> dict[str, float | None]:
    """Return `MEASURES` of a row; what is undefined is None, never 0."""
    if row.reason is not None or not row.sums:
        return dict.fromkeys(MEASURES)
    whole, some = _Sums(row, NOBODY), _Sums(row, few)
    found = metrics(some, some, judged="loss")
    every = metrics(whole, whole, judged="loss") if few.groups else found
    among = dict.fromkeys((0, 1), None)
    if len(whole.labels) == 2:
        parts = {y: _Sums(row, few, y) for y in among}
        among = {y: spread(group_rates(p, p, label=y)) for y, p in parts.items()}
    loss, weight = (some.column(name, of="silos") for name in ("loss", "weight"))
    out = found.as_dict() | {
        "error": every.error,
        "risk": every.risk,
        "eo_gap": among[1],
        "equalized_odds_gap": largest(*among.values()),
        "worst_silo_loss": top(ratio(loss, weight)),
    }
    return {name: out[name] for name in MEASURES}


def counted(
    problem: Problem, silos: Sequence[str], total: EvaluateTotal
) -> dict[str, Any]:
    """Return what a row keeps of a total; silos are cells after the problem's own."""
    schema, z = problem.schema, problem.n_cells
    names = [[group, label] for group in schema.groups for label in schema.labels]
    out: dict[str, Any] = {
        "atoms": {"names": names or [[g, ""] for g in schema.groups]}
    }
    for name in COUNTED:
        out["atoms"][name] = total.column(name).tolist()
    for key, called, place in (
        ("cells", problem.cells.names, slice(0, z)),
        ("silos", silos, slice(z, None)),
    ):
        out[key] = {"names": list(called)} | {
            name: total.column(name, of="cells")[place].tolist()
            for name in ("count", "weight", "loss")
        }
    return {**out, "risk": total.risk, "share": total.share}


# Training


@dataclass(eq=False)
class Bill:
    """What a flow asks, counted as it goes by.

    A stack asks equal questions once; here each trial is billed for all that it asks.
    """

    silos: int
    rows: float  # of a silo, on average
    passes: float = 0.0
    numbers: int = 0
    state: Any = None  # of the method, after its last round

    def metered(self, flow: Flow[Any]) -> Flow[Any]:
        """Pass a flow on, and count what it asks."""
        step, value = flow.send, None
        while True:
            try:
                signal = step(value)
            except StopIteration as done:
                return done.value
            try:
                value, step = (yield signal), flow.send
            except BaseException as error:
                value, step = error, flow.throw
                continue
            if isinstance(signal, Advanced):
                self.state = signal.progress.state
            if isinstance(signal, Event):
                continue
            for asked, total in zip(signal, value or (), strict=False):
                question, some = asked.question, asked.question.silos
                silos = self.silos if some is None else len(some)
                self.passes += question.passes(self.rows) * silos / self.silos
                self.numbers += silos * (question.numbers + total.numbers)


@dataclass(frozen=True, eq=False)
class Tried:
    """How a training went, what it cost, and what was counted on each split."""

    run: Run
    costs: dict[str, float]
    sums: list[dict[str, Any]]
    gap: float | None


def duality_gap(problem: Problem, method: Method[Any], run: Run) -> Flow[float | None]:
    """Return the gap where the method measured it, and of Algorithm 1, over β + B."""
    model, bounds = problem.task.model, run.bounds
    small = isinstance(model, LinearModel) and model.n_parameters <= LARGEST
    if bounds is None and small and isinstance(method, PFFL):
        bounds = yield from measure_gap(problem, run.point)
    if bounds is None:
        return None
    prices = problem.risk_weight + problem.multiplier_bound
    return float(bounds[0] - bounds[1]) / prices


class Optima(Protocol):
    """Solves what baselines descend; `reproduction/optimum.py` of a checkout does."""

    def solved(self, problem: Problem, method: Method[Any]) -> Flow[Run]:
        """Return the optimum of what a method descends, as if trained to it."""

    def own_gap(
        self, problem: Problem, method: Method[Any], run: Run, state: Any
    ) -> Flow[float | None]:
        """Return how far w is from the optimum of what its method descends."""


@dataclass(frozen=True, eq=False)
class Footing:
    """What all trials on one seed share; finished ones are in the journal.

    Attributes
    ----------
    federation, model, options
        The rows, the model (a trial may have another l2), how silos are weighed.
    budget
        Gradients per silo that a method may take, at most; None leaves it to the trial.
    seed, training
        Number of the draw, and the seed that methods draw batches from.
    journal
        Finished rows.
    optima
        Who solves, where anybody does.
    """

    federation: Federation
    model: Model
    budget: int | None
    seed: int
    training: int
    options: Options
    journal: Journal
    optima: ClassVar[Optima | None] = None

    @cached_property
    def engine(self) -> Engine:
        """The rows, laid out once for all trials."""
        return open_engine(self.federation, "local")

    @cached_property
    def setting(self) -> Setting:
        """What is known of the silos."""
        return setting_of(self.engine)

    def rows(self, trials: Sequence[Trial], *splits: str) -> Iterator[list[Row]]:
        """Yield each trial's rows, one per split; train what is not there."""
        known = self.journal
        keys = [[self._key(trial, split) for split in splits] for trial in trials]
        lacking = [
            i
            for i, own in enumerate(keys)
            if any(key not in known or known[key]["reason"] for key in own)
        ]
        found = self._trained([trials[i] for i in lacking], splits)
        for i, (trial, own) in enumerate(zip(trials, keys, strict=True)):
            if i in lacking:
                for key, row in zip(own, next(found), strict=True):
                    self._looked(key, row)
                    known.put(key, asdict(row))
            yield [self._as_asked(trial, Row(**known[key])) for key in own]

    def _as_asked(self, trial: Trial, row: Row) -> Row:
        """Return a row of the journal with the trial's name and cells."""
        row = replace(row, arm=trial.arm, seed=self.seed, bound=trial.bound)
        if not row.sums or not METHODS[trial.method].ignores_cells:
            return row
        return replace(row, sums={**row.sums, "cells": self._cells(trial, row)})

    def _cells(self, trial: Trial, row: Row) -> dict[str, Any]:
        """Add up what was counted to the cells of a constraint."""
        federation = self.federation
        cells = trial.constraint.cells(federation.schema, federation.silo_names)
        if (cells.silo != EVERY_SILO).all() and cells.membership.all():
            return dict(row.sums["silos"])  # each silo a cell
        if (cells.silo != EVERY_SILO).any():
            raise UsageError(
                "[wrong-cells] a study counts groups and silos, not groups in silos"
            )
        atoms = row.sums["atoms"]
        return {"names": list(cells.names)} | {
            name: (cells.membership @ np.array(atoms[name], dtype=float)).tolist()
            for name in ("count", "weight", "loss")
        }

    def _key(self, trial: Trial, split: str) -> str:
        """Name a row, and all that it depends on; the constraint where it does."""
        same = METHODS[trial.method].ignores_cells
        cells = {} if same else dict(trial.constraint.describe())
        shared = (dict(self.model.describe()), cells)
        budget = trial.budget or self.budget
        solved = ("optimum",) if trial.optimum else ()
        run = (self.options.weighting, budget, self.training, split, *solved)
        tried = (trial.method, dict(trial.parameters))
        return key_of(self.federation.fingerprint, *tried, *shared, *run)

    def _looked(self, key: str, row: Row) -> None:
        """Count a model that was measured on test rows, where there is a folder."""
        place, rows = self.journal.path, self.federation.held_out.get(row.split)
        if row.split == "test" and row.sums and place is not None and rows:
            seen = Look([rows], hashed("study", key), 0.0)
            files.append(place.with_name(LOOKS), asdict(seen))

    def _trained(
        self, trials: Sequence[Trial], splits: Sequence[str]
    ) -> Iterator[list[Row]]:
        """Train trials in their order, side by side as long as they are of one method.

        Methods that can start at a pair start at the last trial's, one by one.
        """
        for _, several in groupby(trials, key=lambda trial: trial.method):
            of, start = list(several), None
            size = 1 if self._warm(of[0]) else STACK
            for at in range(0, len(of), size):
                part = of[at : at + size]
                found = self._stacked(part, splits, start)
                for trial, one in zip(part, found, strict=True):
                    yield [self._row(trial, s, i, one) for i, s in enumerate(splits)]
                    start = one.run.point if isinstance(one, Tried) else None

    def _warm(self, trial: Trial) -> bool:
        method = self._method(trial)
        if isinstance(method, PFFLError) or not isinstance(self.model, LinearModel):
            return True
        return method.resumed(Point(np.zeros(0), np.zeros(0))) is not None

    def _method(self, trial: Trial) -> Method[Any] | PFFLError:
        kind = METHODS[trial.method]
        known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
        chosen = {k: v for k, v in trial.parameters.items() if k in known}
        try:
            budget = trial.budget or self.budget
            return kind(**chosen) if budget is None else kind.within(budget, **chosen)
        except PFFLError as error:
            return error

    def _stacked(
        self, trials: Sequence[Trial], splits: Sequence[str], start: Point | None
    ) -> list[Tried | str]:
        """Train trials side by side; where one fails, each by itself."""
        flows = [
            stage(str(i), self.trying(trial, splits, start, len(trials)))
            for i, trial in enumerate(trials)
        ]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of bounds that are only tried
                return list(drive_many(self.engine, flows))
        except (PFFLError, ArithmeticError, ValueError) as error:
            if len(trials) == 1:
                return [str(error)]
        return [self._stacked([trial], splits, start)[0] for trial in trials]

    def _row(self, trial: Trial, split: str, place: int, tried: Tried | str) -> Row:
        head = (
            trial.arm,
            trial.method,
            self.seed,
            split,
            trial.parameters,
            trial.bound,
        )
        if isinstance(tried, str):
            return Row(*head, reason=tried)
        if tried.run.stopped == "interrupted":
            raise KeyboardInterrupt  # an unfinished model is no row
        if tried.run.stopped is not None:
            return Row(*head, costs=tried.costs, reason=f"the run {tried.run.stopped}")
        return Row(*head, tried.sums[place], tried.costs, tried.gap)

    def trying(
        self,
        trial: Trial,
        splits: Sequence[str],
        start: Point | None = None,
        beside: int = 1,
    ) -> Flow[Tried]:
        """Train, say what it cost, and measure on some splits."""
        method = self._method(trial)
        if isinstance(method, PFFLError):
            raise method
        model = self.model
        if "l2" in trial.parameters and isinstance(model, LinearModel):
            model = replace(model, l2=float(trial.parameters["l2"]))
        shared = (trial.constraint, model, method, self.options, self.training)
        problem, _ = yield from prepare(self.setting, *shared)
        bill = Bill(
            len(problem.silo_names), float(problem.silo_counts.sum(axis=1).mean())
        )
        began: float = yield Clock()
        if start is not None:
            method = method.resumed(start) or method
        flow = iterate(problem, method)
        if trial.optimum:
            if self.optima is None:
                raise UsageError(NO_OPTIMA)
            flow = self.optima.solved(problem, method)
        run: Run = yield from stage("training", bill.metered(flow))
        ended: float = yield Clock()
        values = (
            run.rounds,
            bill.passes,
            BYTES * bill.numbers,
            (ended - began) / beside,
        )
        costs = {k: float(v) for k, v in zip(COSTS, values, strict=True)}
        if run.stopped is not None:
            return Tried(run, costs, [], None)
        gap = yield from duality_gap(problem, method, run)
        if gap is None and self.optima is not None:
            gap = yield from self.optima.own_gap(problem, method, run, bill.state)
        silos = PerSilo(0.0).cells(problem.schema, problem.silo_names)
        task = problem.with_cells(silos)
        totals = yield from ask_all([Evaluate(task, run.point.w, s) for s in splits])
        return Tried(
            run, costs, [counted(problem, silos.names, total) for total in totals], gap
        )
