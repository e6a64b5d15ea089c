"""Charts as HTML and SVG text, coloured by CSS variables.

Names and numbers are text of the page, so they keep their size on a telephone and wrap
where they are long; only marks and lines are drawn, placed by percent. Everything that
a chart shows also stands in a table next to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files

from pffl.figures import COLOURS, Axis, Chart, ChartRow, DotPlot, Line, Mark, Plot
from pffl.text import visible

SHAPES = {
    "dot": '<circle class="full" r="5"/>',
    "ring": '<circle class="open" r="6.5"/>',
    "diamond": '<path class="open" d="M0-6L6 0L0 6L-6 0z"/>',
    "tick": '<line class="thick" y1="-50%" y2="50%"/>',
}
ENDS = {  # of a line: within the axis, beyond it
    "span": ("M0-5V5", "M-6-5L0 0L-6 5"),
    "range": ("M0-5V5", "M-6-5L0 0L-6 5"),
    "arrow": ("M-12-4L-6 0L-12 4", "M-12-4L-6 0L-12 4"),
}
LANE_OFFSET = 8  # pixels from the middle of a row
BACKWARD = "M12-4L6 0L12 4"  # the head of an arrow to the left, next to a dot
STRETCHED = '<svg viewBox="0 0 100 100" preserveAspectRatio="none">'
MIN_ARROW = 5.0  # percent: a shorter arrow has no head


def css() -> str:
    """Return the style sheet of charts, with their colours in light and dark."""
    light, dark = (
        "".join(f"--pffl-{name}:{pair[i]};" for name, pair in COLOURS.items())
        for i in (0, 1)
    )
    classes = "".join(f".c-{n}{{color:var(--pffl-{n})}}" for n in COLOURS)
    sheet = files("pffl._report").joinpath("chart.css").read_text("utf-8")
    scheme = f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return f":root{{{light}}}{scheme}@media print{{:root{{{light}}}}}{classes}{sheet}"


def as_html(chart: Chart) -> str:
    """Return one element; every text is escaped."""
    if isinstance(chart, DotPlot):
        return _rows(chart)
    return _plot(chart) if isinstance(chart, Plot) else ""


def _text(text: str) -> str:
    return escape(visible(text))


def _rows(chart: DotPlot) -> str:
    axis = chart.axis
    grid = "".join(
        f'<line class="grid{zero}" x1="{x:.2f}%" x2="{x:.2f}%" y1="-50%" y2="50%"/>'
        for x, zero in (
            (axis.at(v), " zero" * (v == 0 > axis.low)) for v, _ in axis.ticks
        )
    )
    noted = any(row.note for row in chart.rows)
    body = "".join(_row(row, chart, grid, noted) for row in chart.rows)
    keys = [
        f"<li>{_sample(s.colour, _key(s.shape))}{_text(s.title)}</li>"
        for s in chart.series.values()
        if s.title
    ]
    return _figure(
        f'<div class="dots{" noted" * noted}{" lanes" * chart.lanes}" role="img" '
        f'aria-label="{_text(chart.words)}">{body}'
        f'<div class="axis"><span></span>{_along(axis)}</div></div>',
        keys,
        chart.left,
    )


def _row(row: ChartRow, chart: DotPlot, grid: str, noted: bool) -> str:
    name = f'<bdi class="name">{_text(row.name)}</bdi>'
    if not row.marks:
        return f'<div class="head">{name}</div>'
    marks = "".join(_mark(mark, chart) for mark in row.marks)
    drawn = f'<span class="strip">{_middle(grid + marks)}</span>'
    note = f'<span class="note">{_text(row.note)}</span>' if noted else ""
    return f'<div class="dot-row">{name}{drawn}{note}</div>'


def _middle(drawn: str, more: str = "") -> str:
    """What is drawn around the middle of a line of text, as high as that is."""
    return f'<svg{more}><svg y="50%">{drawn}</svg></svg>'


def _mark(mark: Mark, chart: DotPlot) -> str:
    series, axis = chart.series[mark.series], chart.axis
    at, line, shape = axis.at(mark.value), "", SHAPES.get(series.shape, "")
    if mark.to is not None:
        start, at = at, axis.at(mark.to)
        line = f'<line x1="{start:.2f}%" x2="{at:.2f}%"/>'
        within, beyond = ENDS[series.shape]
        head = within if axis.low <= mark.to <= axis.high else beyond
        if series.shape == "arrow":
            head = BACKWARD if at < start else head
            head = "" if abs(at - start) < MIN_ARROW else head
        shape = f'<path class="open" d="{head}"/>' if head else ""
        if series.shape == "range":
            line += f'<svg x="{start:.2f}%"><path class="open" d="{within}"/></svg>'
    lane = LANE_OFFSET * series.lane * chart.lanes
    moved = f' transform="translate(0 {lane})"' if lane else ""
    return (
        f'<g class="c-{series.colour}"{moved}>{line}<svg class="mark" x="{at:.2f}%">'
        f"<title>{_text(mark.words)}</title>{shape}</svg></g>"
    )


def _sample(colour: str, drawn: str) -> str:
    return _middle(drawn, f' width="26" height="16" class="c-{colour}"')


def _key(shape: str) -> str:
    """What the legend shows of a series."""
    if shape in ENDS:
        head = f'<path class="open" d="{ENDS[shape][0]}"/>'
        start = f'<svg x="3">{head}</svg>' if shape == "range" else ""
        return f'<line x1="3" x2="23"/>{start}<svg class="mark" x="23">{head}</svg>'
    if shape == "tick":
        return '<line class="thick" x1="13" x2="13" y1="-8" y2="8"/>'
    return f'<svg class="mark" x="13">{SHAPES[shape]}</svg>'


def _plot(chart: Plot) -> str:
    x, y = chart.x, chart.y
    heights = [(100 - y.at(value), text) for value, text in y.ticks]
    grid = "".join(
        f'<line class="grid" x2="100%" y1="{h:.2f}%" y2="{h:.2f}%"/>'
        for h, _ in heights
    )
    if chart.rule is not None:
        height, words = chart.rule
        at = f"{100 - y.at(height):.2f}%"
        line = f'<line x2="100%" y1="{at}" y2="{at}"/>'
        text = f'<text x="100%" y="{at}" dy="-5">{_text(words)}</text>'
        grid += f'<g class="c-bound rule">{line}{text}</g>'
    body = "".join(_line(line, x, y) for line in chart.lines)
    up = "".join(f'<text x="100%" y="{h:.2f}%" dy="5">{t}</text>' for h, t in heights)
    keys = [
        f"<li>{_sample(line.colour, _line_key(line))}{_text(line.name)}</li>"
        for line in chart.lines
        if line.name
    ]
    return _figure(
        f'<div class="plot" role="img" aria-label="{_text(chart.words)}">'
        f'<span class="title">{_text(y.title)}</span>'
        f'<svg class="up">{up}</svg><svg class="area">{grid}{body}</svg>'
        f"<span></span>{_along(x)}</div>",
        keys,
        chart.left,
    )


def _line(line: Line, x: Axis, y: Axis) -> str:
    places = [(x.at(a), 100 - y.at(b)) for a, b in line.points]
    if line.joined:
        path = " ".join(f"{a:.2f},{b:.2f}" for a, b in places)
        drawn = (
            f'{STRETCHED}<polyline class="line d{line.dash}" points="{path}">'
            f"<title>{_text(line.name)}</title></polyline></svg>"
        )
    else:
        drawn = "".join(
            f'<svg class="mark" x="{a:.2f}%" y="{b:.2f}%">{SHAPES["diamond"]}</svg>'
            for a, b in places
        )
    return f'<g class="c-{line.colour}">{drawn}</g>'


def _line_key(line: Line) -> str:
    if not line.joined:
        return _key("diamond")
    return f'<line class="line d{line.dash}" x1="1" x2="25"/>'


def _along(axis: Axis) -> str:
    """Numbers along an axis, and what they are."""
    texts = "".join(
        f'<text x="{axis.at(value):.2f}%" y="15">{text}</text>'
        for value, text in axis.ticks
    )
    return (
        f'<div class="along"><svg height="20">{texts}</svg>'
        f"<span>{_text(axis.title)}</span></div>"
    )


def _figure(drawn: str, keys: Iterable[str], left: int) -> str:
    """A chart with its legend, which says what was left out."""
    more = f"<li>and {left:,} more, not drawn</li>" if left else ""
    found = "".join(keys) + more
    key = f'<ul class="key">{found}</ul>' if found else ""
    return f'<div class="pffl-chart">{drawn}{key}</div>'
