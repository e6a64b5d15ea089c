"""How one column of a table becomes inputs: a number, a category, a date or a text.

A number stays as it is (scaling is federated, later). A category becomes one input per
value, with one vocabulary for all silos; rare values may share one. A date becomes the
parts of it that were asked for, a text counts of its words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pffl.data.blocks import Block, Counts, Numbers, OneHot
from pffl.data.checks import listing
from pffl.data.codes import encode_values
from pffl.data.dates import ORDERS, VALUES, Order, Part, days_of, part_of, read_day
from pffl.data.names import Numbered, names_in
from pffl.data.newcomers import Stand
from pffl.data.numbers import Decimal, written_number, written_numbers
from pffl.data.words import USUAL, check_widths, count_words, texts_of
from pffl.errors import DataError, Problems
from pffl.records import Record, read
from pffl.typing import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

MISSING = "missing"
OTHER = "other"
NONE_BEFORE = (
    "missing values, and none in training: fill them in, leave these rows out, or "
    "train with such rows and `missing='indicator'`"
)
TAKE_THEM = (
    "; to predict for them, `unseen='ignore'` takes them as none of these, and "
    "`unseen='most_frequent'` as that one"
)


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
    order
        Of day, month and year in dates that are written as text.
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
    order: Order | None = None
    origin: str | None = None
    hash: int | None = None
    fill: float | None = None

    def __post_init__(self) -> None:
        if self.fill is not None and (self.kind != "number" or self.indicator):
            raise DataError(
                f"[bad-column] column '{self.name}': 'fill' is for numbers without an "
                "indicator"
            )
        if (self.kind == "date") != bool(self.parts):
            raise DataError(
                f"[bad-column] column '{self.name}': dates, and they alone, have parts"
            )
        if "age" in self.parts:
            read_day(self.origin or "")
        if self.other and OTHER not in self.values:
            raise DataError(
                f"[bad-column] column '{self.name}': '{OTHER}' is not one of its values"
            )
        if self.kind != "text" and self.hash is None:
            return  # a matrix may have a million columns
        with Problems("column", DataError) as problems:
            check_widths(problems, {self.name: self.hash} if self.hash else {})
            if (self.kind == "text") != (self.hash is not None):
                problems.add(
                    f"[bad-column] '{self.name}': texts, and they alone, are hashed"
                )

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Column:
        """Rebuild from the plain form."""
        return read(cls, plain, source="not a column", error=DataError)

    def as_dict(self) -> dict[str, object]:
        """Plain form; what only some columns have is left out where it is None."""
        plain = asdict(self)
        plain |= {"values": list(self.values), "parts": list(self.parts)}
        absent = {key for key in ("hash", "fill") if plain[key] is None}
        return {key: value for key, value in plain.items() if key not in absent}

    @property
    def pieces(self) -> tuple[Column, ...]:
        """Numbers and categories that it consists of, with an indicator at the end."""
        if self.kind != "date":
            return (self,)
        return tuple(
            Column(f"{self.name}.{part}", "category", VALUES[part])
            if part in VALUES
            else Column(f"{self.name}.{part}", "number")
            for part in self.parts
        )

    @property
    def named(self) -> tuple[str | Numbered, ...]:
        """Names of the inputs that it becomes; those of a text are numbered."""
        if self.kind == "category":
            return tuple(f"{self.name}={value}" for value in self.values)
        marked = (f"{self.name}={MISSING}",) if self.indicator else ()
        if self.kind == "text":
            return (Numbered(self.name, self.hash or 0), *marked)
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

    @property
    def filled(self) -> int:
        """About how many of them are not 0 in a row."""
        return min(USUAL, self.width) if self.kind == "text" else len(self.pieces)

    def encode(
        self, series: pd.Series, problems: Problems, stand: Stand | None = None
    ) -> list[Block]:
        """Return the inputs of all rows.

        Values of a category that are not known are refused, unless one stands for them.
        """
        what = f"column '{self.name}'"
        if self.kind == "category":
            absent = int(series.isna().sum())
            if absent and MISSING not in self.values:
                problems.add(f"[missing-values] {what}: {absent:,} {NONE_BEFORE}")
                series = series.dropna()
            if self.other:
                stand = Stand(self.values.index(OTHER), OTHER)
            codes = match_names(series, self.values, what, problems, stand, TAKE_THEM)
            return [OneHot(codes, len(self.values))]
        missing = series.isna().to_numpy(dtype=bool)
        blocks: list[Block]
        if self.hash is not None:
            blocks = [Counts(count_words(texts_of(series), self.hash))]
        elif self.kind == "date":
            blocks = self._days(series, missing, problems)
        else:
            blocks, missing = self._numbers(series, problems)
        if self.indicator:
            return [
                *(_without(b, missing) for b in blocks),
                Numbers(missing.astype(float)),
            ]
        if missing.any():
            problems.add(
                f"[missing-values] {what}: {int(missing.sum()):,} {NONE_BEFORE}"
            )
        return blocks

    def _numbers(
        self, series: pd.Series, problems: Problems
    ) -> tuple[list[Block], BoolArray]:
        """Return the numbers, and where there are none."""
        what = f"column '{self.name}'"
        numbers = numbers_of(series, self.decimal)
        if numbers is None:
            problems.add(
                f"[not-numbers] {what}: {listing(_no_numbers(series, self.decimal))}"
            )
            return [], np.zeros(len(series), dtype=bool)
        infinite = int(np.isinf(numbers).sum())
        if infinite:
            problems.add(f"[not-finite] {what}: {infinite} infinite values")
        if self.fill is not None:
            numbers = np.where(np.isnan(numbers), self.fill, numbers)
        return [Numbers(numbers)], np.isnan(numbers)

    def _days(
        self, series: pd.Series, missing: BoolArray, problems: Problems
    ) -> list[Block]:
        """Return the parts of dates."""
        days = days_of(series, self.order)
        strange = np.isnat(days) & ~missing
        if strange.any():
            found = series[strange].value_counts()
            shown = listing(f"'{value}' ({count})" for value, count in found.items())
            order = ORDERS[self.order or "ymd"]
            problems.add(
                f"[bad-date] column '{self.name}': {shown}: not a date, written {order}"
            )
        blocks: list[Block] = []
        for part, piece in zip(self.parts, self.pieces, strict=True):
            numbers = part_of(days, part, self.origin)
            if piece.kind == "category":
                blocks.append(OneHot(numbers.astype(np.int64), piece.width))
            else:
                blocks.append(Numbers(numbers))
        return blocks


def _without(block: Block, missing: BoolArray) -> Block:
    """Return a block whose inputs are 0 where there is no value."""
    match block:
        case Numbers(values):
            return Numbers(np.where(missing, 0.0, values))
        case OneHot(codes, width):
            return OneHot(np.where(missing, -1, codes), width)
    return block  # a missing text has no words


def _no_numbers(series: pd.Series, decimal: Decimal | None) -> list[str]:
    """Values of a column that are no numbers, each with its count."""
    return [
        f"'{value}' ({count}) is not a number"
        for value, count in series.value_counts().items()
        if as_number(value, decimal) is None
    ]


def match_names(
    series: pd.Series,
    names: Sequence[str],
    what: str,
    problems: Problems,
    stand: Stand | None = None,
    advice: str = "",
) -> IntArray:
    """Codes of a column's values among `names`; unseen and missing ones are noted.

    Unseen ones are counted instead, and have another's code, where one stands for them.
    """
    absent = int(series.isna().sum())
    if absent and MISSING not in names:
        problems.add(f"[missing-values] {what}: {absent:,} missing values")
        series = series.dropna()
    seen, codes = category_codes(series)
    place = {name: code for code, name in enumerate(names)}
    unseen = {
        name: int((codes == code).sum())
        for code, name in enumerate(seen)
        if name not in place
    }
    if stand is not None:
        stand.found.update(unseen)
    elif unseen:
        known = listing(f"'{name}'" for name in names)
        new = listing(f"'{name}' ({count})" for name, count in unseen.items())
        problems.add(
            f"[unknown-category] {what}: unseen values {new}; known are {known}{advice}"
        )
    elsewhere = -1 if stand is None else stand.code
    found = [place.get(name, elsewhere) for name in seen]
    return np.array(found, dtype=np.int64)[codes]


def numbers_of(series: pd.Series, decimal: Decimal | None) -> FloatArray | None:
    """As `as_numbers`, of a column known to hold numbers, were it as categories."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.cat.categories.dtype)
    return as_numbers(series, decimal)


def as_numbers(series: pd.Series, decimal: Decimal | None = None) -> FloatArray | None:
    """The column as floats, missing as NaN; None if any value is not a number."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(series) or pd.api.types.is_numeric_dtype(series):
        if series.dtype.kind == "c":
            return None
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if isinstance(series.dtype, pd.CategoricalDtype) or series.dtype.kind in "mM":
        return None
    codes, distinct = pd.factorize(series)
    numbers = _as_floats(pd.Index(distinct).to_numpy(dtype=object), decimal)
    return None if numbers is None else np.append(numbers, np.nan)[codes]


def _as_floats(
    values: NDArray[np.object_], decimal: Decimal | None
) -> FloatArray | None:
    """Different values as floats; None if any is not a number."""
    import pandas as pd

    if pd.api.types.infer_dtype(values) == "string":
        if decimal is not None:
            return written_numbers(values.tolist(), decimal)
        try:
            return values.astype(np.float64)
        except ValueError:
            return None
    found = []
    for value in values.tolist():
        number = as_number(value, decimal)
        if number is None:
            return None
        found.append(number)
    return np.array(found, dtype=np.float64)


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
