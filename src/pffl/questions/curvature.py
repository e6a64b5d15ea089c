"""`curvature`: F and each cell's loss to first or second order, and scores.

Hessians need a linear model. With `sharpness` s the silos add, per cell, the sum of
σ(s·z) over its examples and that sum's gradient: a smooth count of positive
predictions, which methods on parity gaps descend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar, Literal

import numpy as np

from pffl.errors import UsageError
from pffl.models.linear import LinearModel
from pffl.numerics import sigmoid
from pffl.questions.base import ModelQuestion, Task, View
from pffl.questions.declared import (
    ROUNDING,
    Dims,
    Row,
    Total,
    array,
    choice,
    number,
    scalar,
)
from pffl.questions.plausible import LOSS, Known, check_length, near, require, within
from pffl.typing import FloatArray

SCORE = Row(0.0, 1.0, weighted=True, called="a score")
PEAK_POWER = 8  # q: the bound on the largest of K silos is loose by K^(1/8) at most


class CurvatureTotal(Total):
    """Sums over silos: of p_k × silo means for F (no ridge), of examples for cells.

    Hessians are empty at order 1; scores are 0 unless they were asked for. `peaks`, for
    a majorant, holds Σ_k ‖H‖^q for F and for each cell, H being the silo's own Hessian
    in its G_k: a sum that adds, and whose q-th root bounds the largest of them.
    """

    risk: float = number(LOSS)
    risk_gradient: FloatArray = array("p")
    risk_hessian: FloatArray = array("h", "h", symmetric=True)
    cell_losses: FloatArray = array("z", row=LOSS)
    cell_gradients: FloatArray = array("z", "p")
    cell_hessians: FloatArray = array("z", "h", "h", symmetric=True)
    cell_scores: FloatArray = array("z", row=SCORE)
    cell_score_gradients: FloatArray = array("z", "p")
    peaks: FloatArray = array("1+z")


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

    total_type: ClassVar = CurvatureTotal

    majorant: bool = choice(False, True, default=False)
    order: Literal[1, 2] = choice(1, 2, default=2)
    sharpness: float = scalar(default=0.0)
    split: str = field(default="train", init=False)

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer; h is that of Hessians."""
        p = self.task.model.n_parameters
        return {**super().dims, "h": p if self.order == 2 else 0}

    @property
    def steepness(self) -> float:
        """By how much the answer is steeper in w than losses are."""
        return max(self.sharpness, 1.0)

    def answer(self, view: View) -> CurvatureTotal:
        """Answer for one silo, one cell after the other."""
        model = linear(self.task)
        share = self.task.shares[view.index] / view.mass
        member = self.task.cells.of_silo(view.index)[:, view.atom]
        if view.weight is not None:
            member = member * view.weight
        in_risk = view.weigh(np.full(len(view), share))
        rows = np.concatenate([in_risk[None], member])
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
        rows = member if self.sharpness else np.zeros((0, len(view)))
        pulled = [model.pull_back(view.X, slopes * weights) for weights in rows]
        p = model.n_parameters
        return CurvatureTotal(
            float(share * view.weigh(losses).sum()),
            gradients[0],
            hessians[0] if h else np.zeros((0, 0)),
            # Pairwise, unlike a product: what rounding can do stays small.
            (member * losses).sum(axis=1),
            np.reshape(gradients[1:], (-1, p)),
            np.reshape(hessians[1:], (len(member), h, h)),
            member @ scores,
            np.reshape(pulled, (-1, p)) if pulled else np.zeros((len(member), p)),
            self.own_peaks(float(self.task.shares[view.index]), hessians),
        )

    def own_peaks(self, share: float, hessians: Sequence[FloatArray]) -> FloatArray:
        """Return ‖H‖^q of F's and each cell's part in G_k, per unit of its weight."""
        if not (self.majorant and self.order == 2 and share > 0):
            return np.zeros(1 + len(self.task.cells))
        return powers(np.stack(hessians)[None] / share)[0]

    def scores(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return σ(s·z) and its slope for each example; zeros if not asked for."""
        if not self.sharpness:
            return np.zeros(len(z)), np.zeros_like(z)
        if z.ndim > 1:
            raise UsageError("smooth scores need a model with one score per example")
        smooth = sigmoid(self.sharpness * z)
        return smooth, self.sharpness * smooth * (1 - smooth)

    def losses(self, total: CurvatureTotal) -> FloatArray:
        """Return the loss sums of the cells at w."""
        return total.cell_losses

    def check(self, known: Known, total: CurvatureTotal) -> CurvatureTotal:
        """Judge values, gradients, Hessians and scores of one silo."""
        sizes, w = known.sizes, self.w
        known.loss_sums(w, sizes, total.cell_losses)
        mean = known.mean_loss(w, total.risk, total.cell_losses)
        n, unit = np.array([known.mass]), known.ceilings.unit
        weight = known.share / (known.mass or 1.0)
        most = known.ceilings.gradients(n, n * mean) * weight
        slack = n * weight * unit
        check_length(total.risk_gradient[None], most, slack, "a gradient")
        most = known.ceilings.gradients(sizes, total.cell_losses)
        check_length(total.cell_gradients, most, sizes * unit, "a gradient")
        if self.order == 2:
            _check_hessians(known, total, weight)
        if self.sharpness:
            steep = self.sharpness / 4 * np.sqrt(sizes) * known.ceilings.total
            check_length(total.cell_score_gradients, steep, sizes, "a score's gradient")
        else:
            none = not (total.cell_scores.any() or total.cell_score_gradients.any())
            require(none, "scores that nobody asked for")
        total.check_ranges(known.in_each, self.scales, known.in_weight)
        peaks = self.own_peaks(known.share, [total.risk_hessian, *total.cell_hessians])
        require(near(total.peaks, peaks), "peaks of other Hessians")
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
