"""Turn columns of values into names and codes; nothing missing slips through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pffl.data.schema import Schema
from pffl.errors import DataError, Problems
from pffl.typing import BoolArray, FloatArray, IntArray


def as_column(values: object) -> NDArray[np.generic]:
    """Array of a column's values as they are.

    NumPy alone would turn the NaN in ``["a", nan]`` into the text "nan".

    >>> as_column(["a", float("nan")])
    array(['a', nan], dtype=object)
    """
    column = np.asarray(values)
    if column.dtype.kind in "US" and not hasattr(values, "dtype"):
        return np.asarray(values, dtype=object)
    return column


def is_missing(values: NDArray[np.generic]) -> BoolArray:
    """Where a column of any type has no value (NaN, None, NaT)."""
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values.astype(np.float64)))
    if values.dtype.kind in "mM":
        return np.asarray(np.isnat(values), dtype=bool)
    if values.dtype.kind == "O":
        return np.array([_is_nothing(v) for v in values.tolist()], dtype=bool)
    return np.zeros(len(values), dtype=bool)


def _is_nothing(value: object) -> bool:
    if value is None:
        return True
    unequal = value != value  # NaN, NaT; pandas.NA answers with itself
    return unequal if isinstance(unequal, bool | np.bool_) else True


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
        raise DataError(f"{what}: expected one column, got shape {values.shape}")
    missing = is_missing(values)
    if missing.any():
        raise DataError(
            f"{what}: {int(missing.sum())} missing values (first at row "
            f"{int(np.flatnonzero(missing)[0])}); give them a value of their own "
            "(for instance 'missing') to keep these rows, or remove the rows yourself"
        )
    distinct, codes = _distinct(plain_values(values))
    return tuple(str(value) for value in distinct), codes


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


def encode_labels(
    y: NDArray[np.generic], *, classification: bool
) -> tuple[FloatArray, tuple[str, ...]]:
    """Codes and names of classes, or the numbers of a regression target."""
    if not classification:
        try:
            return y.astype(np.float64), ()
        except (TypeError, ValueError) as error:
            raise DataError(f"label: not a number: {error}") from error
    names, codes = encode_values(y, "label")
    return codes.astype(np.float64), names


def match_names(
    seen: Sequence[str], codes: IntArray, names: Sequence[str], what: str
) -> tuple[IntArray, str | None]:
    """Translate codes of `seen` into codes of `names`, and say which have none.

    An unknown value gets the code −1 and is listed with its count.
    """
    place = {name: code for code, name in enumerate(names)}
    lookup = np.array([place.get(name, -1) for name in seen], dtype=np.int64)
    counts = np.bincount(codes, minlength=len(seen))
    unknown = [
        f"'{name}' ({int(count)})"
        for name, count, code in zip(seen, counts, lookup, strict=True)
        if code < 0
    ]
    matched = lookup[codes] if len(codes) else codes
    if not unknown:
        return matched, None
    known = ", ".join(f"'{name}'" for name in names)
    return matched, f"{what}: unseen values {', '.join(unknown)}; known are {known}"


def encode_groups(
    schema: Schema, sensitive_features: Mapping[str, ArrayLike]
) -> IntArray:
    """Group codes of new rows; a value that the schema does not know is an error.

    Parameters
    ----------
    schema
        What the federation agreed on.
    sensitive_features
        One vector per protected attribute of the schema.
    """
    codes = []
    with Problems("protected attributes", DataError) as problems:
        for attribute in schema.attributes:
            if attribute.name not in sensitive_features:
                problems.add(f"attribute '{attribute.name}' is missing")
                continue
            what = f"attribute '{attribute.name}'"
            values = as_column(sensitive_features[attribute.name])
            code, problem = match_names(
                *encode_values(values, what), attribute.values, what
            )
            codes.append(code)
            if problem:
                problems.add(problem)
    return schema.combine(np.stack(codes, axis=1))
