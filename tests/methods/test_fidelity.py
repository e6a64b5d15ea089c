"""Methods against their papers: plain loops on arrays, four unequal silos, to 1e-10."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import Part, federation_of, methods, pffl, trained

L2, ETA, SIZES = 0.02, 0.2, (70, 15, 40, 110)


def draw():
    """Two groups, two labels; every silo has all of them, in other shares."""
    rng, parts = np.random.default_rng(7), []
    for k, n in enumerate(SIZES):
        X = rng.normal(size=(n, 3)) + 0.4 * k
        a = (rng.random(n) < 0.2 + 0.15 * k).astype(int)
        y = (X[:, 0] - 0.5 * X[:, 1] + a + rng.normal(size=n) > 0.6).astype(float)
        a[:4], y[:4] = (0, 0, 1, 1), (0, 1, 0, 1)
        parts.append(Part(X, y, a[:, None]))
    return parts


PARTS = draw()
FEDERATION = federation_of(
    [{"train": part} for part in PARTS], {"sex": ("f", "m")}, 2, "drawn"
)
K, N = len(SIZES), sum(SIZES)
RAW = np.concatenate([part.X for part in PARTS])
X = np.column_stack([(RAW - RAW.mean(axis=0)) / RAW.std(axis=0), np.ones(N)])
y = np.concatenate([part.y for part in PARTS])
a = np.concatenate([part.codes[:, 0] for part in PARTS])
silo = np.repeat(np.arange(K), SIZES)
m_k = np.array(SIZES, float)
m_a = np.bincount(a).astype(float)
m_ya = np.array([[((y == c) & (a == g)).sum() for g in (0, 1)] for c in (0, 1)], float)


def losses(w):
    return np.logaddexp(0, X @ w) - y * (X @ w)


def slope(w, c):
    """Σ c_i ∇ℓ_i(w)."""
    return X.T @ (c / (1 + np.exp(-X @ w)) - c * y)


def group_losses(w):
    return np.bincount(a, losses(w)) / m_a


def simplex(v):
    u = np.sort(v)[::-1]
    shifts = (1 - np.cumsum(u)) / np.arange(1, len(v) + 1)
    return np.maximum(v + shifts[u + shifts > 0][-1], 0)


def close(found, w, lam=None):
    np.testing.assert_allclose(found.w, w, rtol=0, atol=1e-10)
    if lam is not None:
        np.testing.assert_allclose(found.multipliers, lam, rtol=0, atol=1e-10)


@pytest.mark.parametrize("iterate", ["average", "last"])
def test_pffl(iterate):
    beta, B, zeta, eta_theta, E, T, J = 0.8, 3.0, 0.5, 2.0, 6, 4, 3
    w, theta, ws, lams = np.zeros(4), np.zeros(2), [], []
    for _ in range(E):
        lam = B * np.exp(theta) / (1 + np.exp(theta).sum())
        for _ in range(T):
            r = group_losses(w) - zeta
            local = []
            for k in range(K):
                own = (silo == k) * K * (beta / (K * m_k[k]) + (lam / m_a)[a])
                v = w
                for _ in range(J):
                    v = v - 0.05 * (slope(v, own) + beta * L2 * v)
                local.append(v)
            w = np.mean(local, axis=0)
            ws.append(w)
            lams.append(lam)
        theta = theta + eta_theta * r
    method = pffl.PFFL(
        multiplier_bound=B,
        risk_weight=beta,
        dual_rounds=E,
        rounds_per_dual=T,
        local_steps=J,
        step_size=0.05,
        dual_step_size=eta_theta,
        iterate=iterate,
        target_gap=1e-12,
    )
    found = trained(FEDERATION, pffl.BoundedGroupLoss(zeta), method, l2=L2)
    if iterate == "average":
        close(found, np.mean(ws, axis=0), np.mean(lams, axis=0))
    else:
        close(found, w)


def test_fedminmax():
    w, mu = np.zeros(4), m_a / N
    for _ in range(25):
        L, c = group_losses(w), (mu / (m_a / N))[a]
        w = sum(
            m_k[k] / N * (w - ETA * slope(w, (silo == k) * c / m_k[k]))
            for k in range(K)
        )
        mu = simplex(mu + 0.5 * L)
    method = methods.FedMinMax(rounds=25, step_size=ETA, dual_step_size=0.5, ridge=0.0)
    close(trained(FEDERATION, pffl.MinMax(), method, l2=L2), w, mu)


def test_afl():
    w, lam, ws = np.zeros(4), np.full(K, 1 / K), []
    for _ in range(25):
        f = np.bincount(silo, losses(w)) / m_k
        w = w - ETA * slope(w, (lam / m_k)[silo])
        lam = simplex(lam + 0.5 * f)
        ws.append(w)
    method = methods.AFL(
        rounds=25, step_size=ETA, dual_step_size=0.5, ridge=0.0, iterate="average"
    )
    close(trained(FEDERATION, pffl.PerSilo(0.6), method, l2=L2), np.mean(ws, axis=0))


@pytest.mark.parametrize("weighting", ["silos", "rows"])
def test_qffl(weighting):
    q, p = 2.0, np.full(K, 1 / K) if weighting == "silos" else m_k / N
    w = np.zeros(4)
    for _ in range(15):
        above, below = np.zeros(4), 0.0
        for k in range(K):
            F, v = losses(w)[silo == k].mean() + 1e-10, w
            for _ in range(3):
                v = v - ETA * (slope(v, (silo == k) / m_k[k]) + L2 * v)
            delta = (w - v) / ETA
            above = above + p[k] * F**q * delta
            below += p[k] * (q * F ** (q - 1) * delta @ delta + F**q / ETA)
        w = w - above / below
    method = methods.QFFL(q=q, rounds=15, local_steps=3, step_size=ETA)
    terms = {"l2": L2, "weighting": weighting}
    close(trained(FEDERATION, pffl.BoundedGroupLoss(0.6), method, **terms), w)


def test_fedfair():
    beta, gamma, eps, w, up, down = 0.5, 0.1, 0.02, np.zeros(4), 0.1, 0.1
    c_gap = np.zeros(N)  # D̄ = Σ c_gap ℓ: mean over silos, sum over labels
    for k in range(K):
        for c in (0, 1):
            for g, sign in ((0, 1), (1, -1)):
                here = (silo == k) & (y == c) & (a == g)
                c_gap += sign * here / here.sum() / K
    for _ in range(30):
        D = c_gap @ losses(w)
        w = w - ETA * (slope(w, 1 / N + (up - down) * c_gap) + L2 * w)
        up = max(0.0, (1 - gamma * beta) * up + beta * (D - eps))
        down = max(0.0, (1 - gamma * beta) * down - beta * (D + eps))
    method = methods.FedFair(
        rounds=30,
        step_size=ETA,
        dual_step_size=beta,
        dual_decay=gamma,
        gap_bound=eps,
    )
    close(trained(FEDERATION, pffl.BoundedGroupLoss(0.6), method, l2=L2), w)


def test_fedfb_for_demographic_parity():
    w, lam, labels = np.zeros(4), np.array([m_a, m_a]) / N, y.astype(int)
    for t in range(20):
        c = lam[labels, a] / m_a[a]
        S = np.array([np.bincount(a, losses(w) * (y == label)) for label in (0, 1)])
        local = []
        for k in range(K):
            v = w
            for _ in range(2):
                v = v - ETA * (slope(v, (silo == k) * K * c) + L2 * v)
            local.append(v)
        w = np.mean(local, axis=0)
        rate = (S[0] - S[1]) / m_a - m_ya[0] / m_a
        f = rate[1] - rate[0]
        lam[0] += 0.3 / np.sqrt(t + 1) * f * np.array([-1, 1])
        lam[0] = np.clip(lam[0], 0, 2 * m_a / N)
        lam[1] = 2 * m_a / N - lam[0]
    method = methods.FedFB(alpha=0.3, rounds=20, local_steps=2, step_size=ETA)
    close(trained(FEDERATION, pffl.BoundedGroupLoss(0.6), method, l2=L2), w)
