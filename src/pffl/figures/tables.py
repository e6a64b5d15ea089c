"""From a table to a chart: each figure is defined here, once, for all who draw it.

A table is a DataFrame, or rows: mappings with the same keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from pffl.figures.chart import (
    MOST_LINES,
    Axis,
    Ends,
    Line,
    Mark,
    Plot,
    Row,
    Rows,
    Series,
    axis_of,
)
from pffl.numerics import front
from pffl.text import decimals, up

if TYPE_CHECKING:
    import pandas as pd

Table: TypeAlias = "pd.DataFrame | Iterable[Mapping[str, Any]]"

MOST_ROWS = 40
MOST_POINTS = 400  # of a line
FURTHEST = 0.5  # how far beyond the largest loss, as a part of it, upper bounds go
LITTLE = 0.1  # of the largest loss: an axis is at least so wide
POINTS = 0.05  # the same of a share: five points
STATES = {"shown": "every bound shown", "not shown": "not every bound shown"}
COLOUR_OF = {"shown": "test", "not shown": "bound"}  # others are grey
SMALLEST = 1e-6  # of an e-value that is drawn
SURE = 2.0  # standard errors that are drawn to each side
CELLS = {
    "change": Series("", "arrow", "before"),
    "before": Series("training rows, without bounds", "ring", "before"),
    "after": Series("training rows", "dot", "after"),
    "bound": Series("bound", "tick", "bound"),
    "held": Series("held-out rows", "diamond", "test"),
    "promised": Series("to what is promised at most", "span", "test"),
}
BESIDE = ("after", "bound", "held", "promised")  # of several runs
RATES = {
    "error": "Wrong predictions",
    "false_positive": "False positives",
    "false_negative": "False negatives",
}


def rows_of(table: Table) -> list[dict[str, Any]]:
    """Return a table as rows; an index that has a name is a column."""
    if not hasattr(table, "to_dict"):
        return [dict(row) for row in table]
    frame = cast("pd.DataFrame", table)
    named = frame if frame.index.name is None else frame.reset_index()
    return [{str(k): v for k, v in row.items()} for row in named.to_dict("records")]


def _known(value: Any) -> float | None:
    """Return a number; None where there is none, also in text."""
    if value is None or value == "":
        return None
    return float(value) if math.isfinite(float(value)) else None


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


# Per cell and per group


def group_losses(
    table: Table,
    *,
    rows: str = "training rows",
    along: Table | None = None,
    sort: bool = True,
    most: int = MOST_ROWS,
    held: str = "held-out rows",
) -> Rows:
    """Mean loss of each cell before and after, its bound, held-out rows, the promise.

    Parameters
    ----------
    table
        `Solution.cells`.
    rows, held
        What the rows are called that the losses were measured on, and held-out ones.
    along
        Cells for which the axis is to have room; by default those of the table.
    sort
        Whether the cell furthest above its bound comes first.
    most
        Cells that are drawn; the chart says how many are not.
    """
    cells = sorted(rows_of(table), key=_urgency) if sort else rows_of(table)
    shown = cells[:most]
    drawn = [Row(str(cell["cell"]), tuple(_cell_marks(cell))) for cell in shown]
    axis = _cell_axis(shown if along is None else rows_of(along))
    series = {
        **CELLS,
        "after": Series(rows, "dot", "after"),
        "held": Series(held, "diamond", "test"),
    }
    if any(m.to is not None and m.to > axis.high for r in drawn for m in r.marks):
        further = "to what is promised at most (an arrow: beyond the axis)"
        series["promised"] = Series(further, "span", "test")
    return Rows(
        "Mean loss of each cell: before, after, its bound, on held-out rows, and what "
        "is promised at most",
        axis,
        drawn,
        _used(series, drawn),
        len(cells) - len(shown),
    )


def side_by_side(tables: Sequence[tuple[str, Table]]) -> Rows:
    """The same cells of several runs, each by its name: losses, bounds, promises."""
    found = [(name, rows_of(table)) for name, table in tables]
    cells = [str(cell["cell"]) for cell in found[0][1]][:MOST_ROWS]
    rows: list[Row] = []
    for z, cell in enumerate(cells):
        rows.append(Row(cell))
        for name, table in found:
            marks = [m for m in _cell_marks(table[z]) if m.series in BESIDE]
            rows.append(Row(name, tuple(marks)))
    series = {key: one for key, one in CELLS.items() if key in BESIDE}
    every = [cell for _, table in found for cell in table]
    return Rows(
        "Mean loss of each cell, run by run, with bounds and promises",
        _cell_axis(every),
        rows,
        _used(series, rows),
        len(found[0][1]) - len(cells),
    )


def _urgency(cell: Mapping[str, Any]) -> float:
    over = _known(cell.get("violation"))
    return -(float(cell["train_loss"]) if over is None else over)


def _used(series: Mapping[str, Series], rows: Iterable[Row]) -> dict[str, Series]:
    there = {mark.series for row in rows for mark in row.marks}
    return {key: one for key, one in series.items() if key in there}


def _cell_marks(cell: Mapping[str, Any]) -> Iterable[Mark]:
    name = str(cell["cell"])
    before, after, bound, held, upper = (
        _known(cell.get(key))
        for key in (
            "before_train_loss",
            "train_loss",
            "bound",
            "test_loss",
            "test_upper",
        )
    )
    if before is not None and after is not None:
        yield Mark("change", before, after)
    start = after if held is None else held
    if start is not None and upper is not None:
        yield Mark("promised", start, upper, f"{name}, promised at most: {up(upper)}")
    for key, value, words in (
        ("held", held, "held-out"),
        ("before", before, "before"),
        ("after", after, "after" if before is not None else "loss"),
        ("bound", bound, "bound"),
    ):
        if value is not None:
            yield Mark(key, value, words=f"{name}, {words}: {decimals(value)}")


def _cell_axis(cells: Sequence[Mapping[str, Any]]) -> Axis:
    """Room for all losses and bounds, and upper bounds as far as is useful.

    One small cell may have an upper bound of many times its loss; drawn in full it
    would press everything else into a corner, so the axis ends before it.
    """
    keys = ("train_loss", "test_loss", "before_train_loss", "bound")
    found = [_known(cell.get(key)) for cell in cells for key in keys]
    values = [value for value in found if value is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    furthest = high + max(high - low, FURTHEST * high)
    uppers = [_known(cell.get("test_upper")) for cell in cells]
    values += [min(value, furthest) for value in uppers if value is not None]
    return axis_of("mean loss", values, least=LITTLE * high)


def group_rates(table: Table) -> Rows:
    """How often the model is wrong about each group, and in which direction.

    `table` has what result.json has in `groups`: a rate each with its interval.
    """
    groups = rows_of(table)
    rows, values = [], [0.0]
    for key, title in RATES.items():
        found = [(g["group"], g[key]) for g in groups if g.get(key)]
        found = [(name, rate) for name, rate in found if rate["value"] is not None]
        rows += [Row(title)] if found else []
        for name, rate in found[:MOST_ROWS]:
            ends = [rate["lower"], rate["upper"]]
            marks = [
                Mark("rate", rate["value"], words=f"{name}: {_percent(rate['value'])}")
            ]
            if None not in ends:
                words = f"{name}: {_percent(ends[0])} to {_percent(ends[1])}"
                marks.insert(0, Mark("interval", ends[0], ends[1], words))
            rows.append(Row(str(name), tuple(marks)))
            values += [rate["value"], *(end for end in ends if end is not None)]
    series = {
        "rate": Series("share of the people counted", "dot", "after"),
        "interval": Series("interval for people not seen", "range", "after"),
    }
    return Rows(
        "Share of wrong predictions, false positives and false negatives of each group",
        axis_of("share", values, least=POINTS, percent=True),
        rows,
        _used(series, rows),
        max(0, len(groups) - MOST_ROWS),
    )


def inputs(bars: Iterable[tuple[str, float]], words: str) -> Rows:
    """Effects as bars, to the right of 0 or, where negative, to the left."""
    found = list(bars)
    rows = [
        Row(name, (Mark("effect", value, words=f"{name}: {decimals(value)}"),))
        for name, value in found
    ]
    along = axis_of(
        "effect of one standard deviation", [v for _, v in found], include=0.0
    )
    return Rows(words, along, rows, {"effect": Series("", "bar", "after")})


def site_losses(table: Table) -> Rows:
    """Per cell the lowest and highest mean loss of a site, and what one could hide.

    `table` has what result.json has in `sites`, under `cells`.
    """
    rows, values = [], []
    for cell in rows_of(table)[:MOST_ROWS]:
        name = str(cell["cell"])
        low, high = _known(cell["lowest"]), _known(cell["highest"])
        most = _known(cell["train at most"])
        marks = []
        if low is not None and high is not None:
            words = f"{name}, between sites: {decimals(low)} to {decimals(high)}"
            marks.append(Mark("sites", low, high, words))
            values += [low, high]
        if most is not None:
            words = f"{name}, whatever one site told: {up(most)}"
            marks.append(Mark("most", most, words=words))
            values.append(most)
        rows.append(Row(name, tuple(marks)))
    series = {
        "sites": Series("lowest to highest site", "range", "after"),
        "most": Series("at most, whatever one site told", "tick", "bound"),
    }
    return Rows(
        "Mean loss of each cell between sites, and at most, whatever one told",
        axis_of(
            "mean loss, training rows", values, least=LITTLE * max(values, default=1)
        ),
        [row for row in rows if row.marks],
        _used(series, rows),
    )


# Over rounds


def convergence(history: Table) -> Plot | None:
    """Measured gap and worst violation by round, on a logarithmic scale.

    `history` is `Solution.history`; what is not positive (a violation, once all bounds
    are met) or was not measured is left out. None where nothing is left.
    """
    names = {"gap": "duality gap", "worst_violation": "worst violation, while above 0"}
    rows = rows_of(history)
    lines = {title: _series(rows, key, above=0.0) for key, title in names.items()}
    return _over_rounds(
        lines, "Measured duality gap and worst violation by round", log=True
    )


def by_round(history: Table, what: str, words: str) -> Plot | None:
    """One line a cell of what a history has of all: ``loss`` or ``multiplier``.

    As many as can be told apart; those whose last value is largest.
    """
    rows, mark = rows_of(history), f"{what}: "
    columns = [key for key in (rows[0] if rows else ()) if key.startswith(mark)]
    found = {key.removeprefix(mark): _series(rows, key) for key in columns}
    known = {name: line for name, line in found.items() if line}
    top = sorted(known, key=lambda name: -known[name][-1][1])[:MOST_LINES]
    return _over_rounds({n: line for n, line in known.items() if n in top}, words)


def e_values(table: Table) -> Plot | None:
    """E-value of each cell by batch, logarithmic, and where an alarm is.

    `table` is `Monitor.history`: batch, cell, e_value, threshold. Drawn are the cells
    that come nearest to an alarm. None where there is no batch.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    rows = rows_of(table)
    for row in rows:
        points = found.setdefault(str(row["cell"]), [])
        points.append((float(row["batch"]), max(float(row["e_value"]), SMALLEST)))
    if not found:
        return None
    limit = float(rows[-1]["threshold"])
    top = sorted(found, key=lambda name: -max(y for _, y in found[name]))[:MOST_LINES]
    lines = {name: line for name, line in found.items() if name in top}
    points = [point for line in lines.values() for point in line]
    return Plot(
        "E-value of each cell by batch, and where an alarm is",
        axis_of("batch", [x for x, _ in points], whole=True),
        axis_of("e-value", [y for _, y in points], include=limit, log=True),
        [
            Line(name, line, "line" if len(line) > 1 else "marks", colour=f"c{i}")
            for i, (name, line) in enumerate(lines.items())
        ],
        (limit, f"alarm at {limit:.4g}"),
    )


def _series(
    rows: Sequence[Mapping[str, Any]], column: str, above: float = -math.inf
) -> list[tuple[float, float]]:
    """Points of a line, thinned to what can be seen."""
    found = [(float(row["round"]), _known(row.get(column))) for row in rows]
    points = [(x, y) for x, y in found if y is not None and y > above]
    step = max(1, len(points) // MOST_POINTS)
    return points[::step] + ([points[-1]] if step > 1 else [])


def _over_rounds(
    lines: Mapping[str, list[tuple[float, float]]], words: str, *, log: bool = False
) -> Plot | None:
    points = [point for line in lines.values() for point in line]
    if max(map(len, lines.values()), default=0) < 2:
        return None
    ys = [y for _, y in points]
    return Plot(
        words,
        axis_of("round", [x for x, _ in points], whole=True),
        axis_of("", ys, log=log, least=LITTLE * max(map(abs, ys))),
        [
            Line(name, line, colour=f"c{i}")
            for i, (name, line) in enumerate(lines.items())
            if line
        ],
    )


# Many models


def tradeoff(
    table: Table,
    *,
    x: str = "error",
    y: str = "worst_cell_loss",
    best: Iterable[int] | None = None,
) -> Plot:
    """Draw a sweep's points on test rows, the Pareto front with its intervals.

    Parameters
    ----------
    table
        `Sweep.table`, of one notion: the cells of notions differ. The front is chosen
        on validation rows where there are any, so it need not look like one here.
    x, y
        Measures: error, worst_cell_loss, worst_group_loss, risk, dp_gap or eo_gap.
    best
        Places of the points on the front; by default those on validation rows.
    """
    rows = rows_of(table)
    chosen = "validation" if any(f"validation_{x}" in row for row in rows) else "test"
    if best is None:
        both = [[row.get(f"{chosen}_{x}"), row.get(f"{chosen}_{y}")] for row in rows]
        best = np.flatnonzero(front(np.array(both, dtype=float))).tolist()
    places = [
        (_known(row.get(f"test_{x}")), _known(row.get(f"test_{y}"))) for row in rows
    ]
    there = [(a, b) for a, b in places if a is not None and b is not None]
    line = [i for i in best if None not in places[i]]
    spans = [_interval(rows[i], x, y) for i in line]
    marked: Any = [places[i] for i in line]
    words = [f"bound {rows[i]['bound']:g}" for i in line]
    ends = [[v for s in spans for v in s[k : k + 2] if v is not None] for k in (0, 2)]
    return Plot(
        f"Every model of the sweep: {_measure(x)} against {_measure(y)}, test rows",
        axis_of(
            _measure(x),
            [a for a, _ in there] + ends[0],
            percent=x == "error",
            least=POINTS * (x == "error"),
        ),
        axis_of(
            _measure(y),
            [b for _, b in there] + ends[1],
            least=LITTLE * max([b for _, b in there], default=1.0),
        ),
        [
            Line("a trained model", there, "crowd", colour="before"),
            Line(
                f"Pareto front, chosen on {chosen} rows, with intervals",
                marked,
                "marks",
                spans,
                "c0",
                words,
            ),
        ],
    )


def path(table: Table, *, shares: bool = True) -> Plot:
    """Draw the models of a path: what each costs, and how much room it leaves.

    `table` has for each model its `error` (a share, or a mean loss), `room` (of the
    tightest cell below its bound, on training rows), and `state`: shown, not shown or
    not tested.
    """
    rows = rows_of(table)
    states = dict.fromkeys(str(row["state"]) for row in rows)
    lines = [
        Line(
            STATES.get(state, state),
            [(row["error"], row["room"]) for row in rows if row["state"] == state],
            "marks",
            colour=COLOUR_OF.get(state, "before"),
        )
        for state in states
    ]
    errors = [float(row["error"]) for row in rows]
    title = "wrong predictions" if shares else "mean loss"
    return Plot(
        "The models of the path: errors, and the room of the tightest cell",
        axis_of(f"{title}, training rows", errors, least=POINTS, percent=shares),
        axis_of(
            "room of the tightest cell below its bound, training rows",
            [float(row["room"]) for row in rows],
            include=0.0,
        ),
        lines,
        (0.0, "its bound"),
    )


def _measure(name: str) -> str:
    return {
        "error": "share of wrong predictions",
        "worst_cell_loss": "mean loss of the worst cell",
        "worst_group_loss": "mean loss of the worst group",
    }.get(name, name.replace("_", " "))


def _interval(row: Mapping[str, Any], x: str, y: str) -> Ends:
    """Ends for unseen people along both axes, where they are known."""
    names = {"error": "error", "worst_cell_loss": "worst"}
    left, right, low, high = (
        _known(row.get(f"test_{names.get(name, name)}_{side}"))
        for name in (x, y)
        for side in ("low", "high")
    )
    return left, right, low, high


def differences(table: Table, words: str) -> Rows:
    """Paired differences to one method: means with intervals, hollow where 0 is inside.

    `table` has method, mean, low, high; see `Comparison.differences`.
    """
    rows, values = [], [0.0]
    for row in rows_of(table):
        ends = [_known(row["low"]), _known(row["high"])]
        mean, low, high = _known(row["mean"]), *ends
        if mean is None:
            continue
        shown = low is not None and high is not None and (low > 0 or high < 0)
        text = f"{row['method']}: {mean:+.4f}"
        marks = [Mark("shown" if shown else "open", mean, words=text)]
        values.append(mean)
        if low is not None and high is not None:
            span = f"{text} ({low:+.4f} to {high:+.4f})"
            marks.insert(0, Mark("interval", low, high, span))
            values += [low, high]
        rows.append(Row(str(row["method"]), tuple(marks)))
    series = {
        "shown": Series("a difference", "dot", "after"),
        "open": Series("no difference shown", "ring", "before"),
        "interval": Series("95 % interval over seeds", "range", "before"),
    }
    return Rows(words, axis_of("difference", values), rows, _used(series, rows))


def curves(table: Table, *, y: str) -> Plot:
    """Error against a measure on test rows, a curve each, with two standard errors.

    Joined are the points on the front by validation means.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(table):
        if _known(row.get("error")) is not None and _known(row.get(y)) is not None:
            found.setdefault(str(row["curve"]), []).append(row)
    lines, xs, ys = [], [], []
    for i, (name, rows) in enumerate(list(found.items())[:MOST_LINES]):
        points = [(float(r["error"]), float(r[y])) for r in rows]
        spans = [(*_around(r, "error"), *_around(r, y)) for r in rows]
        seen = [[r.get("validation_error"), r.get(f"validation_{y}")] for r in rows]
        best = np.flatnonzero(front(np.array(seen, dtype=float)))
        joined = sorted(points[j] for j in best)
        lines += [
            Line("", points, "marks", spans, f"c{i}", [str(r["bound"]) for r in rows]),
            Line(name, joined, "line", colour=f"c{i}"),
        ]
        xs += [v for p, s in zip(points, spans, strict=True) for v in (p[0], *s[:2])]
        ys += [v for p, s in zip(points, spans, strict=True) for v in (p[1], *s[2:])]
    return Plot(
        f"Error against {_measure(y)} on test rows, a line for each curve",
        axis_of("error", [v for v in xs if v is not None], percent=True, least=POINTS),
        axis_of(_measure(y), [v for v in ys if v is not None]),
        lines,
    )


def _around(row: Mapping[str, Any], name: str) -> tuple[float | None, float | None]:
    error = _known(row.get(f"{name}_se"))
    if error is None:
        return None, None
    return float(row[name]) - SURE * error, float(row[name]) + SURE * error
