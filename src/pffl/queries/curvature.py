"""`curvature`: F and each cell's loss to second order, for linear models."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

import numpy as np

from pffl.queries.base import ModelQuery, View
from pffl.queries.declared import ROUNDING, Total, array, number
from pffl.queries.plausible import LOSS, Known, within
from pffl.queries.slopes import (
    check_first_order,
    linear,
    pulled_back,
    risk,
    row_weights,
)
from pffl.typing import FloatArray


class CurvatureTotal(Total):
    """Sums over silos: of p_k × silo means for F (no ridge), of examples for cells."""

    risk: float = number(LOSS)
    risk_gradient: FloatArray = array("p")
    risk_hessian: FloatArray = array("p", "p", symmetric=True)
    cell_losses: FloatArray = array("z", row=LOSS)
    cell_gradients: FloatArray = array("z", "p")
    cell_hessians: FloatArray = array("z", "p", "p", symmetric=True)


class Curvature(ModelQuery[CurvatureTotal]):
    """Ask for expansions at `w`."""

    total_type: ClassVar = CurvatureTotal

    split: str = field(default="train", init=False)

    def passes(self, rows: float) -> float:
        """A gradient, and a Hessian."""
        return 1.0 + (self.task.model.n_parameters + 1) / 4

    def answer(self, view: View) -> CurvatureTotal:
        """Answer for one silo, one cell after the other."""
        model, weights = linear(self.task), row_weights(self.task, view)
        losses, slopes = model.score_losses_and_slopes(
            model.scores(self.w, view.X), view.y
        )
        gradients = pulled_back(model, view.X, slopes, weights)
        hessians = [model.hessian(self.w, view.X, view.y, row) for row in weights]
        return CurvatureTotal(
            risk(self.task, view, losses),
            gradients[0],
            hessians[0],
            # Pairwise, unlike a product: what rounding can do stays small.
            (weights[1:] * losses).sum(axis=1),
            gradients[1:],
            np.reshape(hessians[1:], (-1, *hessians[0].shape)),
        )

    def check(self, known: Known, total: CurvatureTotal) -> CurvatureTotal:
        """Judge values, gradients and Hessians of one silo."""
        check_first_order(known, self.w, total)
        _check_hessians(known, total, known.in_risk)
        total.check_ranges(known.in_each, self.scales, known.in_weight)
        return total


def _check_hessians(known: Known, total: CurvatureTotal, weight: float) -> None:
    """Demand 0 ≤ H_ii ≤ curvature·q_i² and |H_ij|² ≤ H_ii·H_jj."""
    shape, columns = known.ceilings.shape, known.ceilings.columns
    if shape is None:
        return
    hessians = np.concatenate([total.risk_hessian[None], total.cell_hessians])
    q = np.tile(columns, hessians.shape[-1] // len(columns))
    scale = shape.curvature * np.append(weight, np.ones(len(known.member)))[:, None]
    diagonal = np.diagonal(hessians, axis1=1, axis2=2)
    slack = ROUNDING * scale * q**2
    within(diagonal, -slack, scale * q**2 + slack, "a Hessian's diagonal")
    root = np.sqrt(np.maximum(diagonal, 0.0) + slack)
    most = root[:, :, None] * root[:, None, :] * (1 + ROUNDING)
    within(hessians, -most, most, "a Hessian")
