"""Comparisons as the page shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pffl import figures
from pffl.experiments import Comparison
from pffl.figures import Plot, Rows
from pffl.figures.studies import signed
from pffl.reports.grid import Grid

MEASURES = {
    "error": "wrong",
    "worst_cell_loss": "worst cell",
    "risk": "risk",
    "dp_gap": "DP gap",
    "eo_gap": "EO gap",
}
COSTS = {
    "rounds": "rounds",
    "passes": "passes over a silo's rows",
    "bytes": "MB sent",
    "seconds": "seconds",
}


@dataclass(frozen=True)
class ComparisonView:
    """A comparison of methods: paired differences, means, costs."""

    name: str
    reference: str
    terms: Sequence[str]
    differences: Sequence[tuple[Rows, Grid]]
    fronts: Sequence[Plot]
    means: Grid
    costs: Grid
    failed: Sequence[str]

    @classmethod
    def of(cls, found: Comparison, name: str) -> ComparisonView:
        """Lay out what was measured on test rows."""
        lines = figures.rows_of(found.table)
        reference = found.reference
        pairs = [
            _difference(found, measure)
            for measure in dict.fromkeys([found.measure, "error"])
            if len(found.methods) > 1
        ]
        means = [
            {
                "method": str(x["method"]),
                **{t: _mean(x, k) for k, t in MEASURES.items()},
            }
            for x in lines
        ]
        costs = [
            {"method": str(x["method"]), **{t: _spent(x, k) for k, t in COSTS.items()}}
            for x in lines
        ]
        return cls(
            name,
            reference,
            found.terms,
            [pair for pair in pairs if pair[0].rows],
            [found.chart()] if found.table["trials"].max() > 1 else [],
            Grid.of("Means on test rows", means, "stack list"),
            Grid.of("Costs of training", costs),
            [f"{x['method']} failed: {x['failed']}" for x in lines if x["failed"]],
        )


def _difference(found: Comparison, measure: str) -> tuple[Rows, Grid]:
    """Paired differences as a chart and as a table, the smallest first."""
    shares = measure == "error"
    title = measure.replace("_", " ")
    words = f"{title} on test rows: difference to {found.reference}, seed by seed"
    rows = figures.rows_of(found.differences(measure))
    rows = sorted(rows, key=lambda row: row["mean"])
    table = [
        {
            "method": str(row["method"]),
            "difference": signed(row["mean"], shares),
            "from": signed(row["low"], shares),
            "to": signed(row["high"], shares),
            "these data": str(row["word"]),
            "other people": str(row["population_word"]),
            "seeds": int(row["seeds"]),
        }
        for row in rows
    ]
    return figures.differences(rows, words, shares=shares), Grid.of(words, table)


def _mean(line: Mapping[str, Any], key: str) -> str:
    value, error = line[key], line[f"{key}_se"]
    if value is None or math.isnan(value):
        return "–"
    if key == "error":
        more = f" ± {100 * error:.1f}" if error > 0 else ""
        return f"{100 * value:.1f} %{more}"
    # What is the same in every seed was drawn once, however often it was run.
    return f"{value:.4f}" + (f" ± {error:.4f}" if error > 0 else "")


def _spent(line: Mapping[str, Any], key: str) -> str:
    value = line[key] / 1e6 if key == "bytes" else line[key]
    if math.isnan(value):
        return "–"
    return f"{value:,.2f}" if key in ("bytes", "seconds") else f"{value:,.0f}"
