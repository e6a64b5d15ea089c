"""Charts of runs, comparisons and monitors, for notebooks, papers and the page.

chart = pffl.figures.group_losses(solution)
chart                     # in a notebook
chart.save("losses.svg")  # or .png, .pdf; needs the extra ``report``
chart.axes()              # matplotlib's Axes

Each of the seven is defined here, once. They take a `Solution`, a `Comparison` or a
`Monitor`; or the table in it, as a DataFrame or as rows (mappings with the same keys).
A chart is a plain record. Two kinds suffice: `DotPlot`, a name and marks on a line
under one axis, and `Plot`, points and lines between two. Page and notebook draw them as
HTML (`_report.svg`), papers through matplotlib (`_report.mpl`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pffl.text import decimals, down, up

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Chart", "DotPlot", "Plot"]
__all__ += ["convergence", "differences", "e_values", "fronts", "group_losses"]
__all__ += ["group_rates", "trade_off"]

# Records

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


# The seven charts

Table: TypeAlias = Any  # an object of pffl's, a DataFrame, or rows

MAX_ROWS = 40
MAX_POINTS = 400  # of a line
UPPER_BOUND_ROOM = 0.5  # of the largest loss: upper bounds are drawn so far beyond it
MIN_LOSS_AXIS = 0.1  # of the largest loss
MIN_SHARE_AXIS = 0.05  # five points
MIN_DIFFERENCE_AXIS = 0.01
MIN_E_VALUE, MAX_ALARMS = 1e-6, 1e3  # e-values drawn: up to n times an alarm
CELL_SERIES = {
    "known": Series("training rows, interval from noise", "range", "after", -1),
    "change": Series("", "arrow", "before", -1),
    "before": Series("training rows, unconstrained", "ring", "before", -1),
    "after": Series("training rows", "dot", "after", -1),
    "bound": Series("bound", "tick", "bound"),
    "test": Series("test rows", "diamond", "test", 1),
    "upper": Series("up to the certified upper bound", "span", "test", 1),
}
RATES = {
    "error": "Errors",
    "false_positive": "False positives",
    "false_negative": "False negatives",
}
MEASURES = {
    "error": "error rate",
    "worst_cell_loss": "worst group's loss",
    "dp_gap": "DP gap",
    "eo_gap": "EO gap",
}


def rows_of(table: Table, attribute: str = "") -> list[dict[str, Any]]:
    """Return a table, or the one that an object has, as rows."""
    found: Any = getattr(table, attribute, table) if attribute else table
    if not hasattr(found, "to_dict"):
        return [dict(row) for row in found]
    named = found if found.index.name is None else found.reset_index()
    return [{str(k): v for k, v in row.items()} for row in named.to_dict("records")]


def measure_name(measure: str) -> str:
    """Return what a measure is called.

    >>> measure_name("worst_cell_loss"), measure_name("worst_silo_loss")
    ("worst group's loss", 'worst silo loss')
    """
    return MEASURES.get(measure, measure.replace("_", " "))


def known(value: Any) -> float | None:
    """Return a number; None where it is missing, also in text."""
    if value is None or value == "":
        return None
    return float(value) if math.isfinite(float(value)) else None


def group_losses(
    table: Table,
    *,
    rows: str = "training rows",
    test: str = "test rows",
    measure: str = "mean loss",
    most: int = MAX_ROWS,
) -> DotPlot:
    """Mean loss of each group, unconstrained and constrained, with bounds.

    Parameters
    ----------
    table
        A `Solution`, or its `cells`. The group furthest above its bound comes first.
    rows, test
        What the rows are called that the losses were measured on, and test rows.
    measure
        What bounds are on.
    most
        Groups that are drawn; the chart says how many are not.
    """
    cells = sorted(rows_of(table, "cells"), key=excess)
    shown = cells[:most]
    drawn = [ChartRow(str(cell["cell"]), tuple(_cell_marks(cell))) for cell in shown]
    axis = _loss_axis(shown, measure)
    series = {
        **CELL_SERIES,
        "after": replace(CELL_SERIES["after"], title=rows),
        "test": replace(CELL_SERIES["test"], title=test),
    }
    if any(m.to is not None and m.to > axis.high for r in drawn for m in r.marks):
        further = f"{CELL_SERIES['upper'].title} (an arrow: beyond the axis)"
        series["upper"] = replace(CELL_SERIES["upper"], title=further)
    if not any(mark.series == "test" for row in drawn for mark in row.marks):
        series = {key: replace(one, lane=0) for key, one in series.items()}
    return DotPlot(
        f"{measure.capitalize()} of each group: unconstrained, constrained, its bound, "
        "on test rows, and the certified upper bound",
        axis,
        drawn,
        _used(series, drawn),
        len(cells) - len(shown),
    )


def excess(cell: Mapping[str, Any]) -> float:
    """Sort by this: furthest above its bound, or with the largest loss, first.

    The loss without bounds counts, too: groups that gained most are not at the end.
    """
    keys = ("before_train_loss", "train_loss", "test_loss")
    losses, bound = [known(cell.get(key)) for key in keys], cell.get("bound") or 0.0
    return -max([loss - bound for loss in losses if loss is not None], default=-bound)


def _used(series: Mapping[str, Series], rows: Iterable[ChartRow]) -> dict[str, Series]:
    """Return the series of which something is drawn."""
    there = {mark.series for row in rows for mark in row.marks}
    return {key: one for key, one in series.items() if key in there}


def _cell_marks(cell: Mapping[str, Any]) -> Iterable[Mark]:
    name, number = str(cell["cell"]), {k: cell.get(k) for k in cell if k != "cell"}
    before, after, test, bound, upper, low, high = (
        known(number.get(key))
        for key in (
            *("before_train_loss", "train_loss", "test_loss", "bound", "test_upper"),
            *("train_lower", "train_upper"),
        )
    )
    if bound is not None:
        yield Mark("bound", bound, words=f"{name}, bound: {decimals(bound)}")
    if low is not None and high is not None:
        text = f"{name}, interval from noise: {down(low)} to {up(high)}"
        yield Mark("known", low, high, text)
    if before is not None and after is not None:
        yield Mark("change", before, after)
    start = after if test is None else test
    if start is not None and upper is not None:
        text = f"{name}, certified at most: {up(upper)}"
        yield Mark("upper", start, upper, text)
    for key, value, words in (
        ("test", test, "test"),
        ("before", before, "unconstrained"),
        ("after", after, "constrained" if before is not None else "loss"),
    ):
        if value is not None:
            yield Mark(key, value, words=f"{name}, {words}: {decimals(value)}")


def _loss_axis(cells: Sequence[Mapping[str, Any]], title: str) -> Axis:
    """Room for all losses and bounds, and upper bounds as far as is useful.

    One small group may have an upper bound of many times its loss; drawn in full it
    would press everything else into a corner, so the axis ends before it.
    """
    keys = (
        *("train_loss", "test_loss", "before_train_loss", "bound"),
        *("train_lower", "train_upper"),
    )
    found = [known(cell.get(key)) for cell in cells for key in keys]
    values = [value for value in found if value is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    furthest = high + max(high - low, UPPER_BOUND_ROOM * high)
    uppers = [known(cell.get("test_upper")) for cell in cells]
    values += [min(value, furthest) for value in uppers if value is not None]
    return axis_of(title, values, least=MIN_LOSS_AXIS * high)


def group_rates(table: Table) -> DotPlot:
    """Error, false-positive and false-negative rate of each group, with intervals.

    Parameters
    ----------
    table
        A `Solution`, or what its result.json has in `groups`.
    """
    groups = rows_of(table.as_dict()["groups"] if hasattr(table, "as_dict") else table)
    rows = []
    for key, title in RATES.items():
        found = [(g["group"], g[key]) for g in groups if g.get(key)]
        found = [(name, rate) for name, rate in found if rate["value"] is not None]
        rows += [ChartRow(title)] if found else []
        for name, rate in found[:MAX_ROWS]:
            low, high, free = rate["lower"], rate["upper"], rate.get("unconstrained")
            marks = [Mark("rate", rate["value"], words=_percents(name, rate["value"]))]
            if low is not None and high is not None:
                words = _percents(name, low, high)
                marks.insert(0, Mark("interval", low, high, words))
            if free is not None:
                words = _percents(f"{name}, unconstrained", free)
                marks.append(Mark("before", free, words=words))
            rows.append(ChartRow(str(name), tuple(marks)))
    series = {
        "before": Series("unconstrained", "ring", "before"),
        "rate": Series("share of the people counted", "dot", "after"),
        "interval": Series("interval", "range", "after"),
    }
    return DotPlot(
        "Error rate, false positives and false negatives of each group",
        axis_of("share", _extent(rows), least=MIN_SHARE_AXIS, percent=True),
        rows,
        _used(series, rows),
        max(0, len(groups) - MAX_ROWS),
    )


def _percents(name: str, *shares: float) -> str:
    return f"{name}: " + " to ".join(f"{100 * share:.1f} %" for share in shares)


def _extent(rows: Iterable[ChartRow]) -> list[float]:
    """Return 0, and where all marks are."""
    ends = (end for row in rows for m in row.marks for end in (m.value, m.to))
    return [0.0, *(end for end in ends if end is not None)]


def trade_off(table: Table, *, shares: bool = True) -> Plot:
    """Models that were tested for a certificate: their error, and their margin.

    Parameters
    ----------
    table
        For each model its `error` (a share, or a mean loss), `room` (of the tightest
        group below its bound, on training rows), and `state`: certified, not certified
        or not tested.
    shares
        Whether errors are shares.
    """
    rows = rows_of(table)
    colours = {"certified": "test", "not certified": "bound"}  # others are grey
    lines = [
        Line(
            state,
            [(row["error"], row["room"]) for row in rows if row["state"] == state],
            joined=False,
            colour=colours.get(state, "before"),
        )
        for state in dict.fromkeys(str(row["state"]) for row in rows)
    ]
    title = "error rate" if shares else "mean loss"
    errors = [float(row["error"]) for row in rows]
    return Plot(
        "Models that were tested: error, and margin of the tightest group",
        axis_of(
            f"{title}, training rows", errors, least=MIN_SHARE_AXIS, percent=shares
        ),
        axis_of(
            "margin of the tightest group, training rows",
            [float(row["room"]) for row in rows],
            include=0.0,
        ),
        lines,
        (0.0, "its bound"),
    )


def fronts(table: Table, *, y: str = "worst_cell_loss") -> Plot:
    """Trade-off curve of each method between the error rate and another measure.

    Parameters
    ----------
    table
        `curve`, `error` and the measure `y`, in the order in which points are joined.
    y
        Name of the measure.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows_of(table):
        a, b = known(row.get("error")), known(row.get(y))
        if a is not None and b is not None:
            found.setdefault(str(row["curve"]), []).append((a, b))
    lines = []
    for i, (name, points) in enumerate(list(found.items())[:MAX_LINES]):
        joined = len(set(points)) > 1  # a line without length is not seen
        lines.append(Line(name, points if joined else points[:1], joined, f"c{i}"))
    across = [a for line in lines for a, _ in line.points]
    heights = [b for line in lines for _, b in line.points]
    return Plot(
        f"{measure_name(y)} against error rate, by method",
        axis_of("error rate", across, percent=True, least=MIN_DIFFERENCE_AXIS),
        axis_of(measure_name(y), heights, least=MIN_DIFFERENCE_AXIS),
        lines,
        left=len(found) - len(lines),
    )


def differences(table: Table, words: str, *, shares: bool = False) -> DotPlot:
    """Paired differences to one method, with the intervals that decide.

    Parameters
    ----------
    table
        `method`, `mean`, `low`, `high` and `word`, see `Comparison.differences`. A
        difference is filled where the word is "better" or "worse".
    words
        What the chart shows.
    shares
        Whether differences are of shares, and written in percentage points.
    """
    rows = []
    for row in rows_of(table):
        mean, low, high = (known(row[key]) for key in ("mean", "low", "high"))
        if mean is None:
            continue
        word = str(row.get("word") or "")
        text = f"{row['method']}: {signed(mean, shares)}"
        filled = word in ("better", "worse")
        marks = [Mark("shown" if filled else "open", mean, words=text)]
        if low is not None and high is not None:
            ends = f"{text} ({signed(low, shares)} to {signed(high, shares)})"
            marks.insert(0, Mark("interval", low, high, ends))
        rows.append(ChartRow(str(row["method"]), tuple(marks), word))
    series = {
        "shown": Series("better or worse", "dot", "after"),
        "open": Series("same or open", "ring", "before"),
        "interval": Series("the interval that decides", "range", "before"),
    }
    title = "difference, percentage points" if shares else "difference"
    more: Any = {"least": MIN_DIFFERENCE_AXIS, "percent": shares, "signed": True}
    axis = axis_of(title, _extent(rows), **more)
    return DotPlot(words, axis, rows, _used(series, rows))


def signed(value: float | None, shares: bool) -> str:
    """Write a difference, of shares in percentage points; a dash for none."""
    if value is None or math.isnan(value):
        return "–"
    return f"{100 * value:+.2f} points" if shares else f"{value:+.4f}"


def convergence(history: Table, *, final: float | None = None) -> Plot | None:
    """Duality gap and worst violation by round, on a logarithmic scale.

    Gaps are upper bounds. While a method trains they come from few queries, and may lie
    far above the one at the end.

    Parameters
    ----------
    history
        A `Solution`, or its `history`. What is not positive (a violation, once all
        bounds are met) or was not measured is left out.
    final
        The gap at the end; that of a `Solution` is known.

    Returns
    -------
    Plot or None
        None where fewer than two points are left.
    """
    names = {
        "gap": "duality gap while training, at most",
        "worst_violation": "worst violation, while above 0",
    }
    final = history.gap if hasattr(history, "conclusions") else final
    rows, lines = rows_of(history, "history"), []
    for i, (key, title) in enumerate(names.items()):
        found = [(float(row["round"]), known(row.get(key))) for row in rows]
        points = [(x, y) for x, y in found if y is not None and y > 0.0]
        step = max(1, len(points) // MAX_POINTS)
        shown = points[::step] + points[-1:] * (step > 1)
        lines += [Line(title, shown, len(shown) > 1, f"c{i}")] if shown else []
    if max((len(line.points) for line in lines), default=0) < 2:
        return None
    if final is not None and final > 0.0:
        end = max(x for line in lines for x, _ in line.points)
        last = Line("duality gap at the end, at most", [(end, final)], False, "c2")
        lines.append(last)
    every = [point for line in lines for point in line.points]
    return Plot(
        "Duality gap and worst violation by round",
        axis_of("round", [x for x, _ in every], whole=True),
        axis_of("", [y for _, y in every], log=True),
        lines,
    )


def e_values(table: Table) -> Plot | None:
    """E-value of each group by batch, logarithmic, and where an alarm is.

    Parameters
    ----------
    table
        A `Monitor`, or its `history`: batch, cell, e_value, threshold. Drawn are the
        groups that come nearest to an alarm.

    Returns
    -------
    Plot or None
        None where there is no batch.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    rows = rows_of(table, "history")
    if not rows:
        return None
    limit = float(rows[-1]["threshold"])
    most = MAX_ALARMS * limit
    cut = any(float(row["e_value"]) > most for row in rows)
    for row in rows:
        height = min(max(float(row["e_value"]), MIN_E_VALUE), most)
        found.setdefault(str(row["cell"]), []).append((float(row["batch"]), height))
    top = sorted(found, key=lambda name: -max(y for _, y in found[name]))[:MAX_LINES]
    lines = {name: line for name, line in found.items() if name in top}
    points = [point for line in lines.values() for point in line]
    title = f"e-value, drawn up to {most:,.0f}" if cut else "e-value"
    return Plot(
        "E-value of each group by batch, and where an alarm is",
        axis_of("batch", [x for x, _ in points], whole=True),
        axis_of(title, [y for _, y in points], include=limit, log=True),
        [
            Line(name, line, len(line) > 1, f"c{i}")
            for i, (name, line) in enumerate(lines.items())
        ],
        (limit, f"alarm at {limit:.4g}"),
        len(found) - len(lines),
    )
