"""One self-contained page: runs by their evidence, comparisons by their records."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from pffl import __version__, figures
from pffl._monitor import STATE, Monitor
from pffl._monitor import read as read_monitor
from pffl._report import card, packaged, render_template
from pffl._report.svg import as_html, css
from pffl.errors import ArtefactError, MissingExtraError
from pffl.evidence import tables
from pffl.evidence.conclude import Conclusions, conclude
from pffl.evidence.record import Evidence, Missing, known
from pffl.evidence.tables import Shown
from pffl.experiments import Comparison
from pffl.figures import DotPlot, Plot
from pffl.models.predictor import Predictor
from pffl.runs import (
    CARD,
    CERTIFICATE,
    HISTORY,
    REPORT,
    RESULT,
    SPEC,
    read_evidence,
    read_history,
)
from pffl.solution import Result
from pffl.text import LOWER, UPPER, decimals, figure, up, visible, words

if TYPE_CHECKING:
    from pffl.runs import RunDirectory

COMPARED = "comparison.json"
MAX_TABLE_ROWS = 40  # a longer table scrolls in its own place
MAX_CHART_GROUPS = 15  # of the first picture; the table below has all
Subject: TypeAlias = "Result | Evidence | Comparison | Monitor | str | os.PathLike[str]"


# Tables


@dataclass(frozen=True)
class Grid:
    """A table of the page; no column is empty.

    On a narrow screen each row is a card (``stack``), or one with an entry a line
    (``stack list``), or the table scrolls (``scroll``).
    """

    about: str
    rows: Sequence[Mapping[str, Any]]
    narrow: str = "stack"
    meanings: Mapping[str, str] = field(default_factory=dict)

    @property
    def look(self) -> str:
        """Its classes; a long one scrolls in its own place."""
        return f"{self.narrow} long" if len(self.rows) > MAX_TABLE_ROWS else self.narrow

    @cached_property
    def lines(self) -> list[dict[str, Shown]]:
        """The entries as they are shown, by title."""
        names = list(self.rows[0]) if self.rows else []
        told = [{k: as_shown(k, row[k]) for k in names} for row in self.rows]
        nothing = {k: ("–", "no") if k == "vacuous" else ("–",) for k in names}
        kept = [k for k in names if any(r[k].text not in nothing[k] for r in told)]
        return [{"group" if k == "cell" else k: row[k] for k in kept} for row in told]


def as_shown(name: str, value: Any) -> Shown:
    """Write an entry of column `name`, with the digits of the other tables."""
    if isinstance(value, Shown):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return Shown("–")
    if isinstance(value, bool) or (isinstance(value, float) and name in UPPER + LOWER):
        return Shown(figure(name, value))
    if name in ("people", "rows") and isinstance(value, float):
        value = round(value)  # noise was added to it
    if isinstance(value, int):
        return Shown(f"{value:,}")
    if isinstance(value, float):
        tiny = name in ("margin", "multiplier", "weight") and abs(value) < 1e-6
        return Shown("0" if tiny else decimals(value))
    return Shown(visible(str(value)))


# What is shown


@dataclass(frozen=True)
class RunView:
    """A run or an audit: what its templates need besides its conclusions."""

    c: Conclusions
    history: Sequence[Mapping[str, Any]] = ()
    spec: str = ""
    predictor: Predictor | None = None
    stored: Any = None  # the certificate in its folder
    card: str = ""  # where it was made already

    @cached_property
    def result(self) -> dict[str, Any]:
        """What result.json holds."""
        return self.c.result()

    @cached_property
    def certificate(self) -> Any:
        """What certificate.json holds; of an interrupted run nothing is certified."""
        if self.c.evidence.stopped == "interrupted":
            return None
        return self.stored or self.c.certified()

    @property
    def title(self) -> str:
        """On what data it was, and what it is."""
        e, kind = self.c.evidence, "run" if self.c.evidence.trained else "audit"
        deployed = e.trained and not isinstance(e.sites, Missing)
        return f"{e.data.name}: {'deployed ' * deployed}{kind}"

    @property
    def seal(self) -> str:
        """The hash of certificate.json."""
        return "" if self.certificate is None else card.seal(self.c)

    @property
    def group_chart(self) -> DotPlot:
        """The one picture: losses, bounds, test rows, upper bounds."""
        noise = (self.result["privacy"] or {}).get("cells", [])
        ends = {
            one["cell"]: {"train_lower": one["lower"], "train_upper": one["upper"]}
            for one in noise
        }
        cells = [
            {**cell, **ends.get(cell["cell"], {})} for cell in self.result["cells"]
        ]
        rows, test = "training rows", f"{tables.splits(self.c.evidence)[1]} rows"
        if not self.c.evidence.trained:  # all of them are test rows
            rows, cells = "rows used", [{**cell, "test_loss": None} for cell in cells]
        words = {"rows": rows, "test": test, "measure": self.c.measure}
        return figures.group_losses(cells, **words, most=MAX_CHART_GROUPS)

    @property
    def measured(self) -> str:
        """What bounds are on, as a heading."""
        rate = self.c.evidence.terms.on_rates
        return f"{self.c.measure.capitalize()}s" if rate else "Losses"

    @property
    def groups(self) -> Grid:
        """Losses and bounds of groups, with multipliers, in the order of the chart."""
        cells, columns = self.result["cells"], tables.columns(self.c, self.c.cells)
        rows = [
            {"group": cell["cell"], **{one.title: one.figures[z] for one in columns}}
            for z, cell in enumerate(cells)
        ]
        if self.c.evidence.promise and self.c.evidence.trained:
            for row, cell in zip(rows, cells, strict=True):
                row["multiplier"] = cell["multiplier"]
        order = sorted(range(len(cells)), key=lambda z: figures.excess(cells[z]))
        meanings = {one.title: one.meaning for one in columns}
        return Grid(
            f"{self.measured} by group", [rows[z] for z in order], meanings=meanings
        )

    @property
    def tested(self) -> Plot | None:
        """The models that were tested for a certificate, where there were several."""
        path, models = known(self.c.evidence.path), tables.path_models(self.c)
        if path is None or len(models) < 2:
            return None
        means = [self.c.losses_of(one.training).means for one in path.candidates]
        places = [
            {**model, "room": float((self.c.evidence.bounds - own).min())}
            for model, own in zip(models, means, strict=True)
        ]
        return figures.trade_off(places, shares=bool(self.c.evidence.labels))

    @property
    def sliders(self) -> list[dict[str, Any]]:
        """Decisions at other thresholds, and of other models that were tested.

        Of each step the weight that is selected, per group and label.
        """
        e, found = self.c.evidence, list[dict[str, Any]]()
        if (scores := known(e.scores)) is not None:
            order = np.argsort(scores.thresholds, kind="stable").tolist()
            named = " and ".join(scores.splits).replace("train", "training")
            steps = [f"threshold {scores.thresholds[k]:g}" for k in order]
            found.append({"title": f"Another threshold, {named} rows", "steps": steps})
            found[-1] |= {"at": order.index(0), "totals": scores.totals}
            found[-1]["selected"] = [scores.selected[k] for k in order]
        path = known(e.path)
        if path is not None and len(path.candidates) > 1 and len(e.labels) == 2:
            tried = [one.calibration.strata for one in path.candidates]
            steps = [f"model {k} of {len(tried)}" for k in range(1, len(tried) + 1)]
            title = f"Tighter and looser bounds, {path.split} rows"
            found.append({"title": title, "steps": steps, "at": path.chosen})
            found[-1]["totals"] = tried[path.chosen]["weight"]
            found[-1]["selected"] = [strata["positive"] for strata in tried]
        return [{**slider, "groups": e.groups} for slider in found]

    @property
    def witness(self) -> list[dict[str, Any]]:
        """The weights that prove bounds impossible."""
        weights = self.result["witness"] or {}
        return [{"group": cell, "weight": w} for cell, w in weights.items()]

    @property
    def releases(self) -> Grid:
        """What noise was added to, and what part of the budget each release took."""
        rows, found = [], self.result["privacy"]["releases"]
        for one in found:  # squares of μ add up over the same people
            spent = sum(r["mu"] ** 2 for r in found if r["split"] == one["split"])
            row = {"what": f"{one['name']}, {one['split']} rows", "times": one["times"]}
            row |= {"one person changes": one["sensitivity"], "noise": one["sigma"]}
            row["noise of all sites"] = one["deviation"]
            part = f"{100 * one['mu'] ** 2 / spent:.1f} %" if spent else None
            rows.append({**row, "part of the budget": part})
        return Grid("What was released", rows, "stack list")


@dataclass(frozen=True)
class ComparisonView:
    """A comparison of methods: paired differences, means, costs."""

    name: str
    found: Comparison

    @property
    def differences(self) -> Iterable[tuple[DotPlot, Grid]]:
        """Paired differences as a chart and as a table, the smallest first."""
        measures = dict.fromkeys([self.found.measure, "error"])
        for measure in measures if len(self.found.methods) > 1 else ():
            shares = measure == "error"
            words = f"{figures.measure_name(measure)} on test rows: difference to "
            words += f"{self.found.reference}, seed by seed"
            rows = figures.rows_of(self.found.differences(measure))
            rows = sorted(rows, key=lambda row: row["mean"])
            table = [
                {
                    "method": str(row["method"]),
                    "difference": figures.signed(row["mean"], shares),
                    "from": figures.signed(row["low"], shares),
                    "to": figures.signed(row["high"], shares),
                    "these data": str(row["word"]),
                    "other people": str(row["population_word"]),
                    "seeds": int(row["seeds"]),
                }
                for row in rows
            ]
            chart = figures.differences(rows, words, shares=shares)
            if chart.rows:
                yield chart, Grid(words, table)

    @property
    def front(self) -> Plot | None:
        """The trade-off curves, where methods were tried with several settings."""
        return self.found.chart() if self.found.table["trials"].max() > 1 else None

    @property
    def means(self) -> Grid:
        """Means on test rows with their standard errors, and what training took."""
        about = "Means on test rows, and cost of training"
        return Grid(about, self.found.means, "stack list")


class Contents(NamedTuple):
    """What a page shows: a run, which may have a monitor; comparisons; a monitor."""

    title: str
    run: RunView | None = None
    comparisons: Sequence[ComparisonView] = ()
    monitor: tuple[str, Monitor] | None = None


# The page


def report(
    subject: Subject,
    *,
    out: str | os.PathLike[str] | None = None,
) -> str:
    """Return one self-contained page that opens without a network, as HTML.

    Parameters
    ----------
    subject
        A solution, an audit, evidence, a comparison, a monitor; a folder that holds one
        of them, or the file of a monitor.
    out
        A file to write the page to.

    Returns
    -------
    str
        The page.

    Raises
    ------
    MissingExtraError
        The extra ``report`` is not installed.
    ArtefactError
        A folder holds none of these, or `out` cannot be written.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), random_state=0)
    >>> pffl.report(solution)[:15]
    '<!doctype html>'
    """
    return card.written(render(subject), out)


def render(
    subject: Subject, *, known: Conclusions | None = None, made: str = ""
) -> str:
    """Return the page as HTML text.

    `known` are the conclusions of the run that a folder holds, where they were drawn.
    Then its page is made as the run made it: without a monitor, which came later.
    `made` is its model card.
    """
    match subject:
        case Result():
            c, history = subject.conclusions, subject.history_rows()
            model = subject.predictor if c.evidence.trained else None
            view = RunView(c, history, predictor=model)
            found = Contents(view.title, view)
        case Evidence():
            view = RunView(conclude(subject))
            found = Contents(view.title, view)
        case Comparison():
            compared = [ComparisonView("methods", subject)]
            found = Contents("methods: comparison", comparisons=compared)
        case Monitor():
            told = ("rows so far", subject)
            found = Contents("rows so far: monitor", monitor=told)
        case _:
            found = _read(Path(subject), known, made)
    filters = {
        "chart": as_html,  # with every name escaped
        "titled": lambda text: text[:1].upper() + text[1:],
        "words": words,
        "up": up,
    }
    return render_template(
        "page.html",
        filters,
        title=found.title,
        page=found,
        tables=tables,
        Grid=Grid,
        charts=figures,
        card=card,
        embedded=embedded,
        glossary=json.loads(packaged("glossary.json")),
        version=__version__,
        css=css() + packaged("page.css"),
        script=packaged("page.js"),
    )


def _read(place: Path, known: Conclusions | None, made: str) -> Contents:
    """Lay out what a folder holds, or the file of a monitor."""
    name, watched = place.resolve().name, place / STATE if place.is_dir() else place
    monitor = None
    if watched.is_file() and known is None:
        monitor = (name, read_monitor(watched))
    if (stored := place / CERTIFICATE).is_file():
        c, spec = known or conclude(read_evidence(place)), place / SPEC
        view = RunView(
            c,
            read_history(place / HISTORY),
            spec.read_text("utf-8") if spec.is_file() else "",
            card.own_model(place, c.evidence),
            json.loads(stored.read_bytes()),
            made,
        )
        return Contents(view.title, view, monitor=monitor)
    found = [place / COMPARED] if (place / COMPARED).is_file() else []
    if found or (found := sorted(place.glob(f"*/{COMPARED}"))):  # panels of a figure
        folders = [path.resolve().parent for path in found]
        views = [ComparisonView(f.name, Comparison.load(f)) for f in folders]
        return Contents(f"{views[0].name}: comparison", comparisons=views)
    if (place / RESULT).is_file():
        read_evidence(place)  # says what to do
    if monitor is None:
        raise ArtefactError("unknown-folder", place=place)
    return Contents(f"{name}: monitor", monitor=monitor)


def write_report(place: RunDirectory, c: Conclusions, *, page: bool = True) -> None:
    """Add card and page to a run's directory; warn if the extra is missing."""
    try:
        own = card.own_model(place.directory, c.evidence)
        made = card.markdown(c, own)
        place.add(CARD, made.encode())
        if page:
            html = render(place.directory, known=c, made=made)
            place.add(REPORT, html.encode())
    except MissingExtraError as error:
        warnings.warn(str(error), stacklevel=2)


def embedded(value: object) -> str:
    """Return JSON that cannot end the script element that holds it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for sign, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(sign, escape)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
