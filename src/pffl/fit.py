"""Train a model under bounds, and choose the limits of the predictor that is shipped.

    1  train for the bounds ζ with multiplier bound B, and without bounds
    2  where a bound is missed: enclose how low all bounds can go together
    3  while a bound is missed that is possible, and B is open: B ← 10·B, train on
    4  M ← the smallest of `Model.loss_bounds` that changes no mean training loss much,
       and carries no cell across its bound; None, if none does
    5  measure the rest: test rows, with bets that are planned on training rows

Training rows are judged by the model's own loss, test rows by that of the shipped
predictor. They are asked about once, at the end, when everything else is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pffl.constraints import Cells
from pffl.errors import UsageError
from pffl.evidence import proofs
from pffl.evidence.figures import tolerance, unmoved
from pffl.evidence.measure import (
    Known,
    Measured,
    Wanted,
    expected_rows,
    measure,
    reported,
    training_sample,
)
from pffl.evidence.record import Before, Least, Missing, Pair, Sample
from pffl.flow import Flow, Run, Start, ask_all, gather, rounds, unless_interrupted
from pffl.methods.auto import Auto
from pffl.methods.base import Method
from pffl.problem import Problem
from pffl.queries import Evaluate
from pffl.typing import FloatArray

MULTIPLIER_GROWTH = 10.0  # of an open B
MAX_MULTIPLIER_BOUND = 1e8
MAX_RESTARTS = 20
SEARCHES, TRIED_THRESHOLDS = 3, 31  # for a selection rate: messages, queries in each
INTERRUPTED = proofs.INTERRUPTED


@dataclass(frozen=True, eq=False)
class Fitted:
    """A run, the problem with the B that was reached, what was measured, and M."""

    run: Run
    problem: Problem
    measured: Measured
    loss_bound: float | None

    def known(self, seen: Sample | None, rows: Missing | None) -> Known:
        """Return what is proved, so that it is not asked again."""
        proved, before = self.measured.proofs, self.measured.before
        free = np.array(before.model) if isinstance(before, Before) else before
        return Known(seen, rows, proved.gap, proved.least, free)

    def finished(self) -> Fitted | None:
        """Return it; None if the run diverged. An interruption ends all."""
        if self.run.stopped == "interrupted":
            raise KeyboardInterrupt
        return None if self.run.stopped is not None else self


def fit(
    problem: Problem,
    method: Method,
    wanted: Wanted,
    *,
    watched: bool = True,
    start: Start | None = None,
    asked: FloatArray | None = None,
) -> Flow[Fitted]:
    """Train, and measure what came of it.

    Callbacks see a run that is `watched`; a method that can starts at `start`. `asked`
    are the bounds that were asked for, where the problem has tighter ones.
    """
    shown = reported(problem if asked is None else problem.with_bounds(asked))
    training = rounds(problem, method, start=start, watched=watched)

    def spare(start: Start | None) -> Flow[tuple[FloatArray | Missing, ...]]:
        """Fit without bounds and count test rows: a run can do without both."""
        return gather(
            unless_interrupted(_unconstrained(problem, wanted, start), INTERRUPTED),
            unless_interrupted(expected_rows(shown, wanted.present), INTERRUPTED),
        )

    if wanted.lockstep:
        run, others = yield from gather(training, spare(None))
    else:
        run = yield from training
        known = run.stopped is None and run.expansion is not None
        others = yield from spare(Start.of(run, problem) if known else None)
    if run.stopped != "interrupted" and any(one is INTERRUPTED for one in others):
        raise KeyboardInterrupt  # the model is whole, what is known of it is not
    free, rows = others
    bounds, allowed = (
        problem.cells.bounds,
        tolerance(problem.scales, problem.cells.bounds),
    )
    least: Least | Missing | None = None
    restarts = 0
    while True:
        M, train = yield from shipped_sample(shown, run.point.w, wanted)
        missed = bool(problem.n_cells) and (train.own_means - bounds > allowed).any()
        if run.stopped is not None or not missed:
            break
        more = (
            method.resumes
            and wanted.open_multipliers
            and problem.risk_weight > 0
            and problem.multiplier_bound < MAX_MULTIPLIER_BOUND
            and restarts < MAX_RESTARTS
        )
        if least is None and (more or wanted.smallest is not False):
            at = Start.of(run, problem) if run.expansion is not None else None
            least = yield from proofs.enclose(problem, at)
            if least == INTERRUPTED:
                raise KeyboardInterrupt
        length = float(np.linalg.norm(run.point.w))
        if not more or (
            isinstance(least, Least) and least.proof(bounds, length) is not None
        ):
            break
        restarts += 1
        near = Start.of(run, problem)
        B = MULTIPLIER_GROWTH * problem.multiplier_bound
        problem = replace(problem, multiplier_bound=B)
        run = _joined(run, (yield from rounds(problem, method, start=near)))
    pair: Pair | Missing | None = None
    if run.stopped == "diverged":
        pair = Missing("the run diverged")
    elif run.bounds is not None:
        pair = Pair.of(run.bounds)
    if run.stopped is not None:
        least = Missing("the run did not finish")
    measured = yield from measure(
        problem,
        run.point,
        replace(wanted, loss_bound=M),
        Known(train, rows, pair, least, free),
        asked=shown.cells.bounds if problem.n_cells else None,
    )
    return Fitted(run, problem, measured, M)


def at_selection_rate(
    found: Fitted, rate: float, wanted: Wanted
) -> Flow[tuple[Fitted, float]]:
    """Choose the threshold that selects this share of training rows; measure anew.

    By the share above thresholds between two, three times: each query adds the same
    sums as any other. Of ties the smaller share is taken.
    """
    problem, point, low, high = found.problem, found.run.point, 0.0, 1.0
    for _ in range(SEARCHES):
        cuts = np.linspace(low, high, TRIED_THRESHOLDS + 2)[1:-1].tolist()
        tasks = [deciding(problem, cut).task for cut in cuts]
        asked = [Evaluate(task, point.w, "train", np.inf) for task in tasks]
        totals = yield from ask_all(asked)
        shares = [
            float(one.column("positive").sum() / one.column("weight").sum())
            for one in totals
        ]
        within = [cut for cut, share in zip(cuts, shares, strict=True) if share <= rate]
        high = min(within, default=high)
        low = max([cut for cut in cuts if cut < high], default=low)
    threshold = min(high, cuts[-1])
    problem = deciding(problem, threshold)
    bounded = replace(wanted, loss_bound=found.loss_bound)
    measured = yield from measure(problem, point, bounded, found.known(None, None))
    return replace(found, problem=problem, measured=measured), threshold


def deciding(problem: Problem, threshold: float) -> Problem:
    """Return the problem with another threshold of its model, of two classes."""
    model: Any = problem.task.model
    if model.n_classes != 2 or not hasattr(model, "threshold"):
        raise UsageError("wrong-model:deciding")
    model = replace(model, threshold=threshold)
    return replace(problem, task=replace(problem.task, model=model))


def _joined(first: Run, then: Run) -> Run:
    """Return a run that was resumed, with the rounds of both."""
    rows = [replace(row, number=first.rounds + row.number) for row in then.history]
    asked = first.rounds + then.rounds
    return replace(then, history=(*first.history, *rows), rounds=asked)


def shipped_sample(
    shown: Problem, w: FloatArray, wanted: Wanted
) -> Flow[tuple[float | None, Sample]]:
    """Evaluate w on the training rows, and choose M (line 4).

    None where no M fits: the sample is then that of the model as it is.
    """
    bounds, unit = shown.cells.bounds, shown.unit
    allowed = tolerance(shown.scales, bounds)
    tried = shown.task.model.loss_bounds
    parts: list[tuple[float, ...]] = [(M,) for M in tried]
    if shown.access.elsewhere:  # a message costs more than passes over the rows
        parts = [tried[:1], tried[1:]]
    for some in parts:
        each = (replace(wanted, loss_bound=M) for M in some)
        found = yield from gather(*(training_sample(shown, w, one) for one in each))
        for M, train in zip(some, found, strict=True):
            if unmoved(train, bounds, allowed, unit):
                return M, train
    none = replace(wanted, loss_bound=None)
    return None, (yield from training_sample(shown, w, none))


def _unconstrained(
    problem: Problem, wanted: Wanted, start: Start | None
) -> Flow[FloatArray | Missing]:
    """Fit the model without bounds, from a model with small multipliers or from 0."""
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
        near = start.point.multipliers.sum() <= problem.risk_weight
        start = start.without_cells() if near else None
    # In lockstep it is to be the very model of the training, where no bound binds.
    target = 1e-6 if wanted.lockstep else proofs.ENCLOSED
    run = yield from rounds(free, Auto(target_gap=target), start=start)
    return INTERRUPTED if run.stopped is not None else run.point.w
