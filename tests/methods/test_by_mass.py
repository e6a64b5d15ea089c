"""Steps divided by a silo's mass: by hand, and what they are for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pytest

import pffl
from pffl.data import Rows
from pffl.engines import Local, Reference
from pffl.errors import Malformed, UsageError
from pffl.methods import METHODS
from pffl.methods.afl import AFL
from pffl.methods.fedfair import FedFair
from pffl.methods.fedminmax import FedMinMax
from pffl.methods.local_bgl import LocalBGL
from pffl.questions import Train
from pffl.questions.base import read_question
from pffl.wire.envelope import question_body
from tests.driving import iterate
from tests.helpers import (
    from_silos,
    group_masks,
    make_federation,
    make_problem,
    train_question,
)
from tests.oracles import MODELS
from tests.raising import raises
from tests.saddle import Oracle

BOUNDS = {"f": 0.4, "m": 0.45}
BETA, BUDGET, L2 = 0.8, 6.0, 0.01


def apart(seed=0, *, labels=2, sizes=(40, 25, 60, 12)):
    """Silos of one sex only, but for the last."""
    base = make_federation(seed, sizes=sizes, labels=labels)
    silos = []
    for k, silo in enumerate(base.silos[:-1]):
        rows = silo.rows("train")
        own = Rows.of(rows.X, rows.y, np.full(len(rows), k % 2))
        silos.append(replace(silo, splits={**silo.splits, "train": own}))
    return from_silos(base, [*silos, base.silos[-1]])


def set_up(engine=Local, kind="logistic", **options):
    cls, labels = MODELS[kind]
    federation = apart(labels=labels)
    bounds = BOUNDS if labels != 0 else {"f": 1.0, "m": 1.2}
    oracle = Oracle.of(
        federation,
        group_masks(federation),
        list(bounds.values()),
        kind=kind,
        beta=BETA,
        budget=BUDGET,
        l2=L2,
    )
    asker = engine(federation)
    problem = make_problem(
        asker,
        pffl.BoundedGroupLoss(bounds),
        model=cls(l2=L2),
        beta=BETA,
        budget=BUDGET,
        **options,
    )
    return federation, oracle, asker, problem


def naive(oracle, silo, *, dual_rounds, rounds, steps, eta, dual_eta, corrected):
    """Algorithm 1 with steps η/M_k, one row after the other."""
    K, Z, past = silo.max() + 1, len(oracle.cells), None

    def slope(v, k, c):
        return oracle.weighted_gradient(v, np.where(silo == k, K * c, 0))

    sizes = oracle.cells.sum(axis=1)
    w, theta, out = np.zeros(oracle.classes * oracle.X.shape[1]), np.zeros(Z), []
    for _ in range(dual_rounds):
        lam = oracle.budget * np.exp(theta) / (1 + np.exp(theta).sum())
        for _ in range(rounds):
            r, c = oracle.violation(w), oracle.row_weights(lam)
            moved, total = np.zeros_like(w), 0.0
            for k in range(K):
                mass = oracle.beta
                for i in np.flatnonzero(silo == k):
                    for z in range(Z):
                        mass += K * lam[z] / sizes[z] * oracle.cells[z, i]
                v, drift = w.copy(), 0.0
                if corrected and past is not None:
                    drift = past[k] - np.mean(past, axis=0)
                for _ in range(steps):
                    own = slope(v, k, c) - drift
                    v = v - eta / mass * (own + oracle.beta * oracle.l2 * v)
                moved += mass / K * (v - w)
                total += mass / K
            past = [slope(w, k, c) for k in range(K)]
            w = w + moved / total
            out.append((w, lam))
        theta = theta + dual_eta * r
    return out


@pytest.mark.parametrize("engine", [Local, Reference])
@pytest.mark.parametrize(("steps", "corrected"), [(1, False), (3, False), (3, True)])
@pytest.mark.parametrize("kind", list(MODELS))
def test_every_round_is_the_naive_loops(kind, steps, corrected, engine):
    federation, oracle, asker, problem = set_up(engine, kind)
    silo = federation.pooled("train").silo
    local = {"local_steps": steps, "step_size": 0.3, "drift_correction": corrected}
    numbers = {"dual_rounds": 4, "rounds": 3, "steps": steps, "eta": 0.3}
    expected = naive(oracle, silo, dual_eta=5.0, corrected=corrected, **numbers)
    method = pffl.PFFL(
        multiplier_bound=BUDGET,
        risk_weight=BETA,
        dual_rounds=4,
        rounds_per_dual=3,
        dual_step_size=5.0,
        by_mass=True,
        target_gap=1e-12,
        **local,
    )
    state, seen = method.init(problem), []
    while (question := method.question(problem, state)) is not None:
        state = method.step(problem, state, asker.ask(question))
        if isinstance(question, Train):
            seen.append((state.w, question.cell_weights * problem.counts))
    assert len(seen) == len(expected)
    for found, wanted in zip(seen, expected, strict=True):
        np.testing.assert_allclose(found[0], wanted[0], atol=1e-12)
        np.testing.assert_allclose(found[1], wanted[1], atol=1e-12)
    plain = iterate(asker, problem, replace(method, by_mass=False, iterate="last"))
    assert np.abs(plain.point.w - expected[-1][0]).max() > 1e-3


def test_one_full_step_is_the_same_step_on_g_but_for_its_length():
    _, _, engine, problem = set_up()
    w, lam = np.full(4, 0.3), np.array([1.5, 4.0])
    plain, divided = (
        engine.ask(train_question(problem, w, lam, by_mass=by_mass))
        for by_mass in (False, True)
    )
    np.testing.assert_allclose(plain.update, divided.update, atol=1e-14)
    assert divided.powers[0] == pytest.approx(BETA + lam.sum())


@dataclass(frozen=True, kw_only=True)
class Choosing(pffl.PFFL):
    """PFFL that asks these silos."""

    chosen: tuple[int, ...] = ()

    def asked(self, problem, round):
        return self.chosen


def test_asking_some_silos_is_unbiased():
    _, _, engine, problem = set_up()
    parameters = {"step_size": 0.4, "local_steps": 3, "by_mass": True}
    full = pffl.PFFL(**parameters)
    state = replace(full.init(problem), theta=np.array([0.4, 2.0]))
    whole = full.step(problem, state, engine.ask(full.question(problem, state))).w
    ws = []
    for chosen in combinations(range(4), 2):
        some = Choosing(chosen=chosen, **parameters)
        total = engine.ask(some.question(problem, state))
        ws.append(some.step(problem, state, total).w)
    assert np.ptp(ws, axis=0).max() > 1e-2
    np.testing.assert_allclose(np.mean(ws, axis=0), whole, atol=1e-13)


@pytest.mark.parametrize("dual", [0.0, 5.0, 50.0])
def test_no_price_makes_a_step_longer_than_that_of_the_steepest_row(dual):
    """Without it, one-sex silos go up to 1 + λ·K·m_kz/m_z times as far."""
    federation, oracle, _, problem = set_up()
    w, eta = np.full(4, 0.3), 0.2
    steepest = np.linalg.norm(oracle.X, axis=1).max() + L2 * np.linalg.norm(w)
    lam, longest = np.array([dual, dual]), {}
    for by_mass in (False, True):
        question = train_question(problem, w, lam, steps=[eta], by_mass=by_mass)
        views = Reference(federation).views(question)
        reached = [question.descend(view) for view in views]
        longest[by_mass] = max(np.linalg.norm(v - w) for v in reached)
    assert longest[True] <= eta * steepest
    if dual == 50.0:
        assert longest[False] > 3 * eta * steepest


def test_weights_below_zero_count_by_their_size_and_nobody_without_weight_moves():
    federation, _, engine, problem = set_up()
    w, lam = np.full(4, 0.3), np.array([-2.0, 1.0])
    total = engine.ask(train_question(problem, w, lam, by_mass=True))
    assert total.powers[0] == pytest.approx(BETA + 3.0)
    for steps in ([0.1], [0.1, 0.1]):
        question = Train(
            problem.task, w, 0.0, problem.cell_weights(np.array([0.0, 1.0])),
            np.array(steps), ridge=0.1, by_mass=True,
        )  # fmt: skip
        women = Reference(federation).views(question)[0]
        np.testing.assert_array_equal(question.descend(women), w)
        fast, slow = (e(federation).ask(question) for e in (Local, Reference))
        np.testing.assert_allclose(fast.update, slow.update, atol=1e-14)
        np.testing.assert_allclose(fast.powers, slow.powers, atol=1e-14)
        assert fast.powers[0] == pytest.approx(1.0)


def test_it_is_the_default_of_networks():
    _, _, _, problem = set_up()
    assert pffl.PFFL().divides(problem), "and of PFFL's, where the step size is ours"
    assert not pffl.PFFL(step_size=0.1).divides(problem)
    assert not pffl.PFFL(iterate="average").divides(problem), "the paper's"
    assert not LocalBGL().divides(problem)
    assert pffl.FedAvg(by_mass=True).divides(problem)
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(3, 2)
    engine = Local(apart())
    model = pffl.Network(module)
    network = make_problem(engine, pffl.BoundedGroupLoss(0.5), model=model)
    for name in ("pffl", "fedavg", "local-bgl", "group-weighted", "fedminmax"):
        assert METHODS[name]().divides(network), name
        assert METHODS[name]().training(network, METHODS[name]().start(network)).by_mass
    assert not pffl.PFFL(by_mass=False).divides(network)
    assert pffl.PFFL(drift_correction=True).divides(network)
    assert not pffl.FedAvg(drift_correction=True).divides(network)
    for name in ("afl", "qffl", "fairfed"):
        assert not METHODS[name]().divides(network), name


def test_without_bounds_it_changes_nothing():
    torch = pytest.importorskip("torch")
    engine = Local(apart())
    model = pffl.Network(torch.nn.Linear(3, 2))
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.5), model=model)
    local = {"rounds": 3, "local_steps": 2, "step_size": 0.2}
    ways = [
        iterate(engine, problem, pffl.FedAvg(by_mass=by_mass, **local)).point.w
        for by_mass in (None, False)
    ]
    np.testing.assert_allclose(*ways, atol=1e-6)  # torch computes in float32


def test_what_has_no_meaning_is_refused():
    with pytest.raises(UsageError, match="by_mass"):
        AFL(by_mass=True)
    with pytest.raises(UsageError, match="by_mass"):
        FedFair(by_mass="yes")
    _, _, engine, problem = set_up()
    both = FedMinMax(by_mass=True, drift_correction=True)
    with raises(UsageError, "parameters-conflict", "by_mass"):
        iterate(engine, problem, both)
    w, none = np.zeros(4), np.zeros(2)
    anchor = {"anchor": w, "anchor_weights": none, "anchor_gradient": w}
    question = Train(
        problem.task, w, 0.0, none, np.array([0.1]), by_mass=True, **anchor
    )
    body = question_body(question, 0)
    with pytest.raises(Malformed, match="by mass"):
        read_question(body.header, body.arrays, problem.schema)
