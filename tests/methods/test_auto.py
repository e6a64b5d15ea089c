"""Auto: which method a problem gets, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.engines import Local
from pffl.errors import UsageError
from pffl.methods import PFFL, Auto, FirstOrder
from pffl.problem import Access
from tests.helpers import make_federation, make_problem
from tests.inside import hessians_fit
from tests.models.test_base import Constant
from tests.raising import raises

BOUND = pffl.BoundedGroupLoss(0.62)


def test_other_models_get_algorithm_1() -> None:
    engine = Local(make_federation(0, labels=0))
    problem = make_problem(engine, BOUND, model=Constant())
    found, why = Auto(multiplier_bound=3.0).resolved(problem)
    assert found == PFFL(multiplier_bound=3.0)
    assert why == "the model is not linear"
    assert Auto().resolved(problem)[0] == PFFL()
    with raises(UsageError, "wrong-parameter"):
        Auto(max_rounds=3).resolved(problem)


@pytest.mark.parametrize(
    ("parameters", "cells", "access", "fit"),
    [
        (200, 50, Access(), True),
        (201, 1, Access(), False),
        (50, 2000, Access(), False),
        (500, 5, Access(elsewhere=True), True),
        (2001, 0, Access(elsewhere=True), False),
    ],
)
def test_hessians_are_asked_for_where_they_are_small(
    parameters, cells, access, fit
) -> None:
    assert hessians_fit(parameters, cells, access=access)[0] is fit


def test_a_method_may_be_given_by_its_name() -> None:
    federation = make_federation(0)
    bound = pffl.BoundedGroupLoss(0.69)
    named = pffl.solve(federation, bound, method="first-order", random_state=0)
    given = pffl.solve(federation, bound, method=FirstOrder(), random_state=0)
    np.testing.assert_array_equal(named.w, given.w)
    with raises(pffl.errors.UsageError, "unknown-method", "newton"):
        pffl.solve(federation, bound, method="newton", random_state=0)
