"""A monitor over sites that do not share rows: each sends a small file of sums.

    1  whoever keeps the monitor settles everything before the first row: `settle`
    2  every site counts its own batch by these settings: `count_site`
    3  the keeper adds the files of all sites to one batch: `add_sites`

Sums add, so that the batch is what all rows in one place would have come to. A site
leaves out cells in which it has few people (of cells that overlap, parts of them): by
their number, and never by a label or loss inside a cell.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pffl import files, records
from pffl.bounds import alarm
from pffl.constraints.base import Bound, Constraint
from pffl.data.federation import Federation
from pffl.data.newcomers import Unseen
from pffl.data.schema import counted_alike
from pffl.data.silo import Rows, Silo
from pffl.engines import Local
from pffl.errors import ArtefactError, DataError, Problems, UsageError
from pffl.evidence.monitor import Batch, Monitor, Settings, held, json_of, text_of
from pffl.monitoring.counting import Counting, TableRows
from pffl.monitoring.watched import Deployed, Wish, cells_of
from pffl.records import Record
from pffl.typing import BoolArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

SETTINGS, SUMS, VERSION = "pffl.monitor.settings", "pffl.monitor.sums", 1
#: People of a cell below which a site leaves it out. A cell has 11 sums or so: the
#: losses of as few people could be computed.
FLOOR = 20


@dataclass(frozen=True)
class SiteSums(Record):
    """What leaves a site for one batch.

    Attributes
    ----------
    settings
        Hash of what was settled.
    site, batch
        What site and batch are called.
    floor
        People of a cell below which it was left out.
    rows
        Rows that were counted.
    count, loss, above, weight
        As in a `Batch`.
    """

    settings: str
    site: str
    batch: str
    floor: int
    rows: int
    count: list[int]
    loss: list[float]
    above: list[list[float]]
    weight: list[float] | None = None

    @property
    def hash(self) -> str:
        """What the sums are known by, whoever sent them."""
        return files.digest_arrays(np.array(self.count), np.array(self.above))

    def save(self, path: Path) -> None:
        """Write it to a file."""
        _write(path, SUMS, asdict(self))


def settle(
    model: object,
    path: str | os.PathLike[str],
    *,
    bound: Bound = None,
    constraint: Constraint | None = None,
    confidence: float | None = None,
    weight_bound: float | None = None,
    state: str | os.PathLike[str] | None = None,
) -> Settings:
    """Settle everything before the first row is seen, and write it for the sites.

    Parameters
    ----------
    model, bound, constraint, confidence, weight_bound
        As for `monitor`.
    path
        The file to write.
    state
        Of a monitor that has begun: what was settled then is written.
    """
    deployed = Deployed.of(model)
    wish = Wish(bound, constraint, confidence, weight_bound)
    silos = _silos(deployed)
    before = None
    if state is not None and Path(state).exists():
        with held(Path(state)) as before:
            pass
    if before is None:
        found = wish.begin(deployed, silos)
    else:
        wish.require(before.settings, deployed, silos)
        found = before.settings
    _write(Path(path), SETTINGS, asdict(found))
    return found


def _silos(deployed: Deployed) -> list[str]:
    """Return the names of silos that cells of the model are confined to."""
    return sorted({cell.silo for cell in deployed.watched if cell.silo is not None})


def read_settings(path: str | os.PathLike[str]) -> Settings:
    """Read what `settle` wrote."""
    return records.read(Settings, _plain(Path(path), SETTINGS), source=f"'{path}'")


def count_site(
    model: object,
    rows: pd.DataFrame | str | os.PathLike[str],
    settings: Settings | str | os.PathLike[str],
    *,
    site: str,
    floor: int = FLOOR,
    silo: str | None = None,
    id: str | None = None,
    weight: str | None = None,
    unseen: Unseen | None = None,
    name: str | None = None,
) -> tuple[SiteSums, list[str]]:
    """Count a site's batch; return the sums that may leave it, and what to know.

    Parameters
    ----------
    model, rows, silo, id, weight, unseen, name
        As for `monitor`; rows are a table.
    settings
        What was settled, or the file of it.
    site
        What to call the site.
    floor
        Cells with fewer people are left out; of cells that overlap, people who are in
        the same ones.
    """
    if isinstance(floor, bool) or int(floor) != floor or floor < 1:
        raise UsageError(f"The 'floor' parameter must be a whole number ≥ 1: {floor!r}")
    deployed = Deployed.of(model)
    known = settings if isinstance(settings, Settings) else read_settings(settings)
    Wish().require(known, deployed, ())
    own = deployed.predictor.preparation.weight
    table = TableRows(rows, silo, id, weight or own, unseen, name)
    whole = table.open(deployed.predictor)
    shown, notes = _above_floor(whole, known, floor), list(whole.notes)
    called = name or whole.name
    left = whole.rows("train") - shown.rows("train")
    if left:
        notes.append(
            f"{left:,} of {whole.rows('train'):,} rows are left out: of cells with "
            f"fewer than {floor:,} people, or of none that is watched"
        )
    counting = Counting(deployed, Local(shown), Wish(), None, called, table.mark, ())
    batch = counting.batch(known)
    sums = SiteSums(
        _digest(known),
        site,
        called,
        int(floor),
        batch.rows,
        batch.count,
        batch.loss,
        batch.above,
        batch.weight,
    )
    return sums, notes


def _above_floor(federation: Federation, settings: Settings, floor: int) -> Federation:
    """Leave out parts with few people, counted over the whole site.

    A part are the people who are in the same cells: what sums of cells, and their
    differences, tell of. Where cells do not overlap, parts are cells, and none is
    counted without some of its people. Rows in no cell are of no use.
    """
    rows = [silo.rows("train") for silo in federation.silos]
    part, inside = _parts(federation, settings)
    counts = _people(Rows.joined(rows), np.concatenate(part), len(inside))
    shown = inside & (counts >= floor)
    silos: list[Silo] = []
    for silo, own, places in zip(federation.silos, rows, part, strict=True):
        kept = np.flatnonzero(shown[places])
        if len(kept):
            silos.append(Silo(silo.name, len(silos), {"train": own.take(kept)}))
    if not silos:
        raise DataError(
            f"no cell has {floor:,} people or more in this batch: nothing of it may "
            "leave the site; wait for more rows, and count them together"
        )
    return replace(federation, silos=tuple(silos))


def _parts(
    federation: Federation, settings: Settings
) -> tuple[list[IntArray], BoolArray]:
    """Return the part of each row, silo by silo, and which parts are in a cell."""
    schema = federation.schema
    cells = cells_of(settings.cells, schema, federation.silo_names)
    tables = [cells.of_silo(k).astype(bool).T for k in range(len(federation))]
    kinds, code = np.unique(np.concatenate(tables), axis=0, return_inverse=True)
    codes = np.asarray(code, np.int64).reshape(len(tables), -1)
    rows = [silo.rows("train") for silo in federation.silos]
    places = [
        own[schema.atoms(part.group, part.y)]
        for own, part in zip(codes, rows, strict=True)
    ]
    inside: BoolArray = np.array(kinds.any(axis=1))
    return places, inside


def _people(rows: Rows, part: IntArray, many: int) -> IntArray:
    """Count the people of each part, as many as would count alike."""
    counts = counted_alike(part, rows.weight, many)
    if rows.person is None:
        return counts
    pairs = np.unique(np.stack([part, rows.person]), axis=1)[0]
    return np.minimum(counts, np.bincount(pairs, minlength=many))


def add_sites(
    model: object,
    sums: Sequence[SiteSums | str | os.PathLike[str]],
    *,
    name: str,
    state: str | os.PathLike[str],
    settings: Settings | str | os.PathLike[str] | None = None,
) -> Monitor:
    """Add the sums of all sites to one batch, and say whether a cell has an alarm.

    Parameters
    ----------
    model
        As for `monitor`.
    sums
        What the sites sent, or the files of it.
    name
        What to call the batch.
    state
        The file that remembers the batches before, and gets a line for this one.
    settings
        What was settled, or the file of it; for the first batch only. Default: what
        the model's own bounds come to.
    """
    deployed, path = Deployed.of(model), Path(state)
    given = [one if isinstance(one, SiteSums) else read_sums(one) for one in sums]
    if not given:
        raise UsageError("no sums of a site were given")
    with held(path) as before:
        grown = before
        if grown is None:
            grown = Monitor.begin(_first(settings, deployed))
        elif settings is not None and _settled(settings) != grown.settings:
            raise UsageError("other settings than the monitor began with, which stay")
        Wish().require(grown.settings, deployed, ())
        batch = _joined(given, grown, name)
        notes = []
        same = grown.known(batch.hash)
        if same is None:
            _refuse_known(given, grown)
            grown = grown.append(path, batch)
        else:
            notes.append(
                f"these sums are those of batch {same.number} ('{same.batch.name}'), "
                "and were not counted again"
            )
        grown = replace(grown, notes=tuple(notes))
        files.write(json_of(path), text_of(grown))
        return grown


def _settled(settings: Settings | str | os.PathLike[str]) -> Settings:
    return settings if isinstance(settings, Settings) else read_settings(settings)


def _first(
    settings: Settings | str | os.PathLike[str] | None, deployed: Deployed
) -> Settings:
    if settings is not None:
        return _settled(settings)
    return Wish().begin(deployed, _silos(deployed))


def read_sums(path: str | os.PathLike[str]) -> SiteSums:
    """Read what a site sent."""
    return records.read(SiteSums, _plain(Path(path), SUMS), source=f"'{path}'")


def _joined(given: Sequence[SiteSums], monitor: Monitor, name: str) -> Batch:
    """Check the sums of all sites, and add them."""
    own, cells = monitor.settings, len(monitor.settings.cells)
    with Problems("the sums of sites", DataError) as problems:
        names = [one.site for one in given]
        for site in sorted({site for site in names if names.count(site) > 1}):
            problems.add(f"site '{site}' is there {names.count(site)} times")
        for one in given:
            why = _wrong(one, own, cells)
            if why:
                problems.add(f"site '{one.site}': {why}")
    weight = None
    if own.weight_bound is not None:
        weight = np.sum([one.weight or [] for one in given], axis=0).tolist()
    return Batch(
        name,
        sum(one.rows for one in given),
        files.digest("\0".join(sorted(one.hash for one in given))),
        None,
        np.sum([one.count for one in given], axis=0).tolist(),
        np.sum([one.loss for one in given], axis=0).tolist(),
        np.sum([one.above for one in given], axis=0).tolist(),
        weight,
        sorted(one.hash for one in given),
    )


def _wrong(one: SiteSums, own: Settings, cells: int) -> str | None:
    """Say what is wrong with a site's sums; None if nothing is."""
    if one.settings != _digest(own):
        return "it counted by other settings, or for another model"
    bets = len(own.bets[0])
    shapes = len(one.count), len(one.loss), len(one.above), *map(len, one.above)
    if shapes != (cells, cells, cells, *[bets] * cells):
        return "its sums are not those of these cells"
    weighs = own.weight_bound is not None
    if weighs != (one.weight is not None) or (one.weight and len(one.weight) != cells):
        return "weights are there, or missing, where they should not be"
    count, loss = np.array(one.count, float), np.array(one.loss)
    mass = count if one.weight is None else np.array(one.weight)
    most = 1.0 + 1e-9
    heaviest = count if own.weight_bound is None else own.weight_bound * count
    good = (mass >= 0) & (mass <= heaviest * most)
    good &= (loss >= 0) & (loss <= own.loss_bound * mass * most)
    if not (good.all() and (count >= 0).all()):
        return "its counts and losses cannot be those of any rows"
    if count.max() > one.rows:
        return "a cell has more people than there are rows"
    if ((count > 0) & (count < one.floor)).any():
        return f"a cell has fewer people than its floor, {one.floor:,}"
    try:
        alarm.gains(own.planned, np.array(one.above), count, own.bounds, own.loss_bound)
    except UsageError as error:
        return str(error)
    return None


def _refuse_known(given: Sequence[SiteSums], monitor: Monitor) -> None:
    """Refuse sums that were counted before: nobody may be counted twice."""
    for entry in monitor.entries:
        for one in given:
            if one.hash in (entry.batch.parts or ()):
                raise DataError(
                    f"the sums of site '{one.site}' were counted in batch "
                    f"{entry.number} ('{entry.batch.name}'): leave them out, as nobody "
                    "may be counted twice"
                )


# Files


def _digest(settings: Settings) -> str:
    return Monitor.begin(settings).digest


def _write(path: Path, kind: str, plain: dict[str, Any]) -> None:
    whole = files.plain({"format": kind, "version": VERSION, **plain})
    files.write(path, json.dumps(whole, indent=1).encode() + b"\n")


def _plain(path: Path, kind: str) -> dict[str, Any]:
    """Read a file of a kind."""
    found = records.read(dict[str, Any], files.read(path), source=f"'{path}'")
    told = found.pop("format", None), found.pop("version", None)
    if told != (kind, VERSION):
        raise ArtefactError(f"'{path}' is no file of {kind}, version {VERSION}")
    return found
