"""Directions and step lengths of FCFL: pure functions of gradients, see `fcfl.py`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pffl.typing import FloatArray

COOLING = 0.01
COLDEST = 1e-4


@dataclass(frozen=True, eq=False)
class Slopes:
    """Losses and gaps at one w, and their gradients, one row each.

    Attributes
    ----------
    losses, loss_gradients
        l_k and ∇l_k, one per silo.
    gaps, gap_gradients
        g and ∇g, of the silos in which a gap is defined, or one over all rows.
    """

    losses: FloatArray
    loss_gradients: FloatArray
    gaps: FloatArray
    gap_gradients: FloatArray


def softmax(values: FloatArray) -> FloatArray:
    """Weights of a smooth maximum, with the exponent shifted by the maximum."""
    exponentials = np.exp(values - values.max())
    return np.asarray(exponentials / exponentials.sum())


def cooled(
    temperatures: FloatArray, directions: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Lower each temperature whose direction has become short."""
    norms = np.array([np.linalg.norm(d) for d in directions])
    cool = (0.1 * norms <= temperatures) & (temperatures > COLDEST)
    return np.where(cool, COOLING * temperatures, temperatures)


def stage_one(d_L: FloatArray, d_G: FloatArray, *, inside: bool) -> FloatArray:
    """Return c on the 2-simplex for d(c) = c₁ d_L + c₂ d_G, in closed form.

    Inside the bound: maximise ⟨d(c), d_L⟩. Outside: maximise ⟨d(c), d_G⟩ subject to
    ⟨d(c), d_L⟩ ≥ 0.
    """
    ll, lg, gg = float(d_L @ d_L), float(d_L @ d_G), float(d_G @ d_G)
    if inside:
        c = 1.0 if ll >= lg else 0.0
    elif gg < lg:
        c = 1.0
    else:  # as much of d_G as does not raise the loss
        c = 0.0 if lg >= 0 else -lg / (ll - lg)
    return np.array([c, 1.0 - c])


def stage_two(directions: FloatArray) -> FloatArray:
    """Return c on the (K+1)-simplex for d(c) = Σ c_k ∇l_k + c_{K+1} d_G, by an LP.

    Maximise ⟨d(c), mean of ∇l_k⟩ subject to ⟨d(c), each direction⟩ ≥ 0; d_G is the last
    row of the directions. The point of least norm satisfies that, so the LP fails only
    by rounding: then that point is it.
    """
    from scipy.optimize import linprog

    gram = directions @ directions.T
    scale = max(float(gram.max()), 1e-300)
    found = linprog(
        -gram[:, :-1].mean(axis=1) / scale,
        A_ub=-gram / scale,
        b_ub=np.zeros(len(gram)),
        A_eq=np.ones((1, len(gram))),
        b_eq=[1.0],
        method="highs",
    )
    if found.status == 0:
        return np.asarray(found.x, dtype=np.float64)
    return least_norm(directions)


def least_norm(directions: FloatArray) -> FloatArray:
    """Return c on the simplex with the shortest Σ c_i d_i.

    It minimises ‖Σ c_i d_i‖² + (Σc − 1)² over c ≥ 0, up to its length: NNLS.
    """
    from scipy.optimize import nnls

    n = len(directions)
    scale = max(float(np.abs(directions).max()), 1e-300)
    tall = np.vstack([directions.T / scale, np.ones((1, n))])
    free, _ = nnls(tall, np.append(np.zeros(directions.shape[1]), 1.0))
    return np.asarray(free / free.sum())


def guarded_step(
    d: FloatArray, at_w: Slopes, gap_bound: float, *, loss_bend: float, gap_bend: float
) -> float:
    """Return the step along −d: 1/L of the loss, unless a gap would pass its bound.

    A gap rises by at most η⟨−d, ∇g⟩ + ½L_g‖d‖²η². Below the bound that may use up what
    is left; above it, η minimises it. 1/L_g is always allowed.
    """
    longest = 1 / loss_bend if loss_bend > 0 else np.inf
    rise = -(at_w.gap_gradients @ d)
    left = np.maximum(gap_bound - at_w.gaps, 0.0)
    square = gap_bend * float(d @ d)
    if square == 0:
        return min(longest, 1 / gap_bend)
    root = (np.sqrt(rise**2 + 2 * square * left) - rise) / square
    lengths = np.where(left > 0, root, np.maximum(-rise, 0.0) / square)
    return float(min(longest, max(lengths.min(), 1 / gap_bend)))
