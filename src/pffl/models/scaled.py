"""Rows that are mostly zeros, centred and scaled without becoming dense.

An input x_ij stands for (x_ij − mean_j)/scale_j, and a zero that is not stored for
−mean_j/scale_j: what is stored is divided, and the rest is one vector, taken off each
row inside products. Where |mean| ≥ scale that would cancel; such a column is stored in
more than half of the rows (scale² ≥ mean²(1/density − 1)), so there every entry is
stored, centred as that of a dense column is. Of all others √Σ(|x| + |mean|)² is at most
1 + √2 times √Σ(x − mean)²: little is lost to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from pffl.data.rows import Matrix
from pffl.errors import DataError
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """A matrix ``rows − 1 shiftᵀ`` whose products cost as much as those of `rows`.

    Attributes
    ----------
    rows
        What is stored, shape (n, features).
    shift
        What is taken off every entry of a column, stored or not.
    """

    rows: csr_array
    shift: FloatArray

    __array_ufunc__: ClassVar[None] = None  # NumPy leaves `array @ rows` to us

    @classmethod
    def of(cls, X: csr_array, mean: FloatArray, scale: FloatArray) -> ScaledRows:
        """Return ``(X − mean) / scale``."""
        n, d = X.shape
        stored = np.bincount(X.indices, minlength=d)
        centred = (mean != 0) & ((np.abs(mean) >= scale) | (stored == n))
        data = X.data / scale[X.indices]
        if centred.any():
            here = centred[X.indices]
            columns = X.indices[here]
            data[here] = (X.data[here] - mean[columns]) / scale[columns]
        rows = _csr(data, X.indices, X.indptr, X.shape)
        short = np.flatnonzero(centred & (stored < n))
        if len(short):
            rows = rows + _absent(X, short, -mean / scale)
        return cls(rows, np.where(centred, 0.0, mean / scale))

    @cached_property
    def _columns(self) -> csc_array:
        """The transpose of `rows`, which shares its arrays."""
        from scipy.sparse import csc_array

        columns = csc_array(self.shape[::-1])
        columns.data, columns.indices = self.rows.data, self.rows.indices
        columns.indptr = self.rows.indptr
        return columns

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        n, d = self.rows.shape
        return n, d

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | IntArray) -> ScaledRows:
        if isinstance(index, slice) and index.step in (None, 1):
            start, stop, _ = index.indices(len(self))
            return ScaledRows(_consecutive(self.rows, start, stop), self.shift)
        return ScaledRows(self.rows[index], self.shift)

    def __matmul__(self, other: FloatArray) -> FloatArray:
        product: FloatArray = self.rows @ other
        # In pairs, so that rounding does not grow with the number of columns.
        product -= np.ascontiguousarray(other.T * self.shift).sum(axis=-1)
        return product

    def __rmatmul__(self, other: FloatArray) -> FloatArray:
        return self._less_shift(other, (self._columns @ other.T).T)

    def toarray(self) -> FloatArray:
        """Return the matrix itself, dense."""
        dense: FloatArray = self.rows.toarray()
        dense -= self.shift
        return dense

    def gram(self, weights: FloatArray) -> FloatArray:
        """Return ``Σ_i weights_i x_i x_iᵀ``, dense: of few features only."""
        rows, shift = self.rows, self.shift
        data = rows.data * np.repeat(weights, np.diff(rows.indptr))
        weighted = _csr(data, rows.indices, rows.indptr, rows.shape)
        gram: FloatArray = (weighted.T @ rows).toarray()
        cross = np.outer(shift, self._columns @ weights)
        gram -= cross
        gram -= cross.T
        gram += float(weights.sum()) * np.outer(shift, shift)
        return gram

    def square_sums(self, weights: FloatArray) -> FloatArray:
        """Return ``Σ_i weights_i x_ij²`` of each column, for each row of weights."""
        rows, shift = self.rows, self.shift
        terms = rows.data * (rows.data - 2.0 * shift[rows.indices])
        own = _csr(terms, rows.indices, rows.indptr, rows.shape)
        found = (own.T @ weights.T).T
        found += np.multiply.outer(weights.sum(axis=1), np.square(shift))
        return np.maximum(found, 0.0)

    def lengths(self) -> FloatArray:
        """Return a bound of ``‖ |rows| + |shift| ‖`` of each row: what sums add up."""
        own = np.sqrt(_row_sums(np.square(self.rows.data), self.rows.indptr))
        return own + float(np.linalg.norm(self.shift))

    def pairwise(self, other: FloatArray) -> FloatArray:
        """Return ``other @ self``, each column's terms added up in pairs.

        So rounding stays that of a few dozen additions, however many rows there are.
        """
        rows = self.rows.tocsc()
        found = np.zeros((len(other), self.shape[1]))
        for own, into in zip(other, found, strict=True):
            into[:] = _row_sums(rows.data * own[rows.indices], rows.indptr)
        return self._less_shift(other, found)

    def _less_shift(self, other: FloatArray, product: FloatArray) -> FloatArray:
        product -= np.multiply.outer(other.sum(axis=-1), self.shift)
        return product


#: Inputs as a model sees them: dense, or sparse and scaled implicitly.
Design: TypeAlias = FloatArray | ScaledRows


def dense(X: Design | csr_array) -> FloatArray:
    """Return inputs of a model that needs them dense; refuse sparse ones."""
    if isinstance(X, np.ndarray):
        return X
    raise DataError("needs-dense:dense")


def filled(X: Matrix, gaps: IntArray, values: FloatArray) -> Matrix:
    """Return rows with a value for each missing input, 0 so far; see `Schema.gaps`."""
    if not len(values):
        return X
    inputs, marks = gaps
    if isinstance(X, np.ndarray):
        X = X.copy()
        X[:, inputs] += X[:, marks] * values
        return X
    from scipy.sparse import csr_array

    there = csr_array((values, (marks, inputs)), shape=(X.shape[1], X.shape[1]))
    return X + X @ there


def _csr(data: FloatArray, indices: Any, indptr: Any, shape: Any) -> csr_array:
    """Return a matrix that shares these arrays: SciPy's own way copies short views."""
    from scipy.sparse import csr_array

    rows = csr_array(shape)
    rows.data, rows.indices, rows.indptr = data, indices, indptr
    return rows


def _consecutive(rows: csr_array, start: int, stop: int) -> csr_array:
    """Return rows `start` to `stop` without the copy that SciPy's slices make."""
    if start == 0 and stop == rows.shape[0]:
        return rows
    indptr = rows.indptr[start : max(start, stop) + 1]
    part = slice(int(indptr[0]), int(indptr[-1]))
    shape = (len(indptr) - 1, rows.shape[1])
    return _csr(rows.data[part], rows.indices[part], indptr - indptr[0], shape)


def _absent(X: csr_array, columns: IntArray, values: FloatArray) -> csr_array:
    """Return `values` of the columns in the rows that do not store them."""
    from scipy.sparse import coo_array

    few = X[:, columns].tocsc()
    rows, places = [], []
    for place, column in enumerate(columns.tolist()):
        there = np.zeros(X.shape[0], dtype=bool)
        there[few.indices[few.indptr[place] : few.indptr[place + 1]]] = True
        rows.append(np.flatnonzero(~there))
        places.append(np.full(len(rows[-1]), column))
    i, j = np.concatenate(rows), np.concatenate(places)
    return coo_array((values[j], (i, j)), shape=X.shape).tocsr()


def _row_sums(terms: FloatArray, indptr: Any) -> FloatArray:
    """Sum what is stored of each row of a compressed matrix, in pairs."""
    found = np.zeros(len(indptr) - 1)
    filled = np.flatnonzero(np.diff(indptr))
    if len(filled):
        found[filled] = np.add.reduceat(terms, indptr[filled])
    return found
