"""Figures for papers and notebooks: functions from a table to matplotlib Axes.

Users call them; they need the extra ``report``. Colours are Okabe and Ito's, told apart
by people who see fewer colours, and every series has its own marker as well. `save`
writes the figure of some Axes to a file::

    axes = figures.group_losses(solution.cells)
    figures.save(axes, "losses.svg")  # or .png, .pdf
"""

from __future__ import annotations

import os
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from pffl.errors import MissingExtraError
from pffl.study.sweep import front
from pffl.text import shorten

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#8A6D00",
)
MARKERS = "osD^vPX*<>hdp8H"
MOST_CELLS = 40
LONGEST = 108  # of a name
LINE = 36  # of a name; longer ones take more lines
ABOVE: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}


def new_axes(width: float = 6.0, height: float = 4.0) -> Axes:
    """Return Axes of a new figure that belongs to no window."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("report", "a figure") from error
    return Figure(figsize=(width, height), layout="constrained").subplots()


def comparison(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Error against worst group loss for every method, with standard errors."""
    axes = new_axes() if ax is None else ax
    shown = table[table["error"].notna() & table["worst_cell_loss"].notna()]
    for i, (method, row) in enumerate(shown.iterrows()):
        axes.errorbar(
            row["error"],
            row["worst_cell_loss"],
            xerr=np.nan_to_num(row["error_se"]),
            yerr=np.nan_to_num(row["worst_cell_loss_se"]),
            fmt=MARKERS[i % len(MARKERS)],
            color=COLOURS[i % len(COLOURS)],
            capsize=2,
            label=str(method),
        )
    axes.set_xlabel("test error")
    axes.set_ylabel("worst cell's mean test loss")
    axes.legend(fontsize="small", ncols=2, frameon=False)
    return axes


def save(axes: Axes, path: str | os.PathLike[str]) -> None:
    """Write the figure of some Axes to a PNG, SVG or PDF file."""
    figure = axes.get_figure(root=True)
    if figure is not None:
        figure.savefig(path, dpi=150)


def group_losses(
    cells: pd.DataFrame, *, split: str = "train", ax: Axes | None = None
) -> Axes:
    """Mean loss of each cell before and after, with its bound, the worst on top.

    Parameters
    ----------
    cells
        `Solution.cells`.
    split
        ``train`` or ``test``; test rows have a line to what unseen people have at most.
    """
    shown = cells.sort_values(f"{split}_loss").tail(MOST_CELLS)
    axes = new_axes(7.0, 1.4 + 0.3 * len(shown)) if ax is None else ax
    y = np.arange(len(shown))
    before, after = f"before_{split}_loss", f"{split}_loss"
    if split == "test" and shown["test_upper"].notna().any():
        ends = shown[["test_loss", "test_upper"]].to_numpy(dtype=float).T
        axes.hlines(y, *ends, color=COLOURS[0], lw=1, label="unseen at most", zorder=1)
    if before in shown and shown[before].notna().any():
        ends = shown[[before, after]].to_numpy(dtype=float).T
        axes.hlines(y, *ends, color="#999999", lw=2, zorder=1)
        axes.plot(ends[0], y, "o", mfc="white", color="#666666", label="before")
    axes.plot(shown[after], y, "o", color=COLOURS[0], label="after")
    bounds = shown["bound"].to_numpy(dtype=float)
    if not np.isnan(bounds).all():
        axes.plot(bounds, y, "|", color=COLOURS[1], ms=14, mew=2, label="bound")
    axes.set_yticks(y, [fill(shorten(str(n), LONGEST), LINE) for n in shown.index])
    axes.set_ylim(-0.6, len(shown) - 0.4)
    axes.set_xlabel(f"mean loss, {split} rows")
    axes.legend(fontsize="small", frameon=False, ncols=4, **ABOVE)
    return axes


def convergence(history: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Measured gap and worst violation by round, on a logarithmic scale.

    `history` is `Solution.history`; what is not positive (a violation, once all bounds
    are met) or was not measured is left out.
    """
    axes = new_axes() if ax is None else ax
    names = {"gap": "measured duality gap", "worst_violation": "worst violation"}
    for i, (column, label) in enumerate(names.items()):
        values = history[column].astype(float)
        there = values > 0
        axes.plot(
            history["round"][there],
            values[there],
            marker=MARKERS[i],
            markevery=max(1, int(there.sum()) // 20),
            color=COLOURS[i],
            label=label,
        )
    axes.set_yscale("log")
    axes.set_xlabel("round")
    axes.locator_params(axis="x", integer=True)
    axes.legend(fontsize="small", frameon=False)
    return axes


def tradeoff(
    table: pd.DataFrame,
    *,
    x: str = "error",
    y: str = "worst_cell_loss",
    ax: Axes | None = None,
) -> Axes:
    """Draw a sweep's points on test rows, each notion's Pareto front joined.

    Parameters
    ----------
    table
        `Sweep.table`. The front is chosen on validation rows where there are any, so it
        need not look like one on test rows.
    x, y
        Measures: error, worst_cell_loss, worst_group_loss, risk, dp_gap or eo_gap.
    """
    axes = new_axes() if ax is None else ax
    chosen = "validation" if f"validation_{x}" in table else "test"
    for i, (notion, rows) in enumerate(table.groupby("notion", sort=False)):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        points = rows[[f"test_{x}", f"test_{y}"]].to_numpy(dtype=float)
        best = front(rows[[f"{chosen}_{x}", f"{chosen}_{y}"]].to_numpy(dtype=float))
        axes.plot(*points.T, linestyle="none", marker=marker, color=colour, alpha=0.3)
        line = points[best]
        line = line[np.argsort(line[:, 0])]
        axes.plot(*line.T, marker=marker, color=colour, label=str(notion))
    axes.set_xlabel(f"test {x.replace('_', ' ')}")
    axes.set_ylabel(f"test {y.replace('_', ' ')}")
    axes.legend(fontsize="small", frameon=False, title=f"front chosen on {chosen} rows")
    return axes


def curves(table: pd.DataFrame, *, y: str, ax: Axes | None = None) -> Axes:
    """Error against a measure: each curve's points, its Pareto front joined."""
    axes = new_axes() if ax is None else ax
    for i, (name, rows) in enumerate(table.groupby("curve", sort=False)):
        values = rows[["error", y]].to_numpy(dtype=float)
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        axes.plot(*values.T, linestyle="none", marker=marker, color=colour, alpha=0.35)
        best = values[front(values)]
        best = best[np.argsort(best[:, 0])]
        axes.plot(*best.T, marker=marker, color=colour, label=str(name))
    axes.set_xlabel("test error")
    axes.set_ylabel(y.replace("_", " "))
    axes.legend(fontsize="small", frameon=False)
    return axes
