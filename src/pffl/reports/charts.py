"""Charts as SVG text, coloured by the page's CSS variables, with a title for readers.

Small on purpose: dots on a line per cell, and lines over rounds. Everything that a
chart shows also stands in a table. Only the page uses them; they are apart from it
because drawing knows nothing of runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pffl.text import shorten, up

WIDTH = 600
LABEL = 160  # pixels for names
ROW = 30
MOST_CELLS = 40
LONGEST = 22  # of a name; the full one stands in a tooltip and in the table
FURTHEST = 0.5  # how far beyond the largest loss, as a part of it, upper bounds go


def ticks(
    low: float, high: float, wanted: int = 5, *, whole: bool = False
) -> list[float]:
    """Round numbers between two ends; with `whole`, no fractions."""
    if not high > low:
        return [low]
    raw = max((high - low) / wanted, 1.0 if whole else 0.0)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    first = math.ceil(low / step) * step
    count = int((high - first) / step + 1e-9) + 1
    return [first + i * step for i in range(count)]


def cell_chart(cells: Sequence[Mapping[str, Any]]) -> str:
    """Loss of each cell before and after, its bound, and the most of unseen people."""
    shown = sorted(cells, key=lambda c: -float(c["violation"]))[:MOST_CELLS]
    if not shown:
        return ""
    low, high = cell_range(shown)
    height = ROW * len(shown) + 40

    def x(value: float) -> float:
        return LABEL + (value - low) / (high - low) * (WIDTH - LABEL - 20)

    parts = [_grid(x, low, high, height)]
    for i, cell in enumerate(shown):
        parts.append(_cell_row(cell, x, ROW * i + ROW / 2 + 4, high))
    words = "Mean loss of each cell: before, after, its bound, unseen people at most"
    return _svg(height, words, parts)


def cell_range(cells: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Ends of the axis: all losses and bounds, and upper bounds as far as is useful.

    One small cell may have an upper bound of many times its loss; drawn in full it
    would press everything else into a corner, so the axis ends before it.
    """
    keys = ("train_loss", "test_loss", "before_train_loss")
    values = [float(c[k]) for c in cells for k in keys if c.get(k) is not None]
    values += [float(c["bound"]) for c in cells if c["bound"] > 0]
    low, high = min(values), max(values)
    furthest = high + max(high - low, FURTHEST * high)
    uppers = [float(c["test_upper"]) for c in cells if c.get("test_upper") is not None]
    high = max(high, min(max(uppers, default=high), furthest))
    pad = 0.06 * (high - low or 0.1)
    return max(0.0, low - pad), high + pad


def _grid(x: Any, low: float, high: float, height: int) -> str:
    lines = []
    for tick in ticks(low, high):
        at = f"{x(tick):.1f}"
        lines.append(
            f'<line class="grid" x1="{at}" x2="{at}" y1="0" y2="{height - 34}"/>'
        )
        lines.append(f'<text class="tick" x="{at}" y="{height - 16}">{tick:.3g}</text>')
    return "".join(lines)


def _interval(
    name: str, x: Any, ends: tuple[float, float], y: float, high: float
) -> str:
    """Draw a line to the upper bound; an arrow where that is beyond the axis."""
    test, upper = ends
    at = x(min(upper, high))
    head = (
        f"M{at:.1f} {y - 5}V{y + 5}"
        if upper <= high
        else f"M{at - 6:.1f} {y - 5}L{at:.1f} {y}L{at - 6:.1f} {y + 5}"
    )
    return (
        f'<path class="interval" d="M{x(test):.1f} {y}H{at:.1f}{head}">'
        f"<title>{name}, unseen at most: {up(upper)}</title></path>"
    )


def _cell_row(cell: Mapping[str, Any], x: Any, y: float, high: float) -> str:
    name = escape(str(cell["cell"]))
    out = [
        f'<text class="name" x="{LABEL - 10}" y="{y + 4:.1f}"><title>{name}</title>'
        f"{escape(shorten(str(cell['cell']), LONGEST))}</text>"
    ]
    test, upper = cell.get("test_loss"), cell.get("test_upper")
    if test is not None and upper is not None:
        out.append(_interval(name, x, (test, upper), y, high))
    if test is not None:
        at = x(test)
        out.append(
            f'<path class="test" d="M{at:.1f} {y - 5}l5 5l-5 5l-5 -5z">'
            f"<title>{name}, test: {test:.4f}</title></path>"
        )
    before = cell.get("before_train_loss")
    if before is not None:
        out.append(
            f'<circle class="before" cx="{x(before):.1f}" cy="{y}" r="5">'
            f"<title>{name}, before: {before:.4f}</title></circle>"
        )
    out.append(
        f'<circle class="after" cx="{x(cell["train_loss"]):.1f}" cy="{y}" r="5">'
        f"<title>{name}, after: {cell['train_loss']:.4f}</title></circle>"
    )
    if cell["bound"] > 0:
        at = f"{x(cell['bound']):.1f}"
        out.append(
            f'<line class="bound" x1="{at}" x2="{at}" y1="{y - 11}" y2="{y + 11}">'
            f"<title>{name}, bound: {cell['bound']:.4f}</title></line>"
        )
    return "".join(out)


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
    height, margin = 240, 64

    def place(point: tuple[float, float]) -> str:
        across = margin + (point[0] - left) / (right - left) * (WIDTH - margin - 20)
        up = 12 + (high - point[1]) / (high - low) * (height - 60)
        return f"{across:.1f},{up:.1f}"

    parts = []
    for tick in ticks(low, high, 4, whole=log):
        y = place((left, tick)).split(",")[1]
        text = f"1e{tick:.3g}" if log else f"{tick:.3g}"
        parts.append(
            f'<line class="grid" x1="{margin}" x2="{WIDTH - 20}" y1="{y}" y2="{y}"/>'
        )
        parts.append(
            f'<text class="value" x="{margin - 8}" y="{float(y) + 4:.1f}">{text}</text>'
        )
    for tick in ticks(left, right, whole=True):
        x = place((tick, low)).split(",")[0]
        parts.append(f'<text class="tick" x="{x}" y="{height - 20}">{tick:g}</text>')
    for i, (name, line) in enumerate(lines.items()):
        path = " ".join(place(p) for p in line)
        parts.append(
            f'<polyline class="line c{i % 8}" points="{path}"><title>{escape(name)}'
            "</title></polyline>"
        )
    return _svg(height, words, parts)


def _svg(height: int, words: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(words)}">'
        f"{''.join(parts)}</svg>"
    )
