"""The discrete Gaussian: its law, by counting and by moments."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import chisquare, kstest, norm

from tests.oracles import (
    NoiseSource,
    UsageError,
    discrete_gaussian,
    draw_discrete,
    secret_source,
    seeded_source,
)
from tests.raising import raises


def law(square: int, reach: int) -> np.ndarray:
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values**2) / (2 * square))
    return weights / weights.sum()


def test_small_ones_have_the_exact_law():
    """Counted, at a σ where the grid is coarse: nothing is Gaussian there but this."""
    source = seeded_source("law")
    for square in (1, 4, 10):
        scale = math.isqrt(square) + 1
        drawn = [draw_discrete(square, source) for _ in range(20_000)]
        reach = 3 * scale
        known = law(square, 60)[60 - reach : 60 + reach + 1]
        places = np.clip(drawn, -reach, reach) + reach
        counts = np.bincount(places, minlength=2 * reach + 1)
        expected = known * 20_000
        tail = (20_000 - expected.sum()) / 2
        expected[[0, -1]] += tail
        keep = expected >= 5
        seen, wanted = counts[keep], expected[keep]
        assert chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue > 1e-4


def test_large_ones_are_gaussian():
    sigma = 1 << 20
    drawn = discrete_gaussian(sigma**2, 20_000, secret_source())
    assert kstest(drawn / sigma, norm.cdf).pvalue > 1e-4
    assert drawn.dtype == np.int64
    assert len(set((drawn & 1).tolist())) == 2  # the last digits are noise, too


def test_seeded_is_repeated_and_secret_is_not():
    def drawn(source: NoiseSource) -> list[int]:
        return discrete_gaussian(1 << 40, 5, source).tolist()

    assert drawn(seeded_source(1, 2)) == drawn(seeded_source(1, 2))
    assert drawn(seeded_source(1, 2)) != drawn(seeded_source(1, 3))
    assert drawn(secret_source()) != drawn(secret_source())


def test_refuses_a_grid_that_is_too_coarse():
    for square in (0, 1, (1 << 10) ** 2 - 1, (1 << 57) ** 2):
        with raises(UsageError, "wrong-noise"):
            discrete_gaussian(square, 1, seeded_source(0))
