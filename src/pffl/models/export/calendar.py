"""The parts of a date in ONNX, by whole-number arithmetic on days since 1970-01-01."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from pffl.data.dates import YEAR, Part
from pffl.models.export.graph import Graph

# Years here begin in March, so that a leap day is their last; four centuries are an era
# of always as many days (H. Hinnant, "chrono-compatible low-level date algorithms").
ERA, BEFORE_1970 = 146_097, 719_468


def part_in_graph(graph: Graph, days: str, part: Part, origin: str | None) -> str:
    """Add the year, years until `origin`, or the place of month or weekday."""
    if part == "weekday":
        return graph.add("Mod", graph.add("Add", days, 3), 7)
    if part == "age":
        until = int(np.datetime64(origin or "1970-01-01").astype(np.int64))
        since = graph.cast(graph.add("Sub", until, days), TensorProto.DOUBLE)
        return graph.add("Div", since, YEAR)
    year, month = _year_and_month(graph, days)
    return month if part == "month" else graph.cast(year, TensorProto.DOUBLE)


def _year_and_month(graph: Graph, days: str) -> tuple[str, str]:
    """Add the year, and the place of the month in it, of days after the year 0."""
    add = graph.add
    since = add("Add", days, BEFORE_1970)
    era = add("Div", since, ERA)
    day = add("Mod", since, ERA)
    leap = add("Sub", add("Div", day, 36_524), add("Div", day, 1_460))
    leap = add("Sub", leap, add("Div", day, ERA - 1))
    year = add("Div", add("Add", day, leap), 365)  # of the era
    leaps = add("Sub", add("Div", year, 4), add("Div", year, 100))
    before = add("Add", add("Mul", year, 365), leaps)
    of_year = add("Sub", day, before)
    march = add("Div", add("Add", add("Mul", of_year, 5), 2), 153)  # 0 is March
    month = add("Mod", add("Add", march, 2), 12)
    begun = graph.cast(add("Less", month, 2), TensorProto.INT64)
    whole = add("Add", year, add("Mul", era, 400))
    return add("Add", whole, begun), month
