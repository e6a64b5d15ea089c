"""Charts on matplotlib's Axes: for papers, documents, and whoever wants Axes."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

from pffl.errors import MissingExtraError
from pffl.figures.chart import COLOURS, Axis, Chart, Line, Plot, Rows
from pffl.text import shorten, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST, WIDE = 108, 36  # of a name, and of a line of it
MARKERS = "osD^vPX*"
LANE = 0.17  # of the height of a row
HIDDEN = "_"  # a label that no legend shows
DASHES: tuple[Any, ...] = (
    "-",
    "--",
    ":",
    "-.",
    (0, (1, 1)),
    (0, (5, 1)),
    (0, (3, 1, 1, 1)),
    "-",
)
SHAPES: dict[str, dict[str, Any]] = {
    "dot": {"marker": "o"},
    "ring": {"marker": "o", "markerfacecolor": "none", "markersize": 9},
    "diamond": {"marker": "D", "markerfacecolor": "none"},
    "tick": {"marker": "|", "markersize": 20, "markeredgewidth": 2.5},
}
KEY: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}


def new_axes(width: float = 6.0, height: float = 4.0) -> Axes:
    """Return Axes of a new figure that belongs to no window."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("report", "a figure") from error
    return Figure(figsize=(width, height), layout="constrained").subplots()


def draw(chart: Chart, ax: Axes | None) -> Axes:
    """Draw a chart, and return the Axes."""
    if isinstance(chart, Rows):
        high = 0.42 if chart.lanes else 0.3
        axes = new_axes(7.0, 1.4 + high * len(chart.rows)) if ax is None else ax
        _rows(chart, axes)
        return axes
    axes = new_axes() if ax is None else ax
    if isinstance(chart, Plot):
        _plot(chart, axes)
    return axes


def _rows(chart: Rows, axes: Axes) -> None:
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
        ends = [chart.axis.high if m.to is None else m.to for _, m in found]
        match series.shape:
            case "bar":
                axes.barh(at, values, color=colour, height=0.6, label=label)
            case "span" | "range" | "arrow":
                wide = 2.0 if series.shape == "arrow" else 1.2
                axes.hlines(at, values, ends, color=colour, lw=wide, label=label)
                if series.shape == "range":
                    both = [*values, *ends], [*at, *at]
                    axes.plot(*both, "|", color=colour, label=HIDDEN)
            case shape:
                axes.plot(
                    values,
                    at,
                    color=colour,
                    linestyle="none",
                    label=label,
                    **SHAPES[shape],
                )
    names = [fill(shorten(visible(r.name), LONGEST), WIDE) for r in chart.rows]
    axes.set_yticks(list(heights), names)
    for text, row in zip(axes.get_yticklabels(), chart.rows, strict=True):
        text.set_fontweight("normal" if row.marks else "bold")
    for y, row in zip(heights, chart.rows, strict=True):
        where = axes.get_yaxis_transform()
        axes.text(1.01, y, row.note, va="center", fontsize="small", transform=where)
    axes.set_ylim(-0.6, len(chart.rows) - 0.4)
    _along(axes, "x", chart.axis)
    axes.tick_params(axis="y", length=0)
    if chart.axis.low < 0.0:
        axes.axvline(0.0, color="#888", linewidth=1.0, zorder=0.5)
    axes.spines["left"].set_visible(False)
    if any(series.title for series in chart.series.values()):
        axes.legend(fontsize="small", frameon=False, ncols=3, **KEY)


def _plot(chart: Plot, axes: Axes) -> None:
    for line in chart.lines:
        _line(line, axes)
    if chart.rule is not None:
        height, words = chart.rule
        axes.axhline(height, color=COLOURS["bound"][0], linestyle="--", label=words)
    for name, axis in (("x", chart.x), ("y", chart.y)):
        _along(axes, name, axis)
    if any(line.name for line in chart.lines) or chart.rule is not None:
        axes.legend(fontsize="small", frameon=False, ncols=2, **KEY)


def _line(line: Line, axes: Axes) -> None:
    colour = COLOURS[line.colour][0]
    x, y = [a for a, _ in line.points], [b for _, b in line.points]
    marker, name = MARKERS[line.dash], line.name or HIDDEN
    if line.band:
        lower, upper = zip(*line.band, strict=True)
        axes.fill_between(x, lower, upper, color=colour, alpha=0.16, linewidth=0)
    match line.kind:
        case "crowd":
            axes.plot(
                x,
                y,
                linestyle="none",
                marker="o",
                ms=3,
                color=colour,
                alpha=0.35,
                label=name,
            )
        case "marks":
            axes.plot(x, y, linestyle="none", marker=marker, color=colour, label=name)
        case _:
            axes.plot(x, y, color=colour, linestyle=DASHES[line.dash], label=name)
    for (a, b), (left, right, low, high) in zip(line.points, line.spans, strict=False):
        if left is not None and right is not None:
            axes.hlines(b, left, right, color=colour, lw=0.8)
        if low is not None and high is not None:
            axes.vlines(a, low, high, color=colour, lw=0.8)


def _along(axes: Axes, name: str, axis: Axis) -> None:
    """Put an axis of a chart on Axes: its ends, its numbers, its title."""
    axes.set(**{f"{name}label": axis.title})
    if axis.log:
        axes.set(**{f"{name}scale": "log"})
    axes.set(**{f"{name}lim": (axis.low, axis.high)})
    ticks = axis.ticks
    axes.set(
        **{
            f"{name}ticks": [v for v, _ in ticks],
            f"{name}ticklabels": [t for _, t in ticks],
        }
    )
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="both" if name == "y" else "x", color="#ddd", linewidth=0.8)
