"""The uniform bound against brute force, and the printed term beside it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pffl.bounds import uniform as u
from pffl.errors import UsageError


def test_rademacher_complexity_of_the_ball_by_enumeration() -> None:
    """E sup_w (1/m) Σ ε wᵀx = (R/m) E‖Σ ε x‖, over all 2^m signs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10, 3))
    signs = 2.0 * (np.arange(1024)[:, None] >> np.arange(10) & 1) - 1.0
    truth = 2.0 * np.linalg.norm(signs @ x, axis=1).mean() / 10
    norms = np.square(x).sum(axis=1)
    rows = float(u.rademacher_rows(10, norms.sum(), radius=2.0))
    longest = float(np.sqrt(norms.max()))
    ball = float(u.rademacher_ball(10, radius=2.0, feature_bound=longest))
    assert truth <= rows <= ball
    assert rows <= 1.5 * truth  # Khintchine: not loose by more than √2 or so


def test_softmax_contraction_by_enumeration() -> None:
    """Signs are enumerated; the supremum over the ball is searched from below."""
    rng = np.random.default_rng(1)
    m, p, C, R = 6, 2, 3, 1.0
    x, y = rng.normal(size=(m, p)), rng.integers(0, C, m)
    W = rng.normal(size=(4000, C, p))
    W *= R / np.linalg.norm(W, axis=(1, 2), keepdims=True)
    z = np.einsum("scp,mp->smc", W, x)
    losses = np.log(np.exp(z).sum(axis=2)) - z[:, np.arange(m), y]
    signs = 2.0 * (np.arange(64)[:, None] >> np.arange(6) & 1) - 1.0
    reached = (signs @ losses.T).max(axis=1).mean() / m
    factor = u.contraction(np.sqrt(2.0), C)
    bound = u.rademacher_rows(m, np.square(x).sum(), radius=R, factor=factor)
    assert reached <= float(bound)
    assert u.contraction(1.0) == 1.0


def test_mcdiarmid_is_hoeffding_for_one_model() -> None:
    assert u.mcdiarmid(100, 3.0, 0.05) == pytest.approx(3 * np.sqrt(np.log(20) / 200))


def test_deviation_by_hand() -> None:
    out = u.deviation(
        [100, 400], radius=2.0, feature_bound=1.5, loss_bound=3.1, delta=0.05
    )
    m = np.array([100, 400])
    expected = 2 * 2 * 1.5 / np.sqrt(m) + 3.1 * np.sqrt(np.log(4 / 0.05) / (2 * m))
    np.testing.assert_allclose(out, expected)
    np.testing.assert_allclose(u.upper_bounds([0.5, 0.5], out, 3.1), 0.5 + expected)
    assert u.upper_bounds([3.0], [9.0], 3.1) == 3.1


def test_rows_beat_the_worst_case_when_most_are_short() -> None:
    args = {"radius": 1.0, "feature_bound": 10.0, "loss_bound": 10.0, "delta": 0.05}
    m = np.array([1_000.0])
    short = u.deviation_rows(m, m * 0.01, **{**args, "delta": 0.5})
    wide = u.deviation(m, **{**args, "delta": 0.5})
    assert short.shape == wide.shape
    assert u.rademacher_rows(m, m * 0.01, radius=1.0) < u.rademacher_ball(
        m, radius=1.0, feature_bound=10.0
    )


@settings(max_examples=100, deadline=None)
@given(m=st.integers(1, 10**6), delta=st.floats(1e-6, 0.5), cells=st.integers(1, 40))
def test_monotone(m: int, delta: float, cells: int) -> None:
    args = {"radius": 1.0, "feature_bound": 1.0, "loss_bound": 2.0}
    here = u.deviation([m] * cells, delta=delta, **args)[0]
    assert u.deviation([2 * m] * cells, delta=delta, **args)[0] < here
    assert u.deviation([m] * cells, delta=delta / 2, **args)[0] > here
    assert u.deviation([m] * (cells + 1), delta=delta, **args)[0] > here


def test_printed_term_by_hand() -> None:
    # (M/m)√(K/2 · log(2A/δ)) = (3/200)√(5 · log 80)
    out = u.printed_term(200, 3.0, silos=10, cells=2, delta=0.05)
    assert out == pytest.approx(0.015 * np.sqrt(5 * np.log(80)))


def test_the_printed_term_shrinks_too_fast() -> None:
    m = np.array([100.0, 10_000.0])
    printed = u.printed_term(m, 1.0, silos=1, cells=1, delta=0.05)
    valid = u.mcdiarmid(m, 1.0, 0.025)
    assert printed[0] / printed[1] == pytest.approx(100)
    assert valid[0] / valid[1] == pytest.approx(10)
    assert (printed < valid).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda: u.deviation([0], radius=1, feature_bound=1, loss_bound=1, delta=0.1),
        lambda: u.deviation([1], radius=-1, feature_bound=1, loss_bound=1, delta=0.1),
        lambda: u.deviation([1], radius=1, feature_bound=1, loss_bound=0, delta=0.1),
        lambda: u.deviation([1], radius=1, feature_bound=1, loss_bound=1, delta=0),
        lambda: u.printed_term(1, 1.0, silos=0, cells=1, delta=0.1),
        lambda: u.contraction(1.0, 0),
    ],
)
def test_refusals(call) -> None:
    with pytest.raises(UsageError, match="must be"):
        call()
