"""What the first screen says, and that it never says more than the figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from tests.helpers import make_federation
from tests.inside import Evidence, conclude, tables


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return pffl.solve(
        make_federation(0), pffl.BoundedGroupLoss(0.69), random_state=0
    ).evidence


def column(e: Evidence, title: str) -> tables.TableColumn:
    found = tables.columns(conclude(e), conclude(e).cells)
    return next(one for one in found if one.title == title)


def with_bounds(e: Evidence, bounds: list[float]) -> Evidence:
    pairs = zip(e.cells, bounds, strict=True)
    return replace(e, cells=[replace(cell, bound=bound) for cell, bound in pairs])


@pytest.mark.parametrize("title", ["constrained", "test", "certified at most"])
def test_figures_are_marked_exactly_where_they_are_above(evidence, title):
    key = {"constrained": "train_loss", "test": "test_loss"}.get(title, "test_upper")
    values = np.array([getattr(c, key) for c in conclude(evidence).cells])
    for shift, over in ((0.01, False), (-0.01, True)):
        moved = with_bounds(evidence, list(values + shift))
        figures = column(moved, title).figures
        assert [figure.marked for figure in figures] == [over] * len(values)
        assert [str(f).startswith(tables.ABOVE) for f in figures] == [over] * len(
            values
        )
