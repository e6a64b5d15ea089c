"""`monitor`: batches of new rows are counted, and an alarm is raised in time.

The silos answer a census and `evaluate` with bets: sums over rows, which add. Groups,
bounds, confidence and bets are fixed before the first row is seen. They are kept in one
file with the sums of every batch; what these come to follows from `bounds.alarm`.
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
from pffl.bounds.checks import probability
from pffl.bounds.mean import Bets
from pffl.constraints import AUTO, Bound, BoundedGroupLoss, Cells
from pffl.data.federation import Federation
from pffl.data.read import is_table, read_table, require
from pffl.data.rows import contents
from pffl.data.table import TableOptions
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import ArtefactError, DataError, UsageError
from pffl.evidence.figures import named
from pffl.evidence.measure import cells_of
from pffl.evidence.record import Evidence, Training, known
from pffl.flow import Flow, ask_all
from pffl.models.predictor import Predictor
from pffl.prepare import task_of
from pffl.problem import Access
from pffl.queries import Census, Evaluate
from pffl.runs import model_of
from pffl.text import decimals, down, element, few, text_table, words
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

FORMAT, VERSION = "pffl.monitor", 5
STATE = "monitor.json"  # in a run directory
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


# What is fixed, and what is counted


@dataclass(frozen=True)
class Settings(records.Record):
    """What is fixed before the first row is seen.

    Attributes
    ----------
    model, schema
        Fingerprint of the predictor, and hash of its names.
    bounds, unwatched
        The groups with their bounds, and the names of those that have none.
    confidence
        1 − δ.
    bets, bet_weights
        γ and π of each group.
    """

    model: str
    schema: str
    bounds: dict[str, float]
    unwatched: list[str]
    confidence: float
    bets: list[list[float]]
    bet_weights: list[list[float]]

    def __post_init__(self) -> None:
        probability("confidence", self.confidence)

    @property
    def names(self) -> list[str]:
        """Names of the groups."""
        return list(self.bounds)

    @property
    def threshold(self) -> float:
        """The e-value that is an alarm."""
        return alarm.threshold(len(self.bounds), self.confidence)


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
        How many people each group has in it, and the sum of their mean losses.
    above
        Σ log(1 + γ(loss/bound − 1)) over them, per group and bet; see `bounds.alarm`.
    impossible
        Rows of each group whose label had a probability of 0.
    """

    name: str
    rows: int
    hash: str
    head: str | None
    count: list[int]
    loss: list[float]
    above: list[list[float]]
    impossible: list[int]


@dataclass(frozen=True, eq=False, repr=False)
class Monitor(records.Record):
    """What was fixed, and what came of each batch; see `pffl.monitor`.

    Attributes
    ----------
    settings
        What was fixed before the first row.
    batches
        Their sums, in order.
    notes
        What to know of the rows that were given last.
    """

    settings: Settings
    batches: tuple[Batch, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def plain(self) -> dict[str, Any]:
        """What is kept in a file."""
        own = {
            "settings": asdict(self.settings),
            "batches": [*map(asdict, self.batches)],
        }
        return {"format": FORMAT, "version": VERSION, **own}

    @property
    def digest(self) -> str:
        """Hash of all that is kept: it tells whether a file was changed."""
        return files.digest(files.key_of(self.plain))

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """A row per batch and group: how the group stands after the batch."""
        s, out = self.settings, []
        bets = Bets(np.array(s.bets), np.array(s.bet_weights))
        wealth = alarm.Wealth.none(bets.gammas.shape)
        total, crossed = np.zeros((3, len(s.names))), dict[str, tuple[int, int]]()
        for number, batch in enumerate(self.batches, start=1):
            gains = alarm.gains(bets, np.array(batch.above), batch.count)
            wealth = wealth.after(gains, batch.count)
            sums = [batch.count, batch.loss, batch.impossible]
            total += np.array(sums).reshape(total.shape)
            log_e = np.minimum(wealth.log_values(bets), MAX_LOG_E)
            log_e = np.where(total[2] > 0, MAX_LOG_E, log_e)
            for z, (cell, bound) in enumerate(s.bounds.items()):
                (people, loss, impossible), own = total[:, z], batch.count[z]
                if log_e[z] >= np.log(s.threshold):
                    crossed.setdefault(cell, (int(people), number))
                row, at = crossed.get(cell, (None, None))
                out.append(
                    {
                        "batch": number,
                        "name": batch.name,
                        "cell": cell,
                        "rows": int(people),
                        "mean_loss": float(loss / people) if people else None,
                        "batch_rows": own,
                        "batch_mean_loss": batch.loss[z] / own if own else None,
                        "bound": bound,
                        "e_value": math.exp(log_e[z]),
                        "threshold": s.threshold,
                        "impossible": int(impossible),
                        "crossed_at_row": row,
                        "crossed_in_batch": at,
                    }
                )
        return out

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row per group: how it stands after the last batch."""
        return self.history[-len(self.settings.names) :]

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
        many = len(self.batches)
        after = f"after {many:,} batch{'' if many == 1 else 'es'}, {self.rows:,} rows"
        if not self.alarms:
            return (
                f"No alarm {after}: they do not show that the mean loss of a group is "
                "above its bound. They do not show that it is within it, either."
            )
        told = [f"{cell}, at its row {row:,}" for cell, row in self.alarms.items()]
        false = (100 - 100 * Decimal(repr(self.settings.confidence))).normalize()
        text = (
            f"Alarm for {few(told)} ({after} in all). While all mean losses stay "
            f"within their bounds, at most {false:f} % of monitors ever raise an alarm."
        )
        if never := sum(row["impossible"] for row in self.table):
            text += f" {never:,} rows had a probability of 0 for what happened."
        return text

    def as_dict(self) -> dict[str, Any]:
        """Return it in plain form: what ``--json`` prints."""
        s, here = self.settings, ("status", "message", "rows", "history", "digest")
        return {
            "format": FORMAT,
            "version": VERSION,
            **{name: getattr(self, name) for name in here},
            "model": s.model,
            "confidence": s.confidence,
            "threshold": s.threshold,
            "batches": len(self.batches),
            "cells": self.table,
            "unwatched": s.unwatched,
            "assumes": list(ASSUMPTIONS),
            "notes": list(self.notes),
        }

    @property
    def shown(self) -> list[dict[str, str]]:
        """The table as it is read: e-values rounded down."""

        def loss(mean: float | None) -> str:
            return "–" if mean is None else decimals(mean)

        return [
            {
                "group": row["cell"],
                "rows": f"{row['rows']:,}",
                "mean loss": loss(row["mean_loss"]),
                "last batch": loss(row["batch_mean_loss"]),
                "bound": decimals(row["bound"]),
                "e-value": down(row["e_value"], digits=3),
                "alarm at": words(row["threshold"]),
                "crossed at row": f"{at:,}" if (at := row["crossed_at_row"]) else "no",
            }
            for row in self.table
        ]

    def __repr__(self) -> str:
        """Return how it stands, in a few lines."""
        return "\n".join([*text_table(self.shown), self.message])

    def _repr_html_(self) -> str:
        title = f"Monitor: {self.status}"
        return element("monitor", title, [self.message, *self.notes], self.shown)


# The file


@contextmanager
def held(path: Path) -> Iterator[Monitor | None]:
    """Hold the file of a monitor against other processes, and read it."""
    files.folder(path.parent)
    with files.lock(path.with_name(f".{path.name}.lock")):
        yield read(path) if path.exists() else None


def write(path: Path, monitor: Monitor) -> None:
    """Write a monitor as one file, whole at any time."""
    plain = {**monitor.plain, "digest": monitor.digest}
    files.write(path, files.json_text(plain).encode())


def read(path: Path) -> Monitor:
    """Read the file of a monitor; its digest and its sums are checked."""
    plain = records.read(dict[str, Any], files.read(path), source=f"'{path}'")
    if plain.get("format") != FORMAT:
        raise ArtefactError("bad-state", path=path)
    if (found := plain.get("version")) != VERSION:
        raise ArtefactError("other-format:read", path=path, found=found, own=VERSION)
    try:
        own = {name: plain[name] for name in ("settings", "batches")}
        monitor = records.read(Monitor, own, source=f"'{path}'")
        if monitor.digest != plain["digest"] or not monitor.history:
            raise ValueError("other content than was written")
    except (ArtefactError, ValueError, TypeError, LookupError) as error:
        raise ArtefactError("changed-file:read", path=path) from error
    return monitor


# What is watched


def settle(
    predictor: Predictor,
    e: Evidence | None,
    bound: Bound = None,
    confidence: float | None = None,
) -> Settings:
    """Fix everything, before the first row is seen."""
    own = cells = _cells(predictor, e)
    if bound is not None:
        if AUTO in (bound.values() if isinstance(bound, Mapping) else [bound]):
            raise UsageError("needs-bound:settle")
        BoundedGroupLoss(bound)  # which refuses what is no bound
        cells = own.bounded(bound, "monitor")
    bounds = dict(zip(cells.names, cells.bounds.tolist(), strict=True))
    bounds = {name: number for name, number in bounds.items() if math.isfinite(number)}
    if not bounds:
        raise UsageError("needs-bound:settle-2")
    variance = None
    if e is not None and own.names == tuple(e.names) and not e.seen.weighted:
        variance = e.seen.variances[[own.names.index(name) for name in bounds]]
    bets = alarm.plan(list(bounds.values()), variance=variance)
    return Settings(
        _fingerprint(predictor),
        predictor.schema.hash,
        bounds,
        [name for name in own.names if name not in bounds],
        0.95 if confidence is None else confidence,
        bets.gammas.tolist(),
        bets.weights.tolist(),
    )


def _fingerprint(predictor: Predictor) -> str:
    """Return the fingerprint of the model with its limits."""
    M = _loss_bound(predictor)
    return files.digest(predictor.model.fingerprint(predictor.w), repr(M))


def _loss_bound(predictor: Predictor) -> float:
    M = predictor.model.loss_bound(predictor.loss_bound)
    return np.inf if M is None else M


def _cells(predictor: Predictor, e: Evidence | None) -> Cells:
    """Return the groups of a run, or all; NaN is the bound of those that have none."""
    schema = predictor.schema
    if e is None or any(cell.silo for cell in e.cells):
        groups = BoundedGroupLoss(1.0).cells(schema, ())
        return groups.with_bounds(np.full(len(groups), np.nan))
    cells = cells_of(e, schema)
    if not e.promise or e.minimax or e.terms.on_rates or e.seen.weighted:
        return cells.with_bounds(np.full(len(cells), np.nan))  # people count equally
    return cells


# A batch


def monitor(
    model: object,
    rows: Federation | Engine | pd.DataFrame | str | os.PathLike[str],
    *,
    state: str | os.PathLike[str] | Monitor | None = None,
    bound: Bound = None,
    confidence: float | None = None,
    splits: Sequence[str] | None = None,
    id: str | None = None,
    name: str | None = None,
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
        The file that remembers the batches before, and this one (made where it is not
        there); or what was returned for the batch before. None: this
        is the first batch.
    bound
        Other bounds for the groups of the model's run: a number, or one for each
        group by name (others are not watched). Of a model without its run, or with
        bounds on silos, the bound of every group.
    confidence
        1 − δ, 0.95 by default. Bounds and confidence are fixed with the first batch;
        another one later is refused.
    splits
        Of a federation: the splits whose rows are the batch. Default: all.
    id
        Of a table: the column that says who a row is about.
    name
        What to call the batch.

    Returns
    -------
    Monitor
        Where each group stands: ``status``, ``alarms``, ``history``; print it.

    Raises
    ------
    DataError
        Rows without labels, with weights, of groups that the model does not know, or
        trained on.
    UsageError
        Other bounds or another confidence than the monitor began with.
    ArtefactError
        The state was edited, or is that of another model.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), random_state=0)
    >>> # people of another kind come later
    >>> later = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], random_state=1)
    >>> pffl.monitor(solution, later, name="march").status
    'alarm'
    """
    predictor, e = model_of(model)
    given = cast("Federation | Engine", rows)
    if is_table(rows):
        given = _open_table(predictor, rows, name, id)
    elif id is not None:
        raise UsageError("options-conflict:monitor")
    if confidence is not None:
        probability("confidence", confidence)
    engine = open_engine(given, "local")
    used = tuple(engine.splits if splits is None else splits)
    if predictor.schema.hash != engine.schema.hash:
        raise DataError("other-schema:check")

    def count(before: Monitor | None) -> Monitor:
        if before is None:
            before = Monitor(settle(predictor, e, bound, confidence))
        asked = None if bound is None else settle(predictor, e, bound).bounds
        _require(before.settings, predictor, confidence=confidence, bounds=asked)
        called = name or engine.name
        batch = drive(engine, _ask(predictor, e, engine, used, before.settings, called))
        notes = [*engine.notes, *(given.notes if is_table(rows) else ())]
        if e is not None and (who := named(e)):
            notes.append(f"what is watched is {who}")
        for number, same in enumerate(before.batches, start=1):
            if same.hash == batch.hash:
                notes.append(
                    f"'{batch.name}' has the rows of batch {number} ('{same.name}'), "
                    "and was not counted again"
                )
                return replace(before, notes=tuple(notes))
            if batch.head is not None and same.head == batch.head:
                first = f"{number} ('{same.name}')"
                raise DataError("repeated-rows", name=batch.name, first=first)
        return Monitor(before.settings, (*before.batches, batch), tuple(notes))

    if not isinstance(state, str | os.PathLike):
        return count(state)
    with held(Path(state)) as before:
        found = count(before)
        write(Path(state), found)
    return found


def _require(settings: Settings, predictor: Predictor, **asked: Any) -> None:
    """Refuse a state of another model, and wishes that differ from it."""
    model = _fingerprint(predictor)
    if (settings.model, settings.schema) != (model, predictor.schema.hash):
        raise ArtefactError("other-model:require", old=settings.model, new=model)
    for what, value in asked.items():
        if value not in (None, first := getattr(settings, what)):
            raise UsageError("options-changed", what=what, value=value, first=first)


def _open_table(
    predictor: Predictor, table: Any, name: str | None, id: str | None
) -> Federation:
    """Read a table as the model's own was, in one split."""
    encoding, frame = predictor.preparation, read_table(table)[0]
    if name is None:
        name = "table" if hasattr(table, "columns") else Path(table).name
    require([] if id is None else [id], list(frame.columns), name)
    groups = tuple(attribute.name for attribute in encoding.schema.attributes)
    options = TableOptions(label=encoding.label, group=groups, id=id, test_fraction=0.0)
    encoding = replace(encoding, weight=None)
    return Federation.alike(frame, encoding, options, name=name, learnt_from=False)


def _is_trained_on(e: Evidence | None, count: FloatArray, loss: FloatArray) -> bool:
    """Whether rows with these sums per stratum are those that a run was trained on.

    Alone, or with others that the run had.
    """
    if e is None or not isinstance(e.training, Training):
        return False
    test, path = known(e.heldout), known(e.path)
    others = [] if test is None else [test]
    others += [] if path is None else [path.shipped.calibration]
    for some in range(len(others) + 1):
        for more in combinations(others, some):
            rows, sums = (
                np.sum([part.column(name) for part in (e.seen, *more)], axis=0)
                for name in ("count", "bounded_loss")
            )
            near = np.allclose(loss, sums, rtol=1e-9, atol=1e-9)
            if near and np.array_equal(count, rows):
                return True
    return False


def _ask(
    predictor: Predictor,
    e: Evidence | None,
    engine: Engine,
    splits: Sequence[str],
    settings: Settings,
    name: str,
) -> Flow[Batch]:
    """Ask the silos for the sums of these rows."""
    counted = yield from ask_all([Census(engine.schema, split) for split in splits])
    if any((one.counts != one.weights).any() for one in counted):
        raise DataError("weights-refused")
    cells = _cells(predictor, e).bounded(settings.bounds, "monitor")
    access = Access(pooled=engine.pooled)
    queries = [
        Evaluate(
            task_of(predictor.model, cells, census, "silos", access),
            predictor.w,
            split,
            _loss_bound(predictor),
            bets=np.array(settings.bets),
            weight_bound=1.0,
            levels=alarm.levels(cells.bounds)[:, None],
            rising=True,
        )
        for census, split in zip(counted, splits, strict=True)
    ]
    totals = yield from ask_all(queries)
    count, loss = (
        np.sum([total.column(name) for total in totals], axis=0)
        for name in ("count", "bounded_loss")
    )
    here = engine.federation
    same = here is not None and here.fingerprint == predictor.fingerprint
    if (same and "train" in splits) or _is_trained_on(e, count, loss):
        raise DataError("training-rows")
    rises = np.sum([total.rises for total in totals], axis=0)
    above = np.sum([total.logs[:, :, 0] for total in totals], axis=0)
    people, _, never, _, loss_of_people = rises.T
    marks: tuple[str, str | None] = files.digest_arrays(rises, above), None
    return Batch(
        name,
        int(count.sum()),
        *(marks if here is None else _marks(here, splits)),
        people.astype(int).tolist(),
        loss_of_people.tolist(),
        above.tolist(),
        never.astype(int).tolist(),
    )


def _marks(here: Federation, splits: Sequence[str]) -> tuple[str, str | None]:
    """Return hashes of all rows, and of the first ones, if they are many enough."""
    parts = [silo.rows(split) for split in splits for silo in here.silos]

    def hash_of(parts: Sequence[Any]) -> str:
        rows = [(str(len(r)), *contents(r.X), r.y, r.group) for r in parts]
        return files.digest(here.schema.hash, *(a for row in rows for a in row))

    first = [rows.take(slice(HEAD_ROWS)) for rows in parts]
    long = sum(map(len, first)) >= HEAD_ROWS
    return hash_of(parts), hash_of(first) if long else None
