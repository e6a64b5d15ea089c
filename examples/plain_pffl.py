"""Algorithm 1 as one naive loop over silos in plain NumPy, for readers.

*Fair Federated Learning via Bounded Group Loss* (Hu, Wu, Smith), with the corrections
that `pffl` builds: silo k descends (1/p_k) Σ_i c_i ℓ_i, so that the mean over silos is
G(w; λ) = βF(w) + λᵀr(w), and the average runs over all E·T iterates.

`pffl.methods.PFFL` gives the same numbers, faster; ``python examples/plain_pffl.py``
shows it.
"""

from __future__ import annotations

import numpy as np

import pffl

E, T, J = 30, 5, 3  # dual rounds, rounds per dual round, local steps
B, BETA, ZETA, MU = 5.0, 1.0, 0.66, 1e-3  # price, weight of the risk, bound, ridge
ETA_W, ETA_THETA = 0.3, 10.0  # step sizes


def losses(w, X, y):
    """Logistic loss of each row."""
    z = X @ w
    return np.logaddexp(0, z) - y * z


def gradients(w, X, y):
    """Gradient of each row's loss, one row after the other."""
    return (1 / (1 + np.exp(-(X @ w))) - y)[:, None] * X


def plain_pffl(silos, groups):
    """Run Algorithm 1 on silos = [(X, y, group), …]; return the averages of w and λ."""
    K, p = len(silos), silos[0][0].shape[1]
    m = np.array([sum((a == z).sum() for _, _, a in silos) for z in range(groups)])
    w, theta = np.zeros(p), np.zeros(groups)
    w_sum, lam_sum = np.zeros(p), np.zeros(groups)
    for _ in range(E):
        shifted = np.exp(theta - max(0, theta.max()))  # e^θ would overflow at θ = 800
        lam = B * shifted / (np.exp(-max(0, theta.max())) + shifted.sum())
        for _ in range(T):
            group_losses, updates = np.zeros(groups), []
            for X, y, a in silos:  # what each silo does with its own rows
                np.add.at(group_losses, a, losses(w, X, y))
                c = BETA / len(y) + K * lam[a] / m[a]  # c_i / p_k with p_k = 1/K
                w_k = w.copy()
                for _ in range(J):
                    step = c @ gradients(w_k, X, y) + BETA * MU * w_k
                    w_k = w_k - ETA_W * step
                updates.append(w_k - w)
            w = w + np.mean(updates, axis=0)  # what the server does
            w_sum, lam_sum = w_sum + w, lam_sum + lam
        theta = theta + ETA_THETA * (group_losses / m - ZETA)  # r, at the w last sent
    return w_sum / (E * T), lam_sum / (E * T)


def library_pffl(federation):
    """Do the same with the library."""
    return pffl.solve(
        federation,
        pffl.BoundedGroupLoss(ZETA),
        model=pffl.models.LogisticRegression(l2=MU),
        method=pffl.methods.PFFL(
            multiplier_bound=B,
            risk_weight=BETA,
            dual_rounds=E,
            rounds_per_dual=T,
            local_steps=J,
            step_size=ETA_W,
            dual_step_size=ETA_THETA,
            iterate="average",
        ),
        random_state=0,
    )


def scaled_silos(federation):
    """Scale by means and deviations over all silos, and append the intercept's 1."""
    X = federation.pooled("train").X
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    parts = [silo.rows("train") for silo in federation.silos]
    return [
        (np.column_stack([(r.X - mean) / deviation, np.ones(len(r))]), r.y, r.group)
        for r in parts
    ]


def main() -> None:
    """Compare the two."""
    federation = pffl.datasets.synthetic(
        1200, silos=5, groups=3, features=5, random_state=0
    )
    w, lam = plain_pffl(scaled_silos(federation), groups=3)
    solution = library_pffl(federation)
    print("plain loop:", w.round(6), lam.round(6))
    print("pffl.PFFL: ", solution.w.round(6), solution.multipliers.round(6))
    print(f"largest difference {np.abs(w - solution.w).max():.1e}")
    print(f"{solution.status}, measured gap {solution.gap:.4f}")


if __name__ == "__main__":
    main()
