"""The weighted log-sum bound: against plain products, at its limits, and its coverage.

Monte Carlo: weights that are equal, heavy-tailed, whole numbers with a cap, or larger
where losses are; one silo, and ten that differ in both. The truth is the weighted mean
of the mixture of silos that the rows are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.oracles import UsageError, holdout, logsum, weighted
from tests.raising import raises

M, DELTA = 3.0, 0.05

#: From generator and each row's level, (draws, rows): weights ≤ 1, and losses/M.
Law = Callable[[np.random.Generator, np.ndarray], tuple[np.ndarray, np.ndarray]]


def beta(rng: np.random.Generator, level: np.ndarray) -> np.ndarray:
    return level * rng.beta(1.0, 3.0, level.shape)


def equal(rng, level):
    return np.ones_like(level), beta(rng, level)


def lognormal(rng, level):
    weight = rng.lognormal(-1.0, 0.8, level.shape) * level
    return np.minimum(weight / 4.0, 1.0), beta(rng, level)


def person_weights(rng, level):
    """Whole numbers such as survey weights are, up to 800."""
    whole = 1 + np.floor(rng.gamma(1.5, 60.0, level.shape))
    return np.minimum(whole, 800.0) / 800.0, beta(rng, level)


def with_loss(rng, level):
    """People who lose more weigh more."""
    x = beta(rng, level)
    return np.clip(0.05 + x * rng.random(level.shape), 0.0, 1.0), x


def rare(rng, level):
    """Nearly all weights are small, and the one in fifty that counts loses all."""
    heavy = rng.random(level.shape) < 0.02
    return np.where(heavy, 1.0, 0.05 * level), np.where(heavy, 1.0, 0.1)


LAWS = {f.__name__: f for f in (equal, lognormal, person_weights, with_loss, rare)}


def truth_of(law: Law, level: np.ndarray, rows: int = 200_000) -> float:
    rng = np.random.default_rng(99)
    s, x = law(rng, np.tile(level, (rows // len(level), 1)))
    return M * float((s * x).sum() / s.sum())


def sums_of(
    s: np.ndarray, x: np.ndarray, gammas: np.ndarray, levels: np.ndarray
) -> np.ndarray:
    """Σ log(1 − γu) of each draw, shape (draws, J, G)."""
    out = np.empty((len(s), len(gammas), len(levels)))
    for place, z in enumerate(levels / M):
        u = s * x + (1 - s) * z
        for j, gamma in enumerate(gammas):
            out[:, j, place] = np.log1p(-gamma * u).sum(axis=1)
    return out


def moments_of(s: np.ndarray, x: np.ndarray) -> np.ndarray:
    parts = (s, s * x, s**2, s**2 * x, (s * x) ** 2)
    return np.array([part.sum() for part in parts])


def tiled(bets: logsum.Bets, draws: int) -> logsum.Bets:
    """The same bets for many draws, as if each were a cell."""
    gammas, weights = (np.tile(a, (draws, 1)) for a in (bets.gammas, bets.weights))
    return logsum.Bets(gammas, weights)


def figures(
    s: np.ndarray, x: np.ndarray, bets: logsum.Bets, levels: np.ndarray
) -> np.ndarray:
    """The upper figure of each draw."""
    draws, rows = s.shape
    return weighted.upper(
        tiled(bets, draws),
        np.tile(levels, (draws, 1)),
        sums_of(s, x, bets.gammas[0], levels[0]),
        counts=np.full(draws, float(rows)),
        loss_bound=M,
        delta=DELTA,
    )


def plain_wealth(s: np.ndarray, x: np.ndarray, bets: logsum.Bets, zeta: float) -> float:
    """Σ_j π_j Π_i (1 − g s_i(ℓ_i − ζ)/(M − ζ)), g as u's bet is one on s(ℓ − ζ)."""
    total, z = 0.0, zeta / M
    for gamma, pi in zip(bets.gammas[0], bets.weights[0], strict=True):
        g, wealth = gamma * (1 - z) / (1 - gamma * z), pi
        for weight, loss in zip(s, M * x, strict=True):
            wealth *= 1 - g * weight * (loss - zeta) / (M - zeta)
        total += wealth
    return total


def planned(
    law: str, rows: int, *, silos: int = 1, known: bool = True, factor: float = 1.0
) -> tuple[np.ndarray, logsum.Bets, np.ndarray]:
    """Levels of the rows' silos, and what is planned by training rows of the law."""
    rng = np.random.default_rng([rows, silos, len(law)])
    level = rng.uniform(0.3, 1.0, silos)[rng.integers(0, silos, rows)]
    s, x = LAWS[law](rng, np.tile(level, (20, 1)))
    args = {"moments": moments_of(s, factor * x)[None], "seen": [s.size]}
    bets, levels = weighted.plan(
        [rows], delta=DELTA, bounds=[1.0], loss_bound=M, **(args if known else {})
    )
    return level, bets, levels


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("law", LAWS)
def test_the_figure_is_where_plain_products_reject(law: str, known: bool) -> None:
    level, bets, levels = planned(law, 60, known=known)
    s, x = LAWS[law](np.random.default_rng(5), level[None])
    found = float(figures(s, x, bets, levels)[0])
    grid = [zeta for zeta in levels[0] if zeta < M]
    rejected = [plain_wealth(s[0], x[0], bets, zeta) >= 1 / DELTA for zeta in grid]
    assert rejected == sorted(rejected)  # what is rejected once is so above
    for zeta, hit in zip(grid, rejected, strict=True):
        assert hit == (found <= zeta)
    if found < M:  # between levels the chord is on the safe side, and close
        assert plain_wealth(s[0], x[0], bets, found) >= (1 - 1e-9) / DELTA
        inner = found - 0.05 * (found - M * float((s * x).sum() / s.sum()))
        assert plain_wealth(s[0], x[0], bets, inner) < 1 / DELTA or not known


def test_equal_weights_give_the_log_sum_bound() -> None:
    """With s = s_max chords are exact, wherever the levels are."""
    rng, n = np.random.default_rng(0), np.array([80.0])
    x = rng.beta(1.0, 3.0, (1, 80))
    bets = logsum.plan_bets(n, delta=DELTA, loss_bound=M)
    below = np.log1p(-bets.gammas[0] * x[0][:, None]).sum(axis=0)[None]
    plain = logsum.upper(bets, below, n, M, DELTA)
    for levels in ([0.0, M], [0.0, 0.7, 0.7, 1.9, M]):
        mine = figures(np.ones_like(x), x, bets, np.array([levels]))
        np.testing.assert_allclose(mine, plain, rtol=1e-9)


@pytest.mark.parametrize("rows", [100, 1000, 10_000])
def test_equal_weights_cost_no_width(rows: int) -> None:
    """Against the bound for unweighted rows, which spends a part of δ on Chernoff's."""
    rng = np.random.default_rng(rows)
    x, past = rng.beta(1.0, 3.0, (2, rows))
    args = {"mean": [M * past.mean()], "variance": [M**2 * past.var()]}
    plain = logsum.plan_bets([rows], delta=DELTA, loss_bound=M, **args)
    below = np.log1p(-plain.gammas[0] * x[:, None]).sum(axis=0)[None]
    total = [M * x.sum()]
    old = (
        logsum.upper_bounds(plain, below, [rows], total, loss_bound=M, delta=DELTA)
        - M * x.mean()
    )
    ones = np.ones(rows)
    bets, levels = weighted.plan(
        [rows],
        delta=DELTA,
        moments=moments_of(ones, past)[None],
        seen=[rows],
        bounds=[1.0],
        loss_bound=M,
    )
    new = figures(ones[None], x[None], bets, levels) - M * x.mean()
    assert new < 1.02 * old


def misses(law: str, rows: int, draws: int) -> dict[str, float]:
    """How often the figure is below the truth, by plan and number of silos."""
    out = {}
    for silos in (1, 10):
        level = planned(law, rows, silos=silos)[0]
        truth = truth_of(LAWS[law], level, 100 * max(draws, 2000))
        for plan, args in {
            "right": {},
            "wrong": {"factor": 0.5},
            "none": {"known": False},
        }.items():
            _, bets, levels = planned(law, rows, silos=silos, **args)
            rng, missed = np.random.default_rng(rows), 0
            for start in range(0, draws, 500):
                many = min(500, draws - start)
                s, x = LAWS[law](rng, np.tile(level, (many, 1)))
                missed += int((figures(s, x, bets, levels) < truth).sum())
            out[f"{plan}, {silos} silos"] = missed / draws
    return out


@pytest.mark.parametrize("law", LAWS)
def test_coverage(law: str) -> None:
    for plan, missed in misses(law, 40, 200).items():
        assert missed <= DELTA, plan


@pytest.mark.slow
@pytest.mark.parametrize("rows", [10, 40, 200, 1000])
@pytest.mark.parametrize("law", LAWS)
def test_coverage_in_10_000_draws(law: str, rows: int) -> None:
    for plan, missed in misses(law, rows, 10_000).items():
        print(f"{law}, n = {rows}, {plan}: {missed:.4f}")
        assert missed <= DELTA, plan


def test_the_bound_for_unweighted_rows_does_not_cover_the_weighted_mean() -> None:
    rng, rows, draws = np.random.default_rng(0), 1000, 100
    level = np.ones((draws, rows))
    truth = truth_of(with_loss, level[0])
    s, x = with_loss(rng, level)
    n = np.array([float(rows)])
    bets = logsum.plan_bets(n, delta=DELTA, loss_bound=M)
    below = np.log1p(-bets.gammas[0] * x[..., None]).sum(axis=1)[:, None]
    total = M * x.sum(axis=1, keepdims=True)
    args = {"loss_bound": M, "delta": DELTA}
    found = logsum.upper_bounds(bets, below, n, total, **args)[:, 0]
    assert (found < truth).mean() == 1.0
    # Nor does one that takes (Σs)²/Σs² rows with the weighted mean: where one heavy
    # row in fifty carries most of the mean, it is often not among the rows.
    s, x = rare(rng, np.full((draws, 30), 0.3))
    truth = truth_of(rare, np.full(30, 0.3))
    size = np.floor(s.sum(axis=1) ** 2 / (s**2).sum(axis=1))
    mean = (s * x).sum(axis=1) / s.sum(axis=1)
    kish = holdout.chernoff_upper(size, M * size * mean, M, DELTA)
    assert (kish < truth).mean() > 5 * DELTA


def test_a_weight_above_the_assumed_largest_breaks_it() -> None:
    """The ground that is named is needed: cut weights miss the truth."""
    rng, rows, draws = np.random.default_rng(1), 400, 200
    s, x = with_loss(rng, np.ones((draws, rows)))
    truth = truth_of(with_loss, np.ones(rows))
    cut = np.minimum(s, 0.05) / 0.05
    bets, levels = weighted.plan([rows], delta=DELTA, bounds=[1.0], loss_bound=M)
    assert (figures(cut, x, bets, levels) < truth).mean() > 0.9


def test_a_larger_assumed_weight_costs_little_where_rows_are_many() -> None:
    rng, rows = np.random.default_rng(2), 20_000
    s, x = lognormal(rng, np.ones((1, rows)))
    mean, width = M * float((s * x).sum() / s.sum()), {}
    for factor in (1.0, 1.5):
        t = s / factor
        known = {"moments": moments_of(t, x)[None], "seen": [rows]}
        bets, levels = weighted.plan(
            [rows], delta=DELTA, bounds=[1.0], loss_bound=M, **known
        )
        width[factor] = float(figures(t, x, bets, levels)[0]) - mean
    assert width[1.5] < 1.05 * width[1.0]


def test_moments_of_diluted_losses() -> None:
    rng = np.random.default_rng(3)
    s, x = lognormal(rng, np.ones((1, 500)))
    found = weighted.Moments.of(moments_of(s, x), s.size)
    assert found is not None
    u = s * x + (1 - s) * 0.37
    assert found.diluted(0.37) == pytest.approx((u.mean(), u.var()))
    assert found.mean == pytest.approx((s * x).sum() / s.sum())
    assert weighted.Moments.of(np.zeros(5), 3) is None
    assert weighted.Moments.of(np.zeros(5), 0) is None


def test_rows_needed_is_about_what_shows_the_bound() -> None:
    rng = np.random.default_rng(4)
    s, x = lognormal(rng, np.ones((1, 100_000)))
    known = weighted.Moments.of(moments_of(s, x), s.size)
    assert known is not None
    bound = 1.05 * M * known.mean
    args = {"moments": known, "loss_bound": M, "delta": DELTA}
    many = weighted.rows_needed(bound, **args)
    assert many is not None
    shown = []
    for rows in (many, many // 3):
        t, own = lognormal(rng, np.ones((40, rows)))
        bets, levels = weighted.plan(
            [rows],
            delta=DELTA,
            moments=moments_of(s, x)[None],
            seen=[s.size],
            bounds=[bound],
            loss_bound=M,
        )
        shown.append((figures(t, own, bets, levels) <= bound).mean())
    assert shown[0] > 0.3 > 0.1 > shown[1]
    assert weighted.rows_needed(0.9 * M * known.mean, **args) is None
    assert weighted.rows_needed(M, **args) == 0


def test_nobody_no_weight_and_wrong_arguments() -> None:
    bets, levels = weighted.plan([0], delta=DELTA, bounds=[9.0], loss_bound=M)
    assert levels.shape == (1, 7)
    assert (levels[0, 0], levels[0, -1]) == (0.0, M)
    zeros = np.zeros((1, 9, 7))
    args = {"loss_bound": M, "delta": DELTA}
    assert weighted.upper(bets, levels, zeros, counts=[0], **args) == M
    # Weights of 0 leave u = z: nothing is said.
    none = sums_of(np.zeros((1, 30)), np.zeros((1, 30)), bets.gammas[0], levels[0])
    assert weighted.upper(bets, levels, none, counts=[30], **args) == M
    with raises(UsageError, "wrong-value", "log"):
        weighted.upper(bets, levels, zeros + 1, counts=[5], **args)
    with raises(UsageError, "wrong-value", "level"):
        weighted.upper(bets, levels, zeros[..., 1:], counts=[5], **args)
    with raises(UsageError, "wrong-value", "loss bound"):
        weighted.upper(bets, levels[:, ::-1], zeros, counts=[5], **args)
