"""Rows by atom: those of all silos together, equal ones once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pffl.constraints.base import Cells
from pffl.data.federation import Federation
from pffl.data.sparse import Matrix, stacked, stored_width
from pffl.engines.local.layout import InRisk, Layout, in_pieces, piece_rows
from pffl.engines.local.merging import Raw, merge
from pffl.models.base import Inputs
from pffl.models.scaled import Design
from pffl.queries import Evaluate
from pffl.typing import BoolArray, FloatArray, IntArray

LONG = 128  # rows of a silo's atom: a run of more costs less than a further weight
ALIKE = 4 * np.finfo(np.float64).eps  # relative: p_k/m_k that differ by rounding only


@dataclass(frozen=True, eq=False, kw_only=True)
class ByAtom(Layout):
    """Rows in order of their atom, equal ones merged where that pays.

    A unit is an atom. A row has two weights: what it counts in its cells, and in F.

    Attributes
    ----------
    silo, own
        Silo of each row of the federation, in the order of `X`, and its own weight
        s_i, if they have such.
    starts
        Where the rows begin that each row stands for; None if it is each for itself.
    """

    silo: NDArray[np.int32]
    own: FloatArray | None = None
    starts: IntArray | None = None

    @classmethod
    def of(cls, federation: Federation, split: str, inputs: Inputs) -> ByAtom | None:
        """Lay out one split of a federation, if that pays."""
        schema = federation.schema
        parts = [silo.rows(split).counting for silo in federation.silos]
        sizes = np.array([len(part) for part in parts])
        y = np.concatenate([part.y for part in parts])
        group = np.concatenate([part.group for part in parts])
        atoms, given = schema.atoms(group, y), [part.X for part in parts]
        raw = Raw.of(given)
        merged = None if raw is None else merge(raw, y, atoms, inputs.scale)
        if merged is None and len(y) > _long(given) * len(sizes) * schema.n_atoms:
            return None
        X: Design
        if merged is not None:
            order, starts = merged.order, merged.starts
            firsts, X = order[starts], _scaled(merged.X, inputs)
        else:
            order, starts = np.argsort(atoms, kind="stable"), None
            firsts = order
            if raw is None:
                X = inputs.apply(stacked(given)[order])
            else:
                X = _scaled(raw.take(order), inputs)
        own, masses = None, sizes.astype(np.float64)
        if any(part.weight is not None for part in parts):
            weights = [part.weights for part in parts]
            masses = np.array([part.sum() for part in weights])
            own = np.concatenate(weights)[order]
        times = None
        if starts is not None:
            times = np.diff(starts, append=len(y)).astype(np.float64)
        return cls(
            X=X,
            y=y[firsts],
            units=atoms[firsts],
            n_atoms=schema.n_atoms,
            masses=masses,
            weight=times if own is None else _added(own, starts),
            times=times,
            silo=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)[order],
            own=own,
            starts=starts,
        )

    @property
    def n_units(self) -> int:
        """Number of units."""
        return self.n_atoms

    def cell_sums(self, cells: Cells, sums: FloatArray) -> FloatArray:
        """Add sums per unit, shape (units, …), into sums per cell."""
        return np.tensordot(cells.membership.astype(np.float64), sums, axes=1)

    def atom_sums(self, sums: FloatArray) -> FloatArray:
        """Return the sums: a unit is an atom."""
        return sums

    def unit_weights(self, cells: Cells, weights: FloatArray) -> FloatArray:
        """Turn weights per cell, shape (Z, c), into weights per unit, (units, c)."""
        return np.asarray(cells.membership.T.astype(np.float64) @ weights)

    def units_of(self, silos: BoolArray) -> BoolArray:
        """Return all units: silos are mixed in each."""
        return np.ones(self.n_units, dtype=bool)

    def member(self, cells: Cells) -> Callable[[int], BoolArray]:
        """Return what says which rows are in a cell."""
        return lambda cell: cells.membership[cell][self.units]

    def row_sums(self, query: Evaluate, bounded: FloatArray) -> tuple[FloatArray, ...]:
        """Return what `Evaluate.row_sums` does, from each row's bounded loss."""
        member = self.member(query.task.cells)
        if self.times is None or not query.weighs:
            return query.row_sums(bounded, member, weight=self.own, times=self.times)
        # Each row of the federation puts in its own weight.
        rows = np.repeat(np.arange(len(self)), self.times.astype(np.int64))
        return query.row_sums(
            bounded[rows], lambda cell: member(cell)[rows], weight=self.own
        )

    def _in_risk(self, per_mass: FloatArray) -> InRisk:
        there = per_mass[self.masses > 0]
        most = there.max(initial=0.0)
        if most - there.min(initial=most) <= ALIKE * most:
            return InRisk(by_unit=np.full(self.n_atoms, most))
        rows = per_mass[self.silo]
        if self.own is not None:
            rows *= self.own
        return InRisk(by_row=_added(rows, self.starts))


def _long(inputs: Sequence[Matrix]) -> int:
    """Return how many rows of a silo's atom cost less than a further weight does.

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
