from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pffl.errors import DataError, Problems
from tests.inside import encode_values, match_names
from tests.raising import raises


@given(st.lists(st.one_of(st.integers(-9, 9), st.text(max_size=3)), min_size=1))
def test_codes_lead_back_to_the_values(values):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    names, codes = encode_values(column, "column")
    assert [names[code] for code in codes] == [str(value) for value in values]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([-1, 1], ("-1", "1")),
        ([10.0, 9.0], ("9", "10")),
        ([True, False], ("False", "True")),
        (["b", "a"], ("a", "b")),
        (np.array([2.0, None, 1], dtype=object)[[0, 2]], ("1", "2")),
        ([0.5, 1.0], ("0.5", "1.0")),
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


def test_a_matrix_is_no_column():
    with raises(DataError, "wrong-shape"):
        encode_values(np.zeros((2, 2)), "silo")


def test_match_names_lists_the_unknown():
    problems = Problems("table", DataError)
    codes = match_names(pd.Series(["x", "y", "x", None]), ("y",), "sex", problems)
    assert codes.tolist() == [-1, 0, -1]
    assert problems.codes == ["missing-values", "unknown-category"]
    assert "'x' (2)" in problems.found[1]
    codes = match_names(pd.Series(["y", None]), ("y", "missing"), "sex", problems)
    assert codes.tolist() == [0, 1]
    match_names(pd.Series([], dtype=object), ("y",), "sex", problems)
    assert len(problems.found) == 2
