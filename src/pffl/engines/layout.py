"""How the fast engine lays rows out: in one array, those of one unit together.

A unit is what sums are kept for: a stratum, whatever the number of silos; or, where
silos have to be told apart (local steps, cells of one silo), a stratum of one silo.
Passes read either in pieces that fit in cache. By stratum, equal rows are merged where
that pays: a row then weighs as much as there are of it, in its cells and in F.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pffl.constraints import Cells
from pffl.data.federation import Federation
from pffl.data.rows import Matrix, Rows, stored_width
from pffl.models.base import Inputs
from pffl.models.scaled import Design, ScaledRows
from pffl.numerics import divisors
from pffl.queries import Evaluate, View
from pffl.queries.base import weighed
from pffl.queries.census import run_sums
from pffl.typing import BoolArray, FloatArray, IntArray

PIECE_BYTES = 2**20  # of inputs: a piece stays in cache between its two products
SPARSE = 16  # times as many: what such products wait for is not the rows
LONG = 128  # rows of a silo's stratum: a run of more costs less than a further weight
ALIKE = 4 * np.finfo(np.float64).eps  # relative: p_k/m_k that differ by rounding only
FEW = 1 << 15  # rows: so few are not worth merging
WORTH = 0.5  # of the rows: more distinct ones are not merged
PRINTED = 2048  # rows whose prints are one product
MIX, SHARE = np.uint64(0x9E3779B97F4A7C15), 32  # one of n prints is counted


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows, and the runs of equal units in them.

    `units` is that of each run; `starts` where runs begin.
    """

    rows: slice
    units: IntArray
    starts: IntArray

    @property
    def lengths(self) -> IntArray:
        """How many rows each run has."""
        return np.diff(self.starts, append=self.rows.stop - self.rows.start)

    @property
    def runs(self) -> Iterator[tuple[int, slice]]:
        """Each run's unit and where it stands in the piece."""
        ends = [*self.starts[1:].tolist(), self.rows.stop - self.rows.start]
        for unit, start, end in zip(
            self.units.tolist(), self.starts.tolist(), ends, strict=True
        ):
            yield unit, slice(start, end)

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum rows, shape (n, c), over each run."""
        if values.shape[1] == 1:
            return np.add.reduceat(values[:, 0], self.starts)[:, None]
        return np.add.reduceat(values, self.starts, axis=0)


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
class Layout:
    """All rows of one split, scaled, in one array.

    Silos that are kept apart stand in order of size, so that those of equal size form a
    block without padding; a unit is then a silo's position × strata + stratum.

    Attributes
    ----------
    X, y
        Inputs (scaled, float64, or sparse) and labels, shape (N, d) and (N,).
    units
        Unit of each row, those of one together.
    n_strata
        Number of strata.
    masses
        m_k: what the rows of each silo weigh together, in the federation's order.
    weight
        How much each row counts, s_i > 0; None: equally.
    apart
        Whether silos are kept apart.
    order, first
        Which silo stands at each position, and its first row, with N at the end; of
        silos that are mixed, 0 and all rows.
    silo, place
        Of each row of the federation, in the order of `X`: its silo, and which of the
        silo's own rows it is.
    merged
        Where the rows of the federation begin that each row of `X` stands for, if
        equal ones are merged; `weight` is then how many those are.
    """

    X: Design
    y: FloatArray
    units: IntArray
    n_strata: int
    masses: FloatArray
    weight: FloatArray | None
    apart: bool
    order: IntArray
    first: IntArray
    silo: NDArray[np.int32]
    place: IntArray
    merged: IntArray | None

    @classmethod
    def of(
        cls, federation: Federation, split: str, inputs: Inputs, *, apart: bool
    ) -> Layout:
        """Lay out one split; where it does not pay to mix silos they are kept apart."""
        parts = [silo.rows(split).counting for silo in federation.silos]
        rows, sizes = Rows.joined(parts), np.array([len(part) for part in parts])
        strata, n_strata = (
            federation.schema.strata(rows.group, rows.y),
            federation.schema.n_strata,
        )
        silo = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        units, merged = strata, None
        by_size, first = np.zeros(1, np.int64), np.array([0, len(rows)])
        if not apart:
            if rows.weight is None and isinstance(rows.X, np.ndarray):
                merged = equal_rows(rows.X, rows.y, strata, inputs.scale)
            # A run of sparse rows costs as much as a gradient is long.
            width = max(1, stored_width(rows.X))
            long = max(LONG, 4 * rows.X.shape[1] // width)
            apart = merged is None and len(rows) > long * len(sizes) * n_strata
        if apart:
            by_size = np.argsort(sizes, kind="stable")
            units = np.argsort(by_size, kind="stable")[silo] * n_strata + strata
            first = np.concatenate([[0], np.cumsum(sizes[by_size])])
        if merged is None:
            order = firsts = np.argsort(units, kind="stable")
            weight = None if rows.weight is None else rows.weight[order]
        else:
            order, firsts = merged[0], merged[0][merged[1]]
            weight = np.diff(merged[1], append=len(rows)).astype(np.float64)
        masses = sizes.astype(np.float64)
        if rows.weight is not None:
            masses = run_sums(rows.weight, sizes)
        return cls(
            X=scaled_rows(rows.X, firsts, inputs),
            y=rows.y[firsts],
            units=units[firsts],
            n_strata=n_strata,
            masses=masses,
            weight=weight,
            apart=apart,
            order=by_size,
            first=first,
            silo=silo[order],
            place=order - (np.cumsum(sizes) - sizes)[silo[order]],
            merged=None if merged is None else merged[1],
        )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_silos(self) -> int:
        """Number of silos that are kept apart."""
        return len(self.order)

    @property
    def n_units(self) -> int:
        """Number of units."""
        return self.n_silos * self.n_strata

    @cached_property
    def sizes(self) -> IntArray:
        """Rows of each position."""
        return np.diff(self.first)

    # Sums per unit

    def by_silo(self, sums: FloatArray) -> FloatArray:
        """Reshape sums per unit to (silos, strata, …), in the federation's order."""
        out = np.empty((self.n_silos, self.n_strata, *sums.shape[1:]))
        out[self.order] = sums.reshape(out.shape)
        return out

    def cell_sums(self, cells: Cells, sums: FloatArray) -> FloatArray:
        """Add sums per unit, shape (units, …), into sums per cell."""
        if self.apart:
            return cells.totals(self.by_silo(sums))
        return np.tensordot(cells.membership.astype(np.float64), sums, axes=1)

    def stratum_sums(self, sums: FloatArray) -> FloatArray:
        """Add sums per unit, shape (units, …), into sums per stratum."""
        shape = (self.n_silos, self.n_strata, *sums.shape[1:])
        return np.asarray(sums.reshape(shape).sum(axis=0))

    def unit_weights(self, cells: Cells, weights: FloatArray) -> FloatArray:
        """Turn weights per cell, shape (Z, c), into weights per unit, (units, c)."""
        if cells.everywhere.all():
            per_stratum = cells.membership.T.astype(np.float64) @ weights
            return np.tile(per_stratum, (self.n_silos, 1))
        spread = [cells.spread(each, self.n_silos)[self.order] for each in weights.T]
        return np.stack(spread, axis=2).reshape(self.n_units, -1)

    def cells_of(self, cells: Cells, unit: int) -> IntArray:
        """Return the cells that the rows of a unit are in."""
        position, stratum = divmod(unit, self.n_strata)
        inside = cells.membership[:, stratum]
        if self.apart:
            inside = inside & (cells.everywhere | (cells.silo == self.order[position]))
        return np.flatnonzero(inside)

    def units_of(self, silos: BoolArray) -> BoolArray:
        """Say which units are of these silos; all of them where silos are mixed."""
        if not self.apart:
            return np.ones(self.n_units, dtype=bool)
        return np.repeat(silos[self.order], self.n_strata)

    def row_sums(self, query: Evaluate, bounded: FloatArray) -> dict[str, FloatArray]:
        """Return what `Evaluate.row_sums` does, from each row's bounded loss."""
        cells, strata = query.task.cells, self.units % self.n_strata
        weight, times = self.weight, None
        if self.merged is not None:
            weight, times = None, self.weight

        def member(cell: int) -> BoolArray:
            inside: BoolArray = cells.membership[cell][strata]
            own = cells.everywhere[cell]
            return inside if own else inside & (self.silo == cells.silo[cell])

        return query.row_sums(bounded, member, weight=weight, times=times)

    # Weights of rows

    def in_risk(self, shares: FloatArray) -> InRisk:
        """Return what rows count in F, with these p_k of the silos."""
        per_mass = np.where(self.masses > 0, shares / divisors(self.masses), 0.0)
        if self.apart:
            return InRisk(by_unit=np.repeat(per_mass[self.order], self.n_strata))
        there = per_mass[self.masses > 0]
        most = there.max(initial=0.0)
        if most - there.min(initial=most) <= ALIKE * most:
            return InRisk(by_unit=np.full(self.n_strata, most))
        rows = per_mass[self.silo]
        if self.merged is not None:
            return InRisk(by_row=np.add.reduceat(rows, self.merged))
        return InRisk(by_row=weighed(rows, self.weight))

    def weights(self, rows: slice) -> FloatArray | None:
        """Return s_i of some consecutive rows; None without weights."""
        return None if self.weight is None else self.weight[rows]

    def times(self, rows: slice) -> FloatArray | float:
        """Return how many rows of the federation each of some rows stands for."""
        if self.merged is None or self.weight is None:
            return 1.0
        return self.weight[rows]

    def weigh(self, values: FloatArray, rows: slice) -> FloatArray:
        """Return values of some consecutive rows, shape (n, …), times s_i."""
        return weighed(values, self.weights(rows))

    # Which rows are read together

    def pieces(self, columns: int = 1, *, least: int = 1) -> list[Piece]:
        """All rows, cut into pieces that fit in cache with n score columns.

        A piece has at least n rows, if there are as many.
        """
        width, d = self.X.shape[1], self.X.shape[1]
        rows = piece_rows(width, columns)
        if isinstance(self.X, ScaledRows):  # enough to pay for a gradient's length
            width = max(1, stored_width(self.X.rows))
            rows = max(SPARSE * piece_rows(width, columns), 4 * d // width)
        return list(map(self.piece, in_pieces(len(self), max(least, rows))))

    def piece(self, rows: slice) -> Piece:
        """Find the runs in some consecutive rows."""
        first, last = np.searchsorted(self._changes, (rows.start + 1, rows.stop))
        starts = np.append(0, self._changes[first:last] - rows.start)
        return Piece(rows, self.units[rows.start + starts], starts)

    @cached_property
    def _changes(self) -> IntArray:
        """Where another unit begins."""
        return np.flatnonzero(np.diff(self.units)) + 1

    # One silo's rows, where silos are kept apart

    def places(self, position: int) -> IntArray:
        """Where each of a silo's own rows stands in `X`."""
        start, end = self.first[position : position + 2].tolist()
        places = np.empty(end - start, dtype=np.int64)
        places[self.place[start:end]] = np.arange(start, end)
        return places

    def view(self, position: int) -> View:
        """Return a silo's rows, in their own order."""
        rows = self.places(position)
        return View(
            int(self.order[position]),
            self.X[rows],
            self.y[rows],
            self.units[rows] % self.n_strata,
            weight=None if self.weight is None else self.weight[rows],
        )


def piece_rows(n_features: int, columns: int = 1) -> int:
    """Rows that fit in a piece: their inputs, or their scores, slopes and weights."""
    return max(64, PIECE_BYTES // (8 * max(1, n_features, 3 * columns)))


def in_pieces(rows: int, step: int) -> Iterator[slice]:
    """Yield slices of at most `step` rows."""
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def scaled_rows(X: Matrix, order: IntArray, inputs: Inputs) -> Design:
    """Return some rows, in this order, as the model sees them."""
    if not isinstance(X, np.ndarray):
        return inputs.apply(X[order])
    out = np.empty((len(order), X.shape[1]))
    for piece in in_pieces(len(order), piece_rows(X.shape[1])):
        inputs.apply(X[order[piece]], out=out[piece])
    return out


def equal_rows(
    X: FloatArray, y: FloatArray, strata: IntArray, scale: FloatArray
) -> tuple[IntArray, IntArray] | None:
    """Order rows by stratum, equal ones together; say where each distinct one begins.

    A row's print is one random combination of its inputs and label, by which rows of a
    stratum are sorted. Each row is then compared with the one before, number by number:
    so a print decides only what is not found, never what is merged. None if too few
    rows are equal to be worth it, which prints of some of them tell.
    """
    if len(y) < FEW:
        return None
    prints = row_prints(X, y, scale)
    some = np.sort(prints[prints.view(np.uint64) * MIX < np.uint64(2**64 // SHARE)])
    if np.count_nonzero(np.diff(some)) + 1 > WORTH * max(len(some), 1):
        return None
    order = np.lexsort((prints, strata))
    first = np.ones(len(y), dtype=bool)
    first[1:] = (np.diff(strata[order]) != 0) | (np.diff(y[order]) != 0)
    for piece in in_pieces(len(y) - 1, piece_rows(X.shape[1])):
        rows = X[order[piece.start : piece.stop + 1]]
        first[piece.start + 1 : piece.stop + 1] |= (rows[1:] != rows[:-1]).any(axis=1)
    return order, np.flatnonzero(first)


def row_prints(X: FloatArray, y: FloatArray, scale: FloatArray) -> FloatArray:
    """Return one number for each row; equal rows have equal ones."""
    directions = np.random.default_rng(0).normal(size=len(scale) + 1)
    prints, along = np.empty(len(y)), directions[:-1] / scale
    # Of one shape always: a product sums the last rows in its own order.
    block = np.zeros((PRINTED, len(scale)))
    for rows in in_pieces(len(y), PRINTED):
        many = rows.stop - rows.start
        block[:many] = X[rows]
        prints[rows] = (block @ along)[:many]
    return prints + directions[-1] * y
