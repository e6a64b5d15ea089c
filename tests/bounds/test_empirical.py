"""Lemma 1 on random problems: how far above its bound a trained model can be."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pffl.problem import upper_value
from tests.bounds.problems import Problem, draw, draw_model, draw_multipliers
from tests.inside import gap as e
from tests.inside import gap as g

SEEDS = st.integers(0, 2**32 - 1)
RADIUS = 3.0


def measured_gap(
    problem: Problem, w: np.ndarray, lam: np.ndarray, radius: float | None = None
) -> float:
    at = problem.lagrangian(w, lam), problem.lagrangian_gradient(w, lam)
    if radius is None:
        low = g.lower_strong(*at, problem.beta * problem.l2)
    else:
        low = g.lower_ball(*at, w, radius)
    weights: Any = SimpleNamespace(
        risk_weight=problem.beta, multiplier_bound=problem.budget
    )
    return upper_value(problem.risk(w), problem.violation(w), weights) - low


def with_feasible(
    seed: int, *, overlap: bool, squared: bool
) -> tuple[Problem, np.ndarray]:
    problem, rng = (
        draw(seed, overlap=overlap, squared=squared),
        np.random.default_rng(seed),
    )
    feasible = draw_model(rng, problem.X.shape[1], RADIUS)
    room = rng.choice([0.0, 0.1], len(problem.cells))
    return replace(problem, bounds=problem.means(feasible) + room), feasible


@settings(max_examples=120, deadline=None)
@given(seed=SEEDS, overlap=st.booleans(), squared=st.booleans(), ball=st.booleans())
def test_lemma_1_when_some_model_is_feasible(
    seed: int, overlap: bool, squared: bool, ball: bool
) -> None:
    problem, feasible = with_feasible(seed, overlap=overlap, squared=squared)
    rng = np.random.default_rng(seed + 1)
    w, lam = draw_model(rng, len(feasible), 2.0), draw_multipliers(rng, problem)
    if rng.random() < 0.5:  # near the answer, where the lemma is sharp
        w, lam = feasible + 1e-3 * w, 1e-3 * lam
    nu = measured_gap(problem, w, lam, RADIUS if ball else None)
    worst = problem.violation(w).max()
    tight = e.slack(
        problem.risk(feasible),
        nu,
        problem.risk(w),
        risk_weight=problem.beta,
        multiplier_bound=problem.budget,
    )
    assert max(0.0, worst) <= tight + 1e-9 * (1 + abs(tight))
