"""Columns become inputs: names, written numbers, and what scikit-learn asks."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from pffl.data import Attribute, Column, TableEncoder
from pffl.errors import DataError
from tests.data.tables import people
from tests.inside import encode_values
from tests.raising import raises


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([-1, 1], ("-1", "1")),
        ([10.0, 9.0], ("9", "10")),
        ([True, False], ("False", "True")),
        (["b", "a"], ("a", "b")),
        (np.array([2.0, None, 1], dtype=object)[[0, 2]], ("1", "2")),
        ([0.5, 1.0], ("0.5", "1")),
    ],
)
def test_names_and_order(values, names):
    assert encode_values(np.asarray(values), "column")[0] == names


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (np.array([None, np.nan, pd.NA, pd.NaT, "x", 0], dtype=object), (4, 0)),
        (np.array([1.0, np.nan]), (1, 1)),
        (np.array(["2020", "NaT"], dtype="M8[Y]"), (1, 1)),
    ],
)
def test_missing_values_of_every_kind(column, found):
    with raises(DataError, "missing-values", *found):
        encode_values(column, "column")
    with raises(DataError, "wrong-shape"):
        encode_values(np.zeros((2, 2)), "silo")


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "date", "parts": ["year"]},
        {"kind": "number", "range": [2, 1]},
        {"kind": "category", "values": ["a"], "range": [0, 1]},
        {"kind": "number", "hash": 8},
        {"kind": "text"},
        {"kind": "text", "hash": 1},
        {"kind": "category", "values": ["a"], "other": True},
        {"kind": "colour"},
        {"kind": "number", "typo": 1},
        {"kind": "number", "decimal": ","},
    ],
)
def test_a_column_that_is_none_is_refused(given):
    with pytest.raises(DataError):
        TableEncoder.from_dict({"columns": [{"name": "x", **given}]})


ENCODER = TableEncoder(
    (
        Column("age", "number", indicator=True),
        Column("job", "category", ("clerk", "nurse", "other"), other=True),
        Column("race", "category", ("a", "b")),
    ),
    (Attribute("sex", ("f", "m")),),
)


def test_the_encoder_is_a_transformer():
    frame = people().astype({"age": float})
    frame = frame[frame["race"] != "c"].reset_index(drop=True)
    frame.loc[3, "age"] = None
    X = ENCODER.inputs(frame)
    assert X.shape == (len(frame), 7)
    assert X[3].tolist()[:2] == [0.0, 1.0]
    assert X[:, 4].sum() == (frame["job"] == "smith").sum()
    again = TableEncoder.from_dict(json.loads(json.dumps(ENCODER.as_dict())))
    assert again == ENCODER
    step = ENCODER.as_transformer()
    names = ["age", "age=missing", "job=clerk", "job=nurse", "job=other"]
    assert step.get_feature_names_out().tolist() == [*names, "race=a", "race=b"]
    sent = pickle.loads(pickle.dumps(clone(step)))  # noqa: S301
    model = make_pipeline(sent, LogisticRegression()).fit(frame, frame["hired"])
    expected = LogisticRegression().fit(X, frame["hired"]).predict_proba(X)
    np.testing.assert_array_equal(model.predict_proba(frame), expected)
    array = frame[["age", "job", "race"]].to_numpy()
    np.testing.assert_array_equal(sent.transform(array), X)
    with pytest.raises(ValueError, match="Shape"):
        sent.transform(np.zeros((2, 9)))
