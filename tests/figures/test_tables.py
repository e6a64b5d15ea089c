"""Figures show the numbers of their tables, in HTML and on Axes."""

import itertools
import re
from collections import Counter

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl import figures
from pffl.figures.html import as_html
from pffl.study.sweep import full_grid, sweep

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


def test_on_axes_it_is_the_same(solution):
    chart = figures.group_losses(solution.cells)
    axes = chart.axes()
    shown = [text.get_text() for text in axes.get_yticklabels()]
    assert shown == [row.name for row in chart.rows]
    after = solution.cells["train_loss"].reindex(shown)
    np.testing.assert_array_equal(line(axes, "training rows").get_xdata(), after)
    assert set(line(axes, "bound").get_xdata()) == {0.62}
    assert axes.get_xlim() == (chart.axis.low, chart.axis.high)
    assert [t.get_text() for t in axes.get_xticklabels()] == [
        text for _, text in chart.axis.ticks
    ]


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
    assert "b, promised at most: 40<" in text
    assert "an arrow: beyond the axis" in text
    places = [float(n) for n in re.findall(r'x[12]?="(-?[\d.]+)%"', text)]
    assert min(places) >= 0
    assert max(places) <= 100
    plain = figures.group_losses([cell("a")])
    assert plain.axis.high < chart.axis.high
    assert "an arrow" not in as_html(plain)


def test_a_difference_of_nothing_is_drawn_as_nothing():
    chart = figures.group_losses(
        [cell("a", train_loss=0.6, before_train_loss=0.6003, test_upper=None)]
    )
    assert chart.axis.at(0.6003) - chart.axis.at(0.6) < 1.0


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


def test_sides_of_several_runs(solution):
    cells = solution.as_dict()["cells"]
    other = [{**one, "train_loss": one["train_loss"] + 0.1} for one in cells]
    chart = figures.side_by_side([("one", cells), ("two", other)])
    names = [one["cell"] for one in cells]
    assert [row.name for row in chart.rows] == [
        text for name in names for text in (name, "one", "two")
    ]
    marks = {m.series: m.value for m in chart.rows[2].marks}
    assert marks["after"] == other[0]["train_loss"]


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


def test_lines_over_rounds_are_thinned_and_told_apart():
    names = [f"cell {i}" for i in range(30)]
    rows = [
        {"round": t, **{f"loss: {name}": str(i + t) for i, name in enumerate(names)}}
        for t in range(5_000)
    ]
    chart = figures.by_round(rows, "loss", "words")
    assert [one.name for one in chart.lines] == names[-8:]
    assert len({one.colour for one in chart.lines}) == 8
    assert len(chart.lines[0].points) < 900
    assert chart.lines[0].points[-1] == (4999.0, 22 + 4999.0)
    assert figures.by_round([], "loss", "words") is None


def test_the_front_is_that_of_validation_with_intervals(data):
    found = sweep(data, full_grid(["bgl"], [0.5, 0.6, 0.65], [0.5, 10.0]))
    chart = figures.tradeoff(found.table)
    crowd, front = chart.lines
    assert len(crowd.points) == 6
    best = found.front(notion="bgl")
    assert sorted(front.points) == sorted(
        zip(best["test_error"], best["test_worst_cell_loss"], strict=True)
    )
    ends = {
        (row["test_error_low"], row["test_error_high"])
        for row in best.to_dict("records")
    }
    assert {span[:2] for span in front.spans} == ends
    assert all(chart.x.low <= e <= chart.x.high for pair in ends for e in pair)
    assert "validation" in front.name
    other = figures.tradeoff(found.table, y="dp_gap")
    assert other.y.title == "dp gap"
    assert all(span[2:] == (None, None) for span in other.lines[1].spans)


def test_ten_thousand_points_are_counted_by_where_they_are():
    rng = np.random.default_rng(0)
    rows = [
        {"bound": 0.5, "test_error": a, "test_worst_cell_loss": b}
        for a, b in rng.beta(2, 9, size=(10_000, 2))
    ]
    chart = figures.tradeoff(rows)
    text = as_html(chart)
    assert len(text) < 100_000
    places = Counter(
        (int(chart.x.at(a)), int((100 - chart.y.at(b)) / 2.5))
        for a, b in chart.lines[0].points
    )
    drawn = {
        float(dark): {(int(x), int(float(y) / 2.5)) for x, y in at}
        for dark, at in (
            (dark, re.findall(r"M([\d.]+) ([\d.]+)h", path))
            for dark, path in re.findall(
                r'class="heap" [^>]*stroke-opacity="([\d.]+)" d="([^"]+)"', text
            )
        )
    }
    assert len(drawn) == 4
    # Every point is drawn, and where there are more it is darker.
    assert set.union(*drawn.values()) == set(places)
    assert sum(map(len, drawn.values())) == len(places)
    for (_, lighter), (_, darker) in itertools.pairwise(sorted(drawn.items())):
        assert max(places[at] for at in lighter) < min(places[at] for at in darker)


def test_few_points_are_a_mark_each():
    rows = [
        {"bound": 0.5, "test_error": i / 100, "test_worst_cell_loss": 0.5}
        for i in range(90)
    ]
    text = as_html(figures.tradeoff(rows))
    assert text.count('class="crowd"') == 90
    assert "heap" not in text


def test_a_difference_that_is_not_shown_is_hollow():
    table = pd.DataFrame(
        [
            {"method": "better", "mean": -0.1, "low": -0.15, "high": -0.05},
            {"method": "same", "mean": 0.01, "low": -0.02, "high": 0.04},
            {"method": "one seed", "mean": 0.2, "low": np.nan, "high": np.nan},
        ]
    )
    chart = figures.differences(table, "words")
    assert set(values(chart, "shown")) == {"better"}
    assert set(values(chart, "open")) == {"same", "one seed"}
    assert set(values(chart, "interval")) == {"better", "same"}
    assert chart.axis.low < 0 < chart.axis.high


def test_curves_join_what_validation_chose_and_have_bars():
    rows = [
        # On test rows the first beats the second; on validation rows it is beaten.
        {"error": 0.2, "risk": 0.5, "validation_error": 0.4, "validation_risk": 0.7},
        {"error": 0.3, "risk": 0.6, "validation_error": 0.3, "validation_risk": 0.6},
        {"error": 0.4, "risk": 0.4, "validation_error": 0.5, "validation_risk": 0.4},
    ]
    more = {"curve": "PFFL", "bound": 0.6, "error_se": 0.01, "risk_se": 0.02}
    chart = figures.curves([{**row, **more} for row in rows], y="risk")
    marks, joined = chart.lines
    assert joined.points == [(0.3, 0.6), (0.4, 0.4)]
    assert marks.spans[0] == pytest.approx((0.18, 0.22, 0.46, 0.54))
    assert marks.colour == joined.colour


def test_sites():
    rows = [
        {"cell": "f", "lowest": 0.5, "highest": 0.7, "train at most": 0.91},
        {"cell": "m", "lowest": None, "highest": None, "train at most": 0.8},
    ]
    chart = figures.site_losses(rows)
    assert values(chart, "sites")["f"].to == 0.7
    assert {name: m.value for name, m in values(chart, "most").items()} == {
        "f": 0.91,
        "m": 0.8,
    }


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
