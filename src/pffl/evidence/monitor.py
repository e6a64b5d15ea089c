"""A monitor: what new rows say of a deployed model's bounds, batch by batch.

An e-value per cell grows while the cell's losses are above its bound; one that reaches
its threshold is an alarm (`bounds.alarm`). Everything that it stands on is settled
before the first row is seen, and lies in the first line of a file of JSON lines; each
batch adds a line with its sums and the hash of the line before. What the sums come to
is computed from them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pffl import files, records
from pffl.bounds import alarm
from pffl.bounds.checks import probability
from pffl.bounds.mean import Bets
from pffl.errors import ArtefactError
from pffl.records import Record
from pffl.text import decimals, down, element, few, text_table, words
from pffl.typing import FloatArray

FORMAT, VERSION = "pffl.monitor", 3
STATE = "monitor.jsonl"  # in a run directory
LARGEST = 700.0  # of a logarithm whose number can be written
#: What an alarm stands on, in words; nobody can check it by the rows alone.
ASSUMPTIONS = (
    "People are independent of each other, given their cell and silo, and nobody is in "
    "two batches. Rows are people, unless an id says whom they are about: then a "
    "person counts once in a batch, with the mean of their rows.",
    "Who has a label by now does not depend on how wrong the model is about them.",
    "No row was trained on, and which batches were given was not chosen by their "
    "losses.",
)


@dataclass(frozen=True)
class Watched(Record):
    """One cell: its name, its bound, the silo it is confined to, and its strata."""

    cell: str
    bound: float
    silo: str | None
    of: list[tuple[str, str | None]]


@dataclass(frozen=True)
class Settings(Record):
    """What is settled before the first row is seen.

    Attributes
    ----------
    model, schema
        Fingerprint of the predictor, and hash of its names.
    cells, unwatched
        The cells that have a bound, and the names of those that have none.
    confidence
        1 − δ.
    bets, bet_weights
        γ and π of each cell.
    weight_bound
        What no row's weight is above, s_max, where rows have weights; None where they
        count alike.
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

    @cached_property
    def bounds(self) -> FloatArray:
        """Return ζ of each cell."""
        return np.array([cell.bound for cell in self.cells])

    @property
    def names(self) -> list[str]:
        """Names of the cells."""
        return [cell.cell for cell in self.cells]

    @property
    def threshold(self) -> float:
        """The e-value that is an alarm."""
        return alarm.threshold(len(self.cells), self.confidence)


@dataclass(frozen=True)
class Batch(Record):
    """Sums over one batch of rows.

    Attributes
    ----------
    name
        What it is called: a file, say.
    rows, hash, head
        How many rows there are, a hash of all of them, and one of the first ones in
        order; None where that is not known.
    count, loss
        How many people each cell has in it, and the sum of their mean losses; times
        their weights, where rows have weights.
    above
        Σ log(1 + γ(loss/bound − 1)) over them, per cell and bet; see `bounds.alarm`.
    impossible
        Rows of each cell whose label had a probability of 0.
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

    @property
    def mass(self) -> Sequence[float]:
        """What the sums of losses are divided by for a mean."""
        return self.count if self.weight is None else self.weight


@dataclass(frozen=True, eq=False)
class Entry:
    """A batch, and what all batches up to it come to.

    Attributes
    ----------
    number, batch
        Its place, from 1 on, and its sums.
    count, loss, impossible, mass
        People, sums of losses, rows whose label had a probability of 0, and what losses
        are divided by for a mean, so far, per cell.
    wealth, log_e
        What the alarm remembers, and the logarithm of each cell's e-value; `LARGEST`
        stands for infinity.
    crossed
        How many people the cell had had, and in which batch it was, when its e-value
        was first seen at the threshold or above it; None where it never was.
    """

    number: int
    batch: Batch
    count: list[int]
    loss: list[float]
    impossible: list[int]
    mass: list[float]
    wealth: alarm.Wealth
    log_e: list[float]
    crossed: list[tuple[int, int] | None]


@dataclass(frozen=True, eq=False, repr=False)
class Monitor:
    """What was settled, and what came of each batch; see `pffl.monitor`.

    Attributes
    ----------
    settings
        What was settled before the first row.
    entries
        One per batch, in order.
    digest
        Hash of the last line of its file: whoever keeps it can tell whether lines were
        changed, or taken away.
    notes
        What to know of the rows that were given last.
    """

    settings: Settings
    entries: tuple[Entry, ...] = ()
    digest: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def begin(cls, settings: Settings) -> Monitor:
        """Return a monitor that has seen no row."""
        return cls(settings, digest=str(_sealed(_head(settings), "")["digest"]))

    # What came of it

    @property
    def alarms(self) -> dict[str, int]:
        """The cells with an alarm, and the row of the cell at which it was seen."""
        if not self.entries:
            return {}
        pairs = zip(self.settings.names, self.entries[-1].crossed, strict=True)
        return {cell: at[0] for cell, at in pairs if at is not None}

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
        """Rows so far, those in no cell included."""
        return sum(entry.batch.rows for entry in self.entries)

    @property
    def message(self) -> str:
        """How it stands, in words."""
        many = len(self.entries)
        after = (
            f"after {many:,} batch{'' if many == 1 else 'es'} with {self.rows:,} rows"
        )
        if not self.alarms:
            return (
                f"No alarm {after}: they do not show that the mean loss of a cell is "
                "above its bound. They do not show that it is within it, either."
            )
        last, sure = self.entries[-1], Decimal(repr(self.settings.confidence))
        crossed = zip(self.settings.names, last.crossed, strict=True)
        told = [
            f"{cell}, crossed at row {at[0]:,} of the cell (batch {at[1]})"
            for cell, at in crossed
            if at is not None
        ]
        never = [
            f"{many:,} rows of {cell} had a probability of 0 for what happened, which "
            "is an infinite loss. "
            for cell, many in zip(self.settings.names, last.impossible, strict=True)
            if many
        ]
        return (
            f"Alarm {after} for {few(told)}. {''.join(never)}With confidence "
            f"{percent(sure)} the mean "
            "loss that was to be expected of the cell's people up to that row, of all "
            "of them or of those from the beginning of some batch on, was above the "
            "bound: while it stays within it, in every cell, the probability that a "
            "monitor like this one ever raises an alarm is at most "
            f"{percent(1 - sure)}."
        )

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row per cell: how it stands after the last batch."""
        if not self.entries:
            return []
        last = self.entries[-1]
        return [
            {
                "cell": cell.cell,
                "rows": last.count[z],
                "mean_loss": _mean(last.loss[z], last.mass[z]),
                "last_rows": last.batch.count[z],
                "last_mean_loss": _mean(last.batch.loss[z], last.batch.mass[z]),
                "bound": cell.bound,
                "e_value": value(last.log_e[z]),
                "threshold": self.settings.threshold,
                "crossed_at_row": (last.crossed[z] or (None, None))[0],
                "crossed_in_batch": (last.crossed[z] or (None, None))[1],
            }
            for z, cell in enumerate(self.settings.cells)
        ]

    @property
    def history(self) -> list[dict[str, Any]]:
        """A row per batch and cell: its rows so far, its e-value, and the threshold."""
        return [
            {
                "batch": entry.number,
                "name": entry.batch.name,
                "cell": cell,
                "rows": entry.count[z],
                "batch_rows": entry.batch.count[z],
                "batch_mean_loss": _mean(entry.batch.loss[z], entry.batch.mass[z]),
                "e_value": value(entry.log_e[z]),
                "threshold": self.settings.threshold,
            }
            for entry in self.entries
            for z, cell in enumerate(self.settings.names)
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return it in plain form: what ``--json`` prints."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "status": self.status,
            "message": self.message,
            "model": self.settings.model,
            "confidence": self.settings.confidence,
            "weight_bound": self.settings.weight_bound,
            "threshold": self.settings.threshold,
            "batches": len(self.entries),
            "rows": self.rows,
            "cells": self.table,
            "unwatched": self.settings.unwatched,
            "history": self.history,
            "assumes": assumptions(self.settings),
            "notes": list(self.notes),
            "digest": self.digest,
        }

    def __repr__(self) -> str:
        """Return how it stands, in a few lines."""
        return "\n".join([*text_table(shown(self)), self.message])

    def _repr_html_(self) -> str:
        title = f"Monitor: {self.status}"
        return element("monitor", title, [self.message, *self.notes], shown(self))

    # How it goes on

    def same(self, **marks: str | None) -> Entry | None:
        """Return the first batch with this mark (`hash`, `head`), if one has it."""
        pairs = [(name, mark) for name, mark in marks.items() if mark is not None]
        for entry in self.entries:
            if any(getattr(entry.batch, name) == mark for name, mark in pairs):
                return entry
        return None

    def after(self, batch: Batch) -> Monitor:
        """Return it after one more batch."""
        s, Z, number = self.settings, len(self.settings.cells), len(self.entries) + 1
        counts, sums = np.array(batch.count), np.array(batch.above)
        totals = np.array([batch.loss, batch.impossible, batch.mass], dtype=np.float64)
        wealth, crossed = alarm.Wealth.none(s.planned.gammas.shape), [None] * Z
        people = counts
        if self.entries:
            last = self.entries[-1]
            wealth, crossed = last.wealth, last.crossed  # type: ignore[assignment]
            totals = totals + np.array([last.loss, last.impossible, last.mass])
            people = counts + last.count
        wealth = wealth.after(alarm.gains(s.planned, sums, counts), counts)
        logs = np.minimum(wealth.log_values(s.planned), LARGEST)
        logs = np.where(totals[1] > 0, LARGEST, logs)
        over = logs >= np.log(s.threshold)
        entry = Entry(
            number,
            batch,
            people.tolist(),
            totals[0].tolist(),
            totals[1].astype(int).tolist(),
            totals[2].tolist(),
            wealth,
            logs.tolist(),
            [
                at or ((int(people[z]), number) if over[z] else None)
                for z, at in enumerate(crossed)
            ],
        )
        digest = str(_sealed(asdict(batch), self.digest)["digest"])
        return replace(self, entries=(*self.entries, entry), digest=digest)

    def append(self, path: Path, batch: Batch) -> Monitor:
        """Add a batch to a file, with the first one what was settled, and return it."""
        grown = self.after(batch)
        if not self.entries:
            files.append(path, _sealed(_head(self.settings), ""))
        files.append(path, _sealed(asdict(batch), self.digest))
        return grown


def assumptions(settings: Settings) -> list[str]:
    """What an alarm stands on, in words."""
    out = list(ASSUMPTIONS)
    if settings.weight_bound is not None:
        out.append(
            "Means are weighted, and nobody's weight is above "
            f"{words(settings.weight_bound)}; a batch with a heavier row is refused."
        )
    return out


def _head(settings: Settings) -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION, **asdict(settings)}


def _mean(total: float, count: float) -> float | None:
    return total / count if count else None


def percent(share: Decimal) -> str:
    """Write a probability, with all of its digits."""
    return f"{(100 * share).normalize():f} %"


def value(log_e: float) -> float:
    """Return an e-value; of one beyond all numbers, a large one."""
    return math.exp(min(log_e, LARGEST))


def shown(monitor: Monitor) -> list[dict[str, str]]:
    """Return the table of cells as it is read: e-values rounded down."""

    def loss(number: float | None) -> str:
        return "–" if number is None else decimals(number)

    return [
        {
            "cell": row["cell"],
            "rows": f"{row['rows']:,}",
            "mean loss": loss(row["mean_loss"]),
            "last batch": loss(row["last_mean_loss"]),
            "bound": decimals(row["bound"]),
            "e-value": down(row["e_value"], digits=3),
            "alarm at": words(row["threshold"]),
            "crossed at row": "no"
            if row["crossed_at_row"] is None
            else f"{row['crossed_at_row']:,}",
        }
        for row in monitor.table
    ]


# The file


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
    first, *lines = whole.split(b"\n")
    if not end:
        return None, 0
    plain = _checked(path, 1, first, "")
    found = (plain.pop("format", None), plain.pop("version", None))
    if found != (FORMAT, VERSION):
        raise ArtefactError(
            f"[other-format] '{path}' is a state of version {found[1]} (of pffl 0.2, "
            f"say), not {VERSION}: begin a new one (--state FILE)"
        )
    monitor = Monitor.begin(records.read(Settings, plain, source=f"'{path}', line 1"))
    for number, text in enumerate(lines, start=2):
        plain = _checked(path, number, text, monitor.digest)
        batch = records.read(Batch, plain, source=f"'{path}', line {number}")
        try:
            monitor = monitor.after(batch)
        except (ValueError, TypeError, IndexError) as error:
            raise _edited(path, number) from error
    # Without a batch nothing was begun.
    return (monitor, len(whole) + 1) if lines else (None, 0)


def _checked(path: Path, number: int, text: bytes, before: str) -> dict[str, Any]:
    """Return a line without its hashes, which must be right."""
    plain = records.read(dict[str, Any], text, source=f"'{path}', line {number}")
    hashes = plain.pop("before", None), plain.pop("digest", None)
    if hashes != (before, _sealed(plain, before)["digest"]):
        raise _edited(path, number)
    return plain


def _edited(path: Path, number: int) -> ArtefactError:
    return ArtefactError(
        f"[changed-file] '{path}', line {number}: it was changed after it was "
        "written, or a line before it was; begin a new monitor (--state FILE), or "
        "take a copy that is as it was"
    )
