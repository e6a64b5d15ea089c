"""What one row comes to hangs on no other row, to the last bit: Δ is of one person."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.models import Inputs
from tests.helpers import make_schema
from tests.inside import scores_alone


def bound(features: int, labels: int, intercept: bool = True):
    schema = make_schema(features=features, labels=labels)
    kind = pffl.LogisticRegression if labels == 2 else pffl.SoftmaxRegression
    return kind(intercept=intercept).bind(schema, Inputs.identity(features))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 300),
    p=st.integers(1, 70),
    labels=st.sampled_from([2, 3]),
    intercept=st.booleans(),
)
def test_a_row_has_the_same_score_wherever_and_beside_whomever(
    seed, n, p, labels, intercept
):
    random = np.random.default_rng(seed)
    model = bound(p, labels, intercept)
    w = random.normal(size=model.n_parameters) * 10.0 ** random.integers(-3, 4)
    X = random.normal(size=(n, p)) * 10.0 ** random.integers(-3, 4, size=p)
    whole = scores_alone(model, w, X)
    assert whole == pytest.approx(
        model.scores(w, X), rel=1e-9, abs=1e-9 * np.abs(whole).max()
    )
    some = np.sort(random.permutation(n)[: random.integers(1, n + 1)])
    more = np.concatenate([random.normal(size=(3, p)), X[some][::-1], X[:1]])
    found = scores_alone(model, w, np.asfortranarray(more))
    assert np.array_equal(found[3:-1], whole[some][::-1])
    assert np.array_equal(found[-1:], whole[:1])
    assert np.array_equal(scores_alone(model, w, X[some[:1]]), whole[some[:1]])
