"""A site's rows: a table is read, checked and split once, and stored as arrays.

Each row's split follows from that row and the site's own key, so that one person more
moves no other. The file's content has a hash, which is part of the site's consent.
"""

from __future__ import annotations

import hmac
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
    column
        Column that says the split of each row; not with noise.
    floor
        Fewest rows of a split.
    """
    frame, notes = read_table(table)
    _check_columns(frame, agreed, site, column)
    rows = agreed.encoding.rows(frame[list(agreed.columns)])
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
    frame: pd.DataFrame, agreed: Agreement, site: str, column: str | None
) -> None:
    there = [str(name) for name in frame.columns]
    wanted = dict.fromkeys(agreed.columns, "the table has no column")
    if column is not None:
        wanted[column] = "--split: the table has no column"
    with Problems(f"site '{site}'", DataError) as problems:
        for name, what in wanted.items():
            if name not in there:
                hint = suggestion(name, there)
                problems.add(f"[missing-column] {what} '{name}': {hint}")
