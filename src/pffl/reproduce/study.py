"""Run a figure: every point of every curve on every seed, then check the claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pffl.compare.candidates import Candidate
from pffl.compare.comparison import Book, standard_error
from pffl.compare.trial import Row, Setting
from pffl.data.federation import Federation
from pffl.errors import UsageError
from pffl.models.base import Model
from pffl.models.recipes import RECIPES
from pffl.preparation import Options, default_model
from pffl.reproduce.spec import Claim, Curve, Figure, Panel
from pffl.sweep.grid import NOTIONS

if TYPE_CHECKING:
    import pandas as pd

Open = Callable[[Mapping[str, Any], int], Federation]
Report = Callable[[str, int, int], None]
Outcome = Literal["holds", "does not hold", "no difference measured"]


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
        """One line per point: test measures, mean and standard error over seeds."""
        import pandas as pd

        grouped: dict[tuple[str, float, str], list[Row]] = {}
        for points in self.points:
            for p in points:
                key = (p.curve, p.bound, str(dict(p.test.parameters)))
                grouped.setdefault(key, []).append(p.test)
        lines = []
        for (curve, bound, parameters), rows in grouped.items():
            line: dict[str, Any] = {
                "curve": curve,
                "bound": bound,
                "parameters": parameters,
            }
            good = [r for r in rows if r.reason is None]
            for name in ("error", *self.panel.measures):
                values = [v for r in good if (v := r.measures.get(name)) is not None]
                line[name] = float(np.mean(values)) if values else np.nan
                line[f"{name}_se"] = standard_error(values)
            line["failed"] = "; ".join(
                dict.fromkeys(r.reason for r in rows if r.reason)
            )
            lines.append(line)
        return pd.DataFrame(lines)


def run_figure(
    figure: Figure,
    open_data: Open,
    *,
    panels: Sequence[str] | None = None,
    budget: int | None = None,
    seeds: int | None = None,
    out: Path | None = None,
    report: Report = lambda what, done, total: None,
) -> list[PanelResult]:
    """Run the panels asked for (all by default); finished points are not run again.

    `budget` (gradients per silo) and `seeds` stand above those of the figure.
    """
    wanted = [p for p in figure.panels if panels is None or p.name in panels]
    book, count = Book(out), seeds or figure.seeds
    total = count * sum(
        len(curve.points(panel.fallback)) for panel in wanted for curve in panel.curves
    )
    done, results = 0, []
    for panel in wanted:
        by_seed = []
        for seed in range(count):
            federation = open_data(panel.data, seed)
            shared = _Shared(
                book,
                federation,
                build_model(panel.model, federation),
                panel.notion,
                budget or panel.budget or figure.budget,
                seed,
            )
            points = []
            for curve in panel.curves:
                for bound, parameters in curve.points(panel.fallback):
                    report(f"{panel.name}: {curve.label}, seed {seed}", done, total)
                    points.append(shared.point(curve, bound, parameters))
                    done += 1
            by_seed.append(points)
        checked = [check(claim, by_seed) for claim in panel.claims]
        results.append(PanelResult(panel, by_seed, checked))
    return results


@dataclass(frozen=True)
class _Shared:
    """What all points of a panel and seed have in common."""

    book: Book
    federation: Federation
    model: Model
    notion: str
    budget: int
    seed: int

    def point(self, curve: Curve, bound: float, parameters: Mapping[str, Any]) -> Point:
        """Train one point and measure it on validation and test rows."""
        constraint = NOTIONS[self.notion](bound)
        validation, test = self.book.find_or_run(
            self.federation,
            Setting(constraint, self.model, Options(), self.budget),
            Candidate(curve.method, {}),
            parameters=parameters,
            seed=self.seed,
            splits=("validation", "test"),
        )
        return Point(curve.label, bound, validation, test)


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
