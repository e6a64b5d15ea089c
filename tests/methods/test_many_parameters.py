"""Above 2,000 parameters nobody asks for a Hessian (fault: 1.1 GB at p = 2,500)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.data import Federation
from pffl.engines import Local
from pffl.errors import UsageError
from pffl.evidence.evidence import Missing
from pffl.methods import METHODS, Method
from pffl.problem import Problem
from pffl.questions import Curvature, Slopes
from pffl.questions.base import Question
from tests.helpers import make_federation, make_problem, make_schema

MANY = 2100


@cache
def wide() -> Federation:
    schema = make_schema(features=MANY)
    return make_federation(0, schema=schema, sizes=(20, 20), test=10)


class Watched(Local):
    """Refuse to pass on a question for Hessians."""

    def ask_many(self, questions: Sequence[Question[Any]]) -> list[Any]:
        for question in questions:
            hessians = isinstance(question, Curvature) and question.order == 2
            assert not hessians, "a Hessian was asked for"
        return super().ask_many(questions)


def test_the_watch_notices() -> None:
    with pytest.raises(AssertionError, match="a Hessian"):
        pffl.solve(Watched(make_federation(0)), pffl.BoundedGroupLoss(0.6), seed=0)


def started(method: Method, problem: Problem) -> None:
    method.setup(problem)
    method.init(problem)


@pytest.mark.parametrize("name", METHODS)
def test_methods_refuse_by_the_name_of_the_way_out(name: str) -> None:
    problem = make_problem(Local(wide()), pffl.BoundedGroupLoss(0.6))
    method = METHODS[name]()
    if name == "local-bgl":
        assert method.setup(problem) is None
        return
    if name == "first-order":
        assert isinstance(method.question(problem, method.init(problem)), Slopes)
        return
    with pytest.raises(UsageError, match=r"2101 × 2101 .* a step_size"):
        started(method, problem)


def test_pffl_with_a_step_size_sends_gradients_only() -> None:
    method = pffl.PFFL(step_size=1e-3, dual_rounds=2, rounds_per_dual=3)
    solution = pffl.solve(
        Watched(wide()), pffl.BoundedGroupLoss(0.6), method=method, seed=0, gap_every=1
    )
    e = solution.evidence
    assert isinstance(e.proofs.gap, Missing)
    assert "more than 2,000 parameters" in e.proofs.gap.missing
    assert isinstance(e.proofs.least, Missing)
    assert isinstance(e.before, Missing)
    first, *_, last = solution.history["risk"]
    assert np.isfinite(last)
    assert last < first
