"""Rows by silo: for local steps, and for cells of one silo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pffl.constraints.base import Cells
from pffl.data.federation import Federation
from pffl.data.sparse import Matrix, stacked
from pffl.engines.local.layout import InRisk, Layout, in_pieces, piece_rows
from pffl.models.base import Inputs
from pffl.models.scaled import Design, ScaledRows
from pffl.queries import Evaluate
from pffl.typing import BoolArray, FloatArray, IntArray

GROUP_COST = 3000  # a group of silos costs as much as so many scores


@dataclass(frozen=True, eq=False, kw_only=True)
class BySilo(Layout):
    """Silos in order of size, rows of a silo in order of their atom.

    So silos of equal size form a block without padding. A unit is a silo's position ×
    atoms + atom.

    Attributes
    ----------
    order
        Index in the federation of the silo at each position, shape (K,).
    starts
        First row of each position, and N at the end, shape (K + 1,).
    original_rows
        For each position, which of the silo's own rows stands where.
    """

    order: IntArray
    starts: IntArray
    original_rows: tuple[IntArray, ...]

    @classmethod
    def of(cls, federation: Federation, split: str, inputs: Inputs) -> BySilo:
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
        masses, original_rows = sizes.astype(np.float64), []
        for position, index in enumerate(order):
            rows = parts[index]
            here = slice(starts[position], starts[position + 1])
            atoms = schema.atoms(rows.group, rows.y)
            by_atom = np.argsort(atoms, kind="stable")
            y[here] = rows.y[by_atom]
            units[here] = position * schema.n_atoms + atoms[by_atom]
            if weight is not None:
                weight[here] = rows.weights[by_atom]
                masses[index] = weight[here].sum()
            original_rows.append(by_atom)
        return cls(
            X=_laid_out([parts[k].X for k in order], original_rows, inputs),
            y=y,
            units=units,
            n_atoms=schema.n_atoms,
            masses=masses,
            weight=weight,
            order=order,
            starts=starts,
            original_rows=tuple(original_rows),
        )

    @property
    def n_silos(self) -> int:
        """Number of silos K."""
        return len(self.order)

    @property
    def n_units(self) -> int:
        """Number of units."""
        return self.n_silos * self.n_atoms

    @cached_property
    def sizes(self) -> IntArray:
        """Rows of each position."""
        return np.diff(self.starts)

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

    def by_silo(self, sums: FloatArray) -> FloatArray:
        """Reshape sums per unit to (silos, atoms, …), in the federation's order."""
        out = np.empty((self.n_silos, self.n_atoms, *sums.shape[1:]))
        out[self.order] = sums.reshape(out.shape)
        return out

    def cell_sums(self, cells: Cells, sums: FloatArray) -> FloatArray:
        """Add sums per unit, shape (units, …), into sums per cell."""
        return cells.totals(self.by_silo(sums))

    def atom_sums(self, sums: FloatArray) -> FloatArray:
        """Add sums per unit, shape (units, …), into sums per atom."""
        shape = (self.n_silos, self.n_atoms, *sums.shape[1:])
        return np.asarray(sums.reshape(shape).sum(axis=0))

    def unit_weights(self, cells: Cells, weights: FloatArray) -> FloatArray:
        """Turn weights per cell, shape (Z, c), into weights per unit, (units, c)."""
        if cells.everywhere.all():
            return np.tile(
                cells.membership.T.astype(np.float64) @ weights, (self.n_silos, 1)
            )
        spread = [cells.spread(each, self.n_silos)[self.order] for each in weights.T]
        return np.stack(spread, axis=2).reshape(self.n_units, -1)

    def units_of(self, silos: BoolArray) -> BoolArray:
        """Say which units are of these silos."""
        return np.repeat(silos[self.order], self.n_atoms)

    def member(self, cells: Cells) -> Callable[[int], BoolArray]:
        """Return what says which rows are in a cell."""
        positions, atoms = np.divmod(self.units, self.n_atoms)
        silos = self.order[positions]

        def member(cell: int) -> BoolArray:
            rows: BoolArray = cells.membership[cell][atoms]
            if cells.everywhere[cell]:
                return rows
            return rows & (silos == cells.silo[cell])

        return member

    def row_sums(self, query: Evaluate, bounded: FloatArray) -> tuple[FloatArray, ...]:
        """Return what `Evaluate.row_sums` does, from each row's bounded loss."""
        member = self.member(query.task.cells)
        return query.row_sums(bounded, member, weight=self.weight)

    def _in_risk(self, per_mass: FloatArray) -> InRisk:
        return InRisk(by_unit=np.repeat(per_mass[self.order], self.n_atoms))


def _laid_out(
    parts: Sequence[Matrix], orders: Sequence[IntArray], inputs: Inputs
) -> Design:
    """Return scaled rows of all parts, one after another, each in its order."""
    dense = [part for part in parts if isinstance(part, np.ndarray)]
    if len(dense) < len(parts):
        together = zip(parts, orders, strict=True)
        return inputs.apply(stacked([X[order] for X, order in together]))
    out, first = np.empty((sum(map(len, orders)), len(inputs.mean))), 0
    for X, order in zip(dense, orders, strict=True):
        for part in in_pieces(len(order), piece_rows(out.shape[1])):
            index = order[part]
            inputs.apply(X[index], out=out[first : first + len(index)])
            first += len(index)
    return out
