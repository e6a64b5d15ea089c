"""From a table to a chart: each figure is defined here, once, for all who draw it.

A table is a DataFrame, or rows: mappings with the same keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from pffl.figures.chart import (
    MOST_LINES,
    Axis,
    Line,
    Mark,
    Plot,
    Row,
    Rows,
    Series,
    axis_of,
)
from pffl.text import decimals, down, up

if TYPE_CHECKING:
    import pandas as pd

Table: TypeAlias = "pd.DataFrame | Iterable[Mapping[str, Any]]"

MOST_ROWS = 40
MOST_POINTS = 400  # of a line
FURTHEST = 0.5  # how far beyond the largest loss, as a part of it, upper bounds go
LITTLE = 0.1  # of the largest loss: an axis is at least so wide
POINTS = 0.05  # the same of a share: five points
SMALLEST = 1e-6  # of an e-value that is drawn
MOST_ALARMS = 1e3  # times an alarm: e-values are drawn so far
CELLS = {
    "known": Series(
        "training rows, as far as noise lets it be known", "range", "after", -1
    ),
    "change": Series("", "arrow", "before", -1),
    "before": Series("training rows, unconstrained", "ring", "before", -1),
    "after": Series("training rows", "dot", "after", -1),
    "bound": Series("bound", "tick", "bound"),
    "held": Series("test rows", "diamond", "test", 1),
    "promised": Series("up to what is certified at most", "span", "test", 1),
}
BESIDE = ("known", "after", "bound", "held", "promised")  # of several runs
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


def known(value: Any) -> float | None:
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
    held: str = "test rows",
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
        Whether the cell furthest above its bound, on any rows, comes first.
    most
        Cells that are drawn; the chart says how many are not.
    """
    cells = sorted(rows_of(table), key=urgency) if sort else rows_of(table)
    shown = cells[:most]
    drawn = [Row(str(cell["cell"]), tuple(_cell_marks(cell))) for cell in shown]
    axis = _cell_axis(shown if along is None else rows_of(along))
    series = {
        **CELLS,
        "after": replace(CELLS["after"], title=rows),
        "held": replace(CELLS["held"], title=held),
    }
    if any(m.to is not None and m.to > axis.high for r in drawn for m in r.marks):
        further = f"{CELLS['promised'].title} (an arrow: beyond the axis)"
        series["promised"] = replace(CELLS["promised"], title=further)
    if not any(mark.series == "held" for row in drawn for mark in row.marks):
        series = {key: replace(one, lane=0) for key, one in series.items()}
    return Rows(
        "Mean loss of each group: unconstrained, constrained, its bound, on test rows, "
        "and what is certified at most",
        axis,
        drawn,
        used(series, drawn),
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
        used(series, rows),
        len(found[0][1]) - len(cells),
    )


def urgency(cell: Mapping[str, Any]) -> float:
    """Sort by this: furthest above its bound, or with the largest loss, first."""
    losses = [known(cell.get(key)) for key in ("train_loss", "test_loss")]
    bound = known(cell.get("bound")) or 0.0
    return -max([loss - bound for loss in losses if loss is not None], default=-bound)


def used(series: Mapping[str, Series], rows: Iterable[Row]) -> dict[str, Series]:
    """Return the series of which something is drawn."""
    there = {mark.series for row in rows for mark in row.marks}
    return {key: one for key, one in series.items() if key in there}


def _cell_marks(cell: Mapping[str, Any]) -> Iterable[Mark]:
    name = str(cell["cell"])
    before, after, bound, held, upper = (
        known(cell.get(key))
        for key in (
            "before_train_loss",
            "train_loss",
            "bound",
            "test_loss",
            "test_upper",
        )
    )
    if bound is not None:
        yield Mark("bound", bound, words=f"{name}, bound: {decimals(bound)}")
    ends = known(cell.get("train_lower")), known(cell.get("train_upper"))
    if ends[0] is not None and ends[1] is not None:
        text = f"{name}, with noise: {down(ends[0])} to {up(ends[1])}"
        yield Mark("known", ends[0], ends[1], text)
    if before is not None and after is not None:
        yield Mark("change", before, after)
    start = after if held is None else held
    if start is not None and upper is not None:
        yield Mark("promised", start, upper, f"{name}, certified at most: {up(upper)}")
    for key, value, words in (
        ("held", held, "test"),
        ("before", before, "unconstrained"),
        ("after", after, "constrained" if before is not None else "loss"),
    ):
        if value is not None:
            yield Mark(key, value, words=f"{name}, {words}: {decimals(value)}")


def _cell_axis(cells: Sequence[Mapping[str, Any]]) -> Axis:
    """Room for all losses and bounds, and upper bounds as far as is useful.

    One small cell may have an upper bound of many times its loss; drawn in full it
    would press everything else into a corner, so the axis ends before it.
    """
    measured = ("train_loss", "test_loss", "before_train_loss", "bound")
    keys = (*measured, "train_lower", "train_upper")
    found = [known(cell.get(key)) for cell in cells for key in keys]
    values = [value for value in found if value is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    furthest = high + max(high - low, FURTHEST * high)
    uppers = [known(cell.get("test_upper")) for cell in cells]
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
        "interval": Series("interval", "range", "after"),
    }
    return Rows(
        "Share of wrong predictions, false positives and false negatives of each group",
        axis_of("share", values, least=POINTS, percent=True),
        rows,
        used(series, rows),
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


def budget(table: Table) -> Rows:
    """Where a privacy budget went: the part of each release, by split.

    `table` has what result.json has in `privacy`, under `releases`: name, split, mu.
    Squares of μ add up, so a part is μ² of the sum over the same people.
    """
    found = rows_of(table)
    rows, parts = [], []
    for split in dict.fromkeys(str(row["split"]) for row in found):
        same = [row for row in found if row["split"] == split]
        total = sum(float(row["mu"]) ** 2 for row in same)
        rows.append(Row(f"{split} rows"))
        for row in same:
            part = float(row["mu"]) ** 2 / total if total else 0.0
            words = f"{row['name']}: {_percent(part)}"
            mark = Mark("part", part, words=words)
            rows.append(Row(str(row["name"]), (mark,), _percent(part)))
            parts.append(part)
    return Rows(
        "Part of the privacy budget that each release took",
        axis_of("part of the budget", parts, include=0.0, percent=True, least=POINTS),
        rows,
        {"part": Series("", "bar", "after")},
    )


def site_losses(table: Table) -> Rows:
    """Per cell the lowest and highest mean loss of a site, and what one could hide.

    `table` has what result.json has in `sites`, under `cells`.
    """
    rows, values = [], []
    for cell in rows_of(table)[:MOST_ROWS]:
        name = str(cell["cell"])
        low, high = known(cell["lowest"]), known(cell["highest"])
        most = known(cell["train at most"])
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
        "most": Series("at most, whatever one site told", "tick", "c3"),
    }
    return Rows(
        "Mean loss of each cell between sites, and at most, whatever one told",
        axis_of(
            "mean loss, training rows", values, least=LITTLE * max(values, default=1)
        ),
        [row for row in rows if row.marks],
        used(series, rows),
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
    there = {name: line for name, line in found.items() if line}
    top = sorted(there, key=lambda name: -there[name][-1][1])[:MOST_LINES]
    lines = {name: line for name, line in there.items() if name in top}
    return _over_rounds(lines, words, left=len(there) - len(lines))


def e_values(table: Table) -> Plot | None:
    """E-value of each cell by batch, logarithmic, and where an alarm is.

    `table` is `Monitor.history`: batch, cell, e_value, threshold. Drawn are the cells
    that come nearest to an alarm. None where there is no batch.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    rows = rows_of(table)
    for row in rows:
        points = found.setdefault(str(row["cell"]), [])
        points.append((float(row["batch"]), float(row["e_value"])))
    if not found:
        return None
    limit = float(rows[-1]["threshold"])
    most = MOST_ALARMS * limit
    cut = any(y > most for line in found.values() for _, y in line)
    for name, line in found.items():
        found[name] = [(x, min(max(y, SMALLEST), most)) for x, y in line]
    top = sorted(found, key=lambda name: -max(y for _, y in found[name]))[:MOST_LINES]
    lines = {name: line for name, line in found.items() if name in top}
    points = [point for line in lines.values() for point in line]
    return Plot(
        "E-value of each cell by batch, and where an alarm is",
        axis_of("batch", [x for x, _ in points], whole=True),
        axis_of(
            f"e-value, drawn up to {most:,.0f}" if cut else "e-value",
            [y for _, y in points],
            include=limit,
            log=True,
        ),
        [
            Line(name, line, "line" if len(line) > 1 else "marks", colour=f"c{i}")
            for i, (name, line) in enumerate(lines.items())
        ],
        (limit, f"alarm at {limit:.4g}"),
        len(found) - len(lines),
    )


def _series(
    rows: Sequence[Mapping[str, Any]], column: str, above: float = -math.inf
) -> list[tuple[float, float]]:
    """Points of a line, thinned to what can be seen."""
    found = [(float(row["round"]), known(row.get(column))) for row in rows]
    points = [(x, y) for x, y in found if y is not None and y > above]
    step = max(1, len(points) // MOST_POINTS)
    return points[::step] + ([points[-1]] if step > 1 else [])


def _over_rounds(
    lines: Mapping[str, list[tuple[float, float]]],
    words: str,
    *,
    log: bool = False,
    left: int = 0,
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
        left=left,
    )
