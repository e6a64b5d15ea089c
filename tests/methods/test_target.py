"""Which methods aim at the saddle point of G, and when they count as there."""

from __future__ import annotations

import pytest

import pffl
from pffl.engines import Local
from pffl.methods import METHODS
from pffl.methods.local_bgl import LocalBGL
from pffl.methods.reductions import Reductions
from pffl.preparation import prices
from tests.driving import iterate, measure
from tests.helpers import make_federation, make_problem

AIMING = {"exact", "first-order", "pffl", "reductions"}


def priced(budget: float = 5.0, beta: float = 1.0):
    engine = Local(make_federation(3))
    model = pffl.LogisticRegression(l2=0.02)
    constraint = pffl.BoundedGroupLoss(0.64)
    return engine, make_problem(
        engine, constraint, model=model, budget=budget, beta=beta
    )


def test_only_methods_that_aim_at_the_saddle_have_a_target():
    for name, kind in METHODS.items():
        if name == "auto":  # takes that of the method that it names
            continue
        assert kind.saddle is (name in AIMING), name
        assert (kind().target_gap is not None) is kind.saddle, name


@pytest.mark.parametrize(
    "method",
    [
        pffl.Exact(),
        pffl.FirstOrder(),
        Reductions(),
        pffl.PFFL(dual_rounds=40, local_steps=1),
    ],
)
def test_methods_that_aim_at_the_saddle_get_there(method):
    engine, problem = priced()
    point = iterate(engine, problem, method).point
    weight = problem.risk_weight + point.multipliers.sum()
    assert weight > 1.05  # the bound binds
    assert measure(engine, problem, point).gap <= method.target_gap * weight


@pytest.mark.parametrize("method", [pffl.FedAvg(), LocalBGL(dual_rounds=40)])
def test_methods_that_do_not_aim_at_it_are_not_there(method):
    engine, problem = priced()
    point = iterate(engine, problem, method).point
    weight = problem.risk_weight + point.multipliers.sum()
    assert measure(engine, problem, point).gap > 1e-2 * weight


def test_the_target_is_in_parts_of_the_prices():
    rounds = set()
    for factor in (1e-6, 1.0, 1e6):
        engine, problem = priced(5.0 * factor, factor)
        run = iterate(engine, problem, pffl.Exact(target_gap=1e-4))
        rounds.add(run.rounds)
        gap = measure(engine, problem, run.point).gap
        weight = factor + run.point.multipliers.sum()
        assert 1e-14 < gap / weight <= 1e-6
    assert len(rounds) == 1


def test_an_open_price_starts_at_ten_and_a_constraint_sets_its_own():
    bounded, open_price = pffl.BoundedGroupLoss(0.6), pffl.Exact()
    assert open_price.describe()["multiplier_bound"] is None
    assert prices(bounded, open_price) == (1.0, 10.0)
    assert prices(None, open_price) == (1.0, 10.0)
    assert prices(pffl.MinMax(), open_price) == (0.0, 1.0)
    assert prices(bounded, pffl.Exact(multiplier_bound=3.0)) == (1.0, 3.0)
    assert prices(bounded, pffl.FedAvg()) == (1.0, 0.0)
