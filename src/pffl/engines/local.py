"""The fast engine for one process: all silos' rows in one array, passes in threads.

It answers as `Reference` does, up to the order of summation. Its memory is one scaled
copy of the rows plus buffers that fit in cache. Of several queries, those that ask
the same kind of thing about the same rows share a pass: a stack of S `Train` queries
that differ in w, weights and step sizes is one matrix product (`training`); the others
read each piece of the rows once.

How the fast engine lays rows out: in one array, those of one unit together.

A unit is what sums are kept for: a stratum, whatever the number of silos; or, where
silos have to be told apart (local steps, cells of one silo), or are few and weigh
differently, a stratum of one silo.
Passes read either in pieces that fit in cache. By stratum, equal rows are merged where
that pays: a row then weighs as much as there are of it, in its cells and in F.

`train` for linear models over laid-out rows.

A stack of queries that differ in w, weights and step sizes is one matrix product:
scores of one model with q outputs, or of S models with one output each, are its
columns. Local steps of sparse rows, and those corrected for drift, are taken by one
silo after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pffl.constraints import EVERY_SILO, Cells
from pffl.data.federation import Federation
from pffl.data.rows import Matrix, Rows, stored_width
from pffl.engines.base import Reference
from pffl.models.base import Inputs
from pffl.models.linear import LinearModel
from pffl.models.scaled import Design, ScaledRows
from pffl.numerics import divisors
from pffl.processors import Threads, processors
from pffl.queries import (
    Census,
    Evaluate,
    EvaluateTotal,
    Expand,
    ExpandTotal,
    ModelQuery,
    Query,
    Total,
    Train,
    TrainTotal,
    View,
    Witness,
    WitnessTotal,
    add_all,
)
from pffl.queries.base import weighed
from pffl.queries.census import run_sums
from pffl.queries.evaluate import COLUMNS
from pffl.queries.expand import linear
from pffl.queries.train import TINY
from pffl.typing import BoolArray, FloatArray, IntArray

PIECE_BYTES = 2**20  # of inputs: a piece stays in cache between its two products
SPARSE = 16  # times as many: what such products wait for is not the rows
LONG = 128  # rows of a silo's stratum: a run of more costs less than a further weight
ALIKE = 4 * np.finfo(np.float64).eps  # relative: p_k/m_k that differ by rounding only
FEW = 1 << 15  # rows: so few are not worth merging
WORTH = 0.5  # of the rows: more distinct ones are not merged
MAX_STRIDE = 8  # of rows that Hessians are estimated from
PRINTED = 2048  # rows whose prints are one product
MIX, SHARE = np.uint64(0x9E3779B97F4A7C15), 32  # one of n prints is counted


class Joined(NamedTuple):
    """Rows of silos of these sizes, one after another, and their strata."""

    rows: Rows
    strata: IntArray
    sizes: IntArray


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
        cls,
        joined: Joined,
        n_strata: int,
        inputs: Inputs,
        *,
        apart: bool,
        by_silo: Layout | None = None,
    ) -> Layout:
        """Lay out one split; where it does not pay to mix silos they are kept apart.

        `by_silo` is the layout with silos apart, where there is one already.
        """
        rows, strata, sizes = joined.rows, joined.strata, joined.sizes
        silo = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        units, merged = strata, None
        by_size, first = np.zeros(1, np.int64), np.array([0, len(rows)])
        masses = sizes.astype(np.float64)
        if rows.weight is not None:
            masses = run_sums(rows.weight, sizes)
        if not apart:
            if rows.weight is None and isinstance(rows.X, np.ndarray):
                merged = equal_rows(rows.X, rows.y, strata, inputs.scale)
            # A run of sparse rows costs as much as a gradient is long.
            width = max(1, stored_width(rows.X))
            long = max(LONG, 4 * rows.X.shape[1] // width)
            pays = len(rows) / (long * n_strata)
            few = merged is None and len(sizes) < pays
            if few and by_silo is not None:
                return by_silo  # one copy of the rows is enough
            # Silos that weigh the same are mixed: their rows count equally in F.
            apart = few and bool(np.ptp(masses) > 0)
        if apart:
            by_size = np.argsort(sizes, kind="stable")
            units = np.argsort(by_size, kind="stable")[silo] * n_strata + strata
            first = np.concatenate([[0], np.cumsum(sizes[by_size])])
        if merged is None:
            few = np.min_scalar_type(len(by_size) * n_strata)  # sorted by counting
            order = firsts = np.argsort(units.astype(few), kind="stable")
            weight = None if rows.weight is None else rows.weight[order]
        else:
            order, firsts = merged[0], merged[0][merged[1]]
            weight = np.diff(merged[1], append=len(rows)).astype(np.float64)
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
    def n_blocks(self) -> int:
        """Number of silos that are kept apart; 1 where they are mixed."""
        return len(self.order)

    @property
    def n_units(self) -> int:
        """Number of units."""
        return self.n_blocks * self.n_strata

    @cached_property
    def sizes(self) -> IntArray:
        """Rows of each position."""
        return np.diff(self.first)

    # Sums per unit

    def by_silo(self, sums: FloatArray) -> FloatArray:
        """Reshape sums per unit to (silos, strata, …), in the federation's order."""
        out = np.empty((self.n_blocks, self.n_strata, *sums.shape[1:]))
        out[self.order] = sums.reshape(out.shape)
        return out

    def cell_sums(self, cells: Cells, sums: FloatArray) -> FloatArray:
        """Add sums per unit, shape (units, …), into sums per cell."""
        if self.apart:
            return cells.totals(self.by_silo(sums))
        return np.tensordot(cells.membership.astype(np.float64), sums, axes=1)

    def stratum_sums(self, sums: FloatArray) -> FloatArray:
        """Add sums per unit, shape (units, …), into sums per stratum."""
        shape = (self.n_blocks, self.n_strata, *sums.shape[1:])
        return np.asarray(sums.reshape(shape).sum(axis=0))

    def unit_weights(self, cells: Cells, weights: FloatArray) -> FloatArray:
        """Turn weights per cell, shape (Z, c), into weights per unit, (units, c)."""
        if cells.everywhere.all():
            per_stratum = cells.membership.T.astype(np.float64) @ weights
            return np.tile(per_stratum, (self.n_blocks, 1))
        spread = [cells.spread(each, self.n_blocks)[self.order] for each in weights.T]
        return np.stack(spread, axis=2).reshape(self.n_units, -1)

    def places_of(
        self, cells: Cells, in_risk: FloatArray | None
    ) -> Callable[[int], list[tuple[int, float]]]:
        """Return what tells in which sums a unit's rows are, and how often.

        F is 0, of which rows are p_k/m_k times where that is known; cells follow.
        """
        by_stratum: list[list[int]] = [[] for _ in cells.membership.T]
        for stratum, cell in np.argwhere(cells.membership.T).tolist():
            by_stratum[stratum].append(cell)
        silos = self.order if self.apart else np.full(1, EVERY_SILO)

        def places(unit: int) -> list[tuple[int, float]]:
            own = (EVERY_SILO, silos[unit // self.n_strata])
            here = by_stratum[unit % self.n_strata]
            found = [(1 + z, 1.0) for z in here if cells.silo[z] in own]
            return found if in_risk is None else [(0, in_risk[unit]), *found]

        return places

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
        most = per_mass.max()
        if ((most - per_mass <= ALIKE * most) | (self.masses == 0)).all():
            return InRisk(by_unit=np.full(self.n_strata, most))
        rows = per_mass[self.silo]
        if self.merged is not None:
            return InRisk(by_row=np.add.reduceat(rows, self.merged))
        return InRisk(by_row=weighed(rows, self.weight))

    def strides(self, sample: int) -> IntArray:
        """Return which of each unit's rows are sampled: every n-th."""
        if not sample or not isinstance(self.X, np.ndarray):
            return np.ones(self.n_units, np.int64)
        rows = np.bincount(self.units, minlength=self.n_units)
        return np.clip(rows // sample, 1, MAX_STRIDE)

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
        rows = max(least, rows)
        if rows not in self._pieces:
            self._pieces[rows] = list(map(self.piece, in_pieces(len(self), rows)))
        return self._pieces[rows]

    def piece(self, rows: slice) -> Piece:
        """Find the runs in some consecutive rows."""
        first, last = np.searchsorted(self._changes, (rows.start + 1, rows.stop))
        starts = np.append(0, self._changes[first:last] - rows.start)
        return Piece(rows, self.units[rows.start + starts], starts)

    @cached_property
    def _pieces(self) -> dict[int, list[Piece]]:
        """Pieces of so many rows."""
        return {}

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
    if inputs.deferred or not isinstance(X, np.ndarray):
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


R = TypeVar("R")
GROUP_COST = 3000  # a group of silos costs as much as n scores
MAX_STACKED = 4_000_000  # parameters of a group
# of silos of one group: (silos, n, features), (silos, n) and weights (silos, n, models)
LocalRows = tuple[FloatArray, FloatArray, FloatArray]


def train(
    layout: Layout, queries: Sequence[Train], spread: Threads
) -> list[TrainTotal]:
    """Answer a stack of queries that share one pass, for all silos."""
    first = queries[0]
    if in_one_step(queries):
        kind: type[Stack] = OneStep
    elif first.corrected or first.slope or not isinstance(layout.X, np.ndarray):
        return one_by_one(layout, queries, spread)
    else:
        kind = LocalSteps
    if first.task.model.n_outputs > 1:
        return [kind(layout, [query], spread).totals()[0] for query in queries]
    return kind(layout, queries, spread).totals()


def in_one_step(queries: Sequence[Any]) -> bool:
    """Whether the silos' mean is one full step on the whole."""
    first = queries[0]
    whole = first.batch_size is None and len(first.step_sizes) == 1
    tilted = first.slope or first.corrected or any(q.loss_power for q in queries)
    tilted = tilted or not isinstance(first.task.model, LinearModel)
    # By mass, silos without any take no step, not even towards 0.
    apart = first.by_mass and not all(q.risk_weight for q in queries)
    return whole and not tilted and not apart


def one_by_one(layout: Layout, queries: Sequence[Any], spread: Threads) -> list[Any]:
    """Answer for one silo after the other, as the plain loop does."""

    def work(query: Any, positions: Sequence[int]) -> Any:
        return add_all([query.answer(layout.view(k)) for k in positions])

    found = []
    for query in queries:
        asked = range(layout.n_blocks) if query.silos is None else query.silos
        positions = np.argsort(layout.order)[list(asked)].tolist()
        found.append(add_all(spread(partial(work, query), positions, len(layout))))
    return found


@dataclass(frozen=True, eq=False)
class Columns:
    """Coefficients as columns of one product, and the pointwise parts of the model."""

    model: LinearModel
    w: FloatArray  # (columns, features + intercept)

    def scores(self, X: Design) -> FloatArray:
        """Return scores, shape (n, columns)."""
        d = X.shape[1]
        z = X @ self.w[:, :d].T
        if self.model.intercept:
            z += self.w[:, d]
        return z

    def losses(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return losses, shape (n, models)."""
        found = self.model.score_losses(z, self._labels(y))
        return found.reshape(len(y), -1)

    def losses_and_slopes(
        self, z: FloatArray, y: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return losses, shape (n, models), and slopes, shape (n, columns)."""
        losses, slopes = self.model.score_losses_and_slopes(z, self._labels(y))
        return losses.reshape(len(y), -1), slopes

    def _labels(self, y: FloatArray) -> FloatArray:
        """Return labels for one model of several outputs, or several of one."""
        return y if self.model.n_outputs > 1 else y[:, None]

    def pull_back(self, X: Design, slopes: FloatArray, out: FloatArray) -> None:
        """Add the gradients, shape (columns, features + intercept), to `out`."""
        d = X.shape[1]
        out[:, :d] += slopes.T @ X
        if self.model.intercept:
            out[:, d] += slopes.sum(axis=0)

    def gradients(
        self, w: FloatArray, X: FloatArray, y: FloatArray, weights: FloatArray
    ) -> FloatArray:
        """Weighted gradients of a block: silo b has its own w[b] and its rows X[b]."""
        model, d, gradient = self.model, X.shape[2], np.zeros_like(w)
        step = max(64, piece_rows(d, w.shape[1]) // len(X))
        for rows in in_pieces(X.shape[1], step):
            inputs = X[:, rows]
            z = np.matmul(inputs, w[:, :, :d].swapaxes(1, 2))
            if model.intercept:
                z += w[:, None, :, d]
            flat, labels = z.reshape(-1, z.shape[2]), y[:, rows].reshape(-1)
            slopes = model.score_slopes(flat, self._labels(labels)).reshape(z.shape)
            slopes *= weights[:, rows]
            gradient[:, :, :d] += np.matmul(slopes.swapaxes(1, 2), inputs)
            if model.intercept:
                gradient[:, :, d] += slopes.sum(axis=1)
        return gradient


@dataclass(frozen=True, eq=False)
class NetworkColumns:
    """The one column of a network: all of w."""

    model: Any  # a Network, which needs torch
    w: FloatArray  # (1, p)

    def scores(self, X: Design) -> FloatArray:
        """Return the module's outputs."""
        return np.asarray(self.model.scores(self.w[0], X))

    def losses(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return losses, shape (n, 1)."""
        return np.asarray(self.model.score_losses(z, y))[:, None]

    def gradients(
        self, w: FloatArray, X: FloatArray, y: FloatArray, weights: FloatArray
    ) -> FloatArray:
        """Weighted gradients of a block; running statistics in `w` move."""
        found, moved = self.model.stacked_gradients(w[:, 0], X, y, weights[..., 0])
        w[:, 0, self.model.n_trained :] = moved
        return np.asarray(found)[:, None]


@dataclass(frozen=True, eq=False)
class Stack:
    """A stack of `Train` queries over laid-out rows."""

    layout: Layout
    queries: Sequence[Train]
    spread: Threads

    def totals(self) -> list[TrainTotal]:
        """Answer all queries."""
        raise NotImplementedError

    @cached_property
    def columns(self) -> Any:
        """Coefficients of all queries: `Columns`, or `NetworkColumns`."""
        model = self.queries[0].task.model
        if not isinstance(model, LinearModel):
            return NetworkColumns(model, self.queries[0].w[None])
        rows = [q.w.reshape(-1, model.n_columns) for q in self.queries]
        return Columns(model, np.concatenate(rows))

    @cached_property
    def telling(self) -> BoolArray:
        """Which silos are asked: one without weight still tells its losses."""
        first = self.queries[0]
        every = np.arange(len(first.task.shares))
        return np.isin(every, every if first.silos is None else first.silos)

    @cached_property
    def asked(self) -> FloatArray:
        """Shares p_k; 0 for silos that are not asked."""
        return np.where(self.telling, self.queries[0].task.shares, 0.0)

    @cached_property
    def risk_weights(self) -> FloatArray:
        """β of each query."""
        return np.array([q.risk_weight for q in self.queries])

    @cached_property
    def unit_weights(self) -> FloatArray:
        """c_i/s_i per unit and query; without F's part where that is by row."""
        layout, cells = self.layout, self.queries[0].task.cells
        by_cell = np.stack([q.cell_weights for q in self.queries], axis=1)
        weights = layout.unit_weights(cells, by_cell)
        in_risk = layout.in_risk(self.asked).by_unit
        if in_risk is not None:
            weights = weights + in_risk[:, None] * self.risk_weights
        return weights * layout.units_of(self.asked > 0)[:, None]

    @property
    def in_cells(self) -> FloatArray:
        """Σ_z |λ_z|m_z'/m_z: what the rows of each unit weigh in cells, by query."""
        layout, cells = self.layout, self.queries[0].task.cells
        sizes = np.stack([np.abs(q.cell_weights) for q in self.queries], axis=1)
        mass = np.bincount(layout.units, layout.weight, layout.n_units)
        return layout.unit_weights(cells, sizes) * mass[:, None]

    def per_column(self, values: Sequence[Any]) -> FloatArray:
        """Repeat one value of each query for each of its columns."""
        return np.repeat(values, len(self.columns.w) // len(self.queries), axis=0)

    def told(
        self,
        update: FloatArray,
        sums: FloatArray,
        risks: FloatArray,
        powers: FloatArray,
    ) -> list[TrainTotal]:
        """Return the totals from updates, loss sums per unit, risks and powers."""
        cells = self.layout.cell_sums(self.queries[0].task.cells, sums)
        share, updates = float(self.asked.sum()), update.reshape(len(risks), -1)
        rest = zip(updates, risks.tolist(), cells.T, powers.T, strict=True)
        return [
            TrainTotal(own, share, risk, losses, power, np.zeros(0))
            for own, risk, losses, power in rest
        ]

    def over_pieces(self, work: Callable[[Sequence[Piece]], R]) -> list[R]:
        """Do some work on all pieces."""
        columns, layout = len(self.columns.w), self.layout
        return self.spread(work, layout.pieces(columns), len(layout) * columns)


class OneStep(Stack):
    """A single full step: one pass over the rows, whoever has them."""

    def totals(self) -> list[TrainTotal]:
        """Answer all queries."""
        sums, risks, gradient = self.slopes()
        ridge = self.per_column([q.ridge_weight for q in self.queries])
        rates = self.per_column([q.step_sizes[0] for q in self.queries])
        pull = (ridge * self.asked.sum())[:, None] * self.columns.w
        powers = np.zeros((2, len(self.queries)))
        powers[0] = self.asked.sum()
        if self.queries[0].by_mass:
            own = self.layout.units_of(self.asked > 0) @ self.in_cells
            powers[0] = self.risk_weights * self.asked.sum() + own
        update = -rates[:, None] * (gradient + pull)
        return self.told(update, sums, risks, powers)

    def slopes(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Loss sums per unit, risks, and Σ c_i ∇ℓ_i, at the w that was sent."""
        layout, columns, weights = self.layout, self.columns, self.unit_weights
        in_risk, models = layout.in_risk(self.asked), len(self.queries)

        def work(pieces: Sequence[Piece]) -> tuple[FloatArray, FloatArray]:
            """Return sums per unit, those for F in the last row, and gradients."""
            sums = np.zeros((layout.n_units + 1, models))
            gradients = np.zeros_like(columns.w)
            for piece in pieces:
                X = layout.X[piece.rows]
                losses, slopes = columns.losses_and_slopes(
                    columns.scores(X), layout.y[piece.rows]
                )
                sums[piece.units] += piece.sums(layout.weigh(losses, piece.rows))
                per_row = np.repeat(weights[piece.units], piece.lengths, axis=0)
                per_row = layout.weigh(per_row, piece.rows)
                if (own := in_risk.rows(piece.rows)) is not None:
                    per_row = per_row + own[:, None] * self.risk_weights
                    sums[-1] += (losses * own[:, None]).sum(axis=0)
                slopes *= per_row
                columns.pull_back(X, slopes, gradients)
            return sums, gradients

        found = zip(*self.over_pieces(work), strict=True)
        sums, gradients = (sum(parts[1:], parts[0]) for parts in found)
        risks, sums = sums[-1], sums[:-1] * layout.units_of(self.telling)[:, None]
        if in_risk.by_unit is not None:
            risks = in_risk.by_unit @ sums
        return sums, risks, gradients


class LocalSteps(Stack):
    """Several steps, or steps on batches: each silo has its own w."""

    def totals(self) -> list[TrainTotal]:
        """Answer all queries."""
        layout, powers = self.layout, np.array([q.loss_power for q in self.queries])
        sums = self.losses() * layout.units_of(self.telling)[:, None]
        by_silo = layout.by_silo(sums).sum(axis=1)
        means = by_silo / divisors(layout.masses)[:, None]
        tilted = (means + TINY) ** powers if powers.any() else 1.0
        tilts = (self.asked[:, None] * tilted * self.masses)[layout.order]
        update, lengths = self.local_steps(tilts)
        moved = tilts * lengths / (means[layout.order] + TINY)
        both = np.stack([tilts.sum(axis=0), powers * moved.sum(axis=0)])
        return self.told(update, sums, self.asked @ means, both)

    def losses(self) -> FloatArray:
        """Loss sums per unit, shape (units, models)."""
        layout, columns = self.layout, self.columns

        def work(pieces: Sequence[Piece]) -> FloatArray:
            sums = np.zeros((layout.n_units, len(self.queries)))
            for piece in pieces:
                z = columns.scores(layout.X[piece.rows])
                losses = columns.losses(z, layout.y[piece.rows])
                losses = layout.weigh(losses, piece.rows)
                sums[piece.units] += piece.sums(losses)
            return sums

        return np.sum(self.over_pieces(work), axis=0)

    @cached_property
    def masses(self) -> FloatArray:
        """M_k by silo and query, by which steps are divided; 1 where they are not.

        A silo without weight has 0, and takes no step.
        """
        shares = self.queries[0].task.shares
        if not self.queries[0].by_mass:
            return np.ones((len(shares), len(self.queries)))
        cells = self.layout.by_silo(self.in_cells).sum(axis=1)
        return self.risk_weights + cells * _inverse(shares)[:, None]

    def local_steps(self, tilts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Take all local steps.

        Returns Σ_k p_k F_k^q Δ_k, shape (columns, features + intercept), and ‖Δ_k‖² per
        position and model. `tilts` holds p_k F_k^q, shape (positions, models). Steps
        descend c_i/p_k; silos that are not asked take none.
        """
        layout, first = self.layout, self.queries[0]
        shares = first.task.shares[layout.order]
        divisors = np.repeat(np.where(shares > 0, shares, 1.0), layout.n_strata)
        weights = self.unit_weights / divisors[:, None]
        groups = self.groups()
        if first.silos is not None:
            groups = [g for g in groups if tilts[g.start : g.stop].any()]
        results = self.spread(
            lambda part: self.steps_pass(part, weights, tilts),
            groups,
            len(layout.X) * len(self.columns.w),
        )
        updates, lengths = zip(*results, strict=True)
        return np.sum(updates, axis=0), np.sum(lengths, axis=0)

    def groups(self) -> list[range]:
        """Positions that take local steps together.

        Silos of one group are padded to the largest of them. A group is closed when
        padding would cost more than a separate group does, or when it would not fit
        in cache; a large silo stands alone.
        """
        layout, model, w = self.layout, self.columns.model, self.columns.w
        limit, silos = piece_rows(layout.X.shape[1], len(w)), MAX_STACKED // w.size
        sizes, batch = layout.sizes.tolist(), self.queries[0].batch_size or np.inf
        exact = not isinstance(model, LinearModel) and not model.pads
        groups, first, rows = [], 0, 0
        for position, size in enumerate(sizes):
            padded = size * (position + 1 - first)
            waste = padded - (rows + size)
            full = padded > limit or position - first >= silos
            other = exact and min(batch, size) != min(batch, sizes[first])
            if position > first and (
                full or other or waste > max(0.2 * rows, GROUP_COST / len(w))
            ):
                groups.append(range(first, position))
                first, rows = position, 0
            rows += size
        groups.append(range(first, layout.n_blocks))
        return groups

    @np.errstate(over="ignore", invalid="ignore")  # too large steps: the server sees it
    def steps_pass(
        self, groups: Sequence[range], weights: FloatArray, tilts: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Take the local steps of some groups, see `local_steps`."""
        columns, models, first = self.columns, len(self.queries), self.queries[0]
        column_of = self.per_column(range(models))
        rates = self.per_column([q.step_sizes for q in self.queries])  # (columns, J)
        ridge = self.per_column([q.ridge_weight for q in self.queries])
        per_mass = _inverse(self.masses[self.layout.order])[:, column_of]
        update, lengths = np.zeros_like(columns.w), np.zeros_like(tilts)
        trained = columns.w.shape[1]  # of each column: all but running statistics
        if not isinstance(columns.model, LinearModel):
            trained = columns.model.n_trained
        for group in groups:
            here = slice(group.start, group.stop)
            w = np.repeat(columns.w[None], len(group), axis=0)  # (silos, columns, c)
            for j, (X, y, c) in enumerate(self._local_rows(group, weights)):
                gradient = columns.gradients(w, X, y, c)
                moving = w[..., : gradient.shape[2]]  # not running statistics
                gradient += ridge[None, :, None] * moving
                if first.proximal:
                    gradient += first.proximal * (
                        moving - columns.w[:, : len(moving.T)]
                    )
                gradient *= (rates[None, :, j] * per_mass[here])[..., None]
                moving -= gradient
            w -= columns.w
            update += np.einsum("ks,ksc->sc", tilts[here][:, column_of], w)
            squares = np.square(w[..., :trained]).sum(axis=2)
            lengths[here] = squares.reshape(len(group), models, -1).sum(axis=2)
        return update, lengths

    def _local_rows(self, group: range, unit_weights: FloatArray) -> list[LocalRows]:
        """Rows and weights of each local step."""
        layout, query = self.layout, self.queries[0]
        sizes = layout.sizes[group.start : group.stop]
        batch, steps = query.batch_size, len(query.step_sizes)
        if batch is None or batch >= sizes.max():
            whole = [np.arange(*layout.first[k : k + 2].tolist()) for k in group]
            return [self._gather(whole, sizes, unit_weights)] * steps
        drawn = []
        for position in group:
            places = layout.places(position)
            index = int(layout.order[position])
            drawn.append([places[b] for b in query.batches(index, len(places))])
        return [
            self._gather(step, sizes, unit_weights) for step in zip(*drawn, strict=True)
        ]

    def _gather(
        self, rows: Sequence[IntArray], sizes: IntArray, unit_weights: FloatArray
    ) -> LocalRows:
        """Stack each silo's rows; short ones are padded with rows of weight 0."""
        layout, lengths = self.layout, np.array([len(index) for index in rows])
        if lengths.min() == lengths.max() == sizes.max() == sizes.min():
            # All rows of silos of one size stand side by side: no copy.
            here, shape = slice(rows[0][0], rows[-1][-1] + 1), (len(rows), -1)
            weights = layout.weigh(unit_weights[layout.units[here]], here)
            X, y = np.asarray(layout.X[here]), layout.y[here].reshape(shape)
            return X.reshape(*y.shape, -1), y, weights.reshape(*y.shape, -1)
        longest = lengths.max()
        padded = np.array(
            [np.concatenate([i, np.repeat(i[:1], longest - len(i))]) for i in rows]
        )
        weights = unit_weights[layout.units[padded]]
        if layout.weight is not None:
            weights *= layout.weight[padded][..., None]
        inside = np.arange(longest) < lengths[:, None]
        weights *= (inside * (sizes / lengths)[:, None])[..., None]
        return np.asarray(layout.X[padded]), layout.y[padded], weights


def _inverse(values: FloatArray) -> FloatArray:
    """Return 1/value; 0 of 0."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


JOINED = 2**23  # numbers of inputs that are joined to be counted
MAX_NUMBERS = 2**27  # of inputs that a network is given a copy of
MEANS = [COLUMNS.index("loss"), COLUMNS.index("bounded_loss")]

T = TypeVar("T", bound=Total)


class Local(Reference):
    """Ask all silos at once, in this process.

    Parameters
    ----------
    federation
        The silos.
    threads
        Number of threads; None for the number of processors available.
    """

    def __init__(self, federation: Federation, *, threads: int | None = None) -> None:
        super().__init__(federation)
        self._spread = Threads(threads or processors())
        self._layouts: dict[tuple[str, bool], Layout] = {}
        self._scaling = ""
        self._kept: dict[str, Joined] = {}

    def ask(self, query: Query[T]) -> T:
        """Ask every silo and add the answers."""
        total: T = self.ask_many([query])[0]
        return total

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Ask several queries: those that can share a pass do."""
        stacks: dict[Hashable, list[int]] = {}
        # By scaling: rows are laid out once for all that share it.
        for place in sorted(range(len(queries)), key=lambda i: queries[i].view_key[1]):
            stacks.setdefault(_stack(queries[place], place), []).append(place)
        totals: dict[int, Any] = {}
        for places in stacks.values():
            answers = self._answer([queries[place] for place in places])
            totals |= zip(places, answers, strict=True)
        return [totals[place] for place in range(len(queries))]

    def _answer(self, queries: Sequence[Any]) -> Sequence[Any]:
        """Answer queries of one kind, about one task and split."""
        first, kind = queries[0], type(queries[0])
        if isinstance(first, Census) and self._can_join(first):
            return [query.counted(*self._joined(query.split)) for query in queries]
        if isinstance(first, ModelQuery) and self._lies_out(first):
            if isinstance(first.task.model, LinearModel) and kind in PASSES:
                return PASSES[kind](self.layout(queries), queries, self._spread)
            if self._stacks(first):
                try:
                    return PASSES[kind](self.layout(queries), queries, self._spread)
                except Exception:  # some modules cannot be stacked
                    first.task.model.cannot_stack()  # type: ignore[attr-defined]
        return [Reference.ask(self, query) for query in queries]

    def _stacks(self, query: ModelQuery[Any]) -> bool:
        """Whether silos' copies of a network are faster stacked than one by one."""
        rows = sum(len(silo.rows(query.split)) for silo in self.federation.silos)
        small = rows * self.schema.n_features <= MAX_NUMBERS
        if not isinstance(query, Train | Evaluate):
            return False
        if isinstance(query, Train) and (query.corrected or query.slope):
            return False
        return small and getattr(query.task.model, "stacks", False)

    def _can_join(self, census: Census) -> bool:
        """Whether the rows are few enough for a second copy, until they are scaled."""
        parts = [silo.rows(census.split) for silo in self.federation.silos]
        width = max(1, stored_width(parts[0].X))
        return not census.released and sum(map(len, parts)) * width <= JOINED

    def _lies_out(self, query: ModelQuery[Any]) -> bool:
        """Whether a query can be answered from a layout: it knows no person."""
        if query.released:
            return False
        if not (isinstance(query, Evaluate) and query.weighs):
            return True
        parts = (silo.rows(query.split) for silo in self.federation.silos)
        return all(rows.person is None for rows in parts)

    def _joined(self, split: str) -> Joined:
        """Return all silos' rows in one, kept until they are laid out.

        Joining thousands of silos costs as much as a pass.
        """
        if split not in self._kept:
            parts = [silo.rows(split).counting for silo in self.federation.silos]
            rows = parts[0] if len(parts) == 1 else Rows.joined(parts)
            strata = self.schema.strata(rows.group, rows.y)
            self._kept[split] = Joined(rows, strata, np.array([*map(len, parts)]))
        return self._kept[split]

    def layout(self, queries: Sequence[ModelQuery[Any]]) -> Layout:
        """Rows of the queries' split, laid out once per scaling.

        By stratum where no silo has to be told from others, if that pays.
        """
        split, task = queries[0].split, queries[0].task
        if self._scaling != task.scaling:
            self._scaling, self._layouts = task.scaling, {}
        apart = _by_silo(queries)
        if (split, apart) not in self._layouts:
            joined, strata = self._joined(split), self.schema.n_strata
            by_silo = self._layouts.get((split, True))
            inputs = task.model.inputs
            found = Layout.of(joined, strata, inputs, apart=apart, by_silo=by_silo)
            self._kept.pop(split, None)  # a scaled copy is enough
            self._layouts[split, apart] = self._layouts[split, found.apart] = found
        return self._layouts[split, apart]


def _by_silo(queries: Sequence[ModelQuery[Any]]) -> bool:
    """Whether answers depend on which silo has which rows, beyond its share."""
    first = queries[0]
    if not first.task.cells.everywhere.all():
        return True
    if isinstance(first, Train):
        together = first.silos is None and bool((first.task.shares > 0).all())
        return not (together and in_one_step(queries))
    return isinstance(first, Expand) and not first.order


def _stack(query: Query[Any], place: int) -> Hashable:
    """Return what queries of one pass have in common; `place` if it goes alone.

    Each flow makes its own task from the census, so most are equal but not identical.
    """
    task = query.task
    if task is None or query.released or not isinstance(task.model, LinearModel):
        return place
    common = (type(task.model), task.digest, query.split, query.kind)
    if isinstance(query, Train):
        steps = (len(query.step_sizes), query.batch_size, query.proximal)
        asked = (query.slope, query.corrected, query.by_mass, query.silos)
        return *common, *steps, *asked, query.seed, query.round
    return (
        (*common, query.order, query.diagonal, query.sample)
        if isinstance(query, Expand)
        else common
    )


# `evaluate`, `expand` and `witness` for linear models over laid-out rows


def evaluate(
    layout: Layout, queries: Sequence[Evaluate], spread: Threads
) -> list[EvaluateTotal]:
    """Answer queries about one task and split, for all silos."""
    task = queries[0].task
    model, in_risk = task.model, layout.in_risk(task.shares)

    def sums_of(pieces: Sequence[Piece]) -> list[FloatArray]:
        """Sum up for each unit, and in the last row for F."""
        sums = [np.zeros((layout.n_units + 1, len(COLUMNS))) for q in queries]
        for piece in pieces:
            rows = piece.rows
            X, y = layout.X[rows], layout.y[rows]
            weight, per_row = layout.weights(rows), in_risk.rows(rows)
            stands_for = layout.times(rows)
            for place, (query, into) in enumerate(zip(queries, sums, strict=True)):
                z = model.scores(query.w, X)
                losses = model.score_losses(z, y)
                cut = query.bounded(losses, z, y)
                columns = query.columns(losses, model.score_classes(z), y, cut)
                into[piece.units] += piece.sums(
                    query.weighed(columns, weight, stands_for)
                )
                if per_row is not None:
                    for mean in MEANS:
                        into[-1, mean] += (columns[:, mean] * per_row).sum()
                if query.weighs:
                    bounded[place][rows] = cut
        return sums

    bounded = [np.zeros(len(layout) if q.weighs else 0) for q in queries]
    parts = spread(sums_of, layout.pieces(), len(layout))
    totals = []
    for query, cut, *each in zip(queries, bounded, *parts, strict=True):
        sums = sum(each[1:], each[0])
        if in_risk.by_unit is not None:
            sums[-1] = in_risk.by_unit @ sums[:-1]
        risk, bounded_risk = sums[-1, MEANS].tolist()
        total = EvaluateTotal(
            layout.stratum_sums(sums[:-1]),
            layout.cell_sums(task.cells, sums[:-1]),
            risk,
            bounded_risk,
            float(task.shares[layout.masses > 0].sum()),
            **layout.row_sums(query, cut),
        )
        totals.append(total)
    return totals


def expand(
    layout: Layout, queries: Sequence[Expand], spread: Threads
) -> list[ExpandTotal]:
    """Answer queries of one order about one task, for all silos."""
    task, order = queries[0].task, queries[0].order
    if not order:  # they all ask the same
        return one_by_one(layout, queries[:1], spread) * len(queries)
    model, in_risk = linear(task), layout.in_risk(task.shares)
    p, places = model.n_parameters, layout.places_of(task.cells, in_risk.by_unit)
    strides = layout.strides(queries[0].sample)

    def sums_of(pieces: Sequence[Piece]) -> list[tuple[FloatArray, FloatArray]]:
        """Sum up run by run: each row enters one product, or two where F needs one."""
        found = [_zeros(query) for query in queries]
        for piece in pieces:
            X, y = layout.X[piece.rows], layout.y[piece.rows]
            weight, per_row = layout.weights(piece.rows), in_risk.rows(piece.rows)
            for query, (vectors, hessians) in zip(queries, found, strict=True):
                terms = Terms.of(query, model, X, y)
                if per_row is not None:
                    least = int(strides[piece.units].min())
                    vector, hessian = terms.times(per_row).sums(slice(None), least)
                    vectors[0] += vector
                    hessians[0] += hessian
                terms = terms.times(weight)
                for unit, run in piece.runs:
                    if not (into := places(unit)):
                        continue
                    vector, hessian = terms.sums(run, strides[unit])
                    for place, factor in into:
                        vectors[place] += factor * vector
                        hessians[place] += factor * hessian
        return found

    # A Hessian is added to p² numbers: not for a few rows each time.
    pieces = layout.pieces(least=p if order == 2 else 1)
    parts = spread(sums_of, pieces, len(layout) * p)
    totals = []
    for query, *each in zip(queries, *parts, strict=True):
        vectors, hessians = (sum(some[1:], some[0]) for some in zip(*each, strict=True))
        dims = query.dims
        d, s, g = (dims[axis] for axis in "dsg")
        diagonals = vectors[:, vectors.shape[1] - g :]
        gradients = vectors[:, 1 + s : vectors.shape[1] - g]
        gradients = gradients.reshape(len(vectors), 1 + d + s, p)
        total = query.total(
            losses=vectors[:, 0],
            gradients=gradients[:, 0],
            hessians=hessians,
            products=gradients[:, 1 : 1 + d],
            diagonals=diagonals,
            scores=vectors[1:, 1 : 1 + s],
            score_gradients=gradients[1:, 1 + d :],
        )
        totals.append(total)
    return totals


def _zeros(query: Expand) -> tuple[FloatArray, FloatArray]:
    """Return room for the sums of F and of each cell: vectors, and Hessians."""
    dims = query.dims
    v, p, d, s, g, h = (dims[axis] for axis in "vpdsgh")
    return np.zeros((v, 1 + s + (1 + d + s) * p + g)), np.zeros((v, h, h))


@dataclass(frozen=True, eq=False)
class Terms:
    """What is summed up of some rows.

    Attributes
    ----------
    values
        Numbers of each row, shape (values, n).
    slopes
        What is pulled back to gradients, shape (n, gradients, outputs).
    curvatures
        Of Hessians, or of their diagonals; None where none is asked for.
    diagonal
        Whether diagonals are summed up, and not Hessians.
    weight
        What each row counts, if not 1; it is part of all that.
    """

    model: LinearModel
    X: Design
    values: FloatArray
    slopes: FloatArray
    curvatures: FloatArray | None
    diagonal: bool
    weight: FloatArray | None = None

    @classmethod
    def of(cls, query: Expand, model: LinearModel, X: Design, y: FloatArray) -> Terms:
        """Return the terms of a query."""
        z = model.scores(query.w, X)
        losses, slopes = model.score_losses_and_slopes(z, y)
        values, pulled = [losses], [slopes.reshape(len(y), 1, model.n_outputs)]
        bent = None
        if query.order == 2 or query.diagonal:
            bent = model.score_curvatures(z, y)
        if query.directions.size:
            pulled.append(model.slope_changes(query.directions, X, z, y))
        if query.sharpness:
            scores, steep = query.scores(z)
            values.append(scores)
            pulled.append(steep[:, None, None])
        slopes = np.concatenate(pulled, axis=1)
        return cls(model, X, np.array(values), slopes, bent, query.diagonal)

    def times(self, weight: FloatArray | None) -> Terms:
        """Return the terms with a weight for each row."""
        if weight is None:
            return self
        bent = self.curvatures
        return replace(
            self,
            values=self.values * weight,
            slopes=weighed(self.slopes, weight),
            curvatures=None if bent is None else weighed(bent, weight),
            weight=weight,
        )

    @cached_property
    def _rooted(self) -> FloatArray | None:
        """All rows times the roots of their curvatures, where they have one root."""
        X, bent = self.X, self.curvatures
        if bent is None or bent.ndim > 1 or isinstance(X, ScaledRows):
            return None
        return self.model.rooted(X, bent) if bent.min(initial=0.0) >= 0 else None

    def sums(self, rows: slice, stride: int = 1) -> tuple[Any, Any]:
        """Return values and gradients in one vector, and the Hessian, of some rows.

        With a stride, the Hessian is that of every n-th row, weighed up.
        """
        X, bent = self.X[rows], self.curvatures
        pulled = self.model.pull_back(X, self.slopes[rows])
        vector = np.concatenate([self.values[:, rows].sum(axis=1), pulled])
        if bent is None:
            return vector, 0.0
        bent = bent[rows]
        if self.diagonal:
            return np.append(vector, self.model.diagonal(X, bent)), 0.0
        if stride > 1:
            own = np.ones(len(bent)) if self.weight is None else self.weight[rows]
            up = own.sum() / own[::stride].sum()
            return vector, self.model.gram(X[::stride], bent[::stride] * up)
        if self._rooted is None:
            return vector, self.model.gram(X, bent)
        return vector, self._rooted[rows].T @ self._rooted[rows]


def witness(
    layout: Layout, queries: Sequence[Witness], spread: Threads
) -> list[WitnessTotal]:
    """Answer queries about one task, for all silos."""
    task = queries[0].task
    model, in_risk = linear(task), layout.in_risk(task.shares)
    by_units = []
    for query in queries:
        by_unit = layout.unit_weights(task.cells, query.cell_weights[:, None])[:, 0]
        if in_risk.by_unit is not None:
            by_unit = by_unit + query.risk_weight * in_risk.by_unit
        by_units.append(by_unit)

    def blocks_of(pieces: Sequence[Piece]) -> list[list[FloatArray]]:
        found: list[list[FloatArray]] = [[] for _ in queries]
        for piece in pieces:
            X, y = layout.X[piece.rows], layout.y[piece.rows]
            units, per_row = layout.units[piece.rows], in_risk.rows(piece.rows)
            for query, by_unit, into in zip(queries, by_units, found, strict=True):
                weights = layout.weigh(by_unit[units], piece.rows)
                if per_row is not None:
                    weights = weights + query.risk_weight * per_row
                into += query.sums(model, X, y, weights)
        return found

    parts = spread(blocks_of, layout.pieces(), len(layout) * model.n_parameters)
    return [
        query.total([block for part in of_one for block in part])
        for query, *of_one in zip(queries, *parts, strict=True)
    ]


PASSES: dict[Any, Callable[[Layout, Any, Threads], Sequence[Any]]] = {
    Train: train,
    Evaluate: evaluate,
    Expand: expand,
    Witness: witness,
}
