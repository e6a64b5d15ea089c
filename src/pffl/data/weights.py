"""Weights of rows as a user has them: numbers ≥ 0, of which some are above 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pffl.data.checks import note_weights
from pffl.data.column import as_numbers
from pffl.errors import Problems
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd


def weights_of(series: pd.Series, problems: Problems) -> FloatArray:
    """Return a column's weights; note everything that is none."""
    what, absent = f"weight '{series.name}'", int(series.isna().sum())
    numbers = as_numbers(series)
    if numbers is None:
        problems.add(f"{what}: not all values are numbers")
        return np.ones(len(series))
    if absent:
        problems.add(f"{what}: {absent} missing values")
    note_weights(np.where(series.isna(), 0.0, numbers), what, problems)
    _note_none(numbers, what, problems)
    return numbers


def as_weights(values: NDArray[np.generic], problems: Problems) -> FloatArray:
    """Return weights given as an array; note everything that is none."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        problems.add(f"sample_weight: not a number: {error}")
        return np.ones(len(values))
    note_weights(numbers, "sample_weight", problems)
    _note_none(numbers, "sample_weight", problems)
    return numbers


def _note_none(weights: FloatArray, what: str, problems: Problems) -> None:
    """Note weights that are all 0."""
    if len(weights) and not weights.any():
        problems.add(f"{what}: every weight is zero, so that no row counts")
