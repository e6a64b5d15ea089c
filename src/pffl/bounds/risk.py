"""The risk half of Theorem 2: how far a model is from the best one that is fair to all.

Let w* be any model that was fixed before the rows were drawn, whose losses are at most
M and that meets every bound in the population. A pair (w, λ) of duality gap ν has

    βF̂(w) ≤ Ĝ(w*; λ) + ν = βF̂(w*) + λᵀr̂(w*) + ν

on the training rows, and by Hoeffding's inequality, with probability at least 1 − δ,
F̂(w*) ≤ F(w*) + M·√(½ log((Z+2)/δ) Σ p_k²/m_k), r̂_z(w*) ≤ M·√(log((Z+2)/δ)/(2m_z)) for
each of the Z cells, and likewise the risk of w, from n_k held-out rows of each silo. So

    F(w) − F(w*) ≤ F̂′(w) − F̂(w) + ν/β + M·√(½ log((Z+2)/δ))·
                   (√(Σ p_k²/n_k) + √(Σ p_k²/m_k) + (1/β) Σ_z λ_z/√m_z)

with F̂′ the held-out risk of w. No complexity of the class of models is in it: w* is one
model, and w is judged on rows that it was not trained on.

Reference: Hu, Wu, Smith, Theorem 2, first line (docs/paper.md).
"""

from __future__ import annotations

import numpy as np

from pffl.bounds.checks import (
    Numbers,
    nonnegative,
    positive,
    probability,
    refuse,
    whole,
)


def excess_risk(
    training_risk: float,
    heldout_risk: float,
    gap: float,
    *,
    multipliers: Numbers,
    cell_rows: Numbers,
    shares: Numbers,
    silo_rows: Numbers,
    heldout_rows: Numbers,
    loss_bound: float,
    delta: float,
    risk_weight: float = 1.0,
) -> float:
    """Bound F(w) − F(w*), with probability at least 1 − δ; rows are unweighted.

    Parameters
    ----------
    training_risk, heldout_risk
        F̂(w) and F̂′(w), both with the ridge term (or both without).
    gap, multipliers, risk_weight
        ν, λ and β of the pair.
    cell_rows
        m_z, training rows of each cell.
    shares, silo_rows, heldout_rows
        p_k, m_k and n_k of each silo.
    loss_bound
        M, of w and of w*, declared without the rows.
    """
    lam, m_z = nonnegative("multipliers", multipliers), whole("cell_rows", cell_rows, 1)
    p, m_k = nonnegative("shares", shares), whole("silo_rows", silo_rows, 1)
    n_k = whole("heldout_rows", heldout_rows, 1)
    if lam.shape != m_z.shape or not p.shape == m_k.shape == n_k.shape:
        raise refuse("multipliers, shares", "one per cell and silo", (lam, p))
    beta, M = positive("risk_weight", risk_weight), positive("loss_bound", loss_bound)
    nu, risk = float(nonnegative("gap", gap)), probability("delta", delta)
    draws = np.sqrt((p**2 / n_k).sum()) + np.sqrt((p**2 / m_k).sum())
    draws += (lam / np.sqrt(m_z)).sum() / beta
    wide = M * np.sqrt(0.5 * np.log((lam.size + 2) / risk))
    return float(heldout_risk - training_risk + nu / beta + wide * draws)
