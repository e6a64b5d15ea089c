"""`witness`: a plane below a weighted loss, from slopes near those at w.

With weights c_i ≥ 0 and any slopes u_i at which the conjugate ℓ* is finite,

    Σ c_i ℓ_i(w')  ≥  Σ c_i (−ℓ*(u_i))  +  (Σ c_i u_i ⊗ (x_i, 1))ᵀ w'     for every w'

(Fenchel and Young). The silos take u_i from w, moved along `direction` as second order
says, and answer with both sums: `value` and `residual`. If the residual is 0, `value`
is a lower bound for all models, however long their weights are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar

import numpy as np

from pffl.bounds.infeasible import BLOCK
from pffl.models.linear import LinearModel
from pffl.models.scaled import Design, ScaledRows, row_squares
from pffl.queries.base import ModelQuery, View
from pffl.queries.expand import linear
from pffl.queries.fields import RowRange, Total, array, number, scalar, vector
from pffl.typing import FloatArray

SIZE = RowRange(0.0, called="a size")


class WitnessTotal(Total):
    """Sums over silos.

    Attributes
    ----------
    value
        Σ c_i (−ℓ*(u_i)).
    residual
        Σ c_i u_i ⊗ (x_i, 1).
    sizes
        Sums of the terms of both without their signs, by which rounding is bounded:
        of `value`, and Σ c_i ‖u_i‖ ‖(x_i, 1)‖.
    """

    value: float = number()
    residual: FloatArray = array("p")
    sizes: FloatArray = array(2, row=SIZE)


class Witness(ModelQuery[WitnessTotal]):
    """Ask for the plane of the slopes at `w`, moved along `direction`.

    Attributes
    ----------
    risk_weight, cell_weights
        β and λ_z/m_z ≥ 0: c_i = s_i(β p_k/m_k + Σ_{z∋i} λ_z/m_z).
    direction
        v: the score of row i moves by −(x_i, 1)ᵀv.
    """

    total_type: ClassVar = WitnessTotal

    risk_weight: float = scalar()
    cell_weights: FloatArray = vector("z")
    direction: FloatArray = vector("p")
    split: str = field(default="train", init=False)

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        """Everything that rows are scored with."""
        return self.w, self.direction

    def answer(self, view: View) -> WitnessTotal:
        """Answer for one silo."""
        per_stratum = self.cell_weights @ self.task.cells.of_silo(view.index)
        share = float(self.task.shares[view.index])
        in_risk = self.risk_weight * share / (view.mass or 1.0)
        weights = view.weigh(per_stratum[view.stratum] + in_risk)
        return self.total(self.sums(linear(self.task), view.X, view.y, weights))

    def sums(
        self, model: LinearModel, X: Design, y: FloatArray, weights: FloatArray
    ) -> list[FloatArray]:
        """Return the plain sums of each block of rows, packed."""
        shift = model.scores(self.direction, X)
        slopes, values, sizes = model.duals(model.scores(self.w, X), y, shift)
        lengths = _lengths(X, model)
        if slopes.ndim == 1:
            lengths *= np.abs(slopes)
            slopes = slopes * weights
        else:  # on the simplex only up to rounding of 1
            lengths *= 1.0 + np.linalg.norm(slopes, axis=1)
            slopes = slopes * weights[:, None]
        columns = np.stack([values, sizes, lengths], axis=1) * weights[:, None]
        if isinstance(X, ScaledRows):  # a block is as wide as all columns
            sums = np.ascontiguousarray(columns.T).sum(axis=1)
            return [np.append(sums, _pairwise_residual(model, X, slopes))]
        return [
            np.append(columns[rows].sum(axis=0), model.pull_back(X[rows], slopes[rows]))
            for rows in (slice(i, i + BLOCK) for i in range(0, len(X), BLOCK))
        ]

    def total(self, blocks: Sequence[FloatArray]) -> WitnessTotal:
        """Add blocks up exactly: the residual is what is left of large terms."""
        if not blocks:
            blocks = [np.zeros(3 + self.task.model.n_parameters)]
        sums = blocks[0]
        if len(blocks) > 1:
            columns = np.stack(blocks, axis=1).tolist()
            sums = np.array([math.fsum(column) for column in columns])
        return WitnessTotal(float(sums[0]), sums[3:], sums[1:3])


def _lengths(X: Design, model: LinearModel) -> FloatArray:
    """Return ‖(x, 1)‖ of each row; of sparse ones a bound on what their sums add up."""
    if isinstance(X, ScaledRows):
        return np.hypot(X.lengths(), model.intercept)
    return np.sqrt(row_squares(X) + model.intercept)


def _pairwise_residual(
    model: LinearModel, X: ScaledRows, slopes: FloatArray
) -> FloatArray:
    """Return ``Σ_i slopes_i ⊗ (x_i, 1)``, added up in pairs."""
    columns = np.ascontiguousarray(slopes.reshape(len(X), -1).T)
    residual = X.pairwise(columns)
    if model.intercept:
        residual = np.column_stack([residual, columns.sum(axis=1)])
    return residual.reshape(-1)
