"""Forecasts of what calibration rows will show, against rows that are drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.inside import Moments, Outlook, chance, times
from tests.oracles import logsum, plan_bets

M, DELTA = 3.0, 0.05


def known(mean: float, deviation: float, bound: float, **more: float) -> Outlook:
    """A cell of which mean and deviation are known exactly."""
    x, second = mean / M, (mean**2 + deviation**2) / M**2
    given = {"limit": mean, "slope": 0.0, "people": np.inf, **more}
    moments = Moments(1.0, x, 1.0, x, second)
    return Outlook(bound, moments=moments, loss_bound=M, **given)


def shown(mean: float, deviation: float, n: int, draws: int, seed: int) -> np.ndarray:
    """Upper ends that drawn rows show; losses M times a beta variable."""
    rng = np.random.default_rng(seed)
    level, width = mean / M, (deviation / M) ** 2
    total = level * (1 - level) / width - 1
    x = rng.beta(level * total, (1 - level) * total, size=(draws, n))
    bets = plan_bets([n], delta=DELTA, mean=mean, variance=deviation**2, loss_bound=M)
    below = np.log1p(-bets.gammas[0][:, None, None] * x).sum(axis=-1).T[:, None, :]
    args = {"loss_bound": M, "delta": DELTA}
    counts, totals = np.full((draws, 1), n), M * x.sum(axis=1, keepdims=True)
    return logsum.upper_bounds(bets, below, counts, totals, **args)[:, 0]


@pytest.mark.parametrize("n", [40, 200, 2000])
@pytest.mark.parametrize(("mean", "deviation"), [(0.6, 0.4), (0.3, 0.5), (0.7, 0.2)])
def test_the_upper_end_that_rows_show_lies_around_the_forecast(mean, deviation, n):
    found = shown(mean, deviation, n, draws=200, seed=n)
    forecast = known(mean, deviation, 1.0).upper(n, 1e9, DELTA)
    width = np.median(found) - mean
    assert abs(forecast - np.median(found)) < 0.2 * width
    assert width > 0


@pytest.mark.parametrize("n", [60, 400])
def test_the_chance_is_how_often_the_bound_is_shown(n):
    """The bound is placed where it is shown with 20, 50 and 80 %."""
    found = shown(0.6, 0.4, n, draws=600, seed=n + 1)
    for wanted in (0.2, 0.5, 0.8):
        bound = float(np.quantile(found, wanted))
        forecast = chance([known(0.6, 0.4, bound).room(n, 1e9, DELTA)])
        assert abs(forecast - wanted) < 0.15


def test_cells_have_to_be_shown_together():
    assert chance([0.0, 0.0]) == pytest.approx(0.25)
    assert chance([np.inf, 0.0]) == pytest.approx(0.5)
    assert chance([-np.inf, 8.0]) == 0.0


def test_limit_and_slope_lie_between_rows_that_were_fitted_and_others():
    moments = Moments(1.0, 0.2, 1.0, 0.2, 0.08)  # a mean of 0.6
    args = {"rows": 500.0, "moments": moments, "people": 200.0, "loss_bound": M}
    one = Outlook.of(0.7, trained=0.5, **args)
    assert one.limit == pytest.approx(0.55)
    assert one.mean(500) == pytest.approx(0.6)
    assert one.mean(5000) == pytest.approx(0.555)
    lucky = Outlook.of(0.7, trained=0.65, **args)  # others do better, by chance
    assert lucky.slope == 0.0
    assert lucky.mean(10) == pytest.approx(0.6)


def test_rows_that_are_needed_are_those_at_which_the_chance_is_reached():
    cells = [known(0.6, 0.4, 0.68, slope=3.0), known(0.5, 0.3, 0.7, slope=1.0)]
    people, others, trained = [100.0, 50.0], [250.0, 150.0], 400.0
    by = times(cells, people, others, trained, DELTA)
    assert by is not None

    def at(factor: float) -> float:
        rooms = [
            replace(c, people=factor * k).room(factor * n, factor * trained, DELTA)
            for c, n, k in zip(cells, people, others, strict=True)
        ]
        return chance(rooms)

    assert at(by) == pytest.approx(0.8, abs=1e-3)
    assert at(0.9 * by) < 0.8 < at(1.1 * by)
    surer = times(cells, people, others, trained, 0.01)
    assert surer is not None
    assert surer > by
    assert times([known(0.7, 0.4, 0.7)], [100.0], [250.0], 400.0, DELTA) is None
    assert times(cells, [100.0, 0.0], others, trained, DELTA) is None


def test_less_is_known_by_fewer_people():
    sure, unsure = (known(0.6, 0.4, 0.7, people=p) for p in (np.inf, 50.0))
    assert 0 < unsure.room(400, 1e9, DELTA) < sure.room(400, 1e9, DELTA)


def test_a_bound_that_no_loss_is_above_is_always_shown_and_nothing_without_rows():
    assert known(0.6, 0.4, M).room(0, 1e9, DELTA) == np.inf
    assert known(0.6, 0.4, 0.7).room(0, 1e9, DELTA) == -np.inf
    assert known(0.6, 0.4, 0.7).upper(0, 1e9, DELTA) == M


def test_weights_that_vary_take_more_rows():
    """Half of the people have no weight to speak of: about twice as many are needed."""
    alike = replace(known(0.6, 0.4, 0.7), weighted=True)
    old = alike.moments
    half = Moments(0.5, old.tx / 2, 0.5, old.ttx / 2, old.ttxx / 2)
    vary = replace(alike, moments=half)
    few, many = (times([c], [100.0], [1e9], 1e9, DELTA) for c in (alike, vary))
    assert few is not None
    assert many is not None
    assert 1.7 < many / few < 2.6
