"""How the columns of a table become inputs, labels and groups: plain, and kept.

A number stays as it is (scaling is federated, later). A category becomes one input per
value, with one vocabulary for all silos. A date becomes the parts of it that were asked
for, a text counts of its hashed words. What is decided once is kept as JSON, so that
new tables become rows in the same way: in training, at a site, in prediction, and in a
scikit-learn pipeline, by the same `TableEncoder`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from pffl.data.checks import listing, note_weights
from pffl.data.reading import (
    Chunk,
    Table,
    is_number,
    read_chunks,
    read_table,
    require,
)
from pffl.data.schema import MISSING, Attribute, Numbered, Schema, names_in
from pffl.data.silo import Rows
from pffl.data.sparse import Matrix, as_csr, is_sparse, stacked
from pffl.errors import DataError, Problems
from pffl.records import Record, read
from pffl.typing import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import HashingVectorizer

Decimal: TypeAlias = Literal[".", ","]
Part: TypeAlias = Literal["year", "month", "weekday", "age"]
Unseen: TypeAlias = Literal["refuse", "ignore"]
LabelType: TypeAlias = Literal["text", "integer", "number", "boolean"]
Place: TypeAlias = Callable[[int], str]
Found: TypeAlias = dict[str, Counter[str]]  # by column: unknown categories, counted

OTHER = "other"
PARTS: dict[Part, tuple[str, ...]] = {  # one input each; year and age are numbers
    "month": tuple(f"{month:02d}" for month in range(1, 13)),
    "weekday": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
}
YEAR = 365.25  # days
ISO = "%Y-%m-%d"
WORD = r"(?u)\w+"
WIDE, FILLED = 256, 0.25  # inputs, and the share that is not 0, of sparse rows
WIDEST = 1 << 24  # inputs of a text
USUAL = 64  # different words of a text, at a guess
LARGEST_WHOLE = 2.0**53
SHOWN = 5  # wrong values
GAPS = {".": "[,' \u00a0\u202f]", ",": "[.' \u00a0\u202f]"}
WRITTEN = {
    mark: rf"[-+]?(?:\d{{1,3}}(?:({gap})\d{{3}}(?:\1\d{{3}})*)?|\d+)"
    rf"(?:{re.escape(mark)}\d+)?"
    for mark, gap in GAPS.items()
}
IGNORE_THEM = "; `unseen='ignore'` takes them as none of these"
NONE_BEFORE = (
    "missing values, and none in training: fill them in, leave these rows out, or "
    "train with such rows and `missing='indicator'`"
)


# Values and their names


def as_column(values: object) -> NDArray[np.generic]:
    """Array of a column's values as they are.

    NumPy alone would turn the NaN in ``["a", nan]`` into the text "nan".

    >>> as_column(["a", float("nan")])
    array(['a', nan], dtype=object)
    """
    if is_sparse(values):
        raise DataError(
            "[wrong-sparse] a column is a vector, not a sparse matrix: "
            ".toarray().ravel()"
        )
    column = np.asarray(values)
    if column.dtype.kind in "US" and not hasattr(values, "dtype"):
        return np.asarray(values, dtype=object)
    return column


def encode_values(values: object, what: str) -> tuple[tuple[str, ...], IntArray]:
    """Names and codes of the distinct values, in order; missing ones are refused.

    1.0 and 1 are one value, called ``1``.
    """
    import pandas as pd

    column = as_column(values)
    if column.ndim != 1:
        raise DataError(
            f"[wrong-shape] {what}: expected one column, got shape {column.shape}"
        )
    found, distinct = pd.factorize(column)
    if (found < 0).any():
        raise DataError(
            f"[missing-values] {what}: {int((found < 0).sum())} missing values (first "
            f"at row {int(np.argmax(found < 0))}); give them a value of their own (for "
            "instance 'missing') to keep these rows, or remove the rows yourself"
        )
    names, codes = _ordered(pd.Index(distinct).tolist())
    return names, codes[found]


def category_codes(series: pd.Series) -> tuple[tuple[str, ...], IntArray]:
    """Names and codes of a column's values; a missing value is called ``missing``."""
    import pandas as pd

    found, distinct = pd.factorize(series)
    values = pd.Index(distinct).tolist()
    if len(found) and found.min() < 0:
        values.append(MISSING)  # has the code −1
    names, codes = _ordered(values)
    return names, codes[found]


def _ordered(distinct: Sequence[object]) -> tuple[tuple[str, ...], IntArray]:
    """Names of distinct values in order, numbers by size, and the place of each."""
    plain = [
        int(v) if isinstance(v, float) and v.is_integer() and abs(v) < LARGEST_WHOLE
        else v
        for v in distinct
    ]  # fmt: skip
    numbers = all(isinstance(value, int | float) for value in plain)
    keys: list[Any] = plain if numbers else list(map(str, plain))
    place = {key: code for code, key in enumerate(sorted(set(keys)))}
    codes = np.fromiter((place[key] for key in keys), np.int64, count=len(keys))
    return tuple(map(str, place)), codes


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
    place: Place = "row {:,}".format,
    unknown: int | None = None,
    found: Counter[str] | None = None,
    advice: str = "",
) -> IntArray:
    """Codes of a column's values among `names`; unknown and missing ones are noted.

    With an `unknown` code they have that one instead, and are counted in `found`.
    Where a column held numbers only, ``007`` was called ``7``, and is so here.
    """
    codes_of = {name: code for code, name in enumerate(names)}
    seen, codes = category_codes(series)
    places = np.full(len(seen), -1 if unknown is None else unknown, dtype=np.int64)
    wrong = []
    for code, name in enumerate(seen):
        known = name if name in codes_of else plain_text(name.replace(",", "."))
        if known in codes_of:
            places[code] = codes_of[known]
            continue
        here = codes == code
        count = int(here.sum())
        if name == MISSING and series.isna().any():
            places[code] = -1
            problems.add(
                f"[missing-values] {what}: {count:,} missing values (first: "
                f"{place(int(here.argmax()))})"
            )
        elif unknown is None:
            wrong.append(shown_value(name, count, place(int(here.argmax()))))
        elif found is not None:
            found[name] += count
    if wrong:
        known_names = listing(f"'{name}'" for name in names)
        problems.add(
            f"[unknown-category] {what}: unknown values {listing(wrong)}; known are "
            f"{known_names}{advice}"
        )
    return places[codes]


def as_numbers(series: pd.Series, decimal: Decimal | None = None) -> FloatArray | None:
    """The column as floats, missing as NaN; None if any value is not a number."""
    numbers, wrong = read_numbers(series, decimal)
    return None if wrong.any() else numbers


def read_numbers(
    series: pd.Series, decimal: Decimal | None = None
) -> tuple[FloatArray, BoolArray]:
    """The column as floats, missing as NaN, and which values are no numbers.

    With a decimal mark also text as people write it: ``1,234.50``, ``3,5``.
    """
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.cat.categories.dtype)
    if pd.api.types.is_numeric_dtype(series) and series.dtype.kind != "c":
        numbers = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers, np.zeros(len(series), dtype=np.bool_)
    codes, distinct = pd.factorize(series)
    values = pd.Series(pd.Index(distinct).tolist(), dtype=object)
    if decimal is not None:
        values = values.map(lambda v: written_number(v, decimal))
    odd = values.map(lambda v: isinstance(v, bool | complex | date)).to_numpy(bool)
    read = pd.to_numeric(values.where(~odd), errors="coerce").to_numpy(np.float64)
    wrong = np.append(np.isnan(read), False)[codes]
    return np.append(read, np.nan)[codes], wrong


def written_number(value: object, decimal: Decimal) -> object:
    """Return a text with marks between thousands and decimals as a plain number.

    >>> written_number("1,234.50", "."), written_number("3,5", ",")
    ('1234.50', '3.5')
    >>> written_number("3,5", ".") is None, written_number(7, ".")
    (True, 7)
    """
    if not isinstance(value, str):
        return value
    plain = value.strip(" \u00a0\u202f").replace("−", "-")
    if re.fullmatch(WRITTEN[decimal], plain) is None:
        return None
    return re.sub(GAPS[decimal], "", plain).replace(",", ".")


# Dates and texts


def days_of(series: pd.Series, form: str | None) -> NDArray[np.datetime64]:
    """The day of each row; not a time (NaT) where it is missing or none is said.

    The day is that of the place where it was written, not of a time zone.
    """
    import pandas as pd

    if series.dtype.kind == "M":
        plain = series.dt.tz_localize(None)
        return np.asarray(plain, dtype="datetime64[us]").astype("datetime64[D]")
    codes, distinct = pd.factorize(series)
    days = [_day(str(value), form) for value in pd.Index(distinct).tolist()]
    return np.array([*days, None], dtype="datetime64[D]")[codes]


def _day(text: str, form: str | None) -> date | None:
    """Read a date as `form` says, or in ISO's order, with or without a time."""
    text = text.strip()
    try:
        if form is not None:
            return datetime.strptime(text, form).date()
        good = text[4:5] == text[7:8] == "-" and text[10:11] in ("", "T", " ")
        return date.fromisoformat(text[:10]) if good else None
    except ValueError:
        return None


def part_of(
    days: NDArray[np.datetime64], part: Part, origin: str | None
) -> NDArray[np.generic]:
    """The year, years until `origin`, or the place of month or weekday; 0 for NaT."""
    known = np.where(np.isnat(days), np.datetime64("1970-01-01"), days)
    months, since = known.astype("datetime64[M]").astype(int), known.astype(int)
    numbers: NDArray[Any] = np.floor_divide(months, 12) + 1970
    if part == "month":
        numbers = months % 12
    elif part == "weekday":
        numbers = (since + 3) % 7  # 1970 began on a Thursday
    elif part == "age":
        numbers = (np.datetime64(origin, "D").astype(int) - since) / YEAR
    return np.where(np.isnat(days), 0, numbers)


def read_day(text: str) -> str:
    """Take a day in ISO's order, as of an option or a file."""
    found = _day(text, ISO) if isinstance(text, str) else None
    if found is None:
        raise DataError(f"[bad-date] '{text}' is not a day as 2021-04-03")
    return found.isoformat()


def word_counter(width: int) -> HashingVectorizer:
    r"""Return what counts the words of texts, by hashing: no vocabulary leaves a site.

    A word is a run of letters, digits and underscores (``\w+``), in lower case. It
    adds 1 to the input ``|h| mod width``, h its signed 32-bit MurmurHash3 (seed 0).
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(
        token_pattern=WORD,
        n_features=width,
        alternate_sign=False,
        norm=None,
        dtype=np.float64,
    )


def count_words(series: pd.Series, width: int) -> csr_array:
    """Return how many words of each text belong to each input; a missing one has none.

    A number is called alike however it is written: ``007`` is ``7``.
    """
    import pandas as pd
    from scipy.sparse import csr_array

    codes, distinct = pd.factorize(series)
    texts = [*(plain_text(str(value)) for value in pd.Index(distinct).tolist()), ""]
    return csr_array(word_counter(width).transform([texts[code] for code in codes]))


# Columns


class OneHot(NamedTuple):
    """Inputs of which a row has at most one, and it is 1; code −1: none."""

    codes: IntArray
    width: int


Block: TypeAlias = "FloatArray | OneHot | csr_array"


@dataclass(frozen=True)
class Column(Record):
    """How one column of a table becomes inputs.

    Parameters
    ----------
    name
        Its name in the table.
    kind
        A number is kept; a category becomes one input per value, a date some numbers
        and categories, a text `hash` counts of words.
    values
        The vocabulary of a category; with ``missing`` in it, a missing value is one.
    indicator
        Whether a missing number, date or text is 0 with an input ``name=missing`` set
        to 1. The scaling puts numbers and dates at the mean of those present.
    fill
        What a missing number is taken for, where nothing indicates it.
    decimal
        The decimal mark of numbers that are written as text, ``1,234.50`` or ``3,5``.
    other
        Whether values that are not in the vocabulary are ``other``, which is in it.
    parts
        What a date becomes, in order: the year and the age are numbers, month and
        weekday categories.
    format
        How dates are written (as for `datetime.strptime`); None: as ISO does.
    origin
        The day until which the age, in years, is counted.
    hash
        Number of inputs that the words of a text are hashed to.
    """

    name: str
    kind: Literal["number", "category", "date", "text"]
    values: tuple[str, ...] = ()
    indicator: bool = False
    decimal: Decimal | None = None
    other: bool = False
    parts: tuple[Part, ...] = ()
    format: str | None = None
    origin: str | None = None
    hash: int | None = None
    fill: float | None = None

    def __post_init__(self) -> None:
        wrong = None
        if self.fill is not None and (self.kind != "number" or self.indicator):
            wrong = "'fill' is for numbers without an indicator"
        elif (self.kind == "date") != bool(self.parts):
            wrong = "dates, and they alone, have parts"
        elif self.other and OTHER not in self.values:
            wrong = f"'{OTHER}' is not one of its values"
        elif (self.kind == "text") != (self.hash is not None):
            wrong = "texts, and they alone, are hashed"
        elif self.hash is not None and not 2 <= self.hash <= WIDEST:
            wrong = f"'hash' must be from 2 to {WIDEST:,} (2**24), not {self.hash!r}"
        if wrong is not None:
            raise DataError(f"[bad-column] column '{self.name}': {wrong}")
        if "age" in self.parts:
            read_day(self.origin or "")

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Column:
        """Rebuild from the plain form."""
        return read(cls, plain, source="not a column", error=DataError)

    def as_dict(self) -> dict[str, object]:
        """Plain form: the name, the kind, and what is not as usual."""
        plain = {**asdict(self), "values": list(self.values), "parts": list(self.parts)}
        named = ("name", "kind")
        return {
            k: v for k, v in plain.items() if k in named or v not in (None, False, [])
        }

    @property
    def pieces(self) -> tuple[Column, ...]:
        """Numbers and categories that it consists of, with an indicator at the end."""
        if self.kind != "date":
            return (self,)
        return tuple(
            Column(f"{self.name}.{part}", "category", PARTS[part])
            if part in PARTS
            else Column(f"{self.name}.{part}", "number")
            for part in self.parts
        )

    @property
    def named(self) -> tuple[str | Numbered, ...]:
        """Names of the inputs that it becomes; those of a text are numbered."""
        marked = (f"{self.name}={MISSING}",) if self.indicator else ()
        if self.kind == "category":
            return tuple(f"{self.name}={value}" for value in self.values)
        if self.hash is not None:
            return (Numbered(self.name, self.hash), *marked)
        if self.kind == "number":
            return (self.name, *marked)
        return (*(name for piece in self.pieces for name in piece.named), *marked)

    @property
    def features(self) -> Sequence[str]:
        """Names of the inputs that it becomes."""
        return names_in(self.named)

    @property
    def width(self) -> int:
        """Number of inputs that it becomes."""
        if self.kind == "date":
            return sum(piece.width for piece in self.pieces) + self.indicator
        own = len(self.values) if self.kind == "category" else self.hash or 1
        return own + self.indicator

    def encode(
        self,
        series: pd.Series,
        problems: Problems,
        *,
        place: Place = "row {:,}".format,
        unseen: Unseen = "refuse",
        found: Found | None = None,
    ) -> list[Block]:
        """Return the inputs of all rows; note whatever cannot be encoded."""
        what = f"column '{self.name}'"
        if self.kind == "category":
            unknown = -1 if unseen == "ignore" else None
            if self.other:
                unknown, found = self.values.index(OTHER), None
            counts = None if found is None else found.setdefault(self.name, Counter())
            codes = match_names(
                series, self.values, what, problems, place=place, unknown=unknown,
                found=counts, advice=IGNORE_THEM,
            )  # fmt: skip
            return [OneHot(codes, len(self.values))]
        missing = series.isna().to_numpy(dtype=bool)
        wrong = np.zeros(len(series), dtype=bool)
        blocks: list[Block] = []
        if self.hash is not None:
            blocks.append(count_words(series, self.hash))
        elif self.kind == "number":
            numbers, wrong = read_numbers(series, self.decimal)
            infinite = np.isinf(numbers)
            if infinite.any():
                problems.add(
                    f"[not-finite] {what}: {int(infinite.sum())} infinite values "
                    f"(first: {place(int(infinite.argmax()))})"
                )
            if self.fill is not None:
                numbers, missing = np.where(missing, self.fill, numbers), wrong
            blocks.append(np.where(missing, 0.0, numbers))
        else:
            days = days_of(series, self.format)
            wrong = np.isnat(days) & ~missing
            for part in self.parts:
                numbers = part_of(days, part, self.origin).astype(np.float64)
                if part in PARTS:
                    codes = np.where(missing, -1, numbers).astype(np.int64)
                    blocks.append(OneHot(codes, len(PARTS[part])))
                else:
                    blocks.append(numbers)
        if wrong.any():
            shown = shown_values(series, wrong, place)
            form = self.format or "YYYY-MM-DD"
            problems.add(
                f"[not-numbers] {what}: not a number: {shown}"
                if self.kind == "number"
                else f"[bad-date] {what}: not a date as {form}: {shown}"
            )
        if self.indicator:
            return [*blocks, missing.astype(np.float64)]
        if missing.any():
            problems.add(
                f"[missing-values] {what}: {int(missing.sum()):,} {NONE_BEFORE} "
                f"(first: {place(int(missing.argmax()))})"
            )
        return blocks


def shown_value(value: object, count: int, place: str) -> str:
    """Name a value, how often it occurs, and where first."""
    return f"'{value}' ({count}, {'first: ' if count > 1 else ''}{place})"


def shown_values(series: pd.Series, chosen: BoolArray, place: Place) -> str:
    """Name the chosen values of a column, each with its count and first place."""
    import pandas as pd

    codes, values = pd.factorize(series[chosen])
    counts, rows = np.bincount(codes), np.flatnonzero(chosen)
    shown = [
        shown_value(value, counts[k], place(int(rows[(codes == k).argmax()])))
        for k, value in enumerate(values[:SHOWN])
    ]
    more = len(values) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


@dataclass
class TableEncoder:
    """Turn tables into inputs: a scikit-learn transformer described by plain columns.

    It learns nothing from rows: all is declared, so any part of a table is encoded as
    the whole would be.

    Parameters
    ----------
    columns
        The columns that are inputs, in order.
    unseen
        What becomes of unknown categories, unless the column has an ``other``:
        ``refuse``, or ``ignore``: none of the known ones.
    sparse
        Whether rows are kept without their zeros; None: where there are at least 256
        inputs, of which less than a quarter can be other than 0 in a row. Numbers
        count as one each, and so do categories and parts of dates; a text as 64.
    """

    columns: tuple[Column, ...] = ()
    unseen: Unseen = "refuse"
    sparse: bool | None = None

    @property
    def width(self) -> int:
        """Number of inputs."""
        return sum(column.width for column in self.columns)

    @cached_property
    def keeps_sparse(self) -> bool:
        """Whether rows are kept without their zeros; see `sparse`."""
        if self.sparse is not None:
            return self.sparse
        filled = sum(
            min(USUAL, c.width) if c.kind == "text" else len(c.pieces)
            for c in self.columns
        )
        return self.width >= WIDE and filled < FILLED * self.width

    def encode(
        self,
        frame: pd.DataFrame,
        problems: Problems | None = None,
        *,
        place: Place = "row {:,}".format,
        unseen: Unseen | None = None,
        found: Found | None = None,
    ) -> Matrix:
        """Return the inputs of all rows, shape (rows, inputs); raise all that is wrong.

        Parameters
        ----------
        frame
            The table; columns that are not needed may be there.
        problems
            Where to note what is wrong, if it is not to be raised.
        place
            Says where a row is, counted from 0.
        unseen
            Other than the encoder's own.
        found
            Where unknown categories are counted that are not refused.
        """
        noted = problems or Problems("table", DataError)
        before, blocks = len(noted.found), list[Block]()
        for column in self.columns:
            blocks += column.encode(
                frame[column.name], noted,
                place=place, unseen=unseen or self.unseen, found=found,
            )  # fmt: skip
        if problems is None:
            noted.raise_if_any()
        if len(noted.found) > before:
            return np.empty((0, self.width))
        return self._stored(blocks) if self.keeps_sparse else self._dense(blocks, frame)

    def _dense(self, blocks: Sequence[Block], frame: pd.DataFrame) -> FloatArray:
        out, start = np.zeros((len(frame), self.width)), 0
        for block in blocks:
            if isinstance(block, OneHot):
                known = np.flatnonzero(block.codes >= 0)
                out[known, start + block.codes[known]] = 1.0
                start += block.width
            elif isinstance(block, np.ndarray):
                out[:, start] = block
                start += 1
            else:
                out[:, start : start + block.shape[1]] = block.toarray()
                start += block.shape[1]
        return out

    def _stored(self, blocks: Sequence[Block]) -> csr_array:
        from scipy.sparse import csr_array, hstack

        parts = []
        for block in blocks:
            if isinstance(block, OneHot):
                there = block.codes >= 0
                ends = np.append(0, np.cumsum(there))
                stored = np.ones(int(ends[-1])), block.codes[there], ends
                parts.append(csr_array(stored, shape=(len(there), block.width)))
            else:
                parts.append(csr_array(np.atleast_2d(block).T) if isinstance(
                    block, np.ndarray) else block)  # fmt: skip
        return as_csr(hstack(parts, format="csr"))

    def to_json(self) -> dict[str, object]:
        """Return the plain form, which `from_json` takes."""
        columns = [column.as_dict() for column in self.columns]
        sparse = {} if self.sparse is None else {"sparse": self.sparse}
        return {"columns": columns, "unseen": self.unseen, **sparse}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> TableEncoder:
        """Rebuild from the plain form; refuse whatever is not one."""
        columns = tuple(Column.from_dict(column) for column in plain["columns"])
        sparse = plain.get("sparse")
        if sparse not in (None, True, False):
            raise DataError(
                f"[bad-encoding] 'sparse' must be true or false, got {sparse!r}"
            )
        unseen = _read_choice(plain.get("unseen", "refuse"), Unseen)
        return cls(columns, unseen, sparse)

    # What scikit-learn asks of a transformer. Its base classes would be imported with
    # every run, and cost more than most runs do.

    def fit(self, X: object = None, y: object = None) -> TableEncoder:
        """Return the encoder: there is nothing to learn."""
        return self

    def transform(self, X: Any) -> Matrix:
        """Return the inputs of a table; an array is taken for the columns in order."""
        import pandas as pd

        names = [column.name for column in self.columns]
        if not hasattr(X, "columns"):
            array = np.asarray(X)
            if array.ndim != 2 or array.shape[1] != len(names):
                raise ValueError(
                    f"X has shape {array.shape}, not {len(names)} features: {names}"
                )
            X = pd.DataFrame(array, columns=names)
        frame, _ = read_table(X)
        require(names, list(map(str, frame.columns)), "table")
        return self.encode(frame)

    def fit_transform(self, X: Any, y: object = None) -> Matrix:
        """Return the inputs of a table."""
        return self.transform(X)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Return the names of the inputs."""
        return np.array(list(self.names), dtype=object)

    @property
    def names(self) -> Sequence[str]:
        """Names of the inputs, in order."""
        return names_in(name for column in self.columns for name in column.named)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {"columns": self.columns, "unseen": self.unseen, "sparse": self.sparse}

    def set_params(self, **params: Any) -> TableEncoder:
        """Change parameters in place, as `GridSearchCV` does."""
        for name, value in params.items():
            setattr(self, name, value)
        vars(self).pop("keeps_sparse", None)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(string=True, categorical=True, allow_nan=True),
            requires_fit=False,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return True


# Tables with labels and groups


@dataclass(frozen=True)
class TableEncoding:
    """The columns, label and protected attributes of a table, and what they became.

    Parameters
    ----------
    schema
        What the federation agreed on; the attributes carry the names of their columns.
    columns, unseen, sparse
        As for `TableEncoder`.
    label
        Column of the label.
    label_type
        Type of its values, in which predictions come back.
    weight
        Column that says how much each row counts; None: all alike.
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
        **more: Any,
    ) -> TableEncoding:
        """Build with the schema that follows from the columns."""
        ends = np.cumsum([column.width for column in columns]).tolist()
        pairs = [
            (place, end - 1)
            for column, end in zip(columns, ends, strict=True)
            if column.indicator and column.kind != "text"
            for place in range(end - column.width, end - 1)
        ]
        features = names_in(name for column in columns for name in column.named)
        target = more.pop("target", label)
        schema = Schema(
            features, tuple(attributes), tuple(labels), target, tuple(pairs)
        )
        return cls(schema, tuple(columns), label, **more)

    @classmethod
    def of_numbers(
        cls, schema: Schema, label_type: LabelType = "text"
    ) -> TableEncoding:
        """For data that never were a table: every input is a column of numbers.

        The label's column is called like the target.
        """
        columns = tuple(Column(name, "number") for name in schema.features)
        return cls(schema, columns, schema.target, label_type)

    @cached_property
    def encoder(self) -> TableEncoder:
        """What turns the inputs of a table into numbers."""
        return TableEncoder(self.columns, self.unseen, self.sparse)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TableEncoding:
        """Rebuild from the plain form; refuse whatever is not one."""
        encoder = TableEncoder.from_json(plain)
        weight = plain.get("weight")
        return cls.of(
            encoder.columns,
            [Attribute(read_name(n), read_names(v)) for n, v in plain["attributes"]],
            read_names(plain["labels"]),
            read_name(plain["label"]),
            target=read_name(plain["target"]),
            label_type=_read_choice(plain.get("label_type", "text"), LabelType),
            unseen=encoder.unseen,
            weight=None if weight is None else read_name(weight),
            sparse=encoder.sparse,
        )

    def as_dict(self) -> dict[str, object]:
        """Plain form, for files: all that is needed to read a table alike."""
        return {
            "target": self.schema.target,
            "label": self.label,
            "label_type": self.label_type,
            "labels": list(self.schema.labels),
            "attributes": [[a.name, list(a.values)] for a in self.schema.attributes],
            **({} if self.weight is None else {"weight": self.weight}),
            **self.encoder.to_json(),
        }

    @property
    def keeps_sparse(self) -> bool:
        """Whether rows are kept without their zeros."""
        return self.encoder.keeps_sparse

    @property
    def classes(self) -> NDArray[Any]:
        """The labels in their own type, in the order of their codes."""
        return typed_labels(self.schema.labels, self.label_type)

    def rows(
        self,
        table: Table,
        *,
        place: Place = "row {:,}".format,
        unseen: Unseen | None = None,
        found: Found | None = None,
    ) -> Rows:
        """Encode a table with labels, for instance for evaluation.

        Unknown groups, labels and categories are an error that lists them with their
        counts (fault 8), as are missing values and columns.

        Parameters
        ----------
        table
            A DataFrame, or a file.
        place, unseen, found
            As for `TableEncoder.encode`.
        """
        frame, _ = read_table(table)
        attributes = self.schema.attributes
        weighed = [] if self.weight is None else [self.weight]
        needed = [c.name for c in self.columns] + [a.name for a in attributes]
        require([*needed, self.label, *weighed], list(map(str, frame.columns)), "table")
        with Problems("table", DataError) as problems:
            X = self.encoder.encode(
                frame, problems, place=place, unseen=unseen, found=found
            )
            groups = [
                match_names(
                    frame[a.name], a.values, f"protected attribute '{a.name}'",
                    problems, place=place,
                )
                for a in attributes
            ]  # fmt: skip
            y = self._labels(frame[self.label], problems, place)
            weights = [weights_of(frame[name], problems, place) for name in weighed]
        group = self.schema.combine(np.stack(groups, axis=1))
        return Rows(X, y, group, None, *weights)

    def _labels(
        self, series: pd.Series, problems: Problems, place: Place
    ) -> FloatArray:
        what = f"label '{self.label}'"
        if self.schema.labels:
            codes = match_names(series, self.schema.labels, what, problems, place=place)
            return codes.astype(np.float64)
        numbers, wrong = read_numbers(series)
        absent = np.isnan(numbers) & ~wrong
        if wrong.any():
            shown = shown_values(series, wrong, place)
            problems.add(f"[not-numbers] {what}: not a number: {shown}")
        if absent.any():
            first = place(int(absent.argmax()))
            problems.add(
                f"[missing-values] {what}: {int(absent.sum())} missing values (first: "
                f"{first})"
            )
        return numbers

    def inputs(
        self, table: Table, unseen: Unseen | None = None, found: Found | None = None
    ) -> Matrix:
        """Encode the inputs alone, for prediction; see `TableEncoder.encode`."""
        chunks = read_chunks(table, self.columns)
        return stacked([self.encode(chunk, unseen, found) for chunk in chunks])

    def encode(
        self, chunk: Chunk, unseen: Unseen | None = None, found: Found | None = None
    ) -> Matrix:
        """Encode some rows; of a file, rows that cannot be are named with a line."""
        with Problems(chunk.subject, DataError) as problems:
            X = self.encoder.encode(
                chunk.frame, problems, place=chunk.place, unseen=unseen, found=found
            )
        return X


def unknown_remarks(found: Found) -> list[str]:
    """Say which unknown categories were taken as none of the known ones."""
    return [
        f"column '{column}': unknown values, taken as no value: "
        + listing(f"'{value}' ({count:,})" for value, count in counts.most_common())
        for column, counts in found.items()
        if counts
    ]


def weights_of(
    series: pd.Series, problems: Problems, place: Place = "row {:,}".format
) -> FloatArray:
    """Return a column's weights; note everything that is none."""
    numbers, wrong = read_numbers(series)
    what = f"weight '{series.name}'"
    if wrong.any():
        shown = shown_values(series, wrong, place)
        problems.add(f"[not-numbers] {what}: {shown}; a weight is a number ≥ 0")
        return np.ones(len(series))
    absent = np.isnan(numbers)
    if absent.any():
        problems.add(
            f"[missing-values] {what}: {int(absent.sum()):,} missing values; a row "
            "that is not to count has weight 0"
        )
    note_weights(np.where(absent, 0.0, numbers), what, problems, place)
    return numbers


def label_type_of(values: Any, names: Sequence[str]) -> LabelType:
    """Return the type of a column of labels, whose values have these names."""
    import pandas as pd

    column = pd.Series(values, copy=False)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = pd.Series(column.cat.categories)
    types: dict[str, LabelType] = {  # from what pandas calls the values
        "boolean": "boolean",
        "integer": "integer",
        "floating": "number",
        "mixed-integer-float": "number",
    }
    found = types.get(pd.api.types.infer_dtype(column, skipna=True), "text")
    try:
        typed_labels(names, found)
    except DataError:
        return "text"  # labels were declared that are not of the column's type
    return found


def typed_labels(names: Sequence[str], kind: LabelType) -> NDArray[Any]:
    """Return labels in their own type, from their names.

    >>> typed_labels(["0", "2"], "integer"), typed_labels(["no", "yes"], "text")
    (array([0, 2]), array(['no', 'yes'], dtype='<U3'))
    """
    make: Any = {"integer": int, "number": float, "boolean": ("False", "True").index}
    try:
        if kind != "text":
            found = np.array([make[kind](name) for name in names])
            return found.astype(bool) if kind == "boolean" else found
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"[wrong-labels] labels {list(names)[:5]} are not of type '{kind}'"
        ) from error
    return np.array(names, dtype=np.str_)


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
