"""How a table became rows, kept so that new tables become rows in the same way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pffl.data.columns import MISSING, Column, as_numbers, category_codes
from pffl.data.encode import match_names
from pffl.data.reading import read_table
from pffl.data.schema import Schema
from pffl.data.silo import Rows
from pffl.errors import DataError, Problems
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd


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
        codes = []
        for attribute in self.schema.attributes:
            name, series = attribute.name, frame[attribute.name]
            absent = int(series.isna().sum())
            if absent and MISSING not in attribute.values:
                problems.add(f"protected attribute '{name}': {absent} missing values")
                series = series.dropna()
            code, problem = match_names(
                *category_codes(series),
                attribute.values,
                f"protected attribute '{name}'",
            )
            codes.append(code)
            if problem:
                problems.add(problem)
        if problems.found:
            return np.empty(0, dtype=np.int64)
        return self.schema.combine(np.stack(codes, axis=1))

    def _labels(self, frame: pd.DataFrame, problems: Problems) -> FloatArray:
        series = frame[self.label]
        absent = int(series.isna().sum())
        if absent:
            problems.add(f"label '{self.label}': {absent} missing values")
        if not self.schema.labels:
            numbers = as_numbers(series)
            if numbers is None:
                problems.add(f"label '{self.label}': not all values are numbers")
                return np.empty(0)
            return numbers
        seen, codes = category_codes(series.dropna())
        what = f"label '{self.label}'"
        codes, problem = match_names(seen, codes, self.schema.labels, what)
        if problem:
            problems.add(problem)
        return codes.astype(np.float64)
