"""A site's rows: a table is read, checked and split once, and stored as arrays.

A split is read, and its hashes checked, when it is first asked about. Each row's split
follows from that row and the site's own key, so that one person more moves no other.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pffl import files, records
from pffl.data.checks import listing
from pffl.data.encoding import category_codes
from pffl.data.partition import CALIBRATION, keyed_rows
from pffl.data.reading import read_table
from pffl.data.schema import Schema
from pffl.data.silo import INPUT_TYPES, Rows, Silo
from pffl.data.sparse import restored, saved
from pffl.deploy.federation import Agreement
from pffl.errors import ArtefactError, DataError, Problems
from pffl.records import suggestion
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array

FOLDER, MANIFEST = "rows", "manifest.json"
FORMAT, VERSION = "pffl prepared rows", 2
SMALL = 256  # bytes: a file of nothing cannot be mapped
SPLITS = ("train", "test", "validation", CALIBRATION)


@dataclass(frozen=True)
class StoredSplit(records.Record):
    """Rows of a split, and the SHA-256 of each of its arrays.

    Sparse inputs are four arrays; weights are there if rows have any.
    """

    rows: int
    arrays: dict[str, str]


@dataclass(frozen=True)
class Prepared(records.Record):
    """What a folder of prepared rows holds."""

    format: str
    version: int
    site: str
    schema_hash: str
    splits: dict[str, StoredSplit]


def write(folder: Path, silo: Silo, schema_hash: str) -> None:
    """Write a silo's rows; the manifest comes last."""
    files.folder(folder, private=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    splits: dict[str, StoredSplit] = {}
    for split, rows in silo.splits.items():
        hashes = {}
        for name, array in _arrays(rows).items():
            path = folder / f"{split}.{name}.npy"
            save = partial(_save, np.ascontiguousarray(array))
            files.write(path, save, private=True)
            hashes[name] = files.digest_file(path)
        splits[split] = StoredSplit(len(rows), hashes)
    manifest = Prepared(FORMAT, VERSION, silo.name, schema_hash, splits)
    content = json.dumps(asdict(manifest), indent=1).encode()
    files.write(folder / MANIFEST, content, private=True)


def read(folder: Path, *, name: str, schema_hash: str) -> Silo:
    """Open prepared rows; refuse those of another site or schema."""
    path = folder / MANIFEST
    if not path.exists():
        raise ArtefactError(
            f"[no-prepared-rows] '{folder}' holds no prepared rows: pffl site join"
        )
    known = records.read(Prepared, files.read(path), source=f"'{path}' cannot be read")
    found = (known.format, known.version, known.site, known.schema_hash)
    expected = (FORMAT, VERSION, name, schema_hash)
    if found != expected or not {"train"} <= set(known.splits) <= set(SPLITS):
        raise ArtefactError(
            f"[other-schema] '{path}' is of {found}, and expected is {expected}: pffl "
            "site join"
        )
    return Silo(name, 0, StoredRows(folder, known.splits))


class StoredRows(Mapping[str, Rows]):
    """The splits of a prepared folder, mapped when they are first asked for."""

    def __init__(self, folder: Path, splits: Mapping[str, StoredSplit]) -> None:
        self.folder, self.splits = folder, splits
        self._mapped: dict[str, Rows] = {}

    def __getitem__(self, split: str) -> Rows:
        if split not in self._mapped:
            self._mapped[split] = self._rows(split, self.splits[split])
        return self._mapped[split]

    def __contains__(self, split: object) -> bool:
        return split in self.splits

    def __iter__(self) -> Iterator[str]:
        return iter(self.splits)

    def __len__(self) -> int:
        return len(self.splits)

    def _rows(self, split: str, known: StoredSplit) -> Rows:
        arrays = {n: self._map(split, n, h) for n, h in known.arrays.items()}
        try:
            rows = Rows(
                restored(arrays),
                arrays["y"],
                arrays["group"],
                person=arrays.get("person"),
                weight=arrays.get("weight"),
            )
        except (KeyError, ValueError) as error:
            raise _unfit(self.folder) from error
        good = (
            rows.X.ndim == 2
            and rows.X.dtype in INPUT_TYPES
            and rows.y.dtype == rows.weights.dtype == np.float64
            and rows.group.dtype == np.int64
            and rows.X.shape[:1] == rows.y.shape == rows.group.shape == (known.rows,)
            and rows.weights.shape == (known.rows,)
        )
        if not good:
            raise _unfit(self.folder)
        return rows

    def _map(self, split: str, name: str, expected: str) -> NDArray[Any]:
        path = self.folder / f"{split}.{name}.npy"
        if files.digest_file(path) != expected:
            raise ArtefactError(
                f"[changed-file] '{path}' has changed since it was prepared: pffl site "
                "join"
            )
        try:
            small = path.stat().st_size < SMALL
            return np.load(path, None if small else "r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ArtefactError(
                f"[cannot-read] '{path}' cannot be read: {error}"
            ) from error


def digest(silo: Silo) -> str:
    """Return a hash of a silo's rows: of prepared ones, that of their files' hashes."""
    splits = silo.splits
    if isinstance(splits, StoredRows):
        plain = {name: asdict(of) for name, of in splits.splits.items()}
        return files.digest(json.dumps(plain, sort_keys=True))
    parts = []
    for name in sorted(splits):
        parts += [name, files.digest_arrays(*_arrays(splits[name]).values())]
    return files.digest(*parts)


def row_marks(silo: Silo, schema: Schema, key: bytes) -> dict[str, list[str]]:
    """Return a keyed hash of each row, by split and (group, label).

    By them a site knows how many people joined or left between two runs.
    """
    found: dict[str, list[str]] = {}
    for split, rows in silo.splits.items():
        atoms = schema.atoms(rows.group, rows.y)
        dense = rows.X if isinstance(rows.X, np.ndarray) else rows.X.toarray()
        numbers = np.column_stack([dense, rows.y, rows.group, rows.weights])
        for atom, row in zip(atoms.tolist(), numbers, strict=True):
            mark = hmac.digest(key, row.tobytes(), "sha256").hex()[:16]
            found.setdefault(f"{split} {schema.atom_name(atom)}", []).append(mark)
    return {stratum: sorted(marks) for stratum, marks in found.items()}


def prepare(
    table: Path,
    agreed: Agreement,
    site: str,
    key: bytes,
    *,
    renamed: Mapping[str, str] | None = None,
    column: str | None = None,
    floor: int = 1,
) -> tuple[Silo, list[str]]:
    """Read a site's table as the federation agreed; return its rows, and notes.

    Parameters
    ----------
    table
        CSV, Parquet or Excel.
    agreed, site, key
        How to read it, which site it is, and the key that rows are split by.
    renamed
        From the federation's names of columns to the site's, where they differ.
    column
        Column that says the split of each row; not with noise.
    floor
        Fewest rows of a split.
    """
    frame, notes = read_table(table)
    own = dict(renamed or {})
    _check_columns(frame, agreed, site, own, column)
    named = {name: frame[own.get(name, name)] for name in agreed.columns}
    rows = agreed.encoding.rows(frame.assign(**named)[list(agreed.columns)])
    if rows.weight is not None and not rows.weight.all():
        kept = np.flatnonzero(rows.weight)  # the others are as if not there
        rows, frame = rows.take(kept), frame.iloc[kept]
    if column is None:
        splits = keyed_rows(rows, agreed.shares, key)
    elif agreed.private:
        raise DataError(
            f"[wrong-split] a column of splits ('{column}'): under noise each row's "
            "split follows from that row alone; leave --split out"
        )
    else:
        splits = _by_column(rows, frame, column)
    with Problems(f"site '{site}'", DataError) as problems:
        for split in agreed.splits:
            if split not in splits:
                problems.add(f"[no-rows] there are no rows for '{split}'")
        for split, part in splits.items():
            fewest = 1 if agreed.private else max(floor, 1)
            if len(part) < fewest and (len(part) or split == "train"):
                problems.add(
                    f"[too-few-rows] '{split}' has {len(part)} rows, and the floor is "
                    f"{fewest}: nothing could be answered about it"
                )
    rare = rare_inputs(splits["train"], agreed.schema, floor)
    if rare and not agreed.private:
        notes = [
            *notes,
            f"inputs that set fewer than {floor} training rows apart: {listing(rare)}. "
            "Their sums tell of these few, and the floor does not withhold them: agree "
            "to merge such values, or to leave the column out",
        ]
    return Silo(site, 0, splits), notes


def _by_column(rows: Rows, frame: pd.DataFrame, column: str) -> dict[str, Rows]:
    names, codes = category_codes(frame[column])
    unknown = [
        f"'{name}' ({int((codes == code).sum())})"
        for code, name in enumerate(names)
        if name not in SPLITS
    ]
    if unknown:
        raise DataError(
            f"[wrong-split] column '{column}' must say {', '.join(SPLITS)} in every "
            f"row: it says {listing(unknown)}"
        )
    return {
        split: rows.take(np.flatnonzero(codes == names.index(split)))
        for split in SPLITS
        if split in names
    }


def _check_columns(
    frame: pd.DataFrame,
    agreed: Agreement,
    site: str,
    renamed: Mapping[str, str],
    column: str | None,
) -> None:
    there = [str(name) for name in frame.columns]

    def absent(name: str, known: Sequence[str], what: str) -> None:
        if name not in known:
            hint = suggestion(name, known)
            problems.add(f"[missing-column] {what} '{name}': {hint}")

    with Problems(f"site '{site}'", DataError) as problems:
        for name in renamed:
            absent(name, agreed.columns, "--rename: the federation has no column")
        for name in agreed.columns:
            absent(renamed.get(name, name), there, "the table has no column")
        if column is not None:
            absent(column, there, "--split: the table has no column")


def rare_inputs(rows: Rows, schema: Schema, floor: int) -> list[str]:
    """Name inputs of two values, one of which few rows have, but some."""
    if isinstance(rows.X, np.ndarray):
        few = np.array([_rarer(column) for column in rows.X.T])
    else:
        few = _stored_rarer(rows.X)
    rare = np.flatnonzero((few > 0) & (few < floor))
    return [f"'{schema.features[j]}'" for j in rare]


def _rarer(column: FloatArray) -> int:
    """Return how many rows have the rarer one of two values; 0 if not two."""
    if len(np.unique(column[:1000])) > 2:
        return 0  # no need to look at all of them
    values, counts = np.unique(column, return_counts=True)
    return int(counts.min()) if len(values) == 2 else 0


def _stored_rarer(X: csr_array) -> IntArray:
    """Return `_rarer` of each sparse column: of those with one value beside 0."""
    n, d = X.shape
    columns, found = X.tocsc(), np.zeros(d, dtype=np.int64)
    stored = np.diff(columns.indptr)
    for j in np.flatnonzero(stored):
        values = columns.data[columns.indptr[j] : columns.indptr[j + 1]]
        if (values == values[0]).all():
            found[j] = min(stored[j], n - stored[j])
    return found


def _arrays(rows: Rows) -> dict[str, NDArray[Any]]:
    arrays = {**saved(rows.X), "y": rows.y, "group": rows.group}
    if rows.weight is not None:
        arrays["weight"] = rows.weight
    if rows.person is not None:
        arrays["person"] = rows.person
    return arrays


def _save(array: NDArray[Any], to: BinaryIO) -> None:
    np.save(to, array, allow_pickle=False)


def _unfit(folder: Path) -> ArtefactError:
    return ArtefactError(f"[wrong-length] '{folder}': the arrays do not fit each other")
