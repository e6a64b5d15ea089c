"""Certificates of whole solutions, against numbers found in other ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import pffl
from pffl.data import Federation
from pffl.engines import Local
from pffl.errors import UsageError
from pffl.methods import PFFL, Exact, FedAvg
from pffl.models import Inputs, LogisticRegression, Model
from pffl.solution import Solution
from tests.driving import lowest
from tests.helpers import group_masks, make_federation, make_problem
from tests.inside import Certificate, conclude
from tests.raising import raises
from tests.saddle import Oracle
from tests.verifying import not_verified


@cache
def federation(labels: int = 2) -> Federation:
    return make_federation(3, sizes=(150, 80, 220), test=60, labels=labels)


CASES: dict[str, tuple[Any, Any, int]] = {
    "exact": (pffl.BoundedGroupLoss(0.66), Exact(), 2),
    "infeasible": (pffl.BoundedGroupLoss(0.3), Exact(), 2),
    "mixed bounds": (pffl.BoundedGroupLoss({"f": 0.69, "m": 0.655}), Exact(), 2),
    "pffl": (
        pffl.BoundedGroupLoss(0.6579),
        PFFL(dual_rounds=8, iterate="average"),
        2,
    ),
    "fedavg": (pffl.BoundedGroupLoss(0.66), FedAvg(rounds=5), 2),
    "no bound": (None, FedAvg(rounds=5), 2),
    "minmax": (pffl.MinMax(), Exact(), 2),
    "cbgl": (pffl.ConditionalBoundedGroupLoss(0.7), Exact(), 2),
    "per silo": (pffl.PerSilo(0.66), Exact(), 2),
    "overlapping": (pffl.BoundedGroupLoss(0.68) & pffl.PerSilo(0.7), Exact(), 2),
    "softmax": (pffl.BoundedGroupLoss(1.0), Exact(), 3),
    "least squares": (pffl.BoundedGroupLoss(1.2), Exact(), 0),
}


@cache
def solved(case: str) -> Solution:
    constraint, method, labels = CASES[case]
    ball = pffl.Options(radius=100.0, smallest_bound=True)
    return pffl.solve(
        federation(labels), constraint, method=method, options=ball, random_state=0
    )


@cache
def certified(case: str) -> Certificate:
    e = solved(case).evidence
    return conclude(replace(e, terms=replace(e.terms, target_gap=1e-3))).certificate


def test_a_run_that_did_not_converge_is_not_excused_by_its_gap():
    certificate = certified("pffl")
    found: Any = certificate.of_kind("empirical")[0]
    assert certificate.verdicts["training"]["verdict"] == "not converged"
    assert found.value > 0
    assert (found.figures["slack"], found.figures["converged"]) == (None, "no")
    assert not found.holds
    assert not certificate.of_kind("infeasible")[0].available


def test_infeasible_bounds_are_proved_and_the_smallest_is_met():
    rows, method = federation(), Exact()
    solution, certificate = solved("infeasible"), certified("infeasible")
    proof = certificate.of_kind("infeasible")[0]
    oracle = Oracle.of(rows, group_masks(rows), [0.3, 0.3], beta=0.0, l2=0.0)
    lam = np.array(proof.figures["multipliers"])
    assert proof.holds
    assert oracle.least(lam, radius=100.0) >= proof.value > 0
    least = solution.smallest_bound
    again = pffl.solve(
        rows, pffl.BoundedGroupLoss(least), method=method, random_state=0
    )
    below = pffl.BoundedGroupLoss(least - 1e-3)
    assert again.status == "met"
    assert pffl.solve(rows, below, method=method, random_state=0).status != "met"


def cell_minimum(oracle: Oracle, cell: int, radius: float) -> float:
    """Return the least mean loss of one cell alone, by cvxpy."""
    w = cp.Variable(oracle.X.shape[1])
    losses = cp.logistic(cp.multiply(1 - 2 * oracle.y, oracle.X @ w))
    mean = (oracle.cells[cell] / oracle.cells[cell].sum()) @ losses
    problem = cp.Problem(cp.Minimize(mean), [cp.norm(w) <= radius])
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


@pytest.mark.parametrize("cell", [0, 1])
def test_lowest_bound_of_one_cell_is_that_of_cvxpy(cell):
    rows = federation()
    engine = Local(rows)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.67))
    found = lowest(engine, problem, cell)
    oracle = Oracle.of(rows, group_masks(rows), [0.67, 0.67])
    true = cell_minimum(oracle, cell, problem.radius)
    assert found.lower - 1e-6 <= true <= found.upper + 1e-6
    assert found.upper - found.lower < 1e-6


def test_smallest_common_bound_is_the_minimax_value():
    rows = federation()
    oracle = Oracle.of(
        rows, group_masks(rows), [0.0, 0.0], beta=0.0, budget=1.0, l2=0.0
    )
    value, _ = oracle.saddle(radius=100.0)
    assert not certified("mixed bounds").of_kind("attainable")
    for case in ("exact", "minmax"):
        found = certified(case).of_kind("attainable")[0].figures
        assert found["lower"] - 1e-7 <= value <= found["upper"] + 1e-7
        assert found["upper"] - found["lower"] < 1e-6


def test_candidates_cost_confidence():
    def uppers(**options: Any) -> np.ndarray:
        certificate = pffl.certify(solved("exact"), **options)
        table: Any = certificate.of_kind("holdout")[0].per_cell
        return np.array([row["upper"] for row in table])

    alone, many = uppers(), uppers(candidates=20)
    assert (many > alone).all()
    assert (uppers(candidates=1) == alone).all()


FROM_HELD_OUT = ("holdout", "holdout_error")


def with_overlap(number: int | None, by_person: bool) -> Certificate:
    e = solved("exact").evidence
    data = replace(e.data, overlap=number, by_person=by_person)
    return conclude(replace(e, data=data)).certificate


def test_held_out_rows_of_people_in_training_say_nothing():
    certificate = with_overlap(7, by_person=True)
    for kind in FROM_HELD_OUT:
        statement = certificate.of_kind(kind)[0]
        assert not statement.available
        assert "7 test rows" in statement.text
        assert statement.value is None
    bounds, splits = pffl.BoundedGroupLoss(0.66), ("train",)
    trained = pffl.audit(solved("exact"), federation(), bounds, splits=splits)
    assert not trained.certificate.of_kind("holdout")[0].available


@pytest.mark.parametrize("number", [1, 2, 70, None])
def test_fault_85_equal_rows_stay_and_could_not_be_checked(number):
    certificate, own = with_overlap(number, by_person=False), with_overlap(0, True)
    for kind in FROM_HELD_OUT:
        statement, same = certificate.of_kind(kind)[0], own.of_kind(kind)[0]
        assert (statement.value, statement.text) == (same.value, same.text)
        ground, sure = statement.assumptions[1], same.assumptions[1]
        assert (ground.state, sure.state) == ("could not be checked", "checked")
        said = "not available" if number is None else f"; {number} of "
        assert said in ground.text


def test_no_test_rows():
    rows = federation()
    silos = [replace(s, splits={"train": s.rows("train")}) for s in rows.silos]
    bare = replace(rows, silos=tuple(silos))
    certificate = pffl.certify(pffl.solve(bare, None, random_state=0))
    assert not certificate.of_kind("holdout")[0].available


def test_fault_33_needs_a_loss_bound_and_a_confidence():
    squares = certified("least squares")
    assert not squares.of_kind("holdout")[0].available
    for bad in (0.0, 1.0, 1.5, float("nan")):
        with raises(UsageError, "wrong-value", "confidence"):
            pffl.certify(solved("exact"), confidence=bad)
    with raises(UsageError, "wrong-value", "candidates"):
        pffl.certify(solved("exact"), candidates=0)
    with raises(UsageError, "unknown-split", "future"):
        pffl.audit(solved("exact"), federation(), splits=("future",))


def test_fault_73_other_data_are_labelled():
    other = make_federation(8, sizes=(90, 100), test=50)
    bounds = pffl.BoundedGroupLoss(0.66)
    certificate = pffl.audit(solved("exact"), other, bounds).certificate
    prints = certificate.fingerprints
    assert prints["data"] == other.fingerprint
    assert prints["trained on"] == federation().fingerprint
    assert certificate.of_kind("empirical")


@dataclass(frozen=True, eq=False)
class Bent:
    """A logistic regression that does not say that it is convex, nor linear."""

    inner: Any = field(default_factory=LogisticRegression)
    convex: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def bind(self, schema: Any, inputs: Inputs) -> Bent:
        return replace(self, inner=self.inner.bind(schema, inputs))

    def with_target(self, target: Any) -> Bent:
        return replace(self, inner=self.inner.with_target(target))

    def describe(self) -> Mapping[str, object]:
        return {"kind": "bent"}

    fingerprint = Model.fingerprint


def test_fault_32_convex_only_statements_are_refused_for_other_models(tmp_path):
    method = PFFL(dual_rounds=2, rounds_per_dual=2, step_size=0.1, dual_step_size=0.1)
    rows = federation()
    solution = pffl.solve(
        rows, pffl.BoundedGroupLoss(0.6), model=Bent(), method=method, random_state=0
    )
    certificate = pffl.certify(solution)
    for kind in ("gap", "attainable"):
        assert not certificate.of_kind(kind)[0].available
    assert not certificate.of_kind("infeasible")
    for kind in ("empirical", "holdout", "holdout_error"):
        assert certificate.of_kind(kind)[0].available
    assert not_verified(solution, rows, tmp_path) == []
