"""Charts on matplotlib's Axes: for papers and documents."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

from pffl.errors import MissingExtraError
from pffl.figures import COLOURS, Axis, Chart, DotPlot, Line, Plot
from pffl.text import shorten, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_NAME, NAME_WIDTH = 108, 36  # characters of a name, and of a line of it
LEGEND_WIDTH = 40  # characters of a line of the legend
MARKERS = "osD^vPX*"
LANE = 0.17  # of the height of a row
HIDDEN = "_"  # a label that no legend shows
DASHES: tuple[Any, ...] = (
    *("-", "--", ":", "-.", (0, (1, 1)), (0, (5, 1)), (0, (3, 1, 1, 1)), "-"),
)
SHAPES: dict[str, dict[str, Any]] = {
    "dot": {"marker": "o"},
    "ring": {"marker": "o", "markerfacecolor": "none", "markersize": 9},
    "diamond": {"marker": "D", "markerfacecolor": "none"},
    "tick": {"marker": "|", "markersize": 20, "markeredgewidth": 2.5},
}


def draw(chart: Chart, ax: Axes | None) -> Axes:
    """Draw a chart, and return the Axes: new ones, of no window, if none are given."""
    size = (6.0, 4.0)
    if isinstance(chart, DotPlot):
        size = (7.0, 1.4 + (0.42 if chart.lanes else 0.3) * len(chart.rows))
    try:
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
    except ImportError as error:
        raise MissingExtraError("report", "a figure") from error
    if ax is None:
        ax = Figure(figsize=size, layout="constrained").subplots()
    if isinstance(chart, DotPlot):
        _rows(chart, ax)
    elif isinstance(chart, Plot):
        _plot(chart, ax)
    handles, labels = ax.get_legend_handles_labels()
    if labels:
        legend = ax.legend(
            handles,
            [fill(label, LEGEND_WIDTH) for label in labels],
            fontsize="small",
            frameon=False,
            ncols=2,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
        )
        for handle in legend.legend_handles:
            if isinstance(handle, Line2D):  # a tick is as high as a row elsewhere
                handle.set_markersize(min(handle.get_markersize(), 9.0))
    return ax


def _rows(chart: DotPlot, axes: Axes) -> None:
    heights = range(len(chart.rows) - 1, -1, -1)
    for key, series in chart.series.items():
        found = [
            (y, mark)
            for y, row in zip(heights, chart.rows, strict=True)
            for mark in row.marks
            if mark.series == key
        ]
        if not found:
            continue
        colour, label = COLOURS[series.colour][0], series.title or HIDDEN
        lane = LANE * series.lane * chart.lanes
        at, values = [y - lane for y, _ in found], [mark.value for _, mark in found]
        look: dict[str, Any] = {"color": colour, "label": label}
        if series.shape in SHAPES:
            axes.plot(values, at, linestyle="none", **look, **SHAPES[series.shape])
            continue
        ends = [chart.axis.high if m.to is None else m.to for _, m in found]
        wide = 2.0 if series.shape == "arrow" else 1.2
        axes.hlines(at, values, ends, lw=wide, **look)
        over = [y for y, end in zip(at, ends, strict=True) if end > chart.axis.high]
        right = [chart.axis.high] * len(over)
        axes.plot(right, over, ">", color=colour, clip_on=False, label=HIDDEN)
        if series.shape == "range":
            axes.plot([*values, *ends], [*at, *at], "|", color=colour, label=HIDDEN)
    names = [fill(shorten(visible(r.name), MAX_NAME), NAME_WIDTH) for r in chart.rows]
    axes.set_yticks(list(heights), names)
    for text, row in zip(axes.get_yticklabels(), chart.rows, strict=True):
        text.set_fontweight("normal" if row.marks else "bold")
    where = axes.get_yaxis_transform()
    for y, row in zip(heights, chart.rows, strict=True):
        axes.text(1.01, y, row.note, va="center", fontsize="small", transform=where)
    axes.set_ylim(-0.6, len(chart.rows) - 0.4)
    _along(axes, "x", chart.axis)
    axes.tick_params(axis="y", length=0)
    if chart.axis.low < 0.0:
        axes.axvline(0.0, color="#888", linewidth=1.0, zorder=0.5)
    axes.spines["left"].set_visible(False)


def _plot(chart: Plot, axes: Axes) -> None:
    for line in chart.lines:
        _line(line, axes)
    if chart.rule is not None:
        height, words = chart.rule
        axes.axhline(height, color=COLOURS["bound"][0], linestyle="--", label=words)
    _along(axes, "x", chart.x)
    _along(axes, "y", chart.y)


def _line(line: Line, axes: Axes) -> None:
    colour = COLOURS[line.colour][0]
    x, y = [a for a, _ in line.points], [b for _, b in line.points]
    look: dict[str, Any] = {"color": colour, "label": line.name or HIDDEN}
    kind: Any = {"linestyle": DASHES[line.dash]}
    if not line.joined:
        kind = {"linestyle": "none", "marker": MARKERS[line.dash], "clip_on": False}
    axes.plot(x, y, **look, **kind)


def _along(axes: Axes, name: str, axis: Axis) -> None:
    """Put an axis of a chart on Axes: its ends, its numbers, its title."""
    if axis.log:
        axes.set(**{f"{name}scale": "log"})
    ticks = axis.ticks
    axes.set(
        **{
            f"{name}label": axis.title,
            f"{name}lim": (axis.low, axis.high),
            f"{name}ticks": [v for v, _ in ticks],
            f"{name}ticklabels": [t for _, t in ticks],
        }
    )
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="both" if name == "y" else "x", color="#ddd", linewidth=0.8)
