"""The figures of the paper, run again: every point of every curve on every seed.

``reproduction/<figure>/spec.toml`` holds what the paper claims, the data, and the
curves: methods with the values that are swept. The files are shipped with the package.
Only one command runs them: nothing else depends on the paper.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import Field

from pffl.data.federation import Federation
from pffl.errors import ArtefactError, UsageError
from pffl.files import Journal, json_text, plain, write
from pffl.models.base import Model
from pffl.models.linear import default_model
from pffl.models.recipes import RECIPES
from pffl.preparation import Options
from pffl.records import Record, read, read_toml
from pffl.study.compare import Footing, Row, averaged, standard_error
from pffl.study.sweep import Report, notion_of, quiet

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "pffl.panel"
FIGURES = ("local-vs-global", "tradeoff", "parity", "fedminmax", "qffl")

Open: TypeAlias = Callable[[Mapping[str, Any], int], Federation]
Outcome: TypeAlias = Literal["holds", "does not hold", "no difference measured"]


@dataclass(frozen=True)
class Curve(Record):
    """One method with the values that are swept.

    Attributes
    ----------
    label, method
        What to call it, and its name in `METHODS`.
    bounds
        Bounds to try, in the panel's notion; empty where the method has none.
    grid
        Parameters to try, every combination; one value may stand without a list.
    """

    label: str
    method: str
    bounds: tuple[float, ...] = ()
    grid: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim(Record):
    """What the paper says, made checkable.

    Attributes
    ----------
    text
        The claim in words.
    better, others
        Label of the curve that should win, and of those it is compared with.
    measure
        The measure that should be smaller.
    within
        How much more error than the best curve's is allowed when a point is chosen.
    """

    text: str
    better: str
    others: Annotated[tuple[str, ...], Field(alias="than")]
    measure: str
    within: Annotated[float, Field(alias="within_error")]


@dataclass(frozen=True)
class Panel(Record):
    """One plot: data, notion and curves.

    `budget` is of this panel alone: gradients per silo, where the figure's would take
    too long. `model` is the section of a network; by default what the labels ask for.
    """

    name: str
    data: dict[str, Any]
    notion: str
    fallback: Annotated[float, Field(alias="fallback_bound")]
    measures: tuple[str, ...]
    curves: Annotated[tuple[Curve, ...], Field(alias="curve")]
    claims: Annotated[tuple[Claim, ...], Field(alias="claim")]
    budget: int | None = None
    model: dict[str, Any] | None = None

    @property
    def points(self) -> list[tuple[Curve, float, dict[str, Any]]]:
        """Every point: its curve, its bound and its parameters."""
        return [
            (curve, bound, dict(zip(curve.grid, values, strict=True)))
            for curve in self.curves
            for values in itertools.product(*map(_listed, curve.grid.values()))
            for bound in (curve.bounds or (self.fallback,))
        ]


@dataclass(frozen=True)
class Figure(Record):
    """A figure of the paper."""

    name: str
    seeds: int
    budget: int
    panels: Annotated[tuple[Panel, ...], Field(alias="panel")]

    def names(self, panels: Sequence[str] | None, data: str | None) -> list[str]:
        """Return the names of some panels: those named, those on these data."""
        found = [
            panel.name
            for panel in self.panels
            if (panels is None or panel.name in panels)
            and (data is None or panel.data.get("name") == data)
        ]
        if not found:
            there = ", ".join(panel.name for panel in self.panels)
            raise UsageError(f"'{self.name}' has no such panel: there are {there}")
        return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def load(figure: str, path: Path | None = None) -> Figure:
    """Read the spec of a figure, the shipped one unless a file is given."""
    if figure not in FIGURES and path is None:
        raise UsageError(f"no figure '{figure}': there are {', '.join(FIGURES)}")
    return parse(figure, read_toml(path or spec_path(figure)))


def parse(name: str, table: Mapping[str, Any]) -> Figure:
    """Build the figure from the tables of its file."""
    return read(Figure, {"name": name, **table}, source=f"spec of '{name}'")


def spec_path(figure: str) -> Path:
    """Where the shipped spec lies: in the package, or in the source tree."""
    packaged = Path(str(files("pffl.study"))) / "figures" / figure / "spec.toml"
    if packaged.is_file():
        return packaged
    source = Path(__file__).parents[3] / "reproduction" / figure / "spec.toml"
    if not source.is_file():
        raise ArtefactError(f"the spec of '{figure}' was not shipped")
    return source


# Running it


@dataclass(frozen=True)
class Point:
    """One trained point: its curve, its bound, and its rows on two splits."""

    curve: str
    bound: float
    validation: Row
    test: Row


@dataclass(frozen=True)
class Checked:
    """A claim and what was measured.

    Attributes
    ----------
    chosen
        Per curve: mean and standard error over seeds of the measure on test, of the
        point chosen on validation, and the mean error of those points.
    outcomes
        Per other curve: whether the claim holds against it.
    """

    claim: Claim
    chosen: Mapping[str, tuple[float, float, float]]
    outcomes: Mapping[str, Outcome]


@dataclass(frozen=True)
class PanelResult:
    """All points of a panel, seed by seed, and its claims."""

    panel: Panel
    points: Sequence[Sequence[Point]]
    checked: Sequence[Checked]

    @property
    def table(self) -> pd.DataFrame:
        """One line per point: test measures, mean and standard error over seeds.

        And the means on validation rows, by which points are chosen.
        """
        import pandas as pd

        grouped: dict[tuple[str, float, str], list[Point]] = {}
        for points in self.points:
            for p in points:
                key = (p.curve, p.bound, str(dict(p.test.parameters)))
                grouped.setdefault(key, []).append(p)
        names = ("error", *self.panel.measures)
        lines = []
        for (curve, bound, parameters), found in grouped.items():
            seen = averaged([p.validation for p in found], names)
            head = {"curve": curve, "bound": bound, "parameters": parameters}
            aside = {f"validation_{name}": seen[name] for name in names}
            lines.append({**head, **averaged([p.test for p in found], names), **aside})
        return pd.DataFrame(lines)

    def as_dict(self) -> dict[str, Any]:
        """Plain form: the points, and what was measured of the claims."""
        claims = [
            {
                "text": one.claim.text,
                "measure": one.claim.measure,
                "curves": [
                    {
                        "label": label,
                        "mean": mean,
                        "standard_error": spread,
                        "error": error,
                        "outcome": one.outcomes.get(label),
                    }
                    for label, (mean, spread, error) in one.chosen.items()
                ],
            }
            for one in self.checked
        ]
        points = self.table.to_dict("records")
        measures = list(self.panel.measures)
        head = {"format": FORMAT, "version": 1, "name": self.panel.name}
        found = {"measures": measures, "points": points, "claims": claims}
        return {**head, **plain(found)}

    @property
    def markdown(self) -> str:
        """What was measured, claim by claim, as Markdown tables."""
        lines = [f"### {self.panel.name}", ""]
        for checked in self.checked:
            claim, outcomes = checked.claim, checked.outcomes
            lines += [
                f"Claim: {claim.text}",
                "",
                f"| curve | {claim.measure} (test) | error (test) | the claim |",
                "|---|---|---|---|",
            ]
            lines += [
                f"| {label} | {mean:.4f} ± {spread:.4f} | {error:.4f} | "
                f"{outcomes.get(label, '')} |"
                for label, (mean, spread, error) in checked.chosen.items()
            ]
            lines.append("")
        return "\n".join(lines)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the table, and what was measured of the claims."""
        place, name = Path(folder), self.panel.name
        write(place / f"{name}.csv", self.table.to_csv(index=False).encode())
        write(place / f"{name}.md", f"{self.markdown}\n".encode())
        write(place / f"{name}.json", json_text(self.as_dict()).encode())


def run_figure(
    figure: Figure,
    open_data: Open,
    *,
    panels: Sequence[str] | None = None,
    budget: int | None = None,
    seeds: int | None = None,
    out: str | os.PathLike[str] | None = None,
    report: Report = quiet,
) -> list[PanelResult]:
    """Run the panels asked for (all by default); finished points are not run again.

    `budget` (gradients per silo) and `seeds` stand above those of the figure.
    """
    wanted = [p for p in figure.panels if panels is None or p.name in panels]
    journal = Journal(None if out is None else Path(out) / "rows.jsonl")
    numbers = range(seeds or figure.seeds)
    total = len(numbers) * sum(len(panel.points) for panel in wanted)
    done, results = 0, []
    for panel in wanted:
        by_seed: list[list[Point]] = []
        for seed in numbers:
            federation = open_data(panel.data, seed)
            model = build_model(panel.model, federation)
            gradients = budget or panel.budget or figure.budget
            by_seed.append([])
            for curve, bound, parameters in panel.points:
                report(f"{panel.name}: {curve.label}, seed {seed}", done, total)
                constraint = notion_of(panel.notion)(bound)
                shared = (gradients, seed, Options(), journal)
                at = Footing(federation, constraint, model, *shared)
                rows = at.rows(curve.method, parameters, "validation", "test")
                by_seed[-1].append(Point(curve.label, bound, *rows))
                done += 1
        checked = [check(claim, by_seed) for claim in panel.claims]
        results.append(PanelResult(panel, by_seed, checked))
    return results


def build_model(section: Mapping[str, Any] | None, federation: Federation) -> Model:
    """Return a panel's model: the network it names, or what the labels ask for."""
    if section is None:
        return default_model(federation.schema)
    values = dict(section)
    kind = values.pop("kind", None)
    if kind not in RECIPES:
        there = ", ".join(RECIPES)
        raise UsageError(f"no model '{kind}': a panel's model is one of {there}")
    return RECIPES[kind](**values).build(federation.schema)


def choose(points: Sequence[Point], curve: str, claim: Claim) -> Point | None:
    """Choose a curve's point on validation: smallest measure within the error allowed.

    Allowed is the smallest validation error of any curve of the claim plus `within`; a
    curve with no such point is represented by its most accurate one.
    """
    labels = (claim.better, *claim.others)
    errors = [e for p in points if p.curve in labels and (e := _error(p)) is not None]
    own = [
        p
        for p in points
        if p.curve == curve
        and _error(p) is not None
        and p.validation.measures.get(claim.measure) is not None
    ]
    if not own:
        return None
    limit = min(errors) + claim.within
    inside = [p for p in own if (_error(p) or 0.0) <= limit]
    if not inside:
        return min(own, key=lambda p: _error(p) or 0.0)
    return min(inside, key=lambda p: float(p.validation.measures[claim.measure] or 0.0))


def _error(point: Point) -> float | None:
    return point.validation.measures.get("error")


def check(claim: Claim, by_seed: Sequence[Sequence[Point]]) -> Checked:
    """Compare the chosen points on test rows, seed by seed.

    The claim holds against a curve if the mean difference is below minus two standard
    errors; it does not hold if it is above plus two; otherwise nothing was measured.
    """
    values: dict[str, list[float]] = {}
    chosen: dict[str, tuple[float, float, float]] = {}
    for label in (claim.better, *claim.others):
        picked = [choose(points, label, claim) for points in by_seed]
        values[label] = [
            float("nan")
            if p is None
            else float(p.test.measures.get(claim.measure) or 0.0)
            for p in picked
        ]
        errors = [
            float(p.test.measures["error"] or 0.0) for p in picked if p is not None
        ]
        chosen[label] = (
            float(np.mean(values[label])),
            standard_error(values[label]),
            float(np.mean(errors)) if errors else float("nan"),
        )
    outcomes = {
        other: outcome(np.subtract(values[claim.better], values[other]))
        for other in claim.others
    }
    return Checked(claim, chosen, outcomes)


def outcome(differences: np.ndarray) -> Outcome:
    """Say what paired differences show; negative ones are in the claim's favour."""
    mean, error = float(np.mean(differences)), standard_error(list(differences))
    if np.isnan(mean) or np.isnan(error) or abs(mean) <= 2 * error:
        return "no difference measured"
    return "holds" if mean < 0 else "does not hold"
