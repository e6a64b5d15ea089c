"""Huber regression: squared errors, but large ones count only in proportion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pffl.data.schema import Schema
from pffl.errors import DataError, UsageError
from pffl.models.linear import LinearModel
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class HuberRegression(LinearModel):
    """A numeric target; ``ℓ = r²`` for |r| ≤ δ, beyond it ``2δ|r| − δ²``; r = z − y.

    It is `LeastSquares` for small residuals, and one wild value cannot decide a group's
    mean loss. The curvature is 2 up to δ and 0 beyond; 2 is never exceeded.
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
        """Return 2 up to δ, 0 beyond; 2 as the bound that holds everywhere."""
        if majorant:
            return np.full_like(z, 2.0)
        return np.where(np.abs(z - y) <= self.delta, 2.0, 0.0)

    def score_classes(self, z: FloatArray) -> FloatArray | None:
        """Return None: numbers have no classes."""
        return None

    def predict_proba(self, w: FloatArray, X: FloatArray) -> FloatArray:
        """Refuse: numbers have no probabilities."""
        raise UsageError("HuberRegression predicts numbers: use predict")

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        return {**super().describe(), "delta": self.delta}
