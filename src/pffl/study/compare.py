"""Every method on the same footing: same split, inputs, model and gradients.

All get the same number of gradients per silo, `budget`: methods with local steps take
them in rounds of J, the others one a round. Tuning, where asked for, happens on a
validation part, with the same number of trials for each method, and starts with
FedAvg's l2, which all methods then use: it moves the worst group more than most fair
methods do (docs/methods.md, 14).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pffl import files
from pffl.choosing import choose_bound
from pffl.constraints.base import Constraint
from pffl.constraints.per_silo import PerSilo
from pffl.data.federation import Federation
from pffl.driver import Cost, drive
from pffl.errors import NotMetError, PFFLError, UsageError
from pffl.evidence.looks import LOOKS, Look, hashed
from pffl.evidence.metrics import mean_losses, metrics
from pffl.figures import differences
from pffl.files import Journal, key_of
from pffl.flow import Billed, Clock, Flow, Run, ask_all, iterate, stage
from pffl.methods import METHODS
from pffl.methods.auto import Auto
from pffl.methods.base import Grid, Method
from pffl.methods.fedavg import FedAvg
from pffl.models.base import Model
from pffl.models.linear import LinearModel, default_model
from pffl.preparation import Options, Setting, prepare
from pffl.problem import Problem
from pffl.questions import Evaluate, EvaluateTotal
from pffl.records import read
from pffl.solving import open_engine, setting_of
from pffl.study.sweep import Report, notion_of, quiet, smallest_bound
from pffl.text import element, text_table

if TYPE_CHECKING:
    import pandas as pd

BUDGET = 1500  # gradients per silo
L2_GRID = (1e-3, 1e-4, 1e-2, 1e-1)
MEASURES = (
    "error",
    "risk",
    "worst_cell_loss",
    "dp_gap",
    "eo_gap",
    "equalized_odds_gap",
    "fedfb_dp",
    "worst_silo_loss",
)
COSTS = ("rounds", "gradients", "bytes", "seconds")

Load: TypeAlias = Callable[[int], Federation]
Parameters: TypeAlias = Mapping[str, float | int | str]


@dataclass(frozen=True)
class Row:
    """What one trial came to.

    Attributes
    ----------
    method, seed, split, parameters
        What was tried, and on which split it was measured.
    measures
        `MEASURES` on that split; None where undefined.
    costs
        `COSTS` of training: rounds, gradients per silo, bytes (both ways, all silos),
        seconds.
    reason
        Why there are no measures, if the trial failed.
    """

    method: str
    seed: int
    split: str
    parameters: Mapping[str, Any]
    measures: Mapping[str, float | None] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class Footing:
    """What all trials on one seed share; finished ones are in the journal."""

    federation: Federation
    constraint: Constraint
    model: Model
    budget: int
    seed: int
    options: Options
    journal: Journal

    def rows(self, method: str, parameters: Parameters, *splits: str) -> list[Row]:
        """Return a row for each split; train, once for all, if one is not there."""
        keys, known = [self._key(method, parameters, s) for s in splits], self.journal
        if any(key not in known or known[key]["reason"] for key in keys):
            found = self._tried(method, parameters, splits)
            for key, row in zip(keys, found, strict=True):
                self._looked(key, row)
                known.put(key, asdict(row))
        return [Row(**known[key]) for key in keys]

    def _looked(self, key: str, row: Row) -> None:
        """Count a model that was measured on test rows, where there is a folder."""
        place, rows = self.journal.path, self.federation.held_out.get(row.split)
        if row.split == "test" and row.measures and place is not None and rows:
            seen = Look([rows], hashed("comparison", key), 0.0)
            files.append(place.with_name(LOOKS), asdict(seen))

    def _key(self, method: str, parameters: Parameters, split: str) -> str:
        shared = (dict(self.model.describe()), dict(self.constraint.describe()))
        run = (self.options.weighting, self.budget, self.seed, split, dict(parameters))
        return key_of(self.federation.fingerprint, method, *shared, *run)

    def _tried(
        self, name: str, parameters: Parameters, splits: Sequence[str]
    ) -> list[Row]:
        """Train one method and measure it; a failure is a row with its reason."""
        kind = METHODS[name]
        known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
        chosen = {k: v for k, v in parameters.items() if k in known}
        costs: dict[str, float] = {}
        measures: dict[str, dict[str, float | None]] = {}
        try:
            engine = open_engine(self.federation, "local")
            method = kind.within(self.budget, **chosen)
            flow = self.trying(setting_of(engine), method, splits)
            run, costs, measures = drive(engine, flow)
            reason = None if run.stopped is None else f"the run {run.stopped}"
            if run.stopped == "interrupted":
                raise KeyboardInterrupt  # an unfinished model is no row
        except (PFFLError, ArithmeticError, ValueError) as error:
            reason = str(error)
        return [
            Row(name, self.seed, s, parameters, measures.get(s, {}), costs, reason)
            for s in splits
        ]

    def trying(
        self, setting: Setting, method: Method[Any], splits: Sequence[str]
    ) -> Flow[tuple[Run, dict[str, float], dict[str, dict[str, float | None]]]]:
        """Train, and measure on some splits; also return what the training cost."""
        problem, _ = yield from prepare(
            setting, self.constraint, self.model, method, self.options, self.seed
        )
        run, costs = yield from stage("training", _training(problem, method))
        if run.stopped is not None:
            return run, costs, {}
        silos = PerSilo(0.0).cells(problem.schema, problem.silo_names)
        task = problem.with_cells(silos)
        totals = yield from ask_all([Evaluate(task, run.point.w, s) for s in splits])
        pairs = zip(splits, totals, strict=True)
        return run, costs, {split: _measures(problem, total) for split, total in pairs}


def _training(
    problem: Problem, method: Method[Any]
) -> Flow[tuple[Run, dict[str, float]]]:
    """Run the method; return its run and `COSTS`."""
    started: float = yield Clock()
    run = yield from iterate(problem, method)
    ended: float = yield Clock()
    cost: Cost = yield Billed()
    sent = cost.sent + cost.received
    values = (run.rounds, cost.gradients, sent, ended - started)
    return run, dict(zip(COSTS, values, strict=True))


def _measures(problem: Problem, total: EvaluateTotal) -> dict[str, float | None]:
    """Return `MEASURES`; the silos are cells after the problem's own."""
    found = metrics(total, problem.schema, n_cells=problem.n_cells).as_dict()
    found["worst_silo_loss"] = float(np.nanmax(mean_losses(total)[problem.n_cells :]))
    return {name: found[name] for name in MEASURES}


def compare(
    data: Federation | Load,
    constraint: Constraint | str = "bgl",
    *,
    methods: Sequence[str] | None = None,
    model: Model | None = None,
    options: Options | None = None,
    budget: int = BUDGET,
    seeds: int | Sequence[int] = 5,
    trials: int = 0,
    out: str | os.PathLike[str] | None = None,
    report: Report = quiet,
) -> Comparison:
    """Run every method on every seed.

    Parameters
    ----------
    data
        What returns the federation for a seed (with a ``validation`` split if tuned);
        or one federation, for all seeds.
    constraint
        What is promised to whom (the bound "auto" is chosen as for `solve`, on the
        first seed); or the name of a notion (see `sweep.NOTIONS`), with a bound a
        little above the smallest that is possible.
    methods
        Names of methods. Default: all.
    model, options
        As for `solve`.
    budget
        Gradients per silo for each method.
    seeds
        Seeds, or how many.
    trials
        Points of its grid that each method may try on validation; 0 for none.
    out
        A folder: finished rows are kept in ``rows.jsonl`` and not run again; the table
        is written there, too.
    report
        Called with what runs now, how many are done, and how many there are.

    Returns
    -------
    Comparison
        ``table`` has the means over seeds on test rows, and what each method cost;
        ``differences`` those to one method, paired by seed.

    Raises
    ------
    UsageError
        A method, a notion or a measure is not known.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> found = pffl.compare(people, methods=["fedavg", "exact"], seeds=1, budget=50)
    >>> list(found.table.index)
    ['fedavg', 'exact']
    """
    names, folder = known_methods(methods), None if out is None else Path(out)
    settings = options or Options()
    numbers = range(seeds) if isinstance(seeds, int) else seeds
    load = data if callable(data) else lambda seed: data
    first = load(numbers[0])
    model = model or default_model(first.schema)
    if isinstance(constraint, str):
        notion = notion_of(constraint)
        constraint = notion(smallest_bound(first, notion(0.0), model=model))
    constraint, settings = settled(constraint, first, model, settings, numbers[0])
    journal = Journal(None if folder is None else folder / "rows.jsonl")
    rows: list[Row] = []
    count = len(numbers) * (len(names) * (1 + trials) + len(L2_GRID) * bool(trials))

    def once(at: Footing, name: str, chosen: Parameters, split: str) -> Row:
        report(f"{name}, seed {at.seed}", len(rows), count)
        rows.extend(at.rows(name, chosen, split))
        return rows[-1]

    for seed in numbers:
        federation = first if seed == numbers[0] else load(seed)
        at = Footing(federation, constraint, model, budget, seed, settings, journal)
        if trials:
            at = tuned_l2(at, partial(once, name=names[0], split="validation"))
        for name in names:
            points = drawn(METHODS[name].grid, max(trials, 1), seed)
            taken: Parameters = points[0]
            if trials:
                tried = [once(at, name, point, "validation") for point in points]
                taken = best(tried).parameters
            once(at, name, taken, "test")
    if rows and all(row.reason for row in rows if row.split == "test"):
        raise NotMetError(f"every trial failed; the first: {rows[0].reason}")
    found = Comparison(tuple(rows))
    if folder is not None:
        found.save(folder)
    return found


def settled(
    constraint: Constraint,
    federation: Federation,
    model: Model,
    options: Options,
    seed: int,
) -> tuple[Constraint, Options]:
    """Return the constraint with a number where it has "auto", chosen as in a run.

    And the options without what only the choice needs.
    """
    if not constraint.open:
        return constraint, options
    engine = open_engine(federation, "local")
    setting, method = setting_of(engine), Auto()
    found = choose_bound(engine, setting, constraint, model, method, options, seed)
    return constraint.at(found.bound), replace(options, error_at_most=None)


def known_methods(names: Sequence[str] | None) -> list[str]:
    """Return the methods asked for, all that exist if None; FedAvg is their first.

    Auto is one of the others.
    """
    unknown = [name for name in names or () if name not in METHODS]
    if unknown:
        raise UsageError(f"no methods {unknown}: there are {sorted(METHODS)}")
    every = [name for name in METHODS if name != Auto.name]
    return every if names is None else list(names)


def drawn(grid: Grid, number: int, seed: int) -> list[Parameters]:
    """Return so many points of a grid: the default, then drawn without repeat."""
    shape = tuple(len(values) for values in grid.values())
    order = 1 + np.random.default_rng(seed).permutation(int(np.prod(shape)) - 1)
    places = [np.unravel_index(n, shape) for n in (0, *order[: number - 1].tolist())]
    return [
        {name: grid[name][int(i)] for name, i in zip(grid, place, strict=True)}
        for place in places
    ]


def tuned_l2(at: Footing, once: Callable[..., Row]) -> Footing:
    """Choose l2 on validation with the first method (FedAvg)."""
    if not isinstance(at.model, LinearModel):
        return at
    tried = [replace(at, model=replace(at.model, l2=l2)) for l2 in L2_GRID]
    rows = [once(one, chosen={"l2": one.model.l2}) for one in tried]
    return tried[rows.index(best(rows))]


def best(rows: Sequence[Row]) -> Row:
    """Return the row with the smallest worst-cell loss; failed ones come last."""

    def loss(row: Row) -> float:
        value = row.measures.get("worst_cell_loss")
        return float("inf") if value is None else value

    return min(rows, key=loss)


@dataclass(frozen=True, repr=False)
class Comparison:
    """The rows of a comparison, and their means."""

    rows: tuple[Row, ...]

    @cached_property
    def table(self) -> pd.DataFrame:
        """Per method: mean and standard error of every measure and cost on test."""
        import pandas as pd

        out = []
        for method in dict.fromkeys(row.method for row in self.rows):
            rows = [r for r in self.rows if r.method == method and r.split == "test"]
            seeds = sum(r.reason is None for r in rows)
            averages = averaged(rows, (*MEASURES, *COSTS))
            out.append({"method": method, "seeds": seeds, **averages})
        return pd.DataFrame(out).set_index("method")

    @property
    def reference(self) -> str:
        """The method that others are compared with: FedAvg, or else the first."""
        names = list(dict.fromkeys(row.method for row in self.rows))
        return FedAvg.name if FedAvg.name in names else names[0]

    def differences(self, measure: str, to: str | None = None) -> pd.DataFrame:
        """Per method: how far a measure on test rows is from another method's.

        Differences are paired by seed: mean, and the ends of its 95 % interval (Student
        t over seeds, each method by itself); without ends for fewer than two seeds, or
        where these made no difference.
        """
        import pandas as pd
        from scipy.stats import t

        other, values = to or self.reference, self._by_seed(measure)
        lines = []
        for method, found in values.items():
            shared = sorted(set(found) & set(values.get(other, {})))
            apart = [found[seed] - values[other][seed] for seed in shared]
            if method == other or not apart:
                continue
            mean, error = float(np.mean(apart)), standard_error(apart)
            # What is the same in every seed was drawn once, however often it was run.
            error = error if np.ptp(apart) > 0 else np.nan
            wide = error * float(t.ppf(0.975, max(1, len(apart) - 1)))
            ends = {"low": mean - wide, "high": mean + wide}
            lines.append({"method": method, "mean": mean, **ends, "seeds": len(apart)})
        columns = ["method", "mean", "low", "high", "seeds"]
        return pd.DataFrame(lines, columns=columns)

    def _by_seed(self, measure: str) -> dict[str, dict[int, float]]:
        found: dict[str, dict[int, float]] = {}
        for row in self.rows:
            value = row.measures.get(measure)
            if row.split == "test" and row.reason is None and value is not None:
                found.setdefault(row.method, {})[row.seed] = float(value)
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain form: all rows."""
        return {"rows": [asdict(row) for row in self.rows]}

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Comparison:
        """Read what `save` wrote."""
        place = Path(folder) / "rows.json"
        found = read(dict[str, list[Row]], files.read(place), source=str(place))
        return cls(tuple(found.get("rows", ())))

    def save(self, folder: Path) -> None:
        """Write the table as CSV and all rows as JSON."""
        files.folder(folder)
        files.write(folder / "table.csv", self.table.to_csv().encode())
        files.write(folder / "rows.json", files.json_text(self.as_dict()).encode())

    def __repr__(self) -> str:
        """Return the table, in plain lines."""
        title, texts, rows = self._shown()
        return "\n".join([title, *texts, *text_table(rows)])

    def _repr_html_(self) -> str:
        """Show the table in a notebook; every text is escaped."""
        words = f"Worst cell's mean test loss: difference to {self.reference}"
        chart = differences(self.differences("worst_cell_loss"), words)
        drawn = chart._repr_html_() if chart.rows else ""
        return element("comparison", *self._shown(), lead=drawn)

    def _shown(self) -> tuple[str, list[str], list[dict[str, object]]]:
        keys = ("method", "seeds", *MEASURES[:5], *COSTS)
        lines = self.table.reset_index().to_dict("records")
        texts = ["Test rows, means over seeds; smaller is better everywhere."]
        texts += [f"{r['method']} failed: {r['failed']}" for r in lines if r["failed"]]
        rows = [{key: files.plain(line[key]) for key in keys} for line in lines]
        return f"Comparison of {len(rows)} methods", texts, rows


def averaged(rows: Sequence[Row], names: Sequence[str]) -> dict[str, Any]:
    """Return mean and standard error of measures and costs, and why rows failed."""
    good = [r for r in rows if r.reason is None]
    line: dict[str, Any] = {}
    for name in names:
        known = [{**r.measures, **r.costs}.get(name) for r in good]
        values = [float(value) for value in known if value is not None]
        line[name] = float(np.mean(values)) if values else np.nan
        line[f"{name}_se"] = standard_error(values)
    line["failed"] = "; ".join(dict.fromkeys(r.reason for r in rows if r.reason))
    return line


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; NaN for fewer than two values."""
    if len(values) < 2:
        return float("nan")
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))
