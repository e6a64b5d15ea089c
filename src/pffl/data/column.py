"""How one column of a table becomes inputs: a number stays, a category is coded.

A number stays as it is (scaling is federated, later). A category becomes one input per
value, with one vocabulary for all silos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pffl.data.checks import listing
from pffl.data.codes import encode_values
from pffl.data.numbers import Decimal, written_number
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
