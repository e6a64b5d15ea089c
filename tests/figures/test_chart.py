"""Axes of charts: room for all values, round numbers, no two written alike."""

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inside import Axis, axis_of

RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False).filter(
    lambda v: v == 0 or abs(v) > 1e-9
)


@given(st.lists(NUMBERS, min_size=1, max_size=6), st.booleans(), st.floats(0, 10))
@settings(max_examples=300, deadline=None)
def test_all_values_have_room_and_no_two_ticks_are_written_alike(
    values, percent, least
):
    axis = axis_of("x", values, percent=percent, least=least)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert axis.high - axis.low >= 0.999 * least
    if min(values) >= 0:
        assert axis.low >= 0
    ticks = axis.ticks
    assert 1 <= len(ticks) <= 8
    assert len({text for _, text in ticks}) == len(ticks)
    for value, text in ticks:
        assert axis.low - 1e-6 <= value <= axis.high + 1e-6
        shown = float(text.removesuffix(" %").replace(",", "")) / (
            100 if percent else 1
        )
        assert shown == pytest.approx(value, rel=1e-4, abs=1e-9)


@given(st.lists(st.floats(1e-12, 1e9), min_size=1, max_size=6))
@settings(max_examples=300, deadline=None)
def test_a_logarithmic_axis_has_powers_of_ten_or_what_lies_between(values):
    axis = axis_of("x", values, log=True)
    assert 0 < axis.low < min(values) <= max(values) < axis.high
    ticks = axis.ticks
    assert 1 <= len(ticks) <= 12
    assert len({text for _, text in ticks}) == len(ticks)
    assert [read(text) for _, text in ticks] == pytest.approx([v for v, _ in ticks])


def read(text):
    """A number, or a small multiple of a power of ten."""
    power = re.fullmatch(r"(?:(\d)·)?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", text)
    if power is None:
        return float(text.replace(",", ""))
    return int(power[1] or 1) * 10.0 ** int(power[2].translate(RAISED))


def test_two_people_make_no_trend():
    """An axis is at least as wide as asked: 0.0005 of errors is nearly a point."""
    axis = axis_of("error", [0.1030, 0.1035], least=0.05, percent=True)
    assert axis.at(0.1035) - axis.at(0.1030) < 1.2
    assert [text for _, text in axis.ticks] == ["8 %", "9 %", "10 %", "11 %", "12 %"]


def test_places_are_percent_and_stay_inside():
    axis = Axis("x", 2.0, 4.0)
    assert [axis.at(v) for v in (2.0, 3.0, 4.0, 9.0, -9.0)] == [0, 50, 100, 100, 0]
    assert Axis("x", 1.0, 100.0, log=True).at(10.0) == pytest.approx(50.0)
    assert Axis("x", 1.0, 100.0, log=True).at(0.0) == 0.0
    assert [t for _, t in axis_of("round", [1, 3], whole=True).ticks] == ["1", "2", "3"]
    assert math.isfinite(axis_of("nothing", []).high)
