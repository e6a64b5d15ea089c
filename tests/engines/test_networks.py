"""Many silos' networks at once answer as the plain loop over silos does."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

import pffl
from pffl.engines import Local, Reference
from pffl.errors import FederationError
from pffl.queries import Census, Evaluate, Expand
from tests.helpers import (
    assert_same_total,
    draw_multipliers,
    evaluate_query,
    make_federation,
    make_problem,
    train_query,
)
from tests.raising import raises

FEDERATIONS = {
    "three silos": lambda: make_federation(0),
    "unequal": lambda: make_federation(
        1, sizes=(1, 300, 2, 90, 9, 10, 11), test=(0, 5, 0, 70, 1, 2, 3)
    ),
    "single rows": lambda: make_federation(4, sizes=(1,) * 12, test=1),
}

KINDS = (
    "dense",
    "batch norm",
    "own",
    "dropout",
    "hidden dropout",
    "choosing",
    "convolution",
    "recurrent",
)
TRAINING = {
    "one step": {"steps": [0.1]},
    "three steps": {"steps": [0.1, 0.05, 0.02]},
    "proximal": {"steps": [0.1] * 3, "proximal": 0.7},
    "batches": {"steps": [0.1] * 4, "batch_size": 8, "seed": 5, "round": 2},
    "own ridge, loss power": {"steps": [0.1] * 2, "ridge": 0.3, "loss_power": 1.5},
    "some silos": {"steps": [0.1] * 2, "silos": (0, 2)},
    "by mass": {"steps": [0.1, 0.05], "by_mass": True},
}


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global torch, networks, Network, Failing, MODULES, Own
    pytest.importorskip("torch", reason="networks need the extra 'torch'")
    import torch

    from tests.inside import Network, networks
    from tests.models.networks import MODULES, Failing, Own

    assert tuple(MODULES) == KINDS


def both(federation, module, **options):
    """Return both engines, the problem and a random (w, λ)."""
    fast, plain = Local(federation, threads=2), Reference(federation)
    problem = make_problem(
        plain,
        pffl.BoundedGroupLoss(0.5) & pffl.PerSilo(0.7),
        model=Network(module, l2=0.01, **options),
        beta=0.8,
    )
    lam = draw_multipliers(np.random.default_rng(9), problem)
    return fast, plain, problem, problem.task.model.start(3), lam


@contextmanager
def torch_threads(count):
    """Let torch use so many threads, and see that nobody changes that."""
    torch.set_num_threads(count)
    yield
    assert torch.get_num_threads() == count
    torch.set_num_threads(1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", FEDERATIONS)
def test_train_and_evaluate(shape, kind):
    federation = FEDERATIONS[shape]()
    fast, plain, problem, w, lam = both(federation, MODULES[kind]().double())
    for changes in TRAINING.values():
        steps = 0.02 * np.asarray(changes["steps"])
        query = train_query(problem, w, lam, **{**changes, "steps": steps})
        assert_same_total(fast.ask(query), plain.ask(query), 1e-10)
    for query in (
        Evaluate(problem.task, w, "train"),
        evaluate_query(problem.task, w),
    ):
        assert_same_total(fast.ask(query), plain.ask(query), 1e-10)


@pytest.mark.parametrize("kind", ["convolution", "dropout", "dense", "batch norm"])
def test_two_threads_give_the_same_and_are_given_back(kind):
    federation = make_federation(1, sizes=(9,) * 40, test=9)
    module = MODULES[kind]().double()
    _, plain, problem, w, lam = both(federation, module)
    train = train_query(problem, w, lam, steps=[0.01] * 2)
    evaluate = Evaluate(problem.task, w, "test")
    expected = plain.ask(train)
    for engine_threads in (2, 3, 2):
        with torch_threads(2):
            engine = Local(federation, threads=engine_threads)
            total, evaluated = engine.ask(train), engine.ask(evaluate)
        assert_same_total(total, expected, 1e-12)
        assert_same_total(evaluated, plain.ask(evaluate), 1e-12)


@pytest.mark.parametrize("kind", ["dense", "batch norm", "convolution"])
def test_single_precision_agrees_within_its_rounding(kind):
    federation = FEDERATIONS["unequal"]()
    fast, plain, problem, w, lam = both(federation, MODULES[kind]())
    query = train_query(problem, w, lam, steps=[0.002] * 3)
    assert_same_total(fast.ask(query), plain.ask(query), 3e-6)


def test_blocks_are_limited_in_memory_and_padding(monkeypatch):
    federation = make_federation(1, sizes=(5, 6, 7, 30, 31, 40, 300))
    fast, plain, problem, w, lam = both(federation, MODULES["dense"]().double())
    query = train_query(problem, w, lam, steps=[0.01] * 2)
    monkeypatch.setattr(networks, "BLOCK_NUMBERS", 2 * len(w))
    assert_same_total(fast.ask(query), plain.ask(query), 1e-10)


def test_fault_40_a_silo_that_fails_is_named():
    federation = make_federation(1, sizes=(9, 7, *[8] * 20))
    fast, plain, problem, w, lam = both(federation, Failing())
    query = train_query(problem, w, lam, steps=[0.01])
    for engine, threads in ((fast, 1), (fast, 2), (plain, 1)):
        with (
            torch_threads(threads),
            raises(FederationError, "silo-failed", "site 1"),
        ):
            engine.ask(query)


def test_a_mix_about_networks_is_answered_in_order():
    federation = FEDERATIONS["three silos"]()
    fast, plain, problem, w, lam = both(federation, MODULES["dense"]().double())
    linear = make_problem(plain, pffl.BoundedGroupLoss(0.5))
    assert problem.task.model.n_outputs == 2
    queries = [
        Evaluate(problem.task, w),
        Evaluate(linear.task, np.ones(4)),
        train_query(problem, w, lam, steps=[0.01]),
        Census(federation.schema),
        Evaluate(problem.task, 2 * w),
        Expand(linear.task, np.ones(4), 2),
    ]
    totals = zip(fast.ask_many(queries), plain.ask_many(queries), strict=True)
    for total, plain_total in totals:
        assert_same_total(total, plain_total, 1e-10)


def test_networks_have_neither_curvature_nor_slopes_per_cell():
    fast, _, problem, w, _ = both(make_federation(0), Own())
    task = problem.task
    for query in (
        Expand(task, w, 2),
        Expand(task, w),
        Expand(task, w, sharpness=10.0),
        Expand(task, w, directions=w[:, None]),
    ):
        with raises(pffl.PFFLError, "not-linear"):
            fast.ask(query)
