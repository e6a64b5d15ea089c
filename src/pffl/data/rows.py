"""Rows that stay where they are: inputs, labels and groups of a silo, by split.

Inputs that are mostly zeros are SciPy's compressed rows, in one canonical form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from pffl.errors import DataError, UsageError
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Inputs of rows as they are given: dense, or compressed.
Matrix: TypeAlias = "FloatArray | csr_array"
INPUT_TYPES = (np.float64, np.float32, np.uint8)


def is_sparse(X: object) -> TypeGuard[csr_array]:
    """Whether something is a sparse matrix or array of SciPy's, in any format."""
    return not isinstance(X, np.ndarray) and hasattr(X, "tocsr")


def as_csr(X: Any) -> csr_array:
    """Return rows in float64, sorted, each entry once, and none stored that is zero.

    Indices are as short as can be. What is so already is kept, without a copy.
    """
    from scipy.sparse import csr_array

    if X.dtype.kind not in "biuf":
        raise DataError("not-numbers:as-csr", dtype=X.dtype)
    rows = csr_array(X, dtype=np.float64)
    if not (rows.has_canonical_format and rows.data.all()):
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    if rows.indices.dtype != np.int32 and max(rows.nnz, *rows.shape) < 2**31:
        places = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
        rows = csr_array((rows.data, *places), shape=rows.shape)
    return rows


def as_inputs(X: object) -> Matrix:
    """Return inputs in a type of `INPUT_TYPES`, without a copy where they have one.

    Sparse ones stay sparse, in float64.
    """
    if is_sparse(X):
        return as_csr(X)
    inputs = np.asarray(X)
    return inputs if inputs.dtype in INPUT_TYPES else inputs.astype(np.float64)


def stacked(parts: Sequence[Matrix]) -> Matrix:
    """Return all rows of the parts, one after another, as a copy."""
    dense = [part for part in parts if isinstance(part, np.ndarray)]
    if len(dense) == len(parts):
        return np.concatenate(dense)
    from scipy.sparse import vstack

    return as_csr(vstack([as_csr(part) for part in parts], format="csr"))


def stored_width(X: Matrix) -> int:
    """Return how many numbers a row stores, on average."""
    return X.shape[1] if isinstance(X, np.ndarray) else -(-X.nnz // max(1, X.shape[0]))


def rows_not_finite(X: Matrix) -> int:
    """Count the rows with a missing or infinite number."""
    if isinstance(X, np.ndarray):
        return int((~np.isfinite(X)).any(axis=1).sum())
    return len(np.unique(X.tocoo().row[~np.isfinite(X.data)]))


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
    parts = {"X_data": X.data, "X_indices": X.indices, "X_indptr": X.indptr}
    return {**parts, "X_shape": np.array(X.shape, dtype=np.int64)}


def restored(arrays: Mapping[str, NDArray[Any]]) -> Matrix:
    """Return what `saved` gave; a `ValueError` of arrays that do not fit each other."""
    if "X" in arrays:
        return arrays["X"]
    from scipy.sparse import csr_array

    parts = tuple(arrays[f"X_{name}"] for name in ("data", "indices", "indptr"))
    rows = csr_array(parts, shape=tuple(arrays["X_shape"].tolist()))
    rows.check_format(full_check=True)  # a wrong index would be read out of bounds
    return rows


def row_contents(rows: Rows) -> Iterator[bytes]:
    """Yield inputs, label and group of each row, for hashes."""
    X = rows.X
    y = (rows.y + 0.0).tolist()
    for i, about in enumerate(zip(y, rows.group.tolist(), strict=True)):
        if isinstance(X, np.ndarray):
            values = (X[i].astype(np.float64) + 0.0).tobytes()  # −0 is 0
        else:
            own = slice(X.indptr[i], X.indptr[i + 1])
            data = X.data[own].astype(np.float64) + 0.0
            values = X.indices[own].astype("<i8").tobytes() + data.tobytes()
        yield values + repr(about).encode()


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


@dataclass(frozen=True, eq=False)
class Rows:
    """Examples of one silo and one split.

    Attributes
    ----------
    X
        Inputs as given (unscaled), shape (n, features); float32, float64, or uint8
        (pictures); or SciPy's compressed rows, float64, as `as_csr` makes them.
    y
        Label codes (classification) or numbers (regression), float64.
    group
        Group codes of the schema.
    person
        Code of the person of each row, with ids; equal in all silos and splits
        of a federation.
    weight
        How much each row counts in every mean, s_i ≥ 0; None: as much as any other.
    """

    X: Matrix
    y: FloatArray
    group: IntArray
    person: IntArray | None = None
    weight: FloatArray | None = None

    @classmethod
    def of(cls, X: object, y: object, group: object) -> Rows:
        """Build from array-likes; an `X` of `INPUT_TYPES` is kept, without a copy."""
        labels = np.asarray(y, dtype=np.float64)
        return cls(as_inputs(X), labels, np.asarray(group, dtype=np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """All rows of the parts, one after another, as a copy."""
        known = [part.person for part in parts if part.person is not None]
        weighed = any(part.weight is not None for part in parts)
        return cls(
            stacked([part.X for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.group for part in parts]),
            np.concatenate(known) if known and len(known) == len(parts) else None,
            np.concatenate([part.weights for part in parts]) if weighed else None,
        )

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: IntArray | slice) -> Rows:
        """Return the rows at `index`; of a slice, without a copy."""
        who = None if self.person is None else self.person[index]
        weight = None if self.weight is None else self.weight[index]
        return Rows(self.X[index], self.y[index], self.group[index], who, weight)

    @property
    def weights(self) -> FloatArray:
        """Return s_i of every row: 1 where none is given."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @cached_property
    def mean(self) -> FloatArray:
        """Mean of each input; 0 without rows."""
        sums = self.X.sum(axis=0, dtype=np.float64)
        return np.asarray(sums, np.float64).reshape(-1) / max(1, len(self))

    @cached_property
    def spread(self) -> FloatArray:
        """Standard deviation of each input; 0 without rows."""
        if not isinstance(self.X, np.ndarray):
            return np.sqrt(powers(self.X, None, self.mean)[1] / max(1, len(self)))
        if not len(self):
            return np.zeros(self.X.shape[1])
        return self.X.std(axis=0, dtype=np.float64)

    @property
    def counting(self) -> Rows:
        """Return the rows that count: those that weigh nothing are as if not there."""
        if self.weight is None or self.weight.all():
            return self
        return self.take(np.flatnonzero(self.weight))


@dataclass(frozen=True, eq=False)
class Silo:
    """One site: its name, its place in the federation, and its rows per split."""

    name: str
    index: int
    splits: Mapping[str, Rows]

    def rows(self, split: str = "train") -> Rows:
        """Rows of one split."""
        if split not in self.splits:
            name, known = self.name, sorted(self.splits)
            raise UsageError("unknown-split:rows", name=name, split=split, known=known)
        return self.splits[split]

    def __len__(self) -> int:
        return len(self.rows("train"))
