"""How the fast engine lays rows out: in one array, those of one unit together.

A unit is what sums are kept for: a stratum, whatever the number of silos; or, where
silos have to be told apart (local steps, cells of one silo), a stratum of one silo.
Passes read either in pieces that fit in cache. By stratum, equal rows are merged where
that pays, and rows have two weights: what they count in their cells, and in F.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pffl.constraints import Cells
from pffl.data.federation import Federation
from pffl.data.rows import Matrix, stacked, stored_width
from pffl.engines.local.merging import Raw, in_pieces, merge
from pffl.models.base import Inputs
from pffl.models.scaled import Design, ScaledRows
from pffl.numerics import divisors
from pffl.queries import Evaluate
from pffl.queries.base import weighed
from pffl.typing import BoolArray, FloatArray, IntArray

PIECE_BYTES = 2**20  # of inputs: a piece stays in cache between its two products
SPARSE = 16  # times as many: what such products wait for is not the rows
GROUP_COST = 3000  # a group of silos costs as much as so many scores
LONG = 128  # rows of a silo's stratum: a run of more costs less than a further weight
ALIKE = 4 * np.finfo(np.float64).eps  # relative: p_k/m_k that differ by rounding only


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

    Silos that are told apart stand in order of size, so that those of equal size form a
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
        How much each row counts, s_i > 0; None: all alike.
    apart
        Whether silos are told apart.
    silo, own
        Silo of each row of the federation, in the order of `X`, and its own weight
        s_i, if they have such.
    order, first
        Where silos are told apart: which silo stands at each position, and its first
        row, with N at the end.
    place
        Which of its silo's own rows each row is.
    times, merged
        Where equal rows are merged: how many each stands for, and where they begin.
    """

    X: Design
    y: FloatArray
    units: IntArray
    n_strata: int
    masses: FloatArray
    silo: NDArray[np.int32]
    weight: FloatArray | None = None
    own: FloatArray | None = None
    apart: bool = False
    order: IntArray = field(default_factory=lambda: np.zeros(1, np.int64))
    first: IntArray = field(default_factory=lambda: np.zeros(1, np.int64))
    place: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    times: FloatArray | None = None
    merged: IntArray | None = None
    _cut: dict[int, tuple[Piece, ...]] = field(default_factory=dict, init=False)
    _risks: list[tuple[FloatArray, InRisk]] = field(default_factory=list, init=False)

    @classmethod
    def of(
        cls,
        federation: Federation,
        split: str,
        inputs: Inputs,
        *,
        apart: bool,
        known: Layout | None = None,
    ) -> Layout:
        """Lay out one split of a federation.

        Where it does not pay to mix silos they are told apart; `known` is that, if it
        was laid out before.
        """
        schema = federation.schema
        parts = [silo.rows(split).counting for silo in federation.silos]
        given = [part.X for part in parts]
        sizes = np.array([len(part) for part in parts])
        y = np.concatenate([part.y for part in parts])
        group = np.concatenate([part.group for part in parts])
        strata, starts = schema.strata(group, y), np.cumsum(sizes) - sizes
        silo = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        masses, weights = sizes.astype(np.float64), None
        if any(part.weight is not None for part in parts):
            weights = np.concatenate([part.weights for part in parts])
        more: dict[str, Any] = {"n_strata": schema.n_strata, "apart": apart}
        if apart:
            by_size = np.argsort(sizes, kind="stable")
            position = np.argsort(by_size, kind="stable")
            units = position[silo] * schema.n_strata + strata
            order = np.argsort(units, kind="stable")
            first = np.concatenate([[0], np.cumsum(sizes[by_size])])
            place = order - starts[silo[order]]
            more |= {"order": by_size, "first": first, "place": place}
            X: Design = _laid_out(given, sizes, by_size, place, inputs)
            firsts, merged = order, None
        else:
            raw, units = Raw.of(given), strata
            found = None if raw is None else merge(raw, y, strata, inputs.scale)
            if found is None and len(y) > _long(given) * len(sizes) * schema.n_strata:
                if known is not None:
                    return known
                return cls.of(federation, split, inputs, apart=True)
            if found is not None:
                order, merged = found.order, found.starts
                firsts, X = order[merged], _scaled(found.X, inputs)
            else:
                order = firsts = np.argsort(strata, kind="stable")
                merged = None
                if raw is None:
                    X = inputs.apply(stacked(given)[order])
                else:
                    X = _scaled(raw.take(order), inputs)
        own = None if weights is None else weights[order]
        if own is not None and apart:
            ends = np.concatenate([[0], np.cumsum(sizes[more["order"]])])
            for at, k in enumerate(more["order"].tolist()):
                masses[k] = own[ends[at] : ends[at + 1]].sum()
        elif weights is not None:
            masses = np.array([part.weights.sum() for part in parts])
        times = None
        if merged is not None:
            times = np.diff(merged, append=len(y)).astype(np.float64)
        return cls(
            X=X,
            y=y[firsts],
            units=units[firsts],
            masses=masses,
            weight=times if own is None else _added(own, merged),
            silo=silo[order],
            own=own,
            times=times,
            merged=merged,
            **more,
        )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_silos(self) -> int:
        """Number of silos that are told apart."""
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

    def units_of(self, silos: BoolArray) -> BoolArray:
        """Say which units are of these silos; all of them where silos are mixed."""
        if not self.apart:
            return np.ones(self.n_units, dtype=bool)
        return np.repeat(silos[self.order], self.n_strata)

    def member(self, cells: Cells) -> Callable[[int], BoolArray]:
        """Return what says which rows are in a cell."""
        strata = self.units % self.n_strata

        def member(cell: int) -> BoolArray:
            rows: BoolArray = cells.membership[cell][strata]
            if cells.everywhere[cell]:
                return rows
            return rows & (self.silo == cells.silo[cell])

        return member

    def row_sums(self, query: Evaluate, bounded: FloatArray) -> dict[str, FloatArray]:
        """Return what `Evaluate.row_sums` does, from each row's bounded loss."""
        member = self.member(query.task.cells)
        if self.times is None or not query.weighs:
            return query.row_sums(bounded, member, weight=self.own, times=self.times)
        # Each row of the federation puts in its own weight.
        rows = np.repeat(np.arange(len(self)), self.times.astype(np.int64))
        return query.row_sums(
            bounded[rows], lambda cell: member(cell)[rows], weight=self.own
        )

    # Weights of rows

    def in_risk(self, shares: FloatArray) -> InRisk:
        """Return what rows count in F, with these p_k of the silos."""
        for known, found in self._risks:
            if known is shares or np.array_equal(known, shares):
                return found
        per_mass = np.where(self.masses > 0, shares / divisors(self.masses), 0.0)
        found = self._in_risk(per_mass)
        self._risks[:] = [(shares, found), *self._risks[:1]]
        return found

    def _in_risk(self, per_mass: FloatArray) -> InRisk:
        """Return what rows count in F, given p_k/m_k of each silo."""
        if self.apart:
            return InRisk(by_unit=np.repeat(per_mass[self.order], self.n_strata))
        there = per_mass[self.masses > 0]
        most = there.max(initial=0.0)
        if most - there.min(initial=most) <= ALIKE * most:
            return InRisk(by_unit=np.full(self.n_strata, most))
        rows = per_mass[self.silo]
        if self.own is not None:
            rows *= self.own
        return InRisk(by_row=_added(rows, self.merged))

    def weights(self, rows: slice) -> FloatArray | None:
        """Return s_i of some consecutive rows; None where all count alike."""
        return None if self.weight is None else self.weight[rows]

    def weigh(self, values: FloatArray, rows: slice) -> FloatArray:
        """Return values of some consecutive rows, shape (n, …), times s_i."""
        return weighed(values, self.weights(rows))

    # Which rows are read together

    def pieces(self, columns: int = 1, *, least: int = 1) -> tuple[Piece, ...]:
        """All rows, cut into pieces that fit in cache with so many score columns.

        A piece has at least so many rows, if there are as many.
        """
        step = max(least, self._piece_rows(columns))
        if step not in self._cut:
            self._cut[step] = tuple(map(self.piece, in_pieces(len(self), step)))
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
        start, end = self.first[position : position + 2].tolist()
        places = np.empty(end - start, dtype=np.int64)
        places[self.place[start:end]] = np.arange(start, end)
        return places


def piece_rows(n_features: int, columns: int = 1) -> int:
    """Rows that fit in a piece: their inputs, or their scores, slopes and weights."""
    return max(64, PIECE_BYTES // (8 * max(1, n_features, 3 * columns)))


def _long(inputs: Sequence[Matrix]) -> int:
    """Return how many rows of a silo's stratum cost less than a further weight does.

    A run of sparse rows costs as much as a gradient is long.
    """
    wide = [stored_width(X) for X in inputs if not isinstance(X, np.ndarray)]
    if not wide:
        return LONG
    return max(LONG, 4 * inputs[0].shape[1] // max(1, *wide))


def _added(values: FloatArray, starts: IntArray | None) -> FloatArray:
    """Add up what equal rows have."""
    return values if starts is None else np.add.reduceat(values, starts)


def _scaled(X: FloatArray, inputs: Inputs) -> FloatArray:
    """Scale rows where they are, a few at a time."""
    for piece in in_pieces(len(X), piece_rows(X.shape[1])):
        inputs.apply(X[piece], out=X[piece])
    return X


def _laid_out(
    parts: Sequence[Matrix],
    sizes: IntArray,
    order: IntArray,
    place: IntArray,
    inputs: Inputs,
) -> Design:
    """Return scaled rows of all parts, one after another, each in its order."""
    ends, rows = np.cumsum(sizes[order]), []
    for k, end in zip(order.tolist(), ends.tolist(), strict=True):
        rows.append((parts[k], place[end - sizes[k] : end]))
    if any(not isinstance(part, np.ndarray) for part in parts):
        return inputs.apply(stacked([X[index] for X, index in rows]))
    out, first = np.empty((int(sizes.sum()), len(inputs.mean))), 0
    for X, index in rows:
        for part in in_pieces(len(index), piece_rows(out.shape[1])):
            some = index[part]
            inputs.apply(X[some], out=out[first : first + len(some)])
            first += len(some)
    return out
