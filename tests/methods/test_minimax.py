"""Ascent in weights that cycles: seen by its gap, halved, and said."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import pffl
from pffl.data import Rows, Silo
from pffl.engines import Local
from pffl.methods import AFL
from tests.driving import iterate
from tests.helpers import from_silos, make_federation, make_problem
from tests.inside import STRETCH, Stretch, WeightStep
from tests.methods.biased import states
from tests.methods.test_naive import silo_masks
from tests.saddle import Oracle

L2 = 1e-3
CYCLES = 18.9  # η_λ


def opposed(seed=0, angle=0.5, sizes=(60, 140)):
    """Two silos that want somewhat different models: η_λ = 18.9 cycles on seed 0."""
    rng = np.random.default_rng(seed)
    base, silos = make_federation(seed, sizes=sizes), []
    for k, silo in enumerate(base.silos):
        X = rng.normal(size=(sizes[k], 3))
        turn = angle * (k - 0.5)
        slopes = 2.0 * np.array([np.cos(turn), np.sin(turn), 0.3])
        y = (rng.random(len(X)) < 1 / (1 + np.exp(-X @ slopes))).astype(float)
        rows = Rows.of(X, y, rng.integers(2, size=len(X)))
        silos.append(Silo(silo.name, k, {"train": rows, "test": rows}))
    return from_silos(base, silos)


def set_up(seed=0, angle=0.5):
    federation = opposed(seed, angle)
    engine = Local(federation, threads=1)
    model = pffl.LogisticRegression(l2=L2)
    problem = make_problem(engine, pffl.PerSilo(0.0), model=model, beta=0.0, budget=1.0)
    masks = silo_masks(federation)
    oracle = Oracle.of(federation, masks, np.zeros(2), beta=0.0, budget=1.0, l2=L2)
    return federation, oracle, engine, problem


def value(oracle, w):
    """The larger mean loss, and the ridge."""
    return oracle.violation(w).max() + 0.5 * L2 * w @ w


@pytest.fixture(scope="module")
def cycle():
    federation, oracle, engine, problem = set_up()
    calm = AFL(rounds=3000, dual_step_size=0.1, iterate="last")
    best = value(oracle, iterate(engine, problem, calm).point.w)
    return federation, oracle, engine, problem, best


@pytest.mark.parametrize("rounds", [200, 1000])
def test_a_step_that_is_too_long_cycles_and_the_run_says_so(cycle, rounds):
    _, oracle, engine, problem, best = cycle
    for iterate_, least in (("last", 4e-3), ("average", 1e-3)):
        method = AFL(rounds=rounds, dual_step_size=CYCLES, iterate=iterate_)
        run = iterate(engine, problem, method)
        assert value(oracle, run.point.w) > best + least, "it no longer cycles"
        assert "dual_step_size" in run.remark


def test_the_default_step_does_not_cycle(cycle):
    _, oracle, engine, problem, best = cycle
    run = iterate(engine, problem, AFL(rounds=1000, iterate="last"))
    assert value(oracle, run.point.w) <= best + 1e-8
    assert run.remark is None


def test_a_step_of_its_own_that_begins_too_long_is_shortened(cycle, monkeypatch):
    _, oracle, engine, problem, best = cycle
    begin = WeightStep.__init__

    def there(self, *given):  # where a fixed one cycles
        begin(self, *given)
        self.size = CYCLES

    monkeypatch.setattr(WeightStep, "__init__", there)
    run = iterate(engine, problem, AFL(rounds=1000, iterate="last"))
    assert value(oracle, run.point.w) <= best + 1e-6


@pytest.mark.parametrize("step", [0.5, CYCLES])
@pytest.mark.parametrize("ridge", [0.0, 0.05])
def test_the_gap_is_above_that_of_the_means(ridge, step):
    """Against the largest loss at the mean w, and a minimum over w at the mean λ."""
    _, oracle, engine, problem = set_up(1, 1.0)
    method = AFL(rounds=60, dual_step_size=step, ridge=ridge)
    ws, lams = [np.zeros(4)], [np.full(2, 0.5)]
    for t, state in enumerate(states(engine, problem, method)):
        ws.append(state.w)
        lams.append(state.lam)
        stretch: Stretch = state.ascent.stretch
        rounds = stretch.rounds
        assert rounds == (t % STRETCH) + 1 if t else 1
    del ws[-1], lams[-1]
    w, lam = np.mean(ws[-rounds:], axis=0), np.mean(lams[-rounds:], axis=0)
    radius = 10 * np.linalg.norm(state.w)

    def lagrangian(v):
        slope = oracle.weighted_gradient(v, (lam / sizes) @ oracle.cells)
        return lam @ oracle.violation(v) + ridge / 2 * v @ v, slope + ridge * v

    sizes = oracle.cells.sum(axis=1)
    lowest = minimize(lagrangian, w, jac=True, method="L-BFGS-B").fun
    true = oracle.violation(w).max() + ridge / 2 * w @ w - lowest
    found = stretch.gap(ridge, radius)
    assert found >= true - 1e-9
    assert true > 1e-9
