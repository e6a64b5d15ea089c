"""Algorithm 1 against a naive loop, and what docs/paper.md says of it."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.data import Rows, Silo
from pffl.engines import Local
from pffl.methods import PFFL, FedAvg
from tests.driving import iterate, measure
from tests.helpers import from_silos, make_federation, make_problem
from tests.methods.biased import states


def test_multipliers_may_follow_rows_that_are_not_trained_on():
    """θ moves by r on the split's rows, at the w that a dual round ends with."""
    federation = make_federation(3, sizes=(60, 40))
    engine = Local(federation, threads=1)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.5), budget=5.0)
    numbers = {"dual_rounds": 5, "rounds_per_dual": 2, "step_size": 0.3}
    method = PFFL(dual_step_size=2.0, dual_split="test", **numbers)
    others = federation.pooled("test")
    X, theta = problem.task.model.inputs.apply(others.X), np.zeros(2)
    for state in states(engine, problem, method):
        np.testing.assert_allclose(state.theta, theta, atol=1e-12)
        if state.trainer.done % 2 == 0:
            losses = problem.task.model.losses(state.w, X, others.y)
            means = [losses[others.group == g].mean() for g in (0, 1)]
            theta = theta + 2.0 * (np.array(means) - 0.5)
    run = iterate(engine, problem, method)
    assert run.rounds == method.planned_rounds == 10 + 5
    on_own = iterate(engine, problem, PFFL(dual_step_size=2.0, **numbers))
    assert np.abs(run.point.multipliers - on_own.point.multipliers).max() > 1e-3


def test_with_one_dual_round_the_gap_never_closes():
    # λ moves E times, not E·T times (docs/paper.md): dual rounds cannot be replaced.
    engine = Local(make_federation(1, sizes=(80, 60)), threads=1)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.55), budget=5.0)
    gaps = {}
    for E, T in [(1, 50), (1, 300), (20, 10), (100, 4)]:
        numbers = {"dual_rounds": E, "rounds_per_dual": T}
        method = PFFL(multiplier_bound=5.0, iterate="average", **numbers)
        gaps[E, T] = measure(
            engine, problem, iterate(engine, problem, method).point
        ).gap
    assert gaps[1, 300] > 0.2
    assert gaps[1, 300] > 0.7 * gaps[1, 50]
    assert gaps[20, 10] < 0.5 * gaps[1, 300]
    assert gaps[100, 4] < 0.85 * gaps[20, 10]


def one_silo_in_other_units(labels):
    """Ten silos of 100 rows; the inputs of the first are about 60 times larger."""
    base = make_federation(0, sizes=(100,) * 10, labels=labels)
    silos = []
    for k, silo in enumerate(base.silos):
        rows = silo.rows("train")
        X = rows.X * (20.0 if k == 0 else 0.3)
        train = Rows.of(X, rows.y, rows.group)
        silos.append(Silo(silo.name, k, {"train": train, "test": silo.rows("test")}))
    return from_silos(base, silos)


@pytest.mark.parametrize("method", [PFFL(dual_rounds=10), FedAvg(rounds=50)])
def test_the_default_step_size_does_not_diverge(method):
    federation = one_silo_in_other_units(labels=0)
    solution = pffl.solve(
        federation, pffl.BoundedGroupLoss(2.0), method=method, random_state=0
    )
    assert solution.status != "diverged"
