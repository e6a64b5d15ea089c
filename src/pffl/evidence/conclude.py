"""`conclude`: from evidence to everything that is said of it, once.

Terminal, page, card, result.json, certificate.json and exit code read `Conclusions`;
none of them computes a figure. Two conclusions that contradict each other are refused
before anybody sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from pffl.errors import PFFLError
from pffl.evidence import sites
from pffl.evidence.certificate import Certificate, Statement, Status
from pffl.evidence.judged import Converged, Judged, Losses, tolerance, unmoved
from pffl.evidence.metrics import GroupRates, Metrics, metrics, rates
from pffl.evidence.record import Evidence, Missing, Training, known
from pffl.evidence.sentences import say
from pffl.evidence.statements import sharing, statements
from pffl.evidence.verdicts import (
    Verdict,
    binding,
    judge,
    kept_within,
    new_people,
    no_better,
    noticed,
    remarks,
    test,
    training,
)
from pffl.records import Record
from pffl.typing import FloatArray

EXIT_CODES: dict[str, int] = {
    "met": 0,
    "no bounds": 0,
    "not met": 4,
    "impossible": 4,
    "not converged": 4,
    "not measured": 4,
    "not decided": 4,
    "diverged": 4,
    "interrupted": 130,
}
RESULT, RESULT_VERSION = "pffl.result", 3
ROUNDING = 1e-9  # of a figure


@dataclass(frozen=True)
class CellResult(Record):
    """One cell's row of the verdict table.

    `bound` and `violation` are None where no bound was asked for. `test_upper` bounds
    the mean loss of unseen people, each cell by itself; the losses `before` are those
    of the same model fitted without bounds, and `constant` is that of guessing the
    cell's own rates (or mean) for everyone in it; `alone` is the lowest that was found
    for it, whatever the others', where that was asked for.
    """

    cell: str
    bound: float | None
    count: int
    train_loss: float
    violation: float | None
    multiplier: float
    test_loss: float | None
    test_count: int
    test_upper: float | None
    before_train_loss: float | None = None
    before_test_loss: float | None = None
    constant: float | None = None
    alone: float | None = None


@dataclass(frozen=True, eq=False)
class Conclusions:
    """Every figure, verdict and statement that follows from evidence.

    Attributes
    ----------
    status, message
        The verdict on the rows at hand, in a word and in a sentence.
    verdicts
        On training rows, on test rows, for new people.
    cells
        The figures of each cell.
    losses
        Mean losses with their ends, on ``train`` and ``test`` rows.
    rates, train, test, before
        Rates of groups, and figures of all rows, with bounds and without.
    certificate
        Everything that is claimed, with its grounds; None of a run that was
        interrupted.
    tested
        What came of the models of a path that were tested.
    warning, binding, limits, remarks
        For whom the model is no better than a guess; whom bounds bind; between what
        predictions are kept; and what a reader of all figures should know.
    noticed
        Whether the limits of predictions change a digit that is shown.
    """

    evidence: Evidence
    status: Status
    message: str
    verdicts: Mapping[str, Verdict]
    exit_code: int
    converged: Converged
    gap: float | None
    slack: float | None
    smallest_bound: float | None
    witness: Mapping[str, float] | None
    cells: tuple[CellResult, ...]
    losses: Mapping[str, Losses]
    rates: list[GroupRates]
    train: Metrics
    test: Metrics | None
    before: Mapping[str, Metrics] | None
    certificate: Certificate
    tested: tuple[bool, ...]
    rise: float | None
    asked: bool
    warning: str | None
    binding: str | None
    limits: str | None
    noticed: bool
    remarks: list[str]

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The claims."""
        return self.certificate.statements

    def result(self) -> dict[str, Any]:
        """Return what result.json holds."""
        return {"format": RESULT, "version": RESULT_VERSION, **asdict(_result(self))}

    def certified(self) -> dict[str, Any]:
        """Return what certificate.json holds: claims, every figure, the evidence."""
        inside = {"figures": self.result(), "evidence": self.evidence.as_dict()}
        return {**self.certificate.as_dict(), **inside}


def conclude(e: Evidence) -> Conclusions:
    """Draw every conclusion; refuse evidence that contradicts itself."""
    j = Judged(e)
    judged, short = judge(j), new_people(j)
    verdicts = {"training": training(j, judged), "test": test(j), "new_people": short}
    status, found = judged.word, EXIT_CODES[judged.word]
    excess = known(e.proofs.excess) if j.proof is not None else None
    cells = len(e.cells) if e.promise or e.minimax else 0
    samples = {"train": e.seen, "test": known(e.heldout)}
    measured = {
        split: metrics(sample, e, n_cells=cells, judged=e.judged(sample))
        for split, sample in samples.items()
        if sample is not None
    }
    before, losses = known(e.before), {"train": j.train}
    losses |= {} if j.test is None else {"test": j.test}
    warning = no_better(j)
    c = Conclusions(
        evidence=e,
        status=status,  # type: ignore[arg-type]
        message=judged.sentence,
        verdicts=verdicts,
        exit_code=4 if found == 0 and j.asked and not j.by_path else found,
        converged=j.converged,
        gap=j.gap,
        slack=j.slack,
        smallest_bound=j.smallest_bound,
        witness=None
        if excess is None
        else dict(zip(e.names, excess.multipliers, strict=True)),
        cells=_cells(j),
        losses=losses,
        rates=rates(j),
        train=measured["train"],
        test=measured.get("test"),
        before=None
        if before is None
        else {
            split: metrics(sample, e, n_cells=cells, judged=e.judged(sample))
            for split, sample in before.samples.items()
        },
        certificate=Certificate(
            {key: one.certified() for key, one in verdicts.items()},
            e.about.date,
            e.data.name,
            tuple(e.names),
            tuple(cell.bound if e.promise else None for cell in e.cells),
            e.terms.confidence,
            tuple(statements(j, judged.said, short.said)),
            fingerprints(e),
            _notes(j, warning),
        ),
        tested=tuple(j.tested),
        rise=j.rise,
        asked=j.asked,
        warning=warning,
        binding=binding(j),
        limits=kept_within(j),
        noticed=noticed(j),
        remarks=remarks(j),
    )
    _check(j, c)
    return c


def _cells(j: Judged) -> tuple[CellResult, ...]:
    """Return the rows of the verdict table."""
    e, nothing = j.e, np.full(len(j.e.cells), np.nan)
    test, path = j.test, known(j.e.path)
    counts = np.zeros(len(e.cells)) if test is None else test.counts
    there = counts if path is None else path.shipped.calibration.of_cells("count")
    shown = nothing if j.upper is None else np.where(there > 0, j.upper, np.nan)
    before = known(e.before)
    samples = {} if before is None else before.samples
    old = {split: e.means(sample) for split, sample in samples.items()}
    alone = {one.cell: one.upper for one in e.proofs.reach}
    return tuple(
        CellResult(
            cell.cell,
            cell.bound if e.promise else None,
            int(e.seen.cells["count"][z]),
            float(j.train.means[z]),
            float(j.train.means[z] - cell.bound) if e.promise else None,
            cell.multiplier,
            _number(nothing if test is None else test.means, z),
            int(counts[z]),
            _number(shown, z),
            _number(old.get("train", nothing), z),
            _number(old.get("test", nothing), z),
            cell.constant,
            alone.get(cell.cell),
        )
        for z, cell in enumerate(e.cells)
    )


def _number(values: FloatArray, z: int) -> float | None:
    return None if np.isnan(values[z]) else float(values[z])


def _notes(j: Judged, warning: str | None) -> tuple[str, ...]:
    """Say what a reader must know."""
    e, out = j.e, [] if warning is None else [warning]
    out += [say("other data")] if e.data.other else []
    out += [say("scope")] if e.trained else []
    out += [sharing(j)] if e.noise is None else []
    return (*out, *e.notes)


def fingerprints(e: Evidence) -> dict[str, str]:
    """Hashes of what is certified."""
    found = {"model": e.model.fingerprint, "schema": e.data.schema}
    if e.data.fingerprint is not None:
        found["data"] = e.data.fingerprint
    here = e.data.fingerprint == e.data.trained_on and e.trained
    if e.data.trained_on is not None and not here:
        found["trained on"] = e.data.trained_on
    return found


# result.json


@dataclass(frozen=True)
class Facts(Record):
    """What result.json says of the data; `card` as in `record.Data`."""

    name: str
    silos: int
    schema: str
    synthetic: bool | None
    fingerprint: str | None
    notes: list[str]
    card: dict[str, Any] | None


@dataclass(frozen=True)
class SiteResult(Record):
    """What any one site could have hidden, in words and for each cell.

    `cells` have for each: how many sites have rows in it, the lowest and highest mean
    loss of a site, where it may be shown, and its mean loss at most; none of them where
    the figures of single sites are not known, as under masks.
    """

    names: list[str]
    masked: int
    sentence: str
    cells: list[dict[str, Any]]


@dataclass(frozen=True)
class Result(Record):
    """What result.json holds: the verdicts, and every number that is shown of a run.

    Attributes
    ----------
    verdicts
        On training rows, on test rows, for new people.
    warning
        For whom the model is no better than a constant guess; None for nobody.
    chosen
        Why this method, in words, where it was chosen.
    binding
        Whom the bounds bind, in words.
    before
        What `train` and `test` are of the same model without bounds.
    witness
        Weights of the cells that prove the bounds impossible.
    smallest_bound
        The smallest common bound that was met, where the bounds are impossible; or what
        all bounds must rise by, where they differ.
    sites
        What any one site could have hidden, where rows are elsewhere.
    privacy
        What noise protects: ε, δ, the noise of each release, and the ends of the cells'
        training losses, all cells together; None without noise.
    """

    status: Status
    converged: Converged
    message: str
    verdicts: dict[str, dict[str, Any]]
    warning: str | None
    method: dict[str, Any] | None
    chosen: str | None
    constraint: dict[str, Any] | None
    model: dict[str, Any]
    weighting: str
    seed: int | None
    rounds: int | None
    queries: dict[str, int] | None
    seconds: float | None
    gap: float | None
    slack: float | None
    cells: list[CellResult]
    binding: str | None
    groups: list[GroupRates]
    train: Metrics | None
    test: Metrics | None
    before: dict[str, Metrics] | None
    confidence: float
    loss_bound: float | None
    radius: float
    witness: dict[str, float] | None
    smallest_bound: float | None
    sites: SiteResult | None
    privacy: dict[str, Any] | None
    data: Facts
    notes: list[str]
    versions: dict[str, str]


def _result(c: Conclusions) -> Result:
    e = c.evidence
    run = e.training if isinstance(e.training, Training) else None
    return Result(
        status=c.status,
        converged=c.converged,
        message=c.message,
        verdicts={key: one.as_dict() for key, one in c.verdicts.items()},
        warning=c.warning,
        method=None if run is None else run.method,
        chosen=None if run is None else run.chosen,
        constraint=None if run is None else run.constraint,
        model=e.model.described,
        weighting=e.terms.weighting,
        seed=None if run is None else run.seed,
        rounds=None if run is None else run.rounds,
        queries=None if run is None else run.queries,
        seconds=None if run is None else round(run.seconds, 3),
        gap=c.gap,
        slack=c.slack,
        cells=list(c.cells),
        binding=c.binding,
        groups=c.rates,
        train=c.train,
        test=c.test,
        before=None if c.before is None else dict(c.before),
        confidence=e.terms.confidence,
        loss_bound=e.terms.loss_bound,
        radius=e.terms.radius,
        witness=None if c.witness is None else dict(c.witness),
        smallest_bound=c.smallest_bound,
        sites=_site_result(c),
        privacy=_privacy(c),
        data=Facts(**{f.name: getattr(e.data, f.name) for f in fields(Facts)}),
        notes=e.notes,
        versions=e.versions,
    )


def _site_result(c: Conclusions) -> SiteResult | None:
    """Return what is said of sites; None where silos are in one process."""
    e = c.evidence
    if isinstance(e.sites, Missing) or e.noise is not None:
        return None
    found = c.certificate.of_kind("sites")
    text = (found[0] if found else sites.statement(e)).text
    return SiteResult(e.sites.names, e.sites.masked, text, sites.rows_of(e))


def _privacy(c: Conclusions) -> dict[str, Any] | None:
    """Return what noise protects; `cells` are the ends of training losses."""
    noise, cells = c.evidence.noise, c.losses["train"]
    if noise is None:
        return None
    plain = {k: v for k, v in asdict(noise).items() if k not in ("seen", "heldout")}
    ends = [
        {"cell": name, "lower": float(cells.low[z]), "upper": float(cells.high[z])}
        for z, name in enumerate(cells.names)
    ]
    spent = None if noise.repeatable else noise.epsilon_spent
    return {**plain, "spent": spent, "cells": ends}


# One check over every result before anybody sees it


class ContradictionError(PFFLError):
    """Two figures of a result contradict each other: a fault of pffl."""

    code = "figures-contradict"


def _check(j: Judged, c: Conclusions) -> None:
    if j.e.stopped is not None or j.e.noise is not None:
        return
    found = [_certified(j), _smallest(j, c), _ended(j, c), _limits(j)]
    if told := [text for text in found if text is not None]:
        raise ContradictionError(
            f"[figures-contradict] nothing is shown: {'; '.join(told)}. This is a "
            "fault of pffl: please report it"
        )


def _certified(j: Judged) -> str | None:
    """A certified upper end is never below the mean of the same rows."""
    sample, ends = j.people.usable, j.people.upper
    if sample is None or ends is None:
        return None
    means = j.e.means(sample)
    if sample.people:  # what is bounded is the mean over people
        count = sample.of_people("count")
        means = sample.of_people("bounded_loss") / np.where(count > 0, count, np.nan)
    for name, mean, end in zip(j.e.names, means, ends, strict=True):
        if end < mean * (1 - ROUNDING):
            return f"'{name}' has a loss of {mean:g}, certified to be at most {end:g}"
    return None


def _smallest(j: Judged, c: Conclusions) -> str | None:
    """No common bound that is met is below the smallest that is possible."""
    least, bounds = known(j.e.proofs.least), j.e.bounds
    if least is None or c.status != "met" or np.ptp(bounds) > 0:
        return None
    low = least.enclosed(j.longest)[0].lower
    if low <= bounds[0] + tolerance(j.e.scales, bounds).max():
        return None
    return f"a bound of {bounds[0]:g} is met, and none below {low:g} is possible"


def _ended(j: Judged, c: Conclusions) -> str | None:
    """The exit code is 0 where, and only where, nothing that was asked for lacks."""
    status, new = (c.verdicts[key].word for key in ("training", "new_people"))
    shown = new == "certified" or not j.asked
    good = status in ("met", "no bounds") and shown
    if j.e.trained and good != (c.exit_code == 0):
        return f"'{status}' and '{new}' end with exit code {c.exit_code}"
    return None


def _limits(j: Judged) -> str | None:
    """Limits of predictions change no training verdict, and no mean loss by much."""
    e = j.e
    own = e.trained and e.data.fingerprint == e.data.trained_on
    if not own or e.terms.loss_bound is None:
        return None  # they were chosen on other rows
    bounds = e.bounds if e.promise else np.zeros(len(e.cells))
    if unmoved(e.seen, bounds, tolerance(e.scales, bounds), e.model.unit):
        return None
    return f"limits at M = {e.terms.loss_bound:g} change the losses of training rows"
