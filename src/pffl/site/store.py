"""Prepared rows: arrays on disk that a process maps into memory for one message.

A client process lives for one message, so the table is read once, by `pffl site
prepare`. A split is mapped, and its hashes checked, when it is first asked about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pffl import files, records
from pffl.data.partition import CALIBRATION
from pffl.data.silo import INPUT_TYPES, Rows, Silo
from pffl.data.sparse import restored, saved
from pffl.errors import ArtefactError

MANIFEST = "manifest.json"
FORMAT = "pffl prepared rows"
VERSION = 1
SMALL = 256  # bytes: a file of nothing cannot be mapped
SPLITS = ("train", "test", "validation", CALIBRATION)


@dataclass(frozen=True)
class _Split(records.Record):
    """Rows of a split, and the SHA-256 of each of its arrays.

    Sparse inputs are four arrays; weights are there if rows have any.
    """

    rows: int
    y: str
    group: str
    X: str | None = None
    X_data: str | None = None
    X_indices: str | None = None
    X_indptr: str | None = None
    X_shape: str | None = None
    weight: str | None = None


@dataclass(frozen=True)
class _Prepared(records.Record):
    format: str
    version: int
    site: str
    schema_hash: str
    splits: dict[str, _Split]
    apart: bool = False


def write(folder: Path, silo: Silo, schema_hash: str, *, apart: bool = False) -> None:
    """Write a silo's rows; the manifest comes last.

    `apart` says that each row's split was decided by that row alone.
    """
    files.folder(folder, private=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    splits: dict[str, _Split] = {}
    for split, rows in silo.splits.items():
        hashes = {}
        arrays = {**saved(rows.X), "y": rows.y, "group": rows.group}
        if rows.weight is not None:
            arrays["weight"] = rows.weight
        for name, array in arrays.items():
            path = folder / f"{split}.{name}.npy"
            save = partial(_save, np.ascontiguousarray(array))
            files.write(path, save, private=True)
            hashes[name] = files.digest_file(path)
        splits[split] = _Split(len(rows), **hashes)
    manifest = _Prepared(FORMAT, VERSION, silo.name, schema_hash, splits, apart)
    content = json.dumps(asdict(manifest), indent=1).encode()
    files.write(folder / MANIFEST, content, private=True)


class Stored(Mapping[str, Rows]):
    """The splits of a prepared folder, mapped when they are first asked for."""

    def __init__(
        self, folder: Path, splits: Mapping[str, _Split], *, apart: bool = False
    ) -> None:
        self.folder, self.apart = folder, apart
        self.splits = splits
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

    def _rows(self, split: str, known: _Split) -> Rows:
        hashes = {n: h for n, h in asdict(known).items() if isinstance(h, str)}
        arrays = {name: self._map(split, name, h) for name, h in hashes.items()}
        try:
            X = restored(arrays)
        except (KeyError, ValueError):
            X = np.zeros(0)
        rows = Rows(X, arrays["y"], arrays["group"], weight=arrays.get("weight"))
        _check(rows, known.rows, self.folder)
        return rows

    def _map(self, split: str, name: str, expected: str) -> NDArray[Any]:
        path = self.folder / f"{split}.{name}.npy"
        if files.digest_file(path) != expected:
            raise ArtefactError(
                f"[changed-file] '{path}' has changed since it was prepared: run pffl "
                "site prepare"
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
    if isinstance(splits, Stored):
        return files.digest(
            json.dumps(
                {n: asdict(of) for n, of in splits.splits.items()}, sort_keys=True
            )
        )
    parts = []
    for name in sorted(splits):
        rows = splits[name]
        arrays = [*saved(rows.X).values(), rows.y, rows.group, rows.weights]
        parts += [name, files.digest_arrays(*arrays)]
    return files.digest(*parts)


def read(folder: Path, *, name: str, schema_hash: str) -> Silo:
    """Open prepared rows; refuse those of another site or schema."""
    path = folder / MANIFEST
    if not path.exists():
        raise ArtefactError(
            f"[no-prepared-rows] '{folder}' holds no prepared rows: run pffl site "
            "prepare"
        )
    known = records.read(_Prepared, files.read(path), source=f"'{path}' cannot be read")
    found = (known.format, known.version, known.site, known.schema_hash)
    splits = known.splits
    expected = (FORMAT, VERSION, name, schema_hash)
    if found != expected or not set(splits) <= set(SPLITS) or "train" not in splits:
        raise ArtefactError(
            f"[other-schema] '{path}' is of {found}, and expected is {expected}: run "
            "pffl site prepare"
        )
    return Silo(name, 0, Stored(folder, splits, apart=known.apart))


def _save(array: NDArray[Any], to: BinaryIO) -> None:
    np.save(to, array, allow_pickle=False)


def _check(rows: Rows, count: int, folder: Path) -> None:
    """Refuse arrays that do not fit each other (the hashes are the manifest's)."""
    good = (
        rows.X.ndim == 2
        and rows.X.dtype in INPUT_TYPES
        and rows.y.dtype == np.float64
        and rows.group.dtype == np.int64
        and rows.X.shape[:1] == rows.y.shape == rows.group.shape == (count,)
        and rows.weights.dtype == np.float64
        and rows.weights.shape == (count,)
    )
    if not good:
        raise ArtefactError(
            f"[wrong-length] '{folder}': the arrays do not fit each other"
        )
