"""A query whose numbers overflow lets one person change no more than is declared."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pffl.queries import Tally
from tests.queries.test_noised import FEATURES, noised, schema_of, task_of, view_of

HUGE = [np.array([1e308, -1e308, 1e308, 0.0]), np.array([1e308, 1e308, 1e308, 1e308])]


@pytest.mark.parametrize("w", HUGE)
@pytest.mark.parametrize("scale", [1.0, 1e-308])
@pytest.mark.parametrize("row", [[3.0, 3.0, 3.0], [1e300, -1e300, 1.0]])
def test_a_server_cannot_make_one_row_count_as_millions(w, scale, row):
    """It sends a model or a scaling for which a row's score is no number."""
    task = task_of(4.0)
    inputs = replace(task.model.inputs, scale=np.full(FEATURES, scale))
    task = replace(task, model=replace(task.model, inputs=inputs))
    with np.errstate(all="ignore"):
        query = noised(task, w, np.eye(4))
        others = np.ones((3, FEATURES))
        before = query.answer(view_of(task, others, [0, 1, 2]))
        after = query.answer(view_of(task, np.vstack([others, row]), [0, 1, 2, 3]))
    for name in query.asked_for:
        unit = 2.0 ** -query.total_type.declared[name].unit
        change = (getattr(after, name) - getattr(before, name)).astype(float) * unit
        length = math.sqrt(float((change**2).sum()))
        assert length <= query.sensitivity[name] * (1 + 1e-12), name


def test_ranges_that_overflow():
    low, high = np.full(FEATURES, -1.7e308), np.full(FEATURES, 1.7e308)
    query = Tally(schema_of(2), low, high, 2.0, np.ones(2))
    task = task_of(4.0)
    view = view_of(task, np.zeros((1, FEATURES)), [0])
    view = replace(view, X=np.full((1, FEATURES), 1.7e308))
    found = query.real(query.answer(view), "features")
    assert np.linalg.norm(found) <= query.sensitivity["features"]
