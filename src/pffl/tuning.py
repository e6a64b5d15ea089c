"""Choose l2 on training rows that are set aside; held-out rows are never looked at.

    1  a fifth of each silo's training rows is set aside (all rows of a person together)
    2  for l2 = 1, 0.1, … 1e-6: the bounded problem is solved on the others, warm
    3  the l2 whose model has the smallest overall loss on the rows set aside is taken

and the run then trains on all of its training rows. Of equal losses the larger l2 wins.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from pffl.constraints.base import Constraint
from pffl.data.federation import Federation
from pffl.data.silo import Rows
from pffl.driver import drive
from pffl.engines import Local
from pffl.errors import UsageError
from pffl.flow import Flow, Start, ask, rounds
from pffl.methods.auto import Auto
from pffl.methods.base import Method
from pffl.models.base import Model
from pffl.models.linear import LinearModel
from pffl.prepare import Options, Setting, prepare, prices
from pffl.problem import Point
from pffl.queries import Evaluate
from pffl.text import words

GRID = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
SET_ASIDE = 0.2  # of each silo's training rows


def choose_l2(
    federation: Federation | None,
    setting: Setting,
    constraint: Constraint | None,
    model: Model,
    method: Method,
    options: Options,
    seed: int,
) -> tuple[LinearModel, str]:
    """Return the model with the l2 that does best, and what was tried, in words.

    None for the constraint: without bounds.
    """
    beta, price = prices(constraint, method)
    refused = None
    if federation is None:
        refused = "sets training rows aside, and they are elsewhere"
    elif not isinstance(model, LinearModel):
        refused = "is for linear models"
    elif beta == 0:
        refused = "has nothing to choose: the ridge counts with the risk weight, 0"
    if refused or federation is None or not isinstance(model, LinearModel):
        raise UsageError(f"[auto-refused] l2 = 'auto' {refused}: give a number")
    apart = set_aside(federation, seed)
    engine, here = Local(apart), replace(setting, splits=apart.splits, partial=False)
    bounded = constraint if price > 0 else None
    plain = replace(options, l2=None, error_at_most=None, empty_cells="remove")
    found: list[float] = []
    start: Point | None = None
    for l2 in GRID:
        tried = Auto(multiplier_bound=price or None, risk_weight=beta)
        flow = _tried(here, bounded, replace(model, l2=l2), tried, plain, seed, start)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run itself will warn
            start, loss = drive(engine, flow)
        found.append(loss)
    best = int(np.argmin(found))
    told = ", ".join(f"{g:g}: {words(v)}" for g, v in zip(GRID, found, strict=True))
    aside, rows = apart.rows("validation"), federation.rows("train")
    return replace(model, l2=GRID[best]), (
        f"l2 = {GRID[best]:g} was chosen by the overall loss on {aside:,} of the "
        f"{rows:,} training rows, set aside while the others were trained on ({told}); "
        "no held-out row was looked at"
    )


def set_aside(federation: Federation, seed: int) -> Federation:
    """Return the training rows alone, a part of them as validation rows."""
    parts = [silo.rows("train") for silo in federation.silos]
    rows, sizes = Rows.joined(parts), [len(part) for part in parts]
    people = None
    if rows.person is not None:
        # Names that no id has: the same hash would draw no one who is trained on.
        ids = tuple(f"set aside {i}" for i in range(int(rows.person.max()) + 1))
        people = ids, rows.person
    return Federation.from_rows(
        federation.schema,
        rows,
        np.repeat(np.arange(len(parts)), sizes),
        federation.silo_names,
        test_fraction=0.0,
        validation_fraction=SET_ASIDE,
        people=people,
        seed=seed,
    )


def _tried(
    setting: Setting,
    constraint: Constraint | None,
    model: LinearModel,
    method: Auto,
    options: Options,
    seed: int,
    start: Point | None,
) -> Flow[tuple[Point, float]]:
    """Solve on the training rows, and measure the loss on those set aside."""
    problem, _ = yield from prepare(setting, constraint, model, method, options, seed)
    near = None if start is None else Start(start)
    run = yield from rounds(problem, method, start=near)
    if run.stopped == "interrupted":
        raise KeyboardInterrupt
    total = yield from ask(Evaluate(problem.task, run.point.w, "validation"))
    if not total.share > 0:
        raise UsageError(
            "[auto-too-few] l2 = 'auto' sets training rows aside, and there are too "
            "few: give a number"
        )
    return run.point, total.risk / total.share
