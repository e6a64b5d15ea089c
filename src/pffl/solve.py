"""`solve`: from a federation and a constraint to a model with a verdict."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pffl.callbacks import Callback
from pffl.checkpoint import Checkpoint, identity
from pffl.conclude import conclude
from pffl.constraints.base import Constraint
from pffl.data.federation import Federation
from pffl.engines.base import Engine
from pffl.errors import UsageError
from pffl.loop import iterate, iterate_many
from pffl.methods.base import Method
from pffl.methods.exact import Exact
from pffl.methods.pffl import PFFL
from pffl.models.base import Model
from pffl.models.linear import LinearModel
from pffl.preparation import (
    Options,
    default_model,
    open_engine,
    prepare,
    prices,
    reprice,
)
from pffl.solution import Solution


def solve(
    federation: Federation | Engine,
    constraint: Constraint | None,
    *,
    model: Model | None = None,
    method: Method[Any] | None = None,
    engine: str = "local",
    options: Options | None = None,
    seed: int | None = None,
    callbacks: Sequence[Callback] = (),
    gap_every: int = 0,
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
) -> Solution:
    """Train one model under a bound per cell, and say how far the promise holds.

    Parameters
    ----------
    federation
        The silos; or an engine that reaches them.
    constraint
        What is promised to whom; None for plain risk minimisation.
    model
        Default: logistic, softmax or least squares, as the labels ask for.
    method
        Default: `Exact` for linear models, `PFFL` for others.
    engine
        "local" or "reference", if a federation is given.
    options
        Silo weights, norm ball, confidence; see `Options`.
    seed
        Seed of the run; drawn and recorded if None.
    callbacks, gap_every
        Shown between rounds; see `loop.iterate`.
    checkpoint
        A directory in which to save where the run stands. If the same run was stopped
        there, by an interruption, an error or a crash, it goes on, and ends as if it
        had not been; the seed may be left out. The files go away once the run is
        finished; those of a `Checkpoint` stay, until its owner removes them.
    """
    settings = options or Options()
    started = time.monotonic()
    asker = open_engine(federation, engine)
    keeper = (
        checkpoint
        if checkpoint is None or isinstance(checkpoint, Checkpoint)
        else Checkpoint(checkpoint)
    )
    saved = keeper.saved() if keeper is not None and seed is None else None
    seed = saved[0] if saved else secrets.randbits(32) if seed is None else int(seed)
    bound_model = model or default_model(asker.schema)
    chosen = default_method(bound_model) if method is None else method
    problem, notes = prepare(asker, constraint, bound_model, chosen, settings, seed)
    if keeper is not None:
        keeper.identity = identity(
            asker, problem, constraint, chosen, options=settings, gap_every=gap_every
        )
    try:
        run = iterate(
            asker,
            problem,
            chosen,
            callbacks=callbacks,
            gap_every=gap_every,
            checkpoint=keeper,
        )
        solution = conclude(
            asker, problem, run, constraint, chosen, settings, notes, started
        )
    except BaseException:
        if keeper is not None:
            keeper.flush()
        raise
    if keeper is None:
        return solution
    if keeper is not checkpoint and solution.status != "interrupted":
        keeper.remove()
    return replace(solution, seconds=solution.seconds + keeper.elapsed)


def solve_many(
    federation: Federation | Engine,
    points: Sequence[tuple[Constraint, Method[Any]]],
    *,
    model: Model | None = None,
    engine: str = "local",
    options: Options | None = None,
    seed: int = 0,
) -> list[Solution]:
    """Solve many (constraint, method) points at once: one pass over the rows a round.

    The constraints must have the same cells; bounds and the methods' parameters differ.
    """
    if not points:
        return []
    settings = options or Options()
    started = time.monotonic()
    asker = open_engine(federation, engine)
    first, notes = prepare(asker, points[0][0], model, points[0][1], settings, seed)
    names = set(points[0][0].cells(asker.schema, asker.silo_names).names)
    problems = []
    for constraint, method in points:
        cells = constraint.cells(asker.schema, asker.silo_names)
        if set(cells.names) != names:
            raise UsageError("the constraints of a stack must have the same cells")
        kept = [cells.names.index(name) for name in first.cells.names]
        problems.append(reprice(first, cells.bounds[kept], *prices(constraint, method)))
    runs = iterate_many(asker, problems, [method for _, method in points])
    return [
        conclude(asker, problem, run, constraint, method, settings, notes, started)
        for problem, run, (constraint, method) in zip(
            problems, runs, points, strict=True
        )
    ]


def default_method(model: Model) -> Method[Any]:
    """Return `Exact` where it applies, `PFFL` elsewhere."""
    return Exact() if isinstance(model, LinearModel) else PFFL()
