from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pffl.data.numbers import decimal_of, written_number

AMOUNTS = st.decimals(-(10**9), 10**9, places=2, allow_nan=False)


@given(AMOUNTS)
def test_both_ways_of_writing_are_read(amount):
    english = f"{amount:,}"
    german = english.translate(str.maketrans(",.", ".,"))
    assert written_number(english, ".") == float(amount)
    assert written_number(german, ",") == float(amount)
    assert written_number(f"{english} %", ".") == float(amount)


@given(st.text(max_size=8))
def test_any_text_is_a_number_or_none(text):
    for decimal in (".", ","):
        found = written_number(text, decimal)
        assert found is None or any(c.isdigit() for c in text)


@pytest.mark.parametrize(
    "text",
    ["", "%", "12.05.2020", "2020-01-01", "1,23,4", "a1", "1 2", "1%2", "$-", "∞"],
)
def test_what_is_no_number_stays_none(text):
    assert written_number(text, ".") is None
    assert decimal_of([text]) is None
