"""What gradient methods share. What all owe to their silos is in tests/testing."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import pffl
from pffl.engines import Local
from pffl.methods import AFL, QFFL, FedMinMax, GroupWeighted, LocalBGL
from tests.driving import iterate
from tests.helpers import make_federation, make_problem


def run(federation, method, *, engine=Local, weighting="silos"):
    asker = engine(federation)
    options = pffl.Options(weighting=weighting)
    problem = make_problem(asker, pffl.BoundedGroupLoss(0.5), options=options)
    return iterate(asker, problem, method).point


def test_all_silos_are_drawn_alike_and_rounds_are_drawn_anew():
    federation = make_federation(7, sizes=(5,) * 6)
    problem = make_problem(Local(federation, threads=1), None)
    method = pffl.FedAvg(participation=0.5)
    draws = [method.silos(problem, round) for round in range(2000)]
    assert {len(draw) for draw in draws} == {3}
    counts = np.bincount(np.concatenate(draws), minlength=6)
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(2000 * 0.25)
    assert len(set(draws)) == 20
    assert method.silos(problem, 5) == draws[5]
    assert method.silos(replace(problem, seed=1), 5) is not None
    assert pffl.FedAvg(participation=0.01).silos(problem, 0) is not None


@pytest.mark.parametrize("kind", [GroupWeighted, LocalBGL, FedMinMax, AFL, QFFL])
def test_every_method_has_the_slot(kind):
    short = {"rounds": 4} if hasattr(kind, "rounds") else {"dual_rounds": 1}
    federation = make_federation(9, sizes=(30, 20, 40, 25))
    models = [
        run(federation, kind(**short, **parameters)).w
        for parameters in (
            {},
            {"proximal": 5.0, "local_steps": 4},
            {"local_steps": 4},
            {"server": "momentum"},
            {"server": "adam", "server_step_size": 0.01},
            {"participation": 0.5},
            {"batch_size": 5},
        )
    ]
    for a, b in combinations(models, 2):
        assert np.isfinite(a).all()
        assert np.abs(a - b).max() > 1e-6
