"""Any table → encoded rows: types inferred and shown, all flaws reported together."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from pffl.data import partition
from pffl.data.checks import listing, refuse_or_warn, warn
from pffl.data.columns import (
    MISSING,
    Column,
    Missing,
    as_numbers,
    category_codes,
    infer_columns,
    is_identifier,
)
from pffl.data.encoding import TableEncoding
from pffl.data.reading import read_table
from pffl.data.schema import Attribute, Schema
from pffl.data.silo import Rows
from pffl.errors import DataError, Problems, UsageError
from pffl.typing import IntArray

if TYPE_CHECKING:
    import pandas as pd

MAX_CLASSES = 100
MAX_NUMERIC_GROUPS = 50
ENOUGH_ROWS = 50


@dataclass(frozen=True)
class TableOptions:
    """What the user said about a table; see `Federation.from_table`."""

    label: str
    group: tuple[str, ...]
    silo: str | None = None
    silos: int | None = None
    partition: Literal["equal", "dirichlet", "quantile_bands"] = "equal"
    by: str | None = None
    alpha: float = 1.0
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    id: str | None = None
    positive: object = None
    labels: tuple[str, ...] | None = None
    classification: bool = True
    missing: Missing = "refuse"
    missing_group: Literal["refuse", "missing"] = "refuse"
    include_protected: bool = False
    strict: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        with Problems("table options", UsageError) as problems:
            for name, value, allowed in (
                ("partition", self.partition, ("equal", "dirichlet", "quantile_bands")),
                ("missing", self.missing, ("refuse", "indicator", "drop_column")),
                ("missing_group", self.missing_group, ("refuse", "missing")),
            ):
                if value not in allowed:
                    problems.add(f"'{name}' must be one of {allowed}. Got '{value}'.")
            if not self.group:
                problems.add("name at least one protected column: group=")
            if (self.silo is None) == (self.silos is None):
                problems.add("give either the silo column (silo=) or a number (silos=)")
            if self.partition == "quantile_bands" and self.by is None:
                problems.add("quantile bands need a column: by=")

    @property
    def mentioned(self) -> tuple[str, ...]:
        """All columns that are named anywhere."""
        single = (self.label, self.silo, self.id, self.by)
        several = (*self.group, *(self.features or ()), *self.drop, *self.categorical)
        return (*(name for name in single if name is not None), *several)


@dataclass(frozen=True)
class EncodedTable:
    """A table as rows of a federation that is still to be split."""

    encoding: TableEncoding
    rows: Rows
    silo: IntArray
    silo_names: tuple[str, ...]
    ids: IntArray | None
    notes: tuple[str, ...]


def encode_table(
    table: pd.DataFrame | str | os.PathLike[str], options: TableOptions
) -> EncodedTable:
    """Read, check and encode; every problem of the table is raised in one error."""
    frame, notes = read_table(table)
    _check_names(frame, options)
    with Problems("table", DataError) as problems:
        names = _inputs(frame, options)
        inputs = infer_columns(
            frame, names, options.categorical, options.missing, problems
        )
        labels = _labels(frame[options.label], options, problems)
        attributes = [_attribute(frame[g], options, problems) for g in options.group]
        silo, silo_names = _silos(frame, options, problems)
        _check_label_sets(frame, options, silo, silo_names, problems)
        if options.id is not None and frame[options.id].isna().any():
            absent = int(frame[options.id].isna().sum())
            problems.add(f"id '{options.id}': {absent} missing values")
        if not inputs.columns:
            problems.add("no column is left as an input")
    _warn_protected(frame, inputs.columns, options)
    for warning in inputs.warnings:
        warn(warning)
    features = tuple(name for column in inputs.columns for name in column.features)
    schema = Schema(features, tuple(attributes), labels, options.label)
    encoding = TableEncoding(schema, tuple(inputs.columns), options.label)
    rows = encoding.rows(frame)
    ids = None if options.id is None else category_codes(frame[options.id])[1]
    notes += inputs.notes + inputs.warnings + _label_note(labels, options)
    copies = int(frame.duplicated().sum())
    if copies:
        notes.append(f"{copies:,} rows are copies of earlier ones, and were kept")
    return EncodedTable(encoding, rows, silo, silo_names, ids, tuple(notes))


def _check_names(frame: pd.DataFrame, options: TableOptions) -> None:
    with Problems("table", DataError) as problems:
        for name in dict.fromkeys(options.mentioned):
            if name not in frame.columns:
                columns = [str(column) for column in frame.columns]
                close = difflib.get_close_matches(name, columns, n=1)
                hint = (
                    f"did you mean '{close[0]}'?" if close else f"there are {columns}"
                )
                problems.add(f"no column '{name}': {hint}")
        if not len(frame):
            problems.add("no rows")
        if options.label in options.group:
            problems.add(f"'{options.label}' cannot be label and protected attribute")


def _inputs(frame: pd.DataFrame, options: TableOptions) -> list[str]:
    if options.features is not None:
        return list(dict.fromkeys(options.features))
    out = {options.label, options.silo, options.id, *options.drop}
    if not options.include_protected:
        out |= set(options.group)
    return [str(name) for name in frame.columns if name not in out]


def _labels(
    series: pd.Series, options: TableOptions, problems: Problems
) -> tuple[str, ...]:
    """Class names in the order of their codes; the positive one of two is the last."""
    where = f"label '{options.label}'"
    if series.isna().any():
        problems.add(f"{where}: {int(series.isna().sum())} missing values")
    if not options.classification:
        if as_numbers(series) is None:
            problems.add(f"{where}: not all values are numbers")
        return ()
    seen, codes = category_codes(series.dropna())
    if len(seen) > MAX_CLASSES:
        problems.add(
            f"{where}: {len(seen)} different values, at most {MAX_CLASSES} classes; "
            "for a numeric target say classification=False"
        )
        return ()
    names = seen
    if options.labels is not None:
        names = tuple(map(str, options.labels))
        problems.found.extend(
            f"{where}: value '{name}' ({int((codes == code).sum())}) is not declared"
            for code, name in enumerate(seen)
            if name not in names
        )
    if len(seen) < 2:
        problems.add(f"{where}: one value only ({listing(seen)}): nothing to learn")
    if options.positive is not None:
        chosen = str(options.positive)
        if chosen not in names or len(names) != 2:
            problems.add(f"{where}: positive='{chosen}' is not one of two: {names}")
        else:
            names = (*(name for name in names if name != chosen), chosen)
    return names


def _label_note(labels: tuple[str, ...], options: TableOptions) -> list[str]:
    if not labels:
        return [f"label '{options.label}': a number"]
    mapping = ", ".join(f"'{name}' → {code}" for code, name in enumerate(labels))
    positive = " (positive)" if len(labels) == 2 else ""
    return [f"label '{options.label}': {mapping}{positive}"]


def _attribute(
    series: pd.Series, options: TableOptions, problems: Problems
) -> Attribute:
    where = f"protected attribute '{series.name}'"
    absent = int(series.isna().sum())
    if absent and options.missing_group == "refuse":
        problems.add(
            f"{where}: {absent} missing values; missing_group='{MISSING}' makes them a "
            "group of their own"
        )
    known = series.dropna() if options.missing_group == "refuse" else series
    values, _ = category_codes(known)
    if series.dtype.kind in "iuf" and len(values) > MAX_NUMERIC_GROUPS:
        problems.add(f"{where}: {len(values)} different numbers: cut it into bands")
    elif series.dtype.kind not in "iuf" and is_identifier(series):
        problems.add(f"{where}: {len(values)} values in {len(series)} rows, like an id")
    return Attribute(str(series.name), values)


def _silos(
    frame: pd.DataFrame, options: TableOptions, problems: Problems
) -> partition.Partition:
    if options.silo is not None:
        series = frame[options.silo]
        if series.isna().any():
            absent = int(series.isna().sum())
            problems.add(f"silo '{options.silo}': {absent} missing values")
        names, codes = category_codes(series)
        return codes, names
    silos = options.silos or 0
    if options.partition == "equal":
        return partition.equal(len(frame), silos, options.seed)
    by = frame[options.by or options.label]
    if by.isna().any():
        problems.add(f"column '{by.name}' of the cut: {int(by.isna().sum())} missing")
        return partition.equal(len(frame), silos, options.seed)
    values = by.to_numpy()
    if options.partition == "dirichlet":
        return partition.dirichlet(values, options.alpha, silos, options.seed)
    return partition.quantile_bands(values, silos)


def _check_label_sets(
    frame: pd.DataFrame,
    options: TableOptions,
    silo: IntArray,
    silo_names: Sequence[str],
    problems: Problems,
) -> None:
    """Refuse silos that code two classes differently: here {0, 1}, there {1, 2}."""
    if options.silo is None or options.labels is not None or not options.classification:
        return
    known = frame[options.label].notna().to_numpy(dtype=bool)
    names, codes = category_codes(frame[options.label][known])
    pairs = np.unique(np.stack([silo[known], codes]), axis=1)
    sets: dict[int, list[str]] = {}
    for k, code in pairs.T.tolist():
        sets.setdefault(k, []).append(names[code])
    if len(names) > 2 and all(len(found) <= 2 for found in sets.values()):
        shown = [f"'{silo_names[k]}' {found}" for k, found in sets.items()]
        problems.add(
            f"label '{options.label}' is coded differently in the silos: "
            f"{listing(shown)}; declare labels= if these are {len(names)} classes"
        )


def _warn_protected(
    frame: pd.DataFrame, columns: Sequence[Column], options: TableOptions
) -> None:
    """Warn about inputs that are, or repeat, a protected attribute (fault 12)."""
    found = [f"'{c.name}'" for c in columns if c.name in options.group]
    for column in columns:
        if column.name in options.group or len(frame) < ENOUGH_ROWS:
            continue
        found.extend(
            f"'{column.name}' (says the same as '{name}')"
            for name in options.group
            if _same_partition(frame[column.name], frame[name])
        )
    if found:
        refuse_or_warn(
            f"protected attribute among the inputs: {', '.join(found)}",
            strict=options.strict,
        )


def _same_partition(one: pd.Series, other: pd.Series) -> bool:
    """Whether two columns are renamings of each other."""
    count = one.nunique(dropna=False)
    if count < 2 or count != other.nunique(dropna=False):
        return False
    pairs = np.stack([category_codes(one)[1], category_codes(other)[1]])
    return int(np.unique(pairs, axis=1).shape[1]) == count
