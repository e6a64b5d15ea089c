"""From the columns of a table to inputs: what each column is, and what it becomes.

A number stays as it is (scaling is federated, later). A category becomes one column per
value, with one vocabulary for all silos. Nothing is imputed unless the user says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pffl.data.checks import listing
from pffl.data.encode import encode_values
from pffl.errors import Problems
from pffl.typing import BoolArray, FloatArray

if TYPE_CHECKING:
    import pandas as pd

Missing = Literal["refuse", "indicator", "drop_column"]
MISSING = "missing"
MAX_CATEGORIES = 1_000
ENOUGH_ROWS = 50


@dataclass(frozen=True)
class Column:
    """How one column of a table becomes inputs.

    Parameters
    ----------
    name
        Its name in the table.
    kind
        A number is kept; a category becomes one input per value.
    values
        The vocabulary of a category.
    indicator
        Whether a missing number is 0 with an input ``name=missing`` set to 1.
    """

    name: str
    kind: Literal["number", "category"]
    values: tuple[str, ...] = ()
    indicator: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the inputs that it becomes."""
        if self.kind == "category":
            return tuple(f"{self.name}={value}" for value in self.values)
        return (self.name, f"{self.name}={MISSING}") if self.indicator else (self.name,)

    def encode(self, series: pd.Series, out: FloatArray, problems: Problems) -> None:
        """Write the inputs of all rows into `out`, shape (rows, features)."""
        missing = series.isna().to_numpy(dtype=bool)
        if self.kind == "number":
            self._encode_number(series, missing, out, problems)
            return
        if missing.any() and MISSING not in self.values:
            problems.add(f"column '{self.name}': {int(missing.sum())} missing values")
            return
        names, codes = category_codes(series)
        place = {value: code for code, value in enumerate(self.values)}
        unseen = [
            f"'{name}' ({int((codes == code).sum())})"
            for code, name in enumerate(names)
            if name not in place
        ]
        if unseen:
            problems.add(f"column '{self.name}': unseen values {listing(unseen)}")
            return
        lookup = np.array([place[name] for name in names], dtype=np.int64)
        out[:] = 0.0
        out[np.arange(len(codes)), lookup[codes]] = 1.0

    def _encode_number(
        self, series: pd.Series, missing: BoolArray, out: FloatArray, problems: Problems
    ) -> None:
        numbers = as_numbers(series)
        if numbers is None:
            problems.add(f"column '{self.name}': not all values are numbers")
            return
        if missing.any() and not self.indicator:
            problems.add(f"column '{self.name}': {int(missing.sum())} missing values")
        if np.isinf(numbers).any():
            problems.add(
                f"column '{self.name}': {int(np.isinf(numbers).sum())} infinite values"
            )
        out[:, 0] = numbers
        if self.indicator:
            out[missing, 0] = 0.0
            out[:, 1] = missing


@dataclass
class Inference:
    """What was found out about the columns: to use, to note, to warn about."""

    columns: list[Column]
    notes: list[str]
    warnings: list[str]


def infer_columns(
    frame: pd.DataFrame,
    names: Sequence[str],
    categorical: Sequence[str],
    missing: Missing,
    problems: Problems,
) -> Inference:
    """Decide for each named column what it is; nothing is left out in silence."""
    found = Inference([], [], [])
    for name in names:
        series = frame[name]
        absent = int(series.isna().sum())
        if absent and missing == "drop_column":
            found.notes.append(f"column '{name}' left out: {absent} missing values")
            continue
        if absent and missing == "refuse":
            problems.add(
                f"column '{name}': {absent} missing values; missing='indicator' marks "
                "them, missing='drop_column' leaves the column out"
            )
        if absent == len(series):
            found.notes.append(f"column '{name}' left out: it has no values")
        elif name in categorical:
            _add_category(series, name, found, problems)
        else:
            _add_column(series, name, missing, found, problems)
    numbers = [column.name for column in found.columns if column.kind == "number"]
    categories = [
        f"{column.name} ({len(column.values)})"
        for column in found.columns
        if column.kind == "category"
    ]
    found.notes.append(f"numbers: {', '.join(numbers) or 'none'}")
    found.notes.append(f"categories (values): {', '.join(categories) or 'none'}")
    return found


def _add_column(
    series: pd.Series,
    name: str,
    missing: Missing,
    found: Inference,
    problems: Problems,
) -> None:
    if series.dtype.kind in "mM":
        found.warnings.append(
            f"column '{name}' holds dates and was left out: turn it into a number"
        )
        return
    numbers = as_numbers(series)
    if numbers is None:
        strange = _not_numbers(series)
        if strange:
            problems.add(
                f"column '{name}': numbers mixed with {listing(strange)}: repair it, "
                f"or name it in categorical="
            )
        elif is_identifier(series):
            found.warnings.append(
                f"column '{name}' has a different text in (nearly) every row, like an "
                "identifier, and was left out"
            )
        else:
            _add_category(series, name, found, problems)
        return
    if series.dtype.kind not in "iufb":
        found.notes.append(f"column '{name}': text read as numbers")
    if np.isinf(numbers).any():
        problems.add(f"column '{name}': {int(np.isinf(numbers).sum())} infinite values")
    whole = (np.floor(numbers) == numbers) | np.isnan(numbers)
    if whole.all() and is_identifier(series):
        found.warnings.append(
            f"column '{name}' has a different whole number in every row, like an "
            "identifier; it is kept as an input: name it in drop= (or id=) if it is one"
        )
    indicator = missing == "indicator" and bool(series.isna().any())
    found.columns.append(Column(name, "number", indicator=indicator))


def _add_category(
    series: pd.Series, name: str, found: Inference, problems: Problems
) -> None:
    values, _ = category_codes(series)
    if len(values) > MAX_CATEGORIES:
        problems.add(
            f"column '{name}': {len(values)} categories, at most {MAX_CATEGORIES}: "
            "join some of them, or name it in drop="
        )
        return
    found.columns.append(Column(name, "category", values))


def as_numbers(series: pd.Series) -> FloatArray | None:
    """The column as floats, missing as NaN; None if any value is not a number."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(series) or pd.api.types.is_numeric_dtype(series):
        if series.dtype.kind == "c":
            return None
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if isinstance(series.dtype, pd.CategoricalDtype) or series.dtype.kind in "mM":
        return None
    values = series.to_numpy(dtype=object, na_value=np.nan)
    numbers = {value: _number(value) for value in set(values.tolist())}
    if any(number is None for number in numbers.values()):
        return None
    return np.array([numbers[value] for value in values.tolist()], dtype=np.float64)


def _number(value: object) -> float | None:
    if value is None:
        return float("nan")
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _not_numbers(series: pd.Series) -> list[str]:
    """Values that are no numbers in a column where most are, each with its count."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        return []
    counts = series.value_counts()
    wrong = {value: int(n) for value, n in counts.items() if _number(value) is None}
    if 2 * sum(wrong.values()) >= int(counts.sum()):
        return []
    return [f"'{value}' ({count})" for value, count in wrong.items()]


def is_identifier(series: pd.Series) -> bool:
    """Whether a column has a value of its own in (nearly) every one of many rows."""
    known = series.dropna()
    if len(known) < ENOUGH_ROWS:
        return False
    distinct = known.nunique()
    if known.dtype.kind in "iuf":
        return bool(distinct == len(known))
    return bool(distinct > 0.9 * len(known))


def category_codes(series: pd.Series) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Names and codes of a column's values; a missing value is called ``missing``."""
    import pandas as pd

    found, distinct = pd.factorize(series)
    values = np.array([*pd.Index(distinct).tolist(), MISSING], dtype=object)
    if not len(found) or found.min() >= 0:
        values = values[:-1]
    names, codes = encode_values(values, f"column '{series.name}'")
    return names, codes[found]
