"""Flows driven by an engine, for tests that look at one part of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pffl import flow
from pffl._solve import prepared as prepare
from pffl.callbacks import Callback
from pffl.driver import drive
from pffl.engines import Engine
from pffl.flow import Flow, Run
from pffl.methods import Method
from pffl.problem import Expansion, Point, Problem
from tests.inside import Least, Pair, find_alone, proofs

__all__ = ["drive", "prepare"]


def iterate(
    engine: Engine,
    problem: Problem,
    method: Method,
    *,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Run one method to its end."""
    conversation = flow.rounds(problem, method, watched=True)
    return drive(engine, conversation, callbacks=callbacks)


def expand(engine: Engine, problem: Problem, w: Any) -> Expansion:
    """Ask for the expansion at w."""
    return drive(engine, proofs.expand(problem, w))


def measure(engine: Engine, problem: Problem, point: Point) -> Pair:
    """Measure the gap of a pair."""
    return Pair.of(drive(engine, proofs.measure_gap(problem, point)))


def least(engine: Engine, problem: Problem) -> Least:
    """Enclose how low the bounds can go together."""
    found = drive(engine, proofs.find_least(problem))
    assert isinstance(found, Least)
    return found


def lowest(engine: Engine, problem: Problem, cell: int) -> Any:
    """Enclose how low the bound of one cell alone can go."""
    return drive(engine, find_alone(problem, cell))


def answered(engine: Engine, conversation: Flow[Any]) -> Any:
    """Drive any flow."""
    return drive(engine, conversation)
