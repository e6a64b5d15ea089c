"""The log-sum bound against a plain implementation, at its limits, and its plans."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import UsageError, holdout, logsum

M, DELTA = 3.0, 0.05


def log_sums(x: np.ndarray, gammas: np.ndarray) -> np.ndarray:
    """Σ log(1 − γx) over the rows, shape (J,)."""
    return np.log1p(-gammas * x[:, None]).sum(axis=0)


def plain_upper(
    gammas: list[float], weights: list[float], x: list[float], delta: float
) -> float:
    """Where Σ_j π_j Π_i (1 − γ_j x_i)/(1 − γ_j μ) reaches 1/δ: product by product."""
    low, high = 0.0, 1.0
    for _ in range(200):
        mu, total = 0.5 * (low + high), 0.0
        for gamma, pi in zip(gammas, weights, strict=True):
            wealth = pi
            for value in x:
                wealth *= (1 - gamma * value) / (1 - gamma * mu)
            total += wealth
        low, high = (mu, high) if total < 1 / delta else (low, mu)
    return high


def one(x: np.ndarray, bets: logsum.Bets, **changes: float) -> tuple[float, float]:
    """The lower and the upper bound of one cell's rows."""
    n, total = np.array([float(len(x))]), np.array([M * x.sum()])
    args = {"loss_bound": M, "delta": DELTA, **changes}
    below, above = log_sums(x, bets.gammas[0]), log_sums(1 - x, bets.gammas[0])
    up = logsum.upper_bounds(bets, below[None], n, total, **args)
    low = logsum.lower_bounds(bets, above[None], n, total, **args)
    return float(low[0]), float(up[0])


@given(seed=st.integers(0, 2**32), n=st.integers(1, 60), delta=st.floats(1e-6, 0.5))
@settings(max_examples=60, deadline=None)
def test_it_is_the_formula_and_never_below_it(seed: int, n: int, delta: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.beta(*rng.uniform(0.1, 3.0, 2), n)
    gammas, weights = rng.uniform(0.01, 0.99, 4), rng.dirichlet(np.ones(4))
    bets = logsum.Bets(gammas[None], weights[None])
    found = logsum.upper(bets, log_sums(x, gammas)[None], [n], M, delta)[0] / M
    plain = plain_upper(gammas.tolist(), weights.tolist(), x.tolist(), delta)
    assert plain - 1e-15 <= found <= plain + 1e-12
    low = logsum.lower(bets, log_sums(1 - x, gammas)[None], [n], M, delta)[0] / M
    mirror = 1 - plain_upper(gammas.tolist(), weights.tolist(), (1 - x).tolist(), delta)
    assert mirror - 1e-12 <= low <= mirror + 1e-15


def test_both_bounds_share_delta() -> None:
    x, smaller = np.random.default_rng(0).beta(2.0, 9.0, 200), set()
    for gamma in (0.005, 0.5):
        bets = logsum.Bets(np.full((1, 1), gamma), np.ones((1, 1)))
        below, n, total = log_sums(x, bets.gammas[0])[None], [200], [M * x.sum()]
        both = logsum.upper_bounds(bets, below, n, total, loss_bound=M, delta=DELTA)
        parts = (
            logsum.upper(bets, below, n, M, 0.8 * DELTA)[0],
            holdout.chernoff_upper(n, total, M, 0.2 * DELTA)[0],
        )
        assert both[0] == min(parts)
        smaller.add(int(np.argmin(parts)))
    assert smaller == {0, 1}


def test_limits() -> None:
    bets = logsum.plan_bets([0, 5, 5], delta=DELTA, loss_bound=M)
    x = [np.zeros(0), np.zeros(5), np.ones(5)]
    n, total = np.array([0.0, 5.0, 5.0]), M * np.array([v.sum() for v in x])
    below, above = (
        np.stack([log_sums(f(v), g) for v, g in zip(x, bets.gammas, strict=True)])
        for f in (lambda v: v, lambda v: 1 - v)
    )
    args = {"loss_bound": M, "delta": DELTA}
    upper = logsum.upper_bounds(bets, below, n, total, **args)
    lower = logsum.lower_bounds(bets, above, n, total, **args)
    np.testing.assert_array_equal(upper[[0, 2]], M)
    np.testing.assert_array_equal(lower[[0, 1]], 0.0)
    assert upper[1] <= M * (1 - (0.2 * DELTA) ** (1 / 5)) + 1e-12  # at Chernoff's
    assert lower[2] == pytest.approx(M - upper[1], rel=1e-12)


def test_any_number_of_rows_is_safe() -> None:
    for n in (1e3, 1e6, 1e9, 1e12):
        bets = logsum.plan_bets(
            [n], delta=1e-12, mean=[0.6], variance=[0.16], loss_bound=M
        )
        # Half of the rows at 0.1, half at 0.3: their sums are known without them.
        g = bets.gammas
        below = n / 2 * (np.log1p(-0.1 * g) + np.log1p(-0.3 * g))
        found = logsum.upper_bounds(
            bets, below, [n], [M * 0.2 * n], loss_bound=M, delta=1e-12
        )[0]
        hoeffding = M * 0.2 + M * math.sqrt(math.log(1e12) / (2 * n))
        assert M * 0.2 < found < hoeffding
        assert found - M * 0.2 < 10 * M * 0.1 * math.sqrt(2 * math.log(1e12) / n)


def test_a_plan_helps_and_a_wrong_one_costs_little() -> None:
    rng = np.random.default_rng(1)
    for n in (30, 230, 1000):
        x = rng.gamma(2.3, 0.085, n).clip(0, 1)  # as COMPAS's losses are, over M = 3
        known = {"mean": [M * 0.2], "variance": [M**2 * 0.0174]}
        wrong = {"mean": [M * 0.1], "variance": [M**2 * 0.00174]}
        plans = [
            logsum.plan_bets([n], delta=DELTA, loss_bound=M, **plan)
            for plan in (known, wrong, {})
        ]
        right, off, none = (one(x, bets)[1] - M * x.mean() for bets in plans)
        assert right <= off * 1.001
        assert right <= none * 1.001
        assert max(off, none) <= 1.35 * right
        # A single bet, chosen in view of the rows, is the best that can be had.
        found = [
            logsum.upper(
                logsum.Bets(np.array([[g]]), np.ones((1, 1))),
                log_sums(x, np.array([g]))[None],
                [n],
                M,
                0.8 * DELTA,
            )[0]
            for g in np.geomspace(1e-2, 0.99, 60)
        ]
        assert right <= 1.15 * (min(found) - M * x.mean())


def test_bets_are_nine_and_cells_have_their_own() -> None:
    bets = logsum.plan_bets(
        [5, 500, 500],
        delta=DELTA,
        mean=[0.6, 0.6, np.nan],
        variance=[0.16, 0.16, np.nan],
        loss_bound=M,
    )
    assert bets.gammas.shape == bets.weights.shape == (3, logsum.BETS)
    np.testing.assert_allclose(bets.weights.sum(axis=1), 1.0)
    np.testing.assert_allclose(bets.weights[:2, 0], logsum.PLANNED)
    np.testing.assert_allclose(bets.weights[2], 1 / logsum.BETS)
    assert bets.gammas[0, 0] > bets.gammas[1, 0]


@pytest.mark.parametrize("bound", [0.62, 0.65, 0.8, 1.5])
def test_about_so_many_rows_are_needed(bound: float) -> None:
    """With as many rows as forecast, half of all draws show the bound, or nearly."""
    mean, variance = M * 0.2, M**2 * 0.0174
    rows = logsum.rows_needed(
        bound, mean=mean, variance=variance, loss_bound=M, delta=DELTA
    )
    assert rows is not None
    bets = logsum.plan_bets(
        [rows], delta=DELTA, mean=[mean], variance=[variance], loss_bound=M
    )
    rng, found = np.random.default_rng(2), []
    for _ in range(60):
        x = rng.gamma(2.3, 0.2 / 2.3, rows).clip(0, 1)
        found.append(one(x, bets)[1])
    assert np.median(found) - bound == pytest.approx(0, abs=0.15 * (bound - mean))


def test_no_number_of_rows_shows_what_is_not_so() -> None:
    args = {"variance": 0.16, "loss_bound": M, "delta": DELTA}
    assert logsum.rows_needed(0.6, mean=0.6, **args) is None
    assert logsum.rows_needed(0.6, mean=0.7, **args) is None
    assert logsum.rows_needed(M, mean=2.9, **args) == 0
    far, near = (logsum.rows_needed(b, mean=0.6, **args) for b in (1.0, 0.61))
    assert far < near


GOOD = logsum.Bets(np.full((1, 2), 0.5), np.full((1, 2), 0.5))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: logsum.Bets(np.full((1, 2), 0.5), np.full((1, 3), 0.3)),
        lambda: logsum.Bets(np.full((1, 2), 1.0), np.full((1, 2), 0.5)),
        lambda: logsum.Bets(np.full((1, 2), 0.0), np.full((1, 2), 0.5)),
        lambda: logsum.Bets(np.full((1, 2), np.nan), np.full((1, 2), 0.5)),
        lambda: logsum.Bets(np.full((1, 2), 0.5), np.full((1, 2), 0.6)),
        lambda: logsum.Bets(np.full((1, 2), 0.5), np.array([[1.0, 0.0]])),
        lambda: logsum.upper(GOOD, np.array([[0.1, 0.0]]), [5], M, DELTA),
        lambda: logsum.upper(GOOD, np.array([[-9.0, 0.0]]), [5], M, DELTA),
        lambda: logsum.upper(GOOD, np.array([[np.nan, 0.0]]), [5], M, DELTA),
        lambda: logsum.upper(GOOD, np.zeros((1, 3)), [5], M, DELTA),
        lambda: logsum.upper(GOOD, np.zeros((1, 2)), [5], 0.0, DELTA),
        lambda: logsum.upper(GOOD, np.zeros((1, 2)), [5], M, 1.0),
        lambda: logsum.upper(GOOD, np.zeros((1, 2)), [5.5], M, DELTA),
    ],
)
def test_what_cannot_be_is_refused(wrong: object) -> None:
    with pytest.raises(UsageError):
        wrong()  # type: ignore[operator]
