"""Linear models against finite differences, scipy and each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit, logsumexp

import pffl
from pffl.errors import DataError, UsageError
from pffl.models import LINEAR_MODELS, Inputs
from tests.helpers import make_schema
from tests.oracles import MODELS
from tests.raising import raises

KINDS = list(MODELS)


def bound_model(kind, *, features=3, **options):
    cls, labels = MODELS[kind]
    schema = make_schema(features=features, labels=labels)
    return cls(**options).bind(schema, Inputs.identity(features))


def draw(kind, seed, *, n=12, features=3, scale=1.0):
    rng = np.random.default_rng(seed)
    labels = MODELS[kind][1]
    X = rng.normal(size=(n, features))
    y = rng.integers(labels, size=n).astype(float) if labels else rng.normal(size=n)
    return rng, X, y, scale * rng.normal(size=features + 1), rng.uniform(0, 2, n)


def parameters(model, rng, scale=1.0):
    return scale * rng.normal(size=model.n_parameters)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_their_definition(kind, intercept):
    model = bound_model(kind, intercept=intercept)
    rng, X, y, *_ = draw(kind, 1)
    w = parameters(model, rng)
    rows = np.column_stack([X, np.ones(len(X))]) if intercept else X
    outputs = max(1, MODELS[kind][1]) if kind == "softmax" else 1
    assert model.n_parameters == outputs * rows.shape[1]
    expected = []
    for row, label in zip(rows, y, strict=True):
        z = w.reshape(outputs, -1) @ row
        if kind == "softmax":
            expected.append(logsumexp(z) - z[int(label)])
        elif kind == "logistic":
            p = expit(z[0])
            expected.append(-np.log(p if label else 1 - p))
        else:
            expected.append((z[0] - label) ** 2)
    np.testing.assert_allclose(model.losses(w, X, y), expected, rtol=1e-12)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_agrees_with_differences(kind, intercept):
    model = bound_model(kind, intercept=intercept)
    rng, X, y, _, weights = draw(kind, 2)
    w = parameters(model, rng)
    losses, gradient = model.losses_and_gradient(w, X, y, weights)
    np.testing.assert_allclose(losses, model.losses(w, X, y), rtol=1e-13)
    numeric = approx_fprime(w, lambda v: weights @ model.losses(v, X, y), 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_hessian_agrees_with_differences_of_the_gradient(kind, intercept):
    model = bound_model(kind, intercept=intercept)
    rng, X, y, _, weights = draw(kind, 3)
    w = parameters(model, rng)
    hessian = model.hessian(w, X, y, weights)
    step = 1e-5
    numeric = np.array(
        [
            model.losses_and_gradient(w + step * e, X, y, weights)[1]
            - model.losses_and_gradient(w - step * e, X, y, weights)[1]
            for e in np.eye(len(w))
        ]
    ) / (2 * step)
    np.testing.assert_allclose(hessian, numeric, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-14)


@pytest.mark.parametrize("scale", [0.0, 1.0, 20.0, 1e4])
@pytest.mark.parametrize("kind", KINDS)
def test_no_hessian_is_above_the_limit_of_curvatures(kind, scale):
    model = bound_model(kind)
    rng, X, y, _, weights = draw(kind, 4)
    rows = np.column_stack([X, np.ones(len(X))])
    gram = model.score_limits[1] * (rows.T * weights) @ rows
    most = np.kron(np.eye(model.n_outputs), gram)
    for _ in range(10):
        hessian = model.hessian(parameters(model, rng, scale), X, y, weights)
        slack = np.linalg.eigvalsh(most - hessian)
        assert slack[0] >= -1e-12 * np.abs(most).max()
        assert np.linalg.eigvalsh(hessian)[0] >= -1e-10, "every loss is convex"


@pytest.mark.parametrize(
    ("kind", "labels", "advice"),
    [
        ("logistic", 3, "softmax"),
        ("logistic", 0, "least-squares"),
        ("softmax", 0, "least-squares"),
        ("least-squares", 2, "classes"),
        ("huber", 2, "classes"),
    ],
)
def test_labels_that_a_model_cannot_have_are_refused(kind, labels, advice):
    with raises(DataError, "wrong-model", advice):
        LINEAR_MODELS[kind]().bind(make_schema(labels=labels), Inputs.identity(3))


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *[("logistic", "l2", bad) for bad in (-1.0, np.nan, np.inf, "little")],
        *[("huber", "delta", bad) for bad in (0.0, -1.0, np.nan, np.inf, "wide")],
        *[
            ("least-squares", "target_range", bad)
            for bad in ((1.0, 1.0), (2.0, 1.0), (0.0,), "ab", (0.0, np.inf))
        ],
    ],
)
def test_wrong_values_are_refused_by_name(kind, name, value):
    with raises(UsageError, "wrong-value", name):
        LINEAR_MODELS[kind](**{name: value})


@pytest.mark.parametrize("kind", LINEAR_MODELS)
def test_a_model_starts_at_zero_and_is_rebuilt_from_its_description(kind):
    given = {"l2": 0.5, "intercept": False, "standardize": False}
    given |= {"delta": 0.25} if kind == "huber" else {}
    labels = {"softmax": 3, "logistic": 2}.get(kind, 0)
    model = LINEAR_MODELS[kind](**given)
    bound = model.bind(make_schema(labels=labels), Inputs.identity(3))
    np.testing.assert_array_equal(bound.start(3), np.zeros(bound.n_parameters))
    described = bound.describe()
    assert {"kind": kind, **given}.items() <= described.items()
    assert pffl.models.rebuild(described, bound.n_parameters).describe() == described
