"""How the columns of a table become inputs, labels and groups: plain, and kept.

What is decided once for a table is kept as `TableEncoding`, so that new tables become
rows in the same way, at a site or years on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from pffl.data import blocks
from pffl.data.chunks import Chunk, read_chunks, require
from pffl.data.column import Column, as_numbers, match_names
from pffl.data.labels import LabelType, typed
from pffl.data.names import names_in
from pffl.data.newcomers import Newcomers, Unseen
from pffl.data.reading import read_table
from pffl.data.schema import Attribute, Schema
from pffl.data.silo import Rows
from pffl.data.sparse import Matrix, stacked
from pffl.data.weights import weights_of
from pffl.errors import DataError, Problems
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

WIDE, FILLED = 256, 0.25  # inputs, and the share that is not 0, of sparse rows


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
    label_type
        Type of its values, in which predictions come back.
    unseen
        What becomes of a category that was not there when it was made: an error that
        lists them, none of the known ones, or the most frequent one.
    weight
        Column that says how much each row counts; None: all alike.
    sparse
        Whether rows are kept without their zeros; None: where there are at least 256
        inputs, of which less than a quarter can be other than 0 in a row. Numbers
        count as one each, and so do categories and parts of dates; a text as 64.
    """

    schema: Schema
    columns: tuple[Column, ...]
    label: str
    label_type: LabelType = "text"
    unseen: Unseen = "refuse"
    weight: str | None = None
    sparse: bool | None = None

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        attributes: Sequence[Attribute],
        labels: Sequence[str],
        label: str,
        target: str,
        *,
        label_type: LabelType = "text",
        unseen: Unseen = "refuse",
    ) -> TableEncoding:
        """Build with the schema that follows from the columns."""
        features = names_in(name for column in columns for name in column.named)
        ends = np.cumsum([column.width for column in columns]).tolist()
        pairs = [
            (place, end - 1)
            for column, end in zip(columns, ends, strict=True)
            if column.indicator and column.kind != "text"
            for place in range(end - column.width, end - 1)
        ]
        groups, names = tuple(attributes), tuple(labels)
        schema = Schema(features, groups, names, target, tuple(pairs))
        return cls(schema, tuple(columns), label, label_type, unseen)

    @classmethod
    def of_numbers(
        cls, schema: Schema, label_type: LabelType = "text"
    ) -> TableEncoding:
        """For data that never were a table: every input is a column of numbers.

        The label's column is called like the target.
        """
        columns = tuple(Column(name, "number") for name in schema.features)
        return cls(schema, columns, schema.target, label_type)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TableEncoding:
        """Rebuild from the plain form; refuse whatever is not one."""
        encoding = cls.of(
            [Column.from_dict(column) for column in plain["columns"]],
            [Attribute(read_name(n), read_names(v)) for n, v in plain["attributes"]],
            read_names(plain["labels"]),
            read_name(plain["label"]),
            read_name(plain["target"]),
            label_type=_read_choice(plain.get("label_type", "text"), LabelType),
            unseen=_read_choice(plain.get("unseen", "refuse"), Unseen),
        )
        weight, sparse = plain.get("weight"), plain.get("sparse")
        if sparse not in (None, True, False):
            raise DataError(
                f"[bad-encoding] 'sparse' must be true or false, got {sparse!r}"
            )
        named = None if weight is None else read_name(weight)
        return replace(encoding, weight=named, sparse=sparse)

    def as_dict(self) -> dict[str, object]:
        """Plain form, for files: all that is needed to read a table alike."""
        return {
            "target": self.schema.target,
            "label": self.label,
            "label_type": self.label_type,
            "unseen": self.unseen,
            "labels": list(self.schema.labels),
            "attributes": [[a.name, list(a.values)] for a in self.schema.attributes],
            "columns": [column.as_dict() for column in self.columns],
            **({} if self.weight is None else {"weight": self.weight}),
            **({} if self.sparse is None else {"sparse": self.sparse}),
        }

    @cached_property
    def keeps_sparse(self) -> bool:
        """Whether rows are kept without their zeros; see `sparse`."""
        if self.sparse is not None:
            return self.sparse
        filled = sum(column.filled for column in self.columns)
        width = self.schema.n_features
        return width >= WIDE and filled < FILLED * width

    @property
    def classes(self) -> NDArray[Any]:
        """The labels in their own type, in the order of their codes."""
        return typed(self.schema.labels, self.label_type)

    def rows(
        self,
        table: pd.DataFrame | str | os.PathLike[str],
        newcomers: Newcomers | None = None,
    ) -> Rows:
        """Encode a table with labels, for instance for evaluation.

        Unseen group values, labels and categories are an error that lists them with
        their counts (fault 8), as are missing values and columns.

        Parameters
        ----------
        table, newcomers
            As for `inputs`.
        """
        frame, _ = read_table(table)
        attributes = [attribute.name for attribute in self.schema.attributes]
        weighed = [] if self.weight is None else [self.weight]
        self._require(frame, [*attributes, self.label, *weighed])
        with Problems("table", DataError) as problems:
            X = self._inputs(frame, problems, newcomers)
            group = self._groups(frame, problems)
            y = self._labels(frame, problems)
            weights = [weights_of(frame[name], problems) for name in weighed]
        return Rows(X, y, group, None, *weights)

    def inputs(
        self,
        table: pd.DataFrame | str | os.PathLike[str],
        newcomers: Newcomers | None = None,
    ) -> Matrix:
        """Encode the inputs alone, for prediction.

        Parameters
        ----------
        table
            A DataFrame, or a file.
        newcomers
            What becomes of unseen categories, if they are not refused.
        """
        chunks = read_chunks(table, self.columns)
        return stacked([self.encode(chunk, newcomers) for chunk in chunks])

    def encode(self, chunk: Chunk, newcomers: Newcomers | None = None) -> Matrix:
        """Encode some rows; of a file, a row that cannot be is named with its line."""
        frame = chunk.frame
        try:
            return self._encoded(frame, newcomers)
        except DataError as error:
            if chunk.file is None:
                raise
            good, bad = 0, len(frame)  # rows that can be encoded, and cannot
            while bad - good > 1:
                middle = (good + bad) // 2
                try:
                    self._encoded(frame[good:middle], newcomers)
                    good = middle
                except DataError:
                    bad = middle
            where = f"'{chunk.file}', {chunk.place(good)}"
            with Problems(where, DataError) as problems:
                self._inputs(frame[good:bad], problems, newcomers)
            raise error from None

    def _encoded(self, frame: pd.DataFrame, newcomers: Newcomers | None) -> Matrix:
        with Problems("table", DataError) as problems:
            X = self._inputs(frame, problems, newcomers)
        return X

    def _require(self, frame: pd.DataFrame, others: Sequence[str]) -> None:
        needed = [*(column.name for column in self.columns), *others]
        require(needed, list(map(str, frame.columns)), "table")

    def _inputs(
        self,
        frame: pd.DataFrame,
        problems: Problems,
        newcomers: Newcomers | None = None,
    ) -> Matrix:
        found: list[blocks.Block] = []
        start = 0
        for column in self.columns:
            stand = None
            if newcomers is not None and column.kind == "category":
                stand = newcomers.stand(column.name, column.values, start)
            found += column.encode(frame[column.name], problems, stand)
            start += column.width
        if problems.found:
            return np.empty((0, self.schema.n_features))
        beside = blocks.sparse if self.keeps_sparse else blocks.dense
        return beside(found, len(frame))

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
            problems.add(f"[missing-values] {what}: {absent} missing values")
        if self.schema.labels:
            codes = match_names(series.dropna(), self.schema.labels, what, problems)
            return codes.astype(np.float64)
        numbers = as_numbers(series)
        if numbers is None:
            problems.add(f"[not-numbers] {what}: not all values are numbers")
            return np.empty(0)
        return numbers


def _read_choice(value: object, kind: Any) -> Any:
    """Take one of a few words from a file."""
    if value not in get_args(kind):
        raise DataError(
            f"[bad-encoding] expected one of {get_args(kind)}, got {value!r}"
        )
    return value


def read_name(value: object) -> str:
    """Take a name from a file."""
    if not isinstance(value, str) or not value:
        raise DataError(f"[bad-encoding] expected a name, got {value!r}")
    return value


def read_names(values: object) -> tuple[str, ...]:
    """Take a list of names from a file."""
    if not isinstance(values, list):
        raise DataError(f"[bad-encoding] expected a list of names, got {values!r}")
    return tuple(read_name(value) for value in values)
