"""`monitor`: a batch of new rows is counted, and an alarm raised in time.

The silos answer `evaluate` with bets, and nothing else is asked but a census: sums over
rows, which add. What they come to is a pure function of them (`evidence.monitor`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pffl import files
from pffl._solve import open_engine
from pffl.bounds import alarm
from pffl.constraints import Bound, Constraint
from pffl.data.encoding import Unseen
from pffl.data.federation import Federation
from pffl.data.reading import is_table, read_table, require
from pffl.data.silo import Rows
from pffl.data.sparse import contents
from pffl.data.table import TableOptions
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import DataError, UsageError
from pffl.evidence.figures import named
from pffl.evidence.monitor import (
    Batch,
    Monitor,
    Settings,
    held,
    json_of,
    text_of,
)
from pffl.flow import Flow, ask_all
from pffl.models.predictor import Predictor
from pffl.monitoring.watched import Deployed, Wish, cells_of
from pffl.prepare import task_of
from pffl.problem import Access
from pffl.queries import Census, Evaluate

if TYPE_CHECKING:
    import pandas as pd

HEAD = 20  # rows by which a batch is known that begins as another one did
WEIGHTED = (
    "[needs-weight-bound] rows count by a weight here, and the monitor is one of means "
    "in which all count alike: begin one with `weight_bound=NUMBER`, which no weight "
    "is above"
)
TRAINED = (
    "[training-rows] these are the data that the model was trained on: they say "
    "nothing of people who came later"
)


def monitor(
    model: object,
    rows: Federation | Engine | pd.DataFrame | str | os.PathLike[str],
    *,
    state: str | os.PathLike[str] | Monitor | None = None,
    bound: Bound = None,
    constraint: Constraint | None = None,
    confidence: float | None = None,
    splits: Sequence[str] | None = None,
    silo: str | None = None,
    id: str | None = None,
    weight: str | None = None,
    unseen: Unseen | None = None,
    name: str | None = None,
    weight_bound: float | None = None,
) -> Monitor:
    """Count a batch of new rows with labels, and say whether a cell raises an alarm.

    An e-value per cell grows while its losses are above its bound. It may be looked at
    after every batch, for as long as the model is in use: while all cells stay within
    their bounds, an alarm ever comes with a probability of at most 1 − confidence.

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
        Other bounds for the model's cells: a number, or one for each cell by name
        (others are not watched).
    constraint
        Other cells, with their bounds.
    confidence
        1 − δ, 0.95 by default. Bounds, cells and confidence are settled with the first
        batch; another one later is refused.
    splits
        Of a federation: the splits whose rows are the batch. Default: all.
    silo, id, weight
        Of a table: the columns that say where a row lives, whom it is about, and how
        much it counts (by default the model's own, where it was trained with weights).
    unseen
        Of a table: what becomes of categories that are new to the model.
    name
        What to call the batch.
    weight_bound
        What no row's weight is above, where rows have weights: settled with the first
        batch. Default: the run's. A batch with a heavier row is refused.

    Returns
    -------
    Monitor
        Where each cell stands: ``status``, ``alarms``, ``history``; print it.

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
    deployed, given = Deployed.of(model), cast(Federation | Engine, rows)
    mark, notes = "", list[str]()
    if is_table(rows):
        own = deployed.predictor.preparation.weight
        table = TableRows(
            rows, silo=silo, id=id, weight=weight or own, unseen=unseen, name=name
        )
        opened = table.open(deployed.predictor)
        given, mark, notes = opened, table.mark, list(opened.notes)
    elif any(one is not None for one in (silo, id, weight, unseen)):
        raise UsageError(
            "[options-conflict] 'silo', 'id', 'weight' and 'unseen' are for tables"
        )
    engine = open_engine(given, "local")
    wish = Wish(bound, constraint, confidence, weight_bound)
    counted = Counting(deployed, engine, wish, splits, name or engine.name, mark, notes)
    if isinstance(state, str | os.PathLike):
        path = Path(state)
        with held(path) as before:
            return counted.after(before, path)
    return counted.after(state, None)


@dataclass(frozen=True, eq=False)
class TableRows:
    """A table of new rows, to be read as the model's own was.

    Attributes
    ----------
    table
        A DataFrame, or a file.
    silo, id, weight, unseen, name
        As for `monitor`.
    """

    table: Any
    silo: str | None = None
    id: str | None = None
    weight: str | None = None
    unseen: Unseen | None = None
    name: str | None = None

    def open(self, predictor: Predictor) -> Federation:
        """Return its rows, all in one split."""
        encoding, frame = predictor.preparation, self.frame
        encoding = replace(encoding, weight=self.weight)
        name = self.name or "table"
        if isinstance(self.table, str | os.PathLike):
            name = self.name or Path(self.table).name
        wanted = [c for c in (self.silo, self.id, self.weight) if c]
        require(wanted, list(frame.columns), name)
        return Federation.alike(
            frame,
            encoding,
            TableOptions(
                label=encoding.label,
                group=tuple(a.name for a in encoding.schema.attributes),
                silo=self.silo,
                id=self.id,
                test_fraction=0.0,
            ),
            unseen=self.unseen,
            name=name,
            learnt_from=False,
        )

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The table, as it was read."""
        return read_table(self.table)[0]

    @property
    def mark(self) -> str:
        """Hash of whom the rows are about, where an id tells: people may be alike."""
        if self.id is None:
            return ""
        return files.digest("\0".join(map(str, self.frame[self.id])))


@dataclass(frozen=True, eq=False)
class Counting:
    """A batch that is to be counted.

    Attributes
    ----------
    deployed, engine, wish
        The model, where its new rows are, and what is to be watched.
    splits
        The splits whose rows are meant; all of them if None.
    name, mark, notes
        What to call the batch, what tells its people from others who are alike, and
        what there is to say of them.
    """

    deployed: Deployed
    engine: Engine
    wish: Wish
    splits: Sequence[str] | None
    name: str
    mark: str
    notes: Sequence[str]

    def batch(self, settings: Settings) -> Batch:
        """Return the sums of this batch, by what was settled."""
        self._check()
        return drive(self.engine, self._asking(settings))

    def after(self, before: Monitor | None, path: Path | None) -> Monitor:
        """Return the monitor with this batch; with a path, also write it there."""
        self._check()
        silos, notes = self.engine.silo_names, [*self.engine.notes, *self.notes]
        e = self.deployed.evidence
        if e is not None and (name := named(e)):
            notes.append(f"what is watched is {name}")
        if before is None:
            grown = Monitor.begin(self.wish.begin(self.deployed, silos))
        else:
            self.wish.require(before.settings, self.deployed, silos)
            grown = before
        batch = drive(self.engine, self._asking(grown.settings))
        same = grown.known(batch.hash)
        if same is not None:
            notes.append(
                f"'{self.name}' has the rows of batch {same.number} "
                f"('{same.batch.name}'), and was not counted again (of other people "
                "who are just alike, an id tells: `id=`)"
            )
        else:
            self._refuse_again(grown, batch)
            grown = grown.after(batch) if path is None else grown.append(path, batch)
        grown = replace(grown, notes=tuple(notes))
        if path is not None:
            files.write(json_of(path), text_of(grown))
        return grown

    def _check(self) -> None:
        """Refuse rows that say nothing of the model's new people."""
        own, given = self.deployed.predictor.schema, self.engine.schema
        if own.hash != given.hash:
            raise DataError(
                "[other-schema] these rows have other inputs, groups or labels than "
                "the model was trained with: a table is read as its own was, "
                "pffl.monitor(model, table)"
            )
        absent = [s for s in self._splits if s not in self.engine.splits]
        if absent:
            there = list(self.engine.splits)
            raise UsageError(
                f"[unknown-split] no split '{absent[0]}': there are {there}"
            )
        here, data = self.engine.federation, self.deployed.predictor.fingerprint
        if here is not None and here.fingerprint == data and "train" in self._splits:
            raise DataError(TRAINED)

    @property
    def _splits(self) -> tuple[str, ...]:
        return tuple(self.engine.splits if self.splits is None else self.splits)

    def _marks(self) -> tuple[str | None, str | None]:
        """Return hashes of all rows and of the first ones; None where out of reach."""
        here = self.engine.federation
        if here is None:
            return None, None
        parts = [silo.rows(split) for split in self._splits for silo in here.silos]
        whole = files.digest(here.schema.hash, self.mark, *_bytes(parts))
        first = [rows.view(0, HEAD) for rows in parts]
        long = sum(map(len, first)) >= HEAD
        return whole, files.digest(here.schema.hash, *_bytes(first)) if long else None

    def _refuse_again(self, monitor: Monitor, batch: Batch) -> None:
        like = monitor.begins_like(batch.head)
        if like is not None:
            raise DataError(
                f"[repeated-rows] '{self.name}' begins with the same rows as batch "
                f"{like.number} ('{like.batch.name}'): give only rows that are new, "
                "as none may be counted twice"
            )

    def _asking(self, settings: Settings) -> Flow[Batch]:
        """Ask the silos for the sums of these rows."""
        schema, splits, pooled = self.engine.schema, self._splits, self.engine.pooled
        counted = yield from ask_all([Census(schema, split) for split in splits])
        s_max = settings.weight_bound
        if s_max is None and any((one.counts != one.weights).any() for one in counted):
            raise DataError(WEIGHTED)
        if pooled and any(cell.silo is not None for cell in settings.cells):
            raise UsageError(
                "[no-single-silo] under secure sums no cell of a single silo is watched"
            )
        cells = cells_of(settings.cells, schema, self.engine.silo_names)
        predictor, access = self.deployed.predictor, Access(pooled=pooled)
        queries = [
            Evaluate(
                task_of(predictor.model, cells, census, "silos", access),
                predictor.w,
                split,
                self.deployed.loss_bound,
                bets=np.array(settings.bets),
                weight_bound=s_max or 1.0,
                levels=alarm.levels(settings.bounds)[:, None],
                rising=1,
            )
            for census, split in zip(counted, splits, strict=True)
        ]
        totals = yield from ask_all(queries)
        count, loss = (
            np.sum([total.column(name) for total in totals], axis=0)
            for name in ("count", "bounded_loss")
        )
        if self.deployed.is_trained_on(count, loss):
            raise DataError(TRAINED)
        rises = np.sum([total.rises for total in totals], axis=0)
        above = np.sum([total.diluted[:, :, 0] for total in totals], axis=0)
        people, heavy, never, t, tx = rises.T
        if heavy.any():
            z = int(heavy.argmax())
            raise DataError(
                f"[bad-weights] {heavy[z]:,.0f} rows of '{settings.names[z]}' weigh "
                f"more than {s_max:g}, and the monitor stands on that none does: begin "
                "another one with a larger `weight_bound=NUMBER`"
            )
        hash, head = self._marks()
        return Batch(
            self.name,
            int(count.sum()),
            hash or files.digest_arrays(rises, above),
            head,
            [int(n) for n in people],
            (tx * (s_max or 1.0)).tolist(),
            above.tolist(),
            [int(n) for n in never],
            None if s_max is None else (t * s_max).tolist(),
        )


def _bytes(parts: Sequence[Rows]) -> list[Any]:
    """Return what rows are known by: inputs, labels and groups, silo by silo."""
    return [
        a
        for rows in parts
        for a in (str(len(rows)), *contents(rows.X), rows.y, rows.group)
    ]
