"""The bounded predictor: its loss is at most M for everybody."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.errors import DataError
from pffl.models import (
    HuberRegression,
    Inputs,
    LeastSquares,
    LogisticRegression,
    SoftmaxRegression,
    Target,
)
from tests.helpers import make_schema
from tests.raising import raises

BOUNDS = [0.6932, 1.2, 3.0, 5.0, 20.0, 36.7, 300.0, 700.0]


def classifier(kind):
    labels = 3 if kind == "softmax" else 2
    schema = make_schema(features=1, labels=labels)
    model = {"logistic": LogisticRegression, "softmax": SoftmaxRegression}
    return model[kind]().bind(schema, Inputs.identity(1))


def extreme(model, rng, rows=400):
    """Parameters and rows whose scores go from nothing to far beyond any M."""
    X = rng.normal(size=(rows, 1)) * 10.0 ** rng.integers(-8, 5, (rows, 1))
    X[: len(BOUNDS), 0] = BOUNDS  # scores right where probabilities are cut
    y = rng.integers(model.n_classes, size=rows).astype(float)
    w = rng.normal(size=model.n_parameters)
    if model.n_outputs == 1:
        w = np.array([1.0, 0.0])
    return w, X, y


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_no_loss_is_above_its_bound_in_floating_point(kind, bound):
    model = classifier(kind)
    bound = max(bound, np.log(model.n_classes) + 1e-4)
    w, X, y = extreme(model, np.random.default_rng(0))
    losses = model.bounded_losses(w, X, y, bound)
    assert (losses >= 0).all()
    assert (losses <= bound).all()
    p = model.bounded_proba(w, X, bound)
    assert (-np.log(p) <= bound * (1 + 1e-15)).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-14)
    chosen = p[np.arange(len(y)), y.astype(int)]
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(losses, -np.log(chosen), rtol=1e-9, atol=1e-14)


@given(bound=st.floats(1.1, 60.0), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_more_classes_are_mixed(bound, seed):
    model, rng = classifier("softmax"), np.random.default_rng(seed)
    w, X, y = extreme(model, rng, rows=20)
    own = model.predict_proba(w, X)
    mixed = (1 - 3 * np.exp(-bound)) * own + np.exp(-bound)
    found = model.bounded_proba(w, X, bound)
    np.testing.assert_allclose(found, mixed, rtol=1e-9, atol=1e-15)
    loss = -np.log(mixed[np.arange(len(y)), y.astype(int)])
    np.testing.assert_allclose(
        model.bounded_losses(w, X, y, bound), loss, rtol=1e-9, atol=1e-14
    )


@pytest.mark.parametrize("target", [Target(0.0, 1.0), Target(5e4, 2e4)])
@pytest.mark.parametrize("kind", [LeastSquares, HuberRegression])
def test_numbers_are_kept_in_their_range(kind, target):
    schema, rng = make_schema(features=1, labels=0), np.random.default_rng(0)
    ends = (target.mean - 2 * target.scale, target.mean + 3 * target.scale)
    model = kind(target_range=ends).bind(schema, Inputs.identity(1)).with_target(target)
    w, X = np.array([1.0, 0.3]), rng.normal(size=(300, 1)) * 100.0
    y = rng.uniform(*ends, 300)
    y[:2] = ends
    bound = model.loss_bounds[0]
    r = 5 * target.scale
    expected = r**2 if kind is LeastSquares else 2 * r - 1.0
    assert bound == pytest.approx(expected)
    losses = model.bounded_losses(w, X, y, bound)
    assert (losses <= bound).all()
    assert losses.max() > 0.99 * bound  # the range is used to its ends
    values = model.bounded_values(w, X, bound)
    assert values.min() >= ends[0]
    assert values.max() <= ends[1]
    c = np.clip(values - y, -1.0, 1.0)
    huber = c * (2 * (values - y) - c)
    plain = (values - y) ** 2 if kind is LeastSquares else huber
    np.testing.assert_allclose(losses, plain, rtol=1e-9, atol=1e-12)
    assert (losses <= model.losses(w, X, y) * (1 + 1e-12)).all()
    with raises(DataError, "outside-range"):
        model.bounded_losses(w, X, y + 5 * target.scale, bound)
    free = kind().bind(schema, Inputs.identity(1)).with_target(target)
    assert free.loss_bounds == ()
    np.testing.assert_array_equal(
        free.bounded_losses(w, X, y, 3.0), free.losses(w, X, y)
    )
    assert pffl.models.rebuild(model.describe(), 2).describe() == model.describe()
