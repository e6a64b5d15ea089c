"""The plain engine: what it says about the silos, and who failed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.engines import ENGINES, Local, Reference
from pffl.errors import FederationError, UsageError
from pffl.queries import Evaluate
from tests.helpers import make_federation, make_problem, train_query
from tests.raising import raises


@pytest.mark.parametrize("engine_type", ENGINES.values())
def test_an_unknown_split_is_refused(engine_type):
    engine = engine_type(make_federation(0))
    problem = make_problem(engine, None)
    with raises(UsageError, "unknown-split", "validation"):
        engine.ask(Evaluate(problem.task, np.zeros(4), "validation"))


def test_a_silo_that_fails_is_named():
    class Broken(pffl.LogisticRegression):
        def losses(self, w, X, y):
            if len(X) == 25:
                raise MemoryError("out of space")
            return super().losses(w, X, y)

    engine = Reference(make_federation(0, sizes=(40, 25, 60)))
    problem = make_problem(engine, None, model=Broken())
    query = train_query(problem, np.zeros(4), np.zeros(0))
    with raises(FederationError, "silo-failed", "site 1"):
        engine.ask(query)


def test_models_that_are_not_linear_are_asked_silo_by_silo():
    class Wrapped:
        """Everything of a model but its class."""

        def __init__(self, model):
            self.model = model

        def __getattr__(self, name):
            return getattr(self.model, name)

    federation = make_federation(0)
    problem = make_problem(Reference(federation), pffl.BoundedGroupLoss(0.5))
    w, lam = np.ones(4), np.ones(2)
    task = replace(problem.task, model=Wrapped(problem.task.model))
    plain = Reference(federation).ask(train_query(problem, w, lam, steps=[0.1, 0.1]))
    fast = Local(federation).ask(
        replace(train_query(problem, w, lam, steps=[0.1, 0.1]), task=task)
    )
    np.testing.assert_array_equal(plain.update, fast.update)
