"""`monitor`: a batch of new rows is counted, and an alarm raised in time.

The silos answer `evaluate` with bets, and nothing else is asked but a census: sums over
rows, which add. Cells, bounds, confidence and bets are settled before the first row is
seen, and stay. What the sums come to is a pure function of them (`evidence.monitor`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pffl import files
from pffl._audit import Audit
from pffl._solve import open_engine
from pffl.bounds import alarm
from pffl.bounds.checks import positive
from pffl.bounds.mean import MOMENTS, Moments
from pffl.constraints import (
    AUTO,
    EVERY_SILO,
    Bound,
    BoundedGroupLoss,
    Cells,
    ConditionalBoundedGroupLoss,
    Constraint,
)
from pffl.data.columns import Unseen
from pffl.data.federation import Federation
from pffl.data.read import is_table, read_table, require
from pffl.data.rows import contents
from pffl.data.schema import Schema
from pffl.data.table import TableOptions
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import ArtefactError, DataError, PFFLError, UsageError
from pffl.evidence.figures import named
from pffl.evidence.monitor import STATE, Batch, Monitor, Settings, Watched, held
from pffl.evidence.record import Evidence, Training, known
from pffl.flow import Flow, ask_all
from pffl.models.predictor import Predictor
from pffl.prepare import task_of
from pffl.problem import Access
from pffl.queries import Census, Evaluate
from pffl.runs import CERTIFICATE, MODEL, SavedRun, load, read_evidence
from pffl.solution import Solution
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCE = 0.95
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
        columns = {"silo": silo, "id": id, "weight": weight}
        given, mark = open_table(deployed.predictor, rows, columns, unseen, name)
        notes += given.notes
    elif any(one is not None for one in (silo, id, weight, unseen)):
        raise UsageError(
            "[options-conflict] 'silo', 'id', 'weight' and 'unseen' are for tables"
        )
    engine = open_engine(given, "local")
    used = tuple(engine.splits if splits is None else splits)
    _check(deployed.predictor, engine, used)
    wish = Wish(bound, constraint, confidence, weight_bound)

    def count(before: Monitor | None, path: Path | None) -> Monitor:
        if before is None:
            before = Monitor.begin(wish.settle(deployed, engine.silo_names))
        else:
            wish.require(before.settings, deployed, engine.silo_names)
        sums = drive(engine, asking(deployed, engine, used, before.settings))
        batch = marked(sums, engine.federation, used, mark, name or engine.name)
        said, e = [*engine.notes, *notes], deployed.evidence
        if e is not None and (who := named(e)):
            said.append(f"what is watched is {who}")
        if same := before.same(hash=batch.hash):
            said.append(
                f"'{batch.name}' has the rows of batch {same.number} "
                f"('{same.batch.name}'), and was not counted again (of other people "
                "who are just alike, an id tells: `id=`)"
            )
            return replace(before, notes=tuple(said))
        if like := before.same(head=batch.head):
            raise DataError(
                f"[repeated-rows] '{batch.name}' begins with the same rows as batch "
                f"{like.number} ('{like.batch.name}'): give only rows that are new, "
                "as none may be counted twice"
            )
        grown = before.after(batch) if path is None else before.append(path, batch)
        return replace(grown, notes=tuple(said))

    if not isinstance(state, str | os.PathLike):
        return count(state, None)
    with held(Path(state)) as before:
        return count(before, Path(state))


# The model that is in use


def run_of(model: Path) -> Path | None:
    """Return the run directory that a path is, or that the file of a model is in."""
    folder = model if model.is_dir() else model.parent
    inside = model.name == MODEL and (folder / CERTIFICATE).is_file()
    return folder if model.is_dir() or inside else None


def default_state(model: Path) -> Path:
    """Return where the state of a model lies: in its run directory, or beside it."""
    folder = run_of(model)
    return model.with_suffix(".monitor.jsonl") if folder is None else folder / STATE


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
            case Solution() | Audit() | SavedRun():
                return cls(model.predictor, model.evidence)
            case Predictor():
                return cls(model)
            case str() | os.PathLike():
                predictor, folder = load(Path(model)), run_of(Path(model))
                e = None if folder is None else read_evidence(folder)
                own = predictor.model.fingerprint(predictor.w)
                known = e is not None and e.model.fingerprint == own
                return cls(predictor, e if known else None)
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

    @property
    def watched(self) -> list[Watched]:
        """Its cells; NaN is the bound of those that have none.

        Of a file alone the names tell who belongs to a cell.
        """
        schema, e = self.predictor.schema, self.evidence
        if e is not None:
            none = not e.promise or e.minimax
            return [
                Watched(c.cell, np.nan if none else c.bound, c.silo, c.of)
                for c in e.cells
            ]
        names, bounds = self.predictor.cells, self.predictor.bounds
        for kind in (BoundedGroupLoss, ConditionalBoundedGroupLoss):
            try:
                found = kind(dict.fromkeys(names, 1.0)).cells(schema, ())
            except PFFLError:
                continue
            if set(found.names) == set(names):
                order = [names.index(name) for name in found.names]
                return watched_of(found.with_bounds(bounds[order]), schema, ())
        if names:
            raise UsageError(
                f"[unknown-cells] who belongs to the cells {list(names)[:3]} is not "
                "known from the model's file alone: give its run directory"
            )
        groups = BoundedGroupLoss(1.0).cells(schema, ())
        unknown = groups.with_bounds(np.full(len(groups), np.nan))
        return watched_of(unknown, schema, ())

    def is_trained_on(self, count: FloatArray, loss: FloatArray) -> bool:
        """Whether rows with these counts and losses, stratum by stratum, are its own.

        Those that it was trained on, alone or with others that its run had.
        """
        e = self.evidence
        if e is None or not isinstance(e.training, Training):
            return False
        held, path = known(e.heldout), known(e.path)
        others = [sample for sample in (held,) if sample is not None]
        others += [] if path is None else [path.shipped.calibration]
        for some in range(len(others) + 1):
            for more in combinations(others, some):
                parts = (e.seen, *more)
                rows = np.sum([part.column("count") for part in parts], axis=0)
                sums = np.sum([part.column("bounded_loss") for part in parts], axis=0)
                near = np.allclose(loss, sums, rtol=1e-9, atol=1e-9)
                if np.array_equal(count, rows) and near:
                    return True
        return False


def watched_of(cells: Cells, schema: Schema, silos: Sequence[str]) -> list[Watched]:
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


def cells_of(watched: Sequence[Watched], schema: Schema, silos: Sequence[str]) -> Cells:
    """Return cells over these silos; one of a silo that is not there has no rows."""
    there = [cell.silo is None or cell.silo in silos for cell in watched]
    if not any(there):
        raise DataError(
            "[other-silos] the cells are silos, and these rows are of others: "
            f"{list(silos)[:5]}, not {[cell.silo for cell in watched][:5]}"
        )
    strata = _strata(schema)
    inside = [[stratum in cell.of for stratum in strata] for cell in watched]
    silo = [silos.index(c.silo) if c.silo in silos else EVERY_SILO for c in watched]
    return Cells(
        tuple(cell.cell for cell in watched),
        np.array([cell.bound for cell in watched], dtype=np.float64),
        np.array(inside) & np.array(there)[:, None],
        np.array(silo),
    )


def _strata(schema: Schema) -> list[tuple[str, str | None]]:
    labels: tuple[str | None, ...] = schema.labels or (None,)
    return [(group, label) for group in schema.groups for label in labels]


# What is settled before the first row


@dataclass(frozen=True)
class Wish:
    """What was asked to be watched; None leaves it as the model or the state has it."""

    bound: Bound = None
    constraint: Constraint | None = None
    confidence: float | None = None
    weight_bound: float | None = None

    def __post_init__(self) -> None:
        if self.bound is not None and self.constraint is not None:
            raise UsageError(
                "[bounds-mixed] give a constraint, which has its bounds, or a bound"
            )
        numbers = self.bound.values() if isinstance(self.bound, Mapping) else ()
        wanted, opened = self.constraint, AUTO in (self.bound, *numbers)
        if opened or (wanted is not None and (wanted.minimax or wanted.open)):
            raise UsageError(
                "[needs-bound] a bound to be watched is a number, which could be "
                "crossed, and not 'auto'"
            )
        if self.confidence is not None:
            alarm.threshold(1, self.confidence)
        if self.weight_bound is not None:
            positive("weight_bound", self.weight_bound)

    def cells(self, deployed: Deployed, silos: Sequence[str]) -> list[Watched] | None:
        """Return the cells that were asked for; None where nobody said any."""
        schema = deployed.predictor.schema
        if self.bound is not None:
            BoundedGroupLoss(self.bound)  # which refuses what is no bound
            own = deployed.watched
            names = sorted({cell.silo for cell in own if cell.silo is not None})
            cells = cells_of(own, schema, names).bounded(self.bound, "monitor")
            return watched_of(cells, schema, names)
        if self.constraint is None:
            return None
        return watched_of(self.constraint.cells(schema, silos), schema, silos)

    def settle(self, deployed: Deployed, silos: Sequence[str]) -> Settings:
        """Settle everything, before the first row is seen."""
        own, e, predictor = deployed.watched, deployed.evidence, deployed.predictor
        asked = self.cells(deployed, silos) or own
        cells = [cell for cell in asked if np.isfinite(cell.bound)]
        if not cells:
            raise UsageError(
                "[needs-bound] the model has no bound that could be crossed: "
                "`bound=NUMBER` says which mean loss of a cell is too much"
            )
        s_max = self.weight_bound
        weighted = predictor.preparation.weight is not None
        weighted = weighted or (e is not None and e.seen.weighted)
        if s_max is None and weighted:
            s_max = None if e is None else e.terms.weight_bound
            if s_max is None:
                raise UsageError(
                    "[needs-weight-bound] the model was trained with weights, and it "
                    "is not known what no weight is above: `weight_bound=NUMBER`"
                )
        moments = {} if e is None else _moments(e, own, cells, s_max)
        bets = alarm.plan([cell.bound for cell in cells], **moments)
        names = {cell.cell for cell in cells}
        return Settings(
            deployed.fingerprint,
            predictor.schema.hash,
            cells,
            [cell.cell for cell in own if cell.cell not in names],
            CONFIDENCE if self.confidence is None else self.confidence,
            bets.gammas.tolist(),
            bets.weights.tolist(),
            s_max,
        )

    def require(
        self, settings: Settings, deployed: Deployed, silos: Sequence[str]
    ) -> None:
        """Refuse a state of another model, and wishes that differ from it."""
        same = settings.model == deployed.fingerprint
        if not same or settings.schema != deployed.predictor.schema.hash:
            raise ArtefactError(
                "[other-model] the state is that of another model (fingerprint "
                f"{settings.model[:12]}, not {deployed.fingerprint[:12]}): a new "
                "model begins a new one (--state FILE)"
            )
        pairs = {
            "confidence": (self.confidence, settings.confidence),
            "weight bound": (self.weight_bound, settings.weight_bound),
            "cells or bounds": (self.cells(deployed, silos), settings.cells),
        }
        for what, (asked, first) in pairs.items():
            if asked not in (None, first):
                raise UsageError(
                    f"[options-changed] {what}: {asked}, and the monitor began with "
                    f"{first}, which stays: leave it out, or begin another state"
                )


def _moments(
    e: Evidence, own: Sequence[Watched], cells: Sequence[Watched], s_max: float | None
) -> dict[str, FloatArray]:
    """Return the variance of the cells' training losses: bets are planned by it.

    NaN where nothing is known of the same people. Of weighted rows that of t(ℓ − ζ),
    and the mean of t (`bounds.alarm`).
    """
    seen, M, strata = e.seen, e.terms.loss_bound, [cell.of for cell in own]
    at = [strata.index(cell.of) if cell.of in strata else -1 for cell in cells]
    if s_max is None:
        return {"variance": np.append(seen.variances, np.nan)[at]}
    out = {"variance": np.full(len(at), np.nan), "weight": np.ones(len(at))}
    scale = (e.terms.weight_bound or s_max) / s_max  # of t, as it was counted then
    for z, place in enumerate(at):
        if place < 0 or not seen.stakes or M is None:
            continue
        sums = np.array([seen.stakes[name][place] for name in MOMENTS])
        sums *= scale ** np.array([1, 1, 2, 2, 2])
        moments = Moments.of(sums, seen.stakes["count"][place])
        if moments is not None and moments.t <= 1.0:
            width = moments.diluted(min(cells[z].bound / M, 1.0))[1]
            out["variance"][z], out["weight"][z] = M * M * width, moments.t
    return out


# The rows of a batch


def open_table(
    predictor: Predictor,
    table: Any,
    columns: Mapping[str, str | None],
    unseen: Unseen | None,
    name: str | None,
) -> tuple[Federation, str]:
    """Read a table as the model's own was, in one split; also tell whom it is about.

    The mark is a hash of ids, where there are any: people may be alike.
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
            "[other-schema] these rows have other inputs, groups or labels than "
            "the model was trained with: a table is read as its own was, "
            "pffl.monitor(model, table)"
        )
    if absent := [split for split in splits if split not in engine.splits]:
        raise UsageError(
            f"[unknown-split] no split '{absent[0]}': there are {list(engine.splits)}"
        )
    here = engine.federation
    own = here is not None and here.fingerprint == predictor.fingerprint
    if own and "train" in splits:
        raise DataError(TRAINED)


def asking(
    deployed: Deployed, engine: Engine, splits: Sequence[str], settings: Settings
) -> Flow[Batch]:
    """Ask the silos for the sums of these rows."""
    schema, pooled, s_max = engine.schema, engine.pooled, settings.weight_bound
    counted = yield from ask_all([Census(schema, split) for split in splits])
    if s_max is None and any((one.counts != one.weights).any() for one in counted):
        raise DataError(WEIGHTED)
    if pooled and any(cell.silo is not None for cell in settings.cells):
        raise UsageError(
            "[no-single-silo] under secure sums no cell of a single silo is watched"
        )
    cells = cells_of(settings.cells, schema, engine.silo_names)
    predictor, access = deployed.predictor, Access(pooled=pooled)
    queries = [
        Evaluate(
            task_of(predictor.model, cells, census, "silos", access),
            predictor.w,
            split,
            deployed.loss_bound,
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
    if deployed.is_trained_on(count, loss):
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


def marked(
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

    first = [rows.view(0, HEAD) for rows in parts]
    long = sum(map(len, first)) >= HEAD
    head = hash_of("", first) if long else None
    return replace(sums, name=name, hash=hash_of(mark, parts), head=head)
