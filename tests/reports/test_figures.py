"""Figures show the numbers of their tables."""

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.reports import figures
from pffl.study.sweep import full_grid, sweep

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def data():
    return pffl.datasets.synthetic(
        1500, silos=3, features=3, seed=0, validation_fraction=0.2
    )


@pytest.fixture(scope="module")
def solution(data):
    return pffl.solve(data, pffl.BoundedGroupLoss(0.62), seed=0)


def line(axes, label):
    (found,) = [line for line in axes.get_lines() if line.get_label() == label]
    return found


@pytest.mark.parametrize("split", ["train", "test"])
def test_group_losses(solution, split):
    axes = figures.group_losses(solution.cells, split=split)
    ordered = solution.cells.sort_values(f"{split}_loss")
    assert [t.get_text() for t in axes.get_yticklabels()] == list(ordered.index)
    after = line(axes, "after").get_xdata()
    np.testing.assert_array_equal(after, ordered[f"{split}_loss"])
    before = line(axes, "before").get_xdata()
    np.testing.assert_array_equal(before, ordered[f"before_{split}_loss"])
    assert set(line(axes, "bound").get_xdata()) == {0.62}
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert ("unseen at most" in labels) == (split == "test")


def test_group_losses_of_many_cells_without_a_baseline(solution):
    cells = pd.concat([solution.cells] * 60)
    cells = cells.assign(before_train_loss=np.nan, train_loss=np.arange(len(cells)))
    axes = figures.group_losses(cells)
    assert len(line(axes, "after").get_xdata()) == figures.MOST_CELLS
    assert line(axes, "after").get_xdata().max() == len(cells) - 1
    assert "before" not in [text.get_text() for text in axes.get_legend().get_texts()]


def test_a_long_name_takes_more_lines_and_no_bound_is_drawn_where_there_is_none(
    solution,
):
    name = "Female × Asian-Pac-Islander × never married × income above average"
    cells = solution.cells.rename(index={solution.cells.index[0]: name})
    axes = figures.group_losses(cells.assign(bound=None))
    shown = [text.get_text() for text in axes.get_yticklabels()]
    (own,) = [text for text in shown if "\n" in text]
    assert own.replace("\n", " ") == name
    assert max(map(len, own.split("\n"))) <= figures.LINE
    assert "bound" not in [text.get_text() for text in axes.get_legend().get_texts()]


def test_convergence(solution):
    history = solution.history
    axes = figures.convergence(history)
    gaps = history["gap"].astype(float)
    drawn = line(axes, "measured duality gap")
    np.testing.assert_array_equal(drawn.get_ydata(), gaps[gaps > 0])
    assert (line(axes, "worst violation").get_ydata() > 0).all()
    assert axes.get_yscale() == "log"


def test_tradeoff_joins_the_front_that_validation_chose(data):
    found = sweep(data, full_grid(["bgl", "cbgl"], [0.5, 0.6, 0.65], [0.5, 10.0]))
    axes = figures.tradeoff(found.table)
    for notion in ("bgl", "cbgl"):
        front = found.front(notion=notion).sort_values("test_error")
        drawn = line(axes, notion)
        np.testing.assert_array_equal(drawn.get_xdata(), front["test_error"])
        np.testing.assert_array_equal(drawn.get_ydata(), front["test_worst_cell_loss"])
    assert "validation" in axes.get_legend().get_title().get_text()
    axes = figures.tradeoff(found.table[found.table["notion"] == "bgl"], y="dp_gap")
    assert axes.get_ylabel() == "test dp gap"


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_figures_are_saved(solution, tmp_path, ending):
    path = tmp_path / f"losses.{ending}"
    figures.save(figures.group_losses(solution.cells), path)
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert path.read_bytes().startswith(start)
