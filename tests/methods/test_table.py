"""Methods side by side: what they refuse and share, when they are FedAvg, and `Auto`.

What all owe to their silos (order, copies, engines, resuming) is in tests/testing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.engines import Local
from pffl.errors import DataError, UsageError
from pffl.flow import Start, rounds
from pffl.methods import (
    AFL,
    FCFL,
    METHODS,
    PFFL,
    QFFL,
    Auto,
    Exact,
    FairFed,
    FairGrad,
    FedAvg,
    FedFair,
    FedFB,
    FedMinMax,
    FirstOrder,
    GroupWeighted,
    LocalBGL,
    Reductions,
)
from pffl.models import LogisticRegression, SoftmaxRegression
from pffl.prepare import risk_weight_and_bound
from pffl.problem import Access, Point
from tests.driving import drive, iterate, measure
from tests.helpers import make_federation, make_problem, make_schema
from tests.inside import hessians_fit
from tests.methods.biased import biased, set_up, states, without
from tests.models.test_base import Constant
from tests.raising import raises

# ------------------------------------------------------------------------- refusals

UNCHECKED = {"by", "dual_split"}  # names that only the data know


@pytest.mark.parametrize("value", [-1, float("nan"), 1.5j, "other"])
@pytest.mark.parametrize("kind", METHODS.own.values())
def test_a_wrong_value_is_refused_by_name(kind, value):
    for name in {field.name for field in fields(kind)} - UNCHECKED:
        with raises(UsageError, "wrong-value", kind.__name__, f"'{name}'"):
            kind(**{name: value})


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (PFFL, {"participation": 1.5}),
        (PFFL, {"rounds_per_dual": 2.5}),
        (Exact, {"target_gap": float("inf")}),
        (FCFL, {"sharpness": 0.0}),
        (FedMinMax, {"iterate": "best"}),
    ],
)
def test_limits_are_those_of_the_field(kind, given):
    with raises(UsageError, "wrong-value", f"'{next(iter(given))}'"):
        kind(**given)


def test_all_wrong_values_are_listed_at_once():
    with raises(UsageError, "wrong-value", "4 problems", "2.5"):
        PFFL(multiplier_bound=0, risk_weight=-1, dual_rounds=0, rounds_per_dual=2.5)


@pytest.mark.parametrize("name", ["drift_correction", "by_mass"])
@pytest.mark.parametrize("kind", [AFL, QFFL, FairFed])
def test_methods_that_weigh_silos_refuse_corrections(kind, name):
    with raises(UsageError, "wrong-parameter", name):
        kind(**{name: True})


ONE_SEX = make_schema(attributes=(("sex", ("f",)),))


@pytest.mark.parametrize(
    ("method", "federation", "error", "code"),
    [
        *[
            (method, {"labels": 3}, UsageError, "needs-two-classes")
            for method in (FCFL(), FedFB(), FairFed(), FairGrad(notion="dp"))
        ],
        *[
            (method, {"schema": ONE_SEX}, DataError, "too-few-groups")
            for method in (
                *(FCFL(), FedFB(), FairFed()),
                *(FairGrad(), FedFair(), GroupWeighted()),
            )
        ],
        (FedMinMax(), {}, UsageError, "needs-constraint"),
    ],
    ids=lambda part: getattr(part, "name", None),
)
def test_what_it_cannot_do_is_refused(method, federation, error, code):
    model = SoftmaxRegression() if federation.get("labels") == 3 else None
    engine = Local(make_federation(**federation))
    problem = make_problem(engine, None, model=model)
    with raises(error, code):
        iterate(engine, problem, method)


@pytest.mark.parametrize("kind", [Exact, FirstOrder])
def test_a_start_of_another_problem_is_refused(kind):
    problem = make_problem(Local(make_federation()), None)
    with raises(UsageError, "wrong-start"):
        next(kind().run(problem, Start(Point(np.zeros(2), np.zeros(0)))))


# --------------------------------------------------------------- when they are FedAvg

ONE = {"rounds": 12, "step_size": 0.5}
SAME_AS_FEDAVG: list[tuple[Any, dict[str, Any], float]] = [
    (FairFed(fairness_budget=0.0, debiasing="none", **ONE), ONE, 1e-12),
    (FairGrad(dual_step_size=0.0, **ONE), ONE, 1e-12),
    (FairGrad(dual_step_size=5.0, gap_bound=1.0, **ONE), ONE, 1e-12),
    (FedFB(alpha=0.0, **ONE), ONE, 1e-12),
    (FedFB(alpha=0.0, notion="eo", **ONE), ONE, 1e-12),
    (
        FedFair(gap_bound=100.0, dual_step_size=0.2, rounds=200),
        {"rounds": 400, "local_steps": 1},
        1e-6,
    ),
    (PFFL(dual_rounds=4, rounds_per_dual=3, iterate="last", step_size=0.5), ONE, 1e-13),
    (LocalBGL(dual_rounds=2, iterate="last"), {"rounds": 20}, 1e-13),
    (FedAvg(by_mass=True, **ONE), ONE, 1e-12),
    *[
        (QFFL(q=0.0, **given), given, 1e-13)
        for parameters in (
            {"local_steps": 1},
            {"local_steps": 4, "proximal": 0.3},
            {"batch_size": 7},
            {"step_size": None},
            {"participation": 0.5},
            {"server": "momentum", "server_step_size": 0.3},
            {"server": "yogi", "server_step_size": 0.01},
        )
        for given in [ONE | parameters]
    ],
]


@pytest.mark.parametrize(("method", "fedavg", "close"), SAME_AS_FEDAVG)
def test_where_nothing_is_to_be_evened_out_it_is_fedavg(method, fedavg, close):
    engine = Local(biased(2), threads=1)
    weighting = "silos" if method.name == "qffl" else "rows"
    problem = make_problem(engine, None, options=pffl.Options(weighting=weighting))
    ours, theirs = (iterate(engine, problem, m) for m in (method, FedAvg(**fedavg)))
    np.testing.assert_allclose(ours.point.w, theirs.point.w, atol=close)


# ------------------------------------------------- constraints, participation, gaps


def choosing(method, chosen):
    """The method, asking these silos."""

    @dataclass(frozen=True, kw_only=True)
    class Choosing(type(method)):  # type: ignore[misc]
        def silos(self, problem, round):
            return chosen

    return Choosing(**{name: getattr(method, name) for name in vars(method)})


STEPS = {"step_size": 0.2, "local_steps": 3}


@pytest.mark.parametrize("weighting", ["silos", "rows"])
@pytest.mark.parametrize(
    "method",
    [
        FedAvg(**STEPS),
        PFFL(**STEPS, by_mass=True),
        AFL(**STEPS, dual_step_size=0.01),  # so small that no weight meets its end
    ],
    ids=lambda part: getattr(part, "name", None),
)
def test_over_all_draws_asking_some_silos_is_asking_all(method, weighting):
    engine = Local(make_federation(6, sizes=(30, 10, 40, 20)), threads=1)
    options = pffl.Options(weighting=weighting)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.4), options=options)

    def after(method):
        step = next(states(engine, problem, method))
        lam = step.lam if method.name == "afl" else step.w
        return step.trainer.silos, step.w, lam

    _, w, weights = after(method)
    pairs = list(combinations(range(4), 2))
    asked, ws, lams = zip(*(after(choosing(method, p)) for p in pairs), strict=True)
    assert list(asked) == pairs
    assert np.ptp(ws, axis=0).max() > 1e-3
    np.testing.assert_allclose(np.mean(ws, axis=0), w, atol=1e-13)
    np.testing.assert_allclose(np.mean(lams, axis=0), weights, atol=1e-13)


def without_everywhere(federation, **who):
    for k in range(len(federation.silos)):
        federation = without(federation, k, **who)
    return federation


@pytest.mark.parametrize(
    "method",
    [
        *[FairGrad(notion=notion, rounds=5) for notion in ("dp", "eo", "eodds")],
        *[FedFB(notion=notion, rounds=5) for notion in ("dp", "eo")],
        FCFL(stage_one_rounds=5, stage_two_rounds=5),
    ],
    ids=lambda method: f"{method.name} {method.notion}",
)
def test_groups_and_labels_without_rows_have_no_part(method):
    federation = without_everywhere(biased(8, groups=3), group=1)
    gaps = without(without(federation, 0, group=0), 1, group=2)
    for some in (federation, without_everywhere(gaps, group=2, label=1)):
        engine = Local(some)
        *_, last = states(engine, make_problem(engine, None), method)
        assert np.isfinite(last.w).all()
        if method.name == "fairgrad":
            np.testing.assert_array_equal(last.up.reshape(-1, 3)[:, 1], 0.0)
        if method.name == "fedfb":
            assert last.lam.shape == (2, 2)


def test_a_gap_of_silos_needs_a_silo_with_two_groups():
    federation = without(without(biased(9, sizes=(50, 60)), 0, group=0), 1, group=1)
    _, problem = set_up(federation)
    with raises(DataError, "too-few-groups"):
        next(FCFL().run(problem))
    next(FCFL(pooled=True).run(problem))


@pytest.mark.parametrize("kind", [Exact, FirstOrder])
def test_the_solution_is_a_start_that_needs_one_round(kind):
    engine = Local(make_federation(5))
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.6))
    cold = iterate(engine, problem, kind())
    warm = drive(engine, rounds(problem, kind(), start=Start(cold.point)))
    assert cold.rounds > 3
    assert warm.rounds == 1
    np.testing.assert_array_equal(warm.point.w, cold.point.w)


# ------------------------------------------------------------------ the saddle point


def priced(budget: float = 5.0, beta: float = 1.0):
    engine = Local(make_federation(3))
    model = LogisticRegression(l2=0.02)
    constraint = pffl.BoundedGroupLoss(0.64)
    return engine, make_problem(
        engine, constraint, model=model, budget=budget, beta=beta
    )


@pytest.mark.parametrize(
    "method", [Exact(), FirstOrder(), Reductions(), PFFL(dual_rounds=40, local_steps=1)]
)
def test_methods_that_aim_at_the_saddle_get_there(method):
    engine, problem = priced()
    point = iterate(engine, problem, method).point
    weight = problem.risk_weight + point.multipliers.sum()
    assert weight > 1.05  # the bound binds
    assert measure(engine, problem, point).gap <= method.target_gap * weight


def test_an_open_price_starts_at_ten_and_a_constraint_sets_its_own():
    bounded, open_price = pffl.BoundedGroupLoss(0.6), Exact()
    assert open_price.describe()["multiplier_bound"] is None
    assert risk_weight_and_bound(bounded, open_price) == (1.0, 10.0)
    assert risk_weight_and_bound(None, open_price) == (1.0, 10.0)
    assert risk_weight_and_bound(pffl.MinMax(), open_price) == (0.0, 1.0)
    assert risk_weight_and_bound(bounded, Exact(multiplier_bound=3.0)) == (1.0, 3.0)
    assert risk_weight_and_bound(bounded, FedAvg()) == (1.0, 0.0)


# ---------------------------------------------------------- silos drawn, and `Auto`


def test_all_silos_are_drawn_alike_and_rounds_are_drawn_anew():
    federation = make_federation(7, sizes=(5,) * 6)
    problem = make_problem(Local(federation, threads=1), None)
    method = FedAvg(participation=0.5)
    draws = [method.silos(problem, round) for round in range(2000)]
    assert {len(draw) for draw in draws} == {3}
    counts = np.bincount(np.concatenate(draws), minlength=6)
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(2000 * 0.25)
    assert len(set(draws)) == 20
    assert method.silos(problem, 5) == draws[5]
    assert method.silos(replace(problem, seed=1), 5) is not None
    assert FedAvg(participation=0.01).silos(problem, 0) is not None


BOUND = pffl.BoundedGroupLoss(0.62)


def test_other_models_get_algorithm_1() -> None:
    engine = Local(make_federation(0, labels=0))
    problem = make_problem(engine, BOUND, model=Constant())
    found, why = Auto(multiplier_bound=3.0).resolved(problem)
    assert found == PFFL(multiplier_bound=3.0)
    assert why == "the model is not linear"
    assert Auto().resolved(problem)[0] == PFFL()
    with raises(UsageError, "wrong-parameter"):
        Auto(max_rounds=3).resolved(problem)


@pytest.mark.parametrize(
    ("parameters", "cells", "access", "fit"),
    [
        (200, 50, Access(), True),
        (201, 1, Access(), False),
        (50, 2000, Access(), False),
        (500, 5, Access(elsewhere=True), True),
        (2001, 0, Access(elsewhere=True), False),
    ],
)
def test_hessians_are_asked_for_where_they_are_small(
    parameters, cells, access, fit
) -> None:
    assert hessians_fit(parameters, cells, access=access)[0] is fit


def test_a_method_may_be_given_by_its_name() -> None:
    federation = make_federation(0)
    bound = pffl.BoundedGroupLoss(0.69)
    named = pffl.solve(federation, bound, method="first-order", random_state=0)
    given = pffl.solve(federation, bound, method=FirstOrder(), random_state=0)
    np.testing.assert_array_equal(named.w, given.w)
    with raises(UsageError, "unknown-method", "newton"):
        pffl.solve(federation, bound, method="newton", random_state=0)
