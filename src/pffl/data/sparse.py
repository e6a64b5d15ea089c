"""Inputs that are mostly zeros: SciPy's compressed rows, in one canonical form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from pffl.errors import DataError
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Inputs of rows as they are given: dense, or compressed.
Matrix: TypeAlias = "FloatArray | csr_array"


def is_sparse(X: object) -> TypeGuard[csr_array]:
    """Whether something is a sparse matrix or array of SciPy's, in any format."""
    return not isinstance(X, np.ndarray) and hasattr(X, "tocsr")


def as_csr(X: Any) -> csr_array:
    """Return rows in float64, sorted, each entry once, and none stored that is zero.

    Indices are as short as can be. What is so already is kept, without a copy.
    """
    from scipy.sparse import csr_array

    if X.dtype.kind not in "biuf":
        raise DataError(
            f"[not-numbers] sparse inputs must be real numbers, not of type {X.dtype}"
        )
    rows = csr_array(X, dtype=np.float64)
    if not (rows.has_canonical_format and rows.data.all()):
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    if rows.indices.dtype != np.int32 and max(rows.nnz, *rows.shape) < 2**31:
        places = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
        rows = csr_array((rows.data, *places), shape=rows.shape)
    return rows


def is_canonical(X: csr_array) -> bool:
    """Whether rows are as `as_csr` makes them, but for what they need not store."""
    from scipy.sparse import csr_array

    good = isinstance(X, csr_array) and X.dtype == np.float64
    return good and bool(X.has_canonical_format)


def stacked(parts: Sequence[Matrix]) -> Matrix:
    """Return all rows of the parts, one after another, as a copy."""
    dense = [part for part in parts if isinstance(part, np.ndarray)]
    if len(dense) == len(parts):
        return np.concatenate(dense)
    from scipy.sparse import vstack

    return as_csr(vstack([as_csr(part) for part in parts], format="csr"))


def stored_numbers(X: Matrix) -> FloatArray:
    """Return all numbers that are stored: the others are 0."""
    return X if isinstance(X, np.ndarray) else X.data


def stored_width(X: Matrix) -> int:
    """Return how many numbers a row stores, on average."""
    if isinstance(X, np.ndarray):
        return X.shape[1]
    return -(-X.nnz // max(1, X.shape[0]))


def column_ends(X: Matrix) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest number of each column, or 0 if beyond it."""
    if isinstance(X, np.ndarray):
        return X.min(axis=0, initial=0), X.max(axis=0, initial=0)
    low, high = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    with np.errstate(invalid="ignore"):  # a NaN shall be seen
        np.minimum.at(low, X.indices, X.data)
        np.maximum.at(high, X.indices, X.data)
    return low, high


def not_finite(X: Matrix) -> IntArray:
    """Count the missing and infinite numbers of each column."""
    if isinstance(X, np.ndarray):
        return np.asarray((~np.isfinite(X)).sum(axis=0))
    return np.bincount(X.indices[~np.isfinite(X.data)], minlength=X.shape[1])


def rows_not_finite(X: Matrix) -> int:
    """Count the rows with a missing or infinite number."""
    if isinstance(X, np.ndarray):
        return int((~np.isfinite(X)).any(axis=1).sum())
    return len(np.unique(X.tocoo().row[~np.isfinite(X.data)]))


def spreads(X: Matrix) -> FloatArray:
    """Return the standard deviation of each column; 0 without rows."""
    n, d = X.shape
    if n == 0:
        return np.zeros(d)
    if isinstance(X, np.ndarray):
        return X.std(axis=0, dtype=np.float64)
    mean = powers(X, None)[0] / n
    return np.sqrt(powers(X, None, mean)[1] / n)


def contents(X: Matrix) -> tuple[str | NDArray[Any], ...]:
    """Return what a hash of the rows is taken of."""
    if isinstance(X, np.ndarray):
        return (X,)
    places = (X.indptr.astype("<i8"), X.indices.astype("<i8"))
    return ("sparse", *places, X.data)


def saved(X: Matrix) -> dict[str, NDArray[Any]]:
    """Return arrays for files: ``X``, or its compressed rows."""
    if isinstance(X, np.ndarray):
        return {"X": X}
    shape = np.array(X.shape, dtype=np.int64)
    return {
        "X_data": X.data,
        "X_indices": X.indices,
        "X_indptr": X.indptr,
        "X_shape": shape,
    }


def restored(arrays: Mapping[str, NDArray[Any]]) -> Matrix:
    """Return what `saved` gave; a `ValueError` of arrays that do not fit each other."""
    if "X" in arrays:
        return arrays["X"]
    from scipy.sparse import csr_array

    parts = tuple(arrays[f"X_{name}"] for name in ("data", "indices", "indptr"))
    rows = csr_array(parts, shape=tuple(arrays["X_shape"].tolist()))
    rows.check_format(full_check=True)  # a wrong index would be read out of bounds
    return rows


def powers(
    X: csr_array, weight: FloatArray | None, centre: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return Σs(x − centre) and Σs(x − centre)² of each column."""
    n, d = X.shape
    values = X.data if centre is None else X.data - centre[X.indices]
    each = np.ones(n) if weight is None else weight
    weights = np.repeat(each, np.diff(X.indptr))
    terms = values * weights
    sums, squares = (
        np.bincount(X.indices, each_term, minlength=d).astype(np.float64)
        for each_term in (terms, terms * values)
    )
    if centre is not None:
        # A column that is stored everywhere has no others, whatever rounding says.
        some = np.bincount(X.indices, minlength=d) < n
        rest = each.sum() - np.bincount(X.indices, weights, minlength=d)
        others = np.where(some, np.maximum(rest, 0.0), 0.0)
        sums -= others * centre
        squares += others * centre**2
    return sums, squares
