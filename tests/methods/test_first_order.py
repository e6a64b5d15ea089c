"""FirstOrder: what it learns, what it asks, and where it ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.engines import Local, Reference
from pffl.methods import Exact, FirstOrder
from pffl.models import LogisticRegression
from tests.driving import iterate, measure
from tests.helpers import make_federation, make_problem
from tests.inside import SLOW_ROUNDS, first_order, saddle
from tests.methods.test_exact import outlying, states


def pairs(rng, hessians, m, q):
    steps = [rng.normal(size=q) for _ in range(m)]
    return steps, [hessians @ s for s in steps]


def plain_bfgs(steps, ys, start):
    """Return what one function's BFGS comes to, pair by pair, as in the book."""
    ratios = [(s @ y) / (s @ start @ s) for s, y in zip(steps, ys, strict=True)]
    B = np.exp(np.mean(np.log(ratios))) * start
    for s, y in zip(steps, ys, strict=True):
        B = B - np.outer(B @ s, B @ s) / (s @ B @ s) + np.outer(y, y) / (s @ y)
    return B


@pytest.mark.parametrize("m", [1, 4, 9])
def test_each_function_has_its_own_bfgs(m):
    rng = np.random.default_rng(m)
    roots = rng.normal(size=(3, 5, 5))
    steps, changes = pairs(rng, roots @ roots.mT, m, 5)
    start = np.diag(rng.uniform(0.5, 2.0, size=5))
    found = first_order.learnt(steps, changes, start)
    for z in range(3):
        wanted = plain_bfgs(steps, [y[z] for y in changes], start)
        np.testing.assert_allclose(found[z], wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found @ steps[-1], changes[-1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "l2"), [("plain", 0.0), ("plain", 1e-2), ("wild", 1e-6)]
)
def test_it_ends_where_exact_ends(kind, l2):
    federation = make_federation(3, sizes=(80, 90)) if kind == "plain" else outlying(1)
    engine, model = Local(federation), LogisticRegression(l2=l2)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.55), model=model)
    exact = iterate(engine, problem, Exact())
    first = iterate(engine, problem, FirstOrder())
    weight = 1.0 + exact.point.multipliers.sum()
    ends = [measure(engine, problem, run.point).upper for run in (exact, first)]
    assert abs(ends[0] - ends[1]) <= 1e-6 * weight
    assert first.rounds <= 60


def test_what_can_be_separated_is_said_of_a_ball():
    engine = Local(outlying(0))  # the infimum 0 is attained nowhere
    model = LogisticRegression(l2=0.0)
    problem = make_problem(engine, pffl.MinMax(), model=model, beta=0.0, budget=1.0)
    method = FirstOrder(risk_weight=0.0, multiplier_bound=1.0, max_rounds=60)
    *_, last = states(engine, problem, method)
    end = last.ending
    assert last.round <= 60
    assert 0.0 <= end.upper <= 0.5 < np.log(2)  # and it is on its way
    assert end.lower <= end.upper
    assert np.isfinite(end.radius)


def test_hessians_are_asked_for_when_gradients_are_slow(monkeypatch):
    monkeypatch.setattr("pffl.methods.first_order.SLOW_ROUNDS", 4)
    federation = make_federation(9, sizes=(150, 150))
    engine = Reference(_widened(federation, 79))
    model = LogisticRegression(l2=1e-6)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.2), model=model)
    method = FirstOrder(max_rounds=40)
    orders: list[int] = []
    ask = engine.ask_many

    def heard(queries):
        orders.extend(query.order for query in queries)
        return ask(queries)

    monkeypatch.setattr(engine, "ask_many", heard)
    upper, lower, *_ = iterate(engine, problem, method).bounds
    assert orders[:4] == [1] * 4
    assert set(orders[4:-1]) == {2}  # and of the last round values and gradients
    assert 4 < len(orders) < 20
    assert upper - lower <= 1e-5
    assert SLOW_ROUNDS > 4


def _widened(federation, width):

    rng = np.random.default_rng(0)
    schema = replace(federation.schema, features=tuple(f"x{j}" for j in range(width)))
    silos = []
    for silo in federation.silos:
        rows = silo.rows("train")
        X = rng.normal(size=(len(rows.y), width)) * np.geomspace(1, 1e-3, width)
        silos.append(replace(silo, splits={"train": replace(rows, X=X)}))
    return replace(federation, schema=schema, silos=tuple(silos))


def test_a_direction_that_only_rounding_draws_is_none():
    """Otherwise each processor would go its own way, and sites follow a run."""
    rng = np.random.default_rng(1)
    few = rng.normal(size=(4, 70))
    sums = rng.normal(size=(2, 4)) @ few / 9
    rows = np.vstack([few[:2], sums[:1], few[2:], sums])
    whole = saddle.span_of(few)
    noisy = rows * (1 + 1e-16 * rng.normal(size=(7, 1)))
    for basis in (saddle.span_of(rows), saddle.span_of(noisy)):
        assert basis.shape == (70, 4)
        np.testing.assert_allclose(basis @ basis.T, whole @ whole.T, atol=1e-12)


def test_inputs_that_no_row_has_take_no_part():
    rng = np.random.default_rng(5)
    few, many = rng.normal(size=(120, 6)), np.zeros((120, 900))
    places = np.sort(rng.choice(900, 6, replace=False))
    many[:, places] = few
    y, group = rng.integers(0, 2, size=120), rng.integers(0, 2, size=120)
    ends = []
    for X in (few, many):
        federation = pffl.Federation.from_arrays(X, y, sensitive_features=group)
        engine, model = Local(federation), LogisticRegression(l2=1e-2)
        problem = make_problem(engine, pffl.BoundedGroupLoss(0.6), model=model)
        *_, last = states(engine, problem, FirstOrder())
        assert last.closed
        ends.append((last.upper, last.lower, last.best.w))
    np.testing.assert_allclose(ends[0][:2], ends[1][:2], atol=1e-6)
    kept = np.append(places, 900)
    np.testing.assert_allclose(ends[1][2][kept], ends[0][2], atol=1e-3)
    np.testing.assert_allclose(np.delete(ends[1][2], kept), 0.0, atol=1e-12)
