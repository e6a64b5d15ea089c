"""Lemma 1 with β: how far the training violation can be, and what F can be at most.

For any pair (w, λ) with duality gap ν, and any model w* that meets every bound,

    βF(w) + B·max(0, max r(w))  ≤  G(w*; λ) + ν  ≤  βF(w*) + ν

so ``max_z r_z(w) ≤ (β(F(w*) − F(w)) + ν)/B ≤ (βM + ν)/B`` whenever F(w*) ≤ M and
F ≥ 0. The lemma as printed has 2ν where ν is the gap of each player alone; both are
valid for the ν that we measure. Read backwards: a violation above the threshold
proves that **no** model with F ≤ M meets the bounds.

M must bound F of the best feasible model, and comes from one of two places: F of a
feasible model already found, or what "every cell mean is at most ζ_z" implies for F
(`implied_risk`). The largest loss seen is not M.

Reference: Hu, Wu, Smith, Lemma 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pffl.bounds.checks import (
    Numbers,
    finite,
    nonnegative,
    positive,
    refuse,
    whole,
)
from pffl.typing import BoolArray, FloatArray


def threshold(
    risk_bound: float, gap: float, *, risk_weight: float, multiplier_bound: float
) -> float:
    """Return the slack of Lemma 1, ``(βM + 2ν)/B``.

    If some model meets all bounds, no cell of ours is above its bound by more.
    """
    beta = float(nonnegative("risk_weight", risk_weight))
    M, nu = (
        float(nonnegative("risk_bound", risk_bound)),
        float(nonnegative("gap", gap)),
    )
    return (beta * M + 2.0 * nu) / positive("multiplier_bound", multiplier_bound)


def tight_threshold(
    risk_bound: float,
    gap: float,
    risk: float,
    *,
    risk_weight: float,
    multiplier_bound: float,
) -> float:
    """Return the sharper slack ``(β(M − F(w)) + ν)/B`` that the proof also gives.

    It uses the measured F(w) instead of F ≥ 0, and the measured gap once. It may be
    negative: then a feasible model would contradict M.
    """
    beta = float(nonnegative("risk_weight", risk_weight))
    M, nu = (
        float(nonnegative("risk_bound", risk_bound)),
        float(nonnegative("gap", gap)),
    )
    own = float(nonnegative("risk", risk))
    return (beta * (M - own) + nu) / positive("multiplier_bound", multiplier_bound)


def example_weights(silo_weights: Numbers, silo_counts: Numbers) -> FloatArray:
    """Return the weight p_k/m_k that one example of silo k has in F, shape (K,)."""
    p = nonnegative("silo_weights", silo_weights)
    return p / whole("silo_counts", silo_counts, least=1)


def implied_risk(
    counts: Numbers,
    weights: Numbers,
    membership: Numbers,
    bounds: Numbers,
    *,
    loss_bound: float | None = None,
) -> float | None:
    """Bound the data term of F for every model that meets every bound.

    Examples are gathered in atoms: same silo, same set of cells. If S_a is the sum of
    losses of atom a, the largest F is the value of the linear program

        max Σ_a q_a S_a   s.t.   Σ_{a∈z} S_a ≤ m_z ζ_z,   0 ≤ S_a ≤ n_a L

    Any y ≥ 0, with ``u_a = max(0, q_a − Σ_{z∋a} y_z)``, gives the upper bound
    ``Σ_z m_z ζ_z y_z + L Σ_a n_a u_a`` by duality. The solver only proposes y; it is
    made feasible here, so the result is a bound whatever the solver's tolerance.

    Parameters
    ----------
    counts, weights
        n, examples per atom, and q, weight of one of them in F, shape (A,).
    membership, bounds
        1 where the atom belongs to the cell, shape (Z, A), and ζ, shape (Z,).
    loss_bound
        L (optional), a bound on every single loss, known without the data. Without
        it the result is None if an example lies in no cell: no bound speaks of it.
    """
    n = whole("counts", counts)
    q = np.where(n > 0, nonnegative("weights", weights), 0.0)
    member = finite("membership", membership) != 0
    if member.shape[1:] != n.shape or q.shape != n.shape:
        raise refuse("membership", f"of shape (cells, {len(n)})", member.shape)
    budget = (member @ n) * nonnegative("bounds", bounds)
    if loss_bound is None and ((q > 0) & ~member.any(axis=0)).any():
        return None
    boxes = None if loss_bound is None else n * float(nonnegative("L", loss_bound))
    return _priced(_propose_prices(q, member, budget, boxes), q, member, budget, boxes)


def _propose_prices(
    q: FloatArray, member: BoolArray, budget: FloatArray, boxes: FloatArray | None
) -> FloatArray:
    """Solve the dual, min budgetᵀy + boxesᵀu  s.t.  memberᵀy + u ≥ q, y, u ≥ 0."""
    from scipy.optimize import linprog

    A = member.T.astype(np.float64)
    cost = budget
    if boxes is not None:
        A, cost = np.hstack([A, np.eye(len(q))]), np.concatenate([budget, boxes])
    # q is of order 1/m: scaled to 1, the solver's absolute tolerance means something.
    scale = float(q.max(initial=0.0)) or 1.0
    answer = linprog(cost, A_ub=-A, b_ub=-q / scale, bounds=(0, None), method="highs")
    if answer.x is None:
        return np.full(len(member), scale)
    return np.asarray(answer.x[: len(member)], dtype=np.float64) * scale


def _priced(
    prices: FloatArray,
    q: FloatArray,
    member: BoolArray,
    budget: FloatArray,
    boxes: FloatArray | None,
) -> float:
    """Make the prices feasible and return their value: an upper bound."""
    y = np.maximum(prices, 0.0)
    short = np.maximum(q - member.T @ y, 0.0)
    if boxes is not None:
        return float(budget @ y + boxes @ short)
    # Without boxes each shortfall is paid by the cheapest cell that covers the atom.
    for a in np.flatnonzero(short > 0):
        missing = max(0.0, float(q[a] - y[member[:, a]].sum()))
        cells = np.flatnonzero(member[:, a])
        y[cells[np.argmin(budget[cells])]] += missing
    return float(budget @ y)


@dataclass(frozen=True)
class RiskBound:
    """M, and where it comes from."""

    value: float
    source: Literal["feasible model", "implied by the bounds"]


def with_ridge(data_risk: float, *, l2: float, radius: float) -> float:
    """Add the largest ridge term on the ball: ``M + (μ/2)R²``."""
    mu, R = float(nonnegative("l2", l2)), float(nonnegative("radius", radius))
    return float(nonnegative("data_risk", data_risk)) + 0.5 * mu * R * R


def choose_risk_bound(
    *, feasible_risk: float | None = None, implied: float | None = None
) -> RiskBound | None:
    """Return the smaller M of those available, or None if there is none.

    Parameters
    ----------
    feasible_risk
        F of a model already found with every r_z ≤ 0 (and, if a ball was declared,
        inside it).
    implied
        `implied_risk`, with the ridge term of `with_ridge` if l2 > 0.
    """
    options: list[RiskBound] = []
    if feasible_risk is not None:
        value = float(nonnegative("feasible_risk", feasible_risk))
        options.append(RiskBound(value, "feasible model"))
    if implied is not None:
        value = float(nonnegative("implied", implied))
        options.append(RiskBound(value, "implied by the bounds"))
    return min(options, key=lambda option: option.value, default=None)
