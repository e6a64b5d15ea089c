"""From evidence to what is said of it: status, sentence, table, certificate, result.

Each is a pure function of `Evidence`, and each number that a user meets is made here or
in `training` and `unseen`, once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np

from pffl.evidence import noise, promise, sites, training, unseen
from pffl.evidence.advice import binding, no_better
from pffl.evidence.certificate import Certificate, Statement, Status
from pffl.evidence.metrics import GroupRates, Metrics, metrics, rates
from pffl.evidence.noise import FEWEST, Noise
from pffl.evidence.record import (
    Evidence,
    Missing,
    Pair,
    Sample,
    Settling,
    Training,
    known,
)
from pffl.evidence.training import TOLERANCE, CellLosses, Converged, converged, losses
from pffl.records import Record
from pffl.text import down, up, words
from pffl.typing import FloatArray

EXIT_CODES: dict[Status, int] = {
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
SAID = ("verdict", "sentence")  # of each of the three, by a certificate
#: What to raise, of a method that was stopped too early; the first that it has.
EFFORT = ("dual_rounds", "rounds", "max_rounds", "iterations")
SHARP = 1e-5  # of a smallest bound: its ends are one figure if they are this close
RESULT, RESULT_VERSION = "pffl.result", 3


def exit_code(e: Evidence) -> int:
    """Return what a command ends with: a promise that was asked for is required."""
    found = EXIT_CODES[judge(e)[0]]
    path = known(e.path)
    lacking = promise.asked(e) and not (path and promise.holds(e, path))
    return 4 if found == 0 and lacking else found


def judge(e: Evidence) -> tuple[Status, str]:
    """Return the status on the rows at hand, and the sentence that says it."""
    if e.stopped == "diverged":
        return "diverged", (
            "The run diverged and stopped at the last finite model: use a smaller "
            "step size."
        )
    if e.stopped == "interrupted":
        return "interrupted", "The run was interrupted; its model is unfinished."
    if isinstance(e.privacy, Noise):
        return noise.judge(e, e.privacy)
    if not e.promise:
        sentence = _minimax(e) if e.minimax else "No bound was asked for."
        if converged(e) == "no":
            return "not converged", f"{_unfinished(e)} {sentence}"
        return "no bounds", sentence
    cells = losses(e, e.seen)
    if cells.empty:
        return "not measured", f"No rows to judge by: {', '.join(cells.empty)}."
    return _bounded(e, cells)


def _minimax(e: Evidence) -> str:
    cells = losses(e, e.seen)
    worst = int(np.nanargmax(cells.means))
    text = f"The worst cell is '{cells.names[worst]}' with a mean loss of "
    text += words(float(cells.means[worst]))
    pair = known(e.proofs.gap)
    if pair is None:
        return f"{text}."
    text += f", within {up(pair.gap)} of the smallest possible"
    if pair.radius is not None:
        text += f" among models with weights of length at most {words(pair.radius)}"
    return f"{text}."


def _bounded(e: Evidence, cells: CellLosses) -> tuple[Status, str]:
    worst, where = cells.worst, training.rows_word(e)
    excess, facts = float(cells.violation[worst]), cells.describe(worst)
    unfinished = converged(e) == "no"
    if cells.kept and unfinished:
        return "not converged", (
            f"{_unfinished(e)} Every bound is met on {where}, but a model with less "
            f"overall loss may meet them, too; the closest case: {facts}."
        )
    if cells.kept:
        return "met", f"Every bound is met on {where}; the closest case: {facts}."
    if training.impossible(e):
        return "impossible", (
            f"{training.nobody(e)}; the worst case here: {facts}."
            f"{_smallest_possible(e)}"
        )
    if unfinished:
        return "not converged", (
            f"{_unfinished(e)} Not every bound is met; the worst case: {facts}."
        )
    if not cells.missed:
        return "met", (
            f"Every bound is met on {where}, up to a tolerance of {words(TOLERANCE)} "
            f"of it; the worst case: {facts}."
        )
    allowed = training.slack(e)
    if allowed is not None and excess <= allowed:
        return "not met", (
            f"Not every bound is met; the worst case: {facts}. There is a model that "
            f"meets them all; the multiplier bound {words(e.terms.multiplier_bound)} "
            f"is too small to get there, and explains up to {up(allowed)}."
        )
    return "not met", f"Not every bound is met; the worst case: {facts}."


def _unfinished(e: Evidence) -> str:
    """Say that the run did not converge, and what to raise."""
    run = known(e.training)
    if run is not None and run.settling is not None:
        return _unsettled(e, run, run.settling)
    pair, target = known(e.proofs.gap), training.target_of(e)
    if pair is None or target is None or not isinstance(e.training, Training):
        return "The run did not converge."
    method = e.training.method
    raised = [f"{name} (now {method[name]:,})" for name in EFFORT if name in method]
    advice = f": raise {raised[0]}" if raised else ""
    if e.training.rounds < method.get("max_rounds", 0):  # it saw that more are in vain
        advice = (
            ". Rounding hides the rest: a larger target_gap or l2, or a smaller "
            "multiplier_bound, would help"
        )
    return (
        f"The run did not converge: its duality gap is {up(pair.gap)}, the target "
        f"{words(target)}{advice}."
    )


def _unsettled(e: Evidence, run: Training, found: Settling) -> str:
    """Say whose loss still swung, and what to change."""
    z = found.widest
    text = "The run did not converge: "
    more = f"more rounds (now {run.rounds:,})"
    if found.rounds < 2:
        return f"{text}so few rounds cannot show whether losses settle. Use {more}."
    if z is not None and found.swing[z] is None:
        text += f"the loss of '{e.names[z]}' was not known in each of its last "
        return f"{text}{found.rounds:,} rounds."
    if z is not None:
        text += f"in its last {found.rounds:,} rounds the mean loss of '{e.names[z]}' "
        text += f"swung by {up(found.swing[z] or 0.0)} of what a constant guess loses "
        text += f"(its standard deviation), and {words(found.target)} is the most"
    if found.steady:
        return (
            f"{text}. The weights of the cells stood still (they moved by "
            f"{up(max(found.weights))} of all weight): the training itself drifts, "
            f"goes in waves or is noisy. Use {more}, or a smaller learning rate or "
            "momentum."
        )
    return (
        f"{text}. If it went up and down, use a smaller dual_step_size (None finds "
        f"one); if it still fell, {more}."
    )


def _smallest_possible(e: Evidence) -> str:
    """Say in words how far the bounds are from what is possible."""
    found, least = training.proof(e), known(e.proofs.excess)
    if found is None or least is None:
        return ""
    low, high = found[0], least.excess(e.bounds).upper
    if np.ptp(e.bounds) == 0:
        base = float(e.bounds[0])
        low, high = low + base, high + base
        top = up(high, digits=6)  # a bound is chosen by it
        at = f"lies between {down(low, digits=6)} and {top}"
        at = f"is {top}" if high - low <= SHARP * abs(high) else at
        return f" The smallest common bound that can be met {at}."
    return (
        f" All bounds together would have to rise by at least {down(low)}, and by "
        f"{up(high)} it is possible."
    )


def verdicts(e: Evidence) -> dict[str, dict[str, Any]]:
    """Return the three verdicts: on training rows, on test rows, for new people."""
    if isinstance(e.privacy, Noise) and e.stopped is None:
        return noise.verdicts(e, e.privacy)
    status, sentence = judge(e)
    promised, word = promise.statement(e), "not measured"
    if promised.available:
        words_of = {None: "no bounds", True: "certified", False: "not certified"}
        word = words_of[promised.holds]
    if isinstance(e.training, Missing):
        status, sentence = "not measured", _sentence(e.training)
    return {
        "training": {"verdict": status, "sentence": sentence},
        "test": _heldout(e),
        "new_people": {
            "verdict": word,
            "sentence": promise.in_short(e),
            "more_rows": promise.more_rows(e),
            **_of_path(e),
        },
    }


def _of_path(e: Evidence) -> dict[str, Any]:
    """Say which model of a path it is, and what could be promised if it is not shown.

    `rise` is what all bounds would have to be higher by.
    """
    path = known(e.path)
    if path is None:
        return {}
    return {
        "model": path.chosen + 1,
        "models": len(path.candidates),
        "calibration_rows": path.shipped.calibration.rows,
        "could_promise": promise.possible(e),
        "rise": promise.rise(e),
    }


def _sentence(part: Missing) -> str:
    """Say why a part is not there."""
    return f"{part.missing[:1].upper()}{part.missing[1:]}."


def _heldout(e: Evidence) -> dict[str, Any]:
    """Say how the cells stand on held-out rows: figures, and no promise."""
    if isinstance(e.heldout, Missing):
        return {"verdict": "not measured", "sentence": _sentence(e.heldout)}
    many = f"{e.heldout.rows:,}"
    rows = f"{many} held-out rows" if e.trained else f"the {many} rows used"
    rows += f", by {name}," if (name := unseen.named(e)) else ""
    path = known(e.path)
    if path is not None and path.split in e.heldout.splits:
        chosen = ", by which the model was chosen," * (len(path.candidates) > 1)
        rows = f"{many} calibration rows{chosen}"
    cells = losses(e, e.heldout)
    filled = np.flatnonzero(cells.counts > 0)
    if not len(filled):
        return {"verdict": "not measured", "sentence": "No test row is in a group."}
    if not e.promise:
        worst = int(filled[np.argmax(cells.means[filled])])
        text = (
            f"On {rows} the largest mean loss of a cell is "
            f"{words(cells.means[worst])}, of '{cells.names[worst]}'."
        )
        return {"verdict": "no bounds", "sentence": text}
    few = ", ".join(
        f"'{cells.names[z]}'" for z in np.flatnonzero(cells.counts < FEWEST)
    )
    told = f" Fewer than {FEWEST} rows, too few to judge by: {few}." if few else ""
    judged = np.flatnonzero(cells.counts >= FEWEST)
    if not len(judged):
        return {"verdict": "not measured", "sentence": f"{told[1:]}", "exceeded": []}
    above = [z for z in judged.tolist() if cells.violation[z] > 0]
    worst = int(judged[np.argmax(cells.violation[judged])])
    head = f"no {'other ' if few else ''}cell is above its bound"
    if above:
        head = f"{len(above):,} cells are above their bounds"
        head = "one cell is above its bound" if len(above) == 1 else head
    return {
        "verdict": "exceeded" if above else "not measured" if few else "within",
        "sentence": f"On {rows} {head}; {cells.describe(worst)}.{told}",
        "exceeded": [cells.names[z] for z in above],
    }


def smallest_bound(e: Evidence) -> float | None:
    """Return the smallest common bound that was met, where the bounds are impossible.

    (Or what all bounds must rise by, where they differ.) It is the upper end of what
    encloses the smallest of all, rounded up.
    """
    found = known(e.proofs.excess)
    if found is None or not training.impossible(e):
        return None
    common = float(np.ptp(e.bounds)) == 0
    rise = found.excess(e.bounds).upper
    return float(up(rise + (float(e.bounds[0]) if common else 0.0), digits=6))


def gap(e: Evidence) -> float | None:
    """Return ν of the pair; None where it was not measured."""
    return e.proofs.gap.gap if isinstance(e.proofs.gap, Pair) else None


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


def cell_results(e: Evidence) -> tuple[CellResult, ...]:
    """Return the rows of the verdict table."""
    nothing = np.full(len(e.cells), np.nan)
    test = e.heldout if isinstance(e.heldout, Sample) else None
    train_loss, test_loss = (
        e.means(e.seen),
        nothing if test is None else e.means(test),
    )
    bounds = promise.upper(e)
    counts = np.zeros(len(e.cells)) if test is None else test.of_cells("count")
    path = known(e.path)
    there = counts if path is None else path.shipped.calibration.of_cells("count")
    shown = nothing if bounds is None else np.where(there > 0, bounds, np.nan)
    before = known(e.before)
    samples = {} if before is None else before.samples
    old = {split: e.means(sample) for split, sample in samples.items()}
    alone = {one.cell: one.upper for one in e.proofs.reach}
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
            cell.constant,
            alone.get(cell.cell),
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
    return metrics(sample, e, n_cells=cells, judged=e.judged(sample))


def before_metrics(e: Evidence) -> dict[str, Metrics] | None:
    """Return the same of the model without bounds, by split; None if there is none."""
    before = known(e.before)
    if before is None:
        return None
    cells = len(e.cells) if e.promise or e.minimax else 0
    return {
        split: metrics(sample, e, n_cells=cells, judged=e.judged(sample))
        for split, sample in before.samples.items()
    }


def notes(e: Evidence) -> tuple[str, ...]:
    """Say what a reader must know."""
    out = [found] if (found := no_better(e)) is not None else []
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
    if isinstance(e.privacy, Missing):
        out.append(unseen.sharing(e))
    out += e.notes
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
    return Certificate(
        {key: {k: v[k] for k in SAID} for key, v in verdicts(e).items()},
        e.about.date,
        e.data.name,
        tuple(e.names),
        tuple(cell.bound if e.promise else None for cell in e.cells),
        e.terms.confidence,
        tuple(_statements(e)),
        fingerprints(e),
        notes(e),
    )


def certificate_file(e: Evidence) -> dict[str, Any]:
    """Return what certificate.json holds: the claims, every figure, the evidence."""
    inside = {"figures": result(e), "evidence": e.as_dict()}
    return {**certificate(e).as_dict(), **inside}


def _statements(e: Evidence) -> list[Statement]:
    """Return all statements; under noise only those that are made for it."""
    if isinstance(e.privacy, Noise):
        return noise.statements(e, e.privacy)
    of_rows = [*training.statements(e), *sites.statements(e)]
    promised = promise.statement(e)
    implied = unseen.implied(e, promised)
    return [*of_rows, promised, *implied, *unseen.statements(e)]


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
        See the function of that name.
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


def site_result(e: Evidence) -> SiteResult | None:
    """Return what is said of sites; None where silos are in one process."""
    if isinstance(e.sites, Missing) or isinstance(e.privacy, Noise):
        return None
    text = sites.statement(e).text
    return SiteResult(e.sites.names, e.sites.masked, text, sites.rows_of(e))


def result(e: Evidence) -> dict[str, Any]:
    """Return what `result.json` holds."""
    status, sentence = judge(e)
    run = e.training if isinstance(e.training, Training) else None
    allowed = training.slack(e)
    found = known(e.proofs.excess) if training.impossible(e) else None
    built = Result(
        status=status,
        converged=converged(e),
        message=sentence,
        verdicts=verdicts(e),
        warning=no_better(e),
        method=None if run is None else run.method,
        chosen=None if run is None else run.chosen,
        constraint=None if run is None else run.constraint,
        model=e.model.described,
        weighting=e.terms.weighting,
        seed=None if run is None else run.seed,
        rounds=None if run is None else run.rounds,
        queries=None if run is None else run.queries,
        seconds=None if run is None else round(run.seconds, 3),
        gap=gap(e),
        slack=allowed,
        cells=list(cell_results(e)),
        binding=binding(e),
        groups=rates(e),
        train=split_metrics(e, "train"),
        test=split_metrics(e, "test"),
        before=before_metrics(e),
        confidence=e.terms.confidence,
        loss_bound=e.terms.loss_bound,
        radius=e.terms.radius,
        witness=None
        if found is None
        else dict(zip(e.names, found.multipliers, strict=True)),
        smallest_bound=smallest_bound(e),
        sites=site_result(e),
        privacy=noise.result(e, e.privacy) if isinstance(e.privacy, Noise) else None,
        data=Facts(**{f.name: getattr(e.data, f.name) for f in fields(Facts)}),
        notes=e.notes,
        versions=e.versions,
    )
    return {"format": RESULT, "version": RESULT_VERSION, **asdict(built)}
