"""Choose the bound on training rows that are set aside; no held-out row is looked at.

    1  on all training rows: the smallest bound that is possible, the worst cell's loss
       without bounds, and so many bounds from the one to the other
    2  a fifth of each silo's training rows is set aside (all rows of a person together)
    3  for each bound, from the largest on: the problem is solved on the others, warm; a
       bound that is impossible there counts as the smallest that is possible there
    4  of the bounds whose error on the rows set aside is at most `error_at_most`, or at
       most a point above that of the model without them, the one with the smallest loss
       of the worst cell there is taken

and the run then trains on all of its training rows. Of equal losses the larger bound
wins. Bounds that are numbers are kept throughout; "auto" is one number for all cells
that have it. For a numeric target the error is the mean loss, and a point is 1 % of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pffl.constraints.base import Constraint
from pffl.data.federation import Federation
from pffl.data.schema import Schema
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
from pffl.tuning import set_aside
from pffl.typing import BoolArray

POINTS = 8  # bounds that are tried
POINT = 0.01  # of error, or of a numeric target's mean loss, that a bound may cost
HEADROOM = 0.002  # of a loss: this far above what is possible a bound is set
STEPS = 30  # of Newton's method towards the smallest bound
CLOSE = 1e-7  # of the scale: first step beyond it


def choose_bound(
    engine: Engine,
    setting: Setting,
    constraint: Constraint,
    model: Model,
    method: Method,
    options: Options,
    seed: int,
) -> Choice:
    """Choose the bound for every cell that has "auto"; say what was looked at."""
    federation = engine.federation
    refused = _refused(federation, constraint, model, method)
    if refused or federation is None:
        raise UsageError(f"[auto-refused] bound = 'auto' {refused}: give a number")
    ways = Ways(constraint, model, method, options, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself will warn
        path = drive(engine, ways.path(setting))
        apart = set_aside(federation, seed)
        here = replace(setting, splits=apart.splits, partial=False)
        trials = drive(Local(apart), ways.trials(here, path))
    free, *others = trials
    limit, declared = options.error_at_most, options.error_at_most is not None
    if limit is None:
        limit = free.error + POINT * (1.0 if setting.schema.labels else free.error)
    best = pick(others, limit)
    if best is None:
        raise NotMetError(_nothing(trials, limit))
    rows, aside = federation.rows("train"), apart.rows("validation")
    return Choice(path[best], limit, declared, aside, rows, trials)


def pick(trials: Sequence[BoundTrial], error_at_most: float) -> int | None:
    """Return the place of the trial with the smallest worst loss within the error.

    Of equal ones the first; None if there is none within the error.
    """
    within = [i for i, t in enumerate(trials) if t.error <= error_at_most + EQUAL]
    return min(within, key=lambda i: trials[i].worst) if within else None


def _refused(
    federation: Federation | None,
    constraint: Constraint,
    model: Model,
    method: Method,
) -> str | None:
    """Say why no bound can be chosen; None if one can."""
    beta, price = prices(constraint, method)
    if federation is None:
        return "sets training rows aside, and they are elsewhere"
    if not isinstance(model, LinearModel):
        return "is for linear models"
    if beta == 0 or price == 0:
        return f"is for methods that weigh bounds and risk, and {method.name} does not"
    return None


def _nothing(trials: Sequence[BoundTrial], limit: float) -> str:
    """Say that no bound is within the error, and what would be."""
    free, *others = trials
    best = min(others, key=lambda trial: trial.error)
    text = (
        f"[no-such-bound] no bound has an error of at most {words(limit)} on the "
        f"training rows that were set aside: the smallest is {words(best.error)}, "
        f"at a bound of {words(best.bound or 0.0)}, and {words(free.error)} without "
        "bounds; "
    )
    return f"{text}`error_at_most={up(best.error)}` would let that one be chosen"


@dataclass(frozen=True)
class Ways:
    """What all bounds that are tried share."""

    constraint: Constraint
    model: Model
    method: Method
    options: Options
    seed: int

    def path(self, setting: Setting) -> Flow[list[float]]:
        """Return the bounds to try, the largest first."""
        problem, chosen = yield from self._begun(setting)
        low = yield from _smallest(problem, chosen)
        found = yield from self._fitted(of_cells(problem, np.flatnonzero(~chosen)))
        total = yield from _evaluated(problem, found, "train")
        high = _worst(problem, chosen, total)[0]
        if not high > low:
            return [float(up(max(low, high), digits=5))]
        path = np.linspace(high, low, POINTS).tolist()
        return list(dict.fromkeys(float(up(bound, digits=5)) for bound in path))

    def trials(self, setting: Setting, path: Sequence[float]) -> Flow[list[BoundTrial]]:
        """Try every bound on the rows that are not set aside; first without any."""
        problem, chosen = yield from self._begun(setting)
        base = problem.cells.bounds
        low = yield from _smallest(problem, chosen)
        others = of_cells(problem, np.flatnonzero(~chosen))
        found = yield from self._fitted(others)
        total = yield from _evaluated(problem, found, "validation")
        trials = [_trial(problem, chosen, total, None)]
        start = Point(found.run.point.w, np.zeros(problem.n_cells))
        for bound in path:
            at = problem.with_bounds(base + max(bound, low) * chosen)
            found = yield from self._fitted(at, start)
            total = yield from _evaluated(problem, found, "validation")
            trials.append(_trial(problem, chosen, total, bound))
            start = found.run.point
        return trials

    def _begun(self, setting: Setting) -> Flow[tuple[Problem, BoolArray]]:
        """Build the problem with 0 for "auto"; also say which cells have that."""
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
        wanted = dict(zip(cells.names, np.isnan(cells.bounds), strict=True))
        return problem, np.array([wanted[name] for name in problem.cells.names])

    def _fitted(self, problem: Problem, start: Point | None = None) -> Flow[Fitted]:
        """Train, and bound the predictor; nothing else is measured."""
        wanted = Wanted(
            ("train",),
            heldout=(),
            open_price=self.method.multiplier_bound is None,
            baseline=False,
            least=False,
            excess=False,
        )
        price, beta = problem.multiplier_bound, problem.risk_weight
        method = Auto(multiplier_bound=price, risk_weight=beta)
        near = None if start is None else Start(start)
        found = yield from fit(problem, method, wanted, start=near)
        if found.run.stopped == "interrupted":
            raise KeyboardInterrupt
        return found


def _evaluated(problem: Problem, found: Fitted, split: str) -> Flow[EvaluateTotal]:
    """Measure the bounded predictor on all cells."""
    cap = np.inf if found.loss_bound is None else found.loss_bound
    total = yield from ask(Evaluate(problem.task, found.run.point.w, split, cap))
    if not total.share > 0:
        raise UsageError(
            "[auto-too-few] bound = 'auto' sets training rows aside, and there are "
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
            "[auto-too-few] bound = 'auto' sets training rows aside, and no cell has "
            "any there: give a number"
        )
    return float(means[worst]), problem.cells.names[worst]


def _trial(
    problem: Problem, chosen: BoolArray, total: EvaluateTotal, bound: float | None
) -> BoundTrial:
    """Say what came of one bound, or of none, on the rows set aside."""
    worst = _worst(problem, chosen, total)
    return BoundTrial(bound, *worst, _error(total, problem.schema))


def _error(total: EvaluateTotal, schema: Schema) -> float:
    """Return the share of wrong predictions; the mean loss for a numeric target."""
    error = metrics(total, schema).error
    if error is not None:
        return error
    return float(total.column("bounded_loss").sum() / total.column("weight").sum())


def _smallest(problem: Problem, chosen: BoolArray) -> Flow[float]:
    """Return a bound a little above the smallest that is possible."""
    found = yield from find_smallest(problem, chosen)
    if isinstance(found, Missing):
        raise UsageError(f"[auto-refused] bound = 'auto': {found.missing}")
    return found


def find_smallest(problem: Problem, chosen: BoolArray) -> Flow[float | Missing]:
    """Return a number, a little above the smallest, by which some bounds can rise.

    By how much the bounds of the cells that are `chosen` have to rise, all alike, while
    the others are kept.
    """
    if (why := unmeasurable(problem)) is not None:
        return why
    base = problem.cells.bounds
    alone = of_cells(problem, np.flatnonzero(chosen))
    found = yield from find_least(alone)
    if isinstance(found, Missing):
        return _whole(found)
    rise = found.excess(alone.cells.bounds).upper
    room = CLOSE * float(problem.scales.max())
    for _ in range(STEPS * int(not chosen.all())):
        bounds = base + rise * chosen
        found = yield from find_least(problem.with_bounds(bounds))
        if isinstance(found, Missing):
            return _whole(found)
        left, share = found.excess(bounds), np.array(found.multipliers) @ chosen
        if left.upper <= 0:
            break
        if share <= CLOSE:
            return Missing("the bounds of the other cells are impossible by themselves")
        rise += (left.upper + room) / float(share)
    return rise + HEADROOM * max(0.0, rise + float(base[chosen].max()))


def _whole(found: Missing) -> Missing:
    """Let an interruption end the search: half of it answers nothing."""
    if found == INTERRUPTED:
        raise KeyboardInterrupt
    return found
