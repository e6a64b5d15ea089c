"""Charts as HTML and SVG text, coloured by the page's CSS variables.

Small on purpose: dots on a line per cell, bars, and lines over rounds. Names and
numbers are text of the page, so they keep their size on a telephone and wrap where they
are long; only marks and lines are drawn, placed by percent. Everything that a chart
shows also stands in a table. Only the page uses them; they are apart from it because
drawing knows nothing of runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from pffl.text import up, visible

MOST_CELLS = 40
FURTHEST = 0.5  # how far beyond the largest loss, as a part of it, upper bounds go
MIDDLE = 14  # of a row of dots, in pixels
TALL = 28


def ticks(
    low: float, high: float, wanted: int = 5, *, whole: bool = False
) -> list[float]:
    """Round numbers between two ends; with `whole`, no fractions."""
    if not high > low:
        return [low]
    raw = max((high - low) / wanted, 1.0 if whole else 0.0)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    first = math.ceil(low / step)
    count = int(high / step - first + 1e-9) + 1
    return [(first + i) * step for i in range(count)]


def scale(low: float, high: float) -> Callable[[float], float]:
    """Return where a value lies between two ends, in percent."""
    return lambda value: 100.0 * (value - low) / (high - low)


def cell_chart(cells: Sequence[Mapping[str, Any]]) -> str:
    """Loss of each cell before and after, its bound, and the most of unseen people."""
    shown = sorted(cells, key=_urgency)[:MOST_CELLS]
    if not shown:
        return ""
    low, high = cell_range(shown)
    at = scale(low, high)
    places = [(at(tick), f"{tick:.3g}") for tick in ticks(low, high, 6)]
    grid = _grid(places)
    words = "Mean loss of each cell: before, after, its bound, unseen people at most"
    rows = (_cell_row(cell, at, grid, high) for cell in shown)
    return _rows(rows, places, words)


def bar_chart(bars: Sequence[tuple[str, float]], words: str) -> str:
    """One bar a name, to the right of 0 or, where negative, to the left."""
    low = min(0.0, *(value for _, value in bars))
    high = max(0.0, *(value for _, value in bars))
    at = scale(low, high if high > low else low + 1.0)
    places = [(at(tick), f"{tick:.3g}") for tick in ticks(low, high, 6)]
    grid = _grid(places)
    rows = []
    for name, value in bars:
        left, wide = at(min(value, 0.0)), abs(at(value) - at(0.0))
        bar = (
            f'<rect class="bar" x="{left:.2f}%" width="{wide:.2f}%" '
            f'y="{MIDDLE - 8}" height="16"><title>{escape(name)}: {value:.4g}</title>'
            "</rect>"
        )
        rows.append(_row(name, f"{grid}{bar}"))
    return _rows(rows, places, words)


def _grid(places: Sequence[tuple[float, str]]) -> str:
    """Lines at the numbers of an axis."""
    return "".join(
        f'<line class="grid" x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="{TALL}"/>'
        for x, _ in places
    )


def _row(name: str, marks: str) -> str:
    """A name, which wraps, and what is drawn beside it."""
    return (
        f'<div class="dot-row"><span class="name">{escape(name)}</span>'
        f'<svg height="{TALL}">{marks}</svg></div>'
    )


def _rows(rows: Iterable[str], places: Sequence[tuple[float, str]], words: str) -> str:
    """Rows over an axis."""
    axis = f'<div class="axis"><span></span>{_along(places)}</div>'
    return (
        f'<div class="dots" role="img" aria-label="{escape(words)}">'
        f"{''.join(rows)}{axis}</div>"
    )


def _urgency(cell: Mapping[str, Any]) -> float:
    """Order cells: the one furthest above its bound first, or with the largest loss."""
    worst = cell["train_loss"] if cell["bound"] is None else cell["violation"]
    return -float(worst)


def cell_range(cells: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Ends of the axis: all losses and bounds, and upper bounds as far as is useful.

    One small cell may have an upper bound of many times its loss; drawn in full it
    would press everything else into a corner, so the axis ends before it.
    """
    keys = ("train_loss", "test_loss", "before_train_loss", "bound")
    values = [float(c[k]) for c in cells for k in keys if c.get(k) is not None]
    low, high = min(values), max(values)
    furthest = high + max(high - low, FURTHEST * high)
    uppers = [float(c["test_upper"]) for c in cells if c.get("test_upper") is not None]
    high = max(high, min(max(uppers, default=high), furthest))
    pad = 0.06 * (high - low or 0.1)
    return max(0.0, low - pad), high + pad


def _cell_row(
    cell: Mapping[str, Any], at: Callable[[float], float], grid: str, high: float
) -> str:
    plain = visible(str(cell["cell"]))
    name = escape(plain)
    marks = [grid]
    test, upper = cell.get("test_loss"), cell.get("test_upper")
    if test is not None and upper is not None:
        marks.append(_interval(name, at, (test, upper), high))
    if test is not None:
        diamond = f'<path class="test" d="M0 {MIDDLE - 5}l5 5l-5 5l-5 -5z"/>'
        marks.append(_mark(at(test), diamond, f"{name}, held-out: {test:.4f}"))
    for key, kind in (("before_train_loss", "before"), ("train_loss", "after")):
        if cell.get(key) is not None:
            circle = f'<circle class="{kind}" cy="{MIDDLE}" r="5"/>'
            marks.append(
                _mark(at(cell[key]), circle, f"{name}, {kind}: {cell[key]:.4f}")
            )
    if cell["bound"] is not None:
        line = f'<line class="bound" y1="{MIDDLE - 11}" y2="{MIDDLE + 11}"/>'
        marks.append(
            _mark(at(cell["bound"]), line, f"{name}, bound: {cell['bound']:.4f}")
        )
    return _row(plain, "".join(marks))


def _mark(x: float, shape: str, words: str) -> str:
    """Place a shape, drawn around 0, with words that appear over it."""
    return f'<svg class="mark" x="{x:.2f}%"><title>{words}</title>{shape}</svg>'


def _interval(
    name: str, at: Callable[[float], float], ends: tuple[float, float], high: float
) -> str:
    """Draw a line to the upper bound; an arrow where that is beyond the axis."""
    test, upper = ends
    x, y = at(min(upper, high)), MIDDLE
    head = f"M0 {y - 5}V{y + 5}" if upper <= high else f"M-6 {y - 5}L0 {y}L-6 {y + 5}"
    return (
        f'<line class="interval" x1="{at(test):.2f}%" x2="{x:.2f}%" y1="{y}" y2="{y}"/>'
        + _mark(
            x,
            f'<path class="interval" d="{head}"/>',
            f"{name}, unseen at most: {up(upper)}",
        )
    )


def _along(places: Sequence[tuple[float, str]]) -> str:
    """Numbers along an axis."""
    texts = "".join(f'<text x="{x:.2f}%" y="15">{text}</text>' for x, text in places)
    return f'<svg class="along" height="20">{texts}</svg>'


def line_chart(
    series: Mapping[str, Sequence[tuple[float, float]]],
    words: str,
    *,
    log: bool = False,
) -> str:
    """Lines over rounds; with `log`, only positive values are drawn."""
    lines = {
        name: [(a, math.log10(b) if log else b) for a, b in points if b > 0 or not log]
        for name, points in series.items()
    }
    points = [p for line in lines.values() for p in line]
    if len(points) < 2:
        return ""
    left, right = min(p[0] for p in points), max(p[0] for p in points)
    low, high = min(p[1] for p in points), max(p[1] for p in points)
    high = high if high > low else low + 1
    right = right if right > left else left + 1
    across, down = scale(left, right), scale(high, low)
    heights = [
        (down(tick), f"1e{tick:.3g}" if log else f"{tick:.3g}")
        for tick in ticks(low, high, 4, whole=log)
    ]
    parts = [
        f'<line class="grid" x1="0" x2="100" y1="{y:.2f}" y2="{y:.2f}"/>'
        for y, _ in heights
    ]
    for i, (name, line) in enumerate(lines.items()):
        path = " ".join(f"{across(x):.2f},{down(y):.2f}" for x, y in line)
        parts.append(
            f'<polyline class="line c{i % 8}" points="{path}"><title>{escape(name)}'
            "</title></polyline>"
        )
    values = "".join(
        f'<text x="100%" y="{y:.2f}%" dy="5">{text}</text>' for y, text in heights
    )
    rounds = [(across(tick), f"{tick:g}") for tick in ticks(left, right, whole=True)]
    return (
        f'<div class="plot" role="img" aria-label="{escape(words)}">'
        f'<svg class="up">{values}</svg>'
        f'<svg class="lines" viewBox="0 0 100 100" preserveAspectRatio="none">'
        f"{''.join(parts)}</svg>"
        f"<span></span>{_along(rounds)}</div>"
    )
