"""`pffl feasible`: the smallest bounds that can be met, before any training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pffl.cli import console
from pffl.cli.draft import Draft
from pffl.cli.loading import build
from pffl.cli.options import takes

if TYPE_CHECKING:
    from pffl.certificates import Interval
    from pffl.certify.lowest import Lowest
    from pffl.certify.training import Proof
    from pffl.engines import Engine
    from pffl.problem import Problem

MOST = 30  # cells whose own smallest bound is searched for


@dataclass(frozen=True, eq=False)
class Found:
    """What can be met.

    Attributes
    ----------
    common
        Encloses the smallest bound that all cells meet together.
    excess
        Encloses what all given bounds have to rise by; None without bounds.
    others
        The bounds of the other cells in `cells`.
    cells
        Per cell: its name, its rows, the least on its own, the least with the others.
    """

    common: Interval
    excess: Interval | None
    others: float | None
    cells: tuple[tuple[str, int, Lowest, Lowest], ...]

    @property
    def impossible(self) -> bool:
        """Whether the given bounds cannot be met."""
        return self.excess is not None and self.excess.lower > 0


@takes("data", "constraint", "model", "run")
def feasible(
    draft: Draft,
    cell: Annotated[
        list[str] | None,
        typer.Option(help="Only this cell; may be repeated.", metavar="CELL"),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, nothing else.")
    ] = False,
) -> None:
    """Find the smallest bounds that any model can meet; nothing is trained or saved.

    First the smallest bound for all cells together, then how low the bound of each
    cell could go with the others at that value, or at --bound. Ends with exit code 4
    if the bounds given cannot be met.

    Example: pffl feasible compas --bound 0.61
    """
    from pffl.cli import statements
    from pffl.engines import ENGINES
    from pffl.methods import Exact
    from pffl.preparation import prepare

    draft, bounded = with_a_bound(draft)
    job = build(draft.check())
    engine = ENGINES[job.engine](job.federation)
    method = Exact(multiplier_bound=1.0, risk_weight=0.0)
    problem, notes = prepare(
        engine, job.constraint, job.model, method, job.options, job.seed or 0
    )
    found = search(engine, problem, cell or [], bounded=bounded)
    if json:
        statements.print_json(plain(found, problem))
    else:
        for note in notes:
            console.note(note)
        _tell(found, problem, job.federation.name)
    raise typer.Exit(4 if found.impossible else 0)


def with_a_bound(draft: Draft) -> tuple[Draft, bool]:
    """Return the draft with a bound of 0 where none was given, and whether one was."""
    from pffl.constraints import is_minimax

    given = draft.sections.get("constraint")
    if isinstance(given, list):
        return draft, True
    section: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}
    if is_minimax(section):
        section["kind"] = "bgl"
    if "bound" in section or "upper_bound" in section:
        return draft, True
    section["bound"] = 0.0
    return replace(draft, sections={**draft.sections, "constraint": section}), False


def search(
    engine: Engine, problem: Problem, wanted: list[str], *, bounded: bool
) -> Found:
    """Solve one minimax problem for all cells, and one search for each of them."""
    import numpy as np

    from pffl.certify.training import Proof, common
    from pffl.errors import UsageError

    names = problem.cells.names
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise UsageError(f"no cell '{unknown[0]}': there are {list(names)}")
    least = _enclosed(Proof.of(engine, common(problem)), floor=0.0)
    excess, others = None, None
    if bounded:
        excess = _enclosed(Proof.of(engine, problem))
    else:
        others = math.ceil(least.upper * 1e4) / 1e4
        problem = problem.with_bounds(np.full(len(names), others))
    chosen = wanted or (names if len(names) <= MOST else ())
    cells = tuple(_cell(engine, problem, names.index(name)) for name in chosen)
    return Found(least, excess, others, cells)


def _enclosed(proof: Proof, *, floor: float = -math.inf) -> Interval:
    from pffl.certificates import Interval

    upper = proof.found.excess.upper
    return Interval(min(max(proof.witness.bound, floor), upper), upper)


def _cell(engine: Engine, problem: Problem, z: int) -> tuple[str, int, Lowest, Lowest]:
    from pffl.certify.lowest import lowest

    alone = replace(
        problem,
        task=replace(problem.task, cells=problem.cells.take([z])),
        counts=problem.counts[[z]],
    )
    rows = int(problem.counts[z])
    return (
        problem.cells.names[z],
        rows,
        lowest(engine, alone, 0),
        lowest(engine, problem, z),
    )


def plain(found: Found, problem: Problem) -> dict[str, Any]:
    """Plain form, for JSON."""

    def ends(interval: Interval | None) -> list[float] | None:
        return None if interval is None else [interval.lower, interval.upper]

    return {
        "radius": problem.radius,
        "common": ends(found.common),
        "rise": ends(found.excess),
        "impossible": found.impossible,
        "others_at": found.others,
        "cells": [
            {
                "cell": name,
                "rows": rows,
                "alone": ends(alone.interval),
                "with_others": ends(kept.interval),
                "others_impossible": kept.impossible,
            }
            for name, rows, alone, kept in found.cells
        ],
    }


def _tell(found: Found, problem: Problem, name: str) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from pffl.cli.console import clean
    from pffl.cli.statements import LONGEST_NAME

    target = console.stdout()
    target.print()
    target.print(Text(clean(_common(found, problem, name))))
    if found.excess is not None:
        style = "bold red" if found.impossible else "bold green"
        target.print(Text(_room(found.excess), style=style))
    out = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
    out.add_column("cell", overflow="fold")
    others = "at --bound" if found.others is None else f"at {found.others:.4f}"
    for title in ("rows", "lowest alone", f"lowest, the others {others}"):
        out.add_column(title, justify="right")
    for cell, rows, alone, kept in found.cells:
        figures = (f"{rows:,}", _figure(alone), _figure(kept))
        out.add_row(Text(clean(cell, LONGEST_NAME)), *figures)
    if found.cells:
        target.print(out)
    left = problem.n_cells - len(found.cells)
    if left and not found.cells:
        target.print(f"{left:,} cells: name those to look at with --cell")


def _common(found: Found, problem: Problem, name: str) -> str:
    from pffl.certificates.words import down, up

    low, high = found.common.lower, found.common.upper
    return (
        f"{name}: the smallest bound that all cells can meet together "
        f" lies between {down(low, digits=7)} and {up(high, digits=7)}, among "
        f"models of length at most {problem.radius:g}."
    )


def _room(excess: Interval) -> str:
    from pffl.certificates.words import down, up

    if excess.lower > 0:
        return f"IMPOSSIBLE: all bounds would have to rise by {up(excess.upper)}."
    if excess.upper <= 0:
        least = down(-excess.upper)
        return f"POSSIBLE: there is a model with {least} of room under every bound."
    return "UNDECIDED: the bounds are right at what is possible."


def _figure(found: Lowest) -> str:
    if found.impossible:
        return "others impossible"
    if found.interval is None:
        return f"≥ {found.lower:.6f}"
    return f"{math.ceil(found.interval.upper * 1e6) / 1e6:.6f}"
