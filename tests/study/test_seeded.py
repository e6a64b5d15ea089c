"""A sweep on several seeds."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from tests.inside import full_grid, sweep_seeds


def load(seed):
    return pffl.datasets.synthetic(
        400, silos=2, features=2, seed=seed, validation_fraction=0.25
    )


def test_fronts_have_bands_over_seeds_and_resume(tmp_path):
    points = full_grid(["bgl"], [0.5, 0.6], [0.5, 10.0])
    some = {"methods": [pffl.Exact(), pffl.PFFL(dual_rounds=2)], "seeds": 3}
    (found,) = sweep_seeds(load, points, **some, least_people=1, out=tmp_path)
    front = found.front()
    assert set(front["curve"]) <= {"exact", "pffl"}
    one = front[front["curve"] == "exact"]
    assert (np.diff(one["allowance"]) > 0).all()
    inside = one["worst_cell_loss"].between(
        one["worst_cell_loss_low"], one["worst_cell_loss_high"]
    )
    assert inside.all()
    assert found.study.trials == {"exact": 4, "pffl": 4}
    # Means over seeds of the trial that validation rows choose on each.
    widest = float(one["allowance"].iloc[-1])
    chosen = found.study.choose("worst_cell_loss", widest)["exact"]
    values = [
        found.study.values(found.study.on_test(row))["worst_cell_loss"]
        for row in chosen.values()
    ]
    assert one["worst_cell_loss"].iloc[-1] == pytest.approx(np.mean(values))
    assert (tmp_path / "front-bgl.csv").is_file()
    # What a method was given besides goes into every trial.
    assert {r.parameters.get("dual_rounds") for r in found.study.rows} == {None, 2}
