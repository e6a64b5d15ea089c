"""`evaluate` for linear models over laid-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from pffl.engines.local.columns import run_sums
from pffl.engines.local.layout import Layout, Piece
from pffl.engines.local.threads import Threads, added
from pffl.questions import Evaluate, EvaluateTotal
from pffl.questions.evaluate import COLUMNS
from pffl.questions.slopes import linear
from pffl.typing import FloatArray

MEANS = [COLUMNS.index("loss"), COLUMNS.index("bounded_loss")]
BOUNDED = MEANS[1]
MOST_SUMS = 1 << 22  # numbers of a stack of evaluations


def evaluate(
    layout: Layout, questions: Sequence[Evaluate], spread: Threads
) -> list[EvaluateTotal]:
    """Answer questions about one task and split, for all silos."""
    at_once = max(1, MOST_SUMS // (layout.n_units * max(q.width for q in questions)))
    if len(questions) > at_once:
        head, tail = questions[:at_once], questions[at_once:]
        return evaluate(layout, head, spread) + evaluate(layout, tail, spread)
    task = questions[0].task
    model, in_risk = linear(task), layout.in_risk(task.shares)

    def sums_of(pieces: Sequence[Piece]) -> list[FloatArray]:
        """Sum up for each unit, and in the last row for F."""
        sums = [np.zeros((layout.n_units + 1, q.width)) for q in questions]
        for piece in pieces:
            rows = piece.rows
            X, y = layout.X[rows], layout.y[rows]
            weight, per_row = layout.weights(rows), in_risk.rows(rows)
            times = 1.0 if layout.times is None else layout.times[rows]
            for place, (question, into) in enumerate(zip(questions, sums, strict=True)):
                z = model.scores(question.w, X)
                columns = question.columns(
                    model.score_losses(z, y),
                    model.score_classes(z),
                    y,
                    partial(model.score_bounded_losses, z, y),
                )
                weighed = question.weighed(columns, weight, times)
                into[piece.units] += run_sums(piece, weighed)
                if per_row is not None:
                    for mean in MEANS:
                        into[-1, mean] += (columns[:, mean] * per_row).sum()
                if question.by_row:
                    bounded[place][rows] = columns[:, BOUNDED]
        return sums

    bounded = [np.zeros(len(layout) if q.by_row else 0) for q in questions]
    parts = spread(sums_of, layout.pieces(), len(layout))
    found = [added(sums) for sums in zip(*parts, strict=True)]
    if in_risk.by_unit is not None:
        for sums in found:
            sums[-1] = in_risk.by_unit @ sums[:-1]
    return [
        _evaluated(layout, *each)
        for each in zip(questions, found, bounded, strict=True)
    ]


def _evaluated(
    layout: Layout, question: Evaluate, sums: FloatArray, bounded: FloatArray
) -> EvaluateTotal:
    """Return the total from sums per unit and for F, and bounded losses row by row."""
    task, width = question.task, len(COLUMNS)
    cells = layout.cell_sums(task.cells, sums[:-1])
    risk, bounded_risk = sums[-1, MEANS].tolist()
    return EvaluateTotal(
        layout.atom_sums(sums[:-1])[:, :width],
        cells[:, :width],
        risk,
        bounded_risk,
        float(task.shares[layout.masses > 0].sum()),
        cells[:, width:],
        *layout.row_sums(question, bounded),
    )
