"""How the fast engine lays rows out: in one array, those of one unit together.

A unit is what sums are kept for. `BySilo` has one for each silo and atom, which local
steps and cells of one silo need; `ByAtom` one for each atom, whatever the number of
silos. Passes read either in pieces that fit in cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pffl.constraints.base import Cells
from pffl.data.sparse import stored_width
from pffl.models.scaled import Design, ScaledRows
from pffl.numerics import divisors
from pffl.queries import Evaluate
from pffl.queries.base import weighed
from pffl.typing import BoolArray, FloatArray, IntArray

PIECE_BYTES = 2**20  # of inputs: a piece stays in cache between its two products
SPARSE = 16  # times as many: what such products wait for is not the rows


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows, and the runs of equal units in them.

    `units` is that of each run; `starts` where runs begin.
    """

    rows: slice
    units: IntArray
    starts: IntArray
    lengths: IntArray

    @cached_property
    def runs(self) -> tuple[tuple[int, slice], ...]:
        """Each run's unit and where it stands in the piece."""
        ends = (self.starts + self.lengths).tolist()
        places = zip(self.units.tolist(), self.starts.tolist(), ends, strict=True)
        return tuple((unit, slice(start, end)) for unit, start, end in places)


@dataclass(frozen=True, eq=False)
class InRisk:
    """What rows count in F: p_k/m_k times their weight, by unit where it is one.

    Exactly one of the two is known: `by_unit`, p_k/m_k of each unit, or `by_row`, with
    the weight s_i in it.
    """

    by_unit: FloatArray | None = None
    by_row: FloatArray | None = None

    def rows(self, rows: slice) -> FloatArray | None:
        """Return `by_row` of some consecutive rows, if it is known."""
        return None if self.by_row is None else self.by_row[rows]


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout(ABC):
    """All rows of one split, scaled, in one array.

    Attributes
    ----------
    X, y
        Inputs (scaled, float64, or sparse) and labels, shape (N, d) and (N,).
    units
        Unit of each row, those of one together.
    n_atoms
        Number of atoms.
    masses
        m_k: what the rows of each silo weigh together, in the federation's order.
    weight
        How much each row counts, s_i > 0; None: all alike.
    times
        How many rows of the federation each row stands for; None: one.
    """

    X: Design
    y: FloatArray
    units: IntArray
    n_atoms: int
    masses: FloatArray
    weight: FloatArray | None = None
    times: FloatArray | None = None
    _cut: dict[int, tuple[Piece, ...]] = field(default_factory=dict, init=False)
    _risks: list[tuple[FloatArray, InRisk]] = field(default_factory=list, init=False)

    def __len__(self) -> int:
        return len(self.y)

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Number of units."""

    @abstractmethod
    def cell_sums(self, cells: Cells, sums: FloatArray) -> FloatArray:
        """Add sums per unit, shape (units, …), into sums per cell."""

    @abstractmethod
    def atom_sums(self, sums: FloatArray) -> FloatArray:
        """Add sums per unit, shape (units, …), into sums per atom."""

    @abstractmethod
    def unit_weights(self, cells: Cells, weights: FloatArray) -> FloatArray:
        """Turn weights per cell, shape (Z, c), into weights per unit, (units, c)."""

    @abstractmethod
    def units_of(self, silos: BoolArray) -> BoolArray:
        """Say which units are of these silos; all of them where silos are mixed."""

    @abstractmethod
    def member(self, cells: Cells) -> Callable[[int], BoolArray]:
        """Return what says which rows are in a cell."""

    @abstractmethod
    def row_sums(self, query: Evaluate, bounded: FloatArray) -> tuple[FloatArray, ...]:
        """Return what `Evaluate.row_sums` does, from each row's bounded loss."""

    @abstractmethod
    def _in_risk(self, per_mass: FloatArray) -> InRisk:
        """Return what rows count in F, given p_k/m_k of each silo."""

    def in_risk(self, shares: FloatArray) -> InRisk:
        """Return what rows count in F, with these p_k of the silos."""
        for known, found in self._risks:
            if known is shares or np.array_equal(known, shares):
                return found
        per_mass = np.where(self.masses > 0, shares / divisors(self.masses), 0.0)
        found = self._in_risk(per_mass)
        self._risks[:] = [(shares, found), *self._risks[:1]]
        return found

    def weights(self, rows: slice) -> FloatArray | None:
        """Return s_i of some consecutive rows; None where all count alike."""
        return None if self.weight is None else self.weight[rows]

    def weigh(self, values: FloatArray, rows: slice) -> FloatArray:
        """Return values of some consecutive rows, shape (n, …), times s_i."""
        return weighed(values, self.weights(rows))

    def pieces(self, columns: int = 1, *, least: int = 1) -> tuple[Piece, ...]:
        """All rows, cut into pieces that fit in cache with so many score columns.

        A piece has at least so many rows, if there are as many.
        """
        step = max(least, self._piece_rows(columns))
        if step not in self._cut:
            self._cut[step] = tuple(
                self.piece(slice(start, min(start + step, len(self))))
                for start in range(0, len(self), step)
            )
        return self._cut[step]

    def _piece_rows(self, columns: int) -> int:
        """Rows of a piece; of sparse ones, enough to pay for a gradient's length."""
        if not isinstance(self.X, ScaledRows):
            return piece_rows(self.X.shape[1], columns)
        width = max(1, stored_width(self.X.rows))
        return max(SPARSE * piece_rows(width, columns), 4 * self.X.shape[1] // width)

    def piece(self, rows: slice) -> Piece:
        """Find the runs in some consecutive rows."""
        units = self.units[rows]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(units)) + 1])
        lengths = np.diff(np.concatenate([starts, [len(units)]]))
        return Piece(rows, units[starts], starts, lengths)


def piece_rows(n_features: int, columns: int = 1) -> int:
    """Rows that fit in a piece: their inputs, or their scores, slopes and weights."""
    return max(64, PIECE_BYTES // (8 * max(1, n_features, 3 * columns)))


def in_pieces(rows: int, step: int) -> Iterator[slice]:
    """Yield slices of at most `step` rows."""
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
