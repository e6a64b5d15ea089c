"""One self-contained page: runs by their evidence, sweeps and comparisons by rows."""

from __future__ import annotations

import csv
import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files as packaged
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pffl import files
from pffl.errors import ArtefactError, MissingExtraError
from pffl.evidence import summary, verdict
from pffl.evidence.certificate import Certificate, grounds_of, mark, numbered
from pffl.evidence.evidence import Evidence
from pffl.evidence.monitor import ASSUMPTIONS, STATE, Monitor, shown
from pffl.evidence.monitor import read as read_monitor
from pffl.evidence.summary import Column, Figure, Verdict
from pffl.foreign import Audit
from pffl.models.predictor import Predictor
from pffl.reports import card, charts
from pffl.reports.card import seal
from pffl.reports.inputs import InputsThatMatter
from pffl.runs.directory import (
    EVIDENCE,
    HISTORY,
    REPORT,
    RESULT,
    SPEC,
    read_evidence,
)
from pffl.solution import Solution
from pffl.study.compare import Comparison
from pffl.study.sweep import Sweep
from pffl.text import UPPER, decimals, figure

if TYPE_CHECKING:
    from pffl.runs import RunDirectory

NOT_STATED = "not stated"
MOST_LINES = 8  # cells drawn over rounds
MOST_ROUNDS = 400  # points of a line
GLOSSARY = {
    "cell": "the people that one bound speaks of: a group, or those of a group with "
    "one label",
    "silo": "a place where rows live and stay: a hospital, a bank, a state",
    "loss": "how wrong a model's probabilities are; its mean over a cell is what a "
    "bound limits",
    "risk": "the mean loss of all, each silo weighed alike or by its rows",
    "held-out": "rows that were kept apart, and not trained on",
    "promised at most": "what the mean loss of people not seen is at most, by the "
    "held-out rows; it is wrong as rarely as its confidence says",
    "joint": "the same, for all cells at once and together with all else that is said",
    "vacuous": "says nothing: no smaller than the largest loss that there can be",
    "multiplier": "the price of a bound: 0 where it costs nothing to keep",
    "duality gap": "how far the model can be from the best trade-off between risk and "
    "bounds, at most",
    "wrong": "share of wrong predictions",
    "false positive": "predicted positive, among those who are not",
    "false negative": "predicted negative, among those who are positive",
    "DP gap": "demographic parity: how much more often one group is predicted positive "
    "than another",
    "EO gap": "equal opportunity: the same among those who are truly positive",
}

History: TypeAlias = Sequence[Mapping[str, Any]]
Subject: TypeAlias = (
    "Solution | Audit | Evidence | Sweep | Comparison | Monitor | str"
    " | os.PathLike[str]"
)


@dataclass(frozen=True)
class Grid:
    """A table: titles with what they mean, and rows.

    On a narrow screen each row is a card (``stack``), or one with an entry a line
    (``stack list``), or the table scrolls (``scroll``).
    """

    about: str
    heads: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Figure]]
    narrow: str = "stack"

    @classmethod
    def of(
        cls, about: str, rows: Sequence[Mapping[str, Any]], narrow: str = "stack"
    ) -> Grid:
        """Lay out mappings, all with the same keys."""
        names = list(rows[0]) if rows else []
        entries = [[Figure(entry(name, row[name])) for name in names] for row in rows]
        heads = [(name, GLOSSARY.get(name, "")) for name in names]
        return cls(about, heads, entries, narrow)


@dataclass(frozen=True)
class RunView:
    """A run, as the page shows it: all of it follows from evidence and history."""

    name: str
    result: Mapping[str, Any]
    verdicts: Sequence[Verdict]
    columns: Sequence[Column]
    rates: Grid
    rates_in_words: str
    measures: Grid
    loss_in_words: str
    risk_note: Sequence[str]
    fingerprint: str
    certificate: Mapping[str, Any] | None
    seal: str
    about: Mapping[str, str]
    card: str
    spec: str
    cell_chart: str
    gap_chart: str
    loss_chart: str
    multiplier_chart: str
    legend: Sequence[str]
    matter: InputsThatMatter | None

    @classmethod
    def of(
        cls,
        e: Evidence,
        history: History = (),
        *,
        name: str = "",
        spec: str = "",
        predictor: Predictor | None = None,
    ) -> RunView:
        """Lay out a run; of an interrupted one nothing is certified."""
        result, cells = verdict.result(e), verdict.cell_results(e)
        names = [cell.cell for cell in cells][:MOST_LINES]
        certificate = None if e.stopped == "interrupted" else verdict.certificate(e)

        def lines(words: str, what: str) -> str:
            series = {name: _series(history, f"{what}: {name}") for name in names}
            return charts.line_chart(series, words)

        return cls(
            name=name or e.data.name,
            result=result,
            verdicts=summary.verdicts(e),
            columns=summary.columns(e, cells),
            rates=Grid.of("Errors per group", summary.rate_table(e), "stack list"),
            rates_in_words=summary.rates_in_words(e),
            measures=Grid.of("Measures", summary.measures(e)),
            loss_in_words=summary.loss_in_words(e),
            risk_note=summary.risk_note(e),
            fingerprint=e.model.fingerprint,
            certificate=None if certificate is None else _laid_out(certificate),
            seal="" if certificate is None else seal(certificate),
            about={key: value or NOT_STATED for key, value in vars(e.about).items()},
            card=card.markdown(e, predictor),
            spec=spec,
            cell_chart=charts.cell_chart(result["cells"]),
            gap_chart=charts.line_chart(
                {
                    "gap": _series(history, "gap"),
                    "violation": _series(history, "worst_violation"),
                },
                "Measured gap and worst violation by round, logarithmic",
                log=True,
            ),
            loss_chart=lines("Mean loss of each cell by round", "loss"),
            multiplier_chart=lines("Multiplier of each cell by round", "multiplier"),
            legend=names,
            matter=None if predictor is None else InputsThatMatter.of(predictor),
        )

    def has(self, title: str) -> bool:
        """Whether the table of cells has a column."""
        return any(column.title == title for column in self.columns)

    @property
    def meanings(self) -> str:
        """What the columns of the table of cells mean."""
        return summary.meanings(self.columns)

    @property
    def cells(self) -> Grid:
        """The table of cells, with margins and multipliers."""
        rows = self.result["cells"]
        heads = [("cell", GLOSSARY["cell"])]
        heads += [(column.title, column.meaning) for column in self.columns]
        table = [
            [Figure(row["cell"]), *(column.figures[z] for column in self.columns)]
            for z, row in enumerate(rows)
        ]
        if self.has("bound") and self.result["method"]:
            heads.append(("multiplier", GLOSSARY["multiplier"]))
            for row, entries in zip(rows, table, strict=True):
                entries.append(Figure(margin(row["multiplier"])))
        return Grid("Losses per cell", heads, table)

    @property
    def inputs(self) -> Grid | None:
        """The table of inputs that matter."""
        if self.matter is None:
            return None
        rows = [list(map(Figure, row)) for row in self.matter.rows]
        return Grid("Inputs that matter", self.matter.heads, rows, "scroll")

    @property
    def witness(self) -> Grid:
        """The weights that prove bounds impossible."""
        weights = self.result["witness"] or {}
        rows = [{"cell": cell, "weight": margin(w)} for cell, w in weights.items()]
        return Grid.of("Witness", rows, "scroll")


def entry(name: str, value: object) -> str:
    """Write an entry of column `name`, with the digits of the other tables."""
    upper = name in UPPER and isinstance(value, float)
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return number(value) if plain and not upper else figure(name, value)


def _laid_out(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate in plain form, each statement with title, word and table.

    What they stand on is listed once; a statement has the numbers of its grounds.
    """
    statements, grounds = [], numbered(certificate)
    for one in certificate.statements:
        word, rows = mark(one), one.per_cell or ()
        statements.append(
            {
                **one.as_dict(),
                "title": one.title,
                "mark": word,
                "tone": summary.TONES.get(word, "bad"),
                "numbers": [grounds[g] for g in grounds_of(one)],
                "grid": Grid.of(one.kind, rows if one.kind != "measured" else ()),
            }
        )
    found = {"statements": statements, "notes": certificate.notes}
    return {**found, "grounds": list(grounds)}


@dataclass(frozen=True)
class SweepView:
    """A sweep: points for the trade-off chart, and the front as a table."""

    name: str
    points: Sequence[Mapping[str, Any]]
    fronts: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], name: str) -> SweepView:
        """Lay out trained points; fronts are chosen on validation where there is it."""
        good = [row for row in rows if row["reason"] is None]
        found = Sweep(tuple(good))
        fronts = {
            notion: sorted(map(int, found.front(notion=notion).index))
            for notion in dict.fromkeys(row["notion"] for row in good)
        }
        return cls(name, [_point(row) for row in good], fronts)


def _point(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point of a sweep in short."""
    return {
        "n": row["notion"],
        "b": row["bound"],
        "B": row["multiplier_bound"],
        "s": row["status"],
        "x": row.get("test_error"),
        "y": row.get("test_worst_cell_loss"),
        "i": [row.get("test_error_low"), row.get("test_error_high")],
        "d": [row.get("test_dp_gap"), row.get("test_eo_gap")],
        "c": [
            [c["cell"], _short(c["train_loss"]), c["bound"], _short(c["test_loss"])]
            for c in row["cells"]
        ],
    }


@dataclass(frozen=True)
class MonitorView:
    """A monitor: how it stands, and the e-values of its cells over batches."""

    name: str
    status: str
    message: str
    cells: Grid
    chart: str
    legend: Sequence[str]
    assumes: Sequence[str]
    model: str
    digest: str

    @classmethod
    def of(cls, found: Monitor, name: str) -> MonitorView:
        """Lay out a monitor; the line that is an alarm comes first."""
        cells, table = found.settings.names[: MOST_LINES - 1], found.history
        limit = f"alarm at {found.settings.threshold:.4g}"
        lines = {limit: [(r["batch"], r["threshold"]) for r in table]}
        for cell in cells:
            points = [(r["batch"], r["e_value"]) for r in table if r["cell"] == cell]
            lines[cell] = points
        words = "E-value of each cell by batch, logarithmic, and where an alarm is"
        return cls(
            name=name,
            status=found.status,
            message=found.message,
            cells=Grid.of("How each cell stands", shown(found)),
            chart=charts.line_chart(lines, words, log=True),
            legend=list(lines),
            assumes=ASSUMPTIONS,
            model=found.settings.model,
            digest=found.digest,
        )


@dataclass(frozen=True)
class Contents:
    """What a page shows."""

    runs: list[RunView] = field(default_factory=list)
    sweeps: list[SweepView] = field(default_factory=list)
    comparisons: list[Mapping[str, Any]] = field(default_factory=list)
    monitors: list[MonitorView] = field(default_factory=list)


def report(
    *subjects: Subject,
    out: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> str:
    """Return one self-contained page that opens without a network, as HTML.

    Parameters
    ----------
    subjects
        Solutions, audits, evidence, sweeps, comparisons, monitors, or folders that hold
        one of them; or the file of a monitor.
    out
        A file to write the page to.
    title
        Of the page.
    """
    page = render(subjects, title=title)
    if out is not None:
        try:
            Path(out).write_text(page, encoding="utf-8")
        except OSError as error:
            raise ArtefactError(f"{out}: {error.strerror}") from error
    return page


def render(subjects: Iterable[Subject], *, title: str | None = None) -> str:
    """Return the page as HTML text."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("report", "a report") from error
    found = collect(subjects)
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"number": number}
    here = packaged("pffl.reports")
    template = environment.from_string(here.joinpath("page.html").read_text("utf-8"))
    first = f"{found.runs[0].result['data']['name']}: " if found.runs else ""
    return template.render(
        title=title or f"{first}pffl report",
        runs=found.runs,
        sweeps=found.sweeps,
        comparisons=found.comparisons,
        monitors=found.monitors,
        glossary=GLOSSARY,
        today=datetime.now(UTC).date().isoformat(),
        css=here.joinpath("page.css").read_text("utf-8"),
        script=here.joinpath("page.js").read_text("utf-8"),
        data=embedded([{"points": s.points, "fronts": s.fronts} for s in found.sweeps]),
    )


def collect(subjects: Iterable[Subject]) -> Contents:
    """Lay out every subject; a folder that is none of ours is refused."""
    found = Contents()
    for subject in subjects:
        match subject:
            case Solution():
                history = subject.history_rows()
                view = RunView.of(
                    subject.evidence, history, predictor=subject.predictor
                )
                found.runs.append(view)
            case Audit():
                found.runs.append(RunView.of(subject.evidence))
            case Evidence():
                found.runs.append(RunView.of(subject))
            case Sweep():
                found.sweeps.append(SweepView.of(subject.rows, subject.data))
            case Comparison():
                rows = subject.table.reset_index().to_dict("records")
                found.comparisons.append({"name": "methods", "rows": rows})
            case Monitor():
                found.monitors.append(MonitorView.of(subject, "rows so far"))
            case _:
                _read(Path(subject), found)
    return found


def _read(place: Path, found: Contents) -> None:
    """Lay out what a folder holds, or the file of a monitor."""
    watched = place / STATE if place.is_dir() else place
    if watched.is_file():
        found.monitors.append(MonitorView.of(read_monitor(watched), place.name))
        if watched == place:
            return
    if (place / EVIDENCE).is_file():
        spec, e = place / SPEC, read_evidence(place)
        view = RunView.of(
            e,
            _rows(place / HISTORY),
            name=place.name,
            spec=spec.read_text("utf-8") if spec.is_file() else "",
            predictor=card.own_model(place, e),
        )
        found.runs.append(view)
    elif (place / "points.jsonl").is_file():
        rows = files.Journal(place / "points.jsonl")
        found.sweeps.append(SweepView.of(rows, place.name))
    elif (place / "table.csv").is_file():
        table = _rows(place / "table.csv")
        found.comparisons.append({"name": place.name, "rows": table})
    elif (place / RESULT).is_file():
        read_evidence(place)  # says what to do
    elif not watched.is_file():
        raise ArtefactError(
            f"{place}: neither a run, nor a sweep, a comparison or a monitor"
        )


def write_report(place: RunDirectory) -> None:
    """Add the page of a run to its directory; warn if the extra for it is missing."""
    try:
        place.add(REPORT, render([place.directory]).encode())
    except MissingExtraError as error:
        warnings.warn(str(error), stacklevel=2)


def embedded(value: object) -> str:
    """Return JSON that cannot end the script element that holds it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for sign, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(sign, escape)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def number(value: object, digits: int = 4) -> str:
    """Write a number for the page; a dash where there is none."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return str(value)
    try:
        plain = float(value)
    except ValueError:
        return str(value)
    if plain != plain:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return decimals(plain) if digits == 4 else f"{plain:.{digits}f}"


def margin(value: float) -> str:
    """Write a margin or a multiplier; rounding of a solver is none."""
    return "0" if abs(value) < 1e-6 else number(value)


def _series(rows: History, column: str) -> list[tuple[float, float]]:
    """Points of a line, thinned to what can be seen."""
    known = [(r["round"], r[column]) for r in rows if r.get(column) not in (None, "")]
    points = [(float(x), float(y)) for x, y in known if math.isfinite(float(y))]
    step = max(1, len(points) // MOST_ROUNDS)
    return points[::step] + ([points[-1]] if step > 1 else [])


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
