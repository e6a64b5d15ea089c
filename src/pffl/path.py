"""A promise for people not seen: a path of models, fixed on training rows, then tested.

    1  train for the bounds ζ that are asked for; se_z ← about one standard error of
       cell z's mean loss on the calibration rows, by its training losses
    2  s* ← the largest margin s at which all bounds ζ_z − s·se_z can be met
    3  train for ζ_z − s·se_z at margins s from that of the first model up to s*, each
       from where the last one ended; M of each on training rows
    4  put the safest first: the one with the largest min_z (ζ_z − μ_z)/se_z, μ_z its
       mean training losses; plan the bets of each
    5  ask about all of them on the calibration rows, in one message
    6  ship the last one up to which every one is shown to keep all bounds, each with
       the full risk δ, every cell at δ; or the first, if that is not shown

Lines 1 to 4 see training rows alone; of calibration rows only how many there are. What
line 6 may say, and why, is in `evidence.figures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pffl.bounds.checks import probability, whole
from pffl.constraints import Constraint
from pffl.data.partition import CALIBRATION
from pffl.errors import DataError, NotMetError, UsageError
from pffl.evidence import proofs
from pffl.evidence.figures import keeps
from pffl.evidence.measure import (
    Measured,
    Wanted,
    expected_rows,
    heldout_sample,
    measure_before,
    reported,
    unchanged,
)
from pffl.evidence.proofs import expand
from pffl.evidence.record import Before, Candidate, Missing, ModelPath, Sample
from pffl.fit import Fitted, fit
from pffl.flow import Flow, Round, Run, Start, gather, rounds
from pffl.methods.auto import Auto
from pffl.methods.base import Method
from pffl.prepare import Options, Setting
from pffl.problem import Problem
from pffl.typing import FloatArray

MODELS, FEW = 20, 6  # models of a path; where rows are elsewhere, or models networks
FAR = 12.0  # standard errors: no model needs a larger margin
OFTEN = 3.0  # about the margin at which models begin to be shown
INSIDE = 0.98  # of the largest margin: at it nothing is left to choose by
NETWORK = 4.5  # beyond the first margin, of models of which s* is not known
STEPS = 6  # of Newton's method towards s*
CLOSE = 0.01  # of a standard error: near enough to s*
ROUGH = 1e-4  # target gap on the way there
LEAST = 1e-3  # of the largest standard error: a smaller one is taken for this
ENDLESS = Missing("the losses of no model on the path have a bound")
STOPPED = {
    "diverged": "the run diverged before its models could be tested",
    "interrupted": "the run was interrupted before its models could be tested",
}


@dataclass(frozen=True)
class Promise:
    """Ask for a model whose bounds can be promised for people not seen.

    Attributes
    ----------
    confidence
        1 − δ of the promise.
    models
        Of the path, at most; None: 20, and 6 where rows are elsewhere or the model is a
        network. More cost time, and no confidence.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(3000, silos=3, groups=["f", "m"], seed=0)
    >>> bounds = pffl.BoundedGroupLoss(0.75)
    >>> promised = pffl.solve(people, bounds, promise=pffl.Promise(models=4), seed=0)
    >>> promised.certificate.holds("holdout")
    True
    """

    confidence: float = 0.95
    models: int | None = None

    def __post_init__(self) -> None:
        probability("confidence", self.confidence)
        if self.models is not None:
            whole("models", self.models, least=1)

    def among(self, options: Options) -> Options:
        """Return the options of a run with it."""
        return replace(
            options,
            promise="unseen",
            confidence=self.confidence,
            models=self.models,
        )


def check_promise(
    setting: Setting, constraint: Constraint | None, problem: Problem
) -> None:
    """Refuse a promise without bounds, bounded losses, rows to test, people apart."""
    check_bounded(constraint, problem)
    calibration_split(setting.splits)
    many = calibration_overlap(setting)
    if setting.data.by_person and many:
        raise DataError(
            f"[people-shared] {many:,} calibration rows are of people whose other "
            "rows are trained on: they would show too much, and nothing can be "
            "promised by them"
        )


def check_bounded(constraint: Constraint | None, problem: Problem) -> None:
    """Refuse a promise without bounds, or without a bound on every loss."""
    if constraint is None or constraint.minimax or not problem.n_cells:
        raise UsageError(
            "[needs-bound] a promise for people not seen is that they stay within "
            "bounds: `bound=NUMBER`"
        )
    if not problem.task.model.loss_bounds:
        raise UsageError(
            "[unbounded-loss] a promise for people not seen needs losses that are "
            "bounded: `target_range=LOW,HIGH`"
        )


def calibration_split(splits: Sequence[str]) -> str:
    """Return the rows to test on: those set apart for it, or else the held-out ones."""
    for split in (CALIBRATION, "test"):
        if split in splits:
            return split
    raise UsageError(
        "[needs-calibration] a promise for people not seen needs rows that are not "
        "trained on: `calibration_fraction=0.2`"
    )


def calibration_overlap(setting: Setting) -> int | None:
    """Return how many of these rows are trained on, too; None if nobody could look."""
    if calibration_split(setting.splits) == CALIBRATION:
        return setting.calibration_overlap
    return setting.data.overlap


def fit_path(
    problem: Problem,
    method: Method,
    wanted: Wanted,
    *,
    models: int | None,
    gap_every: int = 0,
    overlap: int | None = None,
) -> Flow[tuple[Fitted, ModelPath | Missing]]:
    """Train a path of models, test it, and measure the one that is shipped.

    Parameters
    ----------
    problem, method, wanted, gap_every
        As for `fitting.fit`.
    models
        As in `Promise`.
    overlap
        Calibration rows that are training rows, too; None if nobody could look.
    """
    split, shown = calibration_split(wanted.splits), reported(problem)
    bare = replace(wanted, splits=("train",))
    first = yield from fit(problem, method, bare, gap_every=gap_every)
    rows = yield from expected_rows(shown, (split,))
    tested = replace(wanted, heldout=(split,))
    if first.run.stopped is not None:
        none = Missing(STOPPED[first.run.stopped])
        return replace(first, measured=replace(first.measured, heldout=none)), none
    spread = _spread(first.measured.seen, rows)
    walk = Walk(problem, method, bare, spread)
    trained = yield from walk.fits(first, models_of(problem, models))
    limited = [one for one in trained if one.loss_bound is not None]
    if not limited:  # by training rows: nothing can be shown of any of them
        flow = heldout_sample(shown, first.run.point.w, wanted, None, ENDLESS)
        held = yield from flow
        return replace(first, measured=replace(first.measured, heldout=held)), ENDLESS
    fits = sorted(limited, key=walk.safety, reverse=True)
    asked = [
        heldout_sample(
            shown,
            one.run.point.w,
            replace(tested, loss_bound=one.loss_bound),
            one.measured.seen,
            rows,
        )
        for one in fits
    ]
    samples = yield from gather(*asked)
    path = replace(_tested(fits, samples, walk, split, tested), overlap=overlap)
    shipped = fits[path.chosen]
    measured = yield from _reported(shipped, path, first, shown, wanted)
    run = replace(shipped.run, **_history(trained, problem.cells.bounds))
    return replace(shipped, run=run, measured=measured), path


def find_safest(
    problem: Problem, method: Method, wanted: Wanted, rows: FloatArray
) -> Flow[tuple[Fitted, float]]:
    """Train the model of a path that is tested first, and say how safe it is.

    Parameters
    ----------
    problem, method, wanted
        As for `fitting.fit`; held-out rows are not asked about.
    rows
        Calibration rows of each cell, up to a factor.
    """
    bare = replace(wanted, splits=("train",))
    first = yield from fit(problem, method, bare)
    if first.run.stopped == "interrupted":
        raise KeyboardInterrupt
    if first.run.stopped is not None:
        raise NotMetError(f"[run-stopped] {STOPPED[first.run.stopped]}")
    walk = Walk(problem, method, bare, _spread(first.measured.seen, rows))
    trained = yield from walk.fits(first, 2)
    best = max(trained, key=walk.safety)
    return best, walk.safety(best)


def _history(trained: Sequence[Fitted], bounds: FloatArray) -> dict[str, Any]:
    """Return the rounds of all models, in order, against the bounds asked for."""
    rows: list[Round] = []
    before = 0
    for one in trained:
        shift = one.problem.cells.bounds - bounds
        rows += [
            replace(row, number=before + row.number, violation=row.violation + shift)
            for row in one.run.history
        ]
        before += one.run.rounds
    return {"history": tuple(rows), "rounds": before}


def models_of(problem: Problem, models: int | None) -> int:
    """Return how many models a path has at most."""
    if models is not None:
        return models
    costly = problem.access.elsewhere or proofs.unmeasurable(problem) is not None
    return FEW if costly else MODELS


def _spread(seen: Sample, rows: FloatArray) -> FloatArray:
    """Return about one standard error of each cell's mean on so many rows (line 1)."""
    errors = np.sqrt(seen.variances / np.maximum(rows, 1.0))
    largest = float(errors.max(initial=0.0))
    return np.maximum(errors, LEAST * (largest if largest > 0 else 1.0))


@dataclass(frozen=True, eq=False)
class Walk:
    """What all models of a path share; `spread` are the standard errors."""

    problem: Problem
    method: Method
    wanted: Wanted
    spread: FloatArray

    def safety(self, one: Fitted) -> float:
        """Return min_z (ζ_z − μ_z)/se_z on the training rows."""
        room = self.problem.cells.bounds - one.measured.seen.own_means
        return float((room / self.spread).min())

    def fits(self, first: Fitted, many: int) -> Flow[list[Fitted]]:
        """Train the models, from the first to the safest (lines 2 and 3)."""
        out, start = [first], first
        margins = yield from self._margins(first, many)
        wanted = replace(self.wanted, baseline=False, smallest=False)
        for margin in margins:
            bounds = self.problem.cells.bounds - margin * self.spread
            price = start.problem.multiplier_bound
            problem = replace(self.problem.with_bounds(bounds), multiplier_bound=price)
            near = Start.of(start.run, start.problem)
            flow = fit(
                problem,
                self.method,
                wanted,
                watched=False,
                start=near,
                asked=self.problem.cells.bounds,
            )
            found = yield from flow
            if found.run.stopped == "interrupted":
                raise KeyboardInterrupt
            if found.run.stopped is not None:
                break
            start = found
            out.append(found)
        return out

    def _margins(self, first: Fitted, many: int) -> Flow[list[float]]:
        """Return the margins to train for, beside that of the first model."""
        low = max(self.safety(first), 0.0)
        if many < 2 or not self.problem.multiplier_bound > 0:
            return []
        if proofs.unmeasurable(self.problem) is not None:
            top = low + NETWORK
        else:
            top = INSIDE * (yield from self._largest(first))
        top = min(top, FAR)
        if not top > low:
            return []
        # Half of them below the margin at which models begin to be shown.
        bend = max(1.0, np.log2((top - low) / max(OFTEN - low, 0.25)))
        steps = np.linspace(0.0, 1.0, many)[1:]
        return [float(low + (top - low) * step**bend) for step in steps]

    def _largest(self, first: Fitted) -> Flow[float]:
        """Return s*, the largest margin that can be met, of those in use (line 2).

        −s* is the root of φ(t) = min_w max_z (R_z(w) − ζ_z − t·se_z), which is convex
        and falls with slope −λᵀse: Newton's iterates come up to it from below.
        """
        t, bounds = -FAR / INSIDE, self.problem.cells.bounds
        rough = Auto(target_gap=ROUGH, multiplier_bound=1.0, risk_weight=0.0)
        start = Start.of(first.run, first.problem)
        for _ in range(STEPS):
            at = self.problem.with_bounds(bounds + t * self.spread)
            offset = float(at.cells.bounds.max())
            bare = replace(
                at.with_bounds(at.cells.bounds - offset),
                risk_weight=0.0,
                multiplier_bound=1.0,
            )
            near = start.sharing(1.0, self.problem.n_cells)
            flow = rounds(bare, rough, start=near)
            run: Run = yield from flow
            if run.stopped == "interrupted":
                raise KeyboardInterrupt
            if run.stopped is not None:
                break
            losses = yield from self._losses(bare, run)
            excess = float((losses - at.cells.bounds).max())
            share = float(run.point.multipliers @ self.spread)
            start = Start.of(run, bare)
            if excess <= CLOSE * share or not share > 0:
                break
            t += excess / share
        return -t

    def _losses(self, bare: Problem, run: Run) -> Flow[FloatArray]:
        """Return the cells' mean losses at the model of a run."""
        at = run.expansion
        if at is None:
            at = yield from expand(bare, run.point.w)
        return at.violation + bare.cells.bounds


def _tested(
    fits: Sequence[Fitted],
    samples: Sequence[Sample | Missing],
    walk: Walk,
    split: str,
    tested: Wanted,
) -> ModelPath:
    """Go along the path, the safest first, and find the one to ship (line 6)."""
    candidates = [
        Candidate(
            walk.safety(one),
            one.run.point.w.tolist(),
            one.loss_bound,
            replace(one.measured.seen.plain, stakes=one.measured.seen.stakes),
            held,
        )
        for one, held in zip(fits, samples, strict=True)
        if isinstance(held, Sample) and one.loss_bound is not None
    ]
    risk, bounds = 1.0 - tested.confidence, walk.problem.cells.bounds
    weighs, chosen = tested.weighs(walk.problem), 0
    for place, one in enumerate(candidates):
        if not keeps(one, bounds, risk, weighs=weighs):
            break
        chosen = place
    return ModelPath(split, tested.confidence, walk.spread.tolist(), candidates, chosen)


def _reported(
    one: Fitted, path: ModelPath, first: Fitted, shown: Problem, wanted: Wanted
) -> Flow[Measured]:
    """Measure the model that is shipped on report rows, where there are any."""
    others = tuple(s for s in wanted.present if s != path.split)
    held: Sample | Missing = path.shipped.calibration
    if others:
        plain = replace(wanted, heldout=others, loss_bound=one.loss_bound)
        none = Missing("what is promised is shown by calibration rows")
        held = yield from heldout_sample(shown, one.run.point.w, plain, None, none)
    before = yield from _before(one, first, held, shown, wanted)
    proved = replace(first.measured.proofs, gap=one.measured.proofs.gap)
    return Measured(one.measured.seen, held, before, proved)


def _before(
    one: Fitted,
    first: Fitted,
    held: Sample | Missing,
    shown: Problem,
    wanted: Wanted,
) -> Flow[Before | Missing]:
    """Measure the model without bounds: on all rows, and bounded as `one` is."""
    old = first.measured.before
    if isinstance(old, Missing):
        return old
    w = np.array(old.model)
    if np.array_equal(w, one.run.point.w):
        return unchanged(w, one.measured.seen, held)
    known = old.samples if one.loss_bound == first.loss_bound else {}
    left = tuple(split for split in wanted.splits if split not in known)
    asked = replace(wanted, splits=left, loss_bound=one.loss_bound)
    found = yield from measure_before(shown, w, asked)
    more = {} if isinstance(found, Missing) else found.samples
    return replace(old, samples={**known, **more})
