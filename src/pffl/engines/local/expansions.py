"""`expand` for linear models over laid-out rows.

Sums are kept for F, for each atom, and for each cell of one silo; those of the other
cells follow from the atoms'. Rows of one atom stand together, so a thread has Hessians
of few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pffl.engines.local.by_silo import BySilo
from pffl.engines.local.layout import InRisk, Layout, Piece
from pffl.engines.local.smoothing import smooth
from pffl.engines.local.threads import Threads
from pffl.models.linear import LinearModel
from pffl.models.scaled import Design
from pffl.queries import Expand, ExpandTotal, Task
from pffl.queries.base import weighed
from pffl.queries.expand import linear
from pffl.typing import FloatArray

RISK = 0  # where the sums for F are kept; those of atoms follow, then cells of one silo


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
        _expanded(kept, query, added(each))
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
        if cells.everywhere.all() or not isinstance(layout, BySilo):
            return found
        position = np.argsort(layout.order)
        for place, cell in enumerate(np.flatnonzero(~cells.everywhere).tolist()):
            first = int(position[cells.silo[cell]]) * layout.n_atoms
            for atom in np.flatnonzero(cells.membership[cell]).tolist():
                here = found.setdefault(first + atom, [])
                here.append(1 + layout.n_atoms + place)
        return found

    @cached_property
    def of_cells(self) -> list[list[int]]:
        """Where the sums are kept that make up those of each cell."""
        cells, n_atoms = self.task.cells, self.layout.n_atoms
        own = np.cumsum(~cells.everywhere) + n_atoms
        return [
            (1 + np.flatnonzero(cells.membership[z])).tolist() if shared else [own[z]]
            for z, shared in enumerate(cells.everywhere.tolist())
        ]

    @cached_property
    def per_atom(self) -> FloatArray | None:
        """What rows of an atom count in F, where they all count alike."""
        atoms = self.layout.n_units == self.layout.n_atoms
        return self.in_risk.by_unit if atoms else None

    def of_unit(self, unit: int) -> list[tuple[int, float]]:
        """Where a unit's sums are added, and how many times."""
        atom = 1 + unit % self.layout.n_atoms
        found = [(place, 1.0) for place in (atom, *self.own_cells.get(unit, ()))]
        if self.in_risk.by_unit is not None and self.per_atom is None:
            found.append((RISK, float(self.in_risk.by_unit[unit])))
        return found

    def gathered(self, sums: Sums, part: int, shape: tuple[int, ...]) -> FloatArray:
        """Return one part of the sums for F and for each cell, shape (1 + Z, …)."""
        out = np.zeros((1 + len(self.task.cells), *shape))
        if RISK in sums:
            out[0] = sums[RISK][part]
        for atom, weight in enumerate(() if self.per_atom is None else self.per_atom):
            if 1 + atom in sums:
                out[0] += weight * sums[1 + atom][part]
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


def added(parts: Sequence[Sums]) -> Sums:
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
        return Terms(
            self.model,
            self.X,
            tuple(weighed(v, weight) for v in self.values),
            weighed(self.slopes, weight),
            None if self.curvatures is None else weighed(self.curvatures, weight),
        )

    def part(self, rows: slice) -> Terms:
        """Return those of some rows."""
        return Terms(
            self.model,
            self.X[rows],
            tuple(v[rows] for v in self.values),
            self.slopes[rows],
            None if self.curvatures is None else self.curvatures[rows],
        )

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
