"""Charts of many models: sweeps, paths, comparisons of methods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pffl.figures.chart import (
    MOST_LINES,
    Ends,
    Line,
    Mark,
    Plot,
    Row,
    Rows,
    Series,
    axis_of,
)
from pffl.figures.tables import LITTLE, POINTS, Table, known, rows_of, used
from pffl.numerics import front

COLOUR_OF = {"certified": "test", "not certified": "bound"}  # others are grey
UNDECIDED = "no difference shown"  # of a study that decides
SURE = 2.0  # standard errors that are drawn to each side
POINT = 0.01  # of a difference: an axis is at least one point of a share wide


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
        (known(row.get(f"test_{x}")), known(row.get(f"test_{y}"))) for row in rows
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
            Line(
                "trained models, darker where there are more",
                there,
                "crowd",
                colour="before",
            ),
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


def _interval(row: Mapping[str, Any], x: str, y: str) -> Ends:
    """Ends for unseen people along both axes, where they are known."""
    names = {"error": "error", "worst_cell_loss": "worst"}
    left, right, low, high = (
        known(row.get(f"test_{names.get(name, name)}_{side}"))
        for name in (x, y)
        for side in ("low", "high")
    )
    return left, right, low, high


def differences(table: Table, words: str, *, shares: bool = False) -> Rows:
    """Paired differences to one method, with intervals; hollow where none is shown.

    Parameters
    ----------
    table
        `method`, `mean`, `low` and `high`, see `Comparison.differences`; and, where a
        study has decided, `verdict`: in words, which then say whether a difference is
        shown (any but "" and `UNDECIDED`), unless `shown` does. Without it, one is
        where 0 is not between the ends.
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
        note = str(row.get("verdict") or "")
        apart = low is not None and high is not None and (low > 0 or high < 0)
        shown = bool(row.get("shown", note != UNDECIDED if note else apart))
        text = f"{row['method']}: {signed(mean, shares)}"
        marks = [Mark("shown" if shown else "open", mean, words=text)]
        values.append(mean)
        if low is not None and high is not None:
            ends = f"{text} ({signed(low, shares)} to {signed(high, shares)})"
            marks.insert(0, Mark("interval", low, high, ends))
            values += [low, high]
        rows.append(Row(str(row["method"]), tuple(marks), note))
    loose = [row.note for row in rows if row.marks[-1].series == "open"]
    sure = {"", UNDECIDED}.issuperset(loose)
    series = {
        "shown": Series("a difference", "dot", "after"),
        "open": Series(UNDECIDED if sure else "none shown for sure", "ring", "before"),
        "interval": Series("95 % interval over seeds", "range", "before"),
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


def curves(table: Table, *, y: str) -> Plot:
    """Error against a measure on test rows, a curve each, with two standard errors.

    Joined are the points on the front by validation means.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(table):
        if known(row.get("error")) is not None and known(row.get(y)) is not None:
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
        axis_of(
            _measure("error"),
            [v for v in xs if v is not None],
            percent=True,
            least=POINTS,
        ),
        axis_of(
            _measure(y),
            [v for v in ys if v is not None],
            least=LITTLE
            * max((b for line in lines for _, b in line.points), default=1),
        ),
        lines,
        left=max(0, len(found) - MOST_LINES),
    )


def _around(row: Mapping[str, Any], name: str) -> tuple[float | None, float | None]:
    error = known(row.get(f"{name}_se"))
    if error is None:
        return None, None
    return float(row[name]) - SURE * error, float(row[name]) + SURE * error
