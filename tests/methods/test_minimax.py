"""Ascent in silos' weights: its own step does not cycle where a longer one does."""

from __future__ import annotations

import numpy as np

import pffl
from pffl.data import Rows, Silo
from pffl.engines import Local
from pffl.methods import AFL
from pffl.models import LogisticRegression
from tests.driving import iterate
from tests.helpers import from_silos, make_federation, make_problem
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


def test_the_default_step_does_not_cycle():
    federation, free = opposed(), {"beta": 0.0, "budget": 1.0}
    oracle = Oracle.of(federation, silo_masks(federation), np.zeros(2), l2=L2, **free)
    engine, model = Local(federation, threads=1), LogisticRegression(l2=L2)
    problem = make_problem(engine, pffl.PerSilo(0.0), model=model, **free)

    def value(**given):
        w = iterate(engine, problem, AFL(iterate="last", **given)).point.w
        return oracle.violation(w).max() + 0.5 * L2 * w @ w

    best = value(rounds=3000, dual_step_size=0.1)
    assert value(rounds=1000) <= best + 1e-8
    assert value(rounds=200, dual_step_size=CYCLES) > best + 4e-3
