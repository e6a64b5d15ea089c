"""`evaluate` for linear models over laid-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from pffl.engines.local.columns import run_sums
from pffl.engines.local.layout import Layout, Piece
from pffl.engines.local.threads import Threads, added
from pffl.queries import Evaluate, EvaluateTotal
from pffl.queries.evaluate import COLUMNS
from pffl.queries.expand import linear
from pffl.typing import FloatArray

MEANS = [COLUMNS.index("loss"), COLUMNS.index("bounded_loss")]
BOUNDED = MEANS[1]
MOST_SUMS = 1 << 22  # numbers of a stack of evaluations


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
                into[piece.units] += run_sums(piece, weighed)
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
        layout.atom_sums(sums[:-1])[:, :width],
        cells[:, :width],
        risk,
        bounded_risk,
        float(task.shares[layout.masses > 0].sum()),
        cells[:, width:],
        *layout.row_sums(query, bounded),
    )
