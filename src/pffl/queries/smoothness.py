"""`smoothness`: how much F and each cell's loss curve at most, wherever w is.

A number per cell, and no Hessian: with h_i the largest curvature of row i's loss in
its scores, a sum of losses curves by no more than λ_max(Σ_i s_i h_i (x_i, 1)(x_i, 1)ᵀ).
Each silo finds its own by itself. The silos' largest eigenvalues add up to a bound on
that of all rows; and the q-th root of the sum of their q-th powers is a bound on the
largest of them, by which local steps are kept from diverging where silos differ in
scale.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

import numpy as np

from pffl.models.linear import LinearModel
from pffl.models.scaled import Design
from pffl.queries.base import ModelQuery, View
from pffl.queries.declared import Row, Total, array, empty, table
from pffl.queries.plausible import Known, near, require, within
from pffl.queries.slopes import linear, row_weights
from pffl.typing import FloatArray

POWER = 8  # q: the bound on the largest of K silos is loose by K^(1/8) at most
STEPS = 12  # of the power method
MARGIN = 1.1  # what it may be short of; steps of less than twice 1/L are safe
SMALL = 64  # rows or columns, up to which the bound is one of a Gram matrix
CURVED = Row(0.0, called="a curvature")


class SmoothnessTotal(Total):
    """Sums over silos; F stands first, p_k × that of the silo's mean loss.

    Attributes
    ----------
    sums
        L of the silo's p_k F_k, and of its loss sum in each cell.
    peaks
        (L/p_k)^q of the same, in units of what is typical: of what each is in the
        silo's G_k.
    """

    sums: FloatArray = array("1+z", row=CURVED)
    peaks: FloatArray = array("1+z", row=CURVED)


class Smoothness(ModelQuery[SmoothnessTotal]):
    """Ask for what holds at every w; `w` is any.

    `typical` says what L/p_k is about, so that powers of it stay in the range of fixed
    point; empty for the losses' unit.
    """

    total_type: ClassVar = SmoothnessTotal

    typical: FloatArray = table("1+z", default_factory=empty)
    split: str = field(default="train", init=False)

    def gradients(self, rows: float) -> float:
        """Count the power method on F, and on each row's cell."""
        return 2.0 * STEPS

    def answer(self, view: View) -> SmoothnessTotal:
        """Answer for one silo, one cell after the other."""
        model, share = linear(self.task), float(self.task.shares[view.index])
        weights = row_weights(self.task, view)
        sums = np.array([curvature(model, view.X, view.y, row) for row in weights])
        return self.total(sums, share)

    def total(self, sums: FloatArray, share: float) -> SmoothnessTotal:
        """Return one silo's answer."""
        typical = self.typical if self.typical.size else self.task.model.unit
        own = sums / (share * typical) if share > 0 else 0.0 * sums
        return SmoothnessTotal(sums, own**POWER)

    def check(self, known: Known, total: SmoothnessTotal) -> SmoothnessTotal:
        """Judge one silo's: λ_max is no more than the trace, Σ s_i h_i ‖(x_i, 1)‖²."""
        shape = known.ceilings.shape
        expected = self.total(total.sums, known.share).peaks
        same = known.sites > 1 or near(total.peaks, expected)  # powers of sums differ
        require(same, "peaks of other curvatures")
        empty = np.append(known.share == 0, known.sizes == 0)
        require(not total.sums[empty].any(), "a curvature where there are no rows")
        if shape is not None:
            weights = np.append(known.in_risk, np.ones(len(empty) - 1))
            most = weights * shape.curvature * known.ceilings.total**2 * (1 + 1e-9)
            within(total.sums, np.zeros_like(most), most, "a curvature")
        return total


def curvature(
    model: LinearModel, X: Design, y: FloatArray, weights: FloatArray
) -> float:
    """Return a bound on λ_max(Σ_i weights_i h_i (x_i, 1)(x_i, 1)ᵀ).

    Of wide or sparse rows it is an estimate with a margin, not proved: for step sizes.
    """
    rows = np.flatnonzero(weights)
    if len(rows) < len(weights):
        X, y, weights = X[rows], y[rows], weights[rows]
    if not len(rows):
        return 0.0
    bent = weights * steepest(model, y)
    if isinstance(X, np.ndarray) and min(X.shape[0], X.shape[1] + 1) <= SMALL:
        return _gram_norm(X, bent, intercept=model.intercept)
    return _power_norm(X, bent, intercept=model.intercept)


def steepest(model: LinearModel, y: FloatArray) -> FloatArray:
    """Return h_i: no row's loss curves more in its scores."""
    q = model.n_outputs
    curved = model.score_curvatures(
        np.zeros(len(y) if q == 1 else (len(y), q)), y, majorant=True
    )
    if curved.ndim == 1:
        return curved
    if (curved == curved[0]).all():
        return np.full(len(y), np.linalg.eigvalsh(curved[0])[-1])
    return np.asarray(np.linalg.eigvalsh(curved)[:, -1], np.float64)


def _gram_norm(X: FloatArray, bent: FloatArray, *, intercept: bool) -> float:
    """Return Schatten's 4-norm: above λ_max, by a factor of rank^(1/4) at most."""
    scaled = X * np.sqrt(bent)[:, None]
    if X.shape[0] <= X.shape[1]:
        gram = scaled @ scaled.T
        if intercept:
            root = np.sqrt(bent)
            gram += np.outer(root, root)
    else:
        if intercept:
            scaled = np.column_stack([scaled, np.sqrt(bent)])
        gram = scaled.T @ scaled
    return float(np.sqrt(np.linalg.norm(gram @ gram)))


def _power_norm(X: Design, bent: FloatArray, *, intercept: bool) -> float:
    """Return λ_max by the power method, and a margin."""
    v = np.random.default_rng(0).standard_normal(X.shape[1] + intercept)
    found = 0.0
    for _ in range(STEPS):
        v /= max(float(np.linalg.norm(v)), 1e-300)
        z = X @ v[: X.shape[1]]
        if intercept:
            z = z + v[-1]
        z = z * bent
        v[: X.shape[1]] = (z[None] @ X)[0]
        if intercept:
            v[-1] = z.sum()
        found = float(np.linalg.norm(v))
    return MARGIN * found
