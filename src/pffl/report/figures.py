"""Figures for papers and notebooks: functions from a table to matplotlib Axes.

They need the extra ``report``. Colours are Okabe and Ito's, told apart by people who
see fewer colours, and every series has its own marker as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pffl.errors import MissingExtraError
from pffl.pareto import front

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


def save(axes: Axes, path: str) -> None:
    """Write the figure of some Axes to a PNG, SVG or PDF file."""
    figure = axes.get_figure(root=True)
    if figure is not None:
        figure.savefig(path, dpi=150)


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
