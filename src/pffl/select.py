"""Choose the bound or the ridge on training rows that are set aside.

A fifth of each silo's training rows is set aside, all rows of a person together. Every
candidate is solved on the others, from where the last one ended, and measured on the
rows set aside. The run then trains on all of its training rows. No test row is used.

    l2     1, 0.1, … 1e-6: the smallest overall loss wins, of equal ones the larger l2
    bound  from the worst group's loss without bounds down to the smallest bound that
           is possible (a candidate that is impossible on fewer rows counts as the
           smallest there): of those within `error_at_most`, or a point above the error
           without bounds, the smallest worst loss wins, of equal ones the larger bound

Bounds that are numbers are kept; "auto" is one number for all cells that have it. For a
numeric target the error is the mean loss, and a point is 1 % of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pffl.constraints import Constraint
from pffl.data.federation import Federation
from pffl.data.rows import Rows
from pffl.driver import drive
from pffl.engines import Local
from pffl.engines.base import Engine
from pffl.errors import NotMetError, UsageError
from pffl.evidence.measure import Wanted
from pffl.evidence.metrics import metrics
from pffl.evidence.proofs import INTERRUPTED, find_least, of_cells, unmeasurable
from pffl.evidence.record import BoundTrial, Choice, Missing
from pffl.evidence.tables import EQUAL
from pffl.fit import Fitted, fit
from pffl.flow import Flow, Start, ask
from pffl.methods.auto import Auto
from pffl.methods.base import Method
from pffl.models.base import Model
from pffl.models.linear import LinearModel
from pffl.prepare import Options, Setting, prepare, prices
from pffl.problem import Point, Problem
from pffl.queries import Evaluate, EvaluateTotal
from pffl.text import up, words
from pffl.typing import BoolArray

SET_ASIDE = 0.2  # of each silo's training rows
L2_GRID = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
BOUND_TRIALS = 8
ERROR_POINT = 0.01  # of error, or of a numeric target's mean loss, a bound may cost
HEADROOM = 0.002  # of a loss: this far above what is possible a bound is set
MAX_NEWTON_STEPS = 30  # towards the smallest bound
SMALL_SHARE = 1e-7  # of the scale: first step beyond it


def choose_l2(
    federation: Federation | None,
    setting: Setting,
    constraint: Constraint | None,
    model: Model,
    method: Method,
    options: Options,
    seed: int,
) -> tuple[LinearModel, str]:
    """Return the model with the l2 that does best, and a note on what was tried."""
    beta, B = prices(constraint, method)
    reason = None
    if beta == 0:
        reason = "has nothing to choose: the ridge counts with the risk weight, 0"
    federation, model = _checked("l2", federation, model, reason)
    bounded = constraint if B > 0 else None
    tried = Auto(multiplier_bound=B or None, risk_weight=beta)
    plain = replace(options, l2=None, error_at_most=None, empty_cells="remove")
    apart = set_aside(federation, seed)
    here = replace(setting, splits=apart.splits)

    def trials() -> Flow[list[float]]:
        losses: list[float] = []
        start: Point | None = None
        for l2 in L2_GRID:
            ridged = replace(model, l2=l2)
            problem, _ = yield from prepare(here, bounded, ridged, tried, plain, seed)
            found = yield from _fitted(problem, tried, start)
            total = yield from _evaluated("l2", problem, found, "validation")
            losses.append(total.risk / total.share)
            start = found.run.point
        return losses

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself will warn
        losses = drive(Local(apart), trials())
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


def choose_bound(
    engine: Engine,
    setting: Setting,
    constraint: Constraint,
    model: Model,
    method: Method,
    options: Options,
    seed: int,
) -> Choice:
    """Choose the bound for every cell that has "auto"; record what was tried."""
    beta, B = prices(constraint, method)
    reason = None
    if beta == 0 or B == 0:
        reason = f"is for methods that weigh bounds and risk, not for {method.name}"
    federation, model = _checked("bound", engine.federation, model, reason)
    search = _BoundSearch(constraint, model, method, options, seed)
    apart = set_aside(federation, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself will warn
        candidates = drive(engine, search.candidates(setting))
        here = replace(setting, splits=apart.splits)
        trials = drive(Local(apart), search.trials(here, candidates))
    free, *others = trials
    limit = options.error_at_most
    if limit is None:
        limit = free.error + ERROR_POINT * (
            1.0 if setting.schema.labels else free.error
        )
    best = pick(others, limit)
    if best is None:
        least = min(others, key=lambda trial: trial.error)
        raise NotMetError(
            f"[no-such-bound] no bound has an error of at most {words(limit)} on the "
            f"training rows that were set aside: the smallest is {words(least.error)}, "
            f"at a bound of {words(least.bound or 0.0)}, and {words(free.error)} "
            f"without bounds; `error_at_most={up(least.error)}` allows that one"
        )
    rows, aside = federation.rows("train"), apart.rows("validation")
    declared = options.error_at_most is not None
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
        seed=seed,
    )


@dataclass(frozen=True)
class _BoundSearch:
    """What all bounds that are tried share."""

    constraint: Constraint
    model: LinearModel
    method: Method
    options: Options
    seed: int

    def candidates(self, setting: Setting) -> Flow[list[float]]:
        """Return the bounds to try, the largest first."""
        problem, chosen = yield from self._problem(setting)
        low = yield from find_smallest(problem, chosen)
        found = yield from self._fitted(of_cells(problem, np.flatnonzero(~chosen)))
        total = yield from _evaluated("bound", problem, found, "train")
        high, _ = _worst(problem, chosen, total)
        if not high > low:
            return [float(up(max(low, high), digits=5))]
        path = np.linspace(high, low, BOUND_TRIALS).tolist()
        return list(dict.fromkeys(float(up(bound, digits=5)) for bound in path))

    def trials(
        self, setting: Setting, candidates: Sequence[float]
    ) -> Flow[list[BoundTrial]]:
        """Try no bound, then every candidate, on the rows that are not set aside."""
        problem, chosen = yield from self._problem(setting)
        low = yield from find_smallest(problem, chosen)
        trials: list[BoundTrial] = []
        start: Point | None = None
        for bound in (None, *candidates):
            at = of_cells(problem, np.flatnonzero(~chosen))
            if bound is not None:
                bounds = problem.cells.bounds + max(bound, low) * chosen
                at = problem.with_bounds(bounds)
            found = yield from self._fitted(at, start)
            total = yield from _evaluated("bound", problem, found, "validation")
            error = metrics(total, problem.schema).error
            if error is None:
                loss, weight = total.column("bounded_loss"), total.column("weight")
                error = float(loss.sum() / weight.sum())
            worst, cell = _worst(problem, chosen, total)
            trials.append(BoundTrial(bound, worst, cell, error))
            start = found.run.point
            if bound is None:
                start = Point(start.w, np.zeros(problem.n_cells))
        return trials

    def _problem(self, setting: Setting) -> Flow[tuple[Problem, BoolArray]]:
        """Build the problem with 0 for "auto", and the mask of cells that have it."""
        plain = replace(self.options, empty_cells="remove", error_at_most=None)
        none = self.constraint.at(0.0)
        problem, _ = yield from prepare(
            setting, none, self.model, self.method, plain, self.seed
        )
        if (why := unmeasurable(problem)) is not None:
            raise UsageError(
                f"[auto-refused] bound = 'auto' {why.missing}: give a number"
            )
        cells = self.constraint.cells(setting.schema, setting.silo_names)
        auto = dict(zip(cells.names, np.isnan(cells.bounds), strict=True))
        return problem, np.array([auto[name] for name in problem.cells.names])

    def _fitted(self, problem: Problem, start: Point | None = None) -> Flow[Fitted]:
        B, beta = problem.multiplier_bound, problem.risk_weight
        method = Auto(multiplier_bound=B, risk_weight=beta)
        open_multipliers = self.method.multiplier_bound is None
        return _fitted(problem, method, start, open_multipliers=open_multipliers)


def _checked(
    name: str, federation: Federation | None, model: Model, reason: str | None
) -> tuple[Federation, LinearModel]:
    """Refuse "auto" where it has no rows, no linear model or nothing to choose."""
    if federation is None:
        reason = "sets training rows aside, and they are elsewhere"
    elif not isinstance(model, LinearModel):
        reason = "is for linear models"
    if reason or federation is None or not isinstance(model, LinearModel):
        raise UsageError(f"[auto-refused] {name} = 'auto' {reason}: give a number")
    return federation, model


def _fitted(
    problem: Problem,
    method: Method,
    start: Point | None,
    *,
    open_multipliers: bool = False,
) -> Flow[Fitted]:
    """Train, and bound the predictor; nothing else is measured."""
    wanted = Wanted(
        ("train",),
        heldout=(),
        open_multipliers=open_multipliers,
        baseline=False,
        smallest=False,
    )
    near = None if start is None else Start(start)
    found = yield from fit(problem, method, wanted, start=near)
    if found.run.stopped == "interrupted":
        raise KeyboardInterrupt
    return found


def _evaluated(
    name: str, problem: Problem, found: Fitted, split: str
) -> Flow[EvaluateTotal]:
    """Measure the shipped predictor on all cells."""
    M = np.inf if found.loss_bound is None else found.loss_bound
    total = yield from ask(Evaluate(problem.task, found.run.point.w, split, M))
    if not total.share > 0:
        raise UsageError(
            f"[auto-too-few] {name} = 'auto' sets training rows aside, and there are "
            "too few: give a number"
        )
    return total


def _worst(
    problem: Problem, chosen: BoolArray, total: EvaluateTotal
) -> tuple[float, str]:
    """Return the largest loss of the cells whose bound is chosen, and whose it is."""
    weight = total.column("weight", of="cells")
    means = total.column("bounded_loss", of="cells") / np.where(weight > 0, weight, 1.0)
    means = np.where(chosen & (weight > 0), means - problem.cells.bounds, -np.inf)
    worst = int(np.argmax(means))
    if not np.isfinite(means[worst]):
        raise UsageError(
            "[auto-too-few] bound = 'auto' sets training rows aside, and no group has "
            "any there: give a number"
        )
    return float(means[worst]), problem.cells.names[worst]


def find_smallest(problem: Problem, chosen: BoolArray) -> Flow[float]:
    """Return a bound a little above the smallest that the chosen cells can have.

    The bounds of these cells rise together, while the others are kept.
    """
    base = problem.cells.bounds
    alone = of_cells(problem, np.flatnonzero(chosen))
    found = yield from find_least(alone)
    bounds, rise = alone.cells.bounds, 0.0
    room = SMALL_SHARE * float(problem.scales.max())
    for step in range(1 + MAX_NEWTON_STEPS * int(not chosen.all())):
        if step:
            bounds = base + rise * chosen
            found = yield from find_least(problem.with_bounds(bounds))
        if found == INTERRUPTED:
            raise KeyboardInterrupt  # half of a search answers nothing
        if isinstance(found, Missing):
            raise UsageError(f"[auto-refused] bound = 'auto': {found.missing}")
        left = found.excess(bounds).upper
        if not step:
            rise = left
            continue
        share = float(np.array(found.multipliers) @ chosen)
        if left <= 0:
            break
        if share <= SMALL_SHARE:
            raise UsageError(
                "[auto-refused] bound = 'auto': the bounds of the other cells are "
                "impossible by themselves"
            )
        rise += (left + room) / share
    return rise + HEADROOM * max(0.0, rise + float(base[chosen].max()))
