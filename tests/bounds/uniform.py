"""Bounds from training rows for all linear models of a ball; and the printed one.

With probability at least 1 − δ, for all Z cells and all ‖w‖ ≤ R, with ‖x‖ ≤ X and a
loss whose slope is at most 1 (Bartlett and Mendelson, JMLR 3, 2002),

    |E ℓ − mean_z ℓ|  ≤  2RX/√m_z + M·√(log(2Z/δ)/(2m_z))

The product states nothing of this: it is nearly always above M. It is here for the
claims of docs/paper.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def loss_bound_linear(radius: float, feature_bound: float) -> float:
    """M = log(1 + e^{RX}) of logistic regression."""
    return float(np.logaddexp(0.0, radius * feature_bound))


def mcdiarmid(count: ArrayLike, loss_bound: float, delta: float) -> np.ndarray:
    """M·√(log(1/δ)/(2m)): how far a supremum strays from its mean."""
    return loss_bound * np.sqrt(-np.log(delta) / (2.0 * np.asarray(count, float)))


def deviation(
    count: ArrayLike,
    *,
    radius: float,
    feature_bound: float,
    loss_bound: float,
    delta: float,
) -> np.ndarray:
    """The bound above, by the longest row there can be."""
    m = np.asarray(count, float)
    complexity = radius * feature_bound / np.sqrt(m)
    return 2.0 * complexity + mcdiarmid(m, loss_bound, delta / (2.0 * m.size))


def deviation_rows(
    count: ArrayLike,
    squared_norms: ArrayLike,
    *,
    radius: float,
    feature_bound: float,
    loss_bound: float,
    delta: float,
) -> np.ndarray:
    """Upper side, by the rows' own Σ‖x‖², which one row moves by at most X."""
    m = np.asarray(count, float)
    complexity = radius * np.sqrt(np.asarray(squared_norms, float)) / m
    change = loss_bound + 2.0 * radius * feature_bound
    return 2.0 * complexity + mcdiarmid(m, change, delta / (2.0 * m.size))


def printed_term(
    count: ArrayLike, loss_bound: float, *, silos: int, cells: int, delta: float
) -> np.ndarray:
    """Propositions 1 and 2 as printed: (M/m)·√((K/2)·log(2|A|/δ)). Not valid."""
    root = np.sqrt(0.5 * silos * np.log(2.0 * cells / delta))
    return loss_bound / np.asarray(count, float) * root
