"""A small concave QP over multipliers: x ≥ 0, with the sum of the first few bounded."""

from __future__ import annotations

import daqp
import numpy as np

from pffl.typing import BoolArray, FloatArray

# Relative; tried in turn until the QP's own gap is closed.
PROXIMAL = (1e-9, 1e-11, 1e-7, 1e-5, 1e-3)
CLOSED = 0.01  # of the gap at the start


def maximise(
    matrix: FloatArray,
    slope: FloatArray,
    start: FloatArray,
    bound: float,
    n_capped: int,
) -> FloatArray | None:
    """Maximise slopeᵀδ − ½ δᵀ matrix δ over x = start + δ ≥ 0, Σ_{capped} x ≤ bound.

    A small proximal term around `start` makes a singular matrix harmless and leaves
    fixed points where they are. The solver's word is not taken: of what it returns the
    best by the QP's own duality gap is kept. None if nothing lowers that gap.
    """
    capped = np.arange(len(slope)) < n_capped
    if not (np.isfinite(matrix).all() and np.isfinite(slope).all()):
        return None
    open_gap = gap(slope, start, bound, capped)
    if open_gap <= 0:
        return start
    # Measure x_z in steps over which the objective curves by its own gap, at most B:
    # cells differ in sensitivity by many orders of magnitude.
    units = bound / np.sqrt(np.maximum(np.diag(matrix) * (bound**2 / open_gap), 1.0))
    unit_matrix = matrix * np.outer(units, units) / open_gap
    unit_slope = slope * units / open_gap
    best, best_gap = None, 0.9 * open_gap
    for proximal in PROXIMAL:
        quadratic = unit_matrix + proximal * np.eye(len(slope))
        linear = -(unit_slope + quadratic @ (start / units))
        x = _solved(quadratic, linear, units, bound, capped)
        if x is None:
            continue
        left = gap(slope - matrix @ (x - start), x, bound, capped)
        if left < best_gap:
            best, best_gap = x, left
        if left <= CLOSED * open_gap:
            break
    return best


def gap(slope: FloatArray, x: FloatArray, bound: float, capped: BoolArray) -> float:
    """How much a concave function with this slope at x can still rise, at most.

    An uncapped coordinate may rise to twice its value or to B, whichever is more.
    """
    best = bound * max(0.0, float(slope[capped].max(initial=0.0)))
    room = np.maximum(bound, 2.0 * x[~capped])
    best += float(room @ np.maximum(slope[~capped], 0.0))
    return best - float(x @ slope)


def _solved(
    quadratic: FloatArray,
    linear: FloatArray,
    units: FloatArray,
    bound: float,
    capped: BoolArray,
) -> FloatArray | None:
    """Ask DAQP, and make its answer feasible to the last bit."""
    n = len(linear)
    x, _, flag, _ = daqp.solve(
        quadratic,
        linear,
        np.where(capped, units, 0.0)[None],
        np.append(np.where(capped, bound / units, 1e30), bound),
        np.zeros(n + 1),
        np.zeros(n + 1, dtype=np.int32),
        primal_tol=1e-12,
        dual_tol=1e-13,
        eps_prox=0.0,
    )
    if flag <= 0 or not np.isfinite(x).all():
        return None
    x = np.maximum(x, 0.0) * units
    total = float(x[capped].sum())
    if total > bound:
        x[capped] *= bound / total
    return np.asarray(x)
