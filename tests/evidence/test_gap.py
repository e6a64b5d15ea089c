"""The measured gap is never smaller than the true one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.engines import Local
from pffl.prepare import Options
from pffl.problem import Point
from tests.driving import measure
from tests.helpers import draw_multipliers, group_masks, make_federation, make_problem
from tests.inside import Pair
from tests.oracles import MODELS
from tests.saddle import Oracle


def drawn(seed, *, kind="logistic", beta=1.0, l2=0.05, radius=10.0, bound=0.5):
    cls, labels = MODELS[kind]
    rng = np.random.default_rng(seed)
    federation = make_federation(seed, sizes=rng.integers(12, 40, 3), labels=labels)
    engine = Local(federation, threads=1)
    prices = {"beta": beta, "budget": float(rng.choice([0.5, 5.0, 50.0]))}
    problem = make_problem(
        engine,
        pffl.BoundedGroupLoss(bound),
        model=cls(l2=l2),
        options=Options(radius=radius),
        **prices,
    )
    oracle = Oracle.of(
        federation, group_masks(federation), [bound, bound], kind=kind, l2=l2, **prices
    )
    return rng, engine, problem, oracle


def random_pair(rng, problem, radius):
    w = rng.normal(size=problem.n_parameters)
    w *= radius * rng.random() / np.linalg.norm(w)
    return Point(w, draw_multipliers(rng, problem))


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(list(MODELS)),
    beta=st.sampled_from([0.2, 1.0, 3.0]),
)
def test_gap_is_at_least_the_true_one(seed, kind, beta):
    rng, engine, problem, oracle = drawn(seed, kind=kind, beta=beta)
    point = random_pair(rng, problem, 3.0)
    gap = measure(engine, problem, point)
    true = oracle.upper(point.w) - oracle.least(point.multipliers)
    assert gap.gap >= true - 1e-9 * max(1.0, abs(true))
    # … and it is sharp: a few Newton steps find nearly all of it.
    assert gap.gap <= 1.02 * true + 1e-9


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), radius=st.sampled_from([1.0, 10.0]))
def test_gap_over_a_ball_is_at_least_the_true_one(seed, radius):
    rng, engine, problem, oracle = drawn(seed, beta=0.0, radius=radius)
    point = random_pair(rng, problem, radius)
    gap = measure(engine, problem, point)
    true = oracle.upper(point.w) - oracle.least(point.multipliers, radius)
    assert gap.gap >= true - 1e-9
    assert gap.gap <= 1.05 * true + 1e-6


def test_a_gap_is_never_zero_or_negative():
    assert Pair(1.0, 1.0, []).gap > 0
    assert Pair(1.0, 1.0 + 1e-16, []).gap > 0
    assert Pair(1e6, 1e6, []).gap >= 1e-9
