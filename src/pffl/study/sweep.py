"""A grid of configurations, trained at once, and the trade-off between them.

A point is a notion of fairness, a bound and a multiplier bound. Methods that can start
at a pair go from neighbour to neighbour, each starting at the last one's solution; with
others points of a linear model go side by side, one pass over the rows for all. The row
of a point is a pure function of its evidence.
"""

from __future__ import annotations

import itertools
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from pffl import files
from pffl.bounds.rates import clopper_pearson_lower, clopper_pearson_upper
from pffl.choosing import find_smallest
from pffl.constraints.base import Constraint
from pffl.constraints.conditional import ConditionalBoundedGroupLoss
from pffl.constraints.group_loss import BoundedGroupLoss
from pffl.constraints.per_silo import PerSilo
from pffl.data.federation import Federation
from pffl.driver import drive, drive_many
from pffl.engines.base import Engine
from pffl.errors import DataError, PFFLError, UsageError
from pffl.evidence import verdict
from pffl.evidence.evidence import Evidence, Least, Missing, Sample, Training
from pffl.evidence.looks import LOOKS, Look, hashed, look
from pffl.evidence.measure import Wanted, sample
from pffl.evidence.proofs import INTERRUPTED, find_common
from pffl.figures import tradeoff
from pffl.files import Journal, append, key_of
from pffl.flow import Flow, ask_all, stage
from pffl.methods.auto import Auto
from pffl.methods.base import Method
from pffl.models.base import Model
from pffl.models.linear import LinearModel, default_model
from pffl.numerics import front
from pffl.preparation import Options, Setting, prepare, prices, reprice
from pffl.problem import Point, Problem
from pffl.questions import Evaluate
from pffl.solution import Solution
from pffl.solving import fitted, open_engine, prepared, setting_of
from pffl.text import element, text_table, up

if TYPE_CHECKING:
    import pandas as pd

STACK = 64  # configurations trained side by side
STACKED_NUMBERS = 1 << 26  # of the Hessians that a stack has at a time
AROUND = (0.9, 1.2, 8)  # bounds to try: from, to (times the smallest), how many
MULTIPLIER_BOUNDS = (1.0, 10.0, 100.0)

Grid: TypeAlias = Literal["full", "paper", "random"]
Report: TypeAlias = Callable[[str, int, int], None]

NOTIONS: dict[str, Callable[[float], Constraint]] = {
    "bgl": BoundedGroupLoss,
    "cbgl": ConditionalBoundedGroupLoss,
    "cbgl-y1": lambda bound: ConditionalBoundedGroupLoss(bound, labels=(1,)),
    "cbgl-y0": lambda bound: ConditionalBoundedGroupLoss(bound, labels=(0,)),
    "per-silo": PerSilo,
}

PAPER_MULTIPLIER_BOUNDS = (0.1, 0.5, 1.0, 5.0, 10.0, 100.0, 200.0, 500.0)
PAPER_BOUNDS: dict[str, dict[str, tuple[float, ...]]] = {
    "compas": {
        "bgl": (0.0, 0.1, 0.3, 0.5, 0.7),
        "cbgl-y1": (0.0, 0.1, 0.3, 0.5, 0.7),
        "cbgl-y0": (0.0, 0.1, 0.3, 0.5),
    },
    "acs": {
        "bgl": (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
        "cbgl-y1": (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
        "cbgl-y0": (0.0, 0.1, 0.3, 0.5, 0.7),
    },
    "celeba": {
        "bgl": (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
        "cbgl-y1": (0.0, 0.05, 0.1, 0.2, 0.3, 0.5),
        "cbgl-y0": (0.0, 0.05, 0.1, 0.15, 0.2),
    },
}

NESTED = ("cells", "verdicts")  # of a row
AXES = {n: n for n in ("error", "worst_group_loss", "risk", "dp_gap", "eo_gap")}
AXES["worst_loss"] = "worst_cell_loss"


def quiet(what: str, done: int, total: int) -> None:
    """Report nothing."""


# Which points


def notion_of(name: str) -> Callable[[float], Constraint]:
    """Return what makes a constraint of a bound."""
    if name not in NOTIONS:
        raise UsageError(
            f"[unknown-name] no notion '{name}': there are {sorted(NOTIONS)}"
        )
    return NOTIONS[name]


@dataclass(frozen=True)
class GridPoint:
    """One configuration."""

    notion: str
    bound: float
    multiplier_bound: float

    def __post_init__(self) -> None:
        notion_of(self.notion)
        if not (np.isfinite(self.bound) and self.bound >= 0):
            raise UsageError(f"a bound must be ≥ 0. Got {self.bound!r} instead.")
        if not (np.isfinite(self.multiplier_bound) and self.multiplier_bound > 0):
            raise UsageError(
                "a multiplier bound must be > 0. "
                f"Got {self.multiplier_bound!r} instead."
            )

    @property
    def constraint(self) -> Constraint:
        """The constraint of this point."""
        return notion_of(self.notion)(self.bound)


def paper_grid(data: str, notions: Sequence[str] | None = None) -> list[GridPoint]:
    """Return the hyper-parameter grid of the paper for one of its data sets.

    The first word of `data` says which: "compas", "ACS 2018", "CelebA".
    """
    known = re.split(r"\W", data.lower(), maxsplit=1)[0]
    if known not in PAPER_BOUNDS:
        raise UsageError(
            f"[no-paper-grid] the paper has no grid for '{data}': it has "
            f"{sorted(PAPER_BOUNDS)}; give --bounds and --multiplier-bounds"
        )
    bounds = PAPER_BOUNDS[known]
    return [
        point
        for notion in (notions or tuple(bounds))
        for point in full_grid(
            [notion], bounds.get(notion, bounds["bgl"]), PAPER_MULTIPLIER_BOUNDS
        )
    ]


def full_grid(
    notions: Sequence[str], bounds: Sequence[float], multiplier_bounds: Sequence[float]
) -> list[GridPoint]:
    """Return every combination."""
    combinations = itertools.product(notions, bounds, multiplier_bounds)
    return [GridPoint(*combination) for combination in combinations]


def random_grid(
    notions: Sequence[str],
    bounds: Sequence[float],
    multiplier_bounds: Sequence[float],
    *,
    number: int,
    seed: int,
) -> list[GridPoint]:
    """Draw points: bounds evenly, multiplier bounds evenly in their logarithm.

    Both between the smallest and the largest of those given.
    """
    rng = np.random.default_rng(seed)
    ends = (min(bounds), max(bounds))
    low, high = np.log((min(multiplier_bounds), max(multiplier_bounds)))
    return [
        GridPoint(
            str(rng.choice(list(notions))),
            float(rng.uniform(*ends)),
            float(np.exp(rng.uniform(low, high))),
        )
        for _ in range(number)
    ]


def smallest_bound(
    federation: Federation | Engine,
    constraint: Constraint,
    *,
    model: Model | None = None,
    options: Options | None = None,
) -> float:
    """Return a common bound just above the smallest that the cells can meet together.

    The bounds of the constraint play no part.
    """
    engine = open_engine(federation, "local")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the bound 0, which is only a start
        problem, _ = prepared(
            engine, constraint, model, Auto(), options or Options(), 0
        )
    bare = problem.with_bounds(np.zeros(problem.n_cells))
    found = drive(engine, find_smallest(bare, np.ones(problem.n_cells, dtype=bool)))
    if isinstance(found, Missing):
        raise UsageError(
            f"[no-smallest-bound] the smallest possible bound {found.missing}: give a "
            "bound"
        )
    return float(up(found, digits=5))


def _least(problem: Problem) -> Flow[Least | Missing]:
    """Search for the smallest bound that all cells can meet, if that can be done."""
    found = yield from find_common(problem)
    if found == INTERRUPTED:
        raise KeyboardInterrupt
    return found


def make_grid(
    kind: Grid,
    federation: Federation,
    *,
    notions: Sequence[str] = ("bgl",),
    bounds: Sequence[float] | None = None,
    multiplier_bounds: Sequence[float] = MULTIPLIER_BOUNDS,
    number: int = 40,
    model: Model | None = None,
    seed: int = 0,
) -> list[GridPoint]:
    """Return every combination, the paper's grid, or drawn points; see `sweep`."""
    if kind == "paper":
        return paper_grid(federation.name, notions)
    if bounds is None:
        first, *_ = [notion_of(name)(0.0) for name in notions]
        least = smallest_bound(federation, first, model=model)
        low, high, many = AROUND
        spread = np.linspace(low * least, high * least, many)
        bounds = [round(float(bound), 4) for bound in spread]
    if kind == "full":
        return full_grid(notions, bounds, multiplier_bounds)
    if kind != "random":
        raise UsageError(
            f"[unknown-name] no grid '{kind}': there are {list(get_args(Grid))}"
        )
    return random_grid(notions, bounds, multiplier_bounds, number=number, seed=seed)


# Running them


def sweep(
    federation: Federation,
    points: Sequence[GridPoint] | Grid = "full",
    *,
    notions: Sequence[str] = ("bgl",),
    bounds: Sequence[float] | None = None,
    multiplier_bounds: Sequence[float] = MULTIPLIER_BOUNDS,
    number: int = 40,
    method: Method[Any] | Sequence[Method[Any]] | None = None,
    model: Model | None = None,
    options: Options | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    report: Report = quiet,
) -> Sweep:
    """Train every point and measure it on every split.

    Parameters
    ----------
    federation
        The silos, with a ``validation`` split where the front is to be chosen on one.
    points
        The points; or every combination of what follows ("full"), the grid that the
        paper has for these data ("paper"), or drawn ones ("random").
    notions, bounds, multiplier_bounds, number
        What a grid is made of: names in `NOTIONS`, bounds (by default eight around the
        smallest possible one), multiplier bounds, and how many points are drawn.
    method
        One, or several that each train every point. Its parameters hold for every
        point, except for the multiplier bound, which is the point's. Default: `Auto`.
    model, options, seed
        As for `solve`.
    out
        A folder: finished points are kept in ``points.jsonl`` and not run again; the
        table is written there, too, and each point that was measured on test rows is
        a look at them (``looks.jsonl``), which a certificate pays for.
    report
        Called with what runs now, how many are done, and how many there are.

    Returns
    -------
    Sweep
        ``table`` has a row for each point, ``front()`` the best trade-offs.

    Raises
    ------
    UsageError
        A notion or a grid is not known.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> found = pffl.sweep(people, bounds=[0.6, 0.65], multiplier_bounds=[10.0])
    >>> list(found.table["status"])
    ['impossible', 'met']
    """
    methods = method if isinstance(method, Sequence) else [method or Auto()]
    chosen_model = model or default_model(federation.schema)
    if isinstance(points, str):
        points = make_grid(
            points,
            federation,
            notions=notions,
            bounds=bounds,
            multiplier_bounds=multiplier_bounds,
            number=number,
            model=chosen_model,
            seed=seed,
        )
    folder = None if out is None else Path(out)
    settings = replace(options or Options(), baseline=False)
    engine = open_engine(federation, "local")
    shared = (engine, setting_of(engine), chosen_model)
    plans = [Plan(*shared, each, settings, seed) for each in methods]
    journal = Journal(None if folder is None else folder / "points.jsonl")
    keys = {(plan, point): plan.key(point) for plan in plans for point in points}
    together = hashed("plan", sorted(keys.values()))
    wanted = [
        place
        for place, key in keys.items()
        if key not in journal or journal[key]["reason"] is not None
    ]
    done = len(keys) - len(wanted)
    for plan, notion in dict.fromkeys((plan, point.notion) for plan, point in wanted):
        what = notion if len(plans) == 1 else f"{plan.method.name}, {notion}"
        report(what, done, len(keys))
        chosen = [p for q, p in wanted if q is plan and p.notion == notion]
        for point, row, seen in plan.rows(chosen):
            if folder is not None and seen is not None:
                append(folder / LOOKS, asdict(replace(seen, plan=together)))
            journal.put(keys[plan, point], row)
            done += 1
            report(what, done, len(keys))
    plain = [journal[key] for key in keys.values()]
    looks = sum("test_risk" in row for row in plain)
    rows = tuple({**row, "looks": looks} for row in plain)
    found = Sweep(rows, federation.name, federation.synthetic)
    if folder is not None:
        found.save(folder)
    return found


@dataclass(frozen=True, eq=False)
class Plan:
    """One method of a sweep, and what all points share."""

    engine: Engine
    setting: Setting
    model: Model
    method: Method[Any]
    options: Options
    seed: int

    def key(self, point: GridPoint) -> str:
        """Name a point, and all that its row depends on."""
        shared = (dict(self.model.describe()), dict(self.method.describe()))
        run = (asdict(self.options), self.seed, asdict(point))
        return key_of(self.setting.data.fingerprint, *shared, *run)

    def rows(
        self, points: Sequence[GridPoint]
    ) -> Iterator[tuple[GridPoint, dict[str, Any], Look | None]]:
        """Train points of one notion; a failure is a row with its reason."""
        ordered = sorted(points, key=lambda p: (p.multiplier_bound, p.bound))
        try:
            first, wanted = drive(self.engine, self._begun(ordered[0].constraint))
        except PFFLError as error:
            yield from ((p, self._row(p, {}, str(error)), None) for p in ordered)
            return
        start: Point | None = None
        size = self._stack(first)
        for at in range(0, len(ordered), size):
            part = ordered[at : at + size]
            flows = [self._point(first, point, wanted, start) for point in part]
            named = [stage(str(number), flow) for number, flow in enumerate(flows)]
            try:
                trained = drive_many(self.engine, named)
            except PFFLError as error:
                yield from ((p, self._row(p, {}, str(error)), None) for p in part)
                continue
            for point, (solution, others) in zip(part, trained, strict=True):
                if solution.status == "interrupted":
                    raise KeyboardInterrupt  # an unfinished model is no row
                start = Point(solution.w, solution.multipliers)
                e = solution.evidence
                yield point, self._row(point, row(e, others)), look(e, stated=False)

    def _begun(self, constraint: Constraint) -> Flow[tuple[Problem, Wanted]]:
        """Build the problem; search for the smallest bound once, for all points."""
        problem, _ = yield from prepare(
            self.setting, constraint, self.model, self.method, self.options, self.seed
        )
        least = yield from _least(problem)
        wanted = Wanted(
            self.setting.splits,
            weighted=self.setting.data.weighted,
            weight_bound=self.options.weight_bound,
            confidence=self.options.confidence,
            baseline=False,
            least=False if isinstance(least, Missing) else least,
        )
        return problem, wanted

    def _stack(self, problem: Problem) -> int:
        """Return how many points go side by side."""
        warm = self.method.resumed(Point(np.zeros(0), np.zeros(0))) is not None
        if warm or not isinstance(self.model, LinearModel):
            return 1
        hessians = (1 + problem.n_cells) * problem.n_parameters**2
        return max(1, min(STACK, STACKED_NUMBERS // hessians))

    def _point(
        self, first: Problem, point: GridPoint, wanted: Wanted, start: Point | None
    ) -> Flow[tuple[Solution, dict[str, Sample]]]:
        """Train one point; measure it on training, test and all other rows."""
        constraint, method = point.constraint, self.method
        if start is not None:
            method = method.resumed(start) or method
        beta, _ = prices(constraint, method)
        bounds = np.full(first.n_cells, point.bound)
        problem = reprice(first, bounds, beta, point.multiplier_bound)
        solution = yield from fitted(
            self.setting, problem, constraint, method, self.options, wanted
        )
        cap = np.inf if solution.loss_bound is None else solution.loss_bound
        splits = [s for s in self.setting.splits if s not in ("train", "test")]
        asked = [Evaluate(problem.task, solution.w, split, cap) for split in splits]
        totals = yield from ask_all(asked)
        pairs = zip(splits, totals, strict=True)
        return solution, {split: sample([split], total) for split, total in pairs}

    def _row(
        self, point: GridPoint, found: Mapping[str, Any], reason: str | None = None
    ) -> dict[str, Any]:
        head = {**asdict(point), "method": self.method.name}
        return {**head, "status": None, "reason": reason, **found}


# What came of it


def row(e: Evidence, others: Mapping[str, Sample] | None = None) -> dict[str, Any]:
    """Return a trained point's row: verdict, and measures on every split.

    `others` are further held-out rows: those of a validation split, say.
    """
    run = e.training if isinstance(e.training, Training) else None
    out: dict[str, Any] = {} if run is None else {"method": run.method["kind"]}
    out |= {
        "status": verdict.judge(e)[0],
        "verdicts": {k: v["sentence"] for k, v in verdict.verdicts(e).items()},
        "gap": verdict.gap(e),
        "rounds": None if run is None else run.rounds,
        "seconds": None if run is None else run.seconds,
        "cells": [dict(vars(cell)) for cell in verdict.cell_results(e)],
    }
    trained = verdict.split_metrics(e, "train")
    out |= _named("train", {} if trained is None else trained.as_dict())
    out |= _named("test", heldout_measures(e))
    uppers = [cell["test_upper"] for cell in out["cells"]]
    if uppers and None not in uppers:
        out["test_worst_high"] = max(uppers)
    unchecked = replace(e.data, overlap=None)
    for split, found in (others or {}).items():
        seen = replace(e, heldout=found, data=unchecked)
        out |= _named(split, heldout_measures(seen))
    return out


def heldout_measures(e: Evidence) -> dict[str, float | None]:
    """Return measures on held-out rows, with intervals for unseen people.

    There are none where rows have weights, and none of errors where people have
    several rows.
    """
    found = verdict.split_metrics(e, "test")
    if found is None:
        return {}
    out = dict(found.as_dict())
    if not isinstance(e.heldout, Sample) or e.heldout.weighted:
        return out
    if not (e.labels and e.heldout.rows):
        return out
    if not e.data.several:
        right = e.heldout.column("correct").sum()
        count, side = e.heldout.rows, (1.0 - e.terms.confidence) / 2
        wrong = count - right
        out["error_low"] = float(clopper_pearson_lower(wrong, count, delta=side))
        out["error_high"] = float(clopper_pearson_upper(wrong, count, delta=side))
    return out


def _named(split: str, found: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{split}_{name}": value for name, value in found.items()}


@dataclass(frozen=True, repr=False)
class Sweep:
    """All points of a sweep.

    Attributes
    ----------
    rows
        One plain mapping per point; failed ones have a ``reason``.
    data, synthetic
        Which data, and whether they were generated.
    """

    rows: tuple[Mapping[str, Any], ...]
    data: str = "data"
    synthetic: bool = False

    @cached_property
    def table(self) -> pd.DataFrame:
        """One line per point; figures of cells, and sentences, are in `rows`."""
        import pandas as pd

        plain = [{k: v for k, v in row.items() if k not in NESTED} for row in self.rows]
        return pd.DataFrame(plain)

    @property
    def trained(self) -> pd.DataFrame:
        """Points with a model."""
        table = self.table
        return table[table["reason"].isna() & table["status"].notna()]

    def front(
        self,
        *,
        x: str = "error",
        y: str = "worst_loss",
        notion: str | None = None,
        chosen_on: str | None = None,
    ) -> pd.DataFrame:
        """Points that no other beats in both measures.

        Parameters
        ----------
        x, y
            Measures: error, worst_loss (of the notion's cells), worst_group_loss, risk,
            dp_gap or eo_gap; smaller is better.
        notion
            Only points of this notion; to be given where there are several, because
            their cells differ.
        chosen_on
            Split on which the front is chosen: by default ``validation`` where there is
            one. The paper chooses it on ``test``, which flatters what it reports.
        """
        table, split = self._points(notion), self._choice(chosen_on)
        columns = [f"{split}_{_axis(name)}" for name in (x, y)]
        values = table[columns].to_numpy(dtype=float)
        return table[front(values)].sort_values(columns[0])

    def best(
        self,
        *,
        error_at_most: float | None = None,
        worst_loss_at_most: float | None = None,
        notion: str | None = None,
        chosen_on: str | None = None,
    ) -> pd.Series:
        """Return the fairest point within an error, or the most accurate within a loss.

        Chosen on the validation split where there is one; its test figures are then
        free of the choice, unless somebody chose by them: `looks` says how many points
        were measured on the same test rows, and a certificate of a run in the sweep's
        folder pays for them.
        """
        if (error_at_most is None) == (worst_loss_at_most is None):
            raise UsageError(
                "[options-conflict] give 'error_at_most' or 'worst_loss_at_most', one "
                "of them"
            )
        table, split = self._points(notion), self._choice(chosen_on)
        limited, wanted = f"{split}_error", f"{split}_worst_cell_loss"
        limit = error_at_most
        if limit is None:
            limited, wanted, limit = wanted, limited, worst_loss_at_most
        inside = table[table[limited] <= limit]
        if inside.empty:
            raise DataError(
                f"[no-such-point] no point has {limited} ≤ {limit}: the smallest is "
                f"{table[limited].min():.4f}"
            )
        return inside.iloc[int(inside[wanted].to_numpy(dtype=float).argmin())]

    def save(self, folder: Path) -> None:
        """Write the table as CSV, and as Parquet where its extra is installed."""
        text = self.table.to_csv(index=False)
        files.write(files.folder(folder) / "sweep.csv", text.encode())
        with suppress(ImportError):
            self.table.to_parquet(folder / "sweep.parquet", index=False)

    def __repr__(self) -> str:
        """Return every notion's front, in plain lines."""
        texts, fronts = self._shown()
        return "\n".join([f"Sweep: {self.data}", *texts, *text_table(fronts)])

    def _repr_html_(self) -> str:
        """Show every notion's front in a notebook; every text is escaped."""
        title, drawn = f"Sweep: {self.data}", ""
        if self.rows and self._has("test"):
            groups = self.trained.groupby("notion", sort=False)
            drawn = "".join(tradeoff(rows)._repr_html_() for _, rows in groups)
        return element("sweep", title, *self._shown(), lead=drawn)

    def _shown(self) -> tuple[list[str], list[dict[str, object]]]:
        good = [row for row in self.rows if row["reason"] is None]
        failed = len(self.rows) - len(good)
        text = f"{len(good):,} points trained" + f", {failed:,} failed" * bool(failed)
        if not good:
            return [text], []
        chosen = self._choice(None)
        measured = "test" if self._has("test") else chosen
        names = ("error", "worst_cell_loss", "dp_gap", "eo_gap")
        keys = ["notion", "bound", "multiplier_bound", "status"]
        keys += [f"{measured}_{name}" for name in names]
        fronts = [
            {key: row[key] for key in keys}
            for notion in dict.fromkeys(str(row["notion"]) for row in good)
            for row in self.front(notion=notion).to_dict("records")
        ]
        return [text, f"Pareto fronts, chosen on {chosen} rows:"], fronts

    def _points(self, notion: str | None) -> pd.DataFrame:
        table = self.trained
        notions = sorted(table["notion"].unique())
        if notion is None and len(notions) > 1:
            raise UsageError(
                f"[wrong-cells] the cells of notions differ: choose one of {notions}"
            )
        table = table if notion is None else table[table["notion"] == notion]
        if table.empty:
            raise DataError(
                "[no-such-point] the sweep has no trained points of this kind"
            )
        return table

    def _choice(self, chosen_on: str | None) -> str:
        splits = [s for s in ("validation", "test", "train") if self._has(s)]
        if chosen_on is None:
            return splits[0]
        if chosen_on not in splits:
            raise UsageError(
                f"[unknown-split] no split '{chosen_on}': there are {splits}"
            )
        return chosen_on

    def _has(self, split: str) -> bool:
        return f"{split}_error" in self.table.columns


def _axis(name: str) -> str:
    if name not in AXES:
        raise UsageError(
            f"[unknown-measure] no measure '{name}': there are {sorted(AXES)}"
        )
    return AXES[name]
