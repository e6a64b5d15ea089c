"""Bounds that hold for new people: a path of models, tested in a fixed sequence.

    1  train for the bounds ζ that are asked for; se_z ← about one standard error of
       cell z's mean loss on the calibration rows, by its training losses
    2  s* ← the largest margin s at which all bounds ζ_z − s·se_z can be met
    3  train for ζ_z − s·se_z at margins s from that of the first model up to s*, each
       from where the last one ended; M of each on training rows
    4  put the safest first: the one with the largest min_z (ζ_z − μ_z)/se_z, μ_z its
       mean training losses; plan the bets of each
    5  ask about all of them on the calibration rows, in one message
    6  ship the last one up to which every one is certified to keep all bounds, each
       with the full risk δ, every cell at δ; or the first, if that is not certified

**Rates.** Where bounds are on error rates, mean losses stand in for them. A cell with
the bound r gets the loss bound t·φ(r), φ(r) the loss of guessing a rate r: t falls from
where it changes nothing, first in steps, then finely where training rates pass their
bounds. Lines 4 to 6 are the same with rates, their binomial standard errors and Clopper
and Pearson's upper ends. What stands in decides nothing but which models are tried.

Lines 1 to 4 see training rows alone; of calibration rows only how many there are. What
line 6 may say, and why, is in `evidence.figures`. `certify` states later what holds for
a model at another confidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pffl.bounds.checks import probability, whole
from pffl.constraints import Constraint
from pffl.data.federation import Federation
from pffl.data.partition import CALIBRATION
from pffl.errors import DataError, NotMetError, UsageError
from pffl.evidence import proofs
from pffl.evidence.conclude import conclude
from pffl.evidence.figures import certified_models
from pffl.evidence.measure import (
    Wanted,
    expected_rows,
    heldout_sample,
    measure,
    reported,
)
from pffl.evidence.proofs import expand
from pffl.evidence.record import (
    Candidate,
    Data,
    Evidence,
    Missing,
    ModelPath,
    Sample,
    known,
)
from pffl.evidence.statements import Certificate
from pffl.fit import Fitted, fit
from pffl.flow import Flow, Start, gather, rounds
from pffl.methods.auto import Auto
from pffl.methods.base import Method
from pffl.prepare import Setting
from pffl.problem import Problem
from pffl.typing import FloatArray

DEFAULT_MODELS = 20  # of a path
COSTLY_MODELS = 6  # where rows are elsewhere, or models are networks
MAX_MARGIN = 12.0  # standard errors: no model needs a larger one
USUAL_MARGIN = 3.0  # about where models begin to be certified
INSIDE = 0.98  # of the largest margin: at it nothing is left to choose by
NETWORK_MARGIN = 4.5  # beyond the first one, of models of which s* is not known
NEWTON_STEPS = 6  # towards s*
CLOSE = 0.01  # of a standard error: near enough to s*
ROUGH_GAP = 1e-4  # target gap on the way there
MIN_ERROR = 1e-3  # of the largest standard error: a smaller one is taken for this
SAFE_RATE = 5.0  # standard errors below its bound: a safer model is not needed
MIN_RATE = 1e-4  # a bound below it asks for the losses of this one
NO_BOUND = 1e6  # of a loss that is not bounded
ON_RATES = Missing("bounds are on rates, and the smallest ones are known of losses")
UNBOUNDED = Missing("the losses of no model on the path have a bound")
NO_BETS = Missing("what is promised is shown by calibration rows")
STOPPED = {
    "diverged": "the run diverged before its models could be tested",
    "interrupted": "the run was interrupted before its models could be tested",
}


# A path of models, and its test


def check_certifiable(
    setting: Setting, constraint: Constraint | None, problem: Problem
) -> None:
    """Refuse to certify without bounds, bounded losses, or rows of other people."""
    check_bounded(constraint, problem)
    data, many = setting.data, calibration_overlap(setting)
    uncounted = data.weighted or problem.weighted or data.several
    if constraint is not None and constraint.goal != "loss" and uncounted:
        raise DataError("rates-uncounted")
    if data.by_person and many:
        raise DataError("people-shared", many=many)


def check_bounded(constraint: Constraint | None, problem: Problem) -> None:
    """Refuse to certify without bounds, or without a bound on every loss."""
    if constraint is None or constraint.minimax or not problem.n_cells:
        raise UsageError("needs-bound:check-bounded")
    if constraint.goal == "loss" and not problem.task.model.loss_bounds:
        raise UsageError("unbounded-loss:check-bounded")


def calibration_split(splits: Sequence[str]) -> str:
    """Return the rows to test on: those set apart for it, or else the test rows."""
    for split in (CALIBRATION, "test"):
        if split in splits:
            return split
    raise UsageError("needs-calibration")


def calibration_overlap(setting: Setting) -> int | None:
    """Return how many of these rows are trained on, too; None if unknown."""
    if calibration_split(setting.splits) == CALIBRATION:
        return setting.calibration_overlap
    return setting.data.overlap


def fit_path(
    problem: Problem,
    method: Method,
    wanted: Wanted,
    *,
    models: int | None,
    overlap: int | None = None,
    rates: bool = False,
) -> Flow[tuple[Fitted, ModelPath | Missing]]:
    """Train a path of models, test it, and measure the one that is shipped.

    Parameters
    ----------
    problem, method, wanted
        As for `fit.fit`.
    models
        Of the path, at most. More cost time, and no confidence.
    overlap
        Calibration rows that are training rows, too; None if unknown.
    rates
        Whether the bounds are on rates.
    """
    split, shown = calibration_split(wanted.splits), reported(problem)
    on_training_rows, trained_for = replace(wanted, splits=("train",)), problem
    if rates:  # nothing is proved of bounds that only stand in for others
        wanted = replace(wanted, smallest=False)
        on_training_rows = replace(on_training_rows, smallest=False)
        trained_for = problem.with_bounds(np.full(problem.n_cells, NO_BOUND))
    asked = np.zeros(problem.n_cells) if rates else None  # they do not count for M
    first = yield from fit(
        trained_for, method, on_training_rows, watched=not rates, asked=asked
    )
    rows = yield from expected_rows(shown, (split,))
    if first.run.stopped is not None:
        none = Missing(STOPPED[first.run.stopped])
        return replace(first, measured=replace(first.measured, heldout=none)), none
    path = CandidatePath.near(first, problem, method, on_training_rows, rows, rates)
    trained = yield from path.fits(max_models(problem, models))
    fits = [one for one in trained if one.loss_bound is not None]
    fits.sort(key=path.safety, reverse=True)
    if not fits:  # by training rows: nothing can be certified of any of them
        flow = heldout_sample(shown, first.run.point.w, wanted, None, UNBOUNDED)
        held = yield from flow
        return replace(first, measured=replace(first.measured, heldout=held)), UNBOUNDED

    def tested(one: Fitted) -> Flow[Sample | Missing]:
        asked = replace(wanted, heldout=(split,), loss_bound=one.loss_bound)
        return heldout_sample(shown, one.run.point.w, asked, one.measured.seen, rows)

    samples = yield from gather(*map(tested, fits))
    candidates = [
        Candidate(
            path.safety(one),
            one.run.point.w.tolist(),
            one.loss_bound,
            replace(one.measured.seen.plain, people=one.measured.seen.people),
            held,
        )
        for one, held in zip(fits, samples, strict=True)
        if isinstance(held, Sample) and one.loss_bound is not None
    ]
    sure, bounds = wanted.confidence, problem.cells.bounds
    kept = sum(certified_models(candidates, bounds, 1.0 - sure, rates=rates))
    errors, chosen = path.errors.tolist(), max(0, kept - 1)
    found = ModelPath(split, sure, errors, candidates, chosen, overlap)
    shipped, others = fits[chosen], tuple(s for s in wanted.present if s != split)
    known = first.known(shipped.measured.seen, NO_BETS)
    known = replace(known, gap=shipped.measured.proofs.gap)
    measured = yield from measure(
        problem,
        shipped.run.point,
        replace(wanted, heldout=others, loss_bound=shipped.loss_bound),
        replace(known, least=ON_RATES) if rates else known,
    )
    if not others:
        measured = replace(measured, heldout=found.shipped.calibration)
    # Rounds are those of all models; shown are those of the shipped one.
    shift = 0.0 if rates else shipped.problem.cells.bounds - bounds
    past = [replace(r, violation=r.violation + shift) for r in shipped.run.history]
    rounds = sum(one.run.rounds for one in trained)
    run = replace(shipped.run, history=tuple(past), rounds=rounds)
    return replace(shipped, run=run, measured=measured), found


def find_safest(
    problem: Problem, method: Method, wanted: Wanted, rows: FloatArray
) -> Flow[Fitted]:
    """Train the model of a path that is tested first.

    Parameters
    ----------
    problem, method, wanted
        As for `fit.fit`; held-out rows are not asked about.
    rows
        Calibration rows of each cell, up to a factor.
    """
    on_training_rows = replace(wanted, splits=("train",))
    first = (yield from fit(problem, method, on_training_rows)).finished()
    if first is None:
        raise NotMetError(f"[run-stopped] {STOPPED['diverged']}")
    path = CandidatePath.near(first, problem, method, on_training_rows, rows)
    return max((yield from path.fits(2)), key=path.safety)


def max_models(problem: Problem, models: int | None) -> int:
    """Return how many models a path has at most."""
    if models is not None:
        return models
    costly = problem.access.elsewhere or proofs.unmeasurable(problem) is not None
    return COSTLY_MODELS if costly else DEFAULT_MODELS


@dataclass(frozen=True, eq=False)
class CandidatePath:
    """Models for tighter and tighter bounds, after the one that was trained first.

    `errors` are the standard errors se_z; `rates` says whether bounds are on rates.
    """

    first: Fitted
    problem: Problem
    method: Method
    wanted: Wanted
    errors: FloatArray
    rates: bool

    @classmethod
    def near(
        cls,
        first: Fitted,
        problem: Problem,
        method: Method,
        wanted: Wanted,
        rows: FloatArray,
        rates: bool = False,
    ) -> CandidatePath:
        """Take standard errors from the first model, by training rows (line 1).

        The variance of a rate is the binomial one, at the bound itself.
        """
        r, seen = problem.cells.bounds, first.measured.seen
        variances = r * (1.0 - r) if rates else seen.variances
        errors = np.sqrt(variances / np.maximum(rows, 1.0))
        largest = float(errors.max(initial=0.0))
        errors = np.maximum(errors, MIN_ERROR * (largest if largest > 0 else 1.0))
        return cls(first, problem, method, wanted, errors, rates)

    def safety(self, one: Fitted) -> float:
        """Return min_z (ζ_z − μ_z)/se_z on the training rows."""
        means = one.measured.seen.mean_of("wrong" if self.rates else "loss")
        return float(((self.problem.cells.bounds - means) / self.errors).min())

    def fits(self, many: int) -> Flow[list[Fitted]]:
        """Train the models, from the first to the safest (lines 2 and 3)."""
        first, asked = self.first, self.problem.cells.bounds
        low, bounds, unit = max(self.safety(first), 0.0), asked, self.errors
        safe = self.rates and self.safety(first) >= SAFE_RATE
        if many < 2 or safe or not self.problem.multiplier_bound > 0:
            return [first]
        if self.rates:
            guess = stand_in(asked)
            bounds = guess * float((first.measured.seen.own_means / guess).max())
            low, unit, asked = 0.0, bounds / MAX_MARGIN, np.zeros_like(asked)
        if proofs.unmeasurable(self.problem) is None:
            top = INSIDE * (yield from self._largest(bounds, unit))
        else:
            top = INSIDE * MAX_MARGIN if self.rates else low + NETWORK_MARGIN
        top = min(top, MAX_MARGIN)
        found, start = {low: first}, first
        margins = self._margins(low, top, many)
        for _ in range(2 if self.rates else 1):
            for margin in margins:
                one = yield from self._fit(bounds - margin * unit, start, asked)
                if one is None:
                    return list(found.values())
                found[margin] = start = one
                if self.rates and self.safety(one) >= SAFE_RATE:
                    break
            margins = self._between(found, many)
        return list(found.values())

    def _margins(self, low: float, top: float, many: int) -> list[float]:
        """Return the margins to train for, besides that of the first model."""
        if not top > low:
            return []
        if self.rates:  # the others are for where rates pass their bounds
            return np.linspace(low, top, max(2, many // 2))[1:].tolist()
        # Half of them below the margin at which models begin to be certified.
        bend = max(1.0, np.log2((top - low) / max(USUAL_MARGIN - low, 0.25)))
        steps = np.linspace(0.0, 1.0, many)[1:]
        return [float(low + (top - low) * step**bend) for step in steps]

    def _between(self, found: Mapping[float, Fitted], many: int) -> list[float]:
        """Return margins between the last that misses a bound and a safe one."""
        rooms = {margin: self.safety(one) for margin, one in found.items()}
        low = max((m for m, room in rooms.items() if room < 0), default=0.0)
        above = [m for m, room in rooms.items() if room >= USUAL_MARGIN and m > low]
        high = min(above, default=max(found))
        between = np.linspace(low, high, max(0, many - len(found)) + 2)[1:-1]
        return between.tolist() if high > low else []

    def _fit(
        self, bounds: FloatArray, start: Fitted, asked: FloatArray
    ) -> Flow[Fitted | None]:
        """Train for other bounds, from where a model ended; None if it diverges."""
        wanted = replace(self.wanted, baseline=False, smallest=False)
        most = start.problem.multiplier_bound
        problem = replace(self.problem.with_bounds(bounds), multiplier_bound=most)
        near = Start.of(start.run, start.problem)
        flow = fit(problem, self.method, wanted, watched=False, start=near, asked=asked)
        return (yield from flow).finished()

    def _largest(self, bounds: FloatArray, unit: FloatArray) -> Flow[float]:
        """Return s*, the largest margin that can be met, of those in use (line 2).

        −s* is the root of φ(t) = min_w max_z (R_z(w) − ζ_z − t·se_z), which is convex
        and falls with slope −λᵀse: Newton's iterates come up to it from below.
        """
        t, cells = -MAX_MARGIN / INSIDE, self.problem.n_cells
        rough = Auto(target_gap=ROUGH_GAP, multiplier_bound=1.0, risk_weight=0.0)
        start = Start.of(self.first.run, self.first.problem)
        for _ in range(NEWTON_STEPS):
            asked = bounds + t * unit
            minimax = replace(
                self.problem.with_bounds(asked - float(asked.max())),
                risk_weight=0.0,
                multiplier_bound=1.0,
            )
            near = start.sharing(1.0, cells)
            run = yield from rounds(minimax, rough, start=near)
            if run.stopped == "interrupted":
                raise KeyboardInterrupt
            if run.stopped is not None:
                break
            at = run.expansion
            if at is None:
                at = yield from expand(minimax, run.point.w)
            excess = float((at.violation + minimax.cells.bounds - asked).max())
            share = float(run.point.multipliers @ unit)
            start = Start.of(run, minimax)
            if excess <= CLOSE * share or not share > 0:
                break
            t += excess / share
        return -t


def stand_in(rates: FloatArray) -> FloatArray:
    """Return φ(r): the log loss of who guesses a rate r where it is right to.

    The entropy up to 1/2, and then −log(1 − r), which goes on growing.
    """
    r = np.clip(rates, MIN_RATE, 1.0 - MIN_RATE)
    surprise = -np.log1p(-r)
    return np.where(r <= 0.5, -r * np.log(r) + (1.0 - r) * surprise, surprise)


# Later


def certify(
    solution: Any, *, confidence: float | None = None, candidates: int | None = None
) -> Certificate:
    """Say again what holds for a model, at another confidence: no row is needed.

    A number is stated only where its assumptions hold; otherwise the statement says
    "not available" and why. Without further wishes it is ``solution.certificate``. By
    other rows, `audit` certifies a model.

    Parameters
    ----------
    solution
        What `solve` returned, or a run directory that `pffl.runs.load` has read.
    confidence
        1 − δ of the statements on new people. Default: as the run declared.
    candidates
        How many models were compared on the test rows before this one was chosen, all
        fixed before these were used: δ is shared among them. What the folder of a run
        directory counts need not be said.

    Returns
    -------
    Certificate
        Every claim with its grounds.

    Raises
    ------
    UsageError
        A parameter is out of its range, or a model has no evidence.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), random_state=0)
    >>> pffl.certify(solution, confidence=0.99).holds("holdout")
    False
    """
    evidence = getattr(solution, "evidence", None)
    if evidence is None:
        raise UsageError("no-evidence")
    terms = evidence.terms
    if confidence is not None:
        terms = replace(terms, confidence=probability("confidence", confidence))
    if candidates is not None:
        many = int(whole("candidates", candidates, least=1))
        terms = replace(terms, candidates=many)
    found = solution.looks.counted(replace(evidence, terms=terms))
    return conclude(found).certificate


def chosen_among(evidence: Evidence, data: Data, splits: Sequence[str]) -> int:
    """Return among how many models some of these rows chose the one of a run.

    Any other statement on it by the same rows has to pay for that.
    """
    path = known(evidence.path)
    if path is None:
        return 1
    then, now = evidence.data.splits.get(path.split), [*map(data.splits.get, splits)]
    same = then in now
    if then is None or None in now:  # rows out of reach: known by their name
        same = path.split in splits
    return len(path.candidates) if same else 1


def overlap_of(
    here: Federation | None, splits: Sequence[str], recorded: str | None
) -> int | None:
    """Rows of the splits that were trained on; None if unknown."""
    if here is None or (recorded is not None and recorded != here.fingerprint):
        return None
    found = 0
    for split in splits:
        if split == "train":
            found += here.rows("train")
        elif split == "test":
            found += here.overlap
        elif split in here.splits:
            found += here.repeated(split)
    return found
