"""q-FFL: Algorithms 1 and 2 by hand, FedAvg at q = 0, and the minimiser."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import pffl
from pffl.engines import Local, Reference
from pffl.errors import UsageError
from pffl.methods.qffl import QFFL
from pffl.questions.train import TINY
from tests.driving import iterate
from tests.helpers import (
    make_federation,
    make_problem,
)
from tests.methods.test_afl import silo_masks
from tests.oracles import MODELS
from tests.raising import raises
from tests.saddle import Oracle


def setting(
    kind="logistic", *, weighting="silos", engine=Local, l2=0.02, seed=0, **shape
):
    cls, labels = MODELS[kind]
    shape = {"sizes": (60, 12, 90), "heterogeneity": 1.5, **shape}
    federation = make_federation(seed, labels=labels, **shape)
    masks = silo_masks(federation)
    oracle = Oracle.of(
        federation, masks, np.zeros(len(masks)), kind=kind, l2=l2, weighting=weighting
    )
    asker = engine(federation)
    problem = make_problem(
        asker,
        pffl.BoundedGroupLoss(0.5),
        model=cls(l2=l2),
        options=pffl.Options(weighting=weighting),
    )
    return federation, oracle, asker, problem


def naive_q_fedavg(oracle, *, q, rounds, steps, eta):
    """Run Algorithm 2, one silo after the other."""
    w, ws = np.zeros(oracle.classes * oracle.X.shape[1]), []
    for _ in range(rounds):
        above, below = np.zeros_like(w), 0.0
        for cell in oracle.cells:
            p_k, v = oracle.risk_weights[cell].sum(), w.copy()
            F_k = oracle.losses(w)[cell].mean() + TINY
            for _ in range(steps):
                slope = oracle.weighted_gradient(v, cell / cell.sum()) + oracle.l2 * v
                v = v - eta * slope
            delta = (w - v) / eta
            above += p_k * F_k**q * delta
            below += p_k * (
                q * F_k ** (q - 1) * np.linalg.norm(delta) ** 2 + F_k**q / eta
            )
        w = w - above / below
        ws.append(w)
    return np.array(ws)


@pytest.mark.parametrize("engine", [Local, Reference])
@pytest.mark.parametrize("weighting", ["silos", "rows"])
@pytest.mark.parametrize("kind", list(MODELS))
def test_every_round_is_the_papers(kind, weighting, engine):
    _, oracle, asker, problem = setting(kind, weighting=weighting, engine=engine)
    for q, steps in ((0.5, 1), (1.0, 3), (3.0, 2)):
        ws = naive_q_fedavg(oracle, q=q, rounds=6, steps=steps, eta=0.05)
        method = QFFL(q=q, rounds=6, local_steps=steps, step_size=0.05)
        run = iterate(asker, problem, method)
        np.testing.assert_allclose(run.point.w, ws[-1], atol=1e-12)
        mean = iterate(asker, problem, replace(method, iterate="average")).point.w
        np.testing.assert_allclose(mean, ws.mean(axis=0), atol=1e-12)


def test_one_local_step_is_q_fedsgd():
    # Algorithm 1 has the gradient itself and a Lipschitz constant L = 1/η.
    _, oracle, engine, problem = setting(l2=0.0)
    q, L, w = 2.0, 4.0, np.zeros(4)
    for _ in range(5):
        above, below = np.zeros(4), 0.0
        for cell in oracle.cells:
            F = oracle.losses(w)[cell].mean()
            slope = oracle.weighted_gradient(w, cell / cell.sum())
            above += F**q * slope
            below += q * F ** (q - 1) * slope @ slope + L * F**q
        w = w - above / below
    method = QFFL(q=q, rounds=5, local_steps=1, step_size=1 / L)
    np.testing.assert_allclose(iterate(engine, problem, method).point.w, w, atol=1e-9)


@pytest.mark.parametrize(
    "parameters",
    [
        {"local_steps": 1},
        {"local_steps": 4, "proximal": 0.3},
        {"batch_size": 7},
        {"step_size": None},
        {"participation": 0.5},
        {"server": "momentum", "server_step_size": 0.3},
        {"server": "yogi", "server_step_size": 0.01},
        {"iterate": "average"},
    ],
    ids=str,
)
def test_without_q_it_is_fedavg(parameters):
    shared = {"rounds": 6, "step_size": 0.1, **parameters}
    _, _, engine, problem = setting(sizes=(30, 12, 50, 20))
    a = iterate(engine, problem, QFFL(q=0.0, **shared))
    b = iterate(engine, problem, pffl.FedAvg(**shared))
    np.testing.assert_allclose(a.point.w, b.point.w, atol=1e-14)
    assert a.rounds == b.rounds


@pytest.mark.parametrize("q", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("weighting", ["silos", "rows"])
def test_the_fixed_point_is_the_minimiser(q, weighting):
    _, oracle, engine, problem = setting(l2=0.0, weighting=weighting)
    sizes = oracle.cells.sum(axis=1)
    p = np.array([oracle.risk_weights[cell].sum() for cell in oracle.cells])

    def objective(w):
        return p @ oracle.violation(w) ** (q + 1) / (q + 1)

    def slope(w):
        rows = (p * oracle.violation(w) ** q / sizes) @ oracle.cells
        return oracle.weighted_gradient(w, rows)

    best = minimize(
        objective, np.zeros(4), jac=slope, method="BFGS", options={"gtol": 1e-10}
    ).x
    run = iterate(engine, problem, QFFL(q=q, rounds=600, local_steps=1))
    np.testing.assert_allclose(run.point.w, best, atol=2e-5)


def test_the_larger_q_the_smaller_the_worst_silos_loss():
    _, oracle, engine, problem = setting(seed=1, sizes=(60, 50, 70))
    worst = [
        oracle.violation(iterate(engine, problem, QFFL(q=q, rounds=150)).point.w).max()
        for q in (0.0, 1.0, 5.0, 20.0)
    ]
    assert sorted(worst, reverse=True) == worst
    assert worst[-1] < worst[0] - 1e-4


def test_the_constraint_plays_no_part():
    federation = make_federation(3)
    method = QFFL(rounds=10)
    free = pffl.solve(federation, None, method=method, seed=0)
    for constraint in (pffl.BoundedGroupLoss(0.5), pffl.MinMax()):
        solution = pffl.solve(federation, constraint, method=method, seed=0)
        np.testing.assert_array_equal(solution.w, free.w)
        np.testing.assert_array_equal(solution.multipliers, [0.0, 0.0])


def test_bad_parameters_are_refused():
    with pytest.raises(UsageError) as caught:
        QFFL(q=-1.0, rounds=0)
    assert "2 problems" in str(caught.value)
    with raises(UsageError, "wrong-value", "iterate"):
        QFFL(iterate="best")
