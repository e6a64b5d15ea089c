"""How the columns of a table become inputs, labels and groups: plain, and kept.

A number stays as it is (scaling is federated, later). A category becomes one input per
value, with one vocabulary for all silos. What is decided once for a table is kept as
`TableEncoding`, so that new tables become rows in the same way, at a site or years on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pffl.data.checks import listing
from pffl.data.codes import encode_values
from pffl.data.numbers import Decimal, written_number
from pffl.data.reading import read_table
from pffl.data.schema import Attribute, Schema
from pffl.data.silo import Rows
from pffl.errors import DataError, Problems
from pffl.records import Record, read
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

MISSING = "missing"


@dataclass(frozen=True)
class Column(Record):
    """How one column of a table becomes inputs.

    Parameters
    ----------
    name
        Its name in the table.
    kind
        A number is kept; a category becomes one input per value.
    values
        The vocabulary of a category; with ``missing`` in it, a missing value is one.
    indicator
        Whether a missing number is 0 with an input ``name=missing`` set to 1.
    decimal
        The decimal mark of numbers that are written as text, ``1,234.50`` or ``3,5 %``.
    """

    name: str
    kind: Literal["number", "category"]
    values: tuple[str, ...] = ()
    indicator: bool = False
    decimal: Decimal | None = None

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Column:
        """Rebuild from the plain form."""
        return read(cls, plain, source="not a column", error=DataError)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the inputs that it becomes."""
        if self.kind == "category":
            return tuple(f"{self.name}={value}" for value in self.values)
        return (self.name, f"{self.name}={MISSING}") if self.indicator else (self.name,)

    def encode(self, series: pd.Series, out: FloatArray, problems: Problems) -> None:
        """Write the inputs of all rows into `out`, shape (rows, features)."""
        what = f"column '{self.name}'"
        if self.kind == "category":
            codes = match_names(series, self.values, what, problems)
            if not problems.found:
                out[:] = 0.0
                out[np.arange(len(codes)), codes] = 1.0
            return
        numbers = as_numbers(series, self.decimal)
        if numbers is None:
            problems.add(f"{what}: not all values are numbers")
            return
        missing, infinite = np.isnan(numbers), int(np.isinf(numbers).sum())
        if missing.any() and not self.indicator:
            problems.add(f"{what}: {int(missing.sum())} missing values")
        if infinite:
            problems.add(f"{what}: {infinite} infinite values")
        out[:, 0] = numbers
        if self.indicator:
            out[missing, 0] = 0.0
            out[:, 1] = missing


@dataclass(frozen=True)
class TableEncoding:
    """The columns, label and protected attributes of a table, and what they became.

    Parameters
    ----------
    schema
        What the federation agreed on; the attributes carry the names of their columns.
    columns
        The columns that are inputs.
    label
        Column of the label.
    """

    schema: Schema
    columns: tuple[Column, ...]
    label: str

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        attributes: Sequence[Attribute],
        labels: Sequence[str],
        label: str,
        target: str,
    ) -> TableEncoding:
        """Build with the schema that follows from the columns."""
        features = tuple(name for column in columns for name in column.features)
        schema = Schema(features, tuple(attributes), tuple(labels), target)
        return cls(schema, tuple(columns), label)

    @classmethod
    def of_numbers(cls, schema: Schema) -> TableEncoding:
        """For data that never were a table: every input is a column of numbers.

        The label's column is called like the target.
        """
        with Problems("federation", DataError) as problems:
            taken = {attribute.name for attribute in schema.attributes}
            for name in schema.features:
                if name in taken or name == schema.target:
                    problems.add(f"input '{name}' is called like a group or the label")
        columns = tuple(Column(name, "number") for name in schema.features)
        return cls(schema, columns, schema.target)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TableEncoding:
        """Rebuild from the plain form; refuse whatever is not one."""
        return cls.of(
            [Column.from_dict(column) for column in plain["columns"]],
            [Attribute(read_name(n), read_names(v)) for n, v in plain["attributes"]],
            read_names(plain["labels"]),
            read_name(plain["label"]),
            read_name(plain["target"]),
        )

    def as_dict(self) -> dict[str, object]:
        """Plain form, for files: all that is needed to read a table alike."""
        return {
            "target": self.schema.target,
            "label": self.label,
            "labels": list(self.schema.labels),
            "attributes": [[a.name, list(a.values)] for a in self.schema.attributes],
            "columns": [
                {**asdict(column), "values": list(column.values)}
                for column in self.columns
            ],
        }

    def rows(self, table: pd.DataFrame | str | os.PathLike[str]) -> Rows:
        """Encode a table with labels, for instance for evaluation.

        Unseen group values, labels and categories are an error that lists them with
        their counts (fault 8), as are missing values and columns.
        """
        frame, _ = read_table(table)
        attributes = [attribute.name for attribute in self.schema.attributes]
        self._require(frame, [*attributes, self.label])
        with Problems("table", DataError) as problems:
            X = self._inputs(frame, problems)
            group = self._groups(frame, problems)
            y = self._labels(frame, problems)
        return Rows(X, y, group)

    def inputs(self, table: pd.DataFrame | str | os.PathLike[str]) -> FloatArray:
        """Encode the inputs alone, for prediction."""
        frame, _ = read_table(table)
        self._require(frame, [])
        with Problems("table", DataError) as problems:
            X = self._inputs(frame, problems)
        return X

    def _require(self, frame: pd.DataFrame, others: Sequence[str]) -> None:
        needed = [*(column.name for column in self.columns), *others]
        absent = [f"'{name}'" for name in needed if name not in frame.columns]
        if absent:
            raise DataError(f"table: no columns {', '.join(absent)}")

    def _inputs(self, frame: pd.DataFrame, problems: Problems) -> FloatArray:
        X = np.empty((len(frame), self.schema.n_features))
        start = 0
        for column in self.columns:
            stop = start + len(column.features)
            column.encode(frame[column.name], X[:, start:stop], problems)
            start = stop
        return X

    def _groups(self, frame: pd.DataFrame, problems: Problems) -> IntArray:
        codes = [
            match_names(
                frame[a.name], a.values, f"protected attribute '{a.name}'", problems
            )
            for a in self.schema.attributes
        ]
        if problems.found:
            return np.empty(0, dtype=np.int64)
        return self.schema.combine(np.stack(codes, axis=1))

    def _labels(self, frame: pd.DataFrame, problems: Problems) -> FloatArray:
        series, what = frame[self.label], f"label '{self.label}'"
        absent = int(series.isna().sum())
        if absent:
            problems.add(f"{what}: {absent} missing values")
        if self.schema.labels:
            codes = match_names(series.dropna(), self.schema.labels, what, problems)
            return codes.astype(np.float64)
        numbers = as_numbers(series)
        if numbers is None:
            problems.add(f"{what}: not all values are numbers")
            return np.empty(0)
        return numbers


def match_names(
    series: pd.Series, names: Sequence[str], what: str, problems: Problems
) -> IntArray:
    """Codes of a column's values among `names`; unseen and missing ones are noted."""
    absent = int(series.isna().sum())
    if absent and MISSING not in names:
        problems.add(f"{what}: {absent} missing values")
        series = series.dropna()
    seen, codes = category_codes(series)
    unseen = [
        f"'{name}' ({int((codes == code).sum())})"
        for code, name in enumerate(seen)
        if name not in names
    ]
    if unseen:
        known = listing(f"'{name}'" for name in names)
        problems.add(f"{what}: unseen values {listing(unseen)}; known are {known}")
    place = {name: code for code, name in enumerate(names)}
    return np.array([place.get(name, -1) for name in seen], dtype=np.int64)[codes]


def as_numbers(series: pd.Series, decimal: Decimal | None = None) -> FloatArray | None:
    """The column as floats, missing as NaN; None if any value is not a number."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(series) or pd.api.types.is_numeric_dtype(series):
        if series.dtype.kind == "c":
            return None
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if isinstance(series.dtype, pd.CategoricalDtype) or series.dtype.kind in "mM":
        return None
    values = series.to_numpy(dtype=object, na_value=np.nan)
    numbers = {value: as_number(value, decimal) for value in set(values.tolist())}
    if any(number is None for number in numbers.values()):
        return None
    return np.array([numbers[value] for value in values.tolist()], dtype=np.float64)


def as_number(value: object, decimal: Decimal | None = None) -> float | None:
    """The value as a float, missing as NaN; None if it is not a number.

    With a decimal mark, also where it is written as people do.
    """
    if value is None:
        return float("nan")
    if isinstance(value, bool | np.bool_):
        return None
    if decimal is not None and isinstance(value, str):
        return written_number(value, decimal)
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def category_codes(series: pd.Series) -> tuple[tuple[str, ...], IntArray]:
    """Names and codes of a column's values; a missing value is called ``missing``."""
    import pandas as pd

    found, distinct = pd.factorize(series)
    values = np.array([*pd.Index(distinct).tolist(), MISSING], dtype=object)
    if not len(found) or found.min() >= 0:
        values = values[:-1]
    names, codes = encode_values(values, f"column '{series.name}'")
    return names, codes[found]


def read_name(value: object) -> str:
    """Take a name from a file."""
    if not isinstance(value, str) or not value:
        raise DataError(f"expected a name, got {value!r}")
    return value


def read_names(values: object) -> tuple[str, ...]:
    """Take a list of names from a file."""
    if not isinstance(values, list):
        raise DataError(f"expected a list of names, got {values!r}")
    return tuple(read_name(value) for value in values)
