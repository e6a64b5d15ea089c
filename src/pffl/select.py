"""Choose the bound on training rows that are set aside.

A fifth of each silo's training rows is set aside, all rows of a person together. Every
candidate is solved on the others, from where the last one ended, and measured on the
rows set aside. The run then trains on all of its training rows. No test row is used.

Candidates go from the worst group's loss without bounds down to the smallest bound that
is possible (one that is impossible on fewer rows counts as the smallest there). Of
those whose error is at most a point above the one without bounds, the smallest worst
loss wins, of equal ones the larger bound. For a numeric target the error is the mean
loss, and a point is 1 % of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import numpy as np

from pffl.constraints import Constraint
from pffl.data.federation import Federation
from pffl.data.rows import Rows
from pffl.driver import drive
from pffl.engines import Local
from pffl.engines.base import Engine
from pffl.errors import NotMetError, UsageError
from pffl.evidence.measure import Wanted
from pffl.evidence.proofs import find_least, of_cells, unmeasurable
from pffl.evidence.rates import metrics
from pffl.evidence.record import BoundTrial, Choice, Missing
from pffl.fit import Fitted, fit
from pffl.flow import Flow, Start, ask
from pffl.methods.auto import Auto
from pffl.methods.base import Method
from pffl.models.base import Model
from pffl.models.linear import LinearModel
from pffl.prepare import Options, Setting, prepare, risk_weight_and_bound
from pffl.problem import Point, Problem
from pffl.queries import Evaluate, EvaluateTotal
from pffl.text import up, words

R = TypeVar("R")
EQUAL = 1e-12  # errors this close are equal
SET_ASIDE = 0.2  # of each silo's training rows
BOUND_TRIALS = 8
ERROR_POINT = 0.01  # of error, or of a numeric target's mean loss, a bound may cost
HEADROOM = 0.002  # of a loss: this far above what is possible a bound is set


@dataclass(frozen=True)
class Trials:
    """A run with a value that is open, as `solve` was asked for it."""

    engine: Engine
    setting: Setting
    constraint: Constraint | None
    model: Model
    method: Method
    options: Options
    seed: int

    @property
    def federation(self) -> Federation:
        """The rows; refuse "auto" where it has none, or nothing to choose."""
        federation, reason = self.engine.federation, None
        if federation is None:
            reason = "sets training rows aside, and they are elsewhere"
        elif not isinstance(self.model, LinearModel):
            reason = "is for linear models"
        elif 0 in risk_weight_and_bound(self.constraint, self.method):
            reason = f"is for methods with bounds and a risk, not {self.method.name}"
        if federation is None or reason:
            raise UsageError("auto-refused:federation", reason=reason)
        return federation

    @property
    def plain(self) -> Options:
        """The options of a trial."""
        return replace(self.options, empty_cells="remove")


def choose_bound(run: Trials) -> Choice:
    """Choose the bound for every cell that has "auto"; record what was tried."""
    federation = run.federation
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself will warn
        candidates = drive(run.engine, _candidates(run))

    def tried(here: Setting) -> Flow[list[BoundTrial]]:
        """No bound, then every candidate, on the rows that are not set aside."""
        problem = yield from _unbounded(run, here)
        low, start = (yield from _smallest(problem)), None
        found = []
        for bound in (None, *candidates):
            tighter = without_cells(problem)
            if bound is not None:
                tighter = problem.with_bounds(np.full(problem.n_cells, max(bound, low)))
            fitted = yield from _fitted(tighter, start, run.method)
            total = yield from _evaluated(problem, fitted, "validation")
            worst, error = _worst(problem, total), _error(problem, total)
            found.append(BoundTrial(bound, *worst, error))
            w, lam = fitted.run.point.w, fitted.run.point.multipliers
            start = Point(w, np.zeros(problem.n_cells) if bound is None else lam)
        return found

    apart, trials = try_aside(federation, run.setting, run.seed, tried)
    free, *others = trials
    limit = free.error + ERROR_POINT * (1 if run.setting.schema.labels else free.error)
    best = pick(others, limit)
    if best is None:
        raise NotMetError("no-such-bound", limit=words(limit), free=words(free.error))
    rows, aside = federation.rows("train"), apart.rows("validation")
    return Choice(candidates[best], limit, aside, rows, trials)


def pick(trials: Sequence[BoundTrial], error_at_most: float) -> int | None:
    """Return the first trial with the smallest worst loss within the error, or None."""
    within = [i for i, t in enumerate(trials) if t.error <= error_at_most + EQUAL]
    return min(within, key=lambda i: trials[i].worst) if within else None


def set_aside(federation: Federation, seed: int) -> Federation:
    """Return the training rows alone, a part of them as validation rows."""
    parts = [silo.rows("train") for silo in federation.silos]
    rows, sizes = Rows.joined(parts), [len(part) for part in parts]
    people = None
    if rows.person is not None:
        # Names that no id has: the same hash would draw no one who is trained on.
        ids = tuple(f"set aside {i}" for i in range(int(rows.person.max()) + 1))
        people = ids, rows.person
    return Federation.from_rows(
        federation.schema,
        rows,
        np.repeat(np.arange(len(parts)), sizes),
        federation.silo_names,
        test_fraction=0.0,
        validation_fraction=SET_ASIDE,
        people=people,
        random_state=seed,
    )


def try_aside(
    federation: Federation,
    setting: Setting,
    seed: int,
    trials: Callable[[Setting], Flow[R]],
) -> tuple[Federation, R]:
    """Run trials on training rows alone, of which a part is set aside."""
    apart = set_aside(federation, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself will warn
        here = replace(setting, splits=apart.splits)
        return apart, drive(Local(apart), trials(here))


def _candidates(run: Trials) -> Flow[list[float]]:
    """Return the bounds to try, the largest first."""
    problem = yield from _unbounded(run, run.setting)
    low = yield from _smallest(problem)
    found = yield from _fitted(without_cells(problem), None, run.method)
    total = yield from _evaluated(problem, found, "train")
    high, _ = _worst(problem, total)
    path = np.linspace(high, low, BOUND_TRIALS).tolist() if high > low else [low]
    return list(dict.fromkeys(float(up(bound, digits=5)) for bound in path))


def without_cells(problem: Problem) -> Problem:
    """Return the problem without bounds."""
    return of_cells(problem, np.zeros(0, dtype=np.int64))


def _unbounded(run: Trials, setting: Setting) -> Flow[Problem]:
    """Build the problem with the bound 0 for every cell."""
    constraint = cast("Constraint", run.constraint)
    bounds = constraint.cells(setting.schema, setting.silo_names).bounds
    problem, _ = yield from prepare(
        setting, constraint.at(0.0), run.model, run.method, run.plain, run.seed
    )
    why = unmeasurable(problem)
    if why is not None or not np.isnan(bounds).all():
        reason = "is one number for all groups" if why is None else why.missing
        raise UsageError("auto-refused:unbounded", reason=reason)
    return problem


def _smallest(problem: Problem) -> Flow[float]:
    """Return a bound a little above the smallest that all cells can have."""
    found = yield from find_least(problem)
    if isinstance(found, Missing):
        raise KeyboardInterrupt  # half of a search answers nothing
    low = found.excess(problem.cells.bounds).upper
    return low + HEADROOM * max(0.0, low)


def _fitted(problem: Problem, start: Point | None, method: Method) -> Flow[Fitted]:
    """Train, and bound the predictor; nothing else is measured."""
    wanted = Wanted(
        ("train",),
        heldout=(),
        open_multipliers=method.multiplier_bound is None,
        baseline=False,
        smallest=False,
    )
    B, beta = problem.multiplier_bound, problem.risk_weight
    tried = Auto(multiplier_bound=B or None, risk_weight=beta)
    near = None if start is None else Start(start)
    found = yield from fit(problem, tried, wanted, start=near)
    found.finished()
    return found


def _evaluated(problem: Problem, found: Fitted, split: str) -> Flow[EvaluateTotal]:
    """Measure the shipped predictor on all cells."""
    M = np.inf if found.loss_bound is None else found.loss_bound
    total = yield from ask(Evaluate(problem.task, found.run.point.w, split, M))
    cells = total.column("weight", of="cells")
    if not total.share > 0 or (len(cells) and not cells.any()):
        raise UsageError("auto-too-few")
    return total


def _error(problem: Problem, total: EvaluateTotal) -> float:
    """Return the share of errors; of a numeric target the mean loss."""
    error = metrics(total, problem.schema).error
    if error is not None:
        return error
    return float(total.column("bounded_loss").sum() / total.column("weight").sum())


def _worst(problem: Problem, total: EvaluateTotal) -> tuple[float, str]:
    """Return the largest loss of a cell, and whose it is."""
    weight = total.column("weight", of="cells")
    means = total.column("bounded_loss", of="cells") / np.where(weight > 0, weight, 1.0)
    worst = int(np.argmax(np.where(weight > 0, means, -np.inf)))
    return float(means[worst]), problem.cells.names[worst]
