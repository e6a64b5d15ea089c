"""One self-contained page from run, sweep and comparison folders."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pffl.errors import ArtefactError, MissingExtraError
from pffl.files import Journal, json_text
from pffl.report import charts
from pffl.runs.directory import CERTIFICATE, REPORT
from pffl.study.sweep import front

if TYPE_CHECKING:
    from pffl.runs import RunDirectory
    from pffl.solution import Solution

MOST_LINES = 8  # cells drawn over rounds
MOST_ROUNDS = 400  # points of a line
STATUS_WORDS = {
    "met": "Every bound is met",
    "within_slack": "Within the stated slack",
    "not_met": "Not every bound is met",
    "infeasible": "Impossible, and proved",
    "diverged": "The run diverged",
    "interrupted": "Interrupted",
}


@dataclass(frozen=True)
class RunView:
    """A run directory, as the page shows it."""

    name: str
    result: Mapping[str, Any]
    certificate: Mapping[str, Any] | None
    spec: str
    cell_chart: str
    gap_chart: str
    loss_chart: str
    multiplier_chart: str
    legend: Sequence[str]


@dataclass(frozen=True)
class SweepView:
    """A sweep folder: points for the trade-off chart, and the front as a table."""

    name: str
    points: Sequence[Mapping[str, Any]]
    fronts: Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Folders:
    """What was found in the folders given."""

    runs: list[RunView] = field(default_factory=list)
    sweeps: list[SweepView] = field(default_factory=list)
    comparisons: list[Mapping[str, Any]] = field(default_factory=list)


def write_extras(
    place: RunDirectory, solution: Solution
) -> tuple[list[tuple[str, str]], list[str]]:
    """Add certificate and report to a run; return titles and names, and remarks.

    An interrupted run gets neither; a run without bounds, or without the extra
    ``report``, gets one of them.
    """
    if solution.status == "interrupted":
        return [], []
    added, notes = [], []
    if solution.problem.n_cells:
        place.add(CERTIFICATE, json_text(solution.certificate.as_dict()).encode())
        added.append(("Certificate", CERTIFICATE))
    try:
        place.add(REPORT, render([place.directory]).encode())
        added.append(("Report", REPORT))
    except MissingExtraError as error:
        notes.append(str(error))
    return added, notes


def render(directories: Sequence[Path], *, title: str | None = None) -> str:
    """Return the page as HTML text."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("report", "a report") from error
    found = collect(directories)
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"number": number, "margin": margin}
    here = files("pffl.report")
    template = environment.from_string(here.joinpath("page.html").read_text("utf-8"))
    first = found.runs[0].result if found.runs else None
    named = title or (
        f"{first['data'].get('name', 'run')}: pffl report" if first else "pffl report"
    )
    return template.render(
        title=named,
        runs=found.runs,
        sweeps=found.sweeps,
        comparisons=found.comparisons,
        words=STATUS_WORDS,
        css=here.joinpath("page.css").read_text("utf-8"),
        script=here.joinpath("page.js").read_text("utf-8"),
        data=embedded([{"points": s.points, "fronts": s.fronts} for s in found.sweeps]),
    )


def collect(directories: Sequence[Path]) -> Folders:
    """Read every folder; one that is none of ours is refused."""
    found = Folders()
    for directory in directories:
        if (directory / "result.json").is_file():
            found.runs.append(read_run(directory))
        elif (directory / "points.jsonl").is_file():
            found.sweeps.append(read_sweep(directory))
        elif (directory / "table.csv").is_file():
            found.comparisons.append(read_comparison(directory))
        else:
            raise ArtefactError(
                f"{directory}: neither a run, nor a sweep, nor a comparison"
            )
    return found


def read_run(directory: Path) -> RunView:
    """Read a run directory."""
    result = _json(directory / "result.json")
    certificate = directory / "certificate.json"
    spec = directory / "spec.toml"
    history = _rows(directory / "history.csv")
    names = [cell["cell"] for cell in result["cells"]][:MOST_LINES]
    return RunView(
        directory.name,
        result,
        _json(certificate) if certificate.is_file() else None,
        spec.read_text("utf-8") if spec.is_file() else "",
        charts.cell_chart(result["cells"]),
        charts.line_chart(
            {
                "gap": _series(history, "gap"),
                "violation": _series(history, "worst_violation"),
            },
            "Measured gap and worst violation by round, logarithmic",
            log=True,
        ),
        charts.line_chart(
            {name: _series(history, f"loss: {name}") for name in names},
            "Mean loss of each cell by round",
        ),
        charts.line_chart(
            {name: _series(history, f"multiplier: {name}") for name in names},
            "Multiplier of each cell by round",
        ),
        names,
    )


def read_sweep(directory: Path) -> SweepView:
    """Read a sweep folder; chosen on validation where there is one."""
    import numpy as np

    rows = [row for row in Journal(directory / "points.jsonl") if row["reason"] is None]
    points = [
        {
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
        for row in rows
    ]
    fronts: dict[str, list[int]] = {}
    for notion in dict.fromkeys(row["notion"] for row in rows):
        index = [i for i, row in enumerate(rows) if row["notion"] == notion]
        split = (
            "validation"
            if rows[index[0]].get("validation_error") is not None
            else "test"
        )
        values = np.array(
            [
                [
                    _float(rows[i].get(f"{split}_error")),
                    _float(rows[i].get(f"{split}_worst_cell_loss")),
                ]
                for i in index
            ]
        )
        fronts[notion] = [index[i] for i in np.flatnonzero(front(values))]
    return SweepView(directory.name, points, fronts)


def read_comparison(directory: Path) -> Mapping[str, Any]:
    """Read a comparison folder."""
    return {"name": directory.name, "rows": _rows(directory / "table.csv")}


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
    return f"{plain:.2g}" if 0 < abs(plain) < 10.0**-digits else f"{plain:.{digits}f}"


def margin(value: float) -> str:
    """Write a margin or a multiplier; rounding of a solver is none."""
    return number(0.0 if abs(value) < 1e-6 else value)


def _series(
    rows: Sequence[Mapping[str, str]], column: str
) -> list[tuple[float, float]]:
    """Points of a line, thinned to what can be seen."""
    points = [(float(r["round"]), float(r[column])) for r in rows if r.get(column)]
    step = max(1, len(points) // MOST_ROUNDS)
    return points[::step] + ([points[-1]] if step > 1 else [])


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def _float(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(value, dict):
        raise ArtefactError(f"{path}: not one of our files")
    return value
