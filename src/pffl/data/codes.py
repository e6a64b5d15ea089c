"""Turn columns of values into names and codes; nothing missing slips through."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pffl.data.sparse import is_sparse
from pffl.errors import DataError
from pffl.typing import IntArray

BOOLEANS = {"true": "True", "false": "False"}


def plain_text(text: str) -> str:
    """Return what a value is called in a column of such values only.

    >>> plain_text("007"), plain_text("7.0"), plain_text("true"), plain_text("A7")
    ('7', '7', 'True', 'A7')
    """
    try:
        number = float(text)
    except ValueError:
        return BOOLEANS.get(text.lower(), text)
    return str(int(number) if number.is_integer() else number)


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


def plain_values(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """Whole numbers that are stored as floats, as integers: 1.0 and 1 are one value."""
    if values.dtype.kind == "f":
        numbers = values.astype(np.float64)
        small = np.abs(numbers) < 2.0**53  # beyond, floats are no longer exact integers
        if len(values) and (small & (np.floor(numbers) == numbers)).all():
            return numbers.astype(np.int64)
    if values.dtype.kind == "O":
        whole = [
            int(v) if isinstance(v, float) and v.is_integer() else v
            for v in values.tolist()
        ]
        plain = np.empty(len(values), dtype=object)
        plain[:] = whole
        return plain
    return values


def encode_values(
    values: NDArray[np.generic], what: str
) -> tuple[tuple[str, ...], IntArray]:
    """Names and codes of the distinct values, in order; missing ones are refused."""
    if values.ndim != 1:
        raise DataError(
            f"[wrong-shape] {what}: expected one column, got shape {values.shape}"
        )
    missing = _missing(values)
    if missing.any():
        raise DataError(
            f"[missing-values] {what}: {int(missing.sum())} missing values (first at "
            f"row {int(np.flatnonzero(missing)[0])}); give them a value of their own "
            "(for instance 'missing') to keep these rows, or remove the rows yourself"
        )
    distinct, codes = _distinct(plain_values(values))
    return tuple(str(value) for value in distinct), codes


def _missing(values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Say which values are missing; only objects and dates may be so in many ways."""
    if values.dtype.kind in "USbiu":
        return np.zeros(len(values), dtype=np.bool_)
    import pandas as pd

    return np.asarray(pd.isna(values), dtype=np.bool_)


def _distinct(values: NDArray[np.generic]) -> tuple[list[object], IntArray]:
    """Sorted distinct values and codes; objects by hashing, which is far faster."""
    if values.dtype.kind != "O":
        found, codes = np.unique(values, return_inverse=True)
        return found.tolist(), codes.reshape(-1).astype(np.int64)
    items = values.tolist()
    names = {item: str(item) for item in set(items)}
    numbers = all(isinstance(item, int | float) for item in names)
    ordered = sorted(names) if numbers else sorted(set(names.values()))
    place = {value: code for code, value in enumerate(ordered)}
    lookup = {item: place[item if numbers else name] for item, name in names.items()}
    codes = np.fromiter(map(lookup.__getitem__, items), np.int64, count=len(items))
    return ordered, codes
