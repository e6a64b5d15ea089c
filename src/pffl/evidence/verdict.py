"""From evidence to what is said of it: status, sentence, table, certificate, result.

Each is a pure function of `Evidence`, and each number that a user meets is made here or
in `training` and `unseen`, once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np

from pffl.evidence import training, unseen
from pffl.evidence.certificate import Certificate, Status
from pffl.evidence.evidence import Evidence, Missing, Pair, Sample, Training, known
from pffl.evidence.metrics import GroupRates, Metrics, metrics, rates
from pffl.evidence.training import TOLERANCE, CellLosses, losses
from pffl.records import Record
from pffl.text import down, up, words
from pffl.typing import FloatArray

NEAR = 1e-3  # of a bound, in loss
EXIT_CODES: dict[Status, int] = {
    "met": 0,
    "within_slack": 0,
    "not_met": 4,
    "infeasible": 4,
    "diverged": 4,
    "interrupted": 130,
}
RESULT, RESULT_VERSION = "pffl.result", 2


def judge(e: Evidence) -> tuple[Status, str]:
    """Return the status on the rows at hand, and the sentence that says it."""
    if e.stopped == "diverged":
        return "diverged", (
            "The run diverged and stopped at the last finite model: use a smaller "
            "step size."
        )
    if e.stopped == "interrupted":
        return "interrupted", "The run was interrupted; its model is unfinished."
    if e.minimax:
        return "met", _minimax(e)
    if not e.promise:
        return "met", "No bound was asked for."
    cells = losses(e, e.seen)
    if cells.empty:
        return "not_met", f"No rows to judge by: {', '.join(cells.empty)}."
    return _bounded(e, cells)


def _minimax(e: Evidence) -> str:
    cells = losses(e, e.seen)
    worst = int(np.nanargmax(cells.means))
    text = f"The worst cell is '{cells.names[worst]}' with a mean loss of "
    text += words(float(cells.means[worst]))
    pair = known(e.proofs.gap)
    close = "" if pair is None else f", within {up(pair.gap)} of the smallest possible"
    return f"{text}{close}."


def _bounded(e: Evidence, cells: CellLosses) -> tuple[Status, str]:
    worst, where = cells.worst, training.rows_word(e)
    excess, facts = float(cells.violation[worst]), cells.describe(worst)
    tolerance = TOLERANCE if e.trained else 0.0
    if excess <= 0:
        return "met", f"Every bound is met on {where}; the closest case: {facts}."
    if training.impossible(e):
        return "infeasible", (
            f"{training.nobody(e)} meets all bounds, and this is proved; "
            f"the worst case here: {facts}.{_smallest_possible(e)}"
        )
    if excess <= tolerance:
        return "met", (
            f"Every bound is met on {where}, up to the tolerance {words(tolerance)}; "
            f"the worst case: {facts}."
        )
    allowed = training.slack(e)
    if allowed is not None and excess <= allowed.value:
        return "within_slack", (
            f"Not every bound is met; the worst case: {facts}. This is within the "
            f"slack of {up(allowed.value)} that the multiplier bound allows."
        )
    return "not_met", f"Not every bound is met; the worst case: {facts}."


def _smallest_possible(e: Evidence) -> str:
    """Say in words how far the bounds are from what is possible."""
    found, least = training.proof(e), known(e.proofs.excess)
    if found is None or least is None:
        return ""
    low, high = found[0], least.excess(e.bounds).upper
    if np.ptp(e.bounds) == 0:
        base = float(e.bounds[0])
        low, high = low + base, high + base
        return f" No common bound below {down(low)} can be met, and {up(high)} can."
    return (
        f" All bounds together would have to rise by at least {down(low)}, and by "
        f"{up(high)} it is possible."
    )


def verdicts(e: Evidence) -> dict[str, dict[str, Any]]:
    """Return the three verdicts: on the rows at hand, held-out rows, unseen people."""
    status, sentence = judge(e)
    held: dict[str, Any] = {"verdict": "not available"}
    if isinstance(e.heldout, Missing):
        held["reason"] = e.heldout.missing
    elif e.promise:
        means = e.heldout.uncut_means
        above = [n for n, m, b in zip(e.names, means, e.bounds, strict=True) if m > b]
        held = {"verdict": "above" if above else "within", "above": above}
    else:
        held = {"verdict": "measured"}
    promised = unseen.holdout(e)
    word = "not available"
    if promised.available and promised.holds is not None:
        word = "holds" if promised.holds else "not shown"
    return {
        "training": {"verdict": status, "sentence": sentence},
        "heldout": held,
        "unseen": {"verdict": word, "sentence": promised.text},
    }


def smallest_bound(e: Evidence) -> float | None:
    """Return the smallest common bound, where the bounds are impossible.

    (Or what all bounds must rise by, where they differ.) With impossible bounds the
    price is at B and the model no longer depends on the bounds: its worst loss is the
    smallest bound that the same run meets, a little above the smallest of all. Where it
    is far above, as after a method that knows no bounds, the latter is returned.
    """
    found = known(e.proofs.excess)
    if found is None or not training.impossible(e):
        return None
    own, least = float(losses(e, e.seen).violation.max()), found.excess(e.bounds).upper
    excess = own if own - least <= NEAR else least
    common = float(np.ptp(e.bounds)) == 0
    smallest = excess + (float(e.bounds[0]) if common else 0.0)
    return float(np.ceil(smallest * 1e6) / 1e6)


def gap(e: Evidence) -> float | None:
    """Return ν of the pair; None where it was not measured."""
    return e.proofs.gap.gap if isinstance(e.proofs.gap, Pair) else None


@dataclass(frozen=True)
class CellResult(Record):
    """One cell's row of the verdict table.

    `bound` and `violation` are None where no bound was asked for. `test_upper` bounds
    the mean loss of unseen people, each cell by itself; the losses `before` are those
    of the same model fitted without bounds.
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


def cell_results(e: Evidence) -> tuple[CellResult, ...]:
    """Return the rows of the verdict table."""
    nothing = np.full(len(e.cells), np.nan)
    test = e.heldout if isinstance(e.heldout, Sample) else None
    train_loss, test_loss = (
        e.seen.uncut_means,
        nothing if test is None else test.uncut_means,
    )
    bounds = unseen.upper(e)
    counts = np.zeros(len(e.cells)) if test is None else test.of_cells("count")
    shown = nothing if bounds is None else np.where(counts > 0, bounds, np.nan)
    before = known(e.before)
    samples = {} if before is None else before.samples
    old = {split: sample.uncut_means for split, sample in samples.items()}
    return tuple(
        CellResult(
            cell.cell,
            cell.bound if e.promise else None,
            int(e.seen.cells["count"][z]),
            float(train_loss[z]),
            float(train_loss[z] - cell.bound) if e.promise else None,
            cell.multiplier,
            _number(test_loss, z),
            int(counts[z]),
            _number(shown, z),
            _number(old.get("train", nothing), z),
            _number(old.get("test", nothing), z),
        )
        for z, cell in enumerate(e.cells)
    )


def _number(values: FloatArray, z: int) -> float | None:
    return None if np.isnan(values[z]) else float(values[z])


def split_metrics(e: Evidence, split: Literal["train", "test"]) -> Metrics | None:
    """Return risk, error and fairness gaps on training or held-out rows."""
    sample = e.seen if split == "train" else known(e.heldout)
    if sample is None:
        return None
    cells = len(e.cells) if e.promise or e.minimax else 0
    return metrics(sample, e, n_cells=cells)


def notes(e: Evidence) -> tuple[str, ...]:
    """Say what a reader must know."""
    out = []
    if e.data.other:
        out.append(
            "other data: these are not the rows that the model was trained on; see the "
            "fingerprints."
        )
    if e.trained:
        out.append(
            "It speaks of models of the same kind on the same scaled inputs, and of "
            "nobody outside the cells."
        )
    out.append(unseen.sharing(e))
    out += e.notes
    least = smallest_bound(e)
    if least is not None and np.ptp(e.bounds) == 0:
        out.append(f"The same run meets a common bound of {least:.6f}.")
    elif least is not None:
        out.append(f"The same run meets all bounds if each is raised by {least:.6f}.")
    return tuple(out)


def fingerprints(e: Evidence) -> dict[str, str]:
    """Hashes of what is certified."""
    found = {"model": e.model.fingerprint, "schema": e.data.schema}
    if e.data.fingerprint is not None:
        found["data"] = e.data.fingerprint
    here = e.data.fingerprint == e.data.trained_on and e.trained
    if e.data.trained_on is not None and not here:
        found["trained on"] = e.data.trained_on
    return found


def certificate(e: Evidence) -> Certificate:
    """Return everything that is claimed, with its grounds."""
    status, sentence = judge(e)
    return Certificate(
        (*training.statements(e), *unseen.statements(e)),
        status,
        sentence,
        e.terms.confidence,
        fingerprints(e),
        notes(e),
    )


@dataclass(frozen=True)
class Facts(Record):
    """What result.json says of the data; `card` as in `evidence.Data`."""

    name: str
    silos: int
    schema: str
    synthetic: bool | None
    fingerprint: str | None
    notes: list[str]
    card: dict[str, Any] | None


@dataclass(frozen=True)
class Result(Record):
    """What result.json holds: the verdicts, and every number that is shown of a run.

    Attributes
    ----------
    verdicts
        On the rows at hand, on held-out rows, for unseen people.
    witness
        Weights of the cells that prove the bounds impossible.
    smallest_bound
        See the function of that name.
    """

    status: Status
    message: str
    verdicts: dict[str, dict[str, Any]]
    method: dict[str, Any] | None
    constraint: dict[str, Any] | None
    model: dict[str, Any]
    weighting: str
    seed: int | None
    rounds: int | None
    questions: dict[str, int] | None
    seconds: float | None
    gap: float | None
    slack: float | None
    cells: list[CellResult]
    groups: list[GroupRates]
    train: Metrics | None
    test: Metrics | None
    confidence: float
    loss_bound: float | None
    radius: float
    witness: dict[str, float] | None
    smallest_bound: float | None
    data: Facts
    notes: list[str]
    versions: dict[str, str]


def result(e: Evidence) -> dict[str, Any]:
    """Return what `result.json` holds."""
    status, sentence = judge(e)
    run = e.training if isinstance(e.training, Training) else None
    allowed = training.slack(e)
    found = known(e.proofs.excess) if training.impossible(e) else None
    built = Result(
        status=status,
        message=sentence,
        verdicts=verdicts(e),
        method=None if run is None else run.method,
        constraint=None if run is None else run.constraint,
        model=e.model.described,
        weighting=e.terms.weighting,
        seed=None if run is None else run.seed,
        rounds=None if run is None else run.rounds,
        questions=None if run is None else run.questions,
        seconds=None if run is None else round(run.seconds, 3),
        gap=gap(e),
        slack=None if allowed is None else allowed.value,
        cells=list(cell_results(e)),
        groups=rates(e),
        train=split_metrics(e, "train"),
        test=split_metrics(e, "test"),
        confidence=e.terms.confidence,
        loss_bound=e.terms.loss_bound,
        radius=e.terms.radius,
        witness=None
        if found is None
        else dict(zip(e.names, found.multipliers, strict=True)),
        smallest_bound=smallest_bound(e),
        data=Facts(**{f.name: getattr(e.data, f.name) for f in fields(Facts)}),
        notes=e.notes,
        versions=e.versions,
    )
    return {"format": RESULT, "version": RESULT_VERSION, **asdict(built)}
