"""Huber regression: squared errors, but large ones count only in proportion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pffl.data.schema import Schema
from pffl.errors import DataError, UsageError
from pffl.models.linear import LinearModel
from pffl.typing import FloatArray

BEYOND = 0.1  # of the touching parabola's curvature, where the loss itself has none


@dataclass(frozen=True, eq=False)
class HuberRegression(LinearModel):
    """A numeric target; ``ℓ = r²`` for |r| ≤ δ, beyond it ``2δ|r| − δ²``; r = z − y.

    It is `LeastSquares` for small residuals, and one wild value cannot decide a group's
    mean loss. The curvature is 2 up to δ and 0 beyond. Second-order methods are told a
    little more than 0 there: a tenth of that of the parabola 2(δ/|r|)·½r² + … which
    touches ℓ at r from above. With 0 a model of all-large residuals would be flat, and
    its minimum anywhere; certificates rest on values and gradients, which are exact.
    Reference: Huber 1964; the scaling is that of scikit-learn's HuberRegressor.

    Parameters
    ----------
    l2, intercept, standardize
        As for every linear model.
    delta
        δ, in units of the target.
    """

    delta: float = 1.0

    name = "huber"

    def __post_init__(self) -> None:
        super().__post_init__()
        number = isinstance(self.delta, int | float)
        if not (number and np.isfinite(self.delta) and self.delta > 0):
            raise UsageError(
                "The 'delta' parameter of HuberRegression must be a finite number > 0. "
                f"Got {self.delta!r} instead."
            )

    def check_labels(self, schema: Schema) -> int:
        """Demand a numeric target."""
        if schema.labels:
            raise DataError(
                f"HuberRegression needs a numeric target; '{schema.target}' has classes"
            )
        return 1

    def score_losses(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return r², or 2δ|r| − δ²: with c the clipped residual, c(2r − c)."""
        residual = z - y
        clipped = np.clip(residual, -self.delta, self.delta)
        return clipped * (2.0 * residual - clipped)

    def score_slopes(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return 2r, clipped to ±2δ."""
        return 2.0 * np.clip(z - y, -self.delta, self.delta)

    def score_curvatures(
        self, z: FloatArray, y: FloatArray, *, majorant: bool
    ) -> FloatArray:
        """Return 2 up to δ, `BEYOND` · 2δ/|r| outside; 2 as the bound for every z."""
        if majorant:
            return np.full_like(z, 2.0)
        size = np.abs(z - y)
        outside = BEYOND * 2.0 * self.delta / np.maximum(size, self.delta)
        return np.where(size <= self.delta, 2.0, outside)

    def score_classes(self, z: FloatArray) -> FloatArray | None:
        """Return None: numbers have no classes."""
        return None

    def predict_proba(self, w: FloatArray, X: FloatArray) -> FloatArray:
        """Refuse: numbers have no probabilities."""
        raise UsageError("HuberRegression predicts numbers: use predict")

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        return {**super().describe(), "delta": self.delta}
