"""Charts of many models: fronts with bands, ranks, differences that were decided."""

import re

import pandas as pd
import pytest

from pffl import figures
from tests.inside import as_html

NASTY = "<script>alert(1)</script>"


def marks(chart, series):
    return {
        row.name: mark
        for row in chart.rows
        for mark in row.marks
        if mark.series == series
    }


def a_front(curves):
    return [
        {
            "curve": name,
            "error": 0.2 + 0.01 * i,
            "worst_cell_loss": 0.7 - 0.05 * i,
            "worst_cell_loss_low": 0.68 - 0.05 * i,
            "worst_cell_loss_high": 0.73 - 0.05 * i,
        }
        for name in curves
        for i in range(4)
    ]


def test_a_front_has_its_band_and_room_for_it():
    chart = figures.fronts(a_front(["exact", NASTY]))
    assert [line.name for line in chart.lines] == ["exact", NASTY]
    (first, _) = chart.lines
    assert first.points[1] == pytest.approx((0.21, 0.65))
    assert first.band[1] == pytest.approx((0.63, 0.68))
    assert chart.y.low < 0.53 < 0.73 < chart.y.high
    text = as_html(chart)
    assert NASTY not in text
    shapes = re.findall(r'class="band" points="([^"]+)"', text)
    assert len(shapes) == 2
    corners = [tuple(map(float, pair.split(","))) for pair in shapes[0].split()]
    assert len(corners) == 8  # there along the upper ends, back along the lower ones
    wanted = [100 - chart.y.at(0.73 - 0.05 * i) for i in range(4)]
    wanted += [100 - chart.y.at(0.68 - 0.05 * i) for i in (3, 2, 1, 0)]
    assert [b for _, b in corners] == pytest.approx(wanted, abs=0.006)
    (drawn, _) = chart.axes().collections
    heights = drawn.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((0.53, 0.73))


def test_a_front_without_seeds_has_no_band():
    rows = [{**row, "worst_cell_loss_low": None} for row in a_front(["a"])]
    chart = figures.fronts(pd.DataFrame(rows))
    assert chart.lines[0].band == []
    assert 'class="band"' not in as_html(chart)


def test_a_front_of_one_point_is_drawn_with_its_interval():
    for many in (1, 3):  # at every allowance the same
        chart = figures.fronts(a_front(["a"])[:1] * many)
        (line,) = chart.lines
        assert line.kind == "marks"
        assert line.spans == [(None, None, 0.68, 0.73)]


def test_a_word_decides_what_is_hollow():
    ends = {"mean": 0.1, "low": 0.05, "high": 0.2}
    words = ["better", "worse", "same", "open"]
    lines = [{"method": word, "word": word, **ends} for word in words]
    lines.append({"method": "wide", "word": "open", **ends, "low": -float("inf")})
    chart = figures.differences(lines, "words")
    assert set(marks(chart, "open")) == {"same", "open", "wide"}
    assert set(marks(chart, "shown")) == {"better", "worse"}
    assert set(marks(chart, "interval")) == set(words)
    assert [row.note for row in chart.rows] == [*words, "open"]
