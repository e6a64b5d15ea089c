"""FedFair by hand from raw rows: the mean of local gaps, its slope, its multipliers."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import pffl
from pffl.engines import Local, Reference
from pffl.errors import DataError, UsageError
from pffl.methods.fedfair import FedFair, gap_weights
from tests.helpers import make_federation, make_problem, make_schema, repartition
from tests.methods.biased import Raw, biased, copies, fit, set_up, states, without
from tests.raising import raises

L2 = 0.02


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


FEDERATIONS = {
    "two groups": lambda: biased(0),
    "three groups": lambda: biased(1, groups=3),
    "a missing cell": lambda: without(biased(2), 1, group=0, label=1),
    "a missing group": lambda: without(biased(3), 0, group=1),
}


@pytest.mark.parametrize("engine", [Local, Reference])
@pytest.mark.parametrize("name", FEDERATIONS)
def test_every_round_is_gradient_descent_and_ascent_by_hand(name, engine):
    federation = FEDERATIONS[name]()
    raw = Raw.of(federation)
    asker, problem = set_up(federation, engine=engine, l2=L2)
    beta, gamma, eps, eta = 0.8, 0.2, 0.03, 0.5
    method = FedFair(
        rounds=10,
        step_size=eta,
        dual_step_size=beta,
        dual_decay=gamma,
        gap_bound=eps,
    )
    w = np.zeros(4)
    pairs = len(mean_gaps(raw, w))
    lam_a, lam_b = np.full(pairs, 0.1), np.full(pairs, 0.1)
    seen = list(states(asker, problem, method))
    assert len(seen) == method.planned_rounds == 10
    for state in seen:
        D, prices = mean_gaps(raw, w), lam_a - lam_b
        w = w - eta * slope(lambda v: lagrangian(raw, v, prices), w)  # noqa: B023
        lam_a = np.maximum(0, (1 - gamma * beta) * lam_a + beta * (D - eps))
        lam_b = np.maximum(0, (1 - gamma * beta) * lam_b - beta * (D + eps))
        np.testing.assert_allclose(state.w, w, atol=1e-7)
        np.testing.assert_allclose(state.multipliers_a, lam_a, atol=1e-7)
        np.testing.assert_allclose(state.multipliers_b, lam_b, atol=1e-7)
    assert np.abs(lam_a - lam_b).max() > 0.01, "the gap had a price"


def test_the_gap_is_of_one_group_minus_the_other():
    # Group b from group a's rows would make every gap 0.
    counts = np.array([[[4.0, 2.0], [1.0, 5.0]], [[3.0, 0.0], [2.0, 2.0]]])
    sums = np.arange(1.0, 9.0).reshape(2, 2, 2)  # silo, label, group
    gap = gap_weights(counts) @ sums.ravel()
    label_0 = 1 / 4 - 2 / 2  # the second silo has nobody of group b
    label_1 = ((3 / 1 - 4 / 5) + (7 / 2 - 8 / 2)) / 2
    np.testing.assert_allclose(gap, [label_0 + label_1])
    swapped = gap_weights(counts[:, :, ::-1]) @ sums[:, :, ::-1].ravel()
    np.testing.assert_allclose(swapped, -gap)


def test_the_mean_of_local_gaps_is_not_the_pooled_gap():
    federation = biased(4, sizes=(30, 300))
    raw = Raw.of(federation)
    w = np.array([1.0, 0.5, 0.0, -0.2])
    pooled = Raw(raw.X, raw.y, raw.group, np.zeros_like(raw.silo))
    assert abs(mean_gaps(raw, w)[0] - mean_gaps(pooled, w)[0]) > 0.01
    _, problem = set_up(federation)
    m = FedFair().gaps(problem)
    sums = np.zeros((2, 2, 2))
    np.add.at(sums, (raw.silo, raw.y.astype(int), raw.group), raw.losses(w))
    np.testing.assert_allclose(m @ sums.ravel(), mean_gaps(raw, w), atol=1e-12)


def test_a_wide_bound_leaves_fedavg_by_rows():
    federation = biased(5)
    ours = FedFair(gap_bound=100.0, dual_step_size=0.2, rounds=200)
    theirs = pffl.FedAvg(rounds=400, local_steps=1)
    np.testing.assert_allclose(
        fit(federation, ours), fit(federation, theirs, weighting="rows"), atol=1e-6
    )


@pytest.mark.parametrize("groups", [2, 3])
def test_it_ends_at_a_stationary_point_within_the_bound(groups):
    federation = biased(6, sizes=(120, 80, 150), groups=groups, pull=2.0)
    raw = Raw.of(federation)
    free = fit(federation, FedFair(gap_bound=100.0, rounds=150))
    assert np.abs(mean_gaps(raw, free)).max() > 0.1
    asker, problem = set_up(federation, l2=L2)
    method = FedFair(gap_bound=0.02, dual_step_size=0.2, dual_decay=0.0, rounds=600)
    *_, last = states(asker, problem, method)
    w, prices = last.w, method.prices(last)
    gaps = mean_gaps(raw, w)
    assert np.abs(gaps).max() <= 0.02 + 2e-4
    active = np.abs(prices) > 1e-3
    np.testing.assert_allclose(gaps[active], 0.02 * np.sign(prices[active]), atol=2e-4)
    there = slope(lambda v: lagrangian(raw, v, prices), w)
    assert np.linalg.norm(there) < 1e-3


def test_silos_and_their_order():
    federation = biased(7)
    turned = repartition(federation, 2 - federation.pooled("train").silo)
    method = FedFair(rounds=20, dual_step_size=0.5)
    w = fit(federation, method)
    np.testing.assert_allclose(fit(turned, method), w, atol=1e-12)
    np.testing.assert_allclose(fit(federation, method, engine=Reference), w, atol=1e-10)
    one, four = (fit(copies(federation, k), method) for k in (1, 4))
    np.testing.assert_allclose(one, four, atol=1e-10)


def test_partial_participation_averages_over_those_asked():
    federation = copies(biased(8), 4)
    full = FedFair(rounds=8, step_size=0.5, dual_step_size=0.5)
    half = FedFair(rounds=8, step_size=0.5, dual_step_size=0.5, participation=0.5)
    a, b = (list(states(*set_up(federation), m))[-1] for m in (full, half))
    np.testing.assert_allclose(a.w, b.w, atol=1e-12)
    np.testing.assert_allclose(a.multipliers_a, b.multipliers_a, atol=1e-12)


def test_local_steps_and_many_classes():
    federation = make_federation(9, labels=3)
    asker = Local(federation)
    problem = make_problem(asker, None, model=pffl.SoftmaxRegression())
    *_, last = states(asker, problem, FedFair(rounds=10, local_steps=4))
    assert np.isfinite(last.w).all()


def test_what_it_cannot_do_is_refused():
    with raises(UsageError, "wrong-value", "3"):
        FedFair(gap_bound=-1.0, dual_decay=-1.0, rounds=0)
    alone = make_schema(attributes=(("sex", ("f",)),))
    problem = make_problem(Local(make_federation(schema=alone)), None)
    with raises(DataError, "too-few-groups"):
        FedFair().init(problem)
