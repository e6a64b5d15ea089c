"""Charts: axes with room for all values, and the numbers of their tables."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl import figures
from tests.inside import as_html, axis_of

NASTY = "<script>alert(1)</script>"
WORDS = ["better", "worse", "same", "open"]
ENDS = {"mean": 0.1, "low": 0.05, "high": 0.2}
DIFFERENCES = [
    *({"method": word, "word": word, **ENDS} for word in WORDS),
    {"method": "wide", "word": "open", **ENDS, "low": -float("inf")},
]
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


# Groups and rounds


@pytest.fixture(scope="module")
def data():
    return pffl.datasets.synthetic(
        1500, silos=3, features=3, random_state=0, validation_fraction=0.2
    )


@pytest.fixture(scope="module")
def solution(data):
    return pffl.solve(data, pffl.BoundedGroupLoss(0.62), random_state=0)


def values(chart, series):
    """What is drawn of a series, by row."""
    return {
        row.name: mark
        for row in chart.rows
        for mark in row.marks
        if mark.series == series
    }


def line(axes, label):
    (found,) = [one for one in axes.get_lines() if one.get_label() == label]
    return found


def cell(name, **more):
    plain = {"bound": 0.6, "violation": 0.0, "train_loss": 0.6, "test_loss": 0.58}
    return {"cell": name, **plain, "test_upper": 0.7, **more}


def test_losses_of_cells_are_those_of_the_table(solution):
    chart = figures.group_losses(solution.cells)
    for name, row in solution.cells.iterrows():
        assert values(chart, "after")[name].value == row["train_loss"]
        assert values(chart, "before")[name].value == row["before_train_loss"]
        assert values(chart, "test")[name].value == row["test_loss"]
        assert values(chart, "bound")[name].value == 0.62
        upper = values(chart, "upper")[name]
        assert (upper.value, upper.to) == (row["test_loss"], row["test_upper"])
        change = values(chart, "change")[name]
        assert (change.value, change.to) == (
            row["before_train_loss"],
            row["train_loss"],
        )
    losses = solution.cells[["before_train_loss", "train_loss", "test_loss"]]
    worst = losses.astype(float).max(axis=1)
    assert [row.name for row in chart.rows] == list(worst.sort_values()[::-1].index)
    assert figures.group_losses(solution.as_dict()["cells"]) == chart
    assert figures.group_losses(solution) == chart


@pytest.mark.parametrize("count", [1, 200])
def test_fault_78_any_number_of_cells_is_drawn(count):
    long = "long " * 20
    cells = [cell(f"group {i} {long}", train_loss=i / 100) for i in range(count)]
    chart = figures.group_losses(cells, most=40)
    assert len(chart.rows) == min(count, 40)
    assert chart.left == count - len(chart.rows)
    text = as_html(chart)
    assert len(text) < 90_000
    assert f"group {count - 1} {long}".strip() in text  # whole
    assert (f"and {count - 40} more" in text) == (count > 40)


def test_a_huge_upper_bound_does_not_press_the_rest_together():
    chart = figures.group_losses([cell("a"), cell("b", test_upper=40.0)])
    assert 0.5 < chart.axis.low < 0.58
    assert 0.7 < chart.axis.high < 1.0
    text = as_html(chart)
    assert "b, certified at most: 40<" in text
    assert "an arrow: beyond the axis" in text
    places = [float(n) for n in re.findall(r'x[12]?="(-?[\d.]+)%"', text)]
    assert min(places) >= 0
    assert max(places) <= 100
    plain = figures.group_losses([cell("a")])
    assert plain.axis.high < chart.axis.high
    assert "an arrow" not in as_html(plain)


def test_rates_have_their_intervals(solution):
    groups = solution.as_dict()["groups"]
    chart = figures.group_rates(solution)
    assert figures.group_rates(groups) == chart
    heads = [row.name for row in chart.rows if not row.marks]
    assert heads == ["Errors", "False positives", "False negatives"]
    kinds = ("error", "false_positive", "false_negative")
    drawn = [row for row in chart.rows if row.marks]
    wanted = [(group["group"], group[kind]) for kind in kinds for group in groups]
    assert len(drawn) == len(wanted)
    for row, (name, rate) in zip(drawn, wanted, strict=True):
        interval, dot, before = row.marks
        assert row.name == name
        assert (dot.value, before.value) == (rate["value"], rate["unconstrained"])
        assert (interval.value, interval.to) == (rate["lower"], rate["upper"])
    assert chart.axis.low == 0


def test_convergence(solution):
    chart = figures.convergence(solution)
    gaps = solution.history["gap"].astype(float)
    name, end = (
        f"duality gap {when}, at most" for when in ("while training", "at the end")
    )
    drawn = {one.name: [y for _, y in one.points] for one in chart.lines}
    assert (drawn[name], drawn[end]) == (list(gaps[gaps > 0]), [solution.gap])
    assert chart.y.log
    axes = chart.axes()
    np.testing.assert_array_equal(line(axes, name).get_ydata(), gaps[gaps > 0])
    assert axes.get_yscale() == "log"
    assert (
        figures.convergence([{"round": 1, "gap": 0.5, "worst_violation": ""}]) is None
    )


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_charts_are_saved(solution, tmp_path, ending):
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    charts = (
        figures.group_losses(solution.cells),
        figures.convergence(solution.history),
        figures.group_rates(solution.as_dict()["groups"]),
        figures.fronts(a_front(["exact", NASTY])),
        figures.differences(DIFFERENCES, "words"),
    )
    for i, chart in enumerate(charts):
        chart.save(tmp_path / f"{i}.{ending}")
        assert (tmp_path / f"{i}.{ending}").read_bytes().startswith(start)


# Comparisons


def a_front(curves):
    return [
        {"curve": name, "error": 0.2 + 0.01 * i, "worst_cell_loss": 0.7 - 0.05 * i}
        for name in curves
        for i in range(4)
    ]


def test_fronts():
    chart = figures.fronts(a_front(["exact", NASTY]))
    assert [line.name for line in chart.lines] == ["exact", NASTY]
    assert chart.lines[0].points[1] == pytest.approx((0.21, 0.65))
    assert chart.y.low < 0.55 < 0.7 < chart.y.high
    assert NASTY not in as_html(chart)
    drawn = line(chart.axes(), "exact").get_xydata()
    np.testing.assert_array_equal(drawn, chart.lines[0].points)
    (alone,) = figures.fronts(a_front(["a"])[:1] * 3).lines  # a line without length
    assert (alone.joined, len(alone.points)) == (False, 1)


def test_a_word_decides_what_is_hollow():
    chart = figures.differences(DIFFERENCES, "words")
    assert set(values(chart, "open")) == {"same", "open", "wide"}
    assert set(values(chart, "shown")) == {"better", "worse"}
    assert set(values(chart, "interval")) == set(WORDS)
    assert [row.note for row in chart.rows] == [*WORDS, "open"]
