"""A site's rows: a table is read, checked and split once, and stored as arrays.

Each row's split follows from that row and the site's own key, so that one person more
moves no other. The file's content has a hash, which is part of the site's consent.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.data.checks import listing
from pffl.data.columns import category_codes
from pffl.data.partition import CALIBRATION, keyed_rows
from pffl.data.read import read_table
from pffl.data.rows import Rows, Silo, restored, saved
from pffl.data.schema import Schema
from pffl.deploy.federation import Agreement
from pffl.errors import ArtefactError, DataError, Problems
from pffl.records import suggestion
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

FILE = "rows.npz"
FORMAT = "pffl prepared rows 3"
SPLITS = ("train", "test", "validation", CALIBRATION)


def write(folder: Path, silo: Silo, schema_hash: str) -> None:
    """Write a silo's rows."""
    about = np.array([FORMAT, silo.name, schema_hash])
    content = BytesIO()
    arrays: dict[str, Any] = _arrays(silo)
    np.savez(content, about=about, **arrays)
    files.write(folder / FILE, content.getvalue(), private=True)


def read(folder: Path, *, name: str, schema_hash: str) -> Silo:
    """Open prepared rows; refuse those of another site or schema."""
    path = folder / FILE
    if not path.exists():
        raise ArtefactError(
            f"[no-prepared-rows] '{folder}' holds no prepared rows: pffl site join"
        )
    try:
        with np.load(BytesIO(files.read(path)), allow_pickle=False) as stored:
            arrays = dict(stored)
        found, expected = arrays.pop("about").tolist(), [FORMAT, name, schema_hash]
        if found != expected:
            raise ArtefactError(
                f"[other-schema] '{path}' is of {found}, and expected is {expected}: "
                "pffl site join"
            )
        parts: dict[str, dict[str, NDArray[Any]]] = {}
        for key, array in arrays.items():
            split, _, field = key.partition(".")
            parts.setdefault(split, {})[field] = array
        splits = {split: _rows(part) for split, part in parts.items()}
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise ArtefactError(
            f"[cannot-read] '{path}' cannot be read, or has changed since it was "
            f"prepared ({type(error).__name__}): pffl site join"
        ) from error
    return Silo(name, 0, splits)


def _rows(part: dict[str, NDArray[Any]]) -> Rows:
    known = {name: part.get(name) for name in ("person", "weight")}
    return Rows(restored(part), part["y"], part["group"], **known)


def _arrays(silo: Silo) -> dict[str, NDArray[Any]]:
    """Return all arrays of a silo, by split and name."""
    found: dict[str, NDArray[Any]] = {}
    for split, rows in silo.splits.items():
        plain: dict[str, Any] = {**saved(rows.X), "y": rows.y, "group": rows.group}
        plain |= {"weight": rows.weight, "person": rows.person}
        found |= {f"{split}.{n}": a for n, a in plain.items() if a is not None}
    return found


def digest(silo: Silo) -> str:
    """Return a hash of a silo's rows."""
    parts = _arrays(silo)
    return files.digest(*parts, files.digest_arrays(*parts.values()))


def row_marks(silo: Silo, schema: Schema, key: bytes) -> dict[str, list[str]]:
    """Return a keyed hash of each row, by split and (group, label).

    By them a site knows how many people joined or left between two runs.
    """
    found: dict[str, list[str]] = {}
    for split, rows in silo.splits.items():
        strata = schema.strata(rows.group, rows.y)
        dense = rows.X if isinstance(rows.X, np.ndarray) else rows.X.toarray()
        numbers = np.column_stack([dense, rows.y, rows.group, rows.weights])
        for stratum, row in zip(strata.tolist(), numbers, strict=True):
            mark = hmac.digest(key, row.tobytes(), "sha256").hex()[:16]
            found.setdefault(f"{split} {schema.stratum_name(stratum)}", []).append(mark)
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
    X: Any = rows.X
    places: Any = range(schema.n_features)
    if not isinstance(X, np.ndarray):  # of others neither value is rare
        X, n = X.tocsc(), len(rows)
        stored = np.diff(X.indptr)
        places = np.flatnonzero((stored < floor) | (stored > n - floor))
    columns = ((j, X[:, j]) for j in places)
    dense = ((j, c if isinstance(c, np.ndarray) else c.toarray()) for j, c in columns)
    rare = [j for j, column in dense if 0 < _rarer(column.ravel()) < floor]
    return [f"'{schema.features[j]}'" for j in rare]


def _rarer(column: FloatArray) -> int:
    """Return how many rows have the rarer one of two values; 0 if not two."""
    if len(np.unique(column[:1000])) > 2:
        return 0  # no need to look at all of them
    values, counts = np.unique(column, return_counts=True)
    return int(counts.min()) if len(values) == 2 else 0
