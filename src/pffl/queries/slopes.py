"""`slopes`: F and each cell's loss to first order, products with Hessians, and scores.

It grows with p, not with p², and so is asked of models of any width. `directions` add,
for F and each cell, the Hessian times each direction. With `sharpness` s the silos add,
per cell, the sum of σ(s·z) over its examples and that sum's gradient: a smooth count of
positive predictions, which methods on parity gaps descend. It is asked of linear models
only.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Protocol

import numpy as np

from pffl.errors import UsageError
from pffl.models.linear import LinearModel
from pffl.models.scaled import Design
from pffl.numerics import sigmoid
from pffl.queries.base import ModelQuery, Task, View
from pffl.queries.declared import Dims, Row, Total, array, number, scalar, table
from pffl.queries.plausible import LOSS, Known, check_length
from pffl.typing import FloatArray

SCORE = Row(0.0, 1.0, weighted=True, called="a score")
MOST_DIRECTIONS = 64


class SlopesTotal(Total):
    """Sums over silos: of p_k × silo means for F (no ridge), of examples for cells.

    Products have a row for each direction; scores have one column if they were asked
    for, and none otherwise.
    """

    risk: float = number(LOSS)
    risk_gradient: FloatArray = array("p")
    cell_losses: FloatArray = array("z", row=LOSS)
    cell_gradients: FloatArray = array("z", "p")
    risk_products: FloatArray = array("d", "p")
    cell_products: FloatArray = array("z", "d", "p")
    cell_scores: FloatArray = array("z", "s", row=SCORE)
    cell_score_gradients: FloatArray = array("z", "s", "p")


class Slopes(ModelQuery[SlopesTotal]):
    """Ask for values and gradients at `w`.

    Attributes
    ----------
    directions
        Directions to multiply Hessians with, as columns, shape (p, d).
    sharpness
        s of the smooth scores σ(s·z); 0 for none.
    """

    total_type: ClassVar = SlopesTotal

    directions: FloatArray = table(
        "p", "any", most=MOST_DIRECTIONS, default_factory=lambda: np.zeros((0, 0))
    )
    sharpness: float = scalar(default=0.0)
    split: str = field(default="train", init=False)

    def __post_init__(self) -> None:
        if self.directions.size == 0:
            none = np.zeros((self.task.model.n_parameters, 0))
            object.__setattr__(self, "directions", none)

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer; s is that of scores."""
        scored = int(self.sharpness > 0)
        return {**super().dims, "d": self.directions.shape[1], "s": scored}

    def gradients(self, rows: float) -> float:
        """How many passes over a silo's rows compute a gradient."""
        return 1.0 + self.directions.shape[1]

    @property
    def steepness(self) -> float:
        """By how much the answer is steeper in w than losses are."""
        return max(self.sharpness, 1.0)

    def answer(self, view: View) -> SlopesTotal:
        """Answer for one silo, one cell after the other."""
        model = linear(self.task)
        weights = row_weights(self.task, view)
        in_cells = weights[1:]
        z = model.scores(self.w, view.X)
        losses, slopes = model.score_losses_and_slopes(z, view.y)
        gradients = pulled_back(model, view.X, slopes, weights)
        by_cell = np.zeros((len(weights), self.dims["d"], model.n_parameters))
        for place, direction in enumerate(self.directions.T):
            bent = model.bent_along(direction[:, None], view.X, z, view.y)
            by_cell[:, place] = pulled_back(model, view.X, bent, weights)
        scores, score_slopes = self.scores(z)
        scored = in_cells if self.sharpness else in_cells[:0]
        columns = len(in_cells), self.dims["s"]
        return SlopesTotal(
            risk(self.task, view, losses),
            gradients[0],
            # Pairwise, unlike a product: what rounding can do stays small.
            (in_cells * losses).sum(axis=1),
            gradients[1:],
            by_cell[0],
            by_cell[1:],
            np.reshape(scored @ scores, columns),
            pulled_back(model, view.X, score_slopes, scored).reshape(*columns, -1)
            if self.sharpness
            else np.zeros((*columns, model.n_parameters)),
        )

    def scores(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return σ(s·z) and its slope for each example; zeros if not asked for."""
        if not self.sharpness:
            return np.zeros(len(z)), np.zeros_like(z)
        if z.ndim > 1:
            raise UsageError(
                "[no-scores] smooth scores need a model with one score per example"
            )
        smooth = sigmoid(self.sharpness * z)
        return smooth, self.sharpness * smooth * (1 - smooth)

    def check(self, known: Known, total: SlopesTotal) -> SlopesTotal:
        """Judge values, gradients, products and scores of one silo."""
        check_first_order(known, self.w, total)
        shape, sizes = known.ceilings.shape, known.sizes
        for place, direction in enumerate(self.directions.T):
            if shape is None:
                break
            # ‖Σ h x (xᵀd)‖ ≤ h ‖d‖ Σ‖x‖², over some of the rows as over all of them.
            length = float(np.linalg.norm(direction))
            most = shape.curvature * length * known.ceilings.total**2
            weights = np.append(known.in_risk, sizes > 0)
            products = np.vstack(
                [total.risk_products[place], total.cell_products[:, place]]
            )
            slack = np.append(known.share, sizes) * known.ceilings.unit * length
            check_length(products, most * weights, slack, "a product")
        if self.sharpness:
            steep = self.sharpness / 4 * np.sqrt(sizes) * known.ceilings.total
            gradients = total.cell_score_gradients[:, 0]
            check_length(gradients, steep, sizes, "a score's gradient")
        total.check_ranges(known.in_each, self.scales, known.in_weight)
        return total


class ToFirstOrder(Protocol):
    """Values and gradients of F and of each cell."""

    @property
    def risk(self) -> float:
        """Σ_k p_k × the silo's mean loss."""

    @property
    def risk_gradient(self) -> FloatArray:
        """Its gradient."""

    @property
    def cell_losses(self) -> FloatArray:
        """Loss sums."""

    @property
    def cell_gradients(self) -> FloatArray:
        """Their gradients."""


def check_first_order(known: Known, w: FloatArray, total: ToFirstOrder) -> None:
    """Refuse values and gradients that no honest rows can have."""
    sizes = known.sizes
    known.loss_sums(w, sizes, total.cell_losses)
    mean = known.mean_loss(w, total.risk, total.cell_losses)
    n, unit = np.array([known.risk_mass]), known.ceilings.unit
    weight = known.in_risk
    most = known.ceilings.gradients(n * (weight > 0), n * mean) * (weight or 1.0)
    slack = n * weight * unit
    check_length(total.risk_gradient[None], most, slack, "a gradient")
    most = known.ceilings.gradients(sizes, total.cell_losses)
    check_length(total.cell_gradients, most, sizes * unit, "a gradient")


def row_weights(task: Task, view: View) -> FloatArray:
    """Weights of a silo's rows in F, then in each cell, shape (1 + Z, n)."""
    share = task.shares[view.index] / (view.mass or 1.0)
    member = task.cells.of_silo(view.index)[:, view.atom]
    rows = np.concatenate([np.full((1, len(view)), share), member])
    return rows if view.weight is None else rows * view.weight


def risk(task: Task, view: View, losses: FloatArray) -> float:
    """Return p_k × the silo's mean loss."""
    share = task.shares[view.index] / (view.mass or 1.0)
    return float(share * view.weigh(losses).sum())


def pulled_back(
    model: LinearModel, X: Design, slopes: FloatArray, weights: FloatArray
) -> FloatArray:
    """Return the gradient Σ_i weights_i slopes_i ⊗ (x_i, 1) for each row of weights."""
    found = [model.pull_back(X, (slopes.T * row).T) for row in weights]
    return np.reshape(found, (len(weights), model.n_parameters))


def linear(task: Task) -> LinearModel:
    """Return the task's model, which must be a linear one."""
    if not isinstance(task.model, LinearModel):
        raise UsageError(
            f"[not-linear] {type(task.model).__name__} is not linear, and has no "
            "gradients per cell to ask for: use the method PFFL, which trains any "
            "model"
        )
    return task.model
