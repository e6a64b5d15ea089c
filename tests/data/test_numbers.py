from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside import decimal_of, written_number, written_numbers

AMOUNTS = st.decimals(-(10**9), 10**9, places=2, allow_nan=False)


@given(AMOUNTS)
def test_both_ways_of_writing_are_read(amount):
    english = f"{amount:,}"
    german = english.translate(str.maketrans(",.", ".,"))
    assert written_number(english, ".") == float(amount)
    assert written_number(german, ",") == float(amount)
    assert written_number(f"{english} %", ".") is None


@given(st.text(max_size=8))
def test_any_text_is_a_number_or_none(text):
    for decimal in (".", ","):
        found = written_number(text, decimal)
        assert found is None or any(c.isdigit() for c in text)


WRITTEN = st.one_of(
    AMOUNTS.map("{:,}".format),
    AMOUNTS.map(str),
    st.text("0123456789,.' -+%$€−\u00a0\n", max_size=9),
    st.from_regex(
        r"[$€%]? ?[-+−]?\d{1,3}([,. ']\d{3})*([,.]\d+)? ?[%€]?", fullmatch=True
    ),
)


@given(st.lists(WRITTEN, max_size=6), st.sampled_from([".", ","]))
def test_all_at_once_is_one_by_one(texts, decimal):
    one_by_one = [written_number(text, decimal) for text in texts]
    found = written_numbers(texts, decimal)
    if None in one_by_one:
        assert found is None
    else:
        assert found is not None
        assert found.tolist() == one_by_one


NONE = (
    "",
    "%",
    "12 %",
    "€ 900",
    "12.05.2020",
    "2020-01-01",
    "1,23,4",
    "a1",
    "1 2",
    "∞",
)


@pytest.mark.parametrize("text", [*NONE, "1%2", "$-"])
def test_what_is_no_number_stays_none(text):
    assert written_number(text, ".") is None
    assert decimal_of([text]) is None
