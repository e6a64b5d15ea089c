"""FedFB, FedFair, FairFed and FairGrad by hand from raw rows, and what they reach."""

from __future__ import annotations

from itertools import combinations
from typing import get_args

import numpy as np
import pytest

from pffl.methods import FairFed, FairGrad, FedFair, FedFB
from tests.inside import constants
from tests.inside import methods_fairgrad_Notion as Notion
from tests.methods.biased import Raw, biased, fit, gap, set_up, states, without

L2 = 0.02


def close(found, expected, atol=1e-12):
    np.testing.assert_allclose(found, expected, atol=atol)


def table(raw, values=1.0):
    """Sums per (label, group)."""
    out = np.zeros((2, raw.group.max() + 1))
    np.add.at(out, (raw.y.astype(int), raw.group), values)
    return out


def rounds_of(federation, method, l2=L2, **more):
    engine, problem = set_up(federation, l2=l2, **more)
    seen = list(states(engine, problem, method))
    assert len(seen) == method.rounds
    return seen


# ----------------------------------------------------------------------------- FedFB


def naive_fedfb(raw, *, notion, alpha, rounds, steps, eta):
    """docs/methods.md, 8, one row after the other: every w and λ_{y,z}."""
    Z, N, m = raw.group.max() + 1, len(raw), table(raw)
    m_z = m.sum(axis=0)
    lam = np.array([m_z, m_z]) / N if notion == "dp" else m / N
    w, out = np.zeros(raw.X.shape[1]), []
    for t in range(rounds):
        c = np.zeros(N)
        for i in range(N):
            y, z = int(raw.y[i]), raw.group[i]
            c[i] = lam[y, z] / (m_z[z] if notion == "dp" else m[y, z])
        S = table(raw, raw.losses(w))
        w = raw.trained(w, c, steps=steps, eta=eta, ridge=L2)
        a = alpha / np.sqrt(t + 1)
        lam = lam.copy()
        if notion == "dp":
            f = [
                (S[0, z] - S[1, z]) / m_z[z]
                - (S[0, 0] - S[1, 0]) / m_z[0]
                + m[0, 0] / m_z[0]
                - m[0, z] / m_z[z]
                for z in range(Z)
            ]
            for z in range(1, Z):
                lam[0, z] += a * f[z]
                lam[0, 0] -= a * f[z]
            for z in range(Z):
                lam[0, z] = min(max(lam[0, z], 0.0), 2 * m_z[z] / N)
                lam[1, z] = 2 * m_z[z] / N - lam[0, z]
        else:  # two groups: FairBatch's rule
            share = m[1].sum() / N
            ahead = S[1, 1] / m[1, 1] - S[1, 0] / m[1, 0]
            a *= np.sign(ahead) if abs(ahead) > 1e-9 else 0.0
            lam[1, 1] = min(max(lam[1, 1] + a, 0.0), share)
            lam[1, 0] = share - lam[1, 1]
        out.append((w, lam))
    return out, 2 * m_z / N


@pytest.mark.parametrize(
    ("notion", "groups", "alpha"), [("dp", 2, 9.0), ("dp", 3, 0.5), ("eo", 2, 0.5)]
)
def test_fedfb(notion, groups, alpha):
    federation = biased(1, groups=groups)
    given = {"notion": notion, "alpha": alpha, "rounds": 12}
    expected, caps = naive_fedfb(Raw.of(federation), **given, steps=2, eta=0.3)
    seen = rounds_of(federation, FedFB(**given, local_steps=2, step_size=0.3))
    for state, (w, lam) in zip(seen, expected, strict=True):
        close(state.lam, lam)
        close(state.w, w)
    if notion == "dp":  # a cap of its own for each group, and it was reached
        lams = np.array([lam for _, lam in expected])
        assert (lams[:, 0, 1:] == caps[1:]).any()
        assert (caps[1:] < caps[0]).all()
    else:
        assert (expected[-1][1][1] == 0).any(), "the end of the range is part of it"


def published(raw, *, alpha, rounds, steps, eta):
    """The published aggregation: silos step on Σc_iℓ_i/Σc_i and count Σc_i."""
    Z, N, silos = raw.group.max() + 1, len(raw), np.unique(raw.silo)
    m_z = np.bincount(raw.group, minlength=Z).astype(float)
    lam, w, out = np.array([m_z, m_z]) / N, np.zeros(raw.X.shape[1]), []
    for t in range(rounds):
        c = (lam / m_z)[raw.y.astype(int), raw.group]
        signs = np.where(raw.y == 0, 1.0, -1.0) * raw.losses(w) + raw.y
        rates = np.array([signs[raw.group == z].mean() for z in range(Z)])
        moved, total = np.zeros_like(w), 0.0
        for k in silos:
            own = np.where(raw.silo == k, c, 0.0)
            v = w.copy()
            for _ in range(steps):
                v = v - eta / own.sum() * raw.gradient(v, own)
            moved, total = moved + own.sum() * (v - w), total + own.sum()
        w = w + moved / total
        f = rates - rates[0]
        change = alpha / np.sqrt(t + 1) * np.append(-f[1:].sum(), f[1:])
        zero = np.clip(lam[0] + change, 0.0, 2 * m_z / N)
        lam = np.array([zero, 2 * m_z / N - zero])
        out.append((w, lam))
    return out


@pytest.mark.parametrize("steps", [1, 4])
def test_fedfb_by_mass_is_the_published_aggregation(steps):
    federation = biased(1, groups=3)
    expected = published(Raw.of(federation), alpha=0.5, rounds=10, steps=steps, eta=0.3)
    local = {"alpha": 0.5, "rounds": 10, "local_steps": steps, "step_size": 0.3}
    for weighting in ("silos", "rows"):  # p_k play no part in it
        method = FedFB(by_mass=True, **local)
        seen = rounds_of(federation, method, l2=0.0, weighting=weighting)
        for state, (w, lam) in zip(seen, expected, strict=True):
            close(state.lam, lam)
            close(state.w, w)
    ours = fit(federation, FedFB(**local))
    assert (np.abs(ours - expected[-1][0]).max() > 1e-3) or steps == 1


def surrogate(raw, w):
    """f_1 of docs/methods.md, 8 at w."""
    sign = np.where(raw.y == 0, 1.0, -1.0) * raw.losses(w)
    one, other = ((sign + raw.y)[raw.group == z].mean() for z in (1, 0))
    return one - other


def test_demographic_parity_ends_where_its_surrogate_is_zero():
    # With cross-entropy for the error, f = 0 is not yet equal rates.
    federation = biased(2, sizes=(300, 200, 400), pull=3.0)
    raw = Raw.of(federation)
    before, after = (
        fit(federation, FedFB(alpha=alpha, rounds=200)) for alpha in (0.0, 0.5)
    )
    assert surrogate(raw, before) > 0.08
    assert abs(surrogate(raw, after)) < 1e-3
    assert gap(raw, after) < 0.85 * gap(raw, before)


# ---------------------------------------------------------------------------- FedFair


def mean_gaps(raw, w):
    """D̄ of every pair: per label, the mean over silos that have both groups."""
    losses = raw.losses(w)
    out = []
    for a, b in combinations(range(raw.group.max() + 1), 2):
        total = 0.0
        for c in (0, 1):
            own = []
            for k in range(raw.silo.max() + 1):
                of_a = losses[(raw.silo == k) & (raw.y == c) & (raw.group == a)]
                of_b = losses[(raw.silo == k) & (raw.y == c) & (raw.group == b)]
                if len(of_a) and len(of_b):
                    own.append(of_a.mean() - of_b.mean())
            total += np.mean(own) if own else 0.0
        out.append(total)
    return np.array(out)


def lagrangian(raw, w, prices):
    return raw.losses(w).mean() + prices @ mean_gaps(raw, w) + L2 / 2 * w @ w


def slope(function, w, h=1e-6):
    """Central differences."""
    steps = h * np.eye(len(w))
    return np.array([(function(w + s) - function(w - s)) / (2 * h) for s in steps])


@pytest.mark.parametrize("groups", [2, 3])
def test_fedfair_ends_at_a_stationary_point_within_the_bound(groups):
    federation = biased(6, sizes=(120, 80, 150), groups=groups, pull=2.0)
    raw = Raw.of(federation)
    free = fit(federation, FedFair(gap_bound=100.0, rounds=150))
    assert np.abs(mean_gaps(raw, free)).max() > 0.1
    method = FedFair(gap_bound=0.02, dual_step_size=0.2, dual_decay=0.0, rounds=600)
    last = rounds_of(federation, method)[-1]
    w, prices = last.w, last.lam_a - last.lam_b
    gaps = mean_gaps(raw, w)
    assert np.abs(gaps).max() <= 0.02 + 2e-4
    active = np.abs(prices) > 1e-3
    close(gaps[active], 0.02 * np.sign(prices[active]), 2e-4)
    there = slope(lambda v: lagrangian(raw, v, prices), w)
    assert np.linalg.norm(there) < 1e-3


# ---------------------------------------------------------------------------- FairFed


def away_by_hand(raw, w, metric):
    """|F − F_k|, or the distance of accuracies where F_k is undefined."""
    positive, right = raw.positive(w), 1 - raw.wrong(w)
    among = raw.y == 1 if metric == "eod" else np.ones(len(raw), bool)

    def rate(a, rows):
        own = positive[rows & among & (raw.group == a)]
        return own.mean() if len(own) else np.nan

    everyone = np.ones(len(raw), bool)
    rates = [rate(a, everyone) for a in range(raw.group.max() + 1)]
    high, low = int(np.argmax(rates)), int(np.argmin(rates))
    F = rates[high] - rates[low]
    out = []
    for k in range(raw.silo.max() + 1):
        rows = raw.silo == k
        F_k = rate(high, rows) - rate(low, rows)
        off = abs(right.mean() - right[rows].mean())
        out.append(off if np.isnan(F_k) else abs(F - F_k))
    return np.array(out)


def naive_fairfed(raw, *, metric, debiasing, fairness_budget, rounds, **local):
    """docs/methods.md, 11: every ω and w."""
    N, beta = len(raw), fairness_budget
    omega, w, out = np.bincount(raw.silo) / N, np.zeros(raw.X.shape[1]), []
    for _ in range(rounds):
        away = away_by_hand(raw, w, metric)
        omega = np.maximum(0, omega - beta * (away - away.mean()))
        omega = omega / omega.sum()
        c = np.empty(N)
        for i in range(N):
            own = raw.silo == raw.silo[i]
            same_a, same_y = raw.group == raw.group[i], raw.y == raw.y[i]
            times = 1.0
            if debiasing == "reweighing":
                expected = (own & same_a).sum() * (own & same_y).sum() / own.sum()
                times = expected / (own & same_a & same_y).sum()
            c[i] = omega[raw.silo[i]] * times / own.sum()
        w = raw.trained(w, c, ridge=L2, shares=omega, **local)
        out.append((omega, w))
    return out


FAIRFED = {
    "2023": ({}, lambda: biased(0)),
    "parity": ({"metric": "spd"}, lambda: biased(1)),
    "three groups": ({"debiasing": "none"}, lambda: biased(2, groups=3)),
    "undefined": ({}, lambda: without(biased(3), 1, group=0, label=1)),
    "a silo loses all weight": ({"fairness_budget": 8.0}, lambda: biased(4)),
}


@pytest.mark.parametrize("name", FAIRFED)
def test_fairfed(name):
    changes, draw = FAIRFED[name]
    federation = draw()
    given = {"metric": "eod", "debiasing": "reweighing"}
    given |= {"fairness_budget": 0.5, "rounds": 8, **changes}
    expected = naive_fairfed(Raw.of(federation), **given, steps=3, eta=0.5)
    method = FairFed(**given, local_steps=3, step_size=0.5)
    seen = rounds_of(federation, method)
    for state, (omega, w) in zip(seen, expected, strict=True):
        close(state.omega, omega)
        close(state.w, w)
    if name == "a silo loses all weight":
        assert any((omega == 0).any() for omega, _ in expected)
    shares = np.array([len(s.rows("train")) for s in federation.silos], float)
    assert np.abs(expected[-1][0] - shares / shares.sum()).max() > 0.005, "they moved"


# --------------------------------------------------------------------------- FairGrad


def levels(raw, predicted, notion):
    """F from predictions, straight from the definitions."""
    groups = range(raw.group.max() + 1)
    right = predicted == raw.y
    everyone = np.ones(len(raw), bool)

    def against(values, among):
        return [values[among & (raw.group == a)].mean() - values[among].mean()
                for a in groups]  # fmt: skip

    if notion == "accuracy":
        return np.array(against(right, everyone))
    if notion == "dp":
        return np.array(against(predicted, everyone))
    kept = [against(right, raw.y == y) for y in (0, 1)]
    if notion == "eo":
        kept[0] = [0.0 for _ in groups]
    return np.concatenate(kept)


def naive_fairgrad(raw, *, notion, rounds, steps, eta, dual, eps):
    """docs/methods.md, 12, row by row: every w, up and lo."""
    m, N = table(raw), len(raw)
    offsets, slopes = constants(notion, m)
    up, lo, w = np.zeros(len(offsets)), np.zeros(len(offsets)), np.zeros(raw.X.shape[1])
    out = []
    for _ in range(rounds):
        F = levels(raw, raw.positive(w), notion)
        up = np.maximum(0, up + dual * (F - eps))
        lo = np.maximum(0, lo - dual * (F + eps))
        c = np.empty(N)
        for i in range(N):
            g = int(raw.y[i]) * m.shape[1] + raw.group[i]
            price = sum((up[l] - lo[l]) * slopes[l, g] for l in range(len(up)))  # noqa: E741
            c[i] = (m.ravel()[g] / N + price) / m.ravel()[g]
        w = raw.trained(w, c, steps=steps, eta=eta, ridge=L2)
        out.append((w, up, lo, c))
    return out


@pytest.mark.parametrize("notion", get_args(Notion))
def test_fairgrad(notion):
    federation = biased(1, sizes=(60, 25, 90), groups=3)
    numbers = {"steps": 2, "eta": 0.2, "dual": 2.0, "eps": 0.02}
    expected = naive_fairgrad(Raw.of(federation), notion=notion, rounds=8, **numbers)
    steps = {"local_steps": 2, "step_size": 0.2, "dual_step_size": 2.0}
    method = FairGrad(notion=notion, rounds=8, gap_bound=0.02, **steps)
    seen = rounds_of(federation, method)
    for state, (w, up, lo, _) in zip(seen, expected, strict=True):
        close(state.w, w)
        close(state.up, up)
        close(state.lo, lo)
    assert any((c < 0).any() for *_, c in expected), "negative weights are part of it"


@pytest.mark.parametrize("notion", get_args(Notion))
def test_fairgrad_lowers_its_own_levels(notion):
    federation = biased(4, sizes=(200, 120, 260), pull=2.5)
    raw = Raw.of(federation)
    before, after = (
        np.abs(levels(raw, raw.positive(fit(federation, method)), notion)).max()
        for method in (
            FairGrad(notion=notion, rounds=100, dual_step_size=0.0),
            FairGrad(notion=notion, rounds=150, gap_bound=0.005),
        )
    )
    assert before > 0.02
    assert after < 0.4 * before
