"""One self-contained page: runs by their evidence, comparisons by their records."""

from __future__ import annotations

import csv
import json
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files as packaged
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pffl import __version__
from pffl.errors import ArtefactError, MissingExtraError
from pffl.evidence.conclude import Conclusions, conclude
from pffl.evidence.monitor import STATE, Monitor, assumptions, shown
from pffl.evidence.monitor import read as read_monitor
from pffl.evidence.record import Evidence
from pffl.evidence.tables import Shown
from pffl.experiments import Comparison
from pffl.figures import Plot, Rows, e_values, side_by_side
from pffl.figures.html import as_html, css
from pffl.foreign import Audit
from pffl.reports import card
from pffl.reports.comparison_view import ComparisonView
from pffl.reports.grid import GLOSSARY, Grid, number
from pffl.reports.run_view import RunView
from pffl.runs.directory import (
    CERTIFICATE,
    EVIDENCE,
    HISTORY,
    REPORT,
    RESULT,
    SPEC,
    read_evidence,
)
from pffl.solution import Solution
from pffl.text import visible

if TYPE_CHECKING:
    from pffl.runs import RunDirectory

COMPARED = "comparison.json"
Subject: TypeAlias = (
    "Solution | Audit | Evidence | Comparison | Monitor | str | os.PathLike[str]"
)


@dataclass(frozen=True)
class MonitorView:
    """A monitor: how it stands, and the e-values of its cells over batches."""

    name: str
    monitor: Monitor

    @property
    def assumes(self) -> Sequence[str]:
        """What an alarm stands on."""
        return assumptions(self.monitor.settings)

    @property
    def cells(self) -> Grid:
        """How each cell stands."""
        return Grid.of("How each cell stands", shown(self.monitor))

    @property
    def chart(self) -> Plot | None:
        """E-values by batch, and where an alarm is."""
        return e_values(self.monitor.history)


@dataclass(frozen=True)
class Contents:
    """What a page shows."""

    runs: list[RunView] = field(default_factory=list)
    comparisons: list[ComparisonView] = field(default_factory=list)
    monitors: list[MonitorView] = field(default_factory=list)
    certificates: list[Any] = field(default_factory=list)

    def add(self, run: RunView, path: Path | None = None) -> None:
        """Take up a run, with its certificate: the one that was stored, if any."""
        self.runs.append(run)
        if path is not None and path.is_file():
            self.certificates.append(json.loads(path.read_bytes()))
        elif run.conclusions.evidence.stopped != "interrupted":
            self.certificates.append(run.conclusions.certified())

    @property
    def certificate(self) -> str:
        """What the page of one run can be verified by: certificate.json, embedded."""
        one = len(self.runs) == len(self.certificates) == 1
        return embedded(self.certificates[0]) if one else ""

    @property
    def title(self) -> str:
        """What the page is called."""
        if len(self.runs) > 1:
            return f"{len(self.runs)} runs side by side"
        if self.runs:
            return _titled(self.runs[0].result["data"]["name"], self.runs[0].kind)
        if self.comparisons:
            return _titled(self.comparisons[0].name, "comparison")
        if self.monitors:
            return _titled(self.monitors[0].name, "monitor")
        return "Nothing to show"

    @property
    def glance(self) -> Grid | None:
        """Several runs in a table."""
        if len(self.runs) < 2:
            return None
        rows = []
        for run in self.runs:
            found = run.result["test"] or run.result["train"]
            words = {v.title: Shown(f"{v.sign} {v.word}") for v in run.verdicts}
            error = found["error"]
            rows.append(
                {
                    "run": run.name,
                    **dict(
                        zip(
                            ("training", "held-out", "promised"),
                            words.values(),
                            strict=True,
                        )
                    ),
                    "wrong": "–" if error is None else f"{100 * error:.1f} %",
                    "worst cell": found["worst_cell_loss"],
                    "risk": found["risk"],
                }
            )
        return Grid.of("Runs at a glance", rows)

    @property
    def beside(self) -> Rows | None:
        """The cells of several runs in one picture, where they have the same ones."""
        tables = [(run.name, run.drawn) for run in self.runs]
        names = {tuple(cell["cell"] for cell in cells) for _, cells in tables}
        return side_by_side(tables) if len(tables) > 1 and len(names) == 1 else None


def _titled(name: str, kind: str) -> str:
    return kind.capitalize() if name == kind else f"{name}: {kind}"


def report(
    *subjects: Subject,
    out: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> str:
    """Return one self-contained page that opens without a network, as HTML.

    Parameters
    ----------
    subjects
        Solutions, audits, evidence, comparisons, monitors, or folders that hold one of
        them or a deployed run that goes on; or the file of a monitor.
    out
        A file to write the page to.
    title
        Of the page.

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
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), seed=0)
    >>> pffl.report(solution)[:15]
    '<!doctype html>'
    """
    page = render(subjects, title=title)
    if out is not None:
        try:
            Path(out).write_text(page, encoding="utf-8")
        except OSError as error:
            raise ArtefactError(f"[cannot-write] {out}: {error.strerror}") from error
    return page


def render(
    subjects: Iterable[Subject],
    *,
    title: str | None = None,
    known: Conclusions | None = None,
) -> str:
    """Return the page as HTML text.

    `known` are the conclusions of the run that a folder holds, where they were drawn.
    Then its page is made as the run made it: without a monitor, which came later.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("report", "a report") from error
    found, here = collect(subjects, known), packaged("pffl.reports")

    def read(name: str) -> str:
        return here.joinpath(name).read_text("utf-8")

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(read),
        trim_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "visible": visible,
        "chart": as_html,  # with every name escaped
    }
    explorers = [run.path for run in found.runs if run.path is not None]
    return environment.get_template("page.html").render(
        title=title or found.title,
        page=found,
        glossary=GLOSSARY,
        version=__version__,
        css=css() + read("page.css"),
        script=read("page.js"),
        data=embedded([one.data for one in explorers]),
        certificate=found.certificate,
    )


def collect(subjects: Iterable[Subject], known: Conclusions | None = None) -> Contents:
    """Lay out every subject; a folder that is none of ours is refused."""
    found, every = Contents(), list(subjects)
    for subject in every:
        match subject:
            case Solution():
                c, history = subject.conclusions, subject.history_rows()
                view = RunView("", c, history, predictor=subject.predictor)
                found.add(view)
            case Audit():
                found.add(RunView("", subject.conclusions))
            case Evidence():
                found.add(RunView("", conclude(subject)))
            case Comparison():
                found.comparisons.append(ComparisonView.of(subject, "methods"))
            case Monitor():
                found.monitors.append(MonitorView("rows so far", subject))
            case _:
                _read(Path(subject), found, known, alone=len(every) == 1)
    return found


def _read(
    place: Path, found: Contents, known: Conclusions | None, *, alone: bool
) -> None:
    """Lay out what a folder holds, or the file of a monitor."""
    name = place.resolve().name
    watched = place / STATE if place.is_dir() else place
    if watched.is_file() and known is None:
        found.monitors.append(MonitorView(name, read_monitor(watched)))
        if watched == place:
            return
    if (place / EVIDENCE).is_file():
        spec, c = place / SPEC, known or conclude(read_evidence(place))
        view = RunView(
            "" if alone else name,
            c,
            _rows(place / HISTORY),
            spec.read_text("utf-8") if spec.is_file() else "",
            card.own_model(place, c.evidence),
        )
        found.add(view, place / CERTIFICATE)
    elif (place / COMPARED).is_file():
        found.comparisons.append(ComparisonView.of(Comparison.load(place), name))
    elif compared := sorted(place.glob(f"*/{COMPARED}")):  # panels of a figure
        for one in compared:
            of = Comparison.load(one.parent)
            found.comparisons.append(ComparisonView.of(of, one.parent.name))
    elif (place / RESULT).is_file():
        read_evidence(place)  # says what to do
    elif not watched.is_file():
        raise ArtefactError(
            f"[unknown-folder] {place}: neither a run, nor an audit, a "
            "comparison or a monitor"
        )


def write_report(place: RunDirectory, known: Conclusions | None = None) -> None:
    """Add the page of a run to its directory; warn if the extra for it is missing."""
    try:
        place.add(REPORT, render([place.directory], known=known).encode())
    except MissingExtraError as error:
        warnings.warn(str(error), stacklevel=2)


def embedded(value: object) -> str:
    """Return JSON that cannot end the script element that holds it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for sign, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(sign, escape)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
