"""A site's rows: a table is read, checked and split once, and stored as arrays.

Each row's split follows from that row and the site's own key, so that one person more
moves no other. The file's content has a hash, which is part of the site's consent.
"""

from __future__ import annotations

import hmac
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.data.partition import keyed_rows
from pffl.data.read import read_table
from pffl.data.rows import Rows, Silo, restored, saved
from pffl.data.schema import Schema
from pffl.deploy.federation import Agreement
from pffl.errors import ArtefactError, DataError, Problems
from pffl.records import suggestion

FILE = "rows.npz"
FORMAT = "pffl prepared rows 3"


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
        raise ArtefactError("no-prepared-rows", path=path)
    try:
        with np.load(BytesIO(files.read(path)), allow_pickle=False) as stored:
            arrays = dict(stored)
        found, expected = arrays.pop("about").tolist(), [FORMAT, name, schema_hash]
        if found != expected:
            raise ArtefactError(
                "other-schema:read", path=path, found=found, expected=expected
            )
        parts: dict[str, dict[str, NDArray[Any]]] = {}
        for key, array in arrays.items():
            split, _, field = key.partition(".")
            parts.setdefault(split, {})[field] = array
        splits = {}
        for split, one in parts.items():
            more = (one.get("person"), one.get("weight"))
            splits[split] = Rows(restored(one), one["y"], one["group"], *more)
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        why = f"'{path}' cannot be read ({type(error).__name__})"
        raise ArtefactError("cannot-read:read", why=why) from error
    return Silo(name, 0, splits)


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
    table: Path, agreed: Agreement, site: str, key: bytes, *, floor: int = 1
) -> tuple[Silo, list[str]]:
    """Read a site's table as the federation agreed; return its rows, and notes.

    Parameters
    ----------
    table
        CSV, Parquet or Excel.
    agreed, site, key
        How to read it, which site it is, and the key that rows are split by.
    floor
        Fewest rows of a split.
    """
    frame, notes = read_table(table)
    there = [str(name) for name in frame.columns]
    with Problems(f"site '{site}'", DataError) as problems:
        for name in agreed.columns:
            if name not in there:
                hint = suggestion(name, there)
                problems.add("missing-column:prepare", name=name, hint=hint)
    rows = agreed.encoding.rows(frame[list(agreed.columns)])
    if rows.weight is not None:
        rows = rows.take(np.flatnonzero(rows.weight))  # others are as if not there
    splits = keyed_rows(rows, agreed.shares, key)
    fewest = 1 if agreed.private else max(floor, 1)
    with Problems(f"site '{site}'", DataError) as problems:
        for split in agreed.splits:
            part = len(splits.get(split, ()))
            if part < fewest and (part or split == "train" or split not in splits):
                problems.add(
                    "too-few-rows:prepare", split=split, part=part, fewest=fewest
                )
    return Silo(site, 0, splits), notes
