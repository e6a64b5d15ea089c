"""The figures that Exact promises, on the real data where it is at hand."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import pffl
from pffl._solve import Options
from pffl.data import Federation
from pffl.datasets import acs, compas
from pffl.engines import Local
from pffl.prepare import reprice
from tests.datasets.compas_file import is_cached
from tests.driving import iterate, measure, prepare

BUDGETS = (0.1, 0.5, 1.0, 5.0, 10.0, 100.0, 200.0, 500.0)
BOUNDS = (0.0, 0.1, 0.3, 0.5, 0.55, 0.6, 0.605, 0.61, 0.615, 0.62, 0.7)
CENSUS = Path(__file__).parents[3] / "shared" / "data"
SAMPLE = CENSUS / "acs_employment_2024_mini400_nopuma.parquet"
WHOLE = CENSUS / "acs_employment_2024_48st_dc.parquet"

NOTIONS = {
    "groups": pffl.BoundedGroupLoss(1.0),
    "positives": pffl.ConditionalBoundedGroupLoss(1.0, labels=(1,)),
    "negatives": pffl.ConditionalBoundedGroupLoss(1.0, labels=(0,)),
    "labels": pffl.ConditionalBoundedGroupLoss(1.0),
}

needs_compas = pytest.mark.skipif(not is_cached(), reason="COMPAS is not cached")


def needs(path):
    return pytest.mark.skipif(not path.exists(), reason=f"no {path.name}")


def rounds_over(federation: Federation, notion, budgets, bounds, l2, tolerance):
    """Solve every (ζ, B) from w = 0, check the gap of each pair, count the rounds."""
    engine = Local(federation)
    model = pffl.LogisticRegression(l2=l2)
    first, _ = prepare(engine, NOTIONS[notion], model, pffl.Exact(), Options(), 0)
    rounds = []
    for budget in budgets:
        for bound in bounds:
            zeta = np.full(first.n_cells, bound)
            problem = reprice(first, zeta, 1.0, budget)
            method = pffl.Exact(multiplier_bound=budget, target_gap=100 * tolerance)
            run = iterate(engine, problem, method)
            most = 1.01 * tolerance * (1 + run.point.multipliers.sum())
            assert measure(engine, problem, run.point).gap <= most
            rounds.append(run.rounds)
    return rounds


@needs_compas
def test_88_points_of_compas_in_three_seconds():
    engine = Local(compas(silos=10, seed=0), threads=1)
    method = pffl.Exact(target_gap=1e-5)
    first, _ = prepare(
        engine, NOTIONS["groups"], pffl.LogisticRegression(), method, Options(), 0
    )
    started, rounds = time.process_time(), []
    for budget in BUDGETS:
        for bound in BOUNDS:
            problem = reprice(first, np.full(2, bound), 1.0, budget)
            rounds.append(iterate(engine, problem, method).rounds)
    assert time.process_time() - started < 3.0
    assert len(rounds) == 88
    assert max(rounds) <= 12
    assert np.mean(rounds) <= 7


FINE = (*BOUNDS, 0.65, 0.75, 0.8)
SETTINGS = [
    *[
        pytest.param(
            lambda: compas(silos=10, seed=0),
            (notion, BUDGETS, BOUNDS if notion == "groups" else FINE, l2, 1e-7),
            7,
            marks=needs_compas,
            id=f"compas {notion} {l2}",
        )
        for notion in NOTIONS
        for l2 in (1e-4, 1e-3, 1e-2)
    ],
    *[
        pytest.param(
            lambda: acs(source=SAMPLE, year=2024, filter="filtered"),
            ("groups", (0.1, 10.0, 100.0, 500.0), (0.3, 0.55, 0.56, 0.6), l2, 1e-6),
            8,
            marks=needs(SAMPLE),
            id=f"acs sample {l2}",
        )
        for l2 in (1e-4, 1e-3, 1e-2)
    ],
    pytest.param(
        lambda: acs(source=WHOLE, year=2024, filter="filtered", test_fraction=0.0),
        ("groups", (10.0, 500.0), (0.5, 0.6), 1e-3, 1e-6),
        12,
        marks=needs(WHOLE),
        id="acs",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("load", "setting", "mean"), SETTINGS)
def test_rounds_are_few_and_gaps_closed(load, setting, mean):
    rounds = rounds_over(load(), *setting)
    assert max(rounds) <= 12
    assert np.mean(rounds) <= mean
