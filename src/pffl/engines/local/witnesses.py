"""`witness` for linear models over laid-out rows."""

from __future__ import annotations

from collections.abc import Sequence

from pffl.engines.local.layout import Layout, Piece
from pffl.engines.local.threads import Threads
from pffl.queries import Witness, WitnessTotal
from pffl.queries.expand import linear
from pffl.typing import FloatArray


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
