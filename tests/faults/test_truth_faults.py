"""Faults 79–90: sentences that were false, and what a person was not told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pffl
from tests.hostile import people
from tests.hostile.judge import judge_of
from tests.oracles import Solved


def statuses(federation, bound, model):
    """Of rising multiplier bounds, the last of them chosen by the method."""
    return [
        pffl.solve(
            federation,
            pffl.BoundedGroupLoss(bound),
            model=model,
            method=pffl.Exact(multiplier_bound=budget),
            random_state=0,
        ).status
        for budget in (0.1, None)
    ]


NATURAL = {
    "income": (lambda: people.incomes(rows=300), pffl.LeastSquares()),
    "income, no ridge": (lambda: people.incomes(rows=300), pffl.LeastSquares(l2=0.0)),
    "small inputs": (
        lambda: people.logits(1e-3),
        pffl.LogisticRegression(l2=1e-12, standardize=False),
    ),
    "large inputs": (
        lambda: people.logits(1e5),
        pffl.LogisticRegression(l2=0.0, standardize=False),
    ),
}


@pytest.mark.parametrize("name", NATURAL)
def test_fault_79_impossible_means_that_no_price_helps(name):
    build, model = NATURAL[name]
    federation = build()
    least = pffl.feasible(federation, model=model).common
    for factor in (0.98, 1.02):
        found = statuses(federation, factor * least.upper, model)
        assert ("impossible" in found) == (factor < 1)
        assert found[-1] == ("impossible" if factor < 1 else "met")


@pytest.mark.parametrize(
    "method",
    [
        pffl.PFFL(dual_rounds=1, rounds_per_dual=1),
        pffl.PFFL(dual_rounds=30, rounds_per_dual=2, local_steps=50, step_size=0.02),
        pffl.Exact(multiplier_bound=10.0, max_rounds=1),
    ],
)
def test_fault_81_a_run_is_never_excused_by_its_own_gap(method):
    solution = pffl.solve(
        people.unlike_silos(),
        pffl.BoundedGroupLoss(0.62),
        model=pffl.LogisticRegression(standardize=False),
        method=method,
        random_state=0,
    )
    assert solution.as_dict()["converged"] == "no"
    assert solution.status == "not converged"
    assert solution.exit_code == 4
    assert solution.slack is None


def test_fault_82_the_same_statuses_in_every_unit():
    plain = people.incomes(1 / 50_000, rows=200)
    least = pffl.feasible(plain).common.upper
    factors = (1e-4, 0.9999, 1.0001, 1.1)
    for unit in (1e-4, 1.0, 1e9):
        federation = people.incomes(unit / 50_000, rows=200)
        found = [
            pffl.solve(
                federation,
                pffl.BoundedGroupLoss(factor * least * unit**2),
                random_state=0,
            ).status
            for factor in factors
        ]
        assert found == ["impossible"] * 2 + ["met"] * 2


def test_fault_83_a_printed_gap_is_at_least_the_true_one():
    federation = people.hundreds()
    for bound in (0.9, 1.1):
        solution = pffl.solve(
            federation,
            pffl.BoundedGroupLoss(bound),
            method=pffl.Exact(multiplier_bound=1e6),
            random_state=0,
        )
        judge = judge_of(Solved(solution), federation, "train")
        aimed = judge.with_bounds(solution.evidence.aimed)
        assert solution.gap is not None
        assert solution.gap >= aimed.true_gap(solution.w, solution.multipliers)


def table(rows=400, *, coarse=False):
    """People of two sexes at three sites, whose label depends on x."""
    rng = np.random.default_rng(0)
    x = rng.integers(2, size=rows) if coarse else rng.normal(size=rows)
    y = x + rng.normal(size=rows) > 0.3
    return pd.DataFrame(
        {
            "x": x,
            "sex": rng.choice(["f", "m"], size=rows),
            "site": rng.choice(["a", "b", "c"], size=rows),
            "y": np.where(y, "yes", "no"),
        }
    )


COLUMNS = ("people.csv", "--label", "y", "--group", "sex", "--silo", "site")
RUN = ("run", *COLUMNS, "--seed", "0", "--bound")


def grounds(place):
    """What the statement on unseen people stands on."""
    certificate = json.loads(Path(place, "certificate.json").read_text("utf-8"))
    (found,) = [s for s in certificate["statements"] if s["kind"] == "holdout"]
    out: list[dict[str, str]] = found["assumptions"]
    return out


def test_fault_85_twins_could_not_be_checked(command):
    table(coarse=True).to_csv("people.csv", index=False)
    command(*RUN, "0.7", "--out", "a")
    (ground,) = [g for g in grounds("a") if "equal a training row" in g["text"]]
    assert ground["state"] == "could not be checked"
    assert re.search(r"\d+ of \d+ equal a training row", ground["text"])
    table(coarse=True).assign(who=range(400)).to_csv("people.csv", index=False)
    command(*RUN, "0.7", "--id", "who", "--out", "b")
    (ground,) = [g for g in grounds("b") if "used to train" in g["text"]]
    assert ground["state"] == "checked"


def test_no_bound_that_nobody_is_near_is_called_binding():
    """Algorithm 1 ends with multipliers above 0, however far the bounds are."""
    federation = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    far, near = (
        pffl.solve(federation, bound, method=pffl.PFFL(), random_state=0)
        for bound in (0.9, 0.65)
    )
    assert (far.converged, far.multipliers.min() > 0) == ("yes", True)
    assert far.conclusions.binding == "No bound is binding."
    assert near.conclusions.binding.startswith(("Only the bound on", "Binding bounds"))
