"""What gradient methods share. What all owe to their silos is in tests/testing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pytest

import pffl
from pffl.engines import Local
from pffl.errors import UsageError
from pffl.methods.afl import AFL
from pffl.methods.descent import DECAY, FLOOR, State
from pffl.methods.fedminmax import FedMinMax
from pffl.methods.group_weighted import GroupWeighted
from pffl.methods.local_bgl import LocalBGL
from pffl.methods.qffl import QFFL
from tests.driving import iterate
from tests.helpers import make_federation, make_problem
from tests.raising import raises


def run(federation, method, *, engine=Local, weighting="silos"):
    asker = engine(federation)
    options = pffl.Options(weighting=weighting)
    problem = make_problem(asker, pffl.BoundedGroupLoss(0.5), options=options)
    return iterate(asker, problem, method).point


@dataclass(frozen=True, kw_only=True)
class Chosen(pffl.FedAvg):
    """FedAvg that asks these silos, round by round."""

    order: tuple[tuple[int, ...], ...] = ()

    def asked(self, problem, round):
        return self.order[round]


@pytest.mark.parametrize("weighting", ["silos", "rows"])
def test_over_all_draws_partial_participation_is_full_participation(weighting):
    federation = make_federation(6, sizes=(30, 10, 40, 20, 25))
    engine = Local(federation, threads=1)
    problem = make_problem(engine, None, options=pffl.Options(weighting=weighting))
    order = tuple(combinations(range(5), 2))
    parameters = {"step_size": 0.2, "local_steps": 3}
    full, some = pffl.FedAvg(**parameters), Chosen(**parameters, order=order)
    start = full.start(problem)

    def moved(method, round):
        state = replace(start, round=round)
        total = engine.ask(method.question(problem, state))
        return method.step(problem, state, total).w

    mean = np.mean([moved(some, round) for round in range(10)], axis=0)
    np.testing.assert_allclose(mean, moved(full, 0), atol=1e-15)


def test_all_silos_are_drawn_alike_and_rounds_are_drawn_anew():
    federation = make_federation(7, sizes=(5,) * 6)
    problem = make_problem(Local(federation, threads=1), None)
    method = pffl.FedAvg(participation=0.5)
    draws = [method.asked(problem, round) for round in range(2000)]
    assert {len(draw) for draw in draws} == {3}
    counts = np.bincount(np.concatenate(draws), minlength=6)
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(2000 * 0.25)
    assert len(set(draws)) == 20
    assert method.asked(problem, 5) == draws[5]
    assert method.asked(replace(problem, seed=1), 5) is not None
    assert pffl.FedAvg(participation=0.01).asked(problem, 0) is not None


def test_no_proximal_term_is_fedavg_and_a_large_one_stays_put():
    federation = make_federation(8, heterogeneity=2.0)
    parameters = {"rounds": 3, "step_size": 0.01, "local_steps": 6}
    plain = run(federation, pffl.FedAvg(**parameters)).w
    np.testing.assert_array_equal(
        plain, run(federation, pffl.FedAvg(proximal=0.0, **parameters)).w
    )
    held = run(federation, pffl.FedAvg(proximal=50.0, **parameters)).w
    assert np.linalg.norm(held) < 0.5 * np.linalg.norm(plain)


def after(server, updates, eta=0.1, beta=0.5):
    """w, m and v after these mean updates, from zero."""
    method = pffl.FedAvg(server=server, server_step_size=eta, server_momentum=beta)
    zero = np.zeros(1)
    state = State(round=0, w=zero, w_sum=zero, momentum=zero, second=zero)
    for update in updates:
        state = method.push(state, np.array([update]))
    return state.w[0], state.momentum[0], state.second[0]


def test_servers_by_hand():
    # updates 2 and −1; η = 0.1, β₁ = 1/2
    assert after("mean", [2.0, -1.0])[0] == pytest.approx(0.1 * 2 - 0.1 * 1)
    # m = 2, then 1/2·2 − 1 = 0
    w, m, _ = after("momentum", [2.0, -1.0])
    assert (w, m) == pytest.approx((0.1 * 2 + 0.1 * 0, 0.0))
    # m = 1, then 1/2 − 1/2 = 0;  v = (1 − β₂)·4, then β₂·v + (1 − β₂)·1
    v1 = (1 - DECAY) * 4
    w, m, v = after("adam", [2.0, -1.0])
    assert w == pytest.approx(0.1 * 1 / (np.sqrt(v1) + FLOOR))
    assert (m, v) == pytest.approx((0.0, DECAY * v1 + (1 - DECAY)))
    # Yogi: v rises by (1 − β₂)u² while u² > v, and falls by it while u² < v
    w, m, v = after("yogi", [2.0, -1.0])
    assert (m, v) == pytest.approx((0.0, (1 - DECAY) * 4 + (1 - DECAY) * 1))
    high = after("yogi", [2.0] * 60 + [0.1])[2]
    before = after("yogi", [2.0] * 60)[2]
    assert before > 0.01
    assert high == pytest.approx(before - (1 - DECAY) * 0.01)


@pytest.mark.parametrize("kind", [GroupWeighted, LocalBGL, FedMinMax, AFL, QFFL])
def test_every_method_has_the_slot(kind):
    short = {"rounds": 4} if hasattr(kind, "rounds") else {"dual_rounds": 1}
    federation = make_federation(9, sizes=(30, 20, 40, 25))
    models = [
        run(federation, kind(**short, **parameters)).w
        for parameters in (
            {},
            {"proximal": 5.0, "local_steps": 4},
            {"local_steps": 4},
            {"server": "momentum"},
            {"server": "adam", "server_step_size": 0.01},
            {"participation": 0.5},
            {"batch_size": 5},
        )
    ]
    for a, b in combinations(models, 2):
        assert np.isfinite(a).all()
        assert np.abs(a - b).max() > 1e-6
    with raises(UsageError, "wrong-value", "server"):
        kind(server="sgd")
    with raises(UsageError, "wrong-value", "participation"):
        kind(participation=1.5)


def test_fedavg_trains_under_a_minimax_constraint_too():
    # Such a constraint sets β = 0 for those who price bounds; FedAvg does not.
    federation = make_federation(10)
    method = pffl.FedAvg(rounds=5)
    free = pffl.solve(federation, None, method=method, seed=0)
    minimax = pffl.solve(federation, pffl.MinMax(), method=method, seed=0)
    np.testing.assert_array_equal(free.w, minimax.w)
    assert np.abs(free.w).max() > 0.01
