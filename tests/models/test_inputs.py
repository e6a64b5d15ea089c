"""Scaling from sums, without a look at pooled rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.models import Inputs
from tests.helpers import make_schema


def of_rows(X):
    X = np.asarray(X, dtype=np.float64)
    return Inputs.from_sums(len(X), X.sum(axis=0), (X**2).sum(axis=0))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    centre=st.floats(-1e3, 1e3),
    spread=st.floats(1e-2, 1e4),
)
def test_scaling_is_by_mean_and_standard_deviation(seed, centre, spread):
    X = centre + spread * np.random.default_rng(seed).normal(size=(50, 2))
    inputs = of_rows(X)
    np.testing.assert_allclose(inputs.mean, X.mean(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(inputs.scale, X.std(axis=0), rtol=1e-4)
    scaled = inputs.apply(X)
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(axis=0), 1.0, rtol=1e-4)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1.0, -7.3, 1e9, 1e-9])
@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_a_constant_column_becomes_zero(constant, rows):
    X = np.full((rows, 1), constant)
    inputs = of_rows(X)
    assert inputs.scale == pytest.approx([1.0])
    np.testing.assert_allclose(inputs.apply(X), 0.0, atol=1e-12 * max(1, abs(constant)))


def test_one_row_is_constant_in_every_column():
    inputs = of_rows([[3.0, -2.0]])
    np.testing.assert_array_equal(inputs.apply(np.array([[3.0, -2.0]])), [[0.0, 0.0]])


def test_apply_leaves_the_raw_rows_alone_and_makes_float64():
    X = np.array([[1.0, 2.0], [3.0, 8.0]], dtype=np.float32)
    kept = X.copy()
    scaled = of_rows(X).apply(X)
    assert scaled.dtype == np.float64
    np.testing.assert_array_equal(X, kept)
    np.testing.assert_allclose(scaled, [[-1, -1], [1, 1]], rtol=1e-12)


def test_scaling_is_left_out_on_request():
    inputs = Inputs(np.ones(3), np.full(3, 5.0))
    kept = pffl.LogisticRegression().bind(make_schema(), inputs)
    raw = pffl.LogisticRegression(standardize=False).bind(make_schema(), inputs)
    X = np.array([[2.0, 3.0, 4.0]])
    np.testing.assert_allclose(kept.inputs.apply(X), [[0.2, 0.4, 0.6]])
    np.testing.assert_array_equal(raw.inputs.apply(X), X)
