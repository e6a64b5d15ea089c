"""Lemma 1 with β: how far above a bound a model can be that was trained for it.

For any pair (w, λ) with duality gap ν, and any model w° that meets every bound,

    βF(w) + B·max(0, max r(w))  ≤  G(w°; λ) + ν  ≤  βF(w°) + ν

so ``max_z r_z(w) ≤ (β(F(w°) − F(w)) + ν)/B``. The lemma as printed has M in place of
F(w°) − F(w), and 2ν where ν is the gap of each player alone; M, a bound on the risk of
every feasible model, excuses nearly anything. So w° is a model that was found, with
its ridge term, and without one the lemma says nothing.

Reference: Hu, Wu, Smith, Lemma 1.
"""

from __future__ import annotations

from pffl.bounds.checks import nonnegative, positive


def slack(
    feasible_risk: float,
    gap: float,
    risk: float,
    *,
    risk_weight: float,
    multiplier_bound: float,
) -> float:
    """Return ``(β(F(w°) − F(w)) + ν)/B``.

    It may be negative: then a feasible model would contradict the gap.
    """
    beta = float(nonnegative("risk_weight", risk_weight))
    best, nu = (
        float(nonnegative("feasible_risk", feasible_risk)),
        float(nonnegative("gap", gap)),
    )
    own = float(nonnegative("risk", risk))
    return (beta * (best - own) + nu) / positive("multiplier_bound", multiplier_bound)
