"""Confidence bounds against closed forms, scipy and exact enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom

from pffl.bounds import holdout as h
from pffl.bounds import uniform as lb
from pffl.errors import UsageError

METHODS = h.METHODS


def totals(losses: np.ndarray) -> tuple[float, float, float]:
    return len(losses), losses.sum(), np.square(losses).sum()


def test_hoeffding_by_hand() -> None:
    # M √(log 20 / 200), written out.
    assert h.hoeffding_radius(100, 3.0, 0.05) == pytest.approx(
        3 * np.sqrt(2.995732273553991 / 200)
    )


def test_bernstein_by_hand() -> None:
    losses = np.array([0.1, 0.4, 0.4, 1.7, 0.0])
    n, s, sq = totals(losses)
    V = np.var(losses, ddof=1)
    assert h.sample_variance(n, s, sq) == pytest.approx(V, rel=1e-12)
    log_term = np.log(2 / 0.1)
    expected = losses.mean() + np.sqrt(2 * V * log_term / 5) + 7 * 2 * log_term / 12
    got = losses.mean() + h.bernstein_radius(n, V, 2.0, 0.1)
    assert got == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("mean", [0.0, 0.01, 0.3, 0.97, 1.0])
@pytest.mark.parametrize("n", [1, 7, 1000])
def test_chernoff_against_root_finding(mean: float, n: int) -> None:
    M, delta = 2.5, 0.03

    def excess(q: float) -> float:
        left = mean * np.log(mean / q) if mean else 0.0
        right = (1 - mean) * np.log((1 - mean) / (1 - q)) if mean < 1 else 0.0
        return n * (left + right) - np.log(1 / delta)

    got = float(h.chernoff_upper(n, n * mean * M, M, delta)) / M
    if mean == 1.0 or excess(1 - 1e-15) < 0:
        assert got == pytest.approx(1.0, abs=1e-14)
    elif mean == 0.0:
        assert got == pytest.approx(1 - delta ** (1 / n), rel=1e-9)
    else:
        assert got == pytest.approx(brentq(excess, mean, 1 - 1e-15), rel=1e-9)


def test_chernoff_is_never_above_hoeffding() -> None:
    n = np.array([1, 5, 50, 5000])[:, None]
    s = n * np.linspace(0, 4, 33)
    high = s / n + h.hoeffding_radius(n, 4.0, 0.05)
    assert (h.chernoff_upper(n, s, 4.0, 0.05) <= high + 1e-12).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 2, 5, 17, 60, 200])
def test_exact_coverage_for_two_point_losses(method: h.Method, n: int) -> None:
    """Losses 0 or M: the worst case of a given mean. Coverage by enumeration."""
    M, delta, k = 3.0, 0.05, np.arange(n + 1)
    upper = h.upper_bounds(
        n, M * k, M * M * k, loss_bound=M, delta=delta, method=method
    )
    lower = h.lower_bounds(
        n, M * k, M * M * k, loss_bound=M, delta=delta, method=method
    )
    for p in np.concatenate(
        [np.geomspace(1e-4, 0.5, 40), 1 - np.geomspace(1e-4, 0.5, 40)]
    ):
        weight = binom.pmf(k, n, p)
        assert weight[upper < M * p].sum() <= delta
        assert weight[lower > M * p].sum() <= delta


@settings(max_examples=200, deadline=None)
@given(
    method=st.sampled_from(METHODS),
    mean=st.floats(0, 1),
    spread=st.floats(0, 1),
    n=st.integers(2, 10_000),
    delta=st.floats(1e-6, 0.5),
    s=st.integers(1, 50),
)
def test_monotone_in_rows_delta_and_candidates(
    method: h.Method, mean: float, spread: float, n: int, delta: float, s: int
) -> None:
    M = 2.0
    square = mean**2 + spread * mean * (1 - mean)  # any second moment in between

    def bound(rows: int, level: float) -> float:
        return float(
            h.upper_bounds(
                rows,
                rows * M * mean,
                rows * M * M * square,
                loss_bound=M,
                delta=level,
                method=method,
            )
        )

    here = bound(n, delta)
    assert M * mean - 1e-9 <= here <= M
    assert bound(2 * n, delta) <= here + 1e-9
    assert bound(n, delta / 2) >= here - 1e-9
    assert bound(n, h.split_delta(delta, 3, s + 1)) >= (
        bound(n, h.split_delta(delta, 3, s)) - 1e-9
    )


def test_combined_pays_for_both_and_wins_when_the_variance_is_small() -> None:
    n, losses = 2000, np.full(2000, 0.5)
    args = {"loss_bound": 5.0, "delta": 0.05}
    bounds = {
        m: float(h.upper_bounds(*totals(losses), **args, method=m)) for m in METHODS
    }
    assert bounds["bernstein"] < bounds["combined"] < bounds["chernoff"]
    assert bounds["chernoff"] < bounds["hoeffding"]
    half = h.bernstein_radius(n, 0.0, 5.0, 0.025)
    assert bounds["combined"] == pytest.approx(0.5 + half, rel=1e-6)


def test_empty_and_tiny_cells_are_vacuous_not_hidden() -> None:
    for method in METHODS:
        upper = h.upper_bounds(
            [0, 1], [0, 0.2], [0, 0.04], loss_bound=1.0, delta=0.05, method=method
        )
        assert upper[0] == 1.0
        assert 0.2 < upper[1] <= 1.0


def test_lower_mirrors_upper() -> None:
    losses = np.random.default_rng(0).beta(0.3, 2.0, 50) * 4.0
    for method in METHODS:
        args = {"loss_bound": 4.0, "delta": 0.1, "method": method}
        low = h.lower_bounds(*totals(losses), **args)
        high = h.upper_bounds(*totals(4.0 - losses), **args)
        assert low == pytest.approx(4.0 - high, abs=1e-9)
        assert low <= losses.mean() <= h.upper_bounds(*totals(losses), **args)


def test_variance_is_never_rounded_down() -> None:
    losses = np.full(1000, 0.1) + 1e3  # the textbook formula cancels to rubbish
    assert h.sample_variance(*totals(losses)) >= np.var(losses, ddof=1)


@pytest.mark.parametrize("n", [3, 30, 300, 30_000])
def test_the_rule_looks_at_no_held_out_loss(n: int) -> None:
    blind = h.choose_method(n, loss_bound=5.0, delta=0.05)
    assert blind == ("chernoff" if n < 100 else "combined")
    planned = h.choose_method(
        n, loss_bound=5.0, delta=0.05, planned_mean=0.6, planned_deviation=0.3
    )
    rows = {
        m: 0.6 + float(h.bernstein_radius(n, 0.09, 5.0, 0.05))
        if m == "bernstein"
        else float(h.chernoff_upper(n, 0.6 * n, 5.0, 0.05))
        for m in ("chernoff", "bernstein")
    }
    assert planned == min(rows, key=lambda m: rows[m])


def test_union_bound() -> None:
    assert h.split_delta(0.05, 5, 2) == pytest.approx(0.005)


def test_loss_bounds_hold_on_the_ball() -> None:
    rng = np.random.default_rng(0)
    R, X = 2.0, 1.5
    w = rng.normal(size=(500, 4))
    w *= R / np.linalg.norm(w, axis=1, keepdims=True)
    x = rng.normal(size=(500, 4))
    x *= X / np.linalg.norm(x, axis=1, keepdims=True)
    z = w @ x.T
    M = lb.loss_bound_linear(R, X)
    assert np.logaddexp(0, np.abs(z)).max() <= M
    assert pytest.approx(np.log(1 + np.exp(3.0))) == M
    assert np.isfinite(lb.loss_bound_linear(1e3, 1e3))
    W = rng.normal(size=(300, 3, 4))
    W *= R / np.linalg.norm(W, axis=(1, 2), keepdims=True)
    scores = np.einsum("mcp,np->mnc", W, x)
    losses = np.log(np.exp(scores).sum(axis=2)) - scores.min(axis=2)
    assert losses.max() <= lb.softmax_loss_bound(R, X, 3)


def test_softmax_with_two_classes_is_never_below_logistic() -> None:
    assert lb.softmax_loss_bound(1.0, 2.0, 2) >= lb.loss_bound_linear(1.0, 2.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: h.upper_bounds(3, 4.0, 1.0, loss_bound=1.0, delta=0.05),
        lambda: h.upper_bounds(3, 1.0, 2.0, loss_bound=1.0, delta=0.05),
        lambda: h.upper_bounds(3, 2.0, 0.1, loss_bound=1.0, delta=0.05),
        lambda: h.upper_bounds(-1, 0.0, 0.0, loss_bound=1.0, delta=0.05),
        lambda: h.upper_bounds(1.5, 0.0, 0.0, loss_bound=1.0, delta=0.05),
        lambda: h.upper_bounds(3, 1.0, 0.5, loss_bound=0.0, delta=0.05),
        lambda: h.upper_bounds(3, np.nan, 0.5, loss_bound=1.0, delta=0.05),
        lambda: h.upper_bounds(3, 1.0, 0.5, loss_bound=1.0, delta=0.0),
        lambda: h.upper_bounds(3, 1.0, 0.5, loss_bound=1.0, delta=1.0),
        lambda: h.upper_bounds(3, 1, 0.5, loss_bound=1, delta=0.1, method="best"),  # type: ignore[arg-type]
        lambda: h.split_delta(0.05, 0),
        lambda: lb.loss_bound_linear(-1.0, 1.0),
        lambda: lb.softmax_loss_bound(1.0, 1.0, 1),
    ],
)
def test_refusals(call) -> None:
    with pytest.raises(UsageError, match="must be"):
        call()
