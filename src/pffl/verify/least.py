"""An independent minimisation, by SciPy: how low a weighted loss can really go.

The value found is attained by a model, so a lower bound that is above it is false.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize

from pffl.typing import FloatArray
from pffl.verify.plain import Plain

DENSE = 500  # parameters: up to here with second derivatives


@dataclass(frozen=True, eq=False)
class Least:
    """The smallest value found, and where."""

    value: float
    w: FloatArray


def least(
    rows: Plain, weights: FloatArray, *, ridge: float = 0.0, radius: float | None = None
) -> Least:
    """Minimise ``Σ weights_i ℓ_i(w) + (ridge/2)‖w‖²``, over the ball if given one."""
    p = rows.outputs * rows.X.shape[1]
    free = _free(rows, weights, ridge, np.zeros(p))
    if radius is None or np.linalg.norm(free) <= radius:
        return Least(_value(rows, weights, ridge, free), free)
    # On the sphere: the price of length that makes the minimiser as long as R.
    path = {"w": np.zeros(p)}

    def longer(log_price: float) -> float:
        path["w"] = _free(rows, weights, ridge + math.exp(log_price), path["w"])
        return float(np.linalg.norm(path["w"])) - radius

    high = 0.0
    while longer(high) > 0:
        high += 3.0
    low = high - 3.0
    while longer(low) <= 0 and low > -60.0:
        low -= 3.0
    if longer(low) > 0:
        brentq(longer, low, high, xtol=1e-12)
    w = path["w"] * min(1.0, radius / max(float(np.linalg.norm(path["w"])), 1e-300))
    return Least(_value(rows, weights, ridge, w), w)


def _value(rows: Plain, weights: FloatArray, ridge: float, w: FloatArray) -> float:
    return float(weights @ rows.losses(w)) + 0.5 * ridge * float(w @ w)


def _free(
    rows: Plain, weights: FloatArray, ridge: float, start: FloatArray
) -> FloatArray:
    """Minimise without a ball."""

    def value(w: FloatArray) -> float:
        return _value(rows, weights, ridge, w)

    def slope(w: FloatArray) -> FloatArray:
        return rows.gradient(w, weights) + ridge * w

    def curve(w: FloatArray) -> FloatArray:
        return rows.hessian(w, weights) + ridge * np.eye(len(w))

    if len(start) <= DENSE:
        found = minimize(
            value,
            start,
            jac=slope,
            hess=curve,
            method="trust-exact",
            options={"gtol": 1e-10, "maxiter": 500},
        )
    else:
        found = minimize(
            value,
            start,
            jac=slope,
            method="L-BFGS-B",
            options={"gtol": 1e-10, "ftol": 1e-16, "maxiter": 5000, "maxfun": 10000},
        )
    return np.asarray(found.x, dtype=np.float64)
