"""How the columns of a table become inputs, labels and groups: plain, and kept.

A number stays as it is (scaling is federated, later). A category becomes one input per
value, with one vocabulary for all silos; a text counts of its hashed words. What is
decided once is kept as JSON, so that new tables become rows in the same way: in
training, at a site, in prediction, and in a scikit-learn pipeline, by the same
`TableEncoder`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pffl.data.checks import LARGEST, listing
from pffl.data.read import (
    LINE,
    Table,
    is_number,
    is_table,
    read_chunks,
    read_table,
    require,
)
from pffl.data.rows import Matrix, Rows, as_csr, is_sparse, stacked
from pffl.data.schema import MISSING, Attribute, Schema
from pffl.errors import DataError, Problems
from pffl.records import Record, read
from pffl.typing import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.preprocessing import FunctionTransformer

Value: TypeAlias = bool | int | float | str

OTHER = "other"
SPARSE_WIDTH, SPARSE_SHARE = 256, 0.25  # least inputs, most that are not 0 in a row
MAX_HASH = 1 << 18  # inputs of a text
USUAL_WORDS = 64  # different words of a text, at a guess
LARGEST_WHOLE = 2.0**53
MOST_SHOWN = 5  # rows with a problem
WORDS = {
    "missing-values": "missing value",
    "not-finite": "infinite value",
    "not-numbers": "non-numeric value",
    "unknown-category": "unknown value",
    "bad-weights": "negative or too large weight",
}
MISSING_REMEDY = (
    ": fill them in, leave the column out (`drop=`) or, in training, mark them "
    "(`missing='indicator'`)"
)


# What is wrong, and in which rows


def note(
    problems: Problems,
    code: str,
    what: str,
    series: pd.Series,
    rows: BoolArray,
    remedy: str = "",
) -> None:
    """Note the rows of a column with a problem: how many, values, and places."""
    if rows.any():
        bad = series[rows]
        values = listing(repr(str(value)) for value in bad.dropna().unique())
        lines = [f"{number:,}" for number in bad.index[:MOST_SHOWN]]
        places = ", ".join([*lines, *["…"] * (len(bad) > MOST_SHOWN)])
        word = "line" if series.index.name == LINE else "row"
        told = f"{len(bad):,} {WORDS[code]}{'s' * (len(bad) > 1)}"
        told += f": {values}" if values else ""
        problems.add(f"[{code}] {what}: {told} ({word} {places}){remedy}")


# Values and their names


def as_column(values: object) -> NDArray[np.generic]:
    """Array of a column's values as they are.

    NumPy alone would turn the NaN in ``["a", nan]`` into the text "nan".

    >>> as_column(["a", float("nan")])
    array(['a', nan], dtype=object)
    """
    if is_sparse(values):
        raise DataError("wrong-sparse")
    column = np.asarray(values)
    if column.dtype.kind in "US" and not hasattr(values, "dtype"):
        return np.asarray(values, dtype=object)
    return column


def encode_values(values: object, what: str) -> tuple[tuple[str, ...], IntArray]:
    """Names and codes of the distinct values, in order; missing ones are refused.

    1.0 and 1 are one value, called ``1``.
    """
    column = as_column(values)
    if column.ndim != 1:
        raise DataError("wrong-shape:encode-values", what=what, shape=column.shape)
    import pandas as pd

    remedy = "; give them a value of their own, such as 'missing', or remove these rows"
    with Problems("array", DataError) as problems:
        series = pd.Series(column)
        absent = series.isna().to_numpy(bool)
        note(problems, "missing-values", what, series, absent, remedy)
    return category_codes(column)


def factorize(values: Any) -> tuple[IntArray, list[Any]]:
    """Code of each value (−1: missing) and the values, in order of appearance."""
    import pandas as pd

    try:
        codes, distinct = pd.factorize(values)
    except TypeError as error:
        name = getattr(values, "name", None)
        told = f"column '{name}': a cell holds a list or a table, not a value"
        raise DataError(f"[not-a-value] {told}") from error
    return codes, list(pd.Index(distinct))


def category_codes(values: Any) -> tuple[tuple[str, ...], IntArray]:
    """Names and codes of a column's values; a missing value is called ``missing``.

    Numbers are in order of size, all else in that of the names.
    """
    found, distinct = factorize(values)
    plain = list(map(_plain, distinct))
    if len(found) and found.min() < 0:
        plain.append(MISSING)  # has the code −1
    numbers = all(isinstance(value, int | float) for value in plain)
    keys: list[Any] = plain if numbers else list(map(str, plain))
    place = {key: code for code, key in enumerate(sorted(set(keys)))}
    codes = np.fromiter((place[key] for key in keys), np.int64, count=len(keys))
    return tuple(map(str, place)), codes[found]


def _plain(value: Any) -> Any:
    """Return a whole number without its point; 1.0 and 1 are one value."""
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole and abs(value) < LARGEST_WHOLE else value


def plain_text(text: str) -> str:
    """Return what a value is called in a column of such values only.

    >>> plain_text("007"), plain_text("7.0"), plain_text("true"), plain_text("A7")
    ('7', '7', 'True', 'A7')
    """
    if not is_number(text):
        return {"true": "True", "false": "False"}.get(text.lower(), text)
    number = float(text)
    return str(int(number) if number.is_integer() else number)


def match_names(
    series: pd.Series,
    names: Sequence[str],
    what: str,
    problems: Problems,
    *,
    other: bool = False,
    remedy: str = "",
) -> IntArray:
    """Codes of a column's values among `names`; unknown and missing ones are noted.

    With `other`, they are ``other``, which is a name. `remedy` is on missing values.
    Where a column held numbers only, ``007`` was called ``7``, and is so here.
    """
    codes_of = {name: code for code, name in enumerate(names)}
    seen, codes = category_codes(series)
    known = [
        codes_of.get(name, codes_of.get(plain_text(name.replace(",", ".")), -1))
        for name in seen
    ]
    found = np.array(known, np.int64)[codes]
    if other:
        found[found < 0] = codes_of[OTHER]
    absent = (found < 0) & _absent(series)
    note(problems, "missing-values", what, series, absent, remedy)
    known_are = f"; known are {listing(map(repr, names))}"
    odd = (found < 0) & ~absent
    note(problems, "unknown-category", what, series, odd, known_are)
    return found


def read_numbers(series: pd.Series) -> tuple[FloatArray, BoolArray]:
    """The column as floats, missing as NaN, and which values are no numbers."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.cat.categories.dtype)
    if pd.api.types.is_numeric_dtype(series) and series.dtype.kind != "c":
        numbers = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers, np.zeros(len(series), dtype=np.bool_)
    codes, distinct = factorize(series)
    values = pd.Series(distinct, dtype=object)
    odd = values.map(lambda v: isinstance(v, bool | complex | date)).to_numpy(bool)
    numbers = pd.to_numeric(values.where(~odd), errors="coerce").to_numpy(np.float64)
    wrong = np.append(np.isnan(numbers), False)[codes]
    return np.append(numbers, np.nan)[codes], wrong


# Texts


def word_counter(width: int) -> HashingVectorizer:
    r"""Return what counts the words of texts, by hashing: no vocabulary leaves a site.

    A word is a run of letters, digits and underscores (``\w+``), in lower case. It
    adds 1 to the input ``|h| mod width``, h its signed 32-bit MurmurHash3 (seed 0).
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(
        token_pattern=r"(?u)\w+",  # noqa: S106
        n_features=width,
        alternate_sign=False,
        norm=None,
        dtype=np.float64,
    )


def count_words(series: pd.Series, width: int) -> csr_array:
    """Return how many words of each text belong to each input; a missing one has none.

    A number has one name however it is written: ``007`` is ``7``.
    """
    from scipy.sparse import csr_array

    codes, distinct = factorize(series)
    texts = [*(plain_text(str(value)) for value in distinct), ""]
    return csr_array(word_counter(width).transform([texts[code] for code in codes]))


def one_hot(codes: IntArray, width: int) -> csr_array:
    """Return a 1 for each code in its column; code −1: nothing."""
    from scipy.sparse import csr_array

    there = codes >= 0
    ends = np.append(0, np.cumsum(there))
    stored = np.ones(int(ends[-1])), codes[there], ends
    return csr_array(stored, shape=(len(codes), width))


# Columns


@dataclass(frozen=True)
class Column(Record):
    """How one column of a table becomes inputs.

    Parameters
    ----------
    name
        Its name in the table.
    kind
        A number is kept; a category becomes one input per value, a text `hash` counts
        of words.
    values
        The vocabulary of a category; with ``missing`` in it, a missing value is one.
    indicator
        Whether a missing number or text is 0 with an input ``name=missing`` set to 1.
        The scaling puts numbers at the mean of those present.
    other
        Whether values that are not in the vocabulary, and missing ones, are ``other``,
        which is in it.
    hash
        Number of inputs that the words of a text are hashed to.
    range
        What a number is between, where that is declared for a private run; it plays
        no part in encoding.
    """

    name: str
    kind: Literal["number", "category", "text"]
    values: tuple[str, ...] = ()
    indicator: bool = False
    other: bool = False
    hash: int | None = None
    range: tuple[float, float] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        low, high = self.range or (0, 1)
        hashed, lacks = self.hash is not None, OTHER not in self.values
        wrong = {
            "only numbers have a range": self.range and self.kind != "number",
            "its range is two numbers, the lower first": low >= high,
            "only categories have values": self.values and self.kind != "category",
            f"'{OTHER}' is not one of its values": self.other and lacks,
            "texts, and they alone, are hashed": (self.kind == "text") != hashed,
            f"'hash' must be from 2 to {MAX_HASH:,} (2**18), not {self.hash!r}": (
                self.hash is not None and not 2 <= self.hash <= MAX_HASH
            ),
        }
        if told := next((text for text, found in wrong.items() if found), None):
            raise DataError("bad-column:column", name=self.name, told=told)

    def as_dict(self) -> dict[str, object]:
        """Plain form: the name, the kind, and what is not as usual."""
        plain = {**asdict(self), "values": list(self.values), "range": None}
        return {key: v for key, v in plain.items() if v not in (None, False, [])}

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the inputs that it becomes."""
        names: tuple[str, ...] = (self.name,)
        if self.kind == "category":
            names = tuple(f"{self.name}={value}" for value in self.values)
        elif self.hash is not None:
            names = tuple(f"{self.name}#{j}" for j in range(self.hash))
        return (*names, f"{self.name}={MISSING}") if self.indicator else names

    @property
    def unmarked(self) -> bool:
        """Whether a missing number or text is refused."""
        return self.kind != "category" and not self.indicator

    @property
    def width(self) -> int:
        """Number of inputs that it becomes."""
        return (len(self.values) or self.hash or 1) + self.indicator

    def encode(
        self, series: pd.Series, problems: Problems
    ) -> list[FloatArray | csr_array]:
        """Return the inputs of all rows; note whatever cannot be encoded."""
        what = f"column '{self.name}'"
        if self.kind == "category":
            told: Any = {"other": self.other, "remedy": MISSING_REMEDY}
            codes = match_names(series, self.values, what, problems, **told)
            return [one_hot(codes, len(self.values))]
        missing = _absent(series)
        if self.hash is not None:
            block: FloatArray | csr_array = count_words(series, self.hash)
        else:
            entry = {self.name: {"kind": "category"}}
            advice = f": write plain numbers, or say `columns={entry!r}`"
            numbers = numbers_of(series, what, problems, advice)
            note(problems, "not-finite", what, series, np.isinf(numbers))
            block = np.where(missing, 0.0, numbers)
        if self.unmarked:
            note(problems, "missing-values", what, series, missing, MISSING_REMEDY)
        return [block, missing.astype(np.float64)] if self.indicator else [block]


@dataclass(frozen=True)
class TableEncoder(Record):
    """Turn tables into rows, as was decided once: plain, and kept as JSON.

    It learns nothing from rows: all is declared, so any part of a table is encoded as
    the whole would be. Rows are kept without their zeros where there are at least 256
    inputs, of which less than a quarter can be other than 0 in a row: numbers count as
    one each, and so do categories; a text as 64.

    Parameters
    ----------
    columns
        The columns that are inputs, in order. A category that is unknown is refused,
        unless its column has an ``other``.
    attributes
        The protected attributes, with the names of their columns.
    labels
        Names of the classes in the order of their codes; none for a number.
    label
        Column of the label.
    target
        What is predicted, in words; None: the label's column.
    typed
        The classes as predictions name them, where they are not text.
    weight
        Column that says how much each row counts; None: equally.
    """

    columns: tuple[Column, ...]
    attributes: tuple[Attribute, ...] = ()
    labels: tuple[str, ...] = ()
    label: str = "label"
    target: str | None = None
    typed: tuple[Value, ...] = ()
    weight: str | None = None

    def __post_init__(self) -> None:
        if len(self.typed) not in (0, len(self.labels)):
            told = f"{len(self.typed)} classes for {len(self.labels)} labels"
            raise DataError(f"[wrong-labels] {told}")

    @classmethod
    def of_numbers(cls, schema: Schema, typed: tuple[Value, ...] = ()) -> TableEncoder:
        """For data that never were a table: every input is a column of numbers.

        The label's column is called like the target.
        """
        columns = tuple(Column(name, "number") for name in schema.features)
        known = schema.attributes, schema.labels, schema.target
        return cls(columns, *known, typed=typed)

    @cached_property
    def schema(self) -> Schema:
        """What the federation agreed on; it follows from the columns."""
        ends = np.cumsum([column.width for column in self.columns]).tolist()
        placed = list(zip(self.columns, ends, strict=True))
        gaps = [end for c, end in placed if c.indicator and c.kind == "number"]
        texts = [(end - c.width, end - c.indicator) for c, end in placed if c.hash]
        return Schema(
            tuple(name for column in self.columns for name in column.features),
            self.attributes,
            self.labels,
            self.target or self.label,
            tuple((end - 2, end - 1) for end in gaps),
            tuple(texts),
        )

    @property
    def keeps_sparse(self) -> bool:
        """Whether rows are kept without their zeros."""
        filled = sum(min(USUAL_WORDS, column.hash or 1) for column in self.columns)
        width = sum(column.width for column in self.columns)
        return width >= SPARSE_WIDTH and filled < SPARSE_SHARE * width

    @property
    def classes(self) -> NDArray[Any]:
        """The labels in their own type, in the order of their codes."""
        return np.array(self.typed) if self.typed else np.array(self.labels, str)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TableEncoder:
        """Rebuild from the plain form; refuse whatever is not one."""
        return read(cls, dict(plain), source="not an encoder", error=DataError)

    def as_dict(self) -> dict[str, object]:
        """Plain form, for files: all that is needed to read a table the same way."""
        columns = [column.as_dict() for column in self.columns]
        plain = {**asdict(self), "columns": columns}
        return {key: value for key, value in plain.items() if value is not None}

    def encode(self, frame: pd.DataFrame, problems: Problems) -> Matrix:
        """Return the inputs of all rows, shape (rows, inputs); note all that is wrong.

        Columns that are not needed may be there.
        """
        from scipy.sparse import csr_array, hstack

        before, blocks = len(problems.found), list[Any]()
        for column in self.columns:
            blocks += column.encode(frame[column.name], problems)
        width = sum(column.width for column in self.columns)
        if len(problems.found) > before:
            return np.empty((0, width))
        if self.keeps_sparse:
            parts = [csr_array(b[:, None]) if b.ndim == 1 else b for b in blocks]
            return as_csr(hstack(parts, format="csr"))
        out, start = np.zeros((len(frame), width)), 0
        for block in blocks:
            if isinstance(block, np.ndarray):
                out[:, start] = block
                start += 1
            else:  # without a dense copy of it
                rows = np.repeat(np.arange(len(frame)), np.diff(block.indptr))
                out[rows, start + block.indices] = block.data
                start += block.shape[1]
        return out

    def pieces(
        self, table: object, keep: Sequence[str] = ()
    ) -> Iterator[tuple[pd.DataFrame, Matrix]]:
        """Yield a table and its inputs, piece by piece; raise all that is wrong.

        An array is taken for the columns in order. `keep`: as for `read_chunks`.
        """
        import pandas as pd

        if not is_table(table):
            names = [column.name for column in self.columns]
            table = pd.DataFrame(np.asarray(table), columns=names)
        for chunk in read_chunks(table, self.columns, keep):
            with Problems("table", DataError) as problems:
                X = self.encode(chunk, problems)
            yield chunk, X

    def inputs(self, table: object) -> Matrix:
        """Encode the inputs alone, as for prediction."""
        return stacked([X for _, X in self.pieces(table)])

    def rows(self, table: Table) -> Rows:
        """Encode a table with labels, for instance for evaluation.

        Unknown groups, labels and categories are an error that lists them with their
        counts (fault 8), as are missing values and columns.
        """
        frame, _ = read_table(table, numbered=True)
        with Problems("table", DataError) as problems:
            return self.encode_rows(frame, problems)

    def encode_rows(self, frame: pd.DataFrame, problems: Problems) -> Rows:
        """Encode a frame with labels; note all that is wrong."""
        weight = None
        needed = [*(c.name for c in self.columns), *(a.name for a in self.attributes)]
        needed += [self.label, *([self.weight] if self.weight else [])]
        require(needed, list(map(str, frame.columns)), "table")
        X = self.encode(frame, problems)
        codes = []
        for a in self.attributes:
            where = f"protected attribute '{a.name}'"
            entry = {a.name: {"values": [*a.values, MISSING]}}
            remedy = f"; to make them a group, declare it: `columns={entry!r}`"
            known = frame[a.name], a.values, where, problems
            codes.append(match_names(*known, remedy=remedy))
        where, series = f"label '{self.label}'", frame[self.label]
        remedy = "; `missing_label='drop'` leaves these rows out"
        if self.labels:
            found = match_names(series, self.labels, where, problems, remedy=remedy)
            y = found.astype(np.float64)
        else:
            y = numbers_of(series, where, problems)
            note(problems, "missing-values", where, series, _absent(series), remedy)
        if self.weight is not None:
            where, series = f"weight '{self.weight}'", frame[self.weight]
            weight = numbers_of(series, where, problems)
            note(problems, "missing-values", where, series, _absent(series))
            beyond = (weight < 0) | (weight > LARGEST)
            note(problems, "bad-weights", where, series, beyond)
        group = np.maximum(np.stack(codes, 1), 0)  # those noted are unknown
        return Rows(X, y, self.schema.combine(group), weight=weight)

    def as_transformer(self) -> FunctionTransformer:
        """Return it as a step of a scikit-learn pipeline, which takes raw tables."""
        from sklearn.preprocessing import FunctionTransformer

        return FunctionTransformer(self.inputs, feature_names_out=self._names_out)

    def _names_out(self, *_: object) -> NDArray[Any]:
        return np.array(self.schema.features, dtype=object)


def numbers_of(
    series: pd.Series, what: str, problems: Problems, advice: str = ""
) -> FloatArray:
    """Return a column's numbers, missing as NaN; note other values."""
    numbers, wrong = read_numbers(series)
    note(problems, "not-numbers", what, series, wrong, advice)
    return numbers


def _absent(series: pd.Series) -> BoolArray:
    return series.isna().to_numpy(dtype=bool)


def classes_of(values: Any, names: Sequence[str]) -> tuple[Value, ...]:
    """Return labels in the type of their column; none where that is text.

    >>> classes_of([2, 0, 2], ["0", "2"]), classes_of([0, 1], ["no", "yes"])
    ((0, 2), ())
    """
    distinct = factorize(as_column(values))[1] if names else []
    plain = [v.item() if isinstance(v, np.generic) else v for v in distinct]
    known = {str(_plain(value)): value for value in plain}
    found = [known.get(name, name) for name in names]
    kinds = {type(value) for value in found}
    return tuple(found) if kinds in ({bool}, {int}, {float}) else ()
