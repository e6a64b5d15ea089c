"""Algorithm 1 against a naive loop, and what docs/paper.md says of it."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.data import Rows, Silo
from pffl.engines import Local, Reference
from pffl.errors import UsageError
from pffl.methods.step_sizes import curvatures, smoothness
from pffl.questions import Curvature, Smoothness
from tests.driving import expand, iterate, measure
from tests.helpers import (
    draw_multipliers,
    from_silos,
    group_masks,
    make_federation,
    make_problem,
    setting,
)
from tests.oracles import MODELS
from tests.raising import raises
from tests.saddle import Oracle

BOUNDS = {"f": 0.55, "m": 0.6}


def naive_pffl(
    oracle, silo, *, dual_rounds, rounds, steps, eta, dual_eta, corrected=False
):
    """Run Algorithm 1 of docs/methods.md on pooled arrays: all w, λ, upper values."""
    K, Z = silo.max() + 1, len(oracle.cells)
    past = None  # where the last round began: gradients of all, and of each silo

    def slope(v, k, c):
        return oracle.weighted_gradient(v, np.where(silo == k, K * c, 0))

    w, theta = np.zeros(oracle.classes * oracle.X.shape[1]), np.zeros(Z)
    ws, lams, seen = [], [], []
    for _ in range(dual_rounds):
        lam = oracle.budget * np.exp(theta) / (1 + np.exp(theta).sum())
        for _ in range(rounds):
            seen.append((oracle.upper(w), w, lam))
            r = oracle.violation(w)
            c = oracle.row_weights(lam)
            local = []
            for k in range(K):
                v, drift = w.copy(), 0.0
                if corrected and past is not None:
                    drift = past[k] - np.mean(past, axis=0)
                for _ in range(steps):
                    descent = slope(v, k, c) - drift + oracle.beta * oracle.l2 * v
                    v = v - eta * descent
                local.append(v)
            past = [slope(w, k, c) for k in range(K)]
            w = np.mean(local, axis=0)
            ws.append(w)
            lams.append(lam)
        theta = theta + dual_eta * r
    last = oracle.budget * np.exp(theta) / (1 + np.exp(theta).sum())
    return np.array(ws), np.array(lams), last, min(seen, key=lambda item: item[0])


@pytest.mark.parametrize("engine_type", [Local, Reference])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("kind", list(MODELS))
def test_every_iterate_is_the_naive_loops(kind, corrected, engine_type):
    cls, labels = MODELS[kind]
    federation = make_federation(0, labels=labels)
    bounds = BOUNDS if labels != 0 else {"f": 1.0, "m": 1.2}
    oracle = Oracle.of(
        federation,
        group_masks(federation),
        list(bounds.values()),
        kind=kind,
        beta=0.8,
        budget=3.0,
        l2=0.01,
    )
    ws, lams, last, best = naive_pffl(
        oracle,
        federation.pooled("train").silo,
        dual_rounds=5,
        rounds=3,
        steps=2,
        eta=0.05,
        dual_eta=4.0,
        corrected=corrected,
    )
    engine = engine_type(federation)
    problem = make_problem(
        engine,
        pffl.BoundedGroupLoss(bounds),
        model=cls(l2=0.01),
        beta=0.8,
        budget=3.0,
    )
    parameters = {
        "multiplier_bound": 3.0,
        "risk_weight": 0.8,
        "dual_rounds": 5,
        "rounds_per_dual": 3,
        "local_steps": 2,
        "step_size": 0.05,
        "dual_step_size": 4.0,
        "drift_correction": corrected,
        "target_gap": 1e-12,
    }
    method = pffl.PFFL(**parameters, iterate="average")
    run = iterate(engine, problem, method)
    assert run.rounds == method.planned_rounds == 16  # one of them measures the gap
    trained = [row for row in run.history if row.gap is None]
    np.testing.assert_allclose(run.point.w, ws.mean(axis=0), atol=1e-11)
    np.testing.assert_allclose(run.point.multipliers, lams.mean(axis=0), atol=1e-11)
    for row, lam in zip(trained, lams, strict=True):
        np.testing.assert_allclose(row.multipliers, lam, atol=1e-11)
    for row, w in zip(trained[1:], ws[:-1], strict=True):
        np.testing.assert_allclose(row.violation, oracle.violation(w), atol=1e-11)
        assert row.risk == pytest.approx(oracle.risk(w), abs=1e-11)
        assert row.upper == pytest.approx(oracle.upper(w), abs=1e-11)
    counts = np.arange(1.0, 16) ** 7
    late = iterate(engine, problem, pffl.PFFL(**parameters, iterate="recent"))
    mean = np.average(ws, axis=0, weights=counts)
    np.testing.assert_allclose(late.point.w, mean, atol=1e-11)
    mean = np.average(lams, axis=0, weights=counts)
    np.testing.assert_allclose(late.point.multipliers, mean, atol=1e-11)
    final = iterate(engine, problem, pffl.PFFL(**parameters, iterate="last"))
    np.testing.assert_allclose(final.point.w, ws[-1], atol=1e-11)
    np.testing.assert_allclose(final.point.multipliers, last, atol=1e-11)
    chosen = iterate(engine, problem, pffl.PFFL(**parameters, iterate="best"))
    np.testing.assert_allclose(chosen.point.w, best[1], atol=1e-11)
    np.testing.assert_allclose(chosen.point.multipliers, best[2], atol=1e-11)


def test_with_one_dual_round_the_gap_never_closes():
    # λ moves E times, not E·T times (docs/paper.md): dual rounds cannot be replaced.
    engine = Local(make_federation(1, sizes=(80, 60)), threads=1)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.55), budget=5.0)
    gaps = {}
    for E, T in [(1, 50), (1, 300), (20, 10), (100, 4)]:
        numbers = {"dual_rounds": E, "rounds_per_dual": T}
        method = pffl.PFFL(multiplier_bound=5.0, iterate="average", **numbers)
        gaps[E, T] = measure(
            engine, problem, iterate(engine, problem, method).point
        ).gap
    assert gaps[1, 300] > 0.2
    assert gaps[1, 300] > 0.7 * gaps[1, 50]
    assert gaps[20, 10] < 0.5 * gaps[1, 300]
    assert gaps[100, 4] < 0.85 * gaps[20, 10]


@pytest.mark.parametrize("kind", list(MODELS))
def test_smoothness_is_above_the_curvature_of_g(kind):
    _, engine, problem, _, w, _ = setting(kind)
    rng = np.random.default_rng(0)
    found = curvatures(problem, engine.ask(Smoothness(problem.task, w)))
    for _ in range(5):
        lam = draw_multipliers(rng, problem)
        L = smoothness(found, problem, lam)
        at = expand(engine, problem, rng.normal(size=len(w)))
        hessian = problem.risk_weight * at.risk_hessian
        hessian = hessian + np.tensordot(lam, at.hessians, axes=1)
        assert np.linalg.eigvalsh(hessian)[-1] <= L * (1 + 1e-12)


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


def test_steps_of_one_over_the_smoothness_are_stable_in_every_silo():
    federation = one_silo_in_other_units(labels=0)
    engine = Reference(federation)
    problem = make_problem(engine, None)
    found = curvatures(problem, engine.ask(Smoothness(problem.task, np.zeros(4))))
    L = smoothness(found, problem, np.zeros(0))
    question = Curvature(
        problem.task, np.zeros(4)
    )  # of squares it is the same anywhere
    for view in engine.views(question):
        answer = question.answer(view)
        share = problem.task.shares[view.index]
        local = np.linalg.eigvalsh(answer.risk_hessian / share)[-1]
        assert local < 2 * L


@pytest.mark.parametrize("method", [pffl.PFFL(dual_rounds=10), pffl.FedAvg(rounds=50)])
def test_the_default_step_size_does_not_diverge(method):
    federation = one_silo_in_other_units(labels=0)
    solution = pffl.solve(federation, pffl.BoundedGroupLoss(2.0), method=method, seed=0)
    assert solution.status != "diverged"


def test_all_bad_parameters_are_listed_at_once():
    with pytest.raises(UsageError) as caught:
        pffl.PFFL(
            multiplier_bound=0,
            risk_weight=-1,
            dual_rounds=0,
            rounds_per_dual=2.5,
            local_steps=-3,
            step_size=float("nan"),
            dual_step_size=float("inf"),
            batch_size="many",
        )
    message = str(caught.value)
    assert "8 problems" in message
    assert "The 'multiplier_bound' parameter of PFFL must be" in message
    assert "Got 2.5 instead." in message


@pytest.mark.parametrize(
    "bad",
    [
        {"server": "sgd"},
        {"participation": 1.5},
        {"participation": 0.0},
    ],
)
def test_unknown_choices_are_refused(bad):
    (name,) = bad
    with raises(UsageError, "wrong-value", name):
        pffl.PFFL(**bad)


def test_an_unknown_iterate_is_refused():
    with raises(UsageError, "wrong-value", "iterate"):
        pffl.PFFL(iterate="mean")


def test_batches_come_from_the_seed_alone():
    federation = make_federation(4)
    method = pffl.PFFL(dual_rounds=4, rounds_per_dual=2, batch_size=7)
    constraint = pffl.BoundedGroupLoss(0.6)
    runs = [
        pffl.solve(federation, constraint, method=method, seed=seed, engine=engine)
        for seed, engine in [(5, "local"), (5, "local"), (5, "reference"), (6, "local")]
    ]
    np.testing.assert_array_equal(runs[0].w, runs[1].w)
    np.testing.assert_allclose(runs[0].w, runs[2].w, atol=1e-12)
    assert np.abs(runs[0].w - runs[3].w).max() > 1e-4


def test_nothing_to_bound_is_plain_risk_minimisation():
    federation = make_federation(5)
    method = {"local_steps": 2, "step_size": 0.3}
    plain = pffl.solve(
        federation, None, method=pffl.FedAvg(rounds=12, **method), seed=0
    )
    same = pffl.solve(
        federation,
        None,
        method=pffl.PFFL(dual_rounds=4, rounds_per_dual=3, iterate="last", **method),
        seed=0,
    )
    np.testing.assert_allclose(plain.w, same.w, atol=1e-13)


@pytest.mark.parametrize("participation", [0.5, 0.3])
def test_partial_participation_still_approaches_the_saddle_point(participation):
    federation = make_federation(6, sizes=(60, 60, 60, 60, 60, 60), heterogeneity=0)
    method = pffl.PFFL(
        dual_rounds=100,
        rounds_per_dual=3,
        local_steps=1,
        multiplier_bound=2.0,
        dual_step_size=0.5,
        participation=participation,
    )
    solution = pffl.solve(
        federation,
        pffl.BoundedGroupLoss(0.6),
        model=pffl.LogisticRegression(l2=0.1),
        method=method,
        seed=0,
    )
    assert solution.gap < 0.05
