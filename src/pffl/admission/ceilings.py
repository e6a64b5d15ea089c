"""What honest sums can be at most, proved from a silo's census.

With x̃ the model's inputs, q_j = √Σ_i x̃_ij² of a silo (known from its sums and squares)
and z = Wx̃ + b, Minkowski's inequality gives, over any of the silo's rows,

    √Σ_i ‖z_i‖² ≤ A(w) = ( Σ_c (Σ_j |W_cj| q_j + |b_c| √n)² )^½

A loss that is `at_zero` for z = 0 and lies between at_zero − down·‖z‖ and
at_zero + up·‖z‖ then sums over n_z rows to n_z·at_zero − down·√n_z·A … + up·√n_z·A
(Cauchy and Schwarz). An honest silo is never above or below, but for rounding.

    logistic   log(1 + e^t), t = ±z:  at_zero log 2, up 1, down ½;  |slope| ≤ 1
    softmax    z_c − z_y ≤ √2‖z‖;  Jensen: ≥ log C + mean_c z_c − z_y, hence
               at_zero log C, up √2, down √(1 − 1/C);  ‖slope‖ ≤ √2
    Huber      |slope| ≤ 2δ; the targets are not in the census, so no range
    squares    Σ(z − y)² is known only by report; slopes follow from it
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pffl.models.base import Inputs, Model
from pffl.models.linear import (
    HuberRegression,
    LeastSquares,
    LinearModel,
    LogisticRegression,
    SoftmaxRegression,
)
from pffl.questions import Train
from pffl.typing import FloatArray

UNIT = 2.0**-53  # rounding of one operation


@dataclass(frozen=True)
class Shape:
    """How a linear model's loss depends on its scores; None: no such constant."""

    at_zero: float | None
    up: float
    down: float
    slope: float | None
    curvature: float


def shape_of(model: Model) -> Shape | None:
    """Return the constants of a model of ours; None for any other."""
    kind = type(model)
    if kind is LogisticRegression:
        return Shape(math.log(2), 1.0, 0.5, 1.0, 0.25)
    if isinstance(model, SoftmaxRegression) and kind is SoftmaxRegression:
        c = model.n_outputs
        return Shape(math.log(c), math.sqrt(2), math.sqrt(1 - 1 / c), math.sqrt(2), 0.5)
    if isinstance(model, HuberRegression) and kind is HuberRegression:
        return Shape(None, 0.0, 0.0, 2 * model.delta, 2.0)
    if kind is LeastSquares:
        return Shape(None, 0.0, 0.0, None, 2.0)
    return None


def lengths(
    rows: int, sums: FloatArray, squares: FloatArray, inputs: Inputs
) -> FloatArray:
    """Return q_j, an upper bound of the norm of each input's column in a silo.

    Σ(x − mean)² = Σx² − 2·mean·Σx + n·mean² cancels; what rounding of n additions can
    do to it is added.
    """
    mean = inputs.mean
    centred = squares - 2 * mean * sums + rows * mean**2
    size = squares + 2 * np.abs(mean * sums) + rows * mean**2
    above = np.maximum(centred, 0.0) + 4 * (rows + 8) * UNIT * size
    return np.sqrt(above) / inputs.scale


@dataclass(frozen=True, eq=False)
class Ceilings:
    """Ceilings of one silo's sums under one model.

    Attributes
    ----------
    shape
        Of the model's loss; None where nothing is known.
    columns
        q_j, with √n behind them for the intercept, shape (n_columns,).
    rows
        n.
    """

    shape: Shape | None
    columns: FloatArray
    rows: int

    @classmethod
    def of(
        cls, model: Model, rows: int, sums: FloatArray, squares: FloatArray
    ) -> Ceilings:
        """Read the census of one silo."""
        shape = shape_of(model)
        if shape is None or not isinstance(model, LinearModel):
            return cls(None, np.zeros(0), rows)
        columns = lengths(rows, sums, squares, model.inputs)
        if model.intercept:
            columns = np.append(columns, math.sqrt(rows))
        return cls(shape, columns, rows)

    @property
    def total(self) -> float:
        """√S, with S = Σ_i ‖(x̃_i, 1)‖²; infinite where nothing is known."""
        return math.inf if self.shape is None else float(np.linalg.norm(self.columns))

    def reach(self, w: FloatArray) -> float:
        """Return A(w)."""
        table = np.abs(w).reshape(-1, len(self.columns))
        return float(np.linalg.norm(table @ self.columns))

    def losses(self, w: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest loss sum of n of the rows."""
        if self.shape is None or self.shape.at_zero is None:
            return np.zeros_like(n), np.full_like(n, np.inf)
        spread = np.sqrt(n) * self.reach(w)
        base = n * self.shape.at_zero
        low = np.maximum(base - self.shape.down * spread, 0.0)
        return low, base + self.shape.up * spread

    def squared_losses(self, w: FloatArray, n: FloatArray) -> FloatArray:
        """Return the largest sum of squared losses of n of the rows."""
        if self.shape is None or self.shape.at_zero is None:
            return np.full_like(n, np.inf)
        return (np.sqrt(n) * self.shape.at_zero + self.shape.up * self.reach(w)) ** 2

    def gradients(self, n: FloatArray, losses: FloatArray) -> FloatArray:
        """Return the largest norm of Σ∇ℓ over n of the rows, with these loss sums."""
        if self.shape is None:
            return np.full_like(n, np.inf)
        if self.shape.slope is None:  # ∇(z − y)²: Σ 2|r|‖x‖ ≤ 2 √Σr² √S
            return 2 * np.sqrt(np.maximum(losses, 0.0)) * self.total
        return self.shape.slope * np.sqrt(n) * self.total

    def update(
        self, question: Train, row_weights: FloatArray, counts: FloatArray, mean: float
    ) -> float:
        """Return the largest norm of w_J − w that the local steps can reach.

        With v = w_j − w, η, ridge ρ and proximal weight π, one step is
        v ← (1 − η(ρ + π))v − η(g + ρw) and ‖g‖ ≤ c₀ + c₁‖v‖: the norms follow the same
        recursion. c₁ is 0 where slopes are bounded; for squares, the residuals' norm is
        at most √(n·mean) + √S‖v‖.

        Parameters
        ----------
        question
            What was asked.
        row_weights, counts
            c_i/p_k of each kind of row, and how many rows are of that kind.
        mean
            The silo's mean loss at w.
        """
        if self.shape is None:
            return math.inf
        n, batch = self.rows, question.batch_size
        drawn = n if batch is None else min(batch, n)
        heaviest = float(np.abs(row_weights[counts > 0]).max(initial=0.0))
        if self.shape.slope is None:
            first = 2 * heaviest * self.total
            c0, c1 = first * math.sqrt(n * max(mean, 0.0)), first * self.total
        else:
            norm = math.sqrt(float(counts @ row_weights**2))
            weights = min(norm, heaviest * math.sqrt(drawn))
            c0, c1 = self.shape.slope * weights * self.total, 0.0
        c0, c1 = c0 * n / drawn, c1 * n / drawn
        pull = question.ridge_weight * float(np.linalg.norm(question.w))
        shrink, reached = question.ridge_weight + question.proximal, 0.0
        for size in question.step_sizes.tolist():
            kept = abs(1 - size * shrink) + abs(size) * c1
            reached = kept * reached + abs(size) * (c0 + pull)
        return reached
