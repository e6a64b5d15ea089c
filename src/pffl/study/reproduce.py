"""The figures of the paper, run again: every point of every curve on every seed.

``reproduction/<figure>/spec.toml`` holds what the paper claims, the data, the curves
with all that is tried, and when that was fixed. The files are shipped with the package.
Panels run on `experiment`; what came of one is a plain record (`PanelResult.as_dict`),
from which tables, pictures and the page of all claims (`published`) are made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import Field

from pffl.data.federation import Federation
from pffl.errors import ArtefactError, UsageError
from pffl.files import Journal, plain, write
from pffl.models.base import Model
from pffl.models.linear import default_model
from pffl.models.recipes import RECIPES
from pffl.preparation import Options
from pffl.records import Record, read, read_toml
from pffl.study import experiment
from pffl.study.compare import overlap
from pffl.study.decisions import Decision, bootstrapped, decide
from pffl.study.experiment import LEAST_PEOPLE, WITHIN, Seeds, Split, Study
from pffl.study.shares import mine
from pffl.study.sweep import Report, notion_of, quiet
from pffl.study.trial import COSTS, NO_OPTIMA, Footing, Trial

FORMAT = "pffl.panel"
VERSION = 2
FIGURES = ("local-vs-global", "tradeoff", "parity", "fedminmax", "qffl")
STEPS = 11  # allowances of a front
DIGITS = 6

Open: TypeAlias = Callable[[Mapping[str, Any], Seeds], Federation]


@dataclass(frozen=True)
class Curve(Record):
    """One method with the values that are tried.

    Attributes
    ----------
    label, method
        What to call it, and its name in `METHODS`.
    notion
        Of the bounds that it trains with, if it is not the panel's.
    bounds
        Bounds to try; empty where the method has none.
    grid
        Parameters to try, every combination; one value may stand without a list. ``l2``
        is the model's.
    budget
        Gradients per silo, where fewer than the figure's are enough to converge.
    fewer
        Why it has fewer trials than the other curves, if it has.
    optimum
        Whether what the method descends is solved, with a proof, instead of trained;
        from a checkout only.
    """

    label: str
    method: str
    notion: str | None = None
    bounds: tuple[float, ...] = ()
    grid: dict[str, Any] = field(default_factory=dict)
    budget: int | None = None
    fewer: str = ""
    optimum: bool = False


@dataclass(frozen=True)
class Claim(Record):
    """What the paper says, made checkable.

    Attributes
    ----------
    text
        The claim in words.
    better, others
        Label of the curve that should have the smaller measure, and of the others.
    margin
        By how much it may be larger: above 0 for "comparable to".
    """

    text: str
    better: str
    others: Annotated[tuple[str, ...], Field(alias="than")]
    margin: float = 0.0


@dataclass(frozen=True)
class Panel(Record):
    """One plot: data, notion, curves, and how they are judged.

    Attributes
    ----------
    name, title
        Its file, and what it shows.
    data, model
        Sections of a run file; the model of a network, by default what labels ask for.
    notion, fallback
        Cells that are measured, and a bound for methods that have none.
    measure, within, least_people
        By which trials are chosen, within how much error, and from how many people on a
        cell counts, see `experiment`.
    trials
        Of each curve; drawn from its grid where that has more.
    widest
        The largest allowance of error that fronts show.
    seeds, budget
        Of this panel alone.
    cut
        What was made smaller than in the paper, in words.
    """

    name: str
    data: dict[str, Any]
    notion: str
    fallback: Annotated[float, Field(alias="fallback_bound")]
    measure: str
    trials: int
    curves: Annotated[tuple[Curve, ...], Field(alias="curve")]
    claims: Annotated[tuple[Claim, ...], Field(alias="claim")] = ()
    title: str = ""
    within: float = WITHIN
    least_people: int = LEAST_PEOPLE
    widest: float = 0.05
    seeds: int | None = None
    budget: int | None = None
    model: dict[str, Any] | None = None
    cut: str = ""

    def plans(self) -> dict[str, list[Trial]]:
        """Return the trials of each curve."""
        return {curve.label: self._trials(curve) for curve in self.curves}

    def _trials(self, curve: Curve) -> list[Trial]:
        notion = notion_of(curve.notion or self.notion)
        bounds: list[tuple[float | None, float]] = [(b, b) for b in curve.bounds]
        bounds = bounds or [(None, self.fallback)]
        points = [
            Trial(
                curve.label,
                curve.method,
                values,
                notion(bound),
                told,
                curve.budget,
                curve.optimum,
            )
            for values in experiment.combinations(curve.grid)
            for told, bound in bounds
        ]
        return experiment.drawn(points, self.trials)

    @property
    def reasons(self) -> dict[str, str]:
        """Why curves have fewer trials than others."""
        return {c.label: c.fewer for c in self.curves if c.fewer}


@dataclass(frozen=True)
class Figure(Record):
    """A figure of the paper.

    Attributes
    ----------
    title, paper
        What it is, and what the paper says of it.
    fixed
        When the grids were fixed, and in view of what.
    seeds, budget
        How many, and gradients per silo for each trial, unless a panel has its own.
    """

    name: str
    title: str
    paper: str
    fixed: str
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
            raise UsageError(
                f"[unknown-panel] '{self.name}' has no such panel: there are {there}"
            )
        return found


def load(figure: str, path: Path | None = None) -> Figure:
    """Read the spec of a figure, the shipped one unless a file is given."""
    if figure not in FIGURES and path is None:
        raise UsageError(
            f"[unknown-figure] no figure '{figure}': there are {', '.join(FIGURES)}"
        )
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
        raise ArtefactError(f"[file-missing] the spec of '{figure}' was not shipped")
    return source


# Running it


def run_figure(
    figure: Figure,
    open_data: Open,
    *,
    panels: Sequence[str] | None = None,
    budget: int | None = None,
    seeds: int | None = None,
    vary: Sequence[str] = (),
    out: str | os.PathLike[str] | None = None,
    share: tuple[int, int] | None = None,
    report: Report = quiet,
) -> list[PanelResult]:
    """Run the panels asked for (all by default); finished points are not run again.

    `budget` (gradients per silo) and `seeds` stand above those of the figure; `vary`
    names the draws that differ between seeds (silos, split, training; all if none).
    With a `share`, as (2, 3) for the second of three, its seeds are only trained, into
    `out`, and nothing comes of it (`study.shares`).
    """
    wanted = [p for p in figure.panels if panels is None or p.name in panels]
    for panel in wanted:
        if any(curve.optimum for curve in panel.curves) and Footing.optima is None:
            raise UsageError(f"[no-optima] panel '{panel.name}': {NO_OPTIMA}")
    journal = Journal(None if out is None else Path(out) / "rows.jsonl")
    results = []
    for panel in wanted:
        gradients = budget or panel.budget or figure.budget
        numbers = range(seeds or panel.seeds or figure.seeds)
        opened: dict[str, Federation] = {}

        def at(
            number: int,
            panel: Panel = panel,
            gradients: int = gradients,
            opened: dict[str, Federation] = opened,
        ) -> Footing:
            draws = Seeds.of(number, vary)
            federation = open_data(panel.data, draws)
            opened.setdefault("first", federation)
            model = build_model(panel.model, federation)
            shared = (gradients, number, draws.training, Options(), journal)
            return Footing(federation, model, *shared)

        def told(what: str, done: int, total: int, name: str = panel.name) -> None:
            report(f"{name}: {what}", done, total)

        study = experiment.run(
            panel.plans(),
            mine(numbers, share),
            at,
            measure=panel.measure,
            within=panel.within,
            least=panel.least_people,
            reasons=panel.reasons,
            all_on_test=True,
            report=told,
        )
        if share is not None:
            continue
        first = opened["first"]
        shared = 0.0 if first.synthetic else overlap(first)
        study = replace(study, overlap=shared)
        study.audit()
        sizes = {split: first.rows(split) for split in first.splits}
        ran = replace(panel, seeds=len(numbers), budget=gradients)
        results.append(PanelResult(figure, ran, study, sizes, len(first.silos)))
    return results


def build_model(section: Mapping[str, Any] | None, federation: Federation) -> Model:
    """Return a panel's model: the network it names, or what the labels ask for."""
    if section is None:
        return default_model(federation.schema)
    values = dict(section)
    kind = values.pop("kind", None)
    if kind not in RECIPES:
        there = ", ".join(RECIPES)
        raise UsageError(
            f"[unknown-model] no model '{kind}': a panel's model is one of {there}"
        )
    return RECIPES[kind](**values).build(federation.schema)


# What came of it


@dataclass(frozen=True)
class PanelResult:
    """What a panel came to.

    Attributes
    ----------
    figure, panel
        What was run, with the seeds and the budget that were used.
    study
        All rows.
    sizes, silos
        Rows of each split on the first seed, and the number of silos.
    """

    figure: Figure
    panel: Panel
    study: Study
    sizes: Mapping[str, int]
    silos: int

    @property
    def allowances(self) -> list[float]:
        """Allowances of error at which fronts are drawn."""
        return [float(a) for a in np.linspace(0.0, self.panel.widest, STEPS)]

    @property
    def cut(self) -> str:
        """What was made smaller than in the paper, or than the spec has it."""
        planned = next(
            (p.seeds for p in self.figure.panels if p.name == self.panel.name), None
        )
        ran, wanted = len(self.study.seeds), planned or self.figure.seeds
        fewer = f"{ran} of {wanted} seeds were run." if ran < wanted else ""
        return f"{self.panel.cut} {fewer}".strip()

    @cached_property
    def judged(self) -> list[tuple[Claim, dict[str, Decision], dict[str, Decision]]]:
        """Each claim: decisions on its measure, and on the error of the same trials.

        All comparisons of the panel are corrected for together.
        """
        measure, differences, errors = self.panel.measure, {}, {}
        values, wrong = (self.study.reported(name) for name in (measure, "error"))
        for i, claim in enumerate(self.panel.claims):
            for other in claim.others:
                place = f"{i} {other}"
                differences[place] = _apart(values, claim.better, other, claim.margin)
                errors[place] = _apart(wrong, claim.better, other, 0.0)
        shared = self.study.overlap
        found, beside = (decide(d, overlap=shared) for d in (differences, errors))
        return [
            (
                claim,
                {other: found[f"{i} {other}"] for other in claim.others},
                {other: beside[f"{i} {other}"] for other in claim.others},
            )
            for i, claim in enumerate(self.panel.claims)
        ]

    @property
    def seconds(self) -> float:
        """How long all trials trained, of the clock on the wall."""
        tested = (row for row in self.study.rows if row.split == "test")
        return round(sum(row.costs.get("seconds", 0.0) for row in tested), 1)

    def means(self) -> list[dict[str, Any]]:
        """Per curve: the chosen trials on test rows, and what they cost; means."""
        out = []
        measure, chosen = self.panel.measure, self.study.chosen()
        for label in self.study.arms:
            tested = [self.study.on_test(row) for row in chosen[label].values()]
            rows = [row for row in tested if row is not None]
            values = [self.study.values(row) for row in rows]
            gaps = [row.gap for row in rows if row.gap is not None]
            line: dict[str, Any] = {"curve": label, "seeds": len(rows)}
            line |= {"trials": self.study.trials[label]}
            for name in (measure, "error"):
                known = [v for one in values if (v := one[name]) is not None]
                line[name] = float(np.mean(known)) if known else None
            line |= {
                name: float(np.mean([row.costs[name] for row in rows]))
                if rows
                else None
                for name in COSTS
            }
            line["largest_gap"] = max(gaps) if len(gaps) == len(rows) and gaps else None
            out.append(line)
        return out

    def fronts(self, chosen_on: Split = "validation") -> list[dict[str, Any]]:
        """Each curve's front on test rows, with the ends of its band."""
        measure = self.panel.measure
        found = self.study.front(measure, self.allowances, chosen_on)
        return [
            {
                "curve": label,
                "allowance": point["allowance"],
                "error": point["error"],
                measure: point["value"],
                f"{measure}_low": point["low"],
                f"{measure}_high": point["high"],
            }
            for label, points in found.items()
            for point in points
        ]

    def areas(self, chosen_on: Split = "validation") -> list[dict[str, Any]]:
        """Mean height of each curve's front, with a bootstrap interval over seeds."""
        found = self.study.areas(self.panel.measure, self.allowances, chosen_on)
        out = []
        for label, by_seed in found.items():
            values = list(by_seed.values())
            low, high = bootstrapped(values) or (None, None)
            mean = float(np.mean(values)) if values else None
            line = {"curve": label, "area": mean, "low": low, "high": high}
            out.append({**line, "seeds": len(values)})
        return out

    def points(self) -> list[dict[str, Any]]:
        """Every trial of every curve: error and measure on each seed, both splits."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for row in self.study.rows:
            key = (row.arm, str((row.bound, dict(row.parameters))))
            head = {"curve": row.arm, "bound": row.bound}
            one = found.setdefault(key, {**head, "parameters": dict(row.parameters)})
            values = self.study.values(row)
            pair = [values["error"], values[self.panel.measure]]
            short = [None if v is None else round(v, DIGITS) for v in pair]
            one.setdefault(row.split, {})[str(row.seed)] = short
        return list(found.values())

    def as_dict(self) -> dict[str, Any]:
        """Plain form: how it was run, the claims, means, fronts, areas, all points."""
        claims = [
            {
                "text": claim.text,
                "better": claim.better,
                "margin": claim.margin,
                "against": [
                    {"curve": o, **asdict(found[o]), "error": asdict(wrong[o])}
                    for o in claim.others
                ],
            }
            for claim, found, wrong in self.judged
        ]
        panel = self.panel
        found = {
            "name": panel.name,
            "figure": self.figure.name,
            "title": panel.title or panel.name,
            "data": panel.data,
            "rows": dict(self.sizes),
            "silos": self.silos,
            "measure": panel.measure,
            "within": panel.within,
            "budget": panel.budget,
            "seeds": len(self.study.seeds),
            "overlap": self.study.overlap,
            "seconds": self.seconds,
            "terms": self.study.terms,
            "cut": self.cut,
            "claims": claims,
            "means": self.means(),
            "fronts": self.fronts(),
            "fronts_on_test": self.fronts("test"),
            "areas": self.areas(),
            "areas_on_test": self.areas("test"),
            "points": self.points(),
        }
        return {"format": FORMAT, "version": VERSION, **plain(found)}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write what was measured; a line for each entry."""
        lines = [
            f"{json.dumps(key)}: {_lines(value)}"
            for key, value in self.as_dict().items()
        ]
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        write(Path(folder) / f"{self.panel.name}.json", text.encode())


def _lines(value: Any) -> str:
    """JSON of an entry, the parts of a list on lines of their own."""
    if not (isinstance(value, list) and value):
        return json.dumps(value, ensure_ascii=False)
    parts = [json.dumps(one, ensure_ascii=False) for one in value]
    return "[\n " + ",\n ".join(parts) + "\n]"


def _apart(
    values: Mapping[str, Mapping[int, float | None]], a: str, b: str, margin: float
) -> list[float]:
    """Differences by seed, less the margin; NaN where one is undefined."""
    pairs = [(values[a][seed], values[b][seed]) for seed in values[a]]
    return [np.nan if x is None or y is None else x - y - margin for x, y in pairs]
