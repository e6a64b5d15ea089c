"""Above 2,000 parameters nobody asks for a Hessian (fault: 1.1 GB at p = 2,500)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.data import Federation
from pffl.engines import Local
from pffl.errors import UsageError
from pffl.methods import METHODS, Method
from pffl.queries import Expand, Query
from tests.helpers import make_federation, make_schema
from tests.inside import Before, Least, Pair
from tests.raising import raises

MANY = 2100


@cache
def wide() -> Federation:
    schema = make_schema(features=MANY)
    return make_federation(0, schema=schema, sizes=(20, 20), test=10)


class Watched(Local):
    """Refuse to pass on a query for Hessians."""

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        for query in queries:
            hessian = isinstance(query, Expand) and query.order == 2
            assert not hessian, "a Hessian was asked for"
        return super().ask_many(queries)


def test_the_watch_notices() -> None:
    with pytest.raises(AssertionError, match="a Hessian"):
        pffl.solve(
            Watched(make_federation(0)), pffl.BoundedGroupLoss(0.6), random_state=0
        )


HESSIANS = ("reductions", "pooled")  # which need them to train
SHORT = {"rounds": 2, "dual_rounds": 2, "rounds_per_dual": 2, "iterations": 2}
SHORT |= {"stage_one_rounds": 2, "stage_two_rounds": 2}


def short(name: str) -> Method:
    """Return a method with few rounds."""
    known = {f.name for f in fields(METHODS[name])}  # type: ignore[arg-type]
    return METHODS[name](**{k: n for k, n in SHORT.items() if k in known})


@pytest.mark.parametrize("name", METHODS)
def test_nobody_asks_for_a_hessian_unasked(name: str) -> None:
    """Whatever trains the model, and whatever is measured of it."""
    bound, method, all_of_it = pffl.BoundedGroupLoss(0.6), short(name), name == "auto"
    options = pffl.Options(smallest_bound=all_of_it, baseline=all_of_it)
    how: dict[str, Any] = {"method": method, "options": options, "random_state": 0}
    if name in HESSIANS:
        with raises(UsageError, "too-many-parameters", "2101"):
            pffl.solve(Watched(wide()), bound, **how)
        return
    solution = pffl.solve(Watched(wide()), bound, **how)
    e = solution.evidence
    assert isinstance(e.proofs.gap, Pair)
    assert isinstance(e.proofs.least, Least) == all_of_it
    assert isinstance(e.before, Before) == all_of_it
    assert np.isfinite(solution.w).all()
