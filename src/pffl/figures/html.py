"""Charts as HTML and SVG text, coloured by CSS variables.

Names and numbers are text of the page, so they keep their size on a telephone and wrap
where they are long; only marks and lines are drawn, placed by percent. Everything that
a chart shows also stands in a table beside it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from pffl.figures.chart import COLOURS, Axis, Chart, Ends, Line, Mark, Plot, Row, Rows
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
LANE = 8  # pixels from the middle of a row
BACK = "M12-4L6 0L12 4"  # the head of an arrow to the left, beside a dot
STRETCHED = '<svg viewBox="0 0 100 100" preserveAspectRatio="none">'
MANY = 400  # points, of which more are counted by where they are
ACROSS, DOWN = 1, 2.5  # percent: where that is
CROWDS = (1, 2, 4, 10, sys.maxsize)  # so many in one place, or more,
DARK = (0.25, 0.45, 0.7, 1)  # are drawn so dark
NEAR = 5.0  # percent: an arrow this short has no head


def css() -> str:
    """Return the style sheet of charts, with their colours in light and dark."""
    light, dark = (
        "".join(f"--pffl-{name}:{pair[i]};" for name, pair in COLOURS.items())
        for i in (0, 1)
    )
    classes = "".join(f".c-{n}{{color:var(--pffl-{n})}}" for n in COLOURS)
    sheet = files("pffl.figures").joinpath("chart.css").read_text("utf-8")
    scheme = f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return f":root{{{light}}}{scheme}@media print{{:root{{{light}}}}}{classes}{sheet}"


def as_html(chart: Chart) -> str:
    """Return one element; every text is escaped."""
    if isinstance(chart, Rows):
        return _rows(chart)
    return _plot(chart) if isinstance(chart, Plot) else ""


def _text(text: str) -> str:
    return escape(visible(text))


# Names and marks


def _rows(chart: Rows) -> str:
    axis, ticks = chart.axis, chart.axis.ticks
    places = [(axis.at(value), text) for value, text in ticks]
    grid = "".join(
        f'<line class="grid{zero}" x1="{x:.2f}%" x2="{x:.2f}%" y1="-50%" y2="50%"/>'
        for x, zero in ((axis.at(v), " zero" * (v == 0 > axis.low)) for v, _ in ticks)
    )
    noted = any(row.note for row in chart.rows)
    body = "".join(_row(row, chart, grid, noted) for row in chart.rows)
    under = f'<div class="axis"><span></span>{_along(places, axis.title)}</div>'
    return _figure(
        f'<div class="dots{" noted" * noted}{" lanes" * chart.lanes}" role="img" '
        f'aria-label="{_text(chart.words)}" '
        f'data-low="{axis.low!r}" data-high="{axis.high!r}">{body}{under}</div>',
        _key(chart),
    )


def _row(row: Row, chart: Rows, grid: str, noted: bool) -> str:
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


def _mark(mark: Mark, chart: Rows) -> str:
    series, axis = chart.series[mark.series], chart.axis
    at, title = axis.at(mark.value), f"<title>{_text(mark.words)}</title>"
    shape = SHAPES.get(series.shape, "")
    if series.shape == "bar":
        zero = axis.at(0.0)
        left, wide = min(at, zero), abs(at - zero)
        shape = f'<rect class="full" x="{left:.2f}%" width="{wide:.2f}%" '
        return (
            f'<g class="c-{series.colour}">{shape}y="-8" height="16">{title}</rect></g>'
        )
    line = ""
    if mark.to is not None:
        start, at = at, axis.at(mark.to)
        line = f'<line x1="{start:.2f}%" x2="{at:.2f}%"/>'
        within, beyond = ENDS[series.shape]
        head = within if axis.low <= mark.to <= axis.high else beyond
        head = BACK if series.shape == "arrow" and at < start else head
        head = "" if series.shape == "arrow" and abs(at - start) < NEAR else head
        shape = f'<path class="open" d="{head}"/>' if head else ""
        if series.shape == "range":
            line += f'<svg x="{start:.2f}%"><path class="open" d="{within}"/></svg>'
    lane = LANE * series.lane * chart.lanes
    moved = f' transform="translate(0 {lane})"' if lane else ""
    return (
        f'<g class="c-{series.colour}"{moved} data-series="{mark.series}">{line}'
        f'<svg class="mark" x="{at:.2f}%">{title}{shape}</svg></g>'
    )


def _key(chart: Rows) -> str:
    """The legend; a line that begins at a mark is told beside it."""
    entries = [
        f"<li>{_sample(s.colour, _of_series(s.shape))}{_text(s.title)}</li>"
        for s in chart.series.values()
        if s.title
    ]
    return _list(entries, chart.left)


def _list(entries: Iterable[str], left: int) -> str:
    more = f"<li>and {left:,} more, not drawn</li>" if left else ""
    found = "".join(entries) + more
    return f'<ul class="key">{found}</ul>' if found else ""


def _sample(colour: str, drawn: str) -> str:
    return _middle(drawn, f' width="26" height="16" class="c-{colour}"')


def _of_series(shape: str) -> str:
    if shape == "bar":
        return '<rect class="full" x="3" width="20" y="-5" height="10"/>'
    if shape in ENDS:
        head = f'<path class="open" d="{ENDS[shape][0]}"/>'
        start = f'<svg x="3">{head}</svg>' if shape == "range" else ""
        return f'<line x1="3" x2="23"/>{start}<svg class="mark" x="23">{head}</svg>'
    if shape == "tick":
        return '<line class="thick" x1="13" x2="13" y1="-8" y2="8"/>'
    return f'<svg class="mark" x="13">{SHAPES[shape]}</svg>'


# Two axes


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
    body = "".join(_band(line, x, y) for line in chart.lines if line.band)
    body += "".join(_line(line, x, y) for line in chart.lines)
    up = "".join(f'<text x="100%" y="{h:.2f}%" dy="5">{t}</text>' for h, t in heights)
    places = [(x.at(value), text) for value, text in x.ticks]
    keys = [
        f"<li>{_sample(line.colour, _of_line(line))}{_text(line.name)}</li>"
        for line in chart.lines
        if line.name
    ]
    return _figure(
        f'<div class="plot" role="img" aria-label="{_text(chart.words)}">'
        f'<span class="title">{_text(y.title)}</span>'
        f'<svg class="up">{up}</svg><svg class="area">{grid}{body}</svg>'
        f"<span></span>{_along(places, x.title)}</div>",
        _list(keys, chart.left),
    )


def _band(line: Line, x: Axis, y: Axis) -> str:
    """What lies between the ends of a line's points, under all lines."""
    across = [x.at(a) for a, _ in line.points]
    under = list(zip(across, [100 - y.at(low) for low, _ in line.band], strict=True))
    over = list(zip(across, [100 - y.at(high) for _, high in line.band], strict=True))
    path = " ".join(f"{a:.2f},{b:.2f}" for a, b in [*over, *reversed(under)])
    drawn = f'{STRETCHED}<polygon class="band" points="{path}"/></svg>'
    return f'<g class="c-{line.colour}">{drawn}</g>'


def _line(line: Line, x: Axis, y: Axis) -> str:
    places = [(x.at(a), 100 - y.at(b)) for a, b in line.points]
    if line.kind == "crowd":
        drawn = "".join(_crowd(places))
        return f'<g class="c-{line.colour}">{STRETCHED}{drawn}</svg></g>'
    spans = "".join(
        _spans(a, b, ends, x, y)
        for (a, b), ends in zip(places, line.spans, strict=False)
    )
    parts = []
    if line.kind == "line":
        path = " ".join(f"{a:.2f},{b:.2f}" for a, b in places)
        name = f"<title>{_text(line.name)}</title>"
        parts.append(
            f'{STRETCHED}<polyline class="line d{line.dash}" points="{path}">{name}'
            "</polyline></svg>"
        )
    else:
        titles = [f"<title>{_text(words)}</title>" for words in line.words]
        titles += [""] * (len(places) - len(titles))
        parts = [
            f'<svg class="mark" x="{a:.2f}%" y="{b:.2f}%">{title}'
            f"{SHAPES['diamond']}</svg>"
            for (a, b), title in zip(places, titles, strict=True)
        ]
    return f'<g class="c-{line.colour}">{spans}{"".join(parts)}</g>'


def _crowd(places: Sequence[tuple[float, float]]) -> Iterable[str]:
    """Points, one on the other darker; of many, how many are where."""
    if len(places) <= MANY:
        yield "".join(
            f'<path class="crowd" d="M{a:.2f} {b:.2f}h0"/>' for a, b in places
        )
        return
    counts = Counter((int(a / ACROSS), int(b / DOWN)) for a, b in places)
    for least, most, dark in zip(CROWDS, CROWDS[1:], DARK, strict=False):
        found = [at for at, n in counts.items() if least <= n < most]
        path = "".join(
            f"M{i * ACROSS:g} {(j + 0.5) * DOWN:g}h{ACROSS}" for i, j in found
        )
        width = f'stroke-width="{DOWN}" stroke-opacity="{dark}"'
        yield f'<path class="heap" {width} d="{path}"/>' if found else ""


def _spans(a: float, b: float, ends: Ends, x: Axis, y: Axis) -> str:
    """The interval of a point along each axis."""
    out, (left, right, low, high) = "", ends
    if left is not None and right is not None:
        out += _segment((x.at(left), b), (x.at(right), b))
    if low is not None and high is not None:
        out += _segment((a, 100 - y.at(low)), (a, 100 - y.at(high)))
    return out


def _segment(start: tuple[float, float], end: tuple[float, float]) -> str:
    (a, b), (c, d) = start, end
    places = f'x1="{a:.2f}%" x2="{c:.2f}%" y1="{b:.2f}%" y2="{d:.2f}%"'
    return f'<line class="thin" {places}/>'


def _of_line(line: Line) -> str:
    if line.kind == "line":
        band = '<rect class="band" x="1" width="24" y="-7" height="14"/>'
        drawn = f'<line class="line d{line.dash}" x1="1" x2="25"/>'
        return band + drawn if line.band else drawn
    if line.kind == "crowd" and len(line.points) > MANY:
        parts = zip((1, 7, 13, 19), DARK, strict=True)
        return "".join(
            f'<rect class="full" stroke="none" x="{x}" width="6" y="-6" height="12" '
            f'fill-opacity="{dark}"/>'
            for x, dark in parts
        )
    shape = "diamond" if line.kind == "marks" else "dot"
    return f'<svg class="mark" x="13">{SHAPES[shape]}</svg>'


def _along(places: Iterable[tuple[float, str]], title: str) -> str:
    """Numbers along an axis, and what they are."""
    texts = "".join(f'<text x="{x:.2f}%" y="15">{text}</text>' for x, text in places)
    return (
        f'<div class="along"><svg height="20">{texts}</svg>'
        f"<span>{_text(title)}</span></div>"
    )


def _figure(drawn: str, key: str) -> str:
    return f'<div class="pffl-chart">{drawn}{key}</div>'
