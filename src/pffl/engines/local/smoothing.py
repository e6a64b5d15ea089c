"""`expand` of order 0 for linear models over laid-out rows, silo by silo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pffl.engines.local.by_silo import BySilo
from pffl.engines.local.layout import Layout
from pffl.engines.local.threads import Threads
from pffl.queries import Expand, ExpandTotal
from pffl.queries.expand import curvature, linear
from pffl.typing import FloatArray


def smooth(
    layout: Layout, queries: Sequence[Expand], spread: Threads
) -> list[ExpandTotal]:
    """Answer queries about one task, for all silos: they ask the same."""
    first = queries[0]
    if not isinstance(layout, BySilo):
        raise TypeError("silos' own curvatures need rows by silo")

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


def _silo(layout: BySilo, query: Expand, position: int) -> ExpandTotal:
    """Answer for one silo, one cell after the other."""
    task, model, index = query.task, linear(query.task), layout.order[position]
    rows = slice(*layout.starts[position : position + 2].tolist())
    X, y, share = layout.X[rows], layout.y[rows], float(task.shares[index])
    atoms = layout.units[rows] % layout.n_atoms
    in_risk = np.full(len(y), share / (layout.masses[index] or 1.0))
    cells = task.cells.of_silo(int(index))
    here = cells[:, np.unique(atoms)].any(axis=1)
    sums = np.zeros(1 + len(cells))
    sums[0] = curvature(model, X, y, layout.weigh(in_risk, rows))
    for cell in np.flatnonzero(here).tolist():
        member = cells[cell, atoms].astype(np.float64)
        sums[1 + cell] = curvature(model, X, y, layout.weigh(member, rows))
    return query.curved(sums, share)
