"""Many models as the page shows them: sweeps, comparisons, figures run again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pffl import figures
from pffl.figures import Plot, Rows
from pffl.figures.studies import signed
from pffl.reports.explorer import COLUMNS, Explorer, flat
from pffl.reports.grid import Grid, number
from pffl.study import published
from pffl.study.compare import Comparison
from pffl.study.sweep import Sweep

MOST_SENTENCES = 2_000  # models whose sentences are on the page
MOST_FIGURES = 400_000  # numbers of cells on the page
TITLES = ("bound", "training", "held-out", "promised at most")
MEASURES = {
    "error": "wrong",
    "worst_cell_loss": "worst cell",
    "risk": "risk",
    "dp_gap": "DP gap",
    "eo_gap": "EO gap",
}
NOTIONS = {
    "bgl": "a bound for each group (bgl)",
    "cbgl": "a bound for each group and label (cbgl)",
    "cbgl-y1": "a bound for the positive of each group (cbgl-y1)",
    "cbgl-y0": "a bound for the negative of each group (cbgl-y0)",
    "per-silo": "a bound for each silo (per-silo)",
}
COSTS = {
    "rounds": "rounds",
    "passes": "passes over a silo's rows",
    "bytes": "MB sent",
    "seconds": "seconds",
}


@dataclass(frozen=True)
class SweepView:
    """A sweep: an explorer for each notion, whose cells differ."""

    name: str
    sentence: str
    note: str
    explorers: Sequence[Explorer]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], name: str) -> SweepView:
        """Lay out trained points; fronts are chosen on validation where there is it."""
        every = list(rows)
        good = [row for row in every if row["reason"] is None]
        counts = Counter(str(row["status"]) for row in good)
        told = ", ".join(f"{n:,} {status}" for status, n in counts.items())
        failed = len(every) - len(good)
        more = f"; {failed:,} failed" if failed else ""
        looks = sum("test_risk" in row for row in good)
        return cls(
            name,
            f"{len(good):,} models were trained: {told}{more}.",
            _looked(looks) if looks > 1 else "",
            [
                _explorer(notion, [row for row in good if row["notion"] == notion])
                for notion in dict.fromkeys(row["notion"] for row in good)
            ],
        )


def _looked(many: int) -> str:
    return (
        f"All {many:,} models were measured on the same test rows. What is said of one "
        "for people not seen holds if that one was picked without regard to these "
        "figures, on validation rows, say; whoever picks by them has to share the risk "
        f"among {many:,}, as 'pffl certify' does for a run in the sweep's folder."
    )


def _explorer(notion: str, found: Sequence[Mapping[str, Any]]) -> Explorer:
    """Lay out the models of one notion, in the order of their bounds."""
    rows = sorted(found, key=lambda row: (row["bound"], row["multiplier_bound"]))
    best = sorted(map(int, Sweep(tuple(rows)).front().index))
    plot = figures.tradeoff(rows, best=best)
    names = [cell["cell"] for cell in rows[0]["cells"]]
    met = [i for i in best if rows[i]["status"] == "met"]
    first = (met or best or [0])[0]  # the tightest bound that is met
    with_cells = len(rows) * len(names) * len(COLUMNS) <= MOST_FIGURES
    models = [
        {
            "t": _label(row),
            "s": _sentences(row) if len(rows) <= MOST_SENTENCES else [],
            "p": _place(row, plot),
            "c": flat(row["cells"]) if with_cells or i == first else [],
        }
        for i, row in enumerate(rows)
    ]
    every = [cell for row in rows for cell in row["cells"]]
    cells = figures.group_losses(rows[first]["cells"], along=every, sort=False)
    return Explorer(
        f"Smaller and larger bounds: {NOTIONS.get(notion, notion)}",
        names,
        plot,
        cells,
        {"names": names, "models": models, "titles": list(TITLES)},
        first,
        _front(rows, best),
    )


def _label(row: Mapping[str, Any]) -> str:
    """A model in short: what it was asked, and how that ended."""
    return (
        f"Bound {row['bound']:g}, multiplier bound {row['multiplier_bound']:g}: "
        f"{str(row['status']).replace('_', ' ')} on the training rows. Test rows: "
        f"{_with_ends(row, 'error')} wrong, worst cell "
        f"{number(row.get('test_worst_cell_loss'))}, DP gap "
        f"{number(row.get('test_dp_gap'))}, EO gap {number(row.get('test_eo_gap'))}."
    )


def _with_ends(row: Mapping[str, Any], name: str) -> str:
    value, low, high = (row.get(f"test_{name}{end}") for end in ("", "_low", "_high"))
    if value is None:
        return "–"
    ends = ""
    if low is not None and high is not None:
        ends = f" ({100 * low:.1f}–{100 * high:.1f})"
    return f"{100 * value:.1f} %{ends}"


def _sentences(row: Mapping[str, Any]) -> list[str]:
    """What was said of the point when it was trained; older sweeps did not keep it."""
    said = row.get("verdicts") or {}
    return [said[key] for key in ("training", "test", "new_people") if key in said]


def _place(row: Mapping[str, Any], plot: Plot) -> list[float] | None:
    x, y = row.get("test_error"), row.get("test_worst_cell_loss")
    if x is None or y is None:
        return None
    return [round(plot.x.at(x), 2), round(100 - plot.y.at(y), 2)]


def _front(rows: Sequence[Mapping[str, Any]], best: Sequence[int]) -> Grid:
    table = [
        {
            "bound": f"{rows[i]['bound']:g}",
            "multiplier bound": f"{rows[i]['multiplier_bound']:g}",
            "status": str(rows[i]["status"]),
            "wrong": _with_ends(rows[i], "error"),
            "worst cell": rows[i].get("test_worst_cell_loss"),
            "DP gap": rows[i].get("test_dp_gap"),
            "EO gap": rows[i].get("test_eo_gap"),
        }
        for i in best
    ]
    return Grid.of("Pareto front", table, "stack list")


@dataclass(frozen=True)
class ComparisonView:
    """A comparison of methods: paired differences, means, costs."""

    name: str
    reference: str
    terms: Sequence[str]
    differences: Sequence[tuple[Rows, Grid]]
    means: Grid
    costs: Grid
    failed: Sequence[str]

    @classmethod
    def of(cls, found: Comparison, name: str) -> ComparisonView:
        """Lay out what was measured on test rows."""
        lines = figures.rows_of(found.table)
        reference = found.reference
        pairs = [
            _difference(found, measure, title)
            for measure, title in (
                ("worst_cell_loss", "Worst cell's mean loss"),
                ("error", "Share of wrong predictions"),
            )
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
            found.study.terms,
            [pair for pair in pairs if pair[0].rows],
            Grid.of("Means on test rows", means, "stack list"),
            Grid.of("Costs of training", costs),
            [f"{x['method']} failed: {x['failed']}" for x in lines if x["failed"]],
        )


def _difference(found: Comparison, measure: str, title: str) -> tuple[Rows, Grid]:
    """Paired differences as a chart and as a table, the smallest first."""
    shares = measure == "error"
    words = f"{title} on test rows: difference to {found.reference}, seed by seed"
    rows = figures.rows_of(found.differences(measure))
    rows = sorted(rows, key=lambda row: row["mean"])
    table = [
        {
            "method": str(row["method"]),
            "difference": signed(row["mean"], shares),
            "from": signed(row["low"], shares),
            "to": signed(row["high"], shares),
            "it is": str(row["verdict"]),
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


@dataclass(frozen=True)
class PanelView:
    """A figure of the paper, run again: its fronts, and what came of its claims."""

    name: str
    terms: str
    plots: Sequence[Plot]
    claims: Sequence[tuple[str, Grid]]
    means: Grid
    points: Grid

    @classmethod
    def of(cls, panel: Mapping[str, Any]) -> PanelView:
        """Lay out a saved panel."""
        y, title = str(panel["measure"]), str(panel["title"])
        ways = (
            ("fronts", "fronts chosen on validation rows"),
            ("fronts_on_test", "chosen on test rows, the paper's way, which flatters"),
        )
        plots = [
            figures.fronts(panel[key], y=y, words=f"{title}: {way}")
            for key, way in ways
        ]
        words, within = published.at_allowances(panel), float(panel["within"])
        claims = [
            (str(one["text"]), _claim(one, words, within)) for one in panel["claims"]
        ]
        means = [
            {"curve": line["curve"], y.replace("_", " "): line[y]}
            | {"wrong": _share(line["error"]), "passes": line["passes"]}
            for line in panel["means"]
        ]
        points = [
            {
                "curve": str(row["curve"]),
                "wrong": _share(row["error"]),
                y.replace("_", " "): row[y],
                "from": row.get(f"{y}_low"),
                "to": row.get(f"{y}_high"),
            }
            for row in panel["fronts"]
        ]
        return cls(
            title,
            " ".join(panel["terms"]),
            plots,
            claims,
            Grid.of("Chosen on validation, means on test rows", means),
            Grid.of("Fronts chosen on validation rows", points),
        )


def _share(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f} %"


def _claim(
    one: Mapping[str, Any], words: Mapping[str, Mapping[float, str]], within: float
) -> Grid:
    margin = one["margin"]
    rows = [
        {
            "against": against["curve"],
            "difference": number(published.shifted(against["mean"], margin)),
            "95 %": published.interval(against, "", margin),
            "by permutation": published.interval(against, "permuted_", margin),
            "the claim": published.verdict(
                against, words[published.comparison(one, against)], within
            ).strip("*"),
        }
        for against in one["against"]
    ]
    return Grid.of(one["text"], rows, "stack list")
