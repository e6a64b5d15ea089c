"""Scaling from sums, without a look at pooled rows; what all models share."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.engines import ENGINES
from pffl.errors import UsageError
from pffl.models import Model
from pffl.queries import Evaluate
from tests.helpers import make_federation, make_problem, train_query
from tests.inside import Step
from tests.raising import raises


class Constant(Model):
    """As little as a model needs: a number for everybody, under squared errors."""

    name, l2, n_parameters = "constant", 0.5, 1

    def __init__(self, inputs=None):
        self.inputs = inputs

    def bind(self, schema, inputs):
        return Constant(inputs)

    def start(self, seed):
        return np.zeros(1)

    def scores(self, w, X):
        return np.full(len(X), w[0])

    def score_losses(self, z, y):
        return (z - y) ** 2

    def losses_and_gradient(self, w, X, y, weights):
        return self.losses(w, X, y), np.array([2 * weights @ (w[0] - y)])

    def score_classes(self, z):
        return None

    def describe(self):
        return {"kind": self.name}


def test_the_base_class_does_what_most_models_share():
    model = Constant()
    assert not model.convex
    assert (model.n_outputs, model.n_trained) == (1, 1)
    w, anchor, y = np.array([3.0]), np.array([1.0]), np.array([1.0, 2.0])
    step = Step(size=0.1, ridge=0.5, proximal=0.25, anchor=anchor)
    moved = model.local_step(w, np.zeros((2, 1)), y, np.array([1.0, 2.0]), step)
    gradient = 2 * (1 * 2 + 2 * 1) + 0.5 * 3 + 0.25 * 2
    np.testing.assert_allclose(moved, 3 - 0.1 * gradient)
    np.testing.assert_array_equal(w, [3.0])
    with raises(UsageError, "not-available"):
        model.predict_proba(w, np.zeros((2, 1)))
    with pytest.raises(TypeError, match="abstract"):
        Model()


@pytest.mark.parametrize("engine_type", ENGINES.values())
def test_an_engine_asks_about_a_model_of_ones_own(engine_type):
    engine = engine_type(make_federation(0, labels=0))
    problem = make_problem(engine, pffl.BoundedGroupLoss(9.0), model=Constant())
    w = np.array([0.3])
    pooled = engine.federation.pooled("test")
    asked = [Evaluate(problem.task, w), train_query(problem, w, np.ones(2))]
    evaluated, trained = engine.ask_many(asked)
    assert evaluated.column("loss").sum() == pytest.approx(
        np.sum((0.3 - pooled.y) ** 2)
    )
    assert np.isfinite(trained.update).all()
    assert trained.update.any()
