"""Which rows are equal: tables with few distinct values repeat most of theirs.

A row's print is one random combination of its inputs and label. Rows of one stratum
with equal prints are candidates; each is compared with the first of its kind, number by
number, and stands alone if it differs. So a print decides only what is not found, never
what is merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pffl.data.rows import Matrix
from pffl.typing import BoolArray, FloatArray, IntArray

STEP = 2048  # rows compared at once
FEW = 1 << 15  # rows: so few are not worth looking at
WORTH = 0.5  # of the rows: more distinct ones are not merged
MIX, SHARE = np.uint64(0x9E3779B97F4A7C15), 32  # one of so many prints is counted


def in_pieces(rows: int, step: int) -> Iterator[slice]:
    """Yield slices of at most `step` rows."""
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


@dataclass(frozen=True, eq=False)
class Raw:
    """Inputs of all silos as they were given, one silo after the other."""

    inputs: Sequence[FloatArray]

    @classmethod
    def of(cls, inputs: Sequence[Matrix]) -> Raw | None:
        """Return those of dense rows; None of sparse ones."""
        dense = [X for X in inputs if isinstance(X, np.ndarray)]
        return cls(dense) if len(dense) == len(inputs) else None

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return sum(map(len, self.inputs)), self.inputs[0].shape[1]

    def pieces(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield all rows, at most `STEP` at a time, with where they stand."""
        first = 0
        for X in self._joined():
            for piece in in_pieces(len(X), STEP):
                yield slice(first + piece.start, first + piece.stop), X[piece]
            first += len(X)

    def _joined(self) -> Iterator[FloatArray]:
        """Yield the inputs of each silo, those of small ones together."""
        small: list[FloatArray] = []
        waiting = 0
        for X in self.inputs:
            if small and waiting + len(X) > STEP:
                yield small[0] if len(small) == 1 else np.concatenate(small)
                small, waiting = [], 0
            small.append(X)
            waiting += len(X)
        if small:
            yield np.concatenate(small)

    def prints(self, y: FloatArray, scale: FloatArray) -> FloatArray:
        """Return one number for each row; equal rows have equal ones."""
        directions = np.random.default_rng(0).normal(size=len(scale) + 1)
        found, along = np.empty(self.shape[0]), directions[:-1] / scale
        # Of one shape always: a product sums the last rows in an order of its own.
        block = np.zeros((STEP, len(scale)))
        for rows, X in self.pieces():
            if len(X) < STEP or X.dtype != np.float64:
                block[: len(X)] = X
                X = block
            found[rows] = (X @ along)[: rows.stop - rows.start]
        return found + directions[-1] * y

    def take(self, index: IntArray) -> FloatArray:
        """Return the rows at `index`, in double precision."""
        place = np.full(self.shape[0], -1)
        place[index] = np.arange(len(index))
        out = np.empty((len(index), self.shape[1]))
        for rows, X in self.pieces():
            here = place[rows]
            wanted = here >= 0
            out[here[wanted]] = X[wanted]
        return out

    def differ(self, distinct: FloatArray, place: IntArray) -> BoolArray:
        """Say which rows differ from that of `distinct` which stands for them."""
        found = np.zeros(self.shape[0], dtype=bool)
        block = np.empty((STEP, distinct.shape[1]))
        for rows, X in self.pieces():
            own = block[: len(X)]
            np.take(distinct, place[rows], axis=0, out=own, mode="clip")
            if (other := own != X).any():
                found[rows] = other.any(axis=1)
        return found


@dataclass(frozen=True, eq=False)
class Merged:
    """Rows in order of their stratum, equal ones together.

    Attributes
    ----------
    order
        Which row stands where.
    starts
        Where each distinct row begins, of which `X` has the inputs.
    """

    order: IntArray
    starts: IntArray
    X: FloatArray


def merge(
    raw: Raw, y: FloatArray, strata: IntArray, scale: FloatArray
) -> Merged | None:
    """Find equal rows; None if there are too few of them to be worth it."""
    if len(y) < FEW:
        return None
    prints = raw.prints(y, scale)
    if not _worth(prints):
        return None
    order = _by_stratum(strata, prints)
    first = _first(prints[order]) | _first(strata[order])
    X = raw.take(order[first])
    kind = np.empty(len(y), dtype=np.int64)
    kind[order] = np.cumsum(first) - 1
    alone = raw.differ(X, kind) | (y != y[order[first]][kind])
    if alone.any():
        apart = alone[order]
        first |= apart
        first[1:] |= apart[:-1]
        X = raw.take(order[first])
    return Merged(order, np.flatnonzero(first), X)


def _worth(prints: FloatArray) -> bool:
    """Whether rows with one print of so many are few enough distinct ones."""
    some = prints[prints.view(np.uint64) * MIX < np.uint64(2**64 // SHARE)]
    distinct = _first(np.sort(some)).sum()
    return bool(distinct <= WORTH * max(len(some), 1))


def _by_stratum(strata: IntArray, prints: FloatArray) -> IntArray:
    """Return the order by stratum, then by print."""
    order = np.argsort(strata, kind="stable")
    ends = np.cumsum(np.bincount(strata)).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        part = order[start:end]
        order[start:end] = part[np.argsort(prints[part])]
    return order


def _first(values: FloatArray | IntArray) -> BoolArray:
    """Say which values differ from the one before."""
    found = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=found[1:])
    return found
