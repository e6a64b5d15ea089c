"""The four queries against an oracle over pooled rows, and the laws of their sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.engines import Reference
from pffl.errors import UsageError
from pffl.queries import Evaluate, Expand
from tests.helpers import (
    make_federation,
    make_problem,
    setting,
    train_query,
)
from tests.oracles import MODELS
from tests.raising import raises

KINDS = list(MODELS)
LOG2, LOG3 = float(np.log(2)), float(np.log(3))


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), batch=st.integers(1, 12), steps=st.integers(1, 9))
def test_batches_pass_through_all_rows_before_they_repeat(seed, batch, steps):
    rows = 12
    federation = make_federation(0, sizes=(rows, rows))
    engine = Reference(federation)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.5))
    w, lam = np.zeros(4), np.zeros(2)
    query = train_query(
        problem, w, lam, steps=[0.1] * steps, batch_size=batch, seed=seed, round=3
    )
    drawn = [np.arange(rows)[b] for b in query.batches(1, rows)]
    assert [len(b) for b in drawn] == [batch] * steps
    flat = np.concatenate(drawn)
    for start in range(0, len(flat) - rows + 1, rows):
        np.testing.assert_array_equal(
            np.sort(flat[start : start + rows]), np.arange(rows)
        )
    again = [np.arange(rows)[b] for b in query.batches(1, rows)]
    np.testing.assert_array_equal(flat, np.concatenate(again))


@pytest.mark.parametrize("kind", KINDS)
def test_slopes_and_products_are_those_of_the_curvature(kind):
    federation = make_federation(0, labels=MODELS[kind][1])
    engine = Reference(federation)
    model = MODELS[kind][0](l2=0.02)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.6), model=model)
    rng = np.random.default_rng(0)
    w = rng.normal(size=problem.n_parameters)
    directions = rng.normal(size=(len(w), 3))
    full = engine.ask(Expand(problem.task, w, 2))
    found = engine.ask(Expand(problem.task, w, directions=directions))
    for name in ("losses", "gradients"):
        np.testing.assert_array_equal(getattr(found, name), getattr(full, name))
    np.testing.assert_allclose(
        found.products[0], (full.hessians[0] @ directions).T, rtol=1e-11, atol=1e-11
    )
    expected = np.swapaxes(full.hessians[1:] @ directions, 1, 2)
    np.testing.assert_allclose(found.products[1:], expected, rtol=1e-10, atol=1e-10)
    assert found.scores.size == found.score_gradients.size == 0


@pytest.mark.parametrize(
    ("kind", "given", "code"),
    [
        *[("logistic", {"loss_bound": m}, "wrong-loss-bound") for m in (0.1, LOG2)],
        *[("softmax", {"loss_bound": m}, "wrong-loss-bound") for m in (0.1, LOG3)],
        ("least-squares", {"loss_bound": 3.0}, "wrong-loss-bound"),
        ("logistic", {"bets": np.full((5, 2), 0.5)}, "wrong-bets"),
        *[
            (
                "logistic",
                {"loss_bound": 3.0, "bets": np.full((5, 2), bet)},
                "wrong-bets",
            )
            for bet in (0.0, -0.1, 0.999, np.nan)
        ],
    ],
)
def test_bounds_and_bets_that_mean_nothing_are_refused(kind, given, code):
    *_, problem, _, w, _ = setting(kind)
    with raises(UsageError, code):
        Evaluate(problem.task, w, **given)
    Evaluate(problem.task, w)
