"""`solve` from end to end: against other solvers, and every status reached."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression as SklearnLogistic

import pffl
from pffl.callbacks import Callback
from pffl.engines import Reference
from pffl.errors import NotMetError, UsageError
from pffl.methods import PFFL, Exact, FedAvg
from pffl.models import LogisticRegression
from tests.helpers import group_masks, make_federation
from tests.raising import raises
from tests.saddle import Oracle

# Agreement with other solvers


@pytest.mark.filterwarnings("ignore:the bounds ask for nothing")
@pytest.mark.parametrize("weighting", ["silos", "rows"])
@pytest.mark.parametrize("way", ["fedavg", "exact", "exact, bound far away", "pffl"])
def test_without_a_price_it_is_scikit_learns_logistic_regression(way, weighting):
    federation, l2 = make_federation(0, sizes=(60, 200, 90)), 0.05
    method, constraint = {
        "fedavg": (FedAvg(rounds=400, local_steps=1), None),
        "exact": (Exact(target_gap=1e-11), None),
        "exact, bound far away": (Exact(target_gap=1e-11), pffl.BoundedGroupLoss(3.0)),
        "pffl": (
            PFFL(dual_rounds=60, rounds_per_dual=10, local_steps=1, iterate="last"),
            pffl.BoundedGroupLoss(1e3),
        ),
    }[way]
    solution = pffl.solve(
        federation,
        constraint,
        model=LogisticRegression(l2=l2),
        method=method,
        options=pffl.Options(weighting=weighting),
        random_state=0,
    )
    pooled = federation.pooled("train")
    X = (pooled.X - pooled.X.mean(axis=0)) / pooled.X.std(axis=0)
    X = np.column_stack([X, np.ones(len(X))])
    rows = np.array([60, 200, 90])
    shares = np.full(3, 1 / 3) if weighting == "silos" else rows / rows.sum()
    sklearn = SklearnLogistic(C=1 / l2, fit_intercept=False, tol=1e-12, max_iter=10_000)
    sklearn.fit(X, pooled.y, sample_weight=(shares / rows)[pooled.silo])
    np.testing.assert_allclose(solution.w, sklearn.coef_[0], atol=1e-6)
    assert solution.status == ("no bounds" if constraint is None else "met")
    np.testing.assert_allclose(solution.multipliers, 0.0, atol=1e-9)


@pytest.mark.parametrize(
    "seed",
    [*range(8), *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 20))],
)
def test_pffl_averages_approach_the_saddle_value_within_the_gap(seed):
    rng = np.random.default_rng(seed)
    federation = make_federation(seed, sizes=rng.integers(30, 90, 3))
    budget, bound = float(rng.choice([0.5, 2.0, 5.0])), float(rng.uniform(0.5, 0.68))
    solution = pffl.solve(
        federation,
        pffl.BoundedGroupLoss(bound),
        model=LogisticRegression(l2=0.05),
        method=PFFL(
            multiplier_bound=budget, dual_rounds=60, rounds_per_dual=5, local_steps=2
        ),
        random_state=seed,
    )
    oracle = Oracle.of(
        federation, group_masks(federation), [bound, bound], budget=budget, l2=0.05
    )
    saddle, _ = oracle.saddle()
    least = oracle.least(solution.multipliers)
    upper = oracle.upper(solution.w)
    assert least <= saddle + 1e-6
    assert saddle <= upper + 1e-6
    assert upper - saddle <= solution.gap + 1e-6
    assert upper - least <= solution.gap + 1e-9, "never smaller than the true one"
    assert solution.gap <= 0.02 * max(1.0, budget)


# Same run, same result


def test_both_engines_give_the_same_run():
    federation = make_federation(4, sizes=(1, 2, 80, 33, 60))
    method = PFFL(dual_rounds=20, rounds_per_dual=4, local_steps=3)
    constraint = pffl.BoundedGroupLoss(0.6)
    local, reference = (
        pffl.solve(federation, constraint, method=method, engine=name, random_state=0)
        for name in ("local", "reference")
    )
    np.testing.assert_allclose(local.w, reference.w, rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        local.multipliers, reference.multipliers, rtol=0, atol=1e-9
    )
    assert local.gap == pytest.approx(reference.gap, abs=1e-9)
    assert (local.status, local.rounds) == (reference.status, reference.rounds)
    both = [
        s.history.drop(columns=["seconds", "worst_cell"]) for s in (local, reference)
    ]
    pd.testing.assert_frame_equal(*both, rtol=0, atol=1e-9)
    for a, b in zip(local.cell_results, reference.cell_results, strict=True):
        assert a.test_upper == pytest.approx(b.test_upper, abs=1e-9)
        assert a.train_loss == pytest.approx(b.train_loss, abs=1e-9)


@pytest.mark.parametrize("method", [Exact(), PFFL(dual_rounds=5)])
def test_the_same_seed_gives_the_same_result(method):
    federation, constraint = make_federation(5), pffl.BoundedGroupLoss(0.6)
    a, b = (
        pffl.solve(federation, constraint, method=method, random_state=3)
        for _ in range(2)
    )
    np.testing.assert_array_equal(a.w, b.w)
    np.testing.assert_array_equal(a.multipliers, b.multipliers)
    ignored = {"seconds"}
    first, second = (
        {k: v for k, v in s.as_dict().items() if k not in ignored} for s in (a, b)
    )
    assert first == second


def test_a_seed_is_drawn_and_recorded():
    federation, constraint = make_federation(5), pffl.BoundedGroupLoss(0.6)
    given = {"method": PFFL(dual_rounds=2, batch_size=5)}
    solution = pffl.solve(federation, constraint, **given)
    again = pffl.solve(federation, constraint, **given, random_state=solution.seed)
    np.testing.assert_array_equal(solution.w, again.w)


def test_an_engine_may_be_given_instead_of_a_federation():
    federation, constraint = make_federation(5), pffl.BoundedGroupLoss(0.6)
    a, b = (
        pffl.solve(data, constraint, random_state=0)
        for data in (federation, Reference(federation))
    )
    np.testing.assert_allclose(a.w, b.w, atol=1e-8)
    with raises(UsageError, "unknown-engine", "cloud"):
        pffl.solve(federation, constraint, engine="cloud")


# Many at once


# Statuses

# Two groups that no linear model serves alike.
CONFLICT = pffl.datasets.synthetic(
    600, silos=4, groups=("f", "m"), group_conflict=0.9, features=4, random_state=1
)


def conflict(bound, method=None, **more):
    """Solve it with seed 0."""
    asked = pffl.BoundedGroupLoss(bound)
    return pffl.solve(CONFLICT, asked, method=method, random_state=0, **more)


@pytest.fixture(scope="module")
def attainable():
    """Return the smallest common bound of both groups, by cvxpy."""
    oracle = Oracle.of(
        CONFLICT, group_masks(CONFLICT), [0.0, 0.0], beta=0.0, budget=1.0
    )
    return oracle.saddle(radius=100)[0]


def test_met(attainable):
    bound = attainable + 0.005
    solution = conflict(bound, Exact(multiplier_bound=1000))
    assert solution.status == "met"
    assert solution.ok
    assert solution.or_raise() is solution
    oracle = Oracle.of(CONFLICT, group_masks(CONFLICT), [bound, bound])
    assert (oracle.violation(solution.w) <= 1e-6).all()
    assert solution.multipliers.max() > 0, "the bound was felt"


def test_infeasible(attainable):
    bound = attainable - 0.005
    solution = conflict(bound)
    assert solution.status == "impossible"
    assert f"{attainable:.4f}" in solution.message
    assert solution.smallest_bound == pytest.approx(attainable, abs=1e-4)
    # The witness: λ on the simplex whose mixture of losses no model brings below ζ.
    lam = np.array([solution.witness[name] for name in ("f", "m")])
    assert lam.sum() == pytest.approx(1.0)
    assert (lam >= 0).all()
    oracle = Oracle.of(
        CONFLICT, group_masks(CONFLICT), [bound, bound], beta=0.0, budget=1.0
    )
    assert oracle.least(lam) > 0
    with raises(NotMetError, "not-met"):
        solution.or_raise()


def test_not_met(attainable):
    solution = conflict(attainable + 0.002, FedAvg(rounds=100))
    assert solution.status == "not met"
    worst = max(solution.cell_results, key=lambda row: row.violation)
    assert worst.cell in solution.message
    assert solution.witness is None


def test_diverged():
    solution = conflict(0.6, PFFL(step_size=1e3, dual_rounds=5))
    assert solution.status == "diverged"
    assert solution.rounds < 50
    assert np.isfinite(solution.w).all()


@dataclass
class StopAt(Callback):
    """Record what happens, and end the run after some rounds."""

    number: int
    error: type[BaseException] | None = None

    def __post_init__(self):
        self.seen = []

    def after_round(self, row):
        self.seen.append((row.number, row.planned))
        if row.number >= self.number and self.error is not None:
            raise self.error
        return row.number >= self.number

    def ended(self):
        self.seen.append("ended")


def test_interrupted():
    callback = StopAt(4, KeyboardInterrupt)
    method = PFFL(dual_rounds=10, step_size=0.2, dual_step_size=1.0)
    solution = conflict(0.6, method, callbacks=[callback])
    assert solution.status == "interrupted"
    assert solution.rounds == 4
    assert len(solution.rows) == 4
    assert np.isfinite(solution.w).all()
    # 100 of training, and those after 10, 20, 30, 50 and 80 that measure the gap
    assert callback.seen == [*((number, 105) for number in (1, 2, 3, 4)), "ended"]
    assert solution.gap is not None


def test_a_callback_may_end_the_run_early():
    callback = StopAt(3)
    method = PFFL(dual_rounds=10, step_size=0.2, dual_step_size=1.0)
    solution = conflict(2.0, method, callbacks=[callback])
    assert solution.status == "not converged"  # it could have gone on
    assert solution.rounds == 3


# What a solution holds


@pytest.fixture(scope="module")
def solution():
    """Return one solution of PFFL on two silos with test rows."""
    return pffl.solve(
        make_federation(9, sizes=(90, 70), test=40),
        pffl.BoundedGroupLoss({"f": 0.6, "m": 0.7}),
        method=PFFL(dual_rounds=6, rounds_per_dual=3),
        random_state=0,
    )


def test_history_has_a_row_per_round(solution):
    history = solution.history
    assert isinstance(history, pd.DataFrame)
    assert len(history) == 19
    assert list(history["round"]) == list(range(2, 21)), "the first asked for L"
    for name in ("f", "m"):
        lam = history[f"multiplier: {name}"]
        assert (lam >= 0).all()
    total = history["multiplier: f"] + history["multiplier: m"]
    assert (total <= 10 + 1e-12).all()
    first = history.iloc[0]
    assert first["risk"] == pytest.approx(np.log(2))
    assert first["loss: f"] == pytest.approx(np.log(2))
    assert first["worst_cell"] == "f"
    assert first["worst_violation"] == pytest.approx(np.log(2) - 0.6)
    measured = history["gap"].dropna()
    assert list(measured.index) == [12], "PFFL's own quick gap"
    assert (measured > 0).all()
    assert (history["seconds"].diff().dropna() >= 0).all()


# Without a constraint, without test rows, with another model


def test_without_a_constraint():
    solution = pffl.solve(
        make_federation(0), None, method=FedAvg(rounds=2), random_state=0
    )
    assert solution.status == "no bounds"
    cells = solution.cells
    assert list(cells.index) == list(solution.schema.groups)
    assert cells["bound"].isna().all()
    assert (cells["train_loss"] > 0).all()
    assert solution.train.worst_cell_loss is None
    assert list(solution.history["worst_cell"]) == [None, None]


@pytest.mark.parametrize(
    ("labels", "expected"), [(2, "logistic"), (3, "softmax"), (0, "least-squares")]
)
def test_the_default_model_is_what_the_labels_ask_for(labels, expected):
    federation = make_federation(0, labels=labels)
    solution = pffl.solve(federation, pffl.BoundedGroupLoss(9.0), random_state=0)
    assert solution.as_dict()["model"]["kind"] == expected
    assert solution.method["kind"] == "exact"
    assert (solution.loss_bound is None) == (labels == 0)


# Options


def test_bad_options_are_listed_at_once():
    wrong = {"weighting": "people", "radius": -1.0, "weight_bound": float("nan")}
    wrong |= {"confidence": 1.0, "empty_cells": "Refuse"}
    with raises(UsageError, "wrong-value", "5 problems", *wrong):
        pffl.Options(**wrong)
    text = {"radius": "far", "confidence": "high"}
    with raises(UsageError, "wrong-value", "2 problems", *text):
        pffl.Options(**text)


def test_data_and_bounds_as_people_have_them(tmp_path: Path) -> None:
    rows = pffl.datasets.synthetic(300, silos=2, groups=["f", "m"], random_state=0)
    plain = pffl.solve(rows, pffl.BoundedGroupLoss(0.66), random_state=0)
    for bound in (0.66, {"f": 0.66, "m": 0.66}):
        np.testing.assert_array_equal(
            pffl.solve(rows, bound, random_state=0).w, plain.w
        )
    assert pffl.solve(rows, "minmax", random_state=0).constraint["kind"] == "minmax"
    assert pffl.solve(rows, "bgl", random_state=0).notes[0].startswith("bound = ")
    assert (
        pffl.feasible(rows, 0.66).verdict
        == pffl.feasible(rows, pffl.BoundedGroupLoss(0.66)).verdict
    )
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    frame["sex"] = rng.choice(["f", "m"], 200)
    frame["hired"] = rng.choice(["no", "yes"], 200)
    frame.to_csv(tmp_path / "people.csv", index=False)
    named = {"label": "hired", "group": "sex", "random_state": 0}
    found = [
        pffl.solve(data, 0.9, **named) for data in (frame, tmp_path / "people.csv")
    ]
    np.testing.assert_allclose(found[0].w, found[1].w, rtol=0, atol=1e-12)
    with raises(UsageError, "options-conflict", "label"):
        pffl.solve(rows, 0.66, label="hired")
    with raises(UsageError, "unknown-name", "demographic_parity"):
        pffl.solve(rows, "demographic_parity")
