"""Charts of many models: paths, comparisons of methods, fronts."""

from __future__ import annotations

import math
from typing import Any

from pffl.figures.chart import (
    MOST_LINES,
    Line,
    Mark,
    Plot,
    Row,
    Rows,
    Series,
    axis_of,
)
from pffl.figures.tables import LITTLE, POINTS, Table, known, rows_of, used

COLOUR_OF = {"certified": "test", "not certified": "bound"}  # others are grey
SHOWN = ("better", "worse")  # words of a difference
POINT = 0.01  # of a difference: an axis is at least one point of a share wide


def path(table: Table, *, shares: bool = True) -> Plot:
    """Draw the models of a path: what each costs, and how much room it leaves.

    `table` has for each model its `error` (a share, or a mean loss), `room` (of the
    tightest cell below its bound, on training rows), and `state`: certified, not
    certified or not tested.
    """
    rows = rows_of(table)
    states = dict.fromkeys(str(row["state"]) for row in rows)
    lines = [
        Line(
            state,
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


def differences(table: Table, words: str, *, shares: bool = False) -> Rows:
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
    rows, values = [], [0.0]
    for row in rows_of(table):
        mean, low, high = (known(row[key]) for key in ("mean", "low", "high"))
        if mean is None:
            continue
        word = str(row.get("word") or "")
        text = f"{row['method']}: {signed(mean, shares)}"
        marks = [Mark("shown" if word in SHOWN else "open", mean, words=text)]
        values.append(mean)
        if low is not None and high is not None:
            ends = f"{text} ({signed(low, shares)} to {signed(high, shares)})"
            marks.insert(0, Mark("interval", low, high, ends))
            values += [low, high]
        rows.append(Row(str(row["method"]), tuple(marks), word))
    series = {
        "shown": Series("better or worse", "dot", "after"),
        "open": Series("same or open", "ring", "before"),
        "interval": Series("the interval that decides", "range", "before"),
    }
    title = "difference, percentage points" if shares else "difference"
    axis = axis_of(title, values, percent=shares, least=POINT, signed=True)
    return Rows(words, axis, rows, used(series, rows))


def signed(value: float | None, shares: bool) -> str:
    """Write a difference, of shares in percentage points; a dash for none."""
    if value is None or math.isnan(value):
        return "–"
    return f"{100 * value:+.2f} points" if shares else f"{value:+.4f}"


def fronts(
    table: Table, *, x: str = "error", y: str = "worst_cell_loss", words: str = ""
) -> Plot:
    """Fronts of several methods: a line each, with a band over seeds.

    Parameters
    ----------
    table
        `curve`, the measures `x` and `y`, and the ends of the band of y under
        ``{y}_low`` and ``{y}_high``, in the order in which points are joined; of a
        curve that lacks an end of any point no band is drawn.
    x, y
        Names of measures.
    words
        What the chart shows; by default the two measures.
    """
    found: dict[str, list[list[float | None]]] = {}
    for row in rows_of(table):
        one = [known(row.get(key)) for key in (x, y, f"{y}_low", f"{y}_high")]
        if None not in one[:2]:
            found.setdefault(str(row["curve"]), []).append(one)
    lines, every = [], []
    for i, (name, rows) in enumerate(list(found.items())[:MOST_LINES]):
        several = len({(a, b) for a, b, _, _ in rows}) > 1
        shown = rows if several else rows[:1]  # a line without length is not seen
        points: Any = [(a, b) for a, b, _, _ in shown]
        ends: Any = [(low, high) for _, _, low, high in shown]
        band = [] if any(None in pair for pair in ends) else ends
        kind: Any = "line" if several else "marks"
        spans = [(None, None, *pair) for pair in band if kind == "marks"]
        lines.append(Line(name, points, kind, spans, f"c{i}", band=band))
        every += rows
    across = [row[0] for row in every if row[0] is not None]
    heights = [value for row in every for value in row[1:] if value is not None]
    shares = x == "error"
    return Plot(
        words or f"{_measure(y)} against {_measure(x)}, a line for each method",
        axis_of(_measure(x), across, percent=shares, least=POINTS * shares),
        axis_of(_measure(y), heights, least=LITTLE * max(heights, default=1.0)),
        lines,
        left=len(found) - len(lines),
    )
