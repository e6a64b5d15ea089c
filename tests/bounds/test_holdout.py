"""Confidence bounds against closed forms, scipy and exact enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from pffl.errors import UsageError
from tests.inside import mean as h
from tests.raising import raises


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


@pytest.mark.parametrize("n", [1, 2, 5, 17, 60, 200])
def test_exact_coverage_for_two_point_losses(n: int) -> None:
    """Losses 0 or M: the worst case of a given mean. Coverage by enumeration."""
    M, delta, k = 3.0, 0.05, np.arange(n + 1)
    upper = h.chernoff_upper(n, M * k, M, delta)
    for p in np.concatenate(
        [np.geomspace(1e-4, 0.5, 40), 1 - np.geomspace(1e-4, 0.5, 40)]
    ):
        weight = binom.pmf(k, n, p)
        assert weight[upper < M * p].sum() <= delta


def test_empty_and_tiny_cells_are_vacuous_not_hidden() -> None:
    upper = h.chernoff_upper([0, 1], [0, 0.2], 1.0, 0.05)
    assert upper[0] == 1.0
    assert 0.2 < upper[1] <= 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: h.chernoff_upper(3, 4.0, 1.0, 0.05),
        lambda: h.chernoff_upper(-1, 0.0, 1.0, 0.05),
        lambda: h.chernoff_upper(1.5, 0.0, 1.0, 0.05),
        lambda: h.chernoff_upper(3, 1.0, 0.0, 0.05),
        lambda: h.chernoff_upper(3, np.nan, 1.0, 0.05),
        lambda: h.chernoff_upper(3, 1.0, 1.0, 0.0),
        lambda: h.chernoff_upper(3, 1.0, 1.0, 1.0),
    ],
)
def test_refusals(call) -> None:
    with raises(UsageError, "wrong-value"):
        call()
