"""`curvature`: F and each cell's loss to first or second order, and scores.

Hessians need a linear model. With `sharpness` s the silos add, per cell, the sum of
σ(s·z) over its examples and that sum's gradient: a smooth count of positive
predictions, which methods on parity gaps descend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pffl.errors import UsageError
from pffl.models.linear import LinearModel
from pffl.numerics import sigmoid
from pffl.questions.base import ModelQuestion, Task, View
from pffl.typing import FloatArray

PEAK_POWER = 8  # q: the bound on the largest of K silos is loose by K^(1/8) at most


@dataclass(frozen=True, eq=False)
class CurvatureTotal:
    """Sums over silos: of p_k × silo means for F (no ridge), of examples for cells.

    Hessians are empty at order 1; scores are 0 unless they were asked for. `peaks`, for
    a majorant, holds Σ_k ‖H‖^q for F and for each cell, H being the silo's own Hessian
    in its G_k: a sum that adds, and whose q-th root bounds the largest of them.
    """

    risk: float
    risk_gradient: FloatArray
    risk_hessian: FloatArray
    cell_losses: FloatArray
    cell_gradients: FloatArray
    cell_hessians: FloatArray
    cell_scores: FloatArray
    cell_score_gradients: FloatArray
    peaks: FloatArray

    def __add__(self, other: CurvatureTotal) -> CurvatureTotal:
        return CurvatureTotal(
            self.risk + other.risk,
            self.risk_gradient + other.risk_gradient,
            self.risk_hessian + other.risk_hessian,
            self.cell_losses + other.cell_losses,
            self.cell_gradients + other.cell_gradients,
            self.cell_hessians + other.cell_hessians,
            self.cell_scores + other.cell_scores,
            self.cell_score_gradients + other.cell_score_gradients,
            self.peaks + other.peaks,
        )


@dataclass(frozen=True, eq=False)
class Curvature(ModelQuestion[CurvatureTotal]):
    """Ask for expansions at `w`.

    Attributes
    ----------
    majorant
        Hessians are upper bounds that hold at every w (for step sizes).
    order
        2 with Hessians, 1 without.
    sharpness
        s of the smooth scores σ(s·z); 0 for none.
    """

    majorant: bool = False
    order: Literal[1, 2] = 2
    sharpness: float = 0.0
    split: str = field(default="train", init=False)

    def answer(self, view: View) -> CurvatureTotal:
        """Answer for one silo, one cell after the other."""
        model = linear(self.task)
        share = self.task.shares[view.index] / len(view)
        member = self.task.cells.of_silo(view.index)[:, view.atom]
        rows = np.concatenate([np.full((1, len(view)), share), member])
        losses = model.losses(self.w, view.X, view.y)
        gradients = [
            model.losses_and_gradient(self.w, view.X, view.y, weights)[1]
            for weights in rows
        ]
        h = model.n_parameters if self.order == 2 else 0
        hessians = [
            model.hessian(self.w, view.X, view.y, weights, majorant=self.majorant)
            for weights in (rows if h else ())
        ]
        scores, slopes = self.scores(model.scores(self.w, view.X))
        p = model.n_parameters
        return CurvatureTotal(
            float(share * losses.sum()),
            gradients[0],
            hessians[0] if h else np.zeros((0, 0)),
            member @ losses,
            np.reshape(gradients[1:], (-1, p)),
            np.reshape(hessians[1:], (len(member), h, h)),
            member @ scores,
            self.pulled_back(model, view, slopes, member),
            self.own_peaks(view, hessians),
        )

    def own_peaks(self, view: View, hessians: Sequence[FloatArray]) -> FloatArray:
        """Return ‖H‖^q of F's and each cell's part in G_k, per unit of its weight."""
        if not (self.majorant and hessians):
            return np.zeros(1 + len(self.task.cells))
        share = float(self.task.shares[view.index])
        return powers(np.stack(hessians)[None] / share)[0]

    def pulled_back(
        self, model: LinearModel, view: View, slopes: FloatArray, member: FloatArray
    ) -> FloatArray:
        """Gradients of the cells' score sums."""
        if not self.sharpness:
            return np.zeros((len(member), model.n_parameters))
        rows = [model.pull_back(view.X, slopes * weights) for weights in member]
        return np.reshape(rows, (-1, model.n_parameters))

    def scores(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return σ(s·z) and its slope for each example; zeros if not asked for."""
        if not self.sharpness:
            return np.zeros(len(z)), np.zeros_like(z)
        if z.ndim > 1:
            raise UsageError("smooth scores need a model with one score per example")
        smooth = sigmoid(self.sharpness * z)
        return smooth, self.sharpness * smooth * (1 - smooth)


def powers(hessians: FloatArray) -> FloatArray:
    """Return ‖H‖^q over the last two axes, in Schatten's 4-norm, ≥ λ_max(H)."""
    square = hessians @ hessians
    return np.sqrt(np.einsum("...ij,...ij->...", square, square) ** 0.5) ** PEAK_POWER


def linear(task: Task) -> LinearModel:
    """Return the task's model, which must be a linear one."""
    if not isinstance(task.model, LinearModel):
        raise UsageError(
            f"{type(task.model).__name__} has no curvature to ask for: use the method "
            "PFFL, which needs gradients only"
        )
    return task.model
