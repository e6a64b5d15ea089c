"""Weights of rows as a user has them: numbers ≥ 0, of which some are above 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pffl.data.checks import listing, note_weights
from pffl.data.column import as_number, as_numbers
from pffl.errors import Problems
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd


def weights_of(
    series: pd.Series,
    problems: Problems,
    place: Callable[[int], str] = lambda row: f"row {row + 1:,}",
) -> FloatArray:
    """Return a column's weights; note everything that is none.

    ``place(row)`` says where a row is, counted from 0.
    """
    what, absent = f"weight '{series.name}'", int(series.isna().sum())
    numbers = as_numbers(series)
    if numbers is None:
        counts = series.value_counts()
        odd = [f"'{v}' ({n})" for v, n in counts.items() if as_number(v) is None]
        problems.add(
            f"[not-numbers] {what}: no numbers: {listing(odd)}; a weight is a number "
            "≥ 0"
        )
        return np.ones(len(series))
    if absent:
        problems.add(
            f"[missing-values] {what}: {absent:,} missing values; a row that is not "
            "to count has weight 0"
        )
    note_weights(np.where(series.isna(), 0.0, numbers), what, problems, place)
    _note_none(numbers, what, problems)
    return numbers


def as_weights(values: NDArray[np.generic], problems: Problems) -> FloatArray:
    """Return weights given as an array; note everything that is none."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        problems.add(f"[not-numbers] sample_weight: not a number: {error}")
        return np.ones(len(values))
    note_weights(numbers, "sample_weight", problems)
    _note_none(numbers, "sample_weight", problems)
    return numbers


def _note_none(weights: FloatArray, what: str, problems: Problems) -> None:
    """Note weights that are all 0."""
    if len(weights) and not weights.any():
        problems.add(
            f"[bad-weights] {what}: every weight is zero, so that no row counts"
        )


def described(weight: FloatArray) -> str:
    """Say how much rows weigh, and how many that count alike would be as good.

    (Σs)²/Σs², Kish's effective sample size.
    """
    if np.ptp(weight) == 0:
        return f"every row weighs {weight[0]:g}"
    alike = float(weight.sum()) ** 2 / float(weight @ weight)
    low, high = float(weight.min()), float(weight.max())
    return (
        f"rows weigh {low:g} to {high:g}: by Kish's rule, their means are about as "
        f"sure as those of {alike:,.0f} rows that count alike (of {len(weight):,})"
    )
