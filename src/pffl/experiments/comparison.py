"""Methods × parameters × seeds, and what the differences show.

- Every method has the same splits, model and budget of gradients.
- A method with several trials (a grid, or its own search space) is represented on each
  seed by one of them, chosen on validation rows: the smallest measure among the trials
  whose error is within an allowance of the reference's smallest; where none is, the
  trial with the smallest error.
- A cell with fewer than `least_people` people on some seed is left out of "the worst".
- What is undefined is None, never 0. A trial that fails is a record with its reason.
- Differences to the reference are paired by seed and judged together (`statistics`).
"""

from __future__ import annotations

import itertools
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from importlib.resources import files as packaged
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pffl import files
from pffl._solve import open_engine, setting_of
from pffl.constraints import (
    BoundedGroupLoss,
    ConditionalBoundedGroupLoss,
    Constraint,
    MinMax,
    PerSilo,
)
from pffl.data.federation import Federation
from pffl.errors import NotMetError, UsageError
from pffl.evidence.looks import LOOKS, Look, hashed
from pffl.experiments.statistics import (
    DifferenceInterval,
    Judgement,
    choose,
    judge,
    overlap,
    people,
)
from pffl.experiments.trial import (
    COSTS,
    MEASURES,
    AnyMethod,
    Draw,
    LeftOut,
    Trial,
    TrialRecord,
    few_people,
    measures,
)
from pffl.figures import Plot, fronts, measure_name
from pffl.files import Journal
from pffl.methods import METHODS
from pffl.methods.auto import Auto
from pffl.methods.fedavg import FedAvg
from pffl.models.base import Model
from pffl.models.linear import LinearModel, default_model
from pffl.numerics import front
from pffl.prepare import Options
from pffl.records import Record, read
from pffl.select import Trials, choose_bound
from pffl.text import element, text_table
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

BUDGET = 1500  # gradients per silo
SEEDS = 30
MIN_PEOPLE = 30  # in a cell that may be the worst
ALLOWANCE = 0.01  # error above the reference's that a chosen trial may have
MARGINS = {"error": 0.005}  # differences that do not matter; of other measures:
MARGIN = 0.01
SHOWN = ("error", "worst_cell_loss", "risk", "dp_gap", "eo_gap")
L2_GRID = (1e-3, 1e-4, 1e-2, 1e-1, 1e-5, 3e-3, 3e-2, 1.0)
RECORDS = "records.jsonl"
SAVED = "comparison.json"
CONSTRAINTS: dict[str, Callable[[Any], Constraint]] = {
    "bgl": BoundedGroupLoss,
    "cbgl": ConditionalBoundedGroupLoss,
    "cbgl-y1": lambda bound: ConditionalBoundedGroupLoss(bound, labels=(1,)),
    "cbgl-y0": lambda bound: ConditionalBoundedGroupLoss(bound, labels=(0,)),
    "per-silo": PerSilo,
    "minmax": lambda bound: MinMax(),
}

Load: TypeAlias = Callable[[int], Federation]
Grid: TypeAlias = Mapping[str, Sequence[Any]]
Report: TypeAlias = Callable[[str, int, int], None]


def compare(
    data: Federation | Load,
    constraint: Constraint | str = "bgl",
    *,
    methods: Sequence[AnyMethod] | Mapping[str, AnyMethod] | None = None,
    grid: Grid | None = None,
    trials: int = 0,
    seeds: int | Sequence[int] = SEEDS,
    model: Model | None = None,
    options: Options | None = None,
    budget: int | None = BUDGET,
    reference: str | None = None,
    measure: str = "worst_cell_loss",
    allowance: float = ALLOWANCE,
    least_people: int = MIN_PEOPLE,
    jobs: int = 1,
    out: str | os.PathLike[str] | None = None,
    report: Report = lambda what, done, total: None,
) -> Comparison:
    """Train every method, with every point of a grid, on every seed.

    Parameters
    ----------
    data
        What returns the federation of a seed (with a ``validation`` split if a method
        has several trials); or one federation, with which seeds differ in training
        alone and nothing follows for other people.
    constraint
        Who is to have what bound; or "bgl", "cbgl", "cbgl-y1", "cbgl-y0", "per-silo",
        with a bound that is chosen on the first seed as `solve` chooses "auto"; or
        "minmax", without one: methods that take bounds lower the largest loss.
    methods
        Methods, by name or as objects; a mapping gives them other names. Default: all.
    grid
        Parameters to try, every combination; each method takes those that it has.
        ``bound`` is the constraint's, ``l2`` the model's.
    trials
        Without a grid: how many points of its search space each method tries. 0:
        its defaults alone.
    seeds
        Seeds, or how many. Fewer than 29 give intervals and no word.
    model, options
        As for `solve`.
    budget
        Gradients per silo for each method given by name; None for its defaults.
    reference
        The method that others are compared with. Default: FedAvg, or else the first.
    measure, allowance
        By what trials are chosen and judged, and how much more validation error than
        the reference has a chosen trial may have.
    least_people
        People that a cell needs, on every seed, to be the worst.
    jobs
        Processes; each trains some seeds. `data` must then be a function that can be
        imported.
    out
        A folder. Trials of finished seeds are kept in ``records.jsonl`` and not run
        again.
    report
        Called with what runs now, how many are done, and how many there are.

    Returns
    -------
    Comparison
        Tables of methods and points, differences to the reference with words, records.

    Raises
    ------
    UsageError
        A method, a constraint, a measure or a parameter is not known.
    NotMetError
        Every trial failed.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> found = pffl.compare(people, methods=["fedavg", "exact"], seeds=1, budget=50)
    >>> list(found.table.index)
    ['fedavg', 'exact']

    A grid is the trade-off between bounds:

    >>> found = pffl.compare(
    ...     people, methods=["exact"], grid={"bound": [0.62, 0.66]}, seeds=1
    ... )
    >>> found.points[["bound", "train_worst_cell_loss"]].round(3).values.tolist()
    [[0.62, 0.622], [0.66, 0.66]]
    """
    named = name_methods(methods)
    if measure not in MEASURES:
        raise UsageError(
            "unknown-measure", measure=measure, measures=", ".join(MEASURES)
        )
    if reference is None:
        reference = FedAvg.name if FedAvg.name in named else next(iter(named))
    if reference not in named:
        raise UsageError("unknown-method:compare", reference=reference)
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    load = data if callable(data) else lambda seed: data
    first = load(numbers[0])
    model, settings = model or default_model(first.schema), options or Options()
    constraint = settle(constraint, first, model, settings)
    if constraint.minimax and "bound" in (grid or {}):
        raise UsageError("no-bound")
    plan = [
        Trial(name, method, constraint, point)
        for name, method in named.items()
        for point in points_of(method, model, grid, trials)
    ]
    several = len(plan) > len(named)
    if several and len(named) > 1 and "validation" not in first.splits:
        raise UsageError("no-validation")
    folder = None if out is None else Path(out)
    journal = Journal(None if folder is None else folder / RECORDS)
    draw, kept = Draw(first, model, numbers[0], budget, settings), dict(journal.items())
    run = partial(_run_seed, data if callable(data) else None, draw, plan, kept)
    records, seen = list[TrialRecord](), list[Any]()
    pool = ProcessPoolExecutor(jobs, get_context("spawn")) if jobs > 1 else None
    with pool or nullcontext():
        parts: Any = (map if pool is None else pool.map)(run, numbers)
        for number, part in zip(numbers, parts, strict=True):
            _keep(journal, part)
            records += part.records.values()
            seen.append(part.people)
            report(f"seed {number}", len(seen), len(numbers))
    if all(record.reason for record in records):
        raise NotMetError("all-failed", reason=records[0].reason)
    shared = (reference, measure, allowance, least_people)
    told = dict(constraint.describe())
    if "bound" in (grid or {}):
        del told["bound"]
    found = Comparison(tuple(records), *shared, _correlation(seen), told)
    if folder is not None:
        found.save(folder)
    return found


# What is tried


def name_methods(
    methods: Sequence[AnyMethod] | Mapping[str, AnyMethod] | None,
) -> dict[str, AnyMethod]:
    """Return methods by the name that a comparison has for them."""
    if methods is None:
        return {name: name for name in METHODS if name != Auto.name}
    if not isinstance(methods, Mapping):
        methods = {m if isinstance(m, str) else m.name: m for m in methods}
    asked = [method for method in methods.values() if isinstance(method, str)]
    unknown = [name for name in asked if name not in METHODS]
    if unknown or not methods:
        raise UsageError(
            "unknown-method:name-methods", unknown=unknown, methods=sorted(METHODS)
        )
    return dict(methods)


def points_of(
    method: AnyMethod, model: Model, grid: Grid | None, trials: int
) -> list[dict[str, Any]]:
    """Return what a method tries: of the grid, or of its search space."""
    kind: Any = METHODS[method] if isinstance(method, str) else type(method)
    linear = isinstance(model, LinearModel)
    if grid is None:
        if not trials:
            return [{}]
        own = dict(kind.grid)
        if linear:
            own["l2"] = tuple(dict.fromkeys([model.l2, *L2_GRID]))
        return _drawn(_combinations(own), trials)
    every = {f.name for one in (kind, *METHODS.values()) for f in fields(one)}
    if unknown := sorted(set(grid) - every - {"bound", "l2"}):
        raise UsageError("unknown-parameter", unknown=unknown)
    known = {f.name for f in fields(kind)} | ({"l2"} if linear else set())
    known |= set() if kind.ignores_cells else {"bound"}
    return _combinations({k: v for k, v in grid.items() if k in known})


def _combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(grid, v, strict=True)) for v in itertools.product(*grid.values())]


def _drawn(points: list[Any], number: int) -> list[Any]:
    """Return n points: the first, then drawn without repeat, in order."""
    if len(points) <= number:
        return points
    others = 1 + np.random.default_rng(0).permutation(len(points) - 1)
    return [points[i] for i in sorted([0, *others[: number - 1].tolist()])]


def settle(
    constraint: Constraint | str, federation: Federation, model: Model, options: Options
) -> Constraint:
    """Return the constraint with a number for a bound; "auto" is chosen as in a run."""
    if isinstance(constraint, str):
        if constraint not in CONSTRAINTS:
            known = sorted(CONSTRAINTS)
            raise UsageError("unknown-name:settle", constraint=constraint, known=known)
        constraint = CONSTRAINTS[constraint]("auto")
    if not constraint.open:
        return constraint
    engine = open_engine(federation, "local")
    setting = setting_of(engine)
    found = choose_bound(Trials(engine, setting, constraint, model, Auto(), options, 0))
    return constraint.at(found.bound)


# Running it


@dataclass(frozen=True, eq=False)
class Seed:
    """What came of one seed: records by their keys, and who its people are."""

    records: dict[str, TrialRecord]
    people: Any  # of all rows, numbers of test and training rows, hash of test rows


def _run_seed(
    load: Load | None,
    draw: Draw,
    plan: Sequence[Trial],
    kept: Mapping[str, Any],
    number: int,
) -> Seed:
    """Train the trials of one seed that are not kept, or failed."""
    data = draw.federation
    if load is not None and number != draw.seed:
        data = load(number)
    draw = replace(draw, federation=data, seed=number)
    trials = {draw.key(trial): trial for trial in plan}
    known = {k: kept[k] for k in trials if k in kept and not kept[k]["reason"]}
    new = draw.train([trial for key, trial in trials.items() if key not in known])
    records = {k: TrialRecord(**known[k]) if k in known else next(new) for k in trials}
    sizes = [data.rows(s) for s in ("test", "train") if s in data.splits]
    return Seed(records, (people(data), sizes, data.held_out.get("test")))


def _keep(journal: Journal, seed: Seed) -> None:
    """Write new records down; a model measured on test rows is a look at them."""
    plan, tested = hashed("plan", sorted(seed.records)), seed.people[2]
    for key, record in seed.records.items():
        if key in journal and journal[key] == asdict(record):
            continue
        if journal.path is not None and record.sums and tested:
            look = Look([tested], record.settings, plan=plan)
            files.append(journal.path.with_name(LOOKS), asdict(look))
        journal.put(key, asdict(record))


def _correlation(seen: Sequence[Any]) -> float | None:
    """Return ρ of the seeds; None where some of them test the same rows."""
    if len(seen) < 2:
        return 0.0
    if len({tested for _, _, tested in seen}) < len(seen):
        return None
    test, train = np.mean([sizes for _, sizes, _ in seen], axis=0).tolist()
    return overlap([s[0] for s in seen], test=test, train=train)


# What came of it


@dataclass(frozen=True, repr=False)
class Comparison(Record):
    """All records of a comparison; every statement follows from them.

    Attributes
    ----------
    records
        One for each method, point and seed.
    reference, measure, allowance, least_people
        As for `compare`.
    correlation
        ρ of the column "population": measured, see `overlap`. None where every seed
        tests the same rows.
    constraint
        In plain form; a grid may have tried other bounds.
    """

    records: tuple[TrialRecord, ...]
    reference: str
    measure: str = "worst_cell_loss"
    allowance: float = ALLOWANCE
    least_people: int = MIN_PEOPLE
    correlation: float | None = 0.0
    constraint: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods."""
        return tuple(dict.fromkeys(record.method for record in self.records))

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """Numbers of the seeds."""
        return tuple(dict.fromkeys(record.seed for record in self.records))

    @cached_property
    def left_out(self) -> LeftOut:
        """Who does not count as the worst, having too few people on some seed."""
        return frozenset().union(
            *(
                few_people(sums, self.least_people)
                for record in self.records
                for split, sums in record.sums.items()
                if split != "train"
            )
        )

    @cached_property
    def _values(self) -> dict[int, dict[str, dict[str, float | None]]]:
        """Measures of every record on every split, by the record's id."""
        return {
            id(record): {
                split: measures(record, split, self.left_out)
                for split in ("train", "validation", "test")
            }
            for record in self.records
        }

    def values(self, record: TrialRecord, split: str = "test") -> dict[str, Any]:
        """Measures of one of the records."""
        return self._values[id(record)][split]

    @cached_property
    def chosen(self) -> dict[str, dict[int, TrialRecord | None]]:
        """The trial that stands for each method on each seed; None if all failed."""
        by: dict[tuple[str, int], list[TrialRecord]] = {}
        for record in self.records:
            if record.reason is None:
                by.setdefault((record.method, record.seed), []).append(record)
        out: dict[str, dict[int, TrialRecord | None]] = {m: {} for m in self.methods}
        for seed in self.seeds:
            errors = self._column(by.get((self.reference, seed), []), "error")
            limit = np.min(errors, initial=math.inf) + self.allowance
            for method in self.methods:
                out[method][seed] = self._choose(by.get((method, seed), []), limit)
        return out

    def _column(
        self,
        records: Iterable[TrialRecord | None],
        name: str,
        split: str = "validation",
    ) -> FloatArray:
        found = [None if r is None else self.values(r, split)[name] for r in records]
        return np.array(found, dtype=float)

    def _choose(
        self, records: Sequence[TrialRecord], limit: float
    ) -> TrialRecord | None:
        if len(records) < 2:
            return records[0] if records else None
        errors = self._column(records, "error")
        place = choose(errors, self._column(records, self.measure), limit=limit)
        if place is None:
            place = choose(errors, errors, limit=math.inf)
        return records[place or 0]

    # Differences

    def judge(self, measure: str | None = None) -> dict[str, Judgement]:
        """Judge every method against the reference, all of them together (Holm)."""
        name = measure or self.measure
        values = {
            method: self._column(chosen.values(), name, "test")
            for method, chosen in self.chosen.items()
        }
        apart = {m: v - values[self.reference] for m, v in values.items()}
        del apart[self.reference]
        rho = math.inf if self.correlation is None else self.correlation
        return judge(apart, margin=MARGINS.get(name, MARGIN), correlation=rho)

    def differences(self, measure: str | None = None) -> pd.DataFrame:
        """Per method: the difference to the reference on test rows, and its word.

        ``low`` and ``high`` are the interval that decides, for these data;
        ``population_low`` and ``population_high`` that for other people.
        """
        import pandas as pd

        lines = []
        for method, found in self.judge(measure).items():
            line: dict[str, Any] = {"method": method}
            for prefix, one in (
                ("", found.conditional),
                ("population_", found.population),
            ):
                ends = one.interval or DifferenceInterval(math.nan, math.nan, math.nan)
                line |= {"mean": ends.mean} if not prefix else {}
                told = (ends.low, ends.high, one.adjusted, one.word)
                names = (f"{prefix}{name}" for name in ("low", "high", "p", "word"))
                line |= dict(zip(names, told, strict=True))
            lines.append({**line, "seeds": found.pairs, "reason": found.reason})
        return pd.DataFrame(lines)

    # Tables

    @cached_property
    def table(self) -> pd.DataFrame:
        """Per method: mean and standard error of every measure and cost on test rows.

        ``trials`` is how many points were tried.
        """
        import pandas as pd

        out = []
        for method, chosen in self.chosen.items():
            own = [record for record in self.records if record.method == method]
            good = [record for record in chosen.values() if record is not None]
            found = [{**self.values(record), **record.costs} for record in good]
            out.append(
                {
                    "method": method,
                    "seeds": len(good),
                    "trials": sum(record.seed == own[0].seed for record in own),
                    **_averaged(found, (*MEASURES, *COSTS)),
                    "failed": _failures(own),
                }
            )
        return pd.DataFrame(out).set_index("method")

    @cached_property
    def points(self) -> pd.DataFrame:
        """Per method and point of the grid: means over seeds on every split."""
        import pandas as pd

        by: dict[tuple[str, str], list[TrialRecord]] = {}
        for record in self.records:
            by.setdefault((record.method, record.point), []).append(record)
        lines = []
        for (method, _), own in by.items():
            good = [record for record in own if record.reason is None]
            line = {"method": method, **own[0].parameters, "seeds": len(good)}
            for split in ("train", "validation", "test"):
                names = ("error", *dict.fromkeys(["worst_cell_loss", self.measure]))
                found = _averaged([self.values(r, split) for r in good], names)
                line |= {f"{split}_{name}": found[name] for name in names}
            lines.append({**line, "failed": _failures(own)})
        return pd.DataFrame(lines)

    def front(self) -> pd.DataFrame:
        """Points that no other point of their method beats in error and measure.

        Chosen on validation rows and reported on test rows. The paper chooses on test
        rows, which flatters what it reports.
        """
        import pandas as pd

        parts = []
        for _, rows in self.points.groupby("method", sort=False):
            names = ["validation_error", f"validation_{self.measure}"]
            best = front(rows[names].to_numpy(dtype=float))
            parts.append(rows[best].sort_values(names[0]))
        return pd.concat(parts)

    def chart(self) -> Plot:
        """Draw the fronts on test rows, chosen on validation rows."""
        named = {"method": "curve", f"test_{self.measure}": self.measure}
        rows = self.front().rename(columns={**named, "test_error": "error"})
        return fronts(rows, y=self.measure)

    @property
    def terms(self) -> list[str]:
        """Sentences on how it was run: seeds, trials, choice, who was left out."""
        many, known = len(self.seeds), {**self.constraint}
        parts = [str(known.pop("kind", ""))]
        parts += [f"{key} {known[key]}" for key in known if known[key] is not None]
        told = [f"Constraint: {', '.join(parts)}."] if self.constraint else []
        told.append("1 seed." if many == 1 else f"{many} seeds.")
        trials = int(self.table["trials"].max())
        if trials == 1:
            told.append("Every method ran once on each, at its defaults.")
        else:
            told.append(
                f"Up to {trials} trials for each method, chosen on validation rows: "
                f"the smallest {measure_name(self.measure)} with at most "
                f"{self.allowance:g} more error than {self.reference}."
            )
        names = sorted(name for kind, name in self.left_out if kind == "cells")
        if names:
            few = f"fewer than {self.least_people} people on some seed"
            told.append(f"Left out, with {few}: {', '.join(names)}.")
        if len(self.methods) > 1 < many:
            reasons = dict.fromkeys(found.reason for found in self.judge().values())
            told += [f"No words: {reason}." for reason in reasons if reason]
        return told

    def as_dict(self) -> dict[str, Any]:
        """Plain form: the rules, and all records."""
        return asdict(self)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Comparison:
        """Read what `save` wrote."""
        place = Path(folder) / SAVED
        return read(cls, files.read(place), source=str(place))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write all records as JSON."""
        place = files.folder(Path(folder)) / SAVED
        files.write(place, files.json_text(self.as_dict()).encode())

    def __repr__(self) -> str:
        """Return the table, in plain lines."""
        title, texts, rows = self._shown()
        return "\n".join([title, *texts, *text_table(rows)])

    def _repr_html_(self) -> str:
        """Show the table in a notebook; every text is escaped."""
        return element("comparison", *self._shown())

    @property
    def means(self) -> list[dict[str, str]]:
        """Means on test rows ± standard errors, and what training took, as text."""
        rows = []
        for line in self.table.reset_index().to_dict("records"):
            row = {"method": str(line["method"])}
            row |= {measure_name(key): _with_error(line, key) for key in SHOWN}
            row["rounds"] = _fixed(line["rounds"], 0)
            rows.append({**row, "seconds": _fixed(line["seconds"], 2)})
        return rows

    @property
    def failures(self) -> list[str]:
        """Which methods failed, and why."""
        failed = self.table["failed"].items()
        return [f"{method} failed: {reason}" for method, reason in failed if reason]

    def _shown(self) -> tuple[str, list[str], list[dict[str, str]]]:
        texts = ["Test rows, means over seeds; smaller is better everywhere."]
        texts += [*self.terms, *self.failures]
        return f"Comparison of {len(self.methods)} methods", texts, self.means


def _averaged(
    rows: Sequence[Mapping[str, float | None]], names: Sequence[str]
) -> dict[Any, float]:
    """Return mean and standard error of measures and costs."""
    import pandas as pd

    found = pd.DataFrame(list(rows), columns=list(names), dtype=float)
    return {**found.mean().to_dict(), **found.sem().add_suffix("_se").to_dict()}


def _fixed(value: float, digits: int, unit: str = "") -> str:
    return "–" if math.isnan(value) else f"{value:,.{digits}f}{unit}"


def _with_error(line: Mapping[Any, Any], key: str) -> str:
    """Write a mean with its standard error; none where all seeds have one value."""
    digits, scale, unit = (1, 100, " %") if key == "error" else (3, 1, "")
    error = line[f"{key}_se"]
    spread = f" ± {_fixed(scale * error, digits)}" if error > 1e-6 else ""
    return _fixed(scale * line[key], digits, unit) + spread


def _failures(records: Iterable[TrialRecord]) -> str:
    return "; ".join(dict.fromkeys(r.reason for r in records if r.reason))


# The paper's figures


def figures() -> dict[str, Any]:
    """Return the short specs of the paper's figures, by name."""
    text = packaged("pffl.experiments").joinpath("figures.toml").read_text("utf-8")
    return tomllib.loads(text)


def reproduce(
    figure: str,
    open_data: Callable[[Mapping[str, Any]], Load],
    *,
    data: str | None = None,
    seeds: int | None = None,
    jobs: int = 1,
    out: Path | None = None,
    report: Report = lambda what, done, total: None,
) -> dict[str, Comparison]:
    """Run a figure of the paper again, one comparison for each of its panels.

    `open_data` makes of a panel's data section what opens a seed.
    """
    known = figures()
    if figure not in known:
        raise UsageError("unknown-figure", figure=figure, known=", ".join(known))
    panels = [p for p in known[figure]["panel"] if data in (None, p["data"]["name"])]
    if not panels:
        raise UsageError("unknown-panel", figure=figure, data=data)
    found = {}
    for panel in panels:
        name, kind = panel.pop("name"), panel.pop("constraint")
        load, given = open_data(panel.pop("data")), {**panel}
        given |= {"jobs": jobs, "report": report, "out": out and out / name}
        given |= {} if seeds is None else {"seeds": seeds}
        found[name] = compare(load, CONSTRAINTS[kind](0.0), **given)
    return found
