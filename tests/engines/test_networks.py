"""Networks: silos that fail, mixed queries, and what a network is not asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.engines import Local, Reference
from pffl.errors import FederationError
from pffl.queries import Expand
from tests.helpers import (
    assert_same_total,
    draw_multipliers,
    make_federation,
    make_problem,
    train_query,
)
from tests.raising import raises


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global Network, Failing, MODULES, Own
    pytest.importorskip("torch", reason="networks need the extra 'torch'")
    from tests.inside import Network
    from tests.models.networks import MODULES, Failing, Own


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


def test_fault_40_a_silo_that_fails_is_named():
    federation = make_federation(1, sizes=(9, 7, *[8] * 20))
    fast, plain, problem, w, lam = both(federation, Failing())
    query = train_query(problem, w, lam, steps=[0.01])
    for engine in (fast, plain):
        with raises(FederationError, "silo-failed", "site 1"):
            engine.ask(query)


@pytest.mark.parametrize("kind", ["dense", "batch norm", "own", "dropout", "choosing"])
@pytest.mark.parametrize("batch", [None, 6])
def test_stacked_silos_step_as_each_alone(kind, batch):
    """Of several sizes, so that short batches are padded; with statistics that move."""
    federation = make_federation(2, sizes=(9, 7, 8, *[8] * 5))
    module = MODULES[kind]().double()
    fast, plain, problem, w, lam = both(federation, module)
    options = {"batch_size": batch, "steps": [0.05, 0.03], "proximal": 0.1}
    query = train_query(problem, w, lam, **options)
    assert_same_total(fast.ask(query), plain.ask(query), 1e-10)
    assert problem.task.model.stacks == (kind not in ("dropout", "choosing"))
    some = replace(query, silos=(1, 3), loss_power=1.5)
    assert_same_total(fast.ask(some), plain.ask(some), 1e-10)


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
