"""Inputs of a table's columns, side by side: dense, or sparse rows without the zeros.

One-hot inputs stay codes until then: a column of thousands of values costs a number a
row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class Numbers:
    """One input."""

    values: FloatArray

    width = 1

    def write(self, out: FloatArray) -> None:
        """Write all rows into `out`, shape (rows, width)."""
        out[:, 0] = self.values

    def entries(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return how many inputs of each row are not 0, their places and values."""
        there = self.values != 0.0
        values = self.values[there]
        return there.astype(np.int64), np.zeros(len(values), np.int64), values


@dataclass(frozen=True, eq=False)
class OneHot:
    """Inputs of which a row has at most one, and it is 1; code −1: none."""

    codes: IntArray
    width: int

    def write(self, out: FloatArray) -> None:
        """Write all rows into `out`, shape (rows, width)."""
        out[:] = 0.0
        known = np.flatnonzero(self.codes >= 0)
        out[known, self.codes[known]] = 1.0

    def entries(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return how many inputs of each row are not 0, their places and values."""
        there = self.codes >= 0
        places = self.codes[there]
        return there.astype(np.int64), places, np.ones(len(places))


@dataclass(frozen=True, eq=False)
class Counts:
    """Inputs most of which are 0 in every row."""

    rows: csr_array

    @property
    def width(self) -> int:
        """Number of inputs."""
        return int(self.rows.shape[1])

    def write(self, out: FloatArray) -> None:
        """Write all rows into `out`, shape (rows, width)."""
        out[:] = self.rows.toarray()

    def entries(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return how many inputs of each row are not 0, their places and values."""
        rows = self.rows
        return np.diff(rows.indptr), rows.indices.astype(np.int64), rows.data


Block: TypeAlias = Numbers | OneHot | Counts


def dense(blocks: Sequence[Block], rows: int) -> FloatArray:
    """Return all inputs, shape (rows, inputs)."""
    out = np.empty((rows, sum(block.width for block in blocks)))
    start = 0
    for block in blocks:
        block.write(out[:, start : start + block.width])
        start += block.width
    return out


def sparse(blocks: Sequence[Block], rows: int) -> csr_array:
    """Return the same without the zeros; the inputs of a row are in order."""
    from scipy.sparse import csr_array

    sizes = np.zeros(rows, dtype=np.int64)
    for block in blocks:
        sizes += block.entries()[0]
    ends = np.cumsum(sizes)
    total, width = int(sizes.sum()), sum(block.width for block in blocks)
    kind = np.int32 if max(total, width) < 2**31 else np.int64
    indices, data = np.empty(total, dtype=kind), np.empty(total)
    place, start = ends - sizes, 0  # where the next entry of each row goes
    for block in blocks:
        counts, columns, values = block.entries()
        first = np.cumsum(counts) - counts
        goes = np.repeat(place - first, counts) + np.arange(len(values))
        indices[goes] = start + columns
        data[goes] = values
        place += counts
        start += block.width
    indptr = np.concatenate([[0], ends]).astype(kind)
    return csr_array((data, indices, indptr), shape=(rows, width))
