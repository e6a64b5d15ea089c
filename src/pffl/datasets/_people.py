"""What data sets of people share: which attributes are protected, text, and rows."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pffl.data.codes import encode_values
from pffl.data.schema import Attribute, Schema
from pffl.data.silo import Rows
from pffl.errors import DataError, Problems
from pffl.typing import FloatArray

Text: TypeAlias = Mapping[str, NDArray[np.str_]]


def protected_names(
    group: str | Sequence[str], known: Sequence[str], problems: Problems
) -> tuple[str, ...]:
    """Names of the protected attributes; what is wrong with them is noted."""
    names = (group,) if isinstance(group, str) else tuple(group)
    if not names or len(set(names)) < len(names):
        problems.add(
            f"[repeated-name] group: name each protected attribute once. Got {names} "
            "instead."
        )
    allowed = ", ".join(f"'{name}'" for name in known)
    problems.extend(
        f"[unknown-group] group: '{name}' is not one of {allowed}"
        for name in names
        if name not in known
    )
    return names


def read_records(
    path: str | os.PathLike[str], fields: int | None = None, *, comment: str = ""
) -> Iterator[list[str]]:
    """Yield the records of a text file, all of one length: that of the first, or given.

    With a mark of comments, empty records and those that begin with it are skipped.
    """
    with open(path, newline="", encoding="utf-8-sig") as stream:
        lines = csv.reader(stream, skipinitialspace=bool(comment))
        for line in lines:
            if comment and (not line or line[0].startswith(comment)):
                continue
            fields = len(line) if fields is None else fields
            if len(line) != fields:
                raise DataError(
                    f"[bad-record] '{path}', line {lines.line_num}: {len(line)} "
                    f"fields, expected {fields}"
                )
            yield line


def as_text(
    records: Sequence[Sequence[str]], names: Sequence[str]
) -> dict[str, NDArray[np.str_]]:
    """Columns by name, as text."""
    columns = np.array(records, dtype=np.str_).reshape(-1, len(names)).T
    return dict(zip(names, columns, strict=True))


def indicators(table: Text, name: str) -> dict[str, FloatArray]:
    """One input for each value of a category."""
    return {
        f"{name}={value}": (table[name] == value).astype(np.float64)
        for value in np.unique(table[name])
    }


def encode_people(
    inputs: Mapping[str, FloatArray],
    label: FloatArray,
    protected: Mapping[str, NDArray[np.str_]],
    *,
    labels: tuple[str, ...],
    target: str,
) -> tuple[Rows, Schema]:
    """Rows and their schema, from named inputs and protected attributes."""
    encoded = {name: encode_values(values, name) for name, values in protected.items()}
    attributes = tuple(Attribute(name, values) for name, (values, _) in encoded.items())
    schema = Schema(tuple(inputs), attributes, labels, target)
    group = schema.combine(np.stack([codes for _, codes in encoded.values()], axis=1))
    return Rows.of(np.stack(list(inputs.values()), axis=1), label, group), schema
