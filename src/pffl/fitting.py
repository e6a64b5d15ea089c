"""Train a model under bounds, and bound the predictor that is shipped.

    1  train for the bounds ζ at the price B; beside it without bounds, and for the
       smallest bounds that are possible
    2  M ← the smallest of `TRIALS` at which bounding the predictor raises no cell's
       mean training loss by more than `RISE`
    3  while the bounded predictor misses a bound:
           the model misses it, too:   B ← 10·B, if it is open and ζ not impossible
           only the bounded one does:  aim at ζ less what bounding it costs
           train on from where it stands
    4  measure: held-out rows, with bets that are planned on training rows

Held-out rows are asked about once, at the end, when everything else is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from pffl.constraints.base import Cells
from pffl.evidence import proofs
from pffl.evidence.evidence import (
    Before,
    Least,
    Lowest,
    Missing,
    Pair,
    Proofs,
    Sample,
    known,
)
from pffl.evidence.measure import (
    Measured,
    Wanted,
    excess_of,
    expected_rows,
    gap_flow,
    heldout_sample,
    least_of,
    reported,
    sample,
    training_sample,
)
from pffl.evidence.response import measure_gap
from pffl.evidence.sites import by_site
from pffl.evidence.training import tolerance
from pffl.evidence.vector import kept
from pffl.flow import (
    Flow,
    Run,
    Start,
    ask,
    ask_all,
    given,
    iterate,
    stage,
    together,
    unless_interrupted,
)
from pffl.methods.auto import Auto
from pffl.methods.base import Method
from pffl.methods.saddle_bounds import GapMethod
from pffl.problem import Problem
from pffl.questions import Evaluate
from pffl.typing import FloatArray

TRIALS = (3.0, 5.0, 8.0, 12.0, 20.0)  # M
RISE = 1e-4  # of a cell's mean loss, that bounding the predictor may cost
DEARER = 10.0  # B grows by this factor
DEAREST = 1e8
TIMES = 20  # that training goes on
ROOM = 1.01  # times what bounding costs: the next model's cost may be a little larger
FOUND = Missing("it is the same model")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Fitted:
    """A run, the problem as it was solved at last, and what was measured.

    `problem` has the bounds that were aimed at and the price that was reached; `goal`
    are the bounds asked for. `refits`: how often training went on once M was chosen.
    """

    run: Run
    problem: Problem
    measured: Measured
    loss_bound: float | None
    goal: FloatArray
    refits: int = 0


def fit(
    problem: Problem,
    method: Method[Any],
    wanted: Wanted,
    *,
    gap_every: int = 0,
    watched: bool = True,
    start: Start | None = None,
) -> Flow[Fitted]:
    """Train, and measure what came of it.

    Callbacks see a run that is `watched`; a method that can starts at `start`.
    """
    shown = reported(problem)
    rounds = iterate(
        problem,
        method,
        gap_every=0 if proofs.unmeasurable(problem) else gap_every,
        gauge=measure_gap,
        watched=watched,
        start=start,
    )
    training = stage("training", rounds)

    def others(start: Start | None) -> tuple[Flow[Any], ...]:
        return (
            stage("before", _spared(_unbounded(problem, wanted, start))),
            stage("least", _spared(least_of(shown, wanted, start))),
            stage("excess", _spared(excess_of(problem, wanted, start))),
            stage("rows", _spared(expected_rows(shown, wanted.present))),
        )

    found: tuple[Any, ...]
    if wanted.lockstep and not (wanted.near and isinstance(method, GapMethod)):
        run, *rest = yield from together(training, *others(None))
        found = tuple(rest)
    else:
        run = yield from training
        known = run.stopped is None and run.expansion is not None
        start = Start.of(run, problem) if known else None
        found = yield from together(*others(start))
    free, least, excess, rows = found
    if run.stopped != "interrupted" and any(f is proofs.INTERRUPTED for f in found):
        raise KeyboardInterrupt  # the model is whole, what is known of it is not
    if problem.n_cells and float(np.ptp(problem.cells.bounds)) == 0:
        excess = least
    first = Fit(problem, method, wanted, run, excess, problem.cells.bounds)
    at, seen = yield from stage("bounding", _bounded(first, shown))
    measured = yield from _measured(at, shown, seen, free, rows, least)
    return Fitted(
        at.run, at.problem, measured, at.loss_bound, at.goal, refits=at.refits
    )


def _spared(flow: Flow[T | Missing]) -> Flow[T | Missing]:
    return unless_interrupted(flow, proofs.INTERRUPTED)


@dataclass(frozen=True, eq=False)
class Fit:
    """Where a fit stands: see `Fitted`."""

    problem: Problem
    method: Method[Any]
    wanted: Wanted
    run: Run
    excess: Least | Missing
    goal: FloatArray
    loss_bound: float | None = None
    refits: int = 0

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
        return least is not None and least.proof(self.goal, length) is not None


def _bounded(at: Fit, shown: Problem) -> Flow[tuple[Fit, Sample]]:
    """Lines 2 and 3: choose M, and train on until the bounded predictor is right."""
    at, seen = yield from stage("0", _seen(at, shown))
    if at.run.stopped is not None or not at.problem.n_cells:
        return at, seen
    allowed = tolerance(at.problem.scales, at.goal)
    for number in range(1, TIMES + 1):
        aimed, start = at.problem.cells.bounds, Start.of(at.run, at.problem)
        stays = at.method.resumed(start.point) is None
        if stays or not (seen.means - at.goal > allowed).any():
            break
        if (seen.uncut_means - aimed > allowed).any():
            at = yield from stage(f"{number} possible", _judged(at))
            if not at.dearer:
                break
            price = DEARER * at.problem.multiplier_bound
            problem = replace(at.problem, multiplier_bound=price)
        else:
            cost = np.maximum(seen.means - seen.uncut_means, 0.0)
            lower = np.minimum(aimed, at.goal - ROOM * cost)
            problem = at.problem.with_bounds(lower)
        run = yield from stage(
            f"{number} training", iterate(problem, at.method, start=start)
        )
        joined = _joined(at, problem, run)
        at = replace(at, problem=problem, run=joined, refits=number)
        at, seen = yield from stage(f"{number} rows", _seen(at, shown))
        if run.stopped is not None:
            break
    return at, seen


def _judged(at: Fit) -> Flow[Fit]:
    """Find out whether the bounds are possible, if that is not known yet."""
    unknown = isinstance(at.excess, Missing) and at.wanted.open_price
    if not unknown or proofs.unmeasurable(at.problem) is not None:
        return at
    wanted = at.problem.with_bounds(at.goal)
    return replace(at, excess=(yield from proofs.find_least(wanted)))


def _joined(at: Fit, problem: Problem, then: Run) -> Run:
    """Return a run that went on: rounds of both, against the bounds asked for."""
    first, shift = at.run, problem.cells.bounds - at.goal
    rows = [
        replace(row, number=first.rounds + row.number, violation=row.violation + shift)
        for row in then.history
    ]
    rounds = first.rounds + then.rounds
    return replace(then, history=(*first.history, *rows), rounds=rounds)


def _seen(at: Fit, shown: Problem) -> Flow[tuple[Fit, Sample]]:
    """Evaluate the training rows; choose M first, if it is not known (line 2)."""
    declared = at.wanted.loss_bound if at.loss_bound is None else at.loss_bound
    wanted = replace(at.wanted, loss_bound=declared)
    M, seen = yield from bounded_sample(shown, at.run.point.w, wanted)
    return replace(at, loss_bound=M), seen


def bounded_sample(
    shown: Problem, w: FloatArray, wanted: Wanted
) -> Flow[tuple[float | None, Sample]]:
    """Evaluate w on the training rows; choose M first, if it is not declared."""
    model = shown.task.model
    M = model.loss_bound(wanted.loss_bound)
    if M is not None or model.n_classes == 0:
        seen = yield from training_sample(shown, w, replace(wanted, loss_bound=M))
        return M, seen
    first, *others = trials(model.n_classes)
    heaviest = replace(wanted, loss_bound=first).heaviest(shown)
    tried = np.array(others)
    total = yield from ask(
        Evaluate(shown.task, w, "train", first, trials=tried, weight_bound=heaviest)
    )
    sites = by_site([total], len(shown.silo_names), first)
    seen = replace(sample(["train"], total), sites=sites)
    costs = [seen.means, *(total.trials / seen.of_cells("weight")[:, None]).T]
    M = choose(seen.uncut_means, costs, (first, *others))
    if first != M:
        seen = yield from training_sample(shown, w, replace(wanted, loss_bound=M))
    return M, seen


def trials(classes: int) -> tuple[float, ...]:
    """Return the values of M to try: those above log C, by enough to be of use."""
    found = tuple(M for M in TRIALS if classes * np.exp(-M) < 0.5)
    return found or (float(np.log(classes)) + TRIALS[0],)


def choose(
    own: FloatArray, bounded: Sequence[FloatArray], values: Sequence[float]
) -> float:
    """Return the smallest M at which no cell's mean loss rises by more than `RISE`."""
    for M, means in zip(values, bounded, strict=True):
        if float(np.nanmax(means - own, initial=0.0)) <= RISE:
            return M
    return values[-1]


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
    run = yield from iterate(free, Auto(target_gap=target), start=start)
    return proofs.INTERRUPTED if run.stopped is not None else run.point.w


def _measured(
    at: Fit,
    shown: Problem,
    seen: Sample,
    free: FloatArray | Missing,
    rows: FloatArray | Missing,
    least: Least | Missing,
) -> Flow[Measured]:
    """Ask what is left: held-out rows, the model without bounds, the gap."""
    wanted = replace(at.wanted, loss_bound=at.loss_bound)
    pair: Pair | Missing | None = None
    if at.run.stopped == "diverged":
        pair = Missing("the run diverged")
    elif at.run.bounds is not None:
        pair = Pair.of(at.run.bounds)
    same = not isinstance(free, Missing) and np.array_equal(free, at.run.point.w)
    found, held, before, alone = yield from together(
        stage("gap", gap_flow(at.problem, at.run.point, pair)),
        stage("heldout", heldout_sample(shown, at.run.point.w, wanted, seen, rows)),
        stage("before rows", measure_before(shown, FOUND if same else free, wanted)),
        stage("reach", _reach(shown, wanted)),
    )
    excess = at.excess if at.run.stopped is None else Missing("the run did not finish")
    if same:  # no bound made a difference: nothing is asked twice
        before = unchanged(at.run.point.w, seen, held)
    proved = Proofs(found, least, excess, reach=list(alone))
    return Measured(seen, held, before, proved)


def _reach(shown: Problem, wanted: Wanted) -> Flow[tuple[Lowest, ...]]:
    """Find how low the loss of each cell alone can go, of a few cells.

    Of one label it is 0: everybody in the cell can be guessed.
    """
    mixed = [z for z in proofs.askable(shown) if shown.constants[z] > 0]
    many = len(mixed) > proofs.REACHED
    if not wanted.reach or many or proofs.unmeasurable(shown) is not None:
        return ()
    return (yield from proofs.find_reach(shown, mixed))


def unchanged(w: FloatArray, seen: Sample, held: Sample | Missing) -> Before:
    """Return the model without bounds, where it is the same as with them."""
    samples = {"train": seen.plain}
    if isinstance(held, Sample) and held.splits == ["test"]:
        samples["test"] = held.plain
    return Before(kept(w), samples)


def measure_before(
    shown: Problem, free: FloatArray | Missing, wanted: Wanted
) -> Flow[Before | Missing]:
    """Measure the model without bounds on the same cells, bounded alike."""
    if isinstance(free, Missing):
        return (yield from given(free))
    M = np.inf if wanted.loss_bound is None else wanted.loss_bound
    splits = [split for split in ("train", "test") if split in wanted.splits]
    asked = [Evaluate(shown.task, free, split, M) for split in splits]
    totals = yield from ask_all(asked)
    pairs = zip(splits, totals, strict=True)
    return Before(kept(free), {s: sample([s], total) for s, total in pairs})
