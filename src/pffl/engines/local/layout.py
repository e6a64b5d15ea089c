"""How the fast engine lays rows out: silos by size, rows by atom, cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pffl.data.federation import Federation
from pffl.data.sparse import Matrix, stacked, stored_width
from pffl.models.base import Inputs
from pffl.models.scaled import Design, ScaledRows
from pffl.questions.base import weighed
from pffl.typing import FloatArray, IntArray

PIECE_BYTES = 2**20  # of inputs: a piece stays in cache between its two products
GROUP_COST = 3000  # a group of silos costs as much as so many scores


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows, and the runs of equal (silo, atom) in them.

    `units` is silo position × atoms + atom for each run; `starts` where runs begin.
    """

    rows: slice
    units: IntArray
    starts: IntArray
    lengths: IntArray

    def runs(self) -> Iterator[tuple[int, slice]]:
        """Yield each run's unit and where it stands in the piece."""
        ends = (self.starts + self.lengths).tolist()
        for unit, start, end in zip(
            self.units.tolist(), self.starts.tolist(), ends, strict=True
        ):
            yield unit, slice(start, end)


@dataclass(frozen=True, eq=False)
class Layout:
    """All rows of one split, scaled, in one array: the engine's only copy.

    Silos stand in order of size, so silos of equal size form a block without padding;
    within a silo, rows stand in order of their atom, so sums per atom are sums over
    runs.

    Attributes
    ----------
    X, y
        Inputs (scaled, float64, or sparse) and labels, shape (N, d) and (N,).
    order
        Index in the federation of the silo at each position, shape (K,).
    starts
        First row of each position, and N at the end, shape (K + 1,).
    units
        Position × atoms + atom of each row.
    original_rows
        For each position, which of the silo's own rows stands where.
    weight
        How much each row counts, s_i > 0; None: all alike.
    """

    X: Design
    y: FloatArray
    units: IntArray
    order: IntArray
    starts: IntArray
    n_atoms: int
    original_rows: tuple[IntArray, ...]
    weight: FloatArray | None = None

    @classmethod
    def of(cls, federation: Federation, split: str, inputs: Inputs) -> Layout:
        """Lay out one split of a federation."""
        schema = federation.schema
        parts = [silo.rows(split).counting for silo in federation.silos]
        sizes = np.array([len(part) for part in parts])
        order = np.argsort(sizes, kind="stable")
        starts = np.concatenate([[0], np.cumsum(sizes[order])])
        y = np.empty(int(starts[-1]))
        units = np.empty(len(y), dtype=np.int64)
        weighed = any(part.weight is not None for part in parts)
        weight = np.empty(len(y)) if weighed else None
        original_rows = []
        for position, index in enumerate(order):
            rows = parts[index]
            here = slice(starts[position], starts[position + 1])
            atoms = schema.atoms(rows.group, rows.y)
            by_atom = np.argsort(atoms, kind="stable")
            y[here] = rows.y[by_atom]
            units[here] = position * schema.n_atoms + atoms[by_atom]
            if weight is not None:
                weight[here] = rows.weights[by_atom]
            original_rows.append(by_atom)
        X = _laid_out([parts[k].X for k in order], original_rows, inputs)
        shape = (order, starts, schema.n_atoms, tuple(original_rows))
        return cls(X, y, units, *shape, weight)

    @property
    def n_silos(self) -> int:
        """Number of silos K."""
        return len(self.order)

    @cached_property
    def sizes(self) -> IntArray:
        """Rows of each position."""
        return np.diff(self.starts)

    @cached_property
    def masses(self) -> FloatArray:
        """m_k: what the rows of each position weigh together."""
        if self.weight is None:
            return self.sizes.astype(np.float64)
        parts = np.split(self.weight, self.starts[1:-1])
        return np.array([part.sum() for part in parts])

    def weights(self, rows: slice) -> FloatArray | None:
        """Return s_i of some consecutive rows; None where all count alike."""
        return None if self.weight is None else self.weight[rows]

    def weigh(self, values: FloatArray, rows: slice) -> FloatArray:
        """Return values of some consecutive rows, shape (n, …), times s_i."""
        return weighed(values, self.weights(rows))

    @cached_property
    def _cut(self) -> dict[int, tuple[Piece, ...]]:
        return {}

    def pieces(self, columns: int = 1) -> tuple[Piece, ...]:
        """All rows, cut into pieces that fit in cache with so many score columns."""
        step = self._piece_rows(columns)
        if step not in self._cut:
            self._cut[step] = tuple(
                self.piece(slice(start, min(start + step, len(self.X))))
                for start in range(0, len(self.X), step)
            )
        return self._cut[step]

    def _piece_rows(self, columns: int) -> int:
        """Rows of a piece; of sparse ones, enough to pay for a gradient's length."""
        if not isinstance(self.X, ScaledRows):
            return piece_rows(self.X.shape[1], columns)
        width = max(1, stored_width(self.X.rows))
        return max(piece_rows(width, columns), 4 * self.X.shape[1] // width)

    def piece(self, rows: slice) -> Piece:
        """Find the runs in some consecutive rows."""
        units = self.units[rows]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(units)) + 1])
        lengths = np.diff(np.concatenate([starts, [len(units)]]))
        return Piece(rows, units[starts], starts, lengths)

    def groups(self, columns: int) -> tuple[range, ...]:
        """Positions that take local steps together, for so many columns of scores.

        Silos of one group are padded to the largest of them. A group is closed when
        padding would cost more than a group of its own does, or when it would not fit
        in cache; a large silo stands alone, and so does each of sparse rows.
        """
        if isinstance(self.X, ScaledRows):
            return tuple(range(k, k + 1) for k in range(self.n_silos))
        limit = piece_rows(self.X.shape[1], columns)
        groups, first, rows = [], 0, 0
        for position in range(self.n_silos):
            size = int(self.sizes[position])
            padded = size * (position + 1 - first)
            waste = padded - (rows + size)
            if position > first and (
                padded > limit or waste > max(0.2 * rows, GROUP_COST / columns)
            ):
                groups.append(range(first, position))
                first, rows = position, 0
            rows += size
        groups.append(range(first, self.n_silos))
        return tuple(groups)

    def places(self, position: int) -> IntArray:
        """Where each of a silo's own rows stands in `X`."""
        places = np.empty(int(self.sizes[position]), dtype=np.int64)
        places[self.original_rows[position]] = np.arange(len(places))
        return places + self.starts[position]

    def to_federation(self, by_position: FloatArray) -> FloatArray:
        """Reorder an array with one entry per position into the federation's order."""
        out = np.empty_like(by_position)
        out[self.order] = by_position
        return out


def piece_rows(n_features: int, columns: int = 1) -> int:
    """Rows that fit in a piece: their inputs, or their scores, slopes and weights."""
    return max(64, PIECE_BYTES // (8 * max(1, n_features, 3 * columns)))


def _laid_out(
    parts: Sequence[Matrix], orders: Sequence[IntArray], inputs: Inputs
) -> Design:
    """Return scaled rows of all parts, one after another, each in its order."""
    dense = [part for part in parts if isinstance(part, np.ndarray)]
    if len(dense) < len(parts):
        together = zip(parts, orders, strict=True)
        return inputs.apply(stacked([X[order] for X, order in together]))
    out, first = np.empty((sum(map(len, orders)), len(inputs.mean))), 0
    step = piece_rows(out.shape[1])
    for X, order in zip(dense, orders, strict=True):
        for start in range(0, len(order), step):  # a few at a time
            index = order[start : start + step]
            inputs.apply(X[index], out=out[first : first + len(index)])
            first += len(index)
    return out
