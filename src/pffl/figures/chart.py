"""Charts as plain records: what is drawn, before anybody draws it.

Two kinds suffice: `Rows`, a name and marks on a line under one axis, and `Plot`, points
and lines between two. Page and notebook draw them as HTML (`html`), papers and
documents through matplotlib (`axes`); both read the same record. A chart fixes its axes
and what stands beside them, so that a figure is the same wherever it is drawn.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Shape: TypeAlias = Literal[
    "dot", "ring", "diamond", "tick", "bar", "span", "range", "arrow"
]

#: Of an interval along x and along y.
Ends: TypeAlias = tuple[float | None, float | None, float | None, float | None]

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
MOST_LINES = 8  # as there are colours: no two lines look alike
PAD = 0.06  # of an axis beyond its marks
SMALLEST = 1e-4  # of the largest value: no axis is narrower
STEPS = (1.0, 2.0, 5.0, 10.0)
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Series:
    """What the marks of one kind mean, how they look, and whether in a lane.

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
class Row:
    """A name, its marks, and a word on them; without marks it heads what follows."""

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
        """Return round numbers between the ends, no two written alike."""
        if self.log:
            return _decades(self.low, self.high)
        raw = (self.high - self.low) / 6
        raw = max(raw, 1.0) if self.whole else raw
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in STEPS if m * power >= raw * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), self.high / step + 1e-9
        values = [i * step for i in range(first, math.floor(last) + 1)]
        unit = 100 * step if self.percent else step
        digits = max(0, -math.floor(math.log10(unit) + 1e-9))
        return [(v, self._written(v, digits)) for v in values]

    def _written(self, value: float, digits: int) -> str:
        if self.percent:
            return f"{100 * value:.{digits * (value != 0)}f} %"
        plain = digits <= 5 and abs(value) < 1e6
        if value == 0:
            return "0"
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
    raised = str(int(exponent)).translate(RAISED)
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

    `least` keeps a chart from making much of what is little: differences far below it
    are drawn as what they are. What is not `signed` cannot be below 0: nor is the axis.
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
    wanted = max(least, 0.1 * size if high == low else SMALLEST * size)
    lacking = max(0.0, wanted - (high - low)) / 2
    pad = PAD * (high - low) + lacking
    start, end = low - pad, high + pad
    if low >= 0.0 > start and not signed:
        start, end = 0.0, max(end, wanted)
    return Axis(title, start, end, percent=percent)


@dataclass(frozen=True)
class Chart:
    """What both kinds can: to be shown in a notebook, saved, and drawn on Axes.

    `words` say what is drawn, for those who do not see it.
    """

    words: str

    def _repr_html_(self) -> str:
        from pffl.figures import html

        return f"<style>{html.css()}</style>{html.as_html(self)}"

    def axes(self, ax: Axes | None = None) -> Axes:
        """Draw it on matplotlib's Axes, new ones by default, and return them."""
        from pffl.figures.axes import draw

        return draw(self, ax)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to an SVG, PNG or PDF file."""
        figure = self.axes().get_figure(root=True)
        if figure is not None:
            figure.savefig(path, dpi=150)


@dataclass(frozen=True)
class Rows(Chart):
    """A name a row, and marks on a line under one axis.

    `left` counts the rows for which there was no room.
    """

    axis: Axis
    rows: Sequence[Row]
    series: Mapping[str, Series]
    left: int = 0

    @property
    def lanes(self) -> bool:
        """Whether rows have two lanes."""
        return {-1, 1} <= {series.lane for series in self.series.values()}


@dataclass(frozen=True)
class Line:
    """Points, joined or not, with the ends of their intervals where they are known.

    A crowd is many points of no name of their own. `spans` have, for each point, its
    ends along x and along y; None where there are none. A `band` has the lower and
    upper end along y of each point, and is filled between them.
    """

    name: str
    points: Sequence[tuple[float, float]]
    kind: Literal["line", "marks", "crowd"] = "line"
    spans: Sequence[Ends] = ()
    colour: str = "c0"
    words: Sequence[str] = ()
    band: Sequence[tuple[float, float]] = ()

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
