"""`conclude`: from evidence to all statements on it, once.

Terminal, page, card, result.json, certificate.json and exit code read `Conclusions`;
none of them computes a figure. What a sentence names is a figure of `Judged`, or a
further sentence of `Conclusions`: `Conclusions.say` looks them up by name. Two
conclusions that contradict each other are refused before anybody sees them.

Under noise no cell is called the worst: noise could have chosen it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pffl.bounds.infeasible import FAR
from pffl.errors import PFFLError
from pffl.evidence.figures import (
    FEWEST,
    TOLERANCE,
    Judged,
    Losses,
    limits,
    named,
    tolerance,
    unbounded,
    unmoved,
)
from pffl.evidence.rates import GroupRates, Metrics, metrics, ranking, rates
from pffl.evidence.record import Evidence, Missing, ModelPath, Sample, known
from pffl.evidence.statements import (
    SENTENCES,
    Certificate,
    Said,
    Verdict,
    names_in,
    statements,
)
from pffl.files import plain
from pffl.records import Record
from pffl.text import few
from pffl.typing import BoolArray

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
#: What to raise, of a method that was stopped too early; the first that it has.
EFFORT = ("dual_rounds", "rounds", "max_rounds", "iterations")
ROUNDING = 1e-9  # of a figure
SHARP = 1e-5  # of a smallest bound: its ends are one figure if they are this close
#: What bounds are on, by goal.
MEASURES = {
    "loss": "mean loss",
    "error": "error rate",
    "fnr": "false-negative rate",
    "fpr": "false-positive rate",
}
MIN_CHANGE = 1e-3  # of a mean loss, for a group to gain or lose
NO_MULTIPLIER = 1e-9  # multipliers whose sum is this small are 0
NEAR_BOUND = 0.99  # a mean loss from here on is at its bound


class ContradictionError(PFFLError):
    """Two figures of a result contradict each other: a fault of pffl."""

    code = "figures-contradict"


@dataclass(frozen=True)
class CellResult(Record):
    """One cell's row of the verdict table.

    Where bounds are on rates, what is called a loss is the rate: see ``goal``.
    `bound` and `violation` are None where no bound was asked for. `test_upper` bounds
    the mean loss of unseen people, each cell alone; the losses `before` are those
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


def conclude(e: Evidence) -> Conclusions:
    """Draw every conclusion; refuse contradictions of a finished run without noise."""
    c = Conclusions(e)
    found = [] if e.stopped or e.noise else [*c.contradictions()]
    if found:
        raise ContradictionError("figures-contradict", found="; ".join(found))
    return c


class Conclusions(Judged):
    """Every figure, verdict and statement that follows from evidence."""

    def say(self, key: str, /, **more: Any) -> Said:
        """Write a sentence: what it names is given, or found here.

        Where bounds are on rates, some sentences have other words.
        """
        if self.e.terms.on_rates and f"{key}.rate" in SENTENCES:
            key = f"{key}.rate"
        more = vars(self.e.terms) | more
        figures = {n: more[n] if n in more else getattr(self, n) for n in names_in(key)}
        return Said(key, figures)

    # What sentences name

    @property
    def rows(self) -> str:
        """The rows given. Who audits a model does not know what trained it."""
        run = known(self.e.training)
        if run is not None and run.method.get("kind") == "any_estimator":
            return "the training rows, cross-fitted"
        return "the training rows" if self.e.trained else "the rows used"

    @property
    def measure(self) -> str:
        """What bounds are on, in words."""
        return MEASURES[self.e.terms.goal]

    @property
    def weighted_mean(self) -> str:
        """The mean, as rows count."""
        return "weighted mean" if self.e.heldout_weighted else "mean"

    @property
    def many(self) -> int:
        """The number of bounds."""
        return len(self.e.cells)

    @property
    def by_whom(self) -> str:
        """Which model it is about, where it is one clipped for an audit."""
        return f", for {name}, " if (name := named(self.e)) else ""

    def names_of(self, which: BoolArray) -> str:
        """Return the names of some cells."""
        return few([f"'{self.e.names[z]}'" for z in np.flatnonzero(which)])

    def standing_of(self, cells: Losses, z: int) -> Said:
        """Say how cell z stands to its bound."""
        loss, bound = float(cells.means[z]), float(cells.bounds[z])
        side = "above" if loss > bound else "below"
        side = "at" if abs(loss - bound) <= cells.tolerance[z] else side
        figures = {"loss": loss, "bound": bound, "room": bound - loss}
        more = {"cell": cells.names[z], "excess": loss - bound}
        return self.say(f"cell.{side}", **figures, **more)

    @property
    def worst(self) -> Said:
        """How the worst cell stands on the rows given."""
        cells = self.losses["train"]
        return self.standing_of(cells, cells.worst)

    @cached_property
    def unfinished(self) -> Said:
        """That the run did not converge, and what to raise."""
        run = known(self.e.training)
        method = {} if run is None else run.method
        if run is not None and run.settled is False:
            return self.say("unsettled", rounds=run.rounds)
        if run is not None and run.rounds < method.get("max_rounds", 0):
            return self.say("unfinished.rounding")  # it saw that more do not help
        for name in EFFORT:
            if name in method:
                return self.say("unfinished.raise", name=name, now=method[name])
        return self.say("unfinished.gap")

    def limit_of(self, reach: float, seen: float) -> Said | str:
        """Say how far a proof reaches, if that is not a million times what was seen."""
        far = reach >= FAR * max(seen, self.longest)
        return "" if far else self.say("limit", reach=reach)

    @property
    def no_model(self) -> Said:
        """That no model meets all bounds, and of which models it is proved."""
        found, least = self.proof, known(self.e.proofs.least)
        limit = self.limit_of(found[1], least.longest) if found and least else ""
        return self.say("no model.within" if limit else "no model", limit=limit)

    @property
    def smallest(self) -> Said | str:
        """The smallest bound that can be met, or by how much all must rise."""
        found, least, bounds = self.proof, known(self.e.proofs.least), self.e.bounds
        if found is None or least is None:
            return ""
        low, high = found[0], least.excess(bounds).upper
        if np.ptp(bounds) > 0:
            return self.say("smallest.rise", low=low, high=high)
        low, high = low + float(bounds[0]), high + float(bounds[0])
        key = "sharp" if high - low <= SHARP * abs(high) else "between"
        return self.say(f"smallest.{key}", low=low, high=high)

    # Training rows

    @cached_property
    def judged(self) -> Said:
        """The verdict on the rows given."""
        e, cells = self.e, self.losses["train"]
        if e.stopped is not None:
            return self.say(f"training.{e.stopped}")
        if e.promise and cells.empty and self.noise is None:
            return self.say("training.not measured", cells=", ".join(cells.empty))
        if e.promise:
            return self._bounded(cells)
        said = self._minimax(cells) if e.minimax else self.say("training.no bounds")
        no = self.converged == "no"
        return self.say("training.not converged.no bounds", said=said) if no else said

    def _bounded(self, cells: Losses) -> Said:
        if self.noise is not None:
            over, key = cells.above, "met" if cells.met else "not met"
            if not cells.met and not over.any():
                over, key = cells.high > cells.bounds, "not decided"
            more = {"cells": self.names_of(over), "epsilon": self.noise.epsilon}
            return self.say(f"training.{key}.noise", **more)
        rates = self.e.terms.on_rates  # met or not, whatever the losses did
        if self.converged == "no" and (cells.met or self.proof is None) and not rates:
            return self.say("training.not converged" + ".met" * cells.met)
        if cells.met:
            return self.say("training.met")
        if self.proof is not None:
            return self.say("training.impossible")
        if not cells.above.any():
            return self.say("training.met.tolerance", tolerance=TOLERANCE)
        excused = self.slack is not None and max(cells.violation) <= self.slack
        return self.say("training.not met" + ".slack" * bool(excused))

    def _minimax(self, cells: Losses) -> Said:
        key, pair = "training.no bounds.minimax", known(self.e.proofs.gap)
        if self.noise is not None:
            ends = {"low": float(cells.low.max()), "high": float(cells.high.max())}
            return self.say(f"{key}.noise", **ends)
        z, ball = cells.worst, ""
        if pair is not None and pair.radius is not None:
            ball = self.say("ball", radius=pair.radius)
        key += ".gap" * (pair is not None)
        return self.say(key, cell=cells.names[z], loss=float(cells.means[z]), ball=ball)

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """On training rows, on test rows, for new people."""
        first, run = self.judged, self.e.training
        if isinstance(run, Missing):  # a model from elsewhere has none
            first = self._reason("training.not measured.audit", run.missing)
        return {
            "training": Verdict.of("training", first),
            "test": self._test,
            "new_people": Verdict.of("new_people", self._new_people),
        }

    def _reason(self, key: str, text: str) -> Said:
        return self.say(key, reason=f"{text[:1].upper()}{text[1:]}.")

    @property
    def status(self) -> str:
        """The verdict on the rows given, in a word."""
        return self.judged.word

    @property
    def message(self) -> str:
        """The same in a sentence."""
        return str(self.judged)

    @property
    def exit_code(self) -> int:
        """0 only if all that was asked for holds; 130 if interrupted, else 4."""
        found = EXIT_CODES[self.status]
        return 4 if found == 0 and self.asked and not self.by_path else found

    # Test rows

    @cached_property
    def _test(self) -> Verdict:
        """How the cells stand on test rows: figures, and nothing certified."""
        e, cells, noise = self.e, self.losses.get("test"), self.noise
        if cells is None or not (noise or cells.counts.any()):
            why = "no test row is in a group"
            why = e.heldout.missing if isinstance(e.heldout, Missing) else why
            return Verdict.of("test", self._reason("test.not measured", why))
        enough = cells.counts >= FEWEST
        over, maybe = (enough & (end > e.bounds) for end in (cells.low, cells.high))
        figures: dict[str, Any] = {"rows": self._test_rows, "fewest": FEWEST}
        if noise is not None:
            key = "exceeded" if over.any() else "not decided" if maybe.any() else "few"
            key = "within" if key == "few" and enough.all() else key
            told = {"exceeded": over, "few": ~enough}.get(key, maybe)
            figures |= {"low": float(cells.low.max()), "high": float(cells.high.max())}
            key = key if e.promise else "no bounds"
            said = self.say(f"test.{key}.noise", cells=self.names_of(told), **figures)
            return Verdict.of("test", said, "not measured" if key == "few" else "")
        if not e.promise:
            z = int(np.nanargmax(cells.means))
            figures |= {"loss": float(cells.means[z]), "cell": cells.names[z]}
            return Verdict.of("test", self.say("test.no bounds", **figures))
        lost = self.say("test.few", cells=self.names_of(~enough), **figures)
        if not enough.any():
            return Verdict.of("test", lost, "not measured")
        z = int(np.argmax(np.where(enough, cells.violation, -np.inf)))
        figures |= {"worst": self.standing_of(cells, z)}
        figures["few"], other = ("", "") if enough.all() else (f" {lost}", "other ")
        if not over.any():
            word = "within" if enough.all() else "not measured"
            said = self.say("test.within", other=other, **figures)
            return Verdict.of("test", said, word)
        above = f"{over.sum():,} groups are above their bounds"
        above = "one group is above its bound" if over.sum() == 1 else above
        return Verdict.of("test", self.say("test.exceeded", above=above, **figures))

    @property
    def _test_rows(self) -> str:
        """The test rows, in words."""
        e, held, path = self.e, known(self.e.heldout), known(self.e.path)
        count, key = 0 if held is None else held.rows, "test" if e.trained else "used"
        if self.noise is not None:
            released = self.noise.heldout
            count = 0 if released is None else max(0, round(sum(released.counts)))
            key = "noise"
        elif path is not None and held is not None and path.split in held.splits:
            key = "chosen" if len(path.candidates) > 1 else "calibration"
        more = self.by_whom.rstrip() if key in ("test", "used") else ""
        return f"{self.say(f'rows.{key}', count=count)}{more}"

    # New people

    @cached_property
    def _new_people(self) -> Said:
        """What is certified for new people, without how."""
        e, found, path, noise = self.e, self.upper, known(self.e.path), self.noise
        if found is None:
            return self._reason("new_people.not measured", self.absent)
        z = int(np.argmax(found - e.bounds if e.promise else found))
        figures: dict[str, Any] = {"cell": e.names[z], "high": float(found[z])}
        figures |= {"bound": float(e.bounds[z]), "who": self.by_whom or " "}
        key = f"new_people.{'certified' if self.shown else 'not certified'}"
        key = key if e.promise else "new_people.no bounds"
        if noise is not None:
            figures["epsilon"] = noise.heldout_epsilon
            cells = self.names_of(found > e.bounds)
            return self.say(f"{key}.noise", cells=cells, **figures)
        if path is None or not e.promise:
            head = self.say("standing.all" if self.shown else "standing.some")
            return self.say(key, head=head, **figures)
        many, rows = len(path.candidates), path.shipped.calibration.rows
        which = {"model": path.chosen + 1, "models": many, "rows": rows}
        part = "later" if path.chosen else "first"
        figures["failed"] = self.say(
            f"failed.{part}", confidence=path.confidence, **which
        )
        said: str = self.say("which", **which) if many > 1 else ""
        return self.say(f"{key}.path", which=said, rows=rows, **figures)

    @property
    def kept(self) -> int:
        """How many bounds are certified, one at a time."""
        return 0 if self.upper is None else int((self.upper <= self.e.bounds).sum())

    @property
    def absent(self) -> str:
        """Why nothing is stated of the losses of new people."""
        return self.people.absent or "not available under noise"

    @property
    def idle(self) -> Said | str:
        """That a bound that is not below M says nothing of the model."""
        M = 1.0 if self.e.terms.on_rates else self.e.terms.loss_bound
        many = 0 if M is None else int((self.e.bounds >= M).sum())
        s = "s" * (many > 1)
        return self.say("idle", idle=many, s=s, loss_bound=M) if many else ""

    # Beside them

    @cached_property
    def warning(self) -> Said | None:
        """Groups for which the model is no better than a constant guess.

        On test rows, else on training rows: groups with a bound, and all rows. The
        guess is that of their own rates, for losses, or their most frequent label, for
        errors. None where no group qualifies, and under noise.
        """
        e, held = self.e, known(self.e.heldout)
        sample = held or e.seen
        if not e.labels or e.stopped is not None or self.noise is not None:
            return None
        columns = ("count", "weight", e.judged(sample), "correct")
        count, weight, loss, right = (
            sample.of_strata(c, len(e.groups)) for c in columns
        )
        bounded = {group for cell in e.cells if e.promise for group, _ in cell.of}
        sets = {f"'{a}'": [i] for i, a in enumerate(e.groups) if a in bounded}
        found: dict[str, list[str]] = {"loss": [], "errors": []}
        for name, i in {**sets, "all rows together": [*range(len(e.groups))]}.items():
            n = weight[i].sum(axis=0)
            if count[i].sum() < FEWEST or np.count_nonzero(n) < 2:
                continue
            if loss[i].sum() >= -(n[n > 0] * np.log(n[n > 0] / n.sum())).sum():
                found["loss"].append(name)
            if right[i].sum() <= n.max():
                found["errors"].append(name)
        told = "; ".join(
            f"{of} of {', '.join(who)}" for of, who in found.items() if who
        )
        rows = "test rows" if e.trained and held is not None else self.rows
        return self.say("warning", rows=rows, told=told) if told else None

    @cached_property
    def binding(self) -> str | None:
        """The groups whose bounds are binding, with their shares of the multipliers.

        None where multipliers say nothing: without bounds, before convergence, under
        noise.
        """
        e, total = self.e, float(self.e.multipliers.sum())
        silent = self.noise is not None or not (e.promise and e.trained)
        if silent or self.converged != "yes" or self.losses["train"].empty:
            return None
        kind = "tightened bound" if isinstance(e.path, ModelPath) else "bound"
        kind = "stand-in loss bound" if e.terms.on_rates else kind
        if total <= NO_MULTIPLIER:
            return self.say("binding.none", kind=kind)
        # A method that stops early leaves multipliers on bounds far from every loss.
        near = e.seen.own_means >= NEAR_BOUND * e.aimed
        parts = 100 * np.where(near, e.multipliers, 0.0) / total
        shares = zip(parts, e.names, strict=True)
        found = sorted((one for one in shares if one[0] >= 0.5), key=lambda p: -p[0])
        if not found:
            return self.say("binding.none", kind=kind)
        told = few([f"'{name}' ({share:.0f} %)" for share, name in found])
        key = "binding.one" if len(found) == 1 else "binding"
        return self.say(key, kind=kind, cell=found[0][1], told=told)

    @cached_property
    def changes(self) -> list[str]:
        """Who gains most by the bounds, and who loses most; no one under noise."""
        pairs = [
            (cell.train_loss - cell.before_train_loss, cell)
            for cell in self.cells
            if cell.before_train_loss is not None and self.noise is None
        ]
        told: list[str] = []
        for key, sign in (("gains", -1), ("loses", 1)):
            change, cell = max(pairs, key=lambda p: sign * p[0], default=(0.0, None))
            if cell is not None and sign * change >= MIN_CHANGE:
                ends = {"before": cell.before_train_loss, "after": cell.train_loss}
                told.append(self.say(key, cell=cell.cell, **ends))
        return told

    @cached_property
    def selection_ratio(self) -> dict[str, float | None] | None:
        """The smallest selection rate of a group over the largest.

        None under noise, and where there are not two classes.
        """
        found = [group.selected for group in self.rates if group.selected is not None]
        if self.noise is not None or not found:
            return None
        ratios: dict[str, float | None] = {}
        for name in ("unconstrained", "value"):
            shares = [getattr(rate, name) for rate in found]
            whole = None not in shares and max(shares) > 0
            ratios[name] = min(shares) / max(shares) if whole else None
        return ratios

    @cached_property
    def limits(self) -> str | None:
        """Between which limits the shipped predictor keeps its predictions."""
        ends = limits(self.e)
        if not self.e.trained or self.noise is not None:
            return None
        if ends is None:
            return self.say("limits.none", reason=unbounded(self.e))
        return self.say("limits", low=ends[0], high=ends[1])

    @property
    def remarks(self) -> list[str]:
        """What a reader of all figures should know."""
        told: list[str] = [self.say("weighted")] * self.e.weighted
        if self.e.terms.on_rates and self.e.trained:
            told.append(self.say("goal"))
        return told

    # Tables of figures

    @cached_property
    def cells(self) -> tuple[CellResult, ...]:
        """The figures of each cell."""
        e, path, before = self.e, known(self.e.path), known(self.e.before)
        train, test, n = self.losses["train"], self.losses.get("test"), len(e.cells)
        nothing, counts = np.full(n, np.nan), np.zeros(n)
        tested, shown = nothing, nothing if self.upper is None else self.upper
        if test is not None:
            counts, tested = test.counts, test.means
        there = counts if path is None else path.shipped.calibration.of_cells("count")
        samples = {} if before is None else before.samples
        old = {split: e.means(sample) for split, sample in samples.items()}
        shown = np.where(there > 0, shown, np.nan)
        free = [old.get(split, nothing) for split in ("train", "test")]
        columns = (
            e.names,
            e.bounds.tolist() if e.promise else [None] * n,
            train.counts.astype(int).tolist(),
            train.means.tolist(),
            train.violation.tolist() if e.promise else [None] * n,
            e.multipliers.tolist(),
            *map(plain, (tested, counts.astype(int), shown, *free)),
        )
        return tuple(CellResult(*row) for row in zip(*columns, strict=True))

    @cached_property
    def rates(self) -> list[GroupRates]:
        """Rates of groups."""
        return rates(self)

    def _metrics(self, sample: Sample) -> Metrics:
        e = self.e
        many = len(e.cells) if e.promise or e.minimax else 0
        return metrics(sample, e, n_cells=many, judged=e.judged(sample))

    @cached_property
    def train(self) -> Metrics:
        """Figures of all training rows."""
        return self._metrics(self.e.seen)

    @cached_property
    def test(self) -> Metrics | None:
        """Figures of all test rows."""
        held = known(self.e.heldout)
        return None if held is None else self._metrics(held)

    @cached_property
    def before(self) -> dict[str, Metrics] | None:
        """The same of the model without bounds."""
        before = known(self.e.before)
        if before is None:
            return None
        return {k: self._metrics(s) for k, s in before.samples.items()}

    # Files

    @cached_property
    def certificate(self) -> Certificate:
        """Everything that is claimed, with its grounds."""
        e, note = self.e, [] if self.warning is None else [self.warning]
        note += [self.say("other data")] if e.data.other else []
        note += [self.say("scope")] if e.trained else []
        note += [] if self.upper is None else [self.say("each alone")]
        return Certificate(
            {key: one.as_dict() for key, one in self.verdicts.items()},
            e.about.date,
            e.data.name,
            tuple(e.names),
            tuple(cell.bound if e.promise else None for cell in e.cells),
            e.terms.confidence,
            tuple(statements(self)),
            fingerprints(e),
            (*note, *e.notes),
        )

    def result(self) -> dict[str, Any]:
        """Return what result.json holds."""
        return {"format": RESULT, "version": RESULT_VERSION, **_figures(self)}

    def certified(self) -> dict[str, Any]:
        """Return what certificate.json holds: claims, every figure, the evidence."""
        inside = {"figures": self.result(), "evidence": self.e.as_dict()}
        return {**self.certificate.as_dict(), **inside}

    # One check over finished results without noise, before they are shown

    def contradictions(self) -> Iterator[str]:
        """Say which conclusions contradict each other."""
        e, bounds, allowed = (
            self.e,
            self.e.bounds,
            tolerance(self.e.scales, self.e.bounds),
        )
        M, least = e.terms.loss_bound, known(e.proofs.least)
        sample, ends = self.people.usable, self.people.upper
        if sample is not None and ends is not None:
            # A certified upper end is never below the mean over the same people.
            means = e.means(sample)
            if not e.terms.on_rates:
                mass = sample.of_people("t")
                means = (M or np.inf) * sample.of_people("tx")
                means = means / np.where(mass > 0, mass, np.nan)
            for z in np.flatnonzero(ends < means * (1 - ROUNDING)):
                yield (
                    f"'{e.names[z]}' has a mean of {means[z]:g}, certified to be at "
                    f"most {ends[z]:g}"
                )
        if least is not None and self.status == "met":
            low = least.enclosed(self.longest)[0].lower
            if low > bounds.max() + allowed.max():
                yield f"bounds of {bounds.max():g} are met, and none below {low:g} is"
        status, new = (self.verdicts[key].word for key in ("training", "new_people"))
        good = status in ("met", "no bounds") and (new == "certified" or not self.asked)
        if e.trained and good != (self.exit_code == 0):
            yield f"'{status}' and '{new}' end with exit code {self.exit_code}"
        own = e.trained and e.data.fingerprint == e.data.trained_on
        on_losses = e.promise and not e.terms.on_rates
        bounds = bounds if on_losses else np.zeros(len(e.cells))
        allowed = allowed if on_losses else 0 * allowed
        if own and M is not None and not unmoved(e.seen, bounds, allowed, e.model.unit):
            yield f"limits at M = {M:g} change the losses of training rows"


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


def _figures(c: Conclusions) -> dict[str, Any]:
    """Return every number that is shown of a run, for result.json.

    ``sites`` says who answered, where rows are elsewhere; ``privacy`` what noise
    protects, and the ends of the cells' training losses.
    """
    e, run = c.e, known(c.e.training)
    own = ["status", "converged", "message", "warning", "gap", "slack", "binding"]
    own += ["changes", "selection_ratio", "witness", "smallest_bound"]
    of_run = ("method", "chosen", "constraint", "seed", "rounds", "queries")
    declared = ("goal", "weighting", "confidence", "loss_bound", "radius")
    data = ("name", "silos", "schema", "synthetic", "fingerprint", "notes")
    return {
        **{name: getattr(c, name) for name in own},
        **{name: None if run is None else getattr(run, name) for name in of_run},
        **{name: getattr(e.terms, name) for name in declared},
        "seconds": None if run is None else round(run.seconds, 3),
        "verdicts": {
            key: {"verdict": one.word, "sentence": str(one.sentence)}
            for key, one in c.verdicts.items()
        },
        "model": e.model.described,
        "cells": [asdict(cell) for cell in c.cells],
        "groups": [asdict(group) for group in c.rates],
        "ranking": ranking(e),
        "train": asdict(c.train),
        "test": None if c.test is None else asdict(c.test),
        "before": c.before and {k: asdict(one) for k, one in c.before.items()},
        "sites": None if isinstance(e.sites, Missing) else asdict(e.sites),
        "privacy": _privacy(c),
        "data": {name: getattr(e.data, name) for name in data},
        "notes": e.notes,
        "versions": e.versions,
    }


def _privacy(c: Conclusions) -> dict[str, Any] | None:
    """Return what noise protects; `cells` are the ends of training losses."""
    noise, cells = c.noise, c.losses["train"]
    if noise is None:
        return None
    plain = {k: v for k, v in asdict(noise).items() if k not in ("seen", "heldout")}
    ends = [
        {"cell": name, "lower": float(cells.low[z]), "upper": float(cells.high[z])}
        for z, name in enumerate(cells.names)
    ]
    spent = None if noise.repeatable else noise.epsilon_spent
    return {**plain, "spent": spent, "cells": ends}
