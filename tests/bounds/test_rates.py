"""Clopper and Pearson against scipy and enumeration; intervals of fairness metrics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from tests.oracles import UsageError
from tests.oracles import rates as r
from tests.raising import raises


@pytest.mark.parametrize("n", [1, 4, 23, 400])
@pytest.mark.parametrize("delta", [0.2, 0.05, 1e-6])
def test_against_scipy(n: int, delta: float) -> None:
    for k in {0, 1, 2, n // 3, n - 2, n - 1, n}:
        if not 0 <= k <= n:
            continue
        upper = float(r.clopper_pearson_upper(k, n, delta=delta))
        lower = float(r.clopper_pearson_lower(k, n, delta=delta))
        level = 1 - delta
        high = binomtest(k, n, alternative="less").proportion_ci(level, "exact").high
        low = binomtest(k, n, alternative="greater").proportion_ci(level, "exact").low
        slack_high = delta**2 / n if k == n - 1 else 0.0
        slack_low = delta**2 / n if k == 1 else 0.0
        assert high - 1e-9 <= upper <= high + slack_high + 1e-9
        assert low - slack_low - 1e-9 <= lower <= low + 1e-9
        if 0 < k < n - 1:  # the definition itself
            assert binom.cdf(k, n, upper) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 9, 40, 150])
def test_exact_coverage(n: int) -> None:
    k, delta = np.arange(n + 1), 0.05
    upper = r.clopper_pearson_upper(k, n, delta=delta)
    lower = r.clopper_pearson_lower(k, n, delta=delta)
    for p in np.linspace(0.0, 1.0, 301):
        weight = binom.pmf(k, n, p)
        assert weight[upper < p].sum() <= delta + 1e-12
        assert weight[lower > p].sum() <= delta + 1e-12


def poisson_binomial(p: np.ndarray) -> np.ndarray:
    pmf = np.ones(1)
    for one in p:
        pmf = np.convolve(pmf, [1 - one, one])
    return pmf


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.001, 0.97, 0.999])),
        min_size=1,
        max_size=25,
    ),
    st.sampled_from([0.25, 0.1, 0.05, 0.001]),
)
def test_coverage_when_rows_are_not_alike(p: list[float], delta: float) -> None:
    """Silos with different rates: exact, by the distribution of the sum."""
    rates, k = np.array(p), np.arange(len(p) + 1)
    weight, truth = poisson_binomial(rates), rates.mean()
    upper = r.clopper_pearson_upper(k, len(p), delta=delta)
    lower = r.clopper_pearson_lower(k, len(p), delta=delta)
    assert weight[upper < truth - 1e-12].sum() <= delta + 1e-9
    assert weight[lower > truth + 1e-12].sum() <= delta + 1e-9


def test_the_corner_that_the_textbook_bound_misses() -> None:
    """One unsure row among sure ones: the plain quantile errs by δ²/2 here."""
    n, delta = 20, 0.2
    plain = (1 - delta) ** (1 / n)
    rates = np.ones(n)
    rates[0] = 1 - n * (1 - (plain + 1e-9))
    wrong = 1 - rates[0]  # Pr[S ≤ n − 1], where the plain bound is below the truth
    assert rates.mean() > plain
    assert wrong > delta
    assert r.clopper_pearson_upper(n - 1, n, delta=delta) > rates.mean()


@settings(max_examples=200, deadline=None)
@given(n=st.integers(1, 500), part=st.floats(0, 1), delta=st.floats(1e-8, 0.25))
def test_monotone(n: int, part: float, delta: float) -> None:
    k = int(part * n)
    here = float(r.clopper_pearson_upper(k, n, delta=delta))
    assert k / n - 1e-12 <= here <= 1.0 or k == n
    assert r.clopper_pearson_upper(2 * k, 2 * n, delta=delta) <= here + 1e-9
    assert r.clopper_pearson_upper(k, n, delta=delta / 2) >= here - 1e-12


@pytest.mark.parametrize(
    "call",
    [
        lambda: r.clopper_pearson_upper(3, 2, delta=0.05),
        lambda: r.clopper_pearson_lower(-1, 2, delta=0.05),
        lambda: r.clopper_pearson_lower(1, 2, delta=1.5),
    ],
)
def test_refusals(call) -> None:
    with raises(UsageError, "wrong-value"):
        call()
