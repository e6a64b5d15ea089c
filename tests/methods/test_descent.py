"""What gradient methods share. What all owe to their silos is in tests/testing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pffl.engines import Local
from pffl.methods import FedAvg
from tests.helpers import make_federation, make_problem


def test_all_silos_are_drawn_alike_and_rounds_are_drawn_anew():
    federation = make_federation(7, sizes=(5,) * 6)
    problem = make_problem(Local(federation, threads=1), None)
    method = FedAvg(participation=0.5)
    draws = [method.silos(problem, round) for round in range(2000)]
    assert {len(draw) for draw in draws} == {3}
    counts = np.bincount(np.concatenate(draws), minlength=6)
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(2000 * 0.25)
    assert len(set(draws)) == 20
    assert method.silos(problem, 5) == draws[5]
    assert method.silos(replace(problem, seed=1), 5) is not None
    assert FedAvg(participation=0.01).silos(problem, 0) is not None
