"""Dates in a table: in which order they are written, and what becomes of them.

The day is what counts: a time of day is left out, and the day is that of the place
where it was written, not of a time zone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from pffl.errors import DataError
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

Part = Literal["year", "month", "weekday", "age"]
Order = Literal["ymd", "dmy", "mdy"]
Days: TypeAlias = NDArray[np.datetime64]

PARTS: tuple[Part, ...] = get_args(Part)
VALUES: dict[Part, tuple[str, ...]] = {  # one input each
    "month": tuple(f"{month:02d}" for month in range(1, 13)),
    "weekday": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
}
ORDERS: dict[Order, str] = {
    "ymd": "year-month-day",
    "dmy": "day, month, year",
    "mdy": "month, day, year",
}
YEAR = 365.25  # days
TIME = r"(?:[T ]\d{1,2}:\d{2}.*)?"
YEAR_FIRST = re.compile(rf"(\d{{4}})([-/.])(\d{{1,2}})\2(\d{{1,2}}){TIME}")
YEAR_LAST = re.compile(rf"(\d{{1,2}})([-/.])(\d{{1,2}})\2(\d{{4}}){TIME}")


def order_of(values: Collection[object], known: Order | None = None) -> Order | None:
    """The order of year, month and day in which all values are dates; None if none is.

    Whether the day or the month comes first is not guessed: it is `known`, or an error
    asks for it.

    >>> order_of(["2021-04-03", "1999-12-31"]), order_of(["13/04/2021"], "dmy")
    ('ymd', 'dmy')
    """
    forms = (YEAR_FIRST, YEAR_LAST)
    start = as_text(next(iter(values), None))
    if start is None or not any(form.fullmatch(start) for form in forms):
        return None
    texts = [as_text(value) for value in values]
    if not np.isnat(parse(texts, "ymd")).any():
        return "ymd"
    if not all(YEAR_LAST.fullmatch(text or "") for text in texts):
        return None
    if known not in ("dmy", "mdy"):
        raise DataError(
            f"[bad-date] '{start}' does not say whether the day or the month comes "
            "first: say `date_order='dmy'` (day first) or `date_order='mdy'` (month "
            "first), or write it as year-month-day"
        )
    return None if np.isnat(parse(texts, known)).any() else known


def as_text(value: object) -> str | None:
    """A value as text, a date in ISO's order; None if it is neither."""
    if isinstance(value, str):
        return value.strip()
    return value.isoformat() if isinstance(value, date) else None


def parse(texts: Sequence[str | None], order: Order) -> Days:
    """Days that texts say; not a time (NaT) where one says none."""
    if order == "ymd":
        found = _iso(texts)
        if found is not None:
            return found
    return np.array([_day(text, order) for text in texts], dtype="datetime64[D]")


def _iso(texts: Sequence[str | None]) -> Days | None:
    """Parse ``2021-04-03``, with a time or not, at once; None if not all are that."""
    cut = np.array([text or "" for text in texts], dtype="U11")
    letters = cut.view("U1").reshape(len(cut), 11)
    after = letters[:, 10]
    if not ((letters[:, 4] == "-") & (letters[:, 7] == "-")).all():
        return None
    if not ((after == "") | (after == "T") | (after == " ")).all():
        return None
    try:
        return cut.astype("U10").astype("datetime64[D]")
    except ValueError:
        return None


def _day(text: str | None, order: Order) -> Any:
    form = YEAR_FIRST if order == "ymd" else YEAR_LAST
    match = form.fullmatch(text or "")
    if match is None:
        return None
    first, second, third = int(match[1]), int(match[3]), int(match[4])
    year, month, day = {
        "ymd": (first, second, third),
        "dmy": (third, second, first),
        "mdy": (third, first, second),
    }[order]
    try:
        return date(year, month, day)
    except ValueError:
        return None


def days_of(series: pd.Series, order: Order | None) -> Days:
    """The day of each row; not a time (NaT) where it is missing or none is said."""
    import pandas as pd

    if series.dtype.kind == "M":
        plain = series.dt.tz_localize(None)
        return np.asarray(plain, dtype="datetime64[us]").astype("datetime64[D]")
    codes, distinct = pd.factorize(series)
    texts = [as_text(value) for value in pd.Index(distinct).tolist()]
    days = parse(texts, order or "ymd") if texts else np.empty(0, "datetime64[D]")
    return np.append(days, np.datetime64("NaT", "D"))[codes]


def part_of(days: Days, part: Part, origin: str | None) -> FloatArray:
    """The year, years until `origin`, or the place of month or weekday; 0 for NaT."""
    known = np.where(np.isnat(days), np.datetime64("1970-01-01"), days)
    months = known.astype("datetime64[M]").astype(np.int64)
    since = known.astype(np.int64)
    numbers: NDArray[Any] = np.floor_divide(months, 12) + 1970
    if part == "month":
        numbers = months % 12
    elif part == "weekday":
        numbers = (since + 3) % 7  # 1970 began on a Thursday
    elif part == "age":
        numbers = (np.datetime64(origin, "D").astype(np.int64) - since) / YEAR
    return np.where(np.isnat(days), 0.0, numbers)


def read_day(text: str) -> str:
    """Take a day in ISO's order, as of an option or a file."""
    try:
        return date.fromisoformat(text).isoformat()
    except (TypeError, ValueError) as error:
        raise DataError(f"[bad-date] '{text}' is not a day as 2021-04-03") from error
