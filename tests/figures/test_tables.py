"""Figures show the numbers of their tables, in HTML and on Axes."""

import re

import numpy as np
import pytest

import pffl
from pffl import figures
from tests.inside import as_html

NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def data():
    return pffl.datasets.synthetic(
        1500, silos=3, features=3, seed=0, validation_fraction=0.2
    )


@pytest.fixture(scope="module")
def solution(data):
    return pffl.solve(data, pffl.BoundedGroupLoss(0.62), seed=0)


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
        assert values(chart, "held")[name].value == row["test_loss"]
        assert values(chart, "bound")[name].value == 0.62
        promised = values(chart, "promised")[name]
        assert (promised.value, promised.to) == (row["test_loss"], row["test_upper"])
        change = values(chart, "change")[name]
        assert (change.value, change.to) == (
            row["before_train_loss"],
            row["train_loss"],
        )
    both = solution.cells[["train_loss", "test_loss"]].astype(float).max(axis=1)
    assert [row.name for row in chart.rows] == list(both.sort_values()[::-1].index)
    assert figures.group_losses(solution.as_dict()["cells"]) == chart


def test_nothing_is_drawn_that_is_not_known(solution):
    bare = solution.cells.assign(bound=None, violation=None, before_train_loss=np.nan)
    chart = figures.group_losses(bare.assign(test_loss=None, test_upper=None))
    assert set(chart.series) == {"after"}
    assert "bound" not in as_html(chart).replace("its bound", "")


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


def test_names_are_text_whoever_wrote_them():
    chart = figures.group_losses([cell(NASTY), cell('"\x1b[2J&')])
    text = as_html(chart)
    assert NASTY not in text
    assert "&lt;script&gt;" in text
    assert "&quot;\\x1b[2J&amp;" in text
    assert "<script" not in figures.group_losses([cell(NASTY)])._repr_html_()


def test_rates_have_their_intervals(solution):
    groups = solution.as_dict()["groups"]
    chart = figures.group_rates(groups)
    heads = [row.name for row in chart.rows if not row.marks]
    assert heads == ["Wrong predictions", "False positives", "False negatives"]
    kinds = ("error", "false_positive", "false_negative")
    drawn = [row for row in chart.rows if row.marks]
    wanted = [(group["group"], group[kind]) for kind in kinds for group in groups]
    assert len(drawn) == len(wanted)
    for row, (name, rate) in zip(drawn, wanted, strict=True):
        interval, dot = row.marks
        assert row.name == name
        assert dot.value == rate["value"]
        assert (interval.value, interval.to) == (rate["lower"], rate["upper"])
    assert chart.axis.low == 0


def test_convergence(solution):
    chart = figures.convergence(solution.history)
    gaps = solution.history["gap"].astype(float)
    drawn = {one.name: [y for _, y in one.points] for one in chart.lines}
    assert drawn["duality gap"] == list(gaps[gaps > 0])
    assert chart.y.log
    axes = chart.axes()
    np.testing.assert_array_equal(line(axes, "duality gap").get_ydata(), gaps[gaps > 0])
    assert axes.get_yscale() == "log"
    assert (
        figures.convergence([{"round": 1, "gap": 0.5, "worst_violation": ""}]) is None
    )


def test_bars_start_at_zero():
    text = as_html(figures.inputs([("up", 3.0), ("down", -1.0)], "words"))
    bars = re.findall(r'class="full" x="([\d.]+)%" width="([\d.]+)%"', text)
    (up, wide), (down, narrow) = [(float(a), float(b)) for a, b in bars]
    assert up == pytest.approx(down + narrow, abs=0.02)
    assert wide == pytest.approx(3 * narrow, abs=0.03)
    assert ">0</text>" in text
    assert figures.inputs([("none", 0.0)], "words").rows


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_charts_are_saved(solution, tmp_path, ending):
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    charts = (
        figures.group_losses(solution.cells),
        figures.convergence(solution.history),
        figures.group_rates(solution.as_dict()["groups"]),
        figures.inputs([("a", 1.0)], "words"),
    )
    for i, chart in enumerate(charts):
        chart.save(tmp_path / f"{i}.{ending}")
        assert (tmp_path / f"{i}.{ending}").read_bytes().startswith(start)
