"""`evaluate` for linear models over laid-out rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pffl.engines._columns import run_sums
from pffl.engines._layout import Layout, Piece
from pffl.engines._threads import Spread
from pffl.models.linear import LinearModel
from pffl.questions import Evaluate, EvaluateTotal
from pffl.questions.curvature import linear
from pffl.questions.evaluate import COLUMNS
from pffl.typing import FloatArray


def evaluate(layout: Layout, question: Evaluate, spread: Spread) -> EvaluateTotal:
    """Answer for all silos."""
    model, task = linear(question.task), question.task
    sums = np.sum(
        spread(
            lambda pieces: evaluate_pass(layout, question, model, pieces),
            layout.pieces(),
            len(layout.X),
        ),
        axis=0,
    )
    by_silo = layout.to_federation(
        np.reshape(sums, (layout.n_silos, layout.n_atoms, -1))
    )
    counts = by_silo[:, :, 0].sum(axis=1)
    present = counts > 0
    losses = by_silo[:, :, 1].sum(axis=1)
    means = np.divide(losses, counts, out=np.zeros_like(losses), where=present)
    return EvaluateTotal(
        by_silo.sum(axis=0),
        task.cells.totals(by_silo),
        float(task.shares @ means),
        float(task.shares[present].sum()),
    )


def evaluate_pass(
    layout: Layout, question: Evaluate, model: LinearModel, pieces: Sequence[Piece]
) -> FloatArray:
    """Sums of the evaluation columns per unit."""
    sums = np.zeros((layout.n_silos * layout.n_atoms, len(COLUMNS)))
    for piece in pieces:
        y = layout.y[piece.rows]
        z = model.scores(question.w, layout.X[piece.rows])
        values = question.columns(model.score_losses(z, y), model.score_classes(z), y)
        sums[piece.units] += run_sums(piece, values)
    return sums
