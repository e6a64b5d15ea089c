"""FedAvg and the inner solvers against naive loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.engines import Local, Reference
from pffl.errors import UsageError
from pffl.methods.descent import DECAY, FLOOR
from tests.driving import iterate
from tests.helpers import (
    make_federation,
    make_problem,
)
from tests.oracles import MODELS
from tests.saddle import Oracle


def naive_rounds(oracle, silo, *, rounds, steps, eta, proximal=0.0):
    """Return the model after each round, one silo after the other."""
    K, w, ws = silo.max() + 1, np.zeros(oracle.classes * oracle.X.shape[1]), []
    for _ in range(rounds):
        mean = np.zeros_like(w)
        for k in range(K):
            v, share = w.copy(), oracle.risk_weights[silo == k].sum()
            own = np.where(silo == k, oracle.risk_weights, 0.0) / share
            for _ in range(steps):
                slope = oracle.weighted_gradient(v, own) + oracle.l2 * v
                v = v - eta * (slope + proximal * (v - w))
            mean += share * v
        w = mean
        ws.append(w)
    return ws


@pytest.mark.parametrize("weighting", ["silos", "rows"])
@pytest.mark.parametrize("proximal", [0.0, 0.5])
@pytest.mark.parametrize("kind", list(MODELS))
def test_rounds_are_the_naive_loops(kind, proximal, weighting):
    cls, labels = MODELS[kind]
    federation = make_federation(0, labels=labels)
    oracle = Oracle.of(federation, [], [], kind=kind, l2=0.03, weighting=weighting)
    ws = naive_rounds(
        oracle,
        federation.pooled("train").silo,
        rounds=6,
        steps=3,
        eta=0.05,
        proximal=proximal,
    )
    for choice, expected in (("last", ws[-1]), ("average", np.mean(ws, axis=0))):
        method = pffl.FedAvg(
            rounds=6,
            local_steps=3,
            step_size=0.05,
            proximal=proximal,
            iterate=choice,
        )
        solution = pffl.solve(
            federation,
            None,
            model=cls(l2=0.03),
            method=method,
            options=pffl.Options(weighting=weighting),
            seed=0,
        )
        np.testing.assert_allclose(solution.w, expected, atol=1e-12)
        assert solution.rounds == 6


def test_one_local_step_is_gradient_descent_on_the_risk():
    federation = make_federation(1)
    oracle = Oracle.of(federation, [], [], l2=0.1)
    w = np.zeros(4)
    for _ in range(20):
        w = w - 0.4 * oracle.gradient(w, np.zeros(0))
    solution = pffl.solve(
        federation,
        None,
        model=pffl.LogisticRegression(l2=0.1),
        method=pffl.FedAvg(rounds=20, local_steps=1, step_size=0.4),
        seed=0,
    )
    np.testing.assert_allclose(solution.w, w, atol=1e-13)


def test_local_steps_leave_a_bias_between_unlike_silos():
    federation = make_federation(2, sizes=(50, 50, 50), heterogeneity=3.0)
    model = pffl.LogisticRegression(l2=0.05)
    optimum = Oracle.of(federation, [], [], l2=0.05).saddle()[1]
    far = {}
    for steps in (1, 20):
        method = pffl.FedAvg(rounds=300, local_steps=steps)
        w = pffl.solve(federation, None, model=model, method=method, seed=0).w
        far[steps] = np.linalg.norm(w - optimum)
    assert far[1] < 1e-3
    assert far[20] > 5 * far[1]


def test_the_bounds_play_no_part():
    federation = make_federation(3)
    method = pffl.FedAvg(rounds=10)
    free = pffl.solve(federation, None, method=method, seed=0)
    with pytest.warns(UserWarning, match="a bound of 0"):
        bounded = pffl.solve(
            federation, pffl.BoundedGroupLoss(0.0), method=method, seed=0
        )
    np.testing.assert_array_equal(free.w, bounded.w)
    np.testing.assert_array_equal(bounded.multipliers, [0.0, 0.0])


def naive_server(updates, server, eta, beta):
    """Return the model after these mean updates (Reddi et al. 2021, algorithm 2)."""
    w, m, v = (np.zeros_like(updates[0]) for _ in range(3))
    for delta in updates:
        if server == "momentum":
            m = beta * m + delta
            w = w + eta * m
            continue
        m = beta * m + (1 - beta) * delta
        if server == "adam":
            v = DECAY * v + (1 - DECAY) * delta**2
        else:
            v = v - (1 - DECAY) * delta**2 * np.sign(v - delta**2)
        w = w + eta * m / (np.sqrt(v) + FLOOR)
    return w


@pytest.mark.parametrize("server", ["momentum", "adam", "yogi"])
def test_server_optimisers_are_their_formulas(server):
    federation = make_federation(4)
    engine = Reference(federation)
    problem = make_problem(engine, None)
    method = pffl.FedAvg(
        rounds=6,
        step_size=0.2,
        server=server,
        server_step_size=0.05,
        server_momentum=0.8,
    )
    updates, state = [], method.init(problem)
    while (question := method.question(problem, state)) is not None:
        total = engine.ask(question)
        updates.append(total.update)
        state = method.step(problem, state, total)
        expected = naive_server(updates, server, 0.05, 0.8)
        np.testing.assert_allclose(state.w, expected, atol=1e-13)


@pytest.mark.parametrize("server", ["mean", "momentum", "adam", "yogi"])
def test_every_server_optimiser_approaches_the_optimum(server):
    federation = make_federation(5, heterogeneity=0.0)
    oracle = Oracle.of(federation, [], [], l2=0.1)
    rates = {"mean": 1.0, "momentum": 0.2, "adam": 0.02, "yogi": 0.02}
    method = pffl.FedAvg(
        rounds=300,
        local_steps=1,
        step_size=1.0,
        server=server,
        server_step_size=rates[server],
    )
    model = pffl.LogisticRegression(l2=0.1)
    solution = pffl.solve(federation, None, model=model, method=method, seed=0)
    assert oracle.upper(solution.w) <= oracle.saddle()[0] + 1e-3


def test_partial_participation_is_unbiased():
    federation = make_federation(6, sizes=(30, 20, 40, 25, 35))
    engine = Local(federation, threads=1)
    problem = make_problem(engine, None)
    full = pffl.FedAvg(step_size=0.3, local_steps=2, rounds=601)
    some = pffl.FedAvg(step_size=0.3, local_steps=2, rounds=601, participation=0.4)
    start = full.start(problem)
    whole = engine.ask(full.question(problem, start)).update
    moves, asked = [], set()
    for number in range(600):
        state = replace(start, round=number)
        question = some.question(problem, state)
        assert len(question.silos) == 2
        asked.add(question.silos)
        total = engine.ask(question)
        moves.append(some.step(problem, state, total).w - start.w)
    assert len(asked) == 10, "every pair has its turn"
    error = np.std(moves, axis=0) / np.sqrt(len(moves))
    assert (np.abs(np.mean(moves, axis=0) - whole) < 5 * error).all()


def test_the_history_is_of_those_who_were_asked():
    # With all silos alike, half of them tell the same losses as all of them.
    federation = make_federation(7, sizes=(50,))
    silo = federation.silos[0]
    copies = tuple(type(silo)(f"copy {k}", k, silo.splits) for k in range(4))
    federation = type(federation)(federation.schema, copies)
    engine = Local(federation, threads=1)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.5))
    parameters = {"rounds": 5, "step_size": 0.3}
    full = iterate(engine, problem, pffl.FedAvg(**parameters))
    half = iterate(engine, problem, pffl.FedAvg(**parameters, participation=0.5))
    for a, b in zip(full.history, half.history, strict=True):
        np.testing.assert_allclose(b.violation, a.violation, atol=1e-12)
        assert b.risk == pytest.approx(a.risk, abs=1e-12)


def test_bad_parameters_are_listed_at_once():
    with pytest.raises(UsageError) as caught:
        pffl.FedAvg(rounds=0, local_steps=1.5, step_size=-1, proximal=-1)
    assert "4 problems" in str(caught.value)
