"""`feasible`: the smallest bounds that any model can meet, before anything is trained.

One minimax problem for all cells together, and for each cell a search for how low its
own bound can go: alone, and with the others' bounds kept. They are independent, so
their queries go out together. See `evidence.proofs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from pffl._solve import open_engine, prepared, setting_of
from pffl.bounds.checks import Interval
from pffl.constraints.base import Constraint, find_cell
from pffl.constraints.group_loss import BoundedGroupLoss
from pffl.data.checks import listing
from pffl.data.federation import Federation
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import UsageError
from pffl.evidence.proofs import (
    askable,
    find_least,
    find_lowest,
    find_reach,
    unmeasurable,
)
from pffl.evidence.record import Least, Lowest, Missing
from pffl.flow import Flow, gather
from pffl.methods.auto import Auto
from pffl.models.base import Model
from pffl.prepare import Options
from pffl.problem import Problem
from pffl.text import down, element, text_table, up, words

R = TypeVar("R")
EQUAL = 1e-12  # bounds this close are one
MOST = 30  # cells whose own smallest bound is searched for unasked


@dataclass(frozen=True)
class CellRange:
    """How low the bound of one cell can go: on its own, and with the others kept."""

    cell: str
    rows: int
    alone: Lowest
    kept: Lowest


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
    others
        The bound of the other cells in `cells`; None where they keep the given ones.
    cells
        The cells that were looked at.
    left
        How many were not.
    notes
        What a reader must know.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
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
    others: float | None
    cells: tuple[CellRange, ...]
    left: int
    notes: tuple[str, ...]

    @property
    def alone(self) -> dict[str, float]:
        """The smallest mean loss that each cell can reach alone: a proved lower end."""
        return {row.cell: row.alone.lower for row in self.cells}

    @property
    def sentence(self) -> str:
        """The smallest common bound, in words."""
        low, high = down(self.common.lower, digits=7), up(self.common.upper, digits=7)
        limit = f", with weights of length at most {down(self.reach)}"
        models = "" if self.everywhere else limit
        return (
            f"{self.data}: the smallest bound that all cells can meet together lies "
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
        others = "as given"
        if self.others is not None:
            others = f"at {words(self.others, digits=7)}"
        return [
            {
                "cell": row.cell,
                "rows": row.rows,
                "lowest alone": _figure(row.alone),
                f"lowest, the others {others}": _figure(row.kept),
            }
            for row in self.cells
        ]

    def as_dict(self) -> dict[str, Any]:
        """Plain form, for JSON."""
        return {
            "reach": self.reach,
            "everywhere": self.everywhere,
            "common": _ends(self.common),
            "rise": None if self.excess is None else _ends(self.excess),
            "impossible": self.impossible,
            "others_at": self.others,
            "cells": [
                {
                    "cell": row.cell,
                    "rows": row.rows,
                    "alone": _attained(row.alone),
                    "with_others": _attained(row.kept),
                    "others_impossible": row.kept.impossible,
                }
                for row in self.cells
            ],
        }

    def __repr__(self) -> str:
        """Return the answer and its table, in plain lines."""
        lines = [self.sentence, self.verdict, "", *text_table(self.table)]
        return "\n".join(lines).rstrip()

    def _repr_html_(self) -> str:
        """Show it in a notebook; every text is escaped."""
        texts = [text for text in (self.sentence, self.verdict, *self.notes) if text]
        return element("feasible", "Smallest bounds", texts, self.table)


def feasible(
    federation: Federation | Engine,
    constraint: Constraint | None = None,
    *,
    promise: bool = True,
    cells: Sequence[str] = (),
    model: Model | None = None,
    engine: str = "local",
    options: Options | None = None,
) -> Feasible:
    """Find the smallest bounds that any model can meet; nothing is trained.

    Parameters
    ----------
    federation
        The silos; or an engine that reaches them.
    constraint
        The cells and, if they are a promise, their bounds. Default: every group.
    promise
        Whether the constraint's bounds are asked for; else it only names cells.
    cells
        The cells whose own smallest bound is wanted. Default: all, if they are few.
        Where rows are elsewhere, those with no more rows than the model has weights are
        left out.
    model, engine, options
        As for `solve`.

    Returns
    -------
    Feasible
        What can be met, together and cell by cell; print it.

    Raises
    ------
    UsageError
        The model is not linear, or a cell is not known.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> found = pffl.feasible(people)
    >>> round(found.common.upper, 3)
    0.622
    """
    asker = open_engine(federation, engine)
    promised = constraint is not None and promise and not constraint.minimax
    problem, notes = prepared(
        asker,
        constraint or BoundedGroupLoss(0.0),
        model,
        Auto(multiplier_bound=1.0, risk_weight=0.0),
        options or Options(),
        0,
    )
    names = problem.cells.names
    found = {cell: find_cell(cell, names) for cell in cells}
    unknown = [cell for cell, place in found.items() if place is None]
    if unknown:
        raise UsageError(
            f"[unknown-cell] no cell '{unknown[0]}': there are {list(names)}"
        )
    if (why := unmeasurable(problem)) is not None:
        raise UsageError(
            f"[no-smallest-bound] the smallest bounds cannot be found: {why.missing}"
        )
    places, allowed = [z for z in found.values() if z is not None], askable(problem)
    if few := [names[z] for z in places if z not in allowed]:
        raise UsageError(
            f"[cell-too-small] {listing(few)} have no more training rows than the "
            "model has weights: a fit of such a cell alone gives its rows away, and "
            "sites are not asked for one"
        )
    if not places and len(names) <= MOST:
        places = allowed
    bounds = problem.cells.bounds
    least, rise = drive(asker, _whole(_together(problem, promised)))
    low, reach = least.enclosed()
    others = None if promised else float(up(low.upper, digits=5))
    if others is not None:
        problem = problem.with_bounds(np.full(len(names), others))
    return Feasible(
        setting_of(asker).data.name,
        low,
        reach,
        least.everywhere or low.lower <= 0,
        None if rise is None else rise.excess(bounds),
        rise is not None and rise.proof(bounds) is not None,
        others,
        drive(asker, _whole(_each(problem, places))),
        len(names) - len(places),
        notes,
    )


def _together(problem: Problem, promised: bool) -> Flow[tuple[Least, Least | None]]:
    """Enclose the smallest common bound, and what given bounds must rise by."""
    cells = problem.cells
    least = _found((yield from find_least(problem.with_bounds(np.zeros(len(cells))))))
    if not promised or float(np.ptp(cells.bounds)) <= EQUAL:
        return least, least if promised else None
    return least, _found((yield from find_least(problem)))


def _found(least: Least | Missing) -> Least:
    if isinstance(least, Missing):
        raise UsageError(
            f"[no-smallest-bound] the smallest bounds cannot be found: {least.missing}"
        )
    return least


def _whole(flow: Flow[R]) -> Flow[R]:
    """Let an interruption end the search: half of it answers nothing."""
    value: Any = None
    while True:
        try:
            signal = flow.send(value)
        except StopIteration as done:
            result: R = done.value
            return result
        value = yield signal


def _each(problem: Problem, places: Sequence[int]) -> Flow[tuple[CellRange, ...]]:
    """Search for every cell's own smallest bounds side by side."""
    if not places:
        return ()
    kept = [find_lowest(problem, z) for z in places]
    alone, others = yield from gather(find_reach(problem, places), gather(*kept))
    return tuple(
        CellRange(problem.cells.names[z], int(problem.rows[z]), *pair)
        for z, *pair in zip(places, alone, others, strict=True)
    )


def _ends(interval: Interval) -> list[float]:
    return [interval.lower, interval.upper]


def _attained(found: Lowest) -> list[float] | None:
    return None if found.upper is None else [found.lower, found.upper]


def _figure(found: Lowest) -> str:
    if found.impossible:
        return "others impossible"
    if found.upper is None:
        return f"≥ {down(found.lower, digits=7)}"
    return up(found.upper, digits=7)
