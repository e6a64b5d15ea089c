"""Choose the bound or the ridge on training rows that are set aside.

A fifth of each silo's training rows is set aside, all rows of a person together. Every
candidate is solved on the others, from where the last one ended, and measured on the
rows set aside. The run then trains on all of its training rows. No test row is used.

    l2     1, 0.1, … 1e-6: the smallest overall loss wins, of equal ones the larger l2
    bound  from the worst group's loss without bounds down to the smallest bound that
           is possible (a candidate that is impossible on fewer rows counts as the
           smallest there): of those within `error_at_most`, or a point above the error
           without bounds, the smallest worst loss wins, of equal ones the larger bound

For a numeric target the error is the mean loss, and a point is 1 % of it.
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
from pffl.evidence.proofs import INTERRUPTED, find_least, of_cells, unmeasurable
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
L2_GRID = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
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

    def checked(self, name: str, reason: str | None) -> tuple[Federation, LinearModel]:
        """Refuse "auto" where it has no rows, no linear model or nothing to choose."""
        federation, model = self.engine.federation, self.model
        if federation is None:
            reason = "sets training rows aside, and they are elsewhere"
        elif not isinstance(model, LinearModel):
            reason = "is for linear models"
        elif not reason:
            return federation, model
        raise UsageError("auto-refused:checked", name=name, reason=reason)

    @property
    def plain(self) -> Options:
        """The options of a trial."""
        return replace(self.options, l2=None, error_at_most=None, empty_cells="remove")


def choose_l2(run: Trials) -> tuple[LinearModel, str]:
    """Return the model with the l2 that does best, and a note on what was tried."""
    beta, B = risk_weight_and_bound(run.constraint, run.method)
    nothing = "has nothing to choose: the ridge counts with the risk weight, 0"
    federation, model = run.checked("l2", None if beta > 0 else nothing)
    bounded = run.constraint if B > 0 else None
    tried = Auto(multiplier_bound=B or None, risk_weight=beta)

    def trials(here: Setting) -> Flow[list[float]]:
        problems = []
        for l2 in L2_GRID:
            given = (bounded, replace(model, l2=l2), tried, run.plain, run.seed)
            problem, _ = yield from prepare(here, *given)
            problems.append((problem, problem))
        totals = yield from _tried("l2", problems, tried)
        return [total.risk / total.share for total in totals]

    apart, losses = try_aside(federation, run.setting, run.seed, trials)
    best = L2_GRID[int(np.argmin(losses))]
    table = ", ".join(
        f"{l2:g}: {words(loss)}" for l2, loss in zip(L2_GRID, losses, strict=True)
    )
    return replace(model, l2=best), (
        f"l2 = {best:g} was chosen by the overall loss on "
        f"{apart.rows('validation'):,} of the {federation.rows('train'):,} training "
        f"rows, set aside while the others were trained on ({table}); no test row was "
        "used"
    )


def choose_bound(run: Trials) -> Choice:
    """Choose the bound for every cell that has "auto"; record what was tried."""
    useless = f"is for methods that weigh bounds and risk, not for {run.method.name}"
    weighs = 0 not in risk_weight_and_bound(run.constraint, run.method)
    federation, _ = run.checked("bound", None if weighs else useless)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself will warn
        candidates = drive(run.engine, _candidates(run))

    def tried(here: Setting) -> Flow[list[BoundTrial]]:
        """No bound, then every candidate, on the rows that are not set aside."""
        problem = yield from _unbounded(run, here)
        low, none = (yield from _smallest(problem)), without_cells(problem)
        each = [np.full(problem.n_cells, max(bound, low)) for bound in candidates]
        problems = [none, *map(problem.with_bounds, each)]
        pairs = [(one, problem) for one in problems]
        totals = yield from _tried("bound", pairs, run.method)
        rows = zip((None, *candidates), totals, strict=True)
        return [
            BoundTrial(bound, *_worst(problem, total), _error(problem, total))
            for bound, total in rows
        ]

    apart, trials = try_aside(federation, run.setting, run.seed, tried)
    free, *others = trials
    limit = run.options.error_at_most
    if limit is None:
        part = 1.0 if run.setting.schema.labels else free.error
        limit = free.error + ERROR_POINT * part
    best = pick(others, limit)
    if best is None:
        least = min(others, key=lambda trial: trial.error)
        raise NotMetError(
            "no-such-bound",
            limit=words(limit),
            error=words(least.error),
            bound=words(least.bound or 0.0),
            error_2=words(free.error),
            up=up(least.error),
        )
    rows, aside = federation.rows("train"), apart.rows("validation")
    declared = run.options.error_at_most is not None
    return Choice(candidates[best], limit, declared, aside, rows, trials)


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
    total = yield from _evaluated("bound", problem, found, "train")
    high, _ = _worst(problem, total)
    path = np.linspace(high, low, BOUND_TRIALS).tolist() if high > low else [low]
    return list(dict.fromkeys(float(up(bound, digits=5)) for bound in path))


def _tried(
    name: str, problems: Sequence[tuple[Problem, Problem]], method: Method
) -> Flow[list[EvaluateTotal]]:
    """Train for each problem, from where the last one ended; measure rows set aside.

    The second of a pair is the problem whose cells are measured.
    """
    totals: list[EvaluateTotal] = []
    start: Point | None = None
    for problem, judged in problems:
        found = yield from _fitted(problem, start, method)
        totals.append((yield from _evaluated(name, judged, found, "validation")))
        w, lam = found.run.point.w, found.run.point.multipliers
        start = Point(w, lam if problem.n_cells else np.zeros(judged.n_cells))
    return totals


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
    if found == INTERRUPTED:
        raise KeyboardInterrupt  # half of a search answers nothing
    if isinstance(found, Missing):
        raise UsageError("auto-refused:smallest", missing=found.missing)
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


def _evaluated(
    name: str, problem: Problem, found: Fitted, split: str
) -> Flow[EvaluateTotal]:
    """Measure the shipped predictor on all cells."""
    M = np.inf if found.loss_bound is None else found.loss_bound
    total = yield from ask(Evaluate(problem.task, found.run.point.w, split, M))
    cells = total.column("weight", of="cells")
    if not total.share > 0 or (len(cells) and not cells.any()):
        raise UsageError("auto-too-few", name=name)
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
