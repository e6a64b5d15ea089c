"""Local steps corrected for drift, ends at a target gap, and smoothness."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.data import Rows, Silo
from pffl.engines import Local
from pffl.methods import FedAvg
from pffl.models import LogisticRegression
from pffl.queries import Expand
from tests.driving import expand, iterate
from tests.helpers import (
    from_silos,
    make_federation,
    make_problem,
    setting,
    train_query,
)
from tests.inside import curvature
from tests.oracles import MODELS


def differing(labels=2, sizes=(60, 40, 90)):
    """Silos whose inputs lie apart, so that each has an optimum of its own."""
    base = make_federation(3, sizes=sizes, labels=labels)
    silos = []
    for k, silo in enumerate(base.silos):
        rows = silo.rows("train")
        y = rows.y if labels != 2 else np.where(rows.X[:, 0] > k - 1, rows.y, 0.0)
        train = Rows.of(rows.X * (1 + k) + 2.0 * k, y, rows.group)
        silos.append(Silo(silo.name, k, {"train": train, "test": silo.rows("test")}))
    return from_silos(base, silos)


def optimum(engine, problem, lam):
    """Minimise G(·; λ) by Newton's method."""
    w = np.zeros(problem.n_parameters)
    for _ in range(30):
        at = expand(engine, problem, w)
        gradient = problem.risk_weight * at.risk_gradient + lam @ at.jacobian
        hessian = problem.risk_weight * at.risk_hessian
        hessian = hessian + np.tensordot(lam, at.hessians, axes=1)
        w = w - np.linalg.solve(hessian, gradient)
    return w


def anchored(engine, problem, w, lam):
    """Return what a round at (w, λ) leaves for the next."""
    slope = engine.ask(train_query(problem, w, lam, slope=True)).gradient
    weights = problem.cell_weights(lam)
    return {"anchor": w, "anchor_weights": weights, "anchor_gradient": slope}


@pytest.mark.parametrize("batch", [None, 7])
@pytest.mark.parametrize("kind", list(MODELS))
def test_at_the_optimum_corrected_steps_do_not_move(kind, batch):
    cls, labels = MODELS[kind]
    engine = Local(differing(labels), threads=1)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.6), model=cls(l2=0.05))
    lam = np.array([0.5, 1.5])
    w = optimum(engine, problem, lam)
    steps = np.full(5, 0.02) / problem.unit
    plain = train_query(problem, w, lam, steps=steps, batch_size=batch)
    assert np.abs(engine.ask(plain).update).max() > 1e-4  # each silo drifts
    still = replace(plain, **anchored(engine, problem, w, lam))
    np.testing.assert_allclose(engine.ask(still).update, 0.0, atol=1e-12)


def test_fedavg_reaches_the_optimum_with_many_local_steps():
    engine = Local(differing(), threads=1)
    problem = make_problem(engine, None, model=LogisticRegression(l2=0.05))
    best = optimum(engine, problem, np.zeros(0))
    off = [
        np.abs(iterate(engine, problem, method).point.w - best).max()
        for method in (
            FedAvg(rounds=150, local_steps=8),
            FedAvg(rounds=150, local_steps=8, drift_correction=True),
        )
    ]
    assert off[0] > 0.01
    assert off[1] < 1e-6


@pytest.mark.parametrize("kind", list(MODELS))
def test_smoothness_is_above_every_silos_hessian(kind):
    federation, plain, problem, _, w, _ = setting(kind)
    engine = Local(federation, threads=1)
    ask, bent = Expand(problem.task, w, 0), Expand(problem.task, 3.0 * w, 2)
    total = engine.ask(ask)
    whole = engine.ask(bent)
    hessians = whole.hessians
    tops = [np.linalg.eigvalsh(h)[-1] for h in hessians]
    assert (np.array(tops) <= total.curvatures * (1 + 1e-12)).all()
    for view in plain.views(ask):
        own, share = bent.answer(view), problem.task.shares[view.index]
        hessians = own.hessians / share
        tops = np.linalg.eigvalsh(hessians)[:, -1]
        peaks = problem.unit * total.peaks ** (1 / 8)
        assert (tops <= peaks * (1 + 1e-12)).all()


@pytest.mark.parametrize(("n", "p"), [(30, 200), (200, 30), (300, 150)])
def test_smoothness_bounds_the_largest_eigenvalue_and_not_by_much(n, p):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, p)) * np.linspace(0.1, 2.0, p) + 0.3
    weights = rng.random(n) * (rng.random(n) < 0.8)
    model = LogisticRegression()
    found = curvature(model, X, weights)
    rows = np.column_stack([X, np.ones(n)])
    largest = np.linalg.eigvalsh(0.25 * (rows * weights[:, None]).T @ rows)[-1]
    assert largest <= found <= 1.6 * largest
