"""The alarm against a plain product, at its limits, and by simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inside import Bets, alarm
from tests.inside import mean_BETS as BETS

M = 3.0
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def sums(losses: np.ndarray, gammas: np.ndarray, bound: float) -> np.ndarray:
    """S_j over the last axis of losses; `gammas` and `bound` of one cell."""
    over = losses / bound - 1.0
    return np.stack([np.log1p(g * over).sum(axis=-1) for g in gammas], axis=-1)


def plain_values(
    batches: list[list[float]], bound: float, gammas: list[float], weights: list[float]
) -> list[float]:
    """E after each batch: a product for each start, row by row."""
    out, begun = [], [b for b, rows in enumerate(batches) if rows]
    for now in range(len(batches)):
        starts = [b for b in begun if b <= now]
        total = 1.0 / (len(starts) + 1)  # what has not begun
        for number, start in enumerate(starts, start=1):
            for gamma, pi in zip(gammas, weights, strict=True):
                wealth = pi / (number * (number + 1))
                for rows in batches[start : now + 1]:
                    for x in rows:
                        wealth *= 1 + gamma * (x / bound - 1)
                total += wealth
        out.append(total)
    return out


@given(seed=st.integers(0, 2**32), many=st.integers(1, 6), u=st.floats(1e-6, 9.0))
@settings(max_examples=40)
def test_it_is_the_formula_and_never_above_it(seed: int, many: int, u: float) -> None:
    rng = np.random.default_rng(seed)
    batches = [
        rng.lognormal(*rng.uniform(0.1, 2, 2), rng.integers(0, 9)) for _ in range(many)
    ]
    gammas, weights = rng.uniform(0.01, 0.99, 4), rng.dirichlet(np.ones(4))
    bets, wealth = Bets(gammas[None], weights[None]), alarm.Wealth.none((1, 4))
    plain = plain_values(
        [b.tolist() for b in batches], u, gammas.tolist(), weights.tolist()
    )
    for x, value in zip(batches, plain, strict=True):
        gained = alarm.gains(bets, sums(x, gammas, u)[None], [len(x)])
        wealth = wealth.after(gained, [len(x)])
        found = float(wealth.log_values(bets)[0])
        assert found <= math.log(value) + 1e-13 * (1 + abs(math.log(value)))
        assert found == pytest.approx(math.log(value), rel=1e-10, abs=1e-10)


# By simulation


def crossings(
    draw: Draw,
    bounds: list[float],
    *,
    runs: int,
    batches: int,
    size: int,
    seed: int,
    known: bool = True,
    confidence: float = 0.95,
) -> np.ndarray:
    """The batch at which each run raised an alarm; 0 where none did.

    ``draw(rng, (runs, cells, size))`` are losses of one batch, divided by M.
    """
    rng, Z = np.random.default_rng(seed), len(bounds)
    plan = {}
    if known:
        sample = M * draw(rng, (400, Z, 20))
        plan = {"variance": sample.var(axis=(0, 2))}
    bets = alarm.plan(bounds, **plan)
    wealth, crossed = alarm.Wealth.none((runs, Z, BETS)), np.zeros(runs, dtype=int)
    limit, counts = np.log(alarm.threshold(Z, confidence)), [size] * Z
    for batch in range(1, batches + 1):
        x = M * draw(rng, (runs, Z, size))
        each = [sums(x[:, z], bets.gammas[z], bounds[z]) for z in range(Z)]
        wealth = wealth.after(alarm.gains(bets, np.stack(each, axis=1), counts), counts)
        rings = (wealth.log_values(bets) >= limit).any(axis=1)
        crossed = np.where((crossed == 0) & rings, batch, crossed)
    return crossed


def skewed(mean: float) -> Draw:
    """Skewed losses with a mean of just that."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.beta(2.0, 2.0 / mean - 2.0, shape)

    return draw


def rare(mean: float) -> Draw:
    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return (rng.random(shape) < mean).astype(float)

    return draw


def silos(mean: float) -> Draw:
    """Half of a batch's rows from a silo with 1.5 times the mean, half with 0.5."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        at = np.where(np.arange(shape[-1]) % 2 == 0, 0.5, 1.5) * mean
        return rng.beta(2.0, 2.0 / at - 2.0, shape)

    return draw


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 2, 1, 4)])
def test_the_mean_of_e_is_one_at_the_bound(sizes: tuple[int, ...]) -> None:
    """Exactly so, over all outcomes of coins: a fair game, with all its starts."""
    u, rows = 0.3, sum(sizes)
    bets = Bets(np.array([[0.2, 0.7, 0.99]]), np.array([[0.5, 0.3, 0.2]]))
    outcomes = np.array(list(itertools.product([0.0, 1.0], repeat=rows)))
    chance = np.prod(np.where(outcomes == 1, u, 1 - u), axis=1)
    wealth, first = alarm.Wealth.none((len(outcomes), 1, 3)), 0
    for size in sizes:
        x = outcomes[:, None, first : first + size]
        above = sums(x, bets.gammas[0], u)
        wealth = wealth.after(alarm.gains(bets, above, [size]), [size])
        mean = chance @ np.exp(wealth.log_values(bets)[:, 0])
        assert 1 - 1e-9 < mean <= 1
        first += size


@pytest.mark.parametrize("kind", [skewed, rare, silos])
@pytest.mark.parametrize("cells", [1, 4])
def test_false_alarms_are_rare_at_the_bound(
    kind: Callable[[float], Draw], cells: int
) -> None:
    """At any time: more than δ of the runs would be a violation of the claim."""
    runs, delta = 400, 0.2
    found = crossings(
        kind(0.2),
        [0.6] * cells,
        runs=runs,
        batches=40,
        size=20,
        seed=cells,
        confidence=1 - delta,
    )
    # Three standard errors above δ would be seen in 1 of 700 tests at exactly δ.
    assert (found > 0).mean() <= delta + 3 * math.sqrt(delta * (1 - delta) / runs)


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("kind", [skewed, rare, silos])
@pytest.mark.parametrize("cells", [1, 5])
def test_false_alarms_over_ten_thousand_rows(
    kind: Callable[[float], Draw], cells: int, known: bool
) -> None:
    """More settings than the quick test."""
    found = crossings(
        kind(0.2),
        [0.6] * cells,
        runs=400,
        batches=200,
        size=50,
        seed=10 + cells,
        known=known,
    )
    assert (found > 0).mean() <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_drifts_are_seen_soon_and_good_times_delay_little() -> None:
    for rise, batches in ((0.1, 40), (0.2, 10), (0.5, 4)):
        found = crossings(
            skewed(0.2 * (1 + rise)),
            [0.6] * 2,
            runs=60,
            batches=batches,
            size=50,
            seed=1,
        )
        assert (found > 0).mean() >= 0.9, rise

    good, late = skewed(0.15), skewed(0.26)
    seen = 0

    def turning(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        nonlocal seen
        seen += shape[-1] == 50
        return (good if seen <= 100 else late)(rng, shape)

    found = crossings(turning, [0.6], runs=60, batches=112, size=50, seed=2)
    assert (found > 100).mean() >= 0.9
    # Without later starts 5,000 good rows would have to be won back first.
    x = M * good(np.random.default_rng(0), (5000,))
    bets = alarm.plan([0.6])
    lost = alarm.gains(bets, sums(x, bets.gammas[0], 0.6)[None], [5000])
    rows = M * late(np.random.default_rng(1), (600,))
    won = alarm.gains(bets, sums(rows, bets.gammas[0], 0.6)[None], [600])
    assert (lost + won).max() < 0
