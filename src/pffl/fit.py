"""Train a model under bounds, and choose the limits of the predictor that is shipped.

    1  train for the bounds ζ at the price B; beside it without bounds, and for the
       smallest bounds that are possible
    2  while the model misses a bound: B ← 10·B, if it is open and ζ not impossible;
       train on from where it stands
    3  M ← the smallest of `Model.loss_bounds` that changes no mean training loss much,
       and carries no cell across its bound (`unchanged_by`); none, if none does
    4  measure: held-out rows, with bets that are planned on training rows

Training rows are judged by the model's own loss, held-out rows by that of the shipped
predictor. They are asked about once, at the end, when everything else is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from pffl.constraints import Cells
from pffl.evidence import proofs
from pffl.evidence.judged import harmless, tolerance, unmoved
from pffl.evidence.measure import (
    Known,
    Measured,
    Wanted,
    excess_of,
    expected_rows,
    least_of,
    measure,
    reported,
    sample,
    training_sample,
)
from pffl.evidence.record import Least, Missing, Pair, Sample, known
from pffl.evidence.response import measure_gap
from pffl.evidence.sites import by_site
from pffl.flow import (
    Flow,
    Run,
    Start,
    ask,
    gather,
    rounds,
    unless_interrupted,
)
from pffl.methods.auto import Auto
from pffl.methods.base import Method
from pffl.methods.saddle_bounds import GapMethod
from pffl.problem import Problem
from pffl.queries import Evaluate
from pffl.typing import FloatArray

DEARER = 10.0  # B grows by this factor
DEAREST = 1e8
TIMES = 20  # that training goes on
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Fitted:
    """A run, the problem as it was solved at last, and what was measured.

    `problem` has the price that was reached.
    """

    run: Run
    problem: Problem
    measured: Measured
    loss_bound: float | None


def fit(
    problem: Problem,
    method: Method,
    wanted: Wanted,
    *,
    gap_every: int = 0,
    watched: bool = True,
    start: Start | None = None,
    asked: FloatArray | None = None,
) -> Flow[Fitted]:
    """Train, and measure what came of it.

    Callbacks see a run that is `watched`; a method that can starts at `start`. `asked`
    are the bounds that were asked for, where the problem has tighter ones.
    """
    shown = reported(problem if asked is None else problem.with_bounds(asked))
    shows = gap_every if proofs.unmeasurable(problem) is None else 0
    training = rounds(
        problem,
        method,
        start=start,
        measure=measure_gap if shows else None,
        due=lambda number: number % shows == 0,
        watched=watched,
    )

    def others(start: Start | None) -> tuple[Flow[Any], ...]:
        return (
            _spared(_unbounded(problem, wanted, start)),
            _spared(least_of(shown, wanted, start)),
            _spared(excess_of(problem, wanted, start)),
            _spared(expected_rows(shown, wanted.present)),
        )

    found: tuple[Any, ...]
    if wanted.lockstep and not (wanted.near and isinstance(method, GapMethod)):
        run, *rest = yield from gather(training, *others(None))
        found = tuple(rest)
    else:
        run = yield from training
        known = run.stopped is None and run.expansion is not None
        start = Start.of(run, problem) if known else None
        found = yield from gather(*others(start))
    free, least, excess, rows = found
    if run.stopped != "interrupted" and any(f is proofs.INTERRUPTED for f in found):
        raise KeyboardInterrupt  # the model is whole, what is known of it is not
    if problem.n_cells and float(np.ptp(problem.cells.bounds)) == 0:
        excess = least
    first = Fit(problem, method, wanted, run, excess)
    at, M, seen = yield from _raised(first, shown)
    pair: Pair | Missing | None = None
    if at.run.stopped == "diverged":
        pair = Missing("the run diverged")
    elif at.run.bounds is not None:
        pair = Pair.of(at.run.bounds)
    whole = at.run.stopped is None
    excess = at.excess if whole else Missing("the run did not finish")
    measured = yield from measure(
        at.problem,
        at.run.point,
        replace(wanted, loss_bound=M),
        Known(seen, rows, pair, least, excess, free),
        asked=shown.cells.bounds if problem.n_cells else None,
    )
    return Fitted(at.run, at.problem, measured, M)


def _spared(flow: Flow[T | Missing]) -> Flow[T | Missing]:
    return unless_interrupted(flow, proofs.INTERRUPTED)


@dataclass(frozen=True, eq=False)
class Fit:
    """Where a fit stands: see `Fitted`."""

    problem: Problem
    method: Method
    wanted: Wanted
    run: Run
    excess: Least | Missing

    @property
    def dearer(self) -> bool:
        """Whether the price may be raised."""
        price = self.problem.multiplier_bound
        return (
            self.wanted.open_price
            and self.problem.risk_weight > 0
            and price < DEAREST
            and not self.impossible
        )

    @property
    def impossible(self) -> bool:
        """Whether no model meets the bounds."""
        least, length = known(self.excess), float(np.linalg.norm(self.run.point.w))
        bounds = self.problem.cells.bounds
        return least is not None and least.proof(bounds, length) is not None


def _raised(at: Fit, shown: Problem) -> Flow[tuple[Fit, float | None, Sample]]:
    """Lines 2 and 3: raise an open price until the bounds are met; choose M."""
    for number in range(1, TIMES + 1):
        M, seen = yield from shipped_sample(shown, at.run.point.w, at.wanted)
        if at.run.stopped is not None:
            return at, M, seen
        if not at.problem.n_cells:
            break
        start, bounds = Start.of(at.run, at.problem), at.problem.cells.bounds
        allowed = tolerance(at.problem.scales, bounds)
        if not at.method.resumes or not (seen.own_means - bounds > allowed).any():
            break
        at = yield from _judged(at)
        if not at.dearer or number == TIMES:
            break
        price = DEARER * at.problem.multiplier_bound
        problem = replace(at.problem, multiplier_bound=price)
        run = yield from rounds(problem, at.method, start=start)
        at = replace(at, problem=problem, run=_joined(at.run, run))
    return at, M, seen


def _judged(at: Fit) -> Flow[Fit]:
    """Find out whether the bounds are possible, if that is not known yet."""
    unknown = isinstance(at.excess, Missing) and at.wanted.open_price
    if not unknown or proofs.unmeasurable(at.problem) is not None:
        return at
    return replace(at, excess=(yield from proofs.find_least(at.problem)))


def _joined(first: Run, then: Run) -> Run:
    """Return a run that went on, with the rounds of both."""
    rows = [replace(row, number=first.rounds + row.number) for row in then.history]
    asked = first.rounds + then.rounds
    return replace(then, history=(*first.history, *rows), rounds=asked)


def shipped_sample(
    shown: Problem, w: FloatArray, wanted: Wanted
) -> Flow[tuple[float | None, Sample]]:
    """Evaluate w on the training rows, and choose M (line 3).

    None where no M fits: the sample is then that of the model as it is.
    """
    model = shown.task.model
    first, *others = model.loss_bounds or (np.inf,)
    heaviest = replace(wanted, loss_bound=first).heaviest(shown)
    asked = Evaluate(
        shown.task, w, "train", first, np.array(others), weight_bound=heaviest
    )
    total = yield from ask(asked)
    seen = replace(
        sample(["train"], total), sites=by_site([total], len(shown.silo_names), first)
    )
    bounds = shown.cells.bounds
    rule = (bounds, tolerance(shown.scales, bounds), model.unit)
    if np.isfinite(first) and unmoved(seen, *rule):
        return first, seen
    weight = seen.of_cells("weight")[:, None]
    tried = np.divide(
        total.trials, weight, out=np.full_like(total.trials, np.nan), where=weight > 0
    )
    for M, means in zip(others, tried.T, strict=True):
        if harmless(seen.own_means, means, *rule):
            seen = yield from training_sample(shown, w, replace(wanted, loss_bound=M))
            if unmoved(seen, *rule):
                return M, seen
    if np.isfinite(first):
        none = replace(wanted, loss_bound=None)
        seen = yield from training_sample(shown, w, none)
    return None, seen


# Line 4


def _unbounded(
    problem: Problem, wanted: Wanted, start: Start | None
) -> Flow[FloatArray | Missing]:
    """Fit the model without bounds.

    It is near the one with bounds if these are cheap; otherwise w = 0 is nearer.
    """
    if not (wanted.baseline and problem.n_cells):
        return Missing("not asked for")
    if (why := proofs.unmeasurable(problem)) is not None:
        return why
    free = replace(
        problem,
        task=replace(problem.task, cells=Cells.none(problem.schema)),
        counts=np.zeros(0),
        risk_weight=1.0,
    )
    if start is not None:
        cheap = start.point.multipliers.sum() <= problem.risk_weight
        start = start.without_cells() if cheap else None
    # In lockstep it is to be the very model of the training, where no bound binds.
    target = proofs.ENCLOSED if wanted.near else 1e-6
    run = yield from rounds(free, Auto(target_gap=target), start=start)
    return proofs.INTERRUPTED if run.stopped is not None else run.point.w
