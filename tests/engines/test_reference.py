"""The plain engine: what it says about the silos, and who failed."""

from __future__ import annotations

import numpy as np
import pytest

from pffl.engines import ENGINES
from pffl.errors import UsageError
from pffl.queries import Evaluate
from tests.helpers import make_federation, make_problem
from tests.raising import raises


@pytest.mark.parametrize("engine_type", ENGINES.values())
def test_an_unknown_split_is_refused(engine_type):
    engine = engine_type(make_federation(0))
    problem = make_problem(engine, None)
    with raises(UsageError, "unknown-split", "validation"):
        engine.ask(Evaluate(problem.task, np.zeros(4), "validation"))
