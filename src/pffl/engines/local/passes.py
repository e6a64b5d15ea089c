"""`evaluate`, `expand` and `witness` for linear models over laid-out rows.

Sums of an expansion are kept for F, for each stratum, and for each cell of one silo;
those of the other cells follow from the strata's. Rows of one stratum stand together,
so a thread has Hessians of few of them. How much losses curve at most (order 0) each
silo finds by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from pffl.engines.local.layout import InRisk, Layout, Piece
from pffl.engines.local.threads import Threads, added
from pffl.models.linear import LinearModel
from pffl.models.scaled import Design
from pffl.queries import (
    Evaluate,
    EvaluateTotal,
    Expand,
    ExpandTotal,
    Task,
    Witness,
    WitnessTotal,
)
from pffl.queries.base import weighed
from pffl.queries.evaluate import COLUMNS
from pffl.queries.expand import curvature, linear
from pffl.typing import FloatArray

MEANS = [COLUMNS.index("loss"), COLUMNS.index("bounded_loss")]
BOUNDED = MEANS[1]
MOST_SUMS = 1 << 22  # numbers of a stack of evaluations
RISK = (
    0  # where the sums for F are kept; those of strata follow, then cells of one silo
)


def evaluate(
    layout: Layout, queries: Sequence[Evaluate], spread: Threads
) -> list[EvaluateTotal]:
    """Answer queries about one task and split, for all silos."""
    at_once = max(1, MOST_SUMS // (layout.n_units * max(q.width for q in queries)))
    if len(queries) > at_once:
        head, tail = queries[:at_once], queries[at_once:]
        return evaluate(layout, head, spread) + evaluate(layout, tail, spread)
    task = queries[0].task
    model, in_risk = linear(task), layout.in_risk(task.shares)

    def sums_of(pieces: Sequence[Piece]) -> list[FloatArray]:
        """Sum up for each unit, and in the last row for F."""
        sums = [np.zeros((layout.n_units + 1, q.width)) for q in queries]
        for piece in pieces:
            rows = piece.rows
            X, y = layout.X[rows], layout.y[rows]
            weight, per_row = layout.weights(rows), in_risk.rows(rows)
            times = 1.0 if layout.times is None else layout.times[rows]
            for place, (query, into) in enumerate(zip(queries, sums, strict=True)):
                z = model.scores(query.w, X)
                columns = query.columns(
                    model.score_losses(z, y),
                    model.score_classes(z),
                    y,
                    partial(model.score_bounded_losses, z, y),
                )
                weighed = query.weighed(columns, weight, times)
                into[piece.units] += piece.sums(weighed)
                if per_row is not None:
                    for mean in MEANS:
                        into[-1, mean] += (columns[:, mean] * per_row).sum()
                if query.by_row:
                    bounded[place][rows] = columns[:, BOUNDED]
        return sums

    bounded = [np.zeros(len(layout) if q.by_row else 0) for q in queries]
    parts = spread(sums_of, layout.pieces(), len(layout))
    found = [added(sums) for sums in zip(*parts, strict=True)]
    if in_risk.by_unit is not None:
        for sums in found:
            sums[-1] = in_risk.by_unit @ sums[:-1]
    return [
        _evaluated(layout, *each) for each in zip(queries, found, bounded, strict=True)
    ]


def _evaluated(
    layout: Layout, query: Evaluate, sums: FloatArray, bounded: FloatArray
) -> EvaluateTotal:
    """Return the total from sums per unit and for F, and bounded losses row by row."""
    task, width = query.task, len(COLUMNS)
    cells = layout.cell_sums(task.cells, sums[:-1])
    risk, bounded_risk = sums[-1, MEANS].tolist()
    return EvaluateTotal(
        layout.stratum_sums(sums[:-1])[:, :width],
        cells[:, :width],
        risk,
        bounded_risk,
        float(task.shares[layout.masses > 0].sum()),
        cells[:, width:],
        **layout.row_sums(query, bounded),
    )


def expand(
    layout: Layout, queries: Sequence[Expand], spread: Threads
) -> list[ExpandTotal]:
    """Answer queries of one order about one task, for all silos."""
    if not queries[0].order:
        return smooth(layout, queries, spread)
    task = queries[0].task
    kept = Kept(layout, task, layout.in_risk(task.shares))
    p, bent = task.model.n_parameters, queries[0].order == 2
    parts = spread(
        lambda pieces: _sums(kept, queries, pieces),
        # A Hessian is added to p² numbers: not for a few rows each time.
        layout.pieces(least=p if bent else 1),
        len(layout) * p,
    )
    return [
        _expanded(kept, query, _joined(each))
        for query, *each in zip(queries, *parts, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class Kept:
    """What sums are kept for, and which of them a unit's rows are in."""

    layout: Layout
    task: Task
    in_risk: InRisk

    @cached_property
    def own_cells(self) -> dict[int, list[int]]:
        """Where the sums are kept of cells of one silo, by unit."""
        cells, layout = self.task.cells, self.layout
        found: dict[int, list[int]] = {}
        if cells.everywhere.all() or not layout.apart:
            return found
        position = np.argsort(layout.order)
        for place, cell in enumerate(np.flatnonzero(~cells.everywhere).tolist()):
            first = int(position[cells.silo[cell]]) * layout.n_strata
            for stratum in np.flatnonzero(cells.membership[cell]).tolist():
                here = found.setdefault(first + stratum, [])
                here.append(1 + layout.n_strata + place)
        return found

    @cached_property
    def of_cells(self) -> list[list[int]]:
        """Where the sums are kept that make up those of each cell."""
        cells, n_strata = self.task.cells, self.layout.n_strata
        own = np.cumsum(~cells.everywhere) + n_strata
        return [
            (1 + np.flatnonzero(cells.membership[z])).tolist() if shared else [own[z]]
            for z, shared in enumerate(cells.everywhere.tolist())
        ]

    @cached_property
    def per_stratum(self) -> FloatArray | None:
        """What rows of a stratum count in F, where they all count alike."""
        strata = self.layout.n_units == self.layout.n_strata
        return self.in_risk.by_unit if strata else None

    def of_unit(self, unit: int) -> list[tuple[int, float]]:
        """Where a unit's sums are added, and how many times."""
        stratum = 1 + unit % self.layout.n_strata
        found = [(place, 1.0) for place in (stratum, *self.own_cells.get(unit, ()))]
        if self.in_risk.by_unit is not None and self.per_stratum is None:
            found.append((RISK, float(self.in_risk.by_unit[unit])))
        return found

    def gathered(self, sums: Sums, part: int, shape: tuple[int, ...]) -> FloatArray:
        """Return one part of the sums for F and for each cell, shape (1 + Z, …)."""
        out = np.zeros((1 + len(self.task.cells), *shape))
        if RISK in sums:
            out[0] = sums[RISK][part]
        for stratum, weight in enumerate(
            () if self.per_stratum is None else self.per_stratum
        ):
            if 1 + stratum in sums:
                out[0] += weight * sums[1 + stratum][part]
        for cell, places in enumerate(self.of_cells):
            for place in places:
                if place in sums:
                    out[1 + cell] += sums[place][part]
        return out


# By where they are kept: values and gradients in one vector, and a Hessian, if asked.
Sums = dict[int, tuple[FloatArray, FloatArray]]


def add(sums: Sums, place: int, vector: FloatArray, hessian: FloatArray) -> None:
    """Add to the sums that are kept at a place; the arrays are given away."""
    if place not in sums:
        sums[place] = vector, hessian
        return
    into = sums[place]
    np.add(into[0], vector, out=into[0])
    np.add(into[1], hessian, out=into[1])


def _joined(parts: Sequence[Sums]) -> Sums:
    """Add up what the threads found."""
    total: Sums = {}
    for part in parts:
        for place, found in part.items():
            add(total, place, *found)
    return total


def _sums(kept: Kept, queries: Sequence[Expand], pieces: Sequence[Piece]) -> list[Sums]:
    """Sum up run by run: each row enters one product, or two where F needs one."""
    layout, model = kept.layout, linear(kept.task)
    found: list[Sums] = [{} for _ in queries]
    for piece in pieces:
        X, y = layout.X[piece.rows], layout.y[piece.rows]
        weight, per_row = layout.weights(piece.rows), kept.in_risk.rows(piece.rows)
        for query, sums in zip(queries, found, strict=True):
            terms = Terms.of(query, model, X, y)
            if per_row is not None:
                add(sums, RISK, *terms.times(per_row).sums())
            counted = terms if weight is None else terms.times(weight)
            for unit, run in piece.runs:
                vector, hessian = counted.part(run).sums()
                first, *others = kept.of_unit(unit)
                for place, factor in others:
                    add(sums, place, factor * vector, factor * hessian)
                add(sums, first[0], vector, hessian)
    return found


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
        Of Hessians; None where none is asked for.
    """

    model: LinearModel
    X: Design
    values: tuple[FloatArray, ...]
    slopes: FloatArray
    curvatures: FloatArray | None

    @classmethod
    def of(cls, query: Expand, model: LinearModel, X: Design, y: FloatArray) -> Terms:
        """Return the terms of a query."""
        z = model.scores(query.w, X)
        losses, slopes = model.score_losses_and_slopes(z, y)
        values, pulled = [losses], [slopes.reshape(len(y), 1, model.n_outputs)]
        bent = None
        if query.order == 2:
            bent = model.score_curvatures(z, y, majorant=False)
        if query.directions.size:
            pulled.append(model.bent_along(query.directions, X, z, y))
        if query.sharpness:
            scores, steep = query.scores(z)
            values.append(scores)
            pulled.append(steep[:, None, None])
        return cls(model, X, tuple(values), np.concatenate(pulled, axis=1), bent)

    def times(self, weight: FloatArray) -> Terms:
        """Return them times a weight for each row."""
        return self._changed(self.X, lambda terms: weighed(terms, weight))

    def part(self, rows: slice) -> Terms:
        """Return those of some rows."""
        return self._changed(self.X[rows], lambda terms: terms[rows])

    def _changed(self, X: Design, change: Callable[[FloatArray], FloatArray]) -> Terms:
        bent = None if self.curvatures is None else change(self.curvatures)
        values = tuple(map(change, self.values))
        return Terms(self.model, X, values, change(self.slopes), bent)

    def sums(self) -> tuple[FloatArray, FloatArray]:
        """Return values and gradients in one vector, and the Hessian."""
        parts = [[float(v.sum())] for v in self.values]
        vector = np.concatenate([*parts, self.model.pull_back(self.X, self.slopes)])
        if self.curvatures is None:
            return vector, np.zeros((0, 0))
        return vector, self.model.gram(self.X, self.curvatures)


def _expanded(kept: Kept, query: Expand, sums: Sums) -> ExpandTotal:
    """Return the total from what was summed up."""
    (p, d), dims = query.directions.shape, query.dims
    s, h = dims["s"], dims["h"]
    vectors = kept.gathered(sums, 0, ((1 + s) + (1 + d + s) * p,))
    values, gradients = vectors[:, : 1 + s], vectors[:, 1 + s :]
    gradients = gradients.reshape(len(vectors), 1 + d + s, p)
    return ExpandTotal(
        values[:, 0],
        gradients[:, 0],
        kept.gathered(sums, 1, (h, h)),
        gradients[:, 1 : 1 + d],
        values[1:, 1:],
        gradients[1:, 1 + d :],
        np.zeros(0),
        np.zeros(0),
    )


def smooth(
    layout: Layout, queries: Sequence[Expand], spread: Threads
) -> list[ExpandTotal]:
    """Answer queries about one task, for all silos: they ask the same."""
    first = queries[0]

    def part(positions: Sequence[int]) -> FloatArray:
        own = np.zeros((2, 1 + len(first.task.cells)))
        for position in positions:
            found = _silo(layout, first, position)
            own += [found.curvatures, found.peaks]
        return own

    numbers = len(layout) * first.task.model.n_parameters
    parts = spread(part, range(layout.n_silos), numbers)
    sums, peaks = np.sum(parts, axis=0)
    return [replace(_silo(layout, first, 0), curvatures=sums, peaks=peaks)] * len(
        queries
    )


def _silo(layout: Layout, query: Expand, position: int) -> ExpandTotal:
    """Answer for one silo, one cell after the other."""
    task, model, index = query.task, linear(query.task), layout.order[position]
    rows = slice(*layout.first[position : position + 2].tolist())
    X, y, share = layout.X[rows], layout.y[rows], float(task.shares[index])
    strata = layout.units[rows] % layout.n_strata
    in_risk = np.full(len(y), share / (layout.masses[index] or 1.0))
    cells = task.cells.of_silo(int(index))
    here = cells[:, np.unique(strata)].any(axis=1)
    sums = np.zeros(1 + len(cells))
    sums[0] = curvature(model, X, y, layout.weigh(in_risk, rows))
    for cell in np.flatnonzero(here).tolist():
        member = cells[cell, strata].astype(np.float64)
        sums[1 + cell] = curvature(model, X, y, layout.weigh(member, rows))
    return query.curved(sums, share)


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
