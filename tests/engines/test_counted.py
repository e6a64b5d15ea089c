"""An engine that keeps a bill changes nothing, and counts what it says."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.engines import Local
from pffl.engines.counted import Counted
from tests.helpers import make_federation


@pytest.mark.parametrize("batch_size", [None, 10])
def test_a_run_costs_its_rounds_and_local_steps(batch_size):
    federation = make_federation(0, sizes=(40, 40, 40))
    constraint = pffl.BoundedGroupLoss(5.0)
    method = pffl.PFFL(
        dual_rounds=4,
        rounds_per_dual=3,
        local_steps=5,
        step_size=0.1,
        dual_step_size=1.0,
        batch_size=batch_size,
    )
    engine = Counted(Local(federation))
    options = pffl.Options(baseline=False)
    counted, plain = (
        pffl.solve(data, constraint, method=method, options=options, seed=0)
        for data in (engine, federation)
    )
    np.testing.assert_array_equal(counted.w, plain.w)
    assert counted.gap == plain.gap
    evaluations = 2  # train and test rows
    expected = counted.rounds + counted.measuring_rounds + evaluations
    assert engine.bill.rounds == expected
    passes = 12 * 5 * (1.0 if batch_size is None else 10 / 40)
    assert engine.bill.gradients == pytest.approx(passes + counted.measuring_rounds)
    # Every round sends at least w and brings at least an update and the cells' losses.
    assert engine.bill.sent >= 3 * 8 * 12 * 4
    assert engine.bill.received >= 3 * 8 * 12 * (4 + 2)
