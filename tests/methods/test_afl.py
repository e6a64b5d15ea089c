"""AFL: descent and ascent by hand, and the model that is best for the worst silo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pytest

import pffl
from pffl.engines import Local, Reference
from pffl.errors import UsageError
from pffl.methods.afl import AFL
from tests.driving import iterate
from tests.helpers import (
    make_federation,
    make_problem,
)
from tests.methods.test_fedminmax import nearest_on_simplex
from tests.oracles import MODELS
from tests.raising import raises
from tests.saddle import Oracle


def silo_masks(federation):
    silo = federation.pooled("train").silo
    return np.array([silo == k for k in range(silo.max() + 1)])


def setting(kind="logistic", *, seed=0, sizes=(60, 12, 90, 30), engine=Local):
    cls, labels = MODELS[kind]
    federation = make_federation(seed, sizes=sizes, labels=labels, heterogeneity=1.5)
    masks = silo_masks(federation)
    oracle = Oracle.of(
        federation,
        masks,
        np.zeros(len(masks)),
        kind=kind,
        beta=0.0,
        budget=1.0,
        l2=0.02,
    )
    asker = engine(federation)
    problem = make_problem(
        asker, pffl.PerSilo(0.0), model=cls(l2=0.02), beta=0.0, budget=1.0
    )
    return federation, oracle, asker, problem


def naive(oracle, *, rounds, steps, eta, eta_lam, ridge):
    """Silo k trains on f_k; the server weighs the updates with λ."""
    w, sizes = np.zeros(oracle.classes * oracle.X.shape[1]), oracle.cells.sum(axis=1)
    lam, ws, lams = np.full(len(sizes), 1 / len(sizes)), [], []
    for _ in range(rounds):
        f, move = oracle.violation(w), np.zeros_like(w)
        for k, size in enumerate(sizes):
            v = w.copy()
            for _ in range(steps):
                slope = oracle.weighted_gradient(v, oracle.cells[k] / size)
                v = v - eta * (slope + ridge * v)
            move += lam[k] * (v - w)
        w, lam = w + move, nearest_on_simplex(lam + eta_lam * f)
        ws.append(w)
        lams.append(lam)
    return np.array(ws), np.array(lams)


@pytest.mark.parametrize("engine", [Local, Reference])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("kind", list(MODELS))
def test_every_round_is_descent_and_projected_ascent(kind, steps, engine):
    _, oracle, asker, problem = setting(kind, engine=engine)
    ws, lams = naive(oracle, rounds=15, steps=steps, eta=0.05, eta_lam=2.0, ridge=0.1)
    assert (lams == 0).any(), "a silo without weight is part of the test"
    method = AFL(
        rounds=15, local_steps=steps, step_size=0.05, dual_step_size=2.0, ridge=0.1
    )
    state = method.init(problem)
    for w, lam in zip(ws, lams, strict=True):
        question = method.question(problem, state)
        state = method.step(problem, state, asker.ask(question))
        np.testing.assert_allclose(state.w, w, atol=1e-12)
        np.testing.assert_allclose(state.weights, lam, atol=1e-12)
    assert method.question(problem, state) is None
    mean = method.finish(problem, state).w
    np.testing.assert_allclose(mean, ws.mean(axis=0), atol=1e-12)
    last = replace(method, iterate="last").finish(problem, state).w
    np.testing.assert_array_equal(last, state.w)


def test_silos_alike_make_it_fedavg():
    federation = make_federation(2, sizes=(50,))
    silo = federation.silos[0]
    copies = tuple(replace(silo, name=f"copy {k}", index=k) for k in range(3))
    engine = Local(replace(federation, silos=copies), threads=1)
    problem = make_problem(engine, None)
    a = iterate(engine, problem, AFL(rounds=7, local_steps=2, step_size=0.3))
    b = iterate(
        engine,
        problem,
        pffl.FedAvg(rounds=7, local_steps=2, step_size=0.3, iterate="average"),
    )
    np.testing.assert_allclose(a.point.w, b.point.w, atol=1e-13)


def test_the_constraint_plays_no_part_but_its_cells_are_reported():
    federation = make_federation(3)
    method = AFL(rounds=20)
    free = pffl.solve(federation, None, method=method, seed=0)
    for constraint in (pffl.BoundedGroupLoss(0.5), pffl.MinMax(), pffl.PerSilo(0.5)):
        solution = pffl.solve(federation, constraint, method=method, seed=0)
        np.testing.assert_array_equal(solution.w, free.w)
        assert len(solution.cell_results) == len(solution.multipliers)
        np.testing.assert_array_equal(solution.multipliers, 0.0)


@dataclass(frozen=True, kw_only=True)
class Choosing(AFL):
    """AFL that asks these silos."""

    chosen: tuple[int, ...] = ()

    def asked(self, problem, round):
        return self.chosen


def test_asking_some_silos_is_unbiased_in_the_model_and_in_the_weights():
    _, _, engine, problem = setting(sizes=(30, 10, 40, 20))
    parameters = {"step_size": 0.1, "dual_step_size": 0.01, "local_steps": 2}
    full = AFL(**parameters)
    state = full.init(problem)
    state = replace(state, weights=np.array([0.1, 0.3, 0.2, 0.4]))
    whole = full.step(problem, state, engine.ask(full.question(problem, state)))
    ws, lams = [], []
    for chosen in combinations(range(4), 2):
        some = Choosing(chosen=chosen, **parameters)
        question = some.question(problem, state)
        assert question.silos == chosen
        after = some.step(problem, state, engine.ask(question))
        ws.append(after.w)
        lams.append(after.weights)  # steps so small that no weight meets its bound
    np.testing.assert_allclose(np.mean(ws, axis=0), whole.w, atol=1e-14)
    np.testing.assert_allclose(np.mean(lams, axis=0), whole.weights, atol=1e-14)


def test_bad_parameters_are_refused():
    with pytest.raises(UsageError) as caught:
        AFL(rounds=0, dual_step_size=-1.0)
    assert "2 problems" in str(caught.value)
    with raises(UsageError, "wrong-value", "iterate"):
        AFL(iterate="best")


@pytest.mark.parametrize("part", [0.2, 0.5])
def test_rounds_that_ask_only_silos_without_weight_go_on(part: float) -> None:
    federation = pffl.datasets.synthetic(600, silos=6, features=3, seed=0)
    method = AFL(rounds=40, participation=part, dual_step_size=1.0)
    solution = pffl.solve(federation, pffl.BoundedGroupLoss(0.9), method=method, seed=1)
    assert solution.status == "met"
    assert solution.rounds == 41
    unheard = [row for row in solution.rows if np.isnan(row.risk)]
    assert unheard, "the seed no longer draws such a round"
    assert np.isfinite([row.loss for row in unheard]).all()
