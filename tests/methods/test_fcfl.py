"""FCFL: slopes from raw rows, directions against LPs, and both stages of a run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import expit

from pffl.methods import FCFL
from tests.inside import Gaps, guarded_step, least_norm, stage_one, stage_two
from tests.methods.biased import Raw, biased, set_up, states, without

L2 = 0.02


def smooth_gaps(raw, w, *, notion="dp", pooled=False, s=10.0):
    """|Δ| of every silo (or of all rows) and pair of groups, where it is defined."""
    scores = expit(s * raw.X @ w)
    among = raw.y == 1 if notion == "eo" else np.ones(len(raw), bool)
    silo = np.zeros_like(raw.silo) if pooled else raw.silo
    out = []
    for k in range(silo.max() + 1):
        groups = [scores[among & (silo == k) & (raw.group == a)]
                  for a in range(raw.group.max() + 1)]  # fmt: skip
        for a in range(len(groups)):
            out += [
                abs(groups[a].mean() - groups[b].mean())
                for b in range(a + 1, len(groups))
                if len(groups[a]) and len(groups[b])
            ]
    return np.array(out)


def silo_losses(raw, w):
    losses = raw.losses(w)
    return np.array([losses[raw.silo == k].mean() for k in range(raw.silo.max() + 1)])


def jacobian(function, w, h=1e-6):
    steps = h * np.eye(len(w))
    return np.stack([(function(w + e) - function(w - e)) / (2 * h) for e in steps], 1)


FEDERATIONS = {
    "two groups": lambda: biased(0),
    "three groups": lambda: biased(1, groups=3),
    "a missing group": lambda: without(biased(2, groups=3), 1, group=0),
    "a missing cell": lambda: without(biased(3), 0, group=1, label=1),
}


def softmax(values):
    return np.exp(values - values.max()) / np.exp(values - values.max()).sum()


@pytest.mark.parametrize("pooled", [False, True])
def test_every_round_is_the_papers(pooled):
    federation = biased(4)
    raw = Raw.of(federation)
    asker, problem = set_up(federation, l2=L2)
    eps, eta = 0.05, 0.1
    method = FCFL(
        pooled=pooled,
        gap_bound=eps,
        step_size=eta,
        stage_one_rounds=40,
        stage_two_rounds=15,
    )
    w, delta = np.zeros(4), np.array([0.5, 0.5])
    kinds = set()
    seen = list(states(asker, problem, method))
    assert len(seen) == method.planned_rounds == 55
    for t, state in enumerate(seen):
        l, g = silo_losses(raw, w), smooth_gaps(raw, w, pooled=pooled)  # noqa: E741
        grad_l = jacobian(lambda v: silo_losses(raw, v), w, 1e-5)
        grad_g = jacobian(lambda v: smooth_gaps(raw, v, pooled=pooled), w, 1e-5)
        if t == 0:
            grad_g = 0 * grad_g  # |Δ| has a kink at w = 0
        d_L, d_G = softmax(l / delta[0]) @ grad_l, softmax(g / delta[1]) @ grad_g
        if t < 40:
            D = np.stack([d_L, d_G])
            goal, kept = (d_L, []) if g.max() <= eps else (d_G, [d_L])
        else:
            D = np.vstack([grad_l, d_G if g.max() >= eps else 0 * d_G])
            goal, kept = grad_l.mean(axis=0), list(D)
        kinds.add((t < 40, bool(g.max() <= eps)))
        found = linprog(
            -D @ goal,
            A_ub=-np.array([D @ v for v in kept]) if kept else None,
            b_ub=np.zeros(len(kept)) if kept else None,
            A_eq=np.ones((1, len(D))),
            b_eq=[1],
        )
        w = w - eta * (found.x @ D + L2 * w)
        norms = np.array([np.linalg.norm(d_L), np.linalg.norm(d_G)])
        cold = (0.1 * norms <= delta) & (delta > 1e-4)
        delta = np.where(cold, 0.01 * delta, delta)
        np.testing.assert_allclose(state.w, w, atol=2e-5)
        np.testing.assert_allclose(state.delta, delta)
    assert kinds >= {(True, True), (True, False), (False, False)}


vectors = st.integers(0, 100_000).map(
    lambda seed: np.random.default_rng(seed).normal(size=(2, 4))
)


@given(vectors, st.booleans())
def test_stage_one_solves_its_linear_program(directions, inside):
    d_L, d_G = directions
    c = stage_one(d_L, d_G, inside=inside)
    assert c.min() >= 0
    assert c.sum() == pytest.approx(1)
    goal = d_L if inside else d_G
    keep = {} if inside else {"A_ub": -(directions @ d_L)[None], "b_ub": [0.0]}
    best = linprog(-directions @ goal, A_eq=np.ones((1, 2)), b_eq=[1], **keep)
    assert (c @ directions) @ goal == pytest.approx(-best.fun, abs=1e-9)
    if not inside:
        assert (c @ directions) @ d_L >= -1e-12


@given(st.integers(0, 100_000))
def test_stage_two_raises_no_loss_and_is_best(seed):
    rng = np.random.default_rng(seed)
    D = rng.normal(size=(4, 5)) + 0.3
    c = stage_two(D)
    assert c.min() >= -1e-12
    assert c.sum() == pytest.approx(1)
    d = c @ D
    assert (D @ d).min() >= -1e-7, "no direction is climbed"
    least = least_norm(D) @ D
    mean = D[:-1].mean(axis=0)
    assert d @ mean >= least @ mean - 1e-7


def test_a_guarded_step_keeps_gaps_under_their_bound():
    zeros = np.zeros((1, 2))
    at_w = Gaps(
        np.ones(1), zeros, np.array([0.02, 0.0]), np.array([[-1.0, 0], [0, 1.0]])
    )
    d = np.array([0.3, 0.4])
    eta = guarded_step(d, at_w, 0.05, loss_bend=0.01, gap_bend=20.0)
    rise = 0.3 * eta + 0.5 * 20.0 * 0.25 * eta**2
    assert rise == pytest.approx(0.03), "what is left is used up"
    free = guarded_step(d, at_w, 10.0, loss_bend=1.0, gap_bend=2.0)
    assert free == 1.0
    above = guarded_step(d, at_w, 0.01, loss_bend=0.01, gap_bend=2.0)
    assert above == 0.5, "climbing: never more than 1/L of the gap"
    down = guarded_step(-d, at_w, 0.01, loss_bend=0.01, gap_bend=0.5)
    assert down == 2.0
    still = guarded_step(0 * d, at_w, 0.01, loss_bend=0.0, gap_bend=0.5)
    assert still == 2.0
