"""`feasible`: the smallest bounds that can be met, and the rows a certificate needs.

One minimax problem for all cells together, and one for each cell alone. They are
independent, so their queries go out together. See `evidence.proofs`.

**How many rows a certificate needs** is a forecast. A fifth of the training rows is set
aside; on the others the safest model of a path is trained (`find_safest`). From mean
and variance of its losses on the rows set aside follows the upper end U(n) that n
calibration rows of a cell will about show (`bounds.mean.best`). The mean of n rows lies
around its expectation with se = σ/√n, so that the bound ζ is certified with a
probability of about Φ((ζ − U(n))/se). Of test and calibration rows nothing but their
number is looked at: a bound, or a split, may be chosen by the forecast.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from pffl._certify import calibration_split, check_bounded, find_safest
from pffl._solve import as_federation, open_engine, prepared, setting_of
from pffl.bounds.checks import Interval, probability
from pffl.bounds.mean import LOG_SUM, Moments, best
from pffl.constraints import Bound, BoundedGroupLoss, Constraint, as_constraint
from pffl.data.checks import listing
from pffl.data.federation import Federation
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import NotMetError, UsageError
from pffl.evidence.measure import Wanted, expected_rows, heldout_sample
from pffl.evidence.proofs import (
    enclose,
    find_least,
    of_cells,
    unmeasurable,
)
from pffl.evidence.record import Least, Missing
from pffl.flow import Flow, gather
from pffl.methods.auto import Auto
from pffl.models.base import Model
from pffl.prepare import Options, Setting, prepare
from pffl.problem import Problem
from pffl.select import try_aside
from pffl.text import decimals, down, element, text_table, up
from pffl.typing import BoolArray

if TYPE_CHECKING:
    from pffl.models.predictor import Table

EQUAL = 1e-12  # bounds this close are one
MOST_CELLS = 30  # that are looked at alone: of more, none
FEWEST = 8  # people set aside, for a forecast of their cell
POWER = 0.8  # a forecast names the rows that are enough in 4 of 5 cases
MOST_ROWS = 10**9


@dataclass(frozen=True)
class CellRange:
    """Encloses how low the bound of one cell can go, whatever the others'."""

    cell: str
    rows: int
    lower: float
    upper: float


@dataclass(frozen=True)
class CellForecast:
    """What calibration rows will about show of one cell.

    Attributes
    ----------
    cell, bound
        Its name, and ζ.
    rows
        Calibration rows that there are; people, where they have several rows.
    mean_loss
        On training rows set aside; None where these were too few.
    chance
        About how probable it is that the bound is certified.
    rows_needed
        Calibration rows that certify it in 4 of 5 cases; None where no number would,
        or nothing is known.
    """

    cell: str
    bound: float
    rows: int
    mean_loss: float | None
    chance: float
    rows_needed: int | None


@dataclass(frozen=True)
class CertificateForecast:
    """Whether all bounds can be certified for new people: a forecast, no proof.

    `chance` is about the probability that they are.
    """

    confidence: float
    cells: tuple[CellForecast, ...]

    @property
    def chance(self) -> float:
        """About how probable it is that every bound is certified."""
        return float(np.prod([cell.chance for cell in self.cells]))

    @property
    def sentence(self) -> str:
        """The forecast, and what limits it, in words."""
        text = f"Forecast at {100 * self.confidence:.6g} % confidence: "
        if unknown := [cell.cell for cell in self.cells if cell.mean_loss is None]:
            return f"{text}not known; {listing(unknown)} have too few training rows."
        text += f"every bound is certified in {_percent(self.chance)} of cases."
        worst = min(self.cells, key=lambda cell: cell.chance)
        if worst.rows_needed is None:
            text += f" '{worst.cell}' is not below its bound: more rows would not help."
        elif worst.rows_needed > worst.rows:
            needed = f"about {worst.rows_needed:,} calibration rows"
            text += f" '{worst.cell}' needs {needed} and has {worst.rows:,}."
        return text

    @property
    def table(self) -> list[dict[str, object]]:
        """A row per cell, as text."""
        return [
            {
                "group": cell.cell,
                "bound": decimals(cell.bound),
                "mean loss": "" if cell.mean_loss is None else decimals(cell.mean_loss),
                "calibration rows": f"{cell.rows:,}",
                "rows needed": "–" if not cell.rows_needed else f"{cell.rows_needed:,}",
                "certified in": _percent(cell.chance),
            }
            for cell in self.cells
        ]


@dataclass(frozen=True, eq=False, repr=False)
class Feasible:
    """What linear models can meet, with their own losses.

    Attributes
    ----------
    data
        What the data are called.
    common, reach, everywhere
        Encloses the smallest bound that all cells meet together; up to which length of
        weights the lower end holds, and whether that is as good as all models.
    excess
        Encloses what all given bounds have to rise by; None without bounds.
    impossible
        Whether it is proved that the given bounds cannot be met.
    cells
        Each of them alone, of up to 30. Where rows are elsewhere, a fit of a cell with
        no more rows than the model has weights would give its rows away: it is left
        out.
    notes
        What a reader must know.
    forecast
        Whether the bounds can be certified for new people; None if not asked for.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> found = pffl.feasible(people, pffl.BoundedGroupLoss(0.6))
    >>> found.impossible, round(found.common.upper, 3)
    (True, 0.622)
    """

    data: str
    common: Interval
    reach: float
    everywhere: bool
    excess: Interval | None
    impossible: bool
    cells: tuple[CellRange, ...]
    notes: tuple[str, ...]
    forecast: CertificateForecast | None = None

    @property
    def alone(self) -> dict[str, float]:
        """The smallest mean loss that each cell can reach alone: a proved lower end."""
        return {row.cell: row.lower for row in self.cells}

    @property
    def sentence(self) -> str:
        """The smallest common bound, in words."""
        low, high = down(self.common.lower, digits=7), up(self.common.upper, digits=7)
        limit = f", with weights of length at most {down(self.reach)}"
        models = "" if self.everywhere else limit
        return (
            f"{self.data}: the smallest bound that all groups can meet together lies "
            f"between {low} and {high}{models}."
        )

    @property
    def verdict(self) -> str:
        """Whether the given bounds can be met, in words; nothing without bounds."""
        if self.excess is None:
            return ""
        if self.impossible:
            rise = up(self.excess.upper)
            return f"IMPOSSIBLE: all bounds would have to rise by {rise}."
        if self.excess.upper <= 0:
            room = down(-self.excess.upper)
            return f"POSSIBLE: there is a model with {room} of room under every bound."
        return "UNDECIDED: the bounds are right at what is possible."

    @property
    def table(self) -> list[dict[str, object]]:
        """A row per cell: how low its bound can go."""
        return [
            {
                "group": row.cell,
                "rows": row.rows,
                "lowest alone": up(row.upper, digits=7),
            }
            for row in self.cells
        ]

    def as_dict(self) -> dict[str, Any]:
        """Plain form, for JSON."""
        rise, forecast = self.excess, self.forecast
        return {
            "reach": self.reach,
            "everywhere": self.everywhere,
            "common": [self.common.lower, self.common.upper],
            "rise": rise and [rise.lower, rise.upper],
            "impossible": self.impossible,
            "cells": [
                {"cell": row.cell, "rows": row.rows, "alone": [row.lower, row.upper]}
                for row in self.cells
            ],
            "certificate": forecast and {**asdict(forecast), "chance": forecast.chance},
        }

    def __repr__(self) -> str:
        """Return the answer and its table, in plain lines."""
        lines = [self.sentence, self.verdict, "", *text_table(self.table)]
        if self.forecast is not None:
            lines += ["", self.forecast.sentence, "", *text_table(self.forecast.table)]
        return "\n".join(lines).rstrip()

    def _repr_html_(self) -> str:
        """Show it in a notebook; every text is escaped."""
        texts = [text for text in (self.sentence, self.verdict, *self.notes) if text]
        return element("feasible", "Smallest bounds", texts, self.table)


def feasible(
    data: Federation | Engine | Table,
    constraint: Constraint | Bound | str | None = None,
    *,
    bounded: bool = True,
    certify: float | None = None,
    model: Model | None = None,
    engine: str = "local",
    options: Options | None = None,
    **columns: Any,
) -> Feasible:
    """Find the smallest bounds that any model can meet; nothing is trained.

    Parameters
    ----------
    data, columns
        As for `solve`.
    constraint
        The groups and their bounds, as for `solve`. Default: every group.
    bounded
        Whether the constraint's bounds are asked for; else it only names cells.
    certify
        A confidence: forecast whether the bounds can be certified for new people, and
        how many calibration rows that takes. Needs rows that are in this process.
    model, engine, options
        As for `solve`.

    Returns
    -------
    Feasible
        What can be met, together and cell by cell; print it.

    Raises
    ------
    UsageError
        The model is not linear, or a forecast has no rows.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> found = pffl.feasible(people)
    >>> round(found.common.upper, 3)
    0.622
    """
    constraint = as_constraint(constraint)
    asker = open_engine(as_federation(data, columns, None), engine)
    given = constraint is not None and bounded and not constraint.minimax
    settings, forecast = options or Options(), None
    if certify is not None:
        asked = constraint if given else None
        forecast = _forecast(asker, asked, certify, model, settings)
    cells_of = constraint or BoundedGroupLoss(0.0)
    method = Auto(multiplier_bound=1.0, risk_weight=0.0)
    problem, notes = prepared(asker, cells_of, model, method, settings, 0)
    bounds = problem.cells.bounds
    if (why := unmeasurable(problem)) is not None:
        raise UsageError("no-smallest-bound", missing=why.missing)
    least_rows = problem.n_parameters if problem.access.elsewhere else 0
    places = np.flatnonzero((problem.rows > least_rows) & _mixed(problem)).tolist()
    least, rise = drive(asker, _together(problem, given))
    low, reach = least.enclosed()
    few = problem.n_cells <= MOST_CELLS
    flows = [find_alone(problem, z) for z in places if few]
    return Feasible(
        setting_of(asker).data.name,
        low,
        reach,
        least.everywhere or low.lower <= 0,
        None if rise is None else rise.excess(bounds),
        rise is not None and rise.proof(bounds) is not None,
        drive(asker, gather(*flows)),
        notes,
        forecast,
    )


def _mixed(problem: Problem) -> BoolArray:
    """Say which cells have several labels: with one, a guess loses nothing."""
    labels = problem.schema.n_labels
    shape = (problem.n_cells, -1, labels)
    several = problem.cells.membership.reshape(shape).any(axis=1).sum(axis=1) > 1
    return np.asarray(several | (labels == 1))


def _together(problem: Problem, given: bool) -> Flow[tuple[Least, Least | None]]:
    """Enclose the smallest common bound, and what given bounds must rise by."""
    cells = problem.cells
    least = _found((yield from find_least(problem.with_bounds(np.zeros(len(cells))))))
    if not given or float(np.ptp(cells.bounds)) <= EQUAL:
        return least, least if given else None
    return least, _found((yield from find_least(problem)))


def _found(least: Least | Missing) -> Least:
    if isinstance(least, Missing):
        raise KeyboardInterrupt  # half of a search answers nothing
    return least


def find_alone(problem: Problem, cell: int) -> Flow[CellRange]:
    """Enclose the lowest mean loss that one cell can have."""
    name, rows = problem.cells.names[cell], int(problem.rows[cell])
    found = yield from enclose(of_cells(problem, np.array([cell])))
    ends, _ = _found(found).enclosed()
    return CellRange(name, rows, ends.lower, ends.upper)


def _forecast(
    engine: Engine,
    constraint: Constraint | None,
    confidence: float,
    model: Model | None,
    options: Options,
) -> CertificateForecast:
    """Train on a part of the training rows, measure on the rest, and forecast."""
    delta, setting = 1.0 - probability("confidence", confidence), setting_of(engine)
    if engine.federation is None:
        raise UsageError("needs-rows:forecast")
    weighted = bool(setting.data.weighted)
    if weighted and options.weight_bound is None:
        raise UsageError("needs-weight-bound")
    method, plain = Auto(), replace(options, certify=False, models=None)
    problem, _ = prepared(engine, constraint, model, method, plain, 0)
    check_bounded(constraint, problem)
    split = calibration_split(setting.splits)
    counts = drive(engine, expected_rows(problem, (split,)))
    wanted = Wanted(
        ("train", "validation"),
        heldout=("validation",),
        weighted=weighted,
        weight_bound=options.weight_bound,
        confidence=confidence,
        open_multipliers=True,
        baseline=False,
        smallest=False,
    )

    def fitted(here: Setting) -> Flow[Any]:
        some = replace(plain, empty_cells="remove")
        part, _ = yield from prepare(here, constraint, model, method, some, 0)
        rows = yield from expected_rows(part, ("validation",))
        best = yield from find_safest(part, method.resolved(part)[0], wanted, rows)
        w, M, seen = best.run.point.w, best.loss_bound, best.measured.seen
        bounded = replace(wanted, loss_bound=M)
        held = yield from heldout_sample(part, w, bounded, seen, rows)
        return part.cells.names, held, M

    _, (names, held, M) = try_aside(engine.federation, setting, 0, fitted)
    if isinstance(held, Missing) or M is None:
        raise NotMetError("unbounded-loss:forecast")
    cells, risk = [], delta if weighted else LOG_SUM * delta
    for z, name in enumerate(problem.cells.names):
        bound, n, known = float(problem.cells.bounds[z]), int(counts[z]), None
        if name in names and held.people["count"][place := names.index(name)] >= FEWEST:
            known = held.moments(place)
            n = int(n * held.people["count"][place] / held.of_cells("count")[place])
        if known is None:
            cells.append(CellForecast(name, bound, n, None, 0.0, None))
            continue
        chance = partial(_chance, bound / M, known, risk)
        needed = None
        if known.mean < bound / M and chance(MOST_ROWS) >= POWER:
            rows = range(1, MOST_ROWS + 1)
            needed = 1 + bisect_left(rows, POWER, key=chance)
        loss = M * known.mean
        cells.append(CellForecast(name, bound, n, loss, chance(n), needed))
    return CertificateForecast(confidence, tuple(cells))


def _chance(bound: float, known: Moments, risk: float, rows: float) -> float:
    """Return Φ((ζ − U)/se) for n rows of a cell, in units of M."""
    if bound >= 1 or rows < 1:
        return float(bound >= 1)
    end = best(rows, -float(np.log(risk)), known)[1]
    error = known.deviation * np.sqrt(known.tt / rows) / known.t
    return float(ndtr((bound - end) / max(error, 1e-12)))


def _percent(chance: float) -> str:
    if not 0.01 <= chance <= 0.99:
        return "less than 1 %" if chance < 0.01 else "more than 99 %"
    return f"about {100 * chance:.0f} %"
