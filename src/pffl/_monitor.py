"""`monitor`: batches of new rows are counted, and an alarm is raised in time.

The silos answer a census and `evaluate` with bets: sums over rows, which add. Groups,
bounds, confidence and bets are fixed before the first row is seen. They are the first
line of a file of JSON lines; each batch adds a line with its sums and the hash of the
line before. What the sums come to is computed from them (`bounds.alarm`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pffl import files, records
from pffl._solve import open_engine
from pffl.bounds import alarm
from pffl.bounds.checks import positive, probability
from pffl.bounds.mean import Bets
from pffl.constraints import AUTO, EVERY_SILO, Bound, BoundedGroupLoss, Cells
from pffl.data.columns import Unseen
from pffl.data.federation import Federation
from pffl.data.read import is_table, read_table, require
from pffl.data.rows import contents
from pffl.data.schema import Schema
from pffl.data.table import TableOptions
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import ArtefactError, DataError, UsageError
from pffl.evidence.figures import named
from pffl.evidence.record import Evidence, Training, known
from pffl.flow import Flow, ask_all
from pffl.models.predictor import Predictor
from pffl.prepare import task_of
from pffl.problem import Access
from pffl.queries import Census, Evaluate
from pffl.runs import CERTIFICATE, MODEL, load
from pffl.solution import Result
from pffl.text import decimals, down, element, few, text_table, words
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

FORMAT, VERSION = "pffl.monitor", 3
STATE = "monitor.jsonl"  # in a run directory
CONFIDENCE = 0.95
HEAD_ROWS = 20  # by which a batch is known that begins as another one did
MAX_LOG_E = 700.0  # of a logarithm whose number can be written
#: What an alarm stands on, in words; the rows alone cannot show it.
ASSUMPTIONS = (
    "People are independent of each other, given their group and silo, and no one is "
    "in two batches. Rows are people, unless an id names the person: then a "
    "person counts once in a batch, with the mean of their rows.",
    "Who has a label by now does not depend on how wrong the model is about them.",
    "No row was trained on, and which batches were given was not chosen by their "
    "losses.",
)
WEIGHTED = (
    "[needs-weight-bound] rows have weights here: begin a monitor with "
    "`weight_bound=NUMBER`, which no weight is above"
)
TRAINED = (
    "[training-rows] these are the data that the model was trained on: they say "
    "nothing of people who came later"
)


# What is fixed, and what is counted


@dataclass(frozen=True)
class Watched(records.Record):
    """One group: its name, its bound, the silo it is confined to, and its strata."""

    cell: str
    bound: float
    silo: str | None
    of: list[tuple[str, str | None]]


@dataclass(frozen=True)
class Settings(records.Record):
    """What is fixed before the first row is seen.

    Attributes
    ----------
    model, schema
        Fingerprint of the predictor, and hash of its names.
    cells, unwatched
        The groups that have a bound, and the names of those that have none.
    confidence
        1 − δ.
    bets, bet_weights
        γ and π of each group.
    weight_bound
        s_max, the upper bound on weights; None where rows have none.
    """

    model: str
    schema: str
    cells: list[Watched]
    unwatched: list[str]
    confidence: float
    bets: list[list[float]]
    bet_weights: list[list[float]]
    weight_bound: float | None = None

    def __post_init__(self) -> None:
        probability("confidence", self.confidence)

    @cached_property
    def planned(self) -> Bets:
        """The bets, as the alarm takes them."""
        return Bets(np.array(self.bets), np.array(self.bet_weights))

    @property
    def names(self) -> list[str]:
        """Names of the groups."""
        return [cell.cell for cell in self.cells]

    @property
    def threshold(self) -> float:
        """The e-value that is an alarm."""
        return alarm.threshold(len(self.cells), self.confidence)

    @property
    def assumptions(self) -> list[str]:
        """What an alarm stands on, in words."""
        if self.weight_bound is None:
            return list(ASSUMPTIONS)
        heaviest = words(self.weight_bound)
        return [*ASSUMPTIONS, f"Means are weighted, and no weight is above {heaviest}."]


@dataclass(frozen=True)
class Batch(records.Record):
    """Sums over one batch of rows.

    Attributes
    ----------
    name
        What it is called: a file, say.
    rows, hash, head
        How many rows there are, a hash of all of them, and one of the first ones in
        order; None where that is not known.
    count, loss
        How many people each group has in it, and the sum of their mean losses; times
        their weights, where rows have weights.
    above
        Σ log(1 + γ(loss/bound − 1)) over them, per group and bet; see `bounds.alarm`.
    impossible
        Rows of each group whose label had a probability of 0.
    weight
        The sum of people's weights, where rows have weights.
    """

    name: str
    rows: int
    hash: str
    head: str | None
    count: list[int]
    loss: list[float]
    above: list[list[float]]
    impossible: list[int]
    weight: list[float] | None = None

    def gains(self, settings: Settings) -> FloatArray:
        """Return by how much it raises log E; refuse sums that no losses have."""
        columns = (self.count, self.loss, self.impossible, self.weight or self.loss)
        if {len(column) for column in columns} != {len(settings.cells)}:
            raise ValueError("the sums are those of other groups")
        return alarm.gains(settings.planned, np.array(self.above), self.count)


@dataclass(frozen=True, eq=False)
class Course:
    """What batches come to, one after the other: arrays of batch × group.

    Attributes
    ----------
    people, loss, mass
        People, sums of losses and of weights, so far.
    log_e
        The logarithm of each e-value; `MAX_LOG_E` stands for infinity.
    crossed
        Per group, the place of the batch in which the e-value was first at the
        threshold or above it; −1 where it never was.
    impossible
        Rows whose label had a probability of 0, over all batches.
    """

    people: IntArray
    loss: FloatArray
    mass: FloatArray
    log_e: FloatArray
    crossed: IntArray
    impossible: IntArray

    @classmethod
    def of(cls, settings: Settings, batches: Sequence[Batch]) -> Course:
        """Count batches, in order."""
        bets, logs = settings.planned, []
        wealth = alarm.Wealth.none(bets.gammas.shape)
        for batch in batches:
            wealth = wealth.after(batch.gains(settings), batch.count)
            logs.append(wealth.log_values(bets))
        never = np.cumsum([batch.impossible for batch in batches], axis=0)
        people = np.cumsum([batch.count for batch in batches], axis=0)
        loss = np.cumsum([batch.loss for batch in batches], axis=0)
        mass = np.cumsum([batch.weight or batch.count for batch in batches], axis=0)
        log_e = np.where(never > 0, MAX_LOG_E, np.minimum(logs, MAX_LOG_E))
        over = log_e >= np.log(settings.threshold)
        crossed = np.where(over.any(axis=0), over.argmax(axis=0), -1)
        return cls(people, loss, mass, log_e, crossed, never[-1])


@dataclass(frozen=True, eq=False, repr=False)
class Monitor:
    """What was fixed, and what came of each batch; see `pffl.monitor`.

    Attributes
    ----------
    settings
        What was fixed before the first row.
    batches
        Their sums, in order.
    digest
        Hash of the last line of its file: whoever keeps it can tell whether lines were
        changed, or taken away.
    notes
        What to know of the rows that were given last.
    """

    settings: Settings
    batches: tuple[Batch, ...] = ()
    digest: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def begin(cls, settings: Settings) -> Monitor:
        """Return a monitor that has seen no row."""
        return cls(settings, digest=str(_sealed(_head(settings), "")["digest"]))

    def after(self, batch: Batch) -> Monitor:
        """Return it after one more batch, whose sums are checked."""
        batch.gains(self.settings)
        digest = str(_sealed(asdict(batch), self.digest)["digest"])
        return replace(self, batches=(*self.batches, batch), digest=digest)

    def append(self, path: Path, batch: Batch) -> Monitor:
        """Add a batch to a file, with the first one what was fixed, and return it."""
        grown = self.after(batch)
        if not self.batches:
            files.append(path, _sealed(_head(self.settings), ""))
        files.append(path, _sealed(asdict(batch), self.digest))
        return grown

    @cached_property
    def course(self) -> Course:
        """What the batches come to."""
        return Course.of(self.settings, self.batches)

    @property
    def alarms(self) -> dict[str, int]:
        """The groups with an alarm, and how many people they had when it was seen."""
        rows = {row["cell"]: row["crossed_at_row"] for row in self.table}
        return {cell: at for cell, at in rows.items() if at is not None}

    @property
    def status(self) -> str:
        """``no alarm``, or ``alarm``; an alarm stays."""
        return "alarm" if self.alarms else "no alarm"

    @property
    def exit_code(self) -> int:
        """That of the command: 4 where there is an alarm."""
        return 4 if self.alarms else 0

    @property
    def rows(self) -> int:
        """Rows so far, those in no group included."""
        return sum(batch.rows for batch in self.batches)

    @property
    def message(self) -> str:
        """How it stands, in words."""
        many, sure = len(self.batches), Decimal(repr(self.settings.confidence))
        after = f"after {many:,} batch{'' if many == 1 else 'es'}, {self.rows:,} rows"
        if not self.alarms:
            return (
                f"No alarm {after}: they do not show that the mean loss of a group is "
                "above its bound. They do not show that it is within it, either."
            )
        crossed = [
            f"{row['cell']}, crossed at row {row['crossed_at_row']:,} of the group "
            f"(batch {row['crossed_in_batch']})"
            for row in self.table
            if row["crossed_at_row"] is not None
        ]
        infinite = [
            f"{many:,} rows of {name} had a probability of 0 for what happened, which "
            "is an infinite loss. "
            for name, many in zip(
                self.settings.names, self.course.impossible, strict=True
            )
            if many
        ]
        return (
            f"Alarm {after} for {few(crossed)}. {''.join(infinite)}With confidence "
            f"{_percent(sure)} the expected mean loss of the group's people up to that "
            "row, of all of them or of those from the beginning of some batch on, was "
            "above the bound: while it stays within it, in every group, the "
            "probability that a monitor like this one ever raises an alarm is at most "
            f"{_percent(1 - sure)}."
        )

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row per group: how it stands after the last batch."""
        if not self.batches:
            return []
        c, last = self.course, self.batches[-1]
        return [
            {
                "cell": cell.cell,
                "rows": int(c.people[-1, z]),
                "mean_loss": _mean(c.loss[-1, z], c.mass[-1, z]),
                "last_rows": last.count[z],
                "last_mean_loss": _mean(last.loss[z], (last.weight or last.count)[z]),
                "bound": cell.bound,
                "e_value": math.exp(c.log_e[-1, z]),
                "threshold": self.settings.threshold,
                "crossed_at_row": int(c.people[at, z]) if at >= 0 else None,
                "crossed_in_batch": int(at) + 1 if at >= 0 else None,
            }
            for z, (cell, at) in enumerate(
                zip(self.settings.cells, c.crossed, strict=True)
            )
        ]

    @property
    def history(self) -> list[dict[str, Any]]:
        """A row per batch and group: its rows so far, its e-value, the threshold."""
        return [
            {
                "batch": k + 1,
                "name": batch.name,
                "cell": cell,
                "rows": int(self.course.people[k, z]),
                "batch_rows": batch.count[z],
                "batch_mean_loss": _mean(
                    batch.loss[z], (batch.weight or batch.count)[z]
                ),
                "e_value": math.exp(self.course.log_e[k, z]),
                "threshold": self.settings.threshold,
            }
            for k, batch in enumerate(self.batches)
            for z, cell in enumerate(self.settings.names)
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return it in plain form: what ``--json`` prints."""
        s, here = self.settings, ("status", "message", "rows", "history", "digest")
        return {
            "format": FORMAT,
            "version": VERSION,
            **{name: getattr(self, name) for name in here},
            **{k: vars(s)[k] for k in ("model", "confidence", "weight_bound")},
            "threshold": s.threshold,
            "batches": len(self.batches),
            "cells": self.table,
            "unwatched": s.unwatched,
            "assumes": s.assumptions,
            "notes": list(self.notes),
        }

    @property
    def shown(self) -> list[dict[str, str]]:
        """The table as it is read: e-values rounded down."""

        def loss(number: float | None) -> str:
            return "–" if number is None else decimals(number)

        def crossed(row: int | None) -> str:
            return "no" if row is None else f"{row:,}"

        return [
            {
                "group": row["cell"],
                "rows": f"{row['rows']:,}",
                "mean loss": loss(row["mean_loss"]),
                "last batch": loss(row["last_mean_loss"]),
                "bound": decimals(row["bound"]),
                "e-value": down(row["e_value"], digits=3),
                "alarm at": words(row["threshold"]),
                "crossed at row": crossed(row["crossed_at_row"]),
            }
            for row in self.table
        ]

    def __repr__(self) -> str:
        """Return how it stands, in a few lines."""
        return "\n".join([*text_table(self.shown), self.message])

    def _repr_html_(self) -> str:
        title = f"Monitor: {self.status}"
        return element("monitor", title, [self.message, *self.notes], self.shown)


def _mean(total: float, mass: float) -> float | None:
    return float(total / mass) if mass else None


def _percent(share: Decimal) -> str:
    """Write a probability, with all of its digits."""
    return f"{(100 * share).normalize():f} %"


# The file


def _head(settings: Settings) -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION, **asdict(settings)}


def _sealed(line: Mapping[str, Any], before: str) -> dict[str, Any]:
    """Return a line with the hash of the one before, and its own."""
    whole = {**line, "before": before}
    return {**whole, "digest": files.digest(files.key_of(whole))}


@contextmanager
def held(path: Path) -> Iterator[Monitor | None]:
    """Hold the file of a monitor against other processes, and read it.

    What a crash left unfinished at its end is cut off.
    """
    files.folder(path.parent)
    with files.lock(path.with_name(f".{path.name}.lock")):
        found = None
        if path.exists():
            found, whole = _read(path)
            if whole < path.stat().st_size:
                try:
                    os.truncate(path, whole)
                except OSError as error:
                    raise files.cannot_write(path, error) from error
        yield found


def read(path: Path) -> Monitor:
    """Read the file of a monitor; every line is checked."""
    found, _ = _read(path)
    if found is None:
        raise ArtefactError(f"[no-batches] '{path}' holds no batch of a monitor")
    return found


def _read(path: Path) -> tuple[Monitor | None, int]:
    """Return what is in a file, and how many bytes of it are whole lines."""
    content = files.read(path)
    beginning = f'{{"format": "{FORMAT}"'.encode()
    if not content.startswith(beginning[: len(content)]):
        raise ArtefactError(f"[bad-state] '{path}' is no state of a monitor")
    whole, end, _ = content.rpartition(b"\n")  # a crash may cut the last line
    if not end:
        return None, 0
    monitor: Monitor | None = None
    for number, text in enumerate(whole.split(b"\n"), start=1):
        source, before = f"'{path}', line {number}", monitor.digest if monitor else ""
        edited = ArtefactError(
            f"[changed-file] {source}: it was changed after it was written, or a line "
            "before it was: begin a new monitor (--state FILE)"
        )
        plain = records.read(dict[str, Any], text, source=source)
        hashes = plain.pop("before", None), plain.pop("digest", None)
        if hashes != (before, _sealed(plain, before)["digest"]):
            raise edited
        if monitor is None:
            found = (plain.pop("format", None), plain.pop("version", None))
            if found != (FORMAT, VERSION):
                raise ArtefactError(
                    f"[other-format] '{path}' is a state of version {found[1]} (pffl "
                    f"0.2 had 2), not {VERSION}: begin a new one (--state FILE)"
                )
            monitor = Monitor.begin(records.read(Settings, plain, source=source))
            continue
        batch = records.read(Batch, plain, source=source)
        try:
            monitor = monitor.after(batch)
        except (ValueError, TypeError, IndexError) as error:
            raise edited from error
    # Without a batch nothing was begun.
    begun = monitor is not None and bool(monitor.batches)
    return (monitor, len(whole) + 1) if begun else (None, 0)


# The model that is in use


def run_of(model: Path) -> Path | None:
    """Return the run directory that a path is, or that the file of a model is in."""
    folder = model if model.is_dir() else model.parent
    inside = model.name == MODEL and (folder / CERTIFICATE).is_file()
    return folder if model.is_dir() or inside else None


@dataclass(frozen=True, eq=False)
class Deployed:
    """A model that is in use: what was shipped, and what is known of its training."""

    predictor: Predictor
    evidence: Evidence | None = None

    @classmethod
    def of(cls, model: object) -> Deployed:
        """Return a model that was solved for, audited or saved."""
        match model:
            case Deployed():
                return model
            case Result():
                return cls(model.predictor, model.evidence)
            case Predictor():
                return cls(model)
            case str() | os.PathLike():
                place = Path(model)
                return cls.of(load(run_of(place) or place))
        raise UsageError(
            f"[not-a-model] a {type(model).__name__} cannot be monitored: give a "
            "solution, an audit, a predictor, or the path of one"
        )

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the predictor: of the model, and of its limits."""
        own = self.predictor.model.fingerprint(self.predictor.w)
        return files.digest(own, repr(self.loss_bound))

    @property
    def loss_bound(self) -> float:
        """M of the predictor that is in use; infinite where it has none."""
        M = self.predictor.model.loss_bound(self.predictor.loss_bound)
        return np.inf if M is None else M

    @cached_property
    def cells(self) -> list[Watched]:
        """The groups of its run, or all; NaN is the bound of those that have none."""
        schema, e = self.predictor.schema, self.evidence
        if e is None:
            groups = BoundedGroupLoss(1.0).cells(schema, ())
            return _watched(groups.with_bounds(np.full(len(groups), np.nan)), schema)
        none = not e.promise or e.minimax
        return [
            Watched(c.cell, np.nan if none else c.bound, c.silo, c.of) for c in e.cells
        ]

    def bounded(self, bound: Bound) -> list[Watched]:
        """Return its groups with other bounds."""
        numbers = bound.values() if isinstance(bound, Mapping) else [bound]
        if AUTO in numbers:
            raise UsageError("[needs-bound] a bound that is watched is a number")
        BoundedGroupLoss(bound)  # which refuses what is no bound
        schema = self.predictor.schema
        names = sorted({cell.silo for cell in self.cells if cell.silo is not None})
        cells = _cells(self.cells, schema, names).bounded(bound, "monitor")
        return _watched(cells, schema, names)

    def settle(
        self, bound: Bound, confidence: float | None, weight_bound: float | None
    ) -> Settings:
        """Fix everything, before the first row is seen."""
        e, weighted = self.evidence, self.predictor.preparation.weight is not None
        asked = self.cells if bound is None else self.bounded(bound)
        cells = [cell for cell in asked if np.isfinite(cell.bound)]
        if not cells:
            raise UsageError(
                "[needs-bound] the model's run has no bound that could be crossed, or "
                "is not known: `bound=NUMBER` says which mean loss is too much"
            )
        if weight_bound is None and (weighted or (e is not None and e.seen.weighted)):
            weight_bound = None if e is None else e.terms.weight_bound
            if weight_bound is None:
                raise UsageError(WEIGHTED)
        strata = [cell.of for cell in self.cells]
        at = [strata.index(c.of) if c.of in strata else -1 for c in cells]
        variance = None  # of rows with weights nothing is known
        if e is not None and weight_bound is None:
            variance = np.append(e.seen.variances, np.nan)[at]
        bets = alarm.plan([cell.bound for cell in cells], variance=variance)
        names = {cell.cell for cell in cells}
        return Settings(
            self.fingerprint,
            self.predictor.schema.hash,
            cells,
            [cell.cell for cell in self.cells if cell.cell not in names],
            CONFIDENCE if confidence is None else confidence,
            bets.gammas.tolist(),
            bets.weights.tolist(),
            weight_bound,
        )

    def require(self, settings: Settings, **asked: Any) -> None:
        """Refuse a state of another model, and wishes that differ from it."""
        same = settings.model == self.fingerprint
        if not same or settings.schema != self.predictor.schema.hash:
            raise ArtefactError(
                "[other-model] the state is that of another model (fingerprint "
                f"{settings.model[:12]}, not {self.fingerprint[:12]}): a new model "
                "begins a new one (--state FILE)"
            )
        for what, value in asked.items():
            first = settings.cells if what == "bound" else getattr(settings, what)
            now = self.bounded(value) if what == "bound" and value else value
            if now not in (None, first):
                raise UsageError(
                    f"[options-changed] {what}: {value}, and the monitor began with "
                    f"{first}, which stays: leave it out, or begin another state"
                )

    def is_trained_on(self, count: FloatArray, loss: FloatArray) -> bool:
        """Whether rows with these sums per stratum are its own.

        Those that it was trained on, alone or with others that its run had.
        """
        e = self.evidence
        if e is None or not isinstance(e.training, Training):
            return False
        test, path = known(e.heldout), known(e.path)
        others = [] if test is None else [test]
        others += [] if path is None else [path.shipped.calibration]
        for parts in (
            (e.seen, *more)
            for some in range(len(others) + 1)
            for more in combinations(others, some)
        ):
            rows = np.sum([part.column("count") for part in parts], axis=0)
            sums = np.sum([part.column("bounded_loss") for part in parts], axis=0)
            near = np.allclose(loss, sums, rtol=1e-9, atol=1e-9)
            if near and np.array_equal(count, rows):
                return True
        return False


def _strata(schema: Schema) -> list[tuple[str, str | None]]:
    labels: tuple[str | None, ...] = schema.labels or (None,)
    return [(group, label) for group in schema.groups for label in labels]


def _watched(cells: Cells, schema: Schema, silos: Sequence[str] = ()) -> list[Watched]:
    """Return cells by the names of their groups, labels and silos."""
    strata = _strata(schema)
    return [
        Watched(
            name,
            float(cells.bounds[z]),
            None if cells.everywhere[z] else silos[cells.silo[z]],
            [strata[a] for a in np.flatnonzero(cells.membership[z])],
        )
        for z, name in enumerate(cells.names)
    ]


def _cells(watched: Sequence[Watched], schema: Schema, silos: Sequence[str]) -> Cells:
    """Return cells over these silos; one of a silo that is not there has no rows."""
    there = [cell.silo is None or cell.silo in silos for cell in watched]
    if not any(there):
        raise DataError(
            "[other-silos] the bounds are those of silos, and these rows are of "
            f"others: {list(silos)[:5]}, not {[cell.silo for cell in watched][:5]}"
        )
    inside = [[s in cell.of for s in _strata(schema)] for cell in watched]
    silo = [silos.index(c.silo) if c.silo in silos else EVERY_SILO for c in watched]
    return Cells(
        tuple(cell.cell for cell in watched),
        np.array([cell.bound for cell in watched], dtype=np.float64),
        np.array(inside) & np.array(there)[:, None],
        np.array(silo),
    )


# A batch


def monitor(
    model: object,
    rows: Federation | Engine | pd.DataFrame | str | os.PathLike[str],
    *,
    state: str | os.PathLike[str] | Monitor | None = None,
    bound: Bound = None,
    confidence: float | None = None,
    splits: Sequence[str] | None = None,
    silo: str | None = None,
    id: str | None = None,
    weight: str | None = None,
    unseen: Unseen | None = None,
    name: str | None = None,
    weight_bound: float | None = None,
) -> Monitor:
    """Count a batch of new rows with labels, and say whether a group raises an alarm.

    An e-value per group grows while its losses are above its bound. It may be looked
    at after every batch, for as long as the model is in use: while all groups stay
    within their bounds, an alarm ever comes with a probability of at most
    1 − confidence.

    Parameters
    ----------
    model
        A solution, an audit, a predictor; or the path of a run directory or a model.
    rows
        The batch: a table, a federation, or an engine that reaches the silos, whose
        sums are added.
    state
        The file that remembers the batches before, and gets a line for this one (made
        where it is not there); or what was returned for the batch before. None: this
        is the first batch.
    bound
        Other bounds for the groups of the model's run: a number, or one for each
        group by name (others are not watched). Of a model without its run, the bound
        of every group.
    confidence
        1 − δ, 0.95 by default. Bounds and confidence are fixed with the first batch;
        another one later is refused.
    splits
        Of a federation: the splits whose rows are the batch. Default: all.
    silo, id, weight
        Of a table: the columns with the silo, the person and the weight of a row (by
        default the model's own weights, where it was trained with some).
    unseen
        Of a table: what becomes of categories that are new to the model.
    name
        What to call the batch.
    weight_bound
        Upper bound on weights, where rows have some: fixed with the first batch.
        Default: the run's. A batch with a heavier row is refused.

    Returns
    -------
    Monitor
        Where each group stands: ``status``, ``alarms``, ``history``; print it.

    Raises
    ------
    DataError
        Rows without labels, of groups that the model does not know, or trained on.
    UsageError
        Other bounds or another confidence than the monitor began with.
    ArtefactError
        The state was edited, or is that of another model.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), seed=0)
    >>> # people of another kind come later
    >>> later = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=1)
    >>> pffl.monitor(solution, later, name="march").status
    'alarm'
    """
    deployed, given, mark = Deployed.of(model), cast(Federation | Engine, rows), ""
    columns = {"silo": silo, "id": id, "weight": weight}
    if is_table(rows):
        given, mark = _open_table(deployed.predictor, rows, columns, unseen, name)
    elif any(one is not None for one in (*columns.values(), unseen)):
        raise UsageError(
            "[options-conflict] 'silo', 'id', 'weight' and 'unseen' are for tables"
        )
    if confidence is not None:
        alarm.threshold(1, confidence)
    if weight_bound is not None:
        positive("weight_bound", weight_bound)
    engine = open_engine(given, "local")
    used = tuple(engine.splits if splits is None else splits)
    _check(deployed.predictor, engine, used)

    def count(before: Monitor | None, path: Path | None) -> Monitor:
        if before is None:
            settings = deployed.settle(bound, confidence, weight_bound)
            before = Monitor.begin(settings)
        else:
            asked = {"confidence": confidence, "weight_bound": weight_bound}
            deployed.require(before.settings, bound=bound, **asked)
        sums = drive(engine, _ask(deployed, engine, used, before.settings))
        batch = _marked(sums, engine.federation, used, mark, name or engine.name)
        told = given.notes if is_table(rows) else ()
        notes, e = [*engine.notes, *told], deployed.evidence
        if e is not None and (who := named(e)):
            notes.append(f"what is watched is {who}")
        for number, same in enumerate(before.batches, start=1):
            if same.hash == batch.hash:
                notes.append(
                    f"'{batch.name}' has the rows of batch {number} ('{same.name}'), "
                    "and was not counted again (`id=` tells people apart who are just "
                    "alike)"
                )
                return replace(before, notes=tuple(notes))
            if batch.head is not None and same.head == batch.head:
                raise DataError(
                    f"[repeated-rows] '{batch.name}' begins with the same rows as "
                    f"batch {number} ('{same.name}'): give only rows that are new"
                )
        grown = before.after(batch) if path is None else before.append(path, batch)
        return replace(grown, notes=tuple(notes))

    if not isinstance(state, str | os.PathLike):
        return count(state, None)
    with held(Path(state)) as before:
        return count(before, Path(state))


def _open_table(
    predictor: Predictor,
    table: Any,
    columns: Mapping[str, str | None],
    unseen: Unseen | None,
    name: str | None,
) -> tuple[Federation, str]:
    """Read a table as the model's own was, in one split; also tell which people.

    The mark is a hash of ids, where there are any: people may be equal.
    """
    encoding, frame = predictor.preparation, read_table(table)[0]
    weight, id = columns["weight"] or encoding.weight, columns["id"]
    if name is None:
        path = isinstance(table, str | os.PathLike)
        name = Path(table).name if path else "table"
    wanted = [column for column in (columns["silo"], id, weight) if column]
    require(wanted, list(frame.columns), name)
    groups = tuple(attribute.name for attribute in encoding.schema.attributes)
    options = TableOptions(
        label=encoding.label,
        group=groups,
        silo=columns["silo"],
        id=id,
        test_fraction=0.0,
    )
    rows = Federation.alike(
        frame,
        replace(encoding, weight=weight),
        options,
        unseen=unseen,
        name=name,
        learnt_from=False,
    )
    return rows, "" if id is None else files.digest("\0".join(map(str, frame[id])))


def _check(predictor: Predictor, engine: Engine, splits: Sequence[str]) -> None:
    """Refuse rows that say nothing of the model's new people."""
    if predictor.schema.hash != engine.schema.hash:
        raise DataError(
            "[other-schema] these rows have other inputs, groups or labels than the "
            "model: a table is read as its own was, pffl.monitor(model, table)"
        )
    if absent := [split for split in splits if split not in engine.splits]:
        raise UsageError(
            f"[unknown-split] no split '{absent[0]}': there are {list(engine.splits)}"
        )
    here = engine.federation
    own = here is not None and here.fingerprint == predictor.fingerprint
    if own and "train" in splits:
        raise DataError(TRAINED)


def _ask(
    deployed: Deployed, engine: Engine, splits: Sequence[str], settings: Settings
) -> Flow[Batch]:
    """Ask the silos for the sums of these rows."""
    schema, pooled, s_max = engine.schema, engine.pooled, settings.weight_bound
    counted = yield from ask_all([Census(schema, split) for split in splits])
    if s_max is None and any((one.counts != one.weights).any() for one in counted):
        raise DataError(WEIGHTED)
    if pooled and any(cell.silo is not None for cell in settings.cells):
        raise UsageError(
            "[no-single-silo] under secure sums no bound of a single silo is watched"
        )
    cells = _cells(settings.cells, schema, engine.silo_names)
    predictor, access = deployed.predictor, Access(pooled=pooled)
    queries = [
        Evaluate(
            task_of(predictor.model, cells, census, "silos", access),
            predictor.w,
            split,
            deployed.loss_bound,
            bets=np.array(settings.bets),
            weight_bound=s_max or 1.0,
            levels=alarm.levels([cell.bound for cell in settings.cells])[:, None],
            rising=1,
        )
        for census, split in zip(counted, splits, strict=True)
    ]
    totals = yield from ask_all(queries)
    count, loss = (
        np.sum([total.column(name) for total in totals], axis=0)
        for name in ("count", "bounded_loss")
    )
    if deployed.is_trained_on(count, loss):
        raise DataError(TRAINED)
    rises = np.sum([total.rises for total in totals], axis=0)
    above = np.sum([total.logs[:, :, 0] for total in totals], axis=0)
    people, heavy, never, t, tx = rises.T
    if heavy.any():
        z = int(heavy.argmax())
        raise DataError(
            f"[bad-weights] {heavy[z]:,.0f} rows of '{settings.names[z]}' weigh more "
            f"than {s_max:g}: begin another monitor with a larger `weight_bound=NUMBER`"
        )
    return Batch(
        "",
        int(count.sum()),
        files.digest_arrays(rises, above),
        None,
        people.astype(int).tolist(),
        (tx * (s_max or 1.0)).tolist(),
        above.tolist(),
        never.astype(int).tolist(),
        None if s_max is None else (t * s_max).tolist(),
    )


def _marked(
    sums: Batch, here: Federation | None, splits: Sequence[str], mark: str, name: str
) -> Batch:
    """Return sums with a name, and with hashes of all rows and of the first ones.

    Where rows are out of reach, the sums themselves have to tell.
    """
    if here is None:
        return replace(sums, name=name)
    parts = [silo.rows(split) for split in splits for silo in here.silos]

    def hash_of(mark: str, parts: Sequence[Any]) -> str:
        rows = [(str(len(r)), *contents(r.X), r.y, r.group) for r in parts]
        return files.digest(here.schema.hash, mark, *(a for row in rows for a in row))

    first = [rows.view(0, HEAD_ROWS) for rows in parts]
    long = sum(map(len, first)) >= HEAD_ROWS
    head = hash_of("", first) if long else None
    return replace(sums, name=name, hash=hash_of(mark, parts), head=head)
