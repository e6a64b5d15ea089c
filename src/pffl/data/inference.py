"""What each column of a table is: inferred, and said; all that is wrong, with a line.

The different values of a column are looked at once. Only where something is wrong is
the table looked at again, for the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, cast

import numpy as np

from pffl.data import dates
from pffl.data.checks import listing
from pffl.data.column import (
    MISSING,
    OTHER,
    Column,
    as_number,
    as_numbers,
    category_codes,
)
from pffl.data.numbers import (
    MARKS,
    Decimal,
    decimal_of,
    written_number,
    written_numbers,
)
from pffl.data.words import width_for
from pffl.errors import DataError, Problems
from pffl.typing import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

    from pffl.data.table import ColumnOptions

MAX_CATEGORIES = 100_000
MANY_CATEGORIES = 100
ENOUGH_ROWS = 50
SAMPLE = 10_000  # values that show what most of them are
SIGN = re.compile(r"[$€£¥%]")
LIMITS = (5, 10, 20, 50, 100, 200, 500, 1_000)  # rows that make a value a frequent one


@dataclass(frozen=True, eq=False)
class Distinct:
    """The different values of a column, in order of appearance.

    Attributes
    ----------
    series
        The column.
    """

    series: pd.Series

    @cached_property
    def _factorized(self) -> tuple[IntArray, list[object]]:
        import pandas as pd

        codes, values = pd.factorize(self.series)
        return codes, pd.Index(values).tolist()

    @property
    def codes(self) -> IntArray:
        """Which value each row has; −1 where it is missing."""
        return self._factorized[0]

    @property
    def values(self) -> list[object]:
        """The values."""
        return self._factorized[1]

    @cached_property
    def counts(self) -> IntArray:
        """How many rows have each."""
        known = self.codes[self.codes >= 0]
        return np.bincount(known, minlength=len(self.values))

    @cached_property
    def odd(self) -> list[int]:
        """Codes of the values that are no plain numbers."""
        import pandas as pd

        read = pd.to_numeric(pd.Series(self.values, dtype=object), errors="coerce")
        finite = np.isfinite(read.to_numpy(dtype=np.float64))
        finite &= [not isinstance(value, bool) for value in self.values]
        asked = np.flatnonzero(~finite)
        return [k for k in asked.tolist() if as_number(self.values[k]) is None]

    @property
    def odd_first(self) -> Iterator[object]:
        """All values; those that are no plain numbers first, as they decide soon."""
        yield from (self.values[code] for code in self.odd)
        yield from self.values

    @property
    def is_identifier(self) -> bool:
        """Whether (nearly) every one of many rows has a value of its own."""
        known = int(self.counts.sum())
        if known < ENOUGH_ROWS:
            return False
        if self.series.dtype.kind in "iuf":
            return len(self.values) == known
        return len(self.values) > 0.9 * known


@dataclass
class Inference:
    """What is found out about the columns: to use, to note, to warn about.

    Parameters
    ----------
    options
        What was said of the columns.
    problems
        Where to add what is wrong.
    place
        Names the line of a row, counted from 0.
    """

    options: ColumnOptions
    problems: Problems
    place: Callable[[int], str]
    columns: list[Column] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    remedies: str = (
        "; `missing='indicator'` marks them, `missing='drop_column'` leaves the column "
        "out"
    )

    def add_all(self, frame: pd.DataFrame, names: Sequence[str]) -> None:
        """Decide for each named column what it is."""
        for name in names:
            self.add(name, Distinct(frame[name]))
        self.notes += _kinds(self.columns)

    def add(self, name: str, found: Distinct) -> None:
        """Decide for one column what it is."""
        missing = found.series.isna().to_numpy(dtype=bool)
        absent = int(missing.sum())
        if absent and self.options.missing == "drop_column":
            self.notes.append(f"column '{name}' left out: {absent} missing values")
            return
        if absent and self.options.missing == "refuse":
            first, told = self.place(int(missing.argmax())), self.remedies
            self.remedies = ""  # said once, however many columns need it
            self.problems.add(
                f"[missing-values] column '{name}': {absent} missing values (first: "
                f"{first}){told}"
            )
        if absent == len(missing):
            self.notes.append(f"column '{name}' left out: it has no values")
        elif name in self.options.hash:
            self._add_words(found.series, name)
        elif name in self.options.categorical:
            self._add_category(found, name)
        else:
            self._add_column(found, name)

    def _add_words(self, series: pd.Series, name: str) -> None:
        width = self.options.hash[name]
        self.columns.append(
            Column(name, "text", indicator=self._marked(series), hash=width)
        )

    def _add_column(self, found: Distinct, name: str) -> None:
        series = found.series
        if series.dtype.kind == "m":
            self.warnings.append(
                f"column '{name}' holds durations and was left out: make it a number"
            )
        elif series.dtype.kind == "M":
            self._add_dates(series, name, None)
        elif not self._add_numbers(found, name) and not self._add_written(found, name):
            self._add_text(found, name)

    def _add_numbers(self, found: Distinct, name: str) -> bool:
        """Take a column of numbers, plain or written in one way; False if it is not."""
        series, decimal = found.series, None
        numbers = as_numbers(series)
        if numbers is None:
            decimal = self._decimal(found)
            numbers = None if decimal is None else as_numbers(series, decimal)
        if numbers is None:
            return False
        if decimal is not None:
            said = self.options.decimal is not None or decimal == ","
            self.warnings.append(_as_read(found, name, decimal, said=said))
        elif series.dtype.kind not in "iufb":
            self.notes.append(f"column '{name}': text read as numbers")
        self._check_numbers(numbers, name)
        whole = bool(((np.floor(numbers) == numbers) | np.isnan(numbers)).all())
        if whole and len(found.values) == found.counts.sum() >= ENOUGH_ROWS:
            self.warnings.append(
                f"column '{name}' has a different whole number in every row, like an "
                "identifier; it is kept as an input: leave it out, or name it as the "
                "id, if it is one"
            )
        self.columns.append(
            Column(name, "number", (), self._marked(series), decimal=decimal)
        )
        return True

    def _check_numbers(self, numbers: FloatArray, name: str) -> None:
        infinite = np.isinf(numbers)
        if infinite.any():
            first = self.place(int(infinite.argmax()))
            self.problems.add(
                f"[not-finite] column '{name}': {int(infinite.sum())} infinite values "
                f"(first: {first})"
            )

    def _decimal(self, found: Distinct) -> Decimal | None:
        texts = [value for value in found.values if isinstance(value, str)]
        mark = self.options.decimal
        if mark is None:
            return decimal_of(texts)
        return None if written_numbers(texts, mark) is None else mark

    def _marked(self, series: pd.Series) -> bool:
        return self.options.missing == "indicator" and bool(series.isna().any())

    def _add_written(self, found: Distinct, name: str) -> bool:
        """Take a column of dates that are written as text; False if it is not."""
        try:
            order = dates.order_of(found.values, self.options.date_order)
        except DataError as error:
            if self.options.dates:
                self.problems.add(f"[bad-date] column '{name}': {error}")
            else:
                self.warnings.append(
                    f"column '{name}' holds dates and was left out; to use it: {error}"
                )
            return True
        if order is not None:
            self._add_dates(found.series, name, order)
        return order is not None

    def _add_dates(
        self, series: pd.Series, name: str, order: dates.Order | None
    ) -> None:
        days = dates.days_of(series, order)
        first, last = (str(end(days[~np.isnat(days)])) for end in (np.min, np.max))
        if not self.options.dates:
            self.warnings.append(
                f"column '{name}' holds dates ({first} to {last}) and was left out: "
                "`dates='age'` makes it years before the last one; there are also "
                "year, month and weekday"
            )
            return
        origin = self.options.date_origin or last
        aged = "age" in self.options.dates
        column = Column(
            name,
            "date",
            indicator=self._marked(series),
            parts=tuple(cast("Sequence[dates.Part]", self.options.dates)),
            order=order,
            origin=origin if aged else None,
        )
        self.columns.append(column)

    def _add_text(self, found: Distinct, name: str) -> None:
        if _marks_mixed(found, name, self.problems):
            return
        if _mostly(found, _is_signed):
            shown = next(filter(_is_signed, found.values))
            self.problems.add(
                f"[signed-numbers] column '{name}': numbers with a sign, such as "
                f"'{shown}': write the numbers alone, or name it in `categorical=`"
            )
            return
        strange = _not_numbers(found)
        what = "numbers"
        if not strange and self.options.dates:
            strange, what = _not_dates(found), "dates"
        if strange:
            shown = listing(self.shown(found, code) for code in strange)
            self.problems.add(
                f"[mixed-types] column '{name}': {what} mixed with {shown}: repair "
                "it, or name it in `categorical=`"
            )
        elif found.is_identifier and (use := _as_words(found, name)) is not None:
            self.warnings.append(
                f"column '{name}' holds free text and was left out: an input for each "
                f"of its {len(found.values):,} texts would tell nothing; {use}"
            )
        elif found.is_identifier:
            self.warnings.append(
                f"column '{name}' has a different text in (nearly) every row, like an "
                "identifier, and was left out"
            )
        else:
            self._add_category(found, name)

    def shown(self, found: Distinct, code: int) -> str:
        """A value, how often it occurs, and where first."""
        line = self.place(int((found.codes == code).argmax()))
        count = int(found.counts[code])
        first = "" if count == 1 else "first: "
        return f"'{found.values[code]}' ({count}, {first}{line})"

    def _add_category(self, found: Distinct, name: str) -> None:
        values, codes = category_codes(found.series)
        counts = np.bincount(codes, minlength=len(values))
        rare = (counts < self.options.rare) & (np.array(values) != MISSING)
        other = bool(rare.any())
        if other:
            self.notes.append(_joined(name, counts, rare, self.options.rare))
            kept = [v for v, few in zip(values, rare, strict=True) if not few]
            values = (*(v for v in kept if v != OTHER), OTHER)
        if len(values) > MAX_CATEGORIES:
            self.problems.add(
                f"[too-many-categories] column '{name}': {len(values):,} categories, "
                f"at most {MAX_CATEGORIES:,}: {self._remedy(found, name, counts)}"
            )
            return
        if len(values) > MANY_CATEGORIES:
            self.warnings.append(
                f"column '{name}' has {len(values):,} categories, each an input of its "
                "own: what few rows have may be learnt by heart; "
                f"{self._remedy(found, name, counts)}"
            )
        self.columns.append(Column(name, "category", values, other=other))

    def _remedy(self, found: Distinct, name: str, counts: IntArray) -> str:
        """Say what makes fewer inputs of a column."""
        use = _as_words(found, name)
        if use is not None:
            return f"{use}; `drop=` leaves the column out"
        for limit in LIMITS:
            frequent = int((counts >= limit).sum())
            if 0 < frequent < MANY_CATEGORIES:
                return (
                    f"`rare={limit}` joins values with fewer than {limit} rows "
                    f"({frequent:,} have more), `drop=` leaves the column out"
                )
        return "`drop=` leaves the column out"


def _kinds(columns: Sequence[Column]) -> list[str]:
    """Say which columns are what."""
    numbers = [c.name for c in columns if c.kind == "number"]
    coded = [f"{c.name} ({len(c.values)})" for c in columns if c.kind == "category"]
    said = [
        f"numbers: {', '.join(numbers) or 'none'}",
        f"categories (values): {', '.join(coded) or 'none'}",
    ]
    texts = [f"{c.name} ({c.hash:,})" for c in columns if c.kind == "text"]
    if texts:
        said.append(f"texts, by counts of hashed words (inputs): {', '.join(texts)}")
    for column in columns:
        if column.kind == "date":
            until = f"; age in years until {column.origin}" if column.origin else ""
            parts = ", ".join(column.parts)
            said.append(f"dates: {column.name} ({parts}{until})")
    return said


def _joined(name: str, counts: IntArray, rare: BoolArray, limit: int) -> str:
    rows = int(counts[rare].sum())
    return (
        f"column '{name}': {int(rare.sum()):,} of {len(counts):,} values have fewer "
        f"than {limit} rows; they ({rows:,} rows), and values that are not seen yet, "
        f"count as '{OTHER}'"
    )


def _as_words(found: Distinct, name: str) -> str | None:
    """Say how a column of prose can be used; None where it is none."""
    step = -(-len(found.values) // SAMPLE)
    width = width_for([str(value) for value in found.values[::step]])
    if width is None:
        return None
    return (
        f"`hash={{{name!r}: {width}}}` counts its words in {width:,} inputs, whatever "
        "the words"
    )


def _as_read(found: Distinct, name: str, decimal: Decimal, *, said: bool) -> str:
    """Say how text was read as numbers, by an example that is no plain number."""
    odd = next(value for value in found.values if as_number(value) is None)
    read = as_number(odd, decimal)
    texts = [value for value in found.values if isinstance(value, str)]
    other = None if said else written_numbers(texts, MARKS[1])
    own = written_numbers(texts, decimal)
    open_ = other is not None and own is not None and not np.array_equal(own, other)
    hint = " (`decimal=','` if that is a decimal mark)" if open_ else ""
    return (
        f"column '{name}': text read as numbers, such as '{odd}' as {read:.12g}{hint}"
    )


def _marks_mixed(found: Distinct, name: str, problems: Problems) -> bool:
    """Refuse numbers some of which have a decimal point and some a decimal comma."""
    examples: dict[str, str] = {}
    step = -(-len(found.values) // SAMPLE)
    for value in chain(found.values[::step], found.odd_first):
        if not isinstance(value, str):
            return False
        fitting = [m for m in MARKS if written_number(value, m) is not None]
        if not fitting:
            return False
        if len(fitting) == 1:
            examples.setdefault(fitting[0], value)
    if len(examples) < 2:
        return False
    problems.add(
        f"[mixed-decimals] column '{name}': decimal points and decimal commas, such "
        f"as '{examples['.']}' and '{examples[',']}': write them in one way"
    )
    return True


def _not_numbers(found: Distinct) -> list[int]:
    """Codes of the values that are no numbers in a column where most rows have one."""
    import pandas as pd

    if isinstance(found.series.dtype, pd.CategoricalDtype):
        return []
    if not _mostly(found, lambda v: any(_is_number(v, m) for m in (None, *MARKS))):
        return []
    wrong = found.odd
    for mark in MARKS:
        rest = [code for code in found.odd if not _is_number(found.values[code], mark)]
        if rest and found.counts[rest].sum() < found.counts[wrong].sum():
            wrong = rest
    return wrong if 2 * found.counts[wrong].sum() < found.counts.sum() else []


def _is_signed(value: object) -> bool:
    """Whether it is a number with a sign of a currency, or of per cent."""
    plain, signs = SIGN.subn("", value) if isinstance(value, str) else ("", 0)
    return signs == 1 and any(_is_number(plain, mark) for mark in MARKS)


def _is_number(value: object, mark: Decimal | None) -> bool:
    return as_number(value, mark) is not None


def _not_dates(found: Distinct) -> list[int]:
    """Codes of the values that are no dates in a column where most rows have one."""
    orders: tuple[dates.Order, ...] = ("ymd", "dmy", "mdy")
    texts = [dates.as_text(value) for value in found.values]
    if not _mostly(found, lambda value: _is_date(dates.as_text(value))):
        return []
    ways = [np.flatnonzero(np.isnat(dates.parse(texts, order))) for order in orders]
    wrong = min(ways, key=lambda codes: int(found.counts[codes].sum()))
    return wrong.tolist() if 2 * found.counts[wrong].sum() < found.counts.sum() else []


def _is_date(text: str | None) -> bool:
    forms = (dates.YEAR_FIRST, dates.YEAR_LAST)
    return text is not None and any(form.fullmatch(text) for form in forms)


def _mostly(found: Distinct, holds: Callable[[object], bool]) -> bool:
    """Whether something holds in most rows, as far as an even sample of values says."""
    step = -(-len(found.values) // SAMPLE)
    right = np.array([holds(value) for value in found.values[::step]], dtype=bool)
    weights = found.counts[::step]
    return bool(2 * weights[right].sum() > weights.sum())
