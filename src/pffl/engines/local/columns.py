"""Scores of several models as columns of one product."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pffl.engines.local.layout import Piece
from pffl.models.linear import LinearModel
from pffl.models.scaled import Design
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class Columns:
    """Coefficients as columns of one product, and the pointwise parts of the model.

    Scores of one model with q outputs, or of S models with one output each, are its
    columns.
    """

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
        if self.model.n_outputs > 1:
            return self.model.score_losses(z, y)[:, None]
        return self.model.score_losses(z, y[:, None])

    def losses_and_slopes(
        self, z: FloatArray, y: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return losses, shape (n, models), and slopes, shape (n, columns)."""
        if self.model.n_outputs > 1:
            losses, slopes = self.model.score_losses_and_slopes(z, y)
            return losses[:, None], slopes
        return self.model.score_losses_and_slopes(z, y[:, None])

    def pull_back(self, X: Design, slopes: FloatArray, out: FloatArray) -> None:
        """Add the gradients, shape (columns, features + intercept), to `out`."""
        d = X.shape[1]
        out[:, :d] += slopes.T @ X
        if self.model.intercept:
            out[:, d] += slopes.sum(axis=0)


def run_sums(piece: Piece, values: FloatArray) -> FloatArray:
    """Sum rows, shape (n, c), over each run."""
    if values.shape[1] == 1:
        return np.add.reduceat(values[:, 0], piece.starts)[:, None]
    return np.add.reduceat(values, piece.starts, axis=0)
