"""Charts as plain records: what is drawn, before anything draws it.

Two kinds suffice: `DotPlot`, a name and marks on a line under one axis, and `Plot`,
points and lines between two. Page and notebook draw them as HTML (`svg`), papers and
documents through matplotlib (`mpl`); both read the same record.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Shape: TypeAlias = Literal["dot", "ring", "diamond", "tick", "span", "range", "arrow"]

#: Light and dark, told apart by people who see fewer colours (after Okabe and Ito).
COLOURS = {
    "after": ("#0072B2", "#56B4E9"),
    "before": ("#6b737c", "#a4abb3"),
    "bound": ("#b5260d", "#ff7a5c"),
    "test": ("#00785a", "#3ccf9e"),
    "c0": ("#0072B2", "#56B4E9"),
    "c1": ("#C24E00", "#ff9a57"),
    "c2": ("#00785a", "#3ccf9e"),
    "c3": ("#a2527f", "#e79fc8"),
    "c4": ("#8a6100", "#f0c75e"),
    "c5": ("#4b55a8", "#a9b1f5"),
    "c6": ("#444444", "#d0d4d9"),
    "c7": ("#6d7a00", "#c6d26a"),
}
MAX_LINES = 8  # as there are colours: no two lines look the same
PADDING = 0.06  # of an axis beyond its marks
MIN_WIDTH = 1e-4  # of the largest value: no axis is narrower
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Series:
    """What the marks of one kind mean, how they look, and in which lane they are.

    A lane is above (−1) or below (1) the middle of a row, so that marks of the same
    value do not hide each other.
    """

    title: str
    shape: Shape
    colour: str
    lane: int = 0


@dataclass(frozen=True)
class Mark:
    """A mark of a series: where it is, where its line ends, what it says."""

    series: str
    value: float
    to: float | None = None
    words: str = ""


@dataclass(frozen=True)
class ChartRow:
    """A name, its marks, and a note on them; without marks it heads what follows."""

    name: str
    marks: tuple[Mark, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Axis:
    """A title, the two ends, and how numbers are written."""

    title: str
    low: float
    high: float
    percent: bool = False
    log: bool = False
    whole: bool = False

    def at(self, value: float) -> float:
        """Return where a value lies, in percent; 0 and 100 where it is beyond."""
        low, high = self.low, self.high
        if self.log:
            low, high = math.log10(low), math.log10(high)
            value = math.log10(value) if value > 0 else low
        return 100.0 * min(1.0, max(0.0, (value - low) / (high - low)))

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Return round numbers between the ends, all written differently."""
        if self.log:
            return _decades(self.low, self.high)
        raw = (self.high - self.low) / 6
        raw = max(raw, 1.0) if self.whole else raw
        power = 10.0 ** math.floor(math.log10(raw))
        steps = (m * power for m in (1.0, 2.0, 5.0, 10.0))
        step = next(s for s in steps if s >= raw * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), self.high / step + 1e-9
        unit = 100 * step if self.percent else step
        digits = max(0, -math.floor(math.log10(unit) + 1e-9))
        values = [i * step for i in range(first, math.floor(last) + 1)]
        return [(v, self._written(v, digits)) for v in values]

    def _written(self, value: float, digits: int) -> str:
        if self.percent:
            return f"{100 * value:.{digits * (value != 0)}f} %"
        if value == 0:
            return "0"
        plain = digits <= 5 and abs(value) < 1e6
        return f"{value:,.{digits}f}" if plain else f"{value:.8g}"


def _decades(low: float, high: float) -> list[tuple[float, str]]:
    """Ticks of a logarithmic axis: powers of ten, or between them where few are."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, (last - first) // 5)
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    values = [m * 10.0**n for n in range(first, last + 1, every) for m in factors]
    inside = [v for v in values if low * (1 - 1e-9) <= v <= high * (1 + 1e-9)]
    return [(v, f"{v:,g}" if 1e-3 <= v < 1e5 else _power(v)) for v in inside]


def _power(value: float) -> str:
    """Write a small multiple of a power of ten.

    >>> _power(1e-7), _power(2e12)
    ('10⁻⁷', '2·10¹²')
    """
    digit, _, exponent = f"{value:.0e}".partition("e")
    raised = str(int(exponent)).translate(SUPERSCRIPTS)
    return f"10{raised}" if digit == "1" else f"{digit}·10{raised}"


def axis_of(
    title: str,
    values: Iterable[float],
    *,
    include: float | None = None,
    least: float = 0.0,
    percent: bool = False,
    log: bool = False,
    whole: bool = False,
    signed: bool = False,
) -> Axis:
    """Return the axis on which all values have room, at least so wide.

    `least` keeps a chart from magnifying small differences. What is not `signed` cannot
    be below 0: nor is the axis.
    """
    found = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    found += [] if include is None else [include]
    low, high = min(found, default=0.0), max(found, default=1.0)
    if log:
        low = low if low > 0 else 1e-3
        high = max(high, low)
        wider = 1.3 if high > 3 * low else 3.0
        return Axis(title, low / wider, high * wider, log=True)
    if whole:
        return Axis(title, low, high if high > low else low + 1.0, whole=True)
    size = max(abs(low), abs(high)) or 1.0
    wanted = max(least, 0.1 * size if high == low else MIN_WIDTH * size)
    lacking = max(0.0, wanted - (high - low)) / 2
    pad = PADDING * (high - low) + lacking
    start, end = low - pad, high + pad
    if low >= 0.0 > start and not signed:
        start, end = 0.0, max(end, wanted)
    return Axis(title, start, end, percent=percent)


@dataclass(frozen=True)
class Chart:
    """A chart: shown in a notebook, saved to a file, or drawn on matplotlib's Axes.

    `words` say what is drawn, for screen readers.
    """

    words: str

    def _repr_html_(self) -> str:
        from pffl._report import svg

        return f"<style>{svg.css()}</style>{svg.as_html(self)}"

    def axes(self, ax: Axes | None = None) -> Axes:
        """Draw it on matplotlib's Axes, new ones by default, and return them."""
        from pffl._report.mpl import draw

        return draw(self, ax)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to an SVG, PNG or PDF file, with all of its legend."""
        figure = self.axes().get_figure(root=True)
        if figure is not None:
            figure.savefig(path, dpi=150, bbox_inches="tight")


@dataclass(frozen=True)
class DotPlot(Chart):
    """A name a row, and marks on a line under one axis.

    `left` counts the rows for which there was no room.
    """

    axis: Axis
    rows: Sequence[ChartRow]
    series: Mapping[str, Series]
    left: int = 0

    @property
    def lanes(self) -> bool:
        """Whether rows have two lanes."""
        return {-1, 1} <= {series.lane for series in self.series.values()}


@dataclass(frozen=True)
class Line:
    """Points, joined or not."""

    name: str
    points: Sequence[tuple[float, float]]
    joined: bool = True
    colour: str = "c0"

    @property
    def dash(self) -> int:
        """Which of eight kinds of lines it is: one a colour."""
        kind = self.colour[1:]
        return int(kind) if kind.isdigit() else 0


@dataclass(frozen=True)
class Plot(Chart):
    """Lines and points between two axes; `rule` is a height that matters, named.

    `left` counts the lines for which there was no colour.
    """

    x: Axis
    y: Axis
    lines: Sequence[Line] = field(default_factory=tuple)
    rule: tuple[float, str] | None = None
    left: int = 0
