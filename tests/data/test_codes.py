from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pffl.data.codes import encode_values, is_missing, match_names
from pffl.errors import DataError


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


def test_missing_values_of_every_kind():
    column = np.array([None, np.nan, pd.NA, pd.NaT, "x", 0], dtype=object)
    assert is_missing(column).tolist() == [True] * 4 + [False] * 2
    assert is_missing(np.array([1.0, np.nan])).tolist() == [False, True]
    assert is_missing(np.array(["NaT", "2020"], dtype="M8[Y]")).tolist() == [
        True,
        False,
    ]
    with pytest.raises(DataError, match=r"4 missing values \(first at row 0\)"):
        encode_values(column, "column")


def test_a_matrix_is_no_column():
    with pytest.raises(DataError, match="one column"):
        encode_values(np.zeros((2, 2)), "silo")


def test_match_names_lists_the_unknown():
    codes, problem = match_names(("x", "y"), np.array([0, 1, 0]), ("y",), "sex")
    assert codes.tolist() == [-1, 0, -1]
    assert problem == "sex: unseen values 'x' (2); known are 'y'"
    assert match_names((), np.array([], dtype=np.int64), ("y",), "sex")[1] is None
