"""Every method on the same footing: same splits, inputs, model, trials and gradients.

All get the same number of gradients per silo, `budget`, at most: methods with local
steps take them in rounds of J, the others one a round. Tuning, where asked for, gives
each method as many trials of its own search space (`space`: what its class names, and
the model's l2) and chooses on validation rows, by the rules of `experiment`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pffl import files
from pffl.choosing import choose_bound
from pffl.constraints.base import Constraint
from pffl.data.federation import Federation
from pffl.errors import NotMetError, UsageError
from pffl.figures import differences
from pffl.files import Journal
from pffl.methods import METHODS
from pffl.methods.auto import Auto
from pffl.methods.base import Grid
from pffl.methods.fedavg import FedAvg
from pffl.models.base import Model
from pffl.models.linear import LinearModel, default_model
from pffl.preparation import Options
from pffl.records import Record, read
from pffl.solving import open_engine, setting_of
from pffl.study import experiment
from pffl.study.decisions import Decision, decide
from pffl.study.experiment import LEAST_PEOPLE, SEEDS, WITHIN, Study, combinations
from pffl.study.sweep import Report, notion_of, quiet, smallest_bound
from pffl.study.trial import COSTS, MEASURES, Footing, Row, Trial
from pffl.text import element, text_table

if TYPE_CHECKING:
    import pandas as pd

BUDGET = 1500  # gradients per silo
TRIALS = 12  # of each method, where they are tuned
L2_GRID = (1e-3, 1e-4, 1e-2, 1e-1, 1e-5, 3e-3, 3e-2, 1.0)
LARGE = 100_000  # rows from which a comparison has fewer seeds by default
FEWER_SEEDS = 3

Load: TypeAlias = Callable[[int], Federation]


def compare(
    data: Federation | Load,
    constraint: Constraint | str = "bgl",
    *,
    methods: Sequence[str] | None = None,
    model: Model | None = None,
    options: Options | None = None,
    budget: int = BUDGET,
    seeds: int | Sequence[int] | None = None,
    training: int | None = None,
    trials: int = 0,
    measure: str = "worst_cell_loss",
    within: float = WITHIN,
    least_people: int = LEAST_PEOPLE,
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
        Gradients per silo for each method, at most.
    seeds
        Seeds, or how many. Default: 10, or 3 from 100,000 rows on.
    training
        Seed of training, the same for all seeds; by default each seed's own.
    trials
        Points of its search space that each method tries on validation, at least 8;
        0 for none: every method runs at its defaults.
    measure, within
        With trials: what they are chosen by, among those whose validation error is
        within so much of the smallest.
    least_people
        People that a cell needs, on every seed, to be the worst.
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
    if measure not in MEASURES:
        raise UsageError(
            f"[unknown-measure] no measure '{measure}': there are {', '.join(MEASURES)}"
        )
    load = data if callable(data) else lambda seed: data
    first = load(0 if seeds is None or isinstance(seeds, int) else seeds[0])
    if seeds is None:
        seeds = SEEDS if first.rows("train") < LARGE else FEWER_SEEDS
    numbers = range(seeds) if isinstance(seeds, int) else seeds
    model = model or default_model(first.schema)
    settings = options or Options()
    if isinstance(constraint, str):
        notion = notion_of(constraint)
        least = smallest_bound(first, notion(0.0), model=model, options=settings)
        constraint = notion(least)
    constraint, settings = settled(constraint, first, model, settings, numbers[0])
    journal = Journal(None if folder is None else folder / "rows.jsonl")
    plans, reasons = plan(names, constraint, model, trials)

    def at(seed: int) -> Footing:
        federation = first if seed == numbers[0] else load(seed)
        own = seed if training is None else training
        return Footing(federation, model, budget, seed, own, settings, journal)

    study = experiment.run(
        plans,
        numbers,
        at,
        measure=measure,
        within=within,
        least=least_people,
        overlap=0.0 if first.synthetic else overlap(first),
        reasons=reasons,
        report=report,
    )
    study.audit()
    rows = study.rows
    if all(row.reason for row in rows):
        raise NotMetError(
            f"[all-failed] every trial failed; the first: {rows[0].reason}"
        )
    found = Comparison(study)
    if folder is not None:
        found.save(folder)
    return found


def overlap(federation: Federation) -> float:
    """Test rows / training rows: what seeds that split the same people share."""
    rows = federation.rows("train")
    return federation.rows("test") / rows if rows else 0.0


def plan(
    names: Sequence[str], constraint: Constraint, model: Model, trials: int
) -> tuple[dict[str, list[Trial]], dict[str, str]]:
    """Return each method's trials, and why some have fewer than others.

    Without trials, its defaults alone.
    """
    plans, reasons = {}, {}
    for name in names:
        points = combinations(space(name, model))
        taken = experiment.drawn(points, trials) if trials else [points[0]]
        if trials and len(taken) < trials:
            reasons[name] = f"its search space has {len(taken)} points"
        plans[name] = [Trial(name, name, point, constraint) for point in taken]
    return plans, reasons


def space(name: str, model: Model) -> dict[str, tuple[Any, ...]]:
    """Return what may be tuned: what the method names, and l2 of a linear model."""
    grid: Grid = METHODS[name].grid
    if not isinstance(model, LinearModel):
        return dict(grid)
    others = [l2 for l2 in L2_GRID if l2 != model.l2]
    return {**grid, "l2": (model.l2, *others)}


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
        raise UsageError(
            f"[unknown-method] no methods {unknown}: there are {sorted(METHODS)}"
        )
    every = [name for name in METHODS if name != Auto.name]
    return every if names is None else list(names)


@dataclass(frozen=True, repr=False)
class Comparison:
    """What a comparison came to: means, paired differences, decisions."""

    study: Study

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every row of every trial."""
        return self.study.rows

    @cached_property
    def table(self) -> pd.DataFrame:
        """Per method: mean and standard error of every measure and cost on test."""
        import pandas as pd

        out = []
        for method, chosen in self.study.chosen().items():
            tested = [self.study.on_test(row) for row in chosen.values()]
            rows = [row for row in tested if row is not None and row.reason is None]
            values = [{**self.study.values(row), **row.costs} for row in rows]
            failed = "; ".join(self._failures(method, len(rows)))
            trials = self.study.trials[method]
            head = {"method": method, "seeds": len(rows), "trials": trials}
            out.append(
                {**head, **averaged(values, (*MEASURES, *COSTS)), "failed": failed}
            )
        return pd.DataFrame(out).set_index("method")

    def _failures(self, method: str, good: int) -> list[str]:
        """Why a method has fewer seeds than others."""
        lacking = len(self.study.seeds) - good
        if not lacking:
            return []
        own = [row.reason for row in self.rows if row.arm == method and row.reason]
        allowed = f"no trial within the error allowed on {lacking} seeds"
        return list(dict.fromkeys(own)) or [allowed]

    @property
    def reference(self) -> str:
        """The method that others are compared with: FedAvg, or else the first."""
        names = self.study.arms
        return FedAvg.name if FedAvg.name in names else names[0]

    def decisions(self, measure: str, to: str | None = None) -> dict[str, Decision]:
        """Judge every method against another, all of them together (Holm)."""
        other = to or self.reference
        found = self.study.reported(measure)
        apart = {
            method: [
                np.nan if a is None or b is None else a - b
                for a, b in ((own[s], found[other][s]) for s in self.study.seeds)
            ]
            for method, own in found.items()
            if method != other
        }
        return decide(apart, overlap=self.study.overlap)

    def differences(self, measure: str, to: str | None = None) -> pd.DataFrame:
        """Per method: how far a measure on test rows is from another method's.

        Differences are paired by seed: mean, the ends of its 95 % interval, p after
        Holm's correction, and in words whether it is lower; see `decisions`.
        """
        import pandas as pd

        words = {"holds": "lower", "does not hold": "higher"}
        lines = [
            {
                "method": method,
                "mean": one.mean,
                "low": one.low,
                "high": one.high,
                "p": one.adjusted,
                "verdict": words.get(one.word, one.word),
                "seeds": one.pairs,
            }
            for method, one in self.decisions(measure, to).items()
            if one.pairs
        ]
        columns = ["method", "mean", "low", "high", "p", "verdict", "seeds"]
        return pd.DataFrame(lines, columns=columns)

    def as_dict(self) -> dict[str, Any]:
        """Plain form: the rules, and all rows."""
        s = self.study
        rules = {"measure": s.measure, "within": s.within, "least": s.least}
        rules |= {"overlap": s.overlap, "reasons": dict(s.reasons)}
        return {**rules, "rows": [asdict(row) for row in s.rows]}

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Comparison:
        """Read what `save` wrote."""
        place = Path(folder) / "rows.json"
        found = read(Saved, files.read(place), source=str(place))
        rules = (found.measure, found.within, found.least, found.overlap, found.reasons)
        return cls(Study(tuple(found.rows), *rules))

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
        keys = ("method", "seeds", *MEASURES[:3], "dp_gap", "eo_gap", *COSTS)
        lines = self.table.reset_index().to_dict("records")
        texts = ["Test rows, means over seeds; smaller is better everywhere."]
        texts += self.study.terms
        texts += [f"{r['method']} failed: {r['failed']}" for r in lines if r["failed"]]
        rows = [{key: files.plain(line[key]) for key in keys} for line in lines]
        return f"Comparison of {len(rows)} methods", texts, rows


@dataclass(frozen=True)
class Saved(Record):
    """What rows.json has."""

    measure: str
    within: float
    least: int
    overlap: float
    reasons: dict[str, str]
    rows: list[Row]


def averaged(
    rows: Sequence[dict[str, float | None]], names: Sequence[str]
) -> dict[str, float]:
    """Return mean and standard error of measures and costs."""
    line: dict[str, float] = {}
    for name in names:
        values = [float(v) for row in rows if (v := row.get(name)) is not None]
        line[name] = float(np.mean(values)) if values else np.nan
        line[f"{name}_se"] = standard_error(values)
    return line


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; NaN for fewer than two values."""
    if len(values) < 2:
        return float("nan")
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))
