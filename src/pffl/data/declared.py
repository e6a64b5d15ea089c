"""Columns that are declared: kinds, values and ranges that no row has a say in.

What is read off the rows tells of them: that a category is there, say, tells that
somebody has it. A run with a privacy budget takes a table with declared columns only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pffl.data.arrays import noted
from pffl.data.chunks import as_trained, read_chunks
from pffl.data.column import MISSING, OTHER, Column, as_numbers
from pffl.data.encoding import TableEncoding
from pffl.data.reading import LATIN
from pffl.errors import DataError, Problems, UsageError
from pffl.records import read

if TYPE_CHECKING:
    import os

    import pandas as pd

Entry: TypeAlias = bool | int | float | str | Sequence[int | float | str]
Declared: TypeAlias = Mapping[str, Mapping[str, Entry]]
REMEDY = "`pffl data TABLE --columns` writes them from a public or made-up table"
RANGE = "range"


def columns_of(declared: Declared) -> dict[str, Column]:
    """Return the columns by name, or raise all that is wrong with them."""
    found: dict[str, Column] = {}
    with Problems("columns", UsageError) as problems:
        for name, given in declared.items():
            plain = {key: value for key, value in given.items() if key != RANGE}
            values = plain.get("values", ())
            if isinstance(values, Sequence) and not isinstance(values, str):
                plain["values"] = [str(value) for value in values]
            where, whole = f"column '{name}'", {"name": name, **plain}
            with noted(problems):
                column = read(Column, whole, source=where, error=DataError)
                if (column.kind == "category") != bool(column.values):
                    problems.add(
                        f"[bad-column] {where}: categories, and they alone, have values"
                    )
                if RANGE in given and column.kind != "number":
                    problems.add(f"[bad-column] {where}: only numbers have a range")
                found[name] = column
        with noted(problems):
            ranges_of(declared)
    return found


def ranges_of(declared: Declared) -> dict[str, tuple[float, float]]:
    """Return what numbers are between, as far as that is declared."""
    ranges = {}
    for name, given in declared.items():
        if RANGE in given:
            ends = given[RANGE]
            if not isinstance(ends, Sequence) or isinstance(ends, str):
                ends = ()
            low, high = (*map(float, ends), np.nan, np.nan)[:2]
            if len(ends) != 2 or not low < high:
                raise DataError(
                    f"[wrong-value] column '{name}': its range is two numbers, the "
                    "lower first"
                )
            ranges[name] = (low, high)
    return ranges


def as_input(column: Column) -> Column:
    """Return a declared column as an input: values that are not declared are other."""
    if column.kind != "category":
        return column
    values = tuple(v for v in column.values if v != OTHER)
    return replace(column, values=(*values, OTHER), other=True)


def refuse_latin(notes: Sequence[str]) -> None:
    """Refuse text whose one odd letter changed how all letters were read."""
    for note in notes:
        if note.endswith(LATIN):
            raise DataError(
                "[not-text] declared columns are read from UTF-8 text: nobody's "
                f"letters may change how others' are read: {note}"
            )


def read_as_declared(
    table: pd.DataFrame | str | os.PathLike[str],
    columns: Mapping[str, Column],
    others: Sequence[str] = (),
) -> pd.DataFrame:
    """Read a table by what was declared, and `others` as text.

    Each value is read by itself. What pandas makes of a column depends on all of its
    values: with one letter among them, ``01`` is no longer 1. Values that are not
    declared are ``other``, where that is declared.
    """
    import pandas as pd

    texts = [Column(name, "category") for name in others]
    wanted = [*columns.values(), *texts]
    frame = pd.concat([c.frame for c in read_chunks(table, wanted)], ignore_index=True)
    for column in wanted:
        if column.kind == "category":
            text = frame[column.name].map(str, na_action="ignore").astype(object)
            text = as_trained(text, column.values)
            if MISSING in column.values:
                text = text.fillna(MISSING)
            if OTHER in column.values:
                text = text.where(text.isin(column.values), OTHER)
            frame[column.name] = text
    return frame


def declare(frame: pd.DataFrame, encoding: TableEncoding, *coded: str) -> Declared:
    """Return columns as a table has them, to be declared for others like it.

    Parameters
    ----------
    frame
        A public table, or one that is made up.
    encoding
        How it was read.
    coded
        Columns besides label, groups and inputs whose values are declared.
    """
    known = {a.name: list(a.values) for a in encoding.schema.attributes}
    if encoding.schema.labels:
        known[encoding.label] = list(encoding.schema.labels)
    for name in coded:
        known[name] = sorted(frame[name].dropna().map(str).unique().tolist())
    out: dict[str, dict[str, Entry]] = {
        name: {"kind": "category", "values": values} for name, values in known.items()
    }
    empty = Column("", "number").as_dict()
    for column in encoding.columns:
        plain: dict[str, object] = {"kind": column.kind, **column.as_dict()}
        del plain["name"]
        own = {k: v for k, v in plain.items() if k == "kind" or v != empty.get(k)}
        if column.kind == "number":
            numbers = as_numbers(frame[column.name], column.decimal)
            if numbers is not None and np.nanmin(numbers) < np.nanmax(numbers):
                own[RANGE] = [float(np.nanmin(numbers)), float(np.nanmax(numbers))]
        out[column.name] = own  # type: ignore[assignment]
    return out
