"""Progress on a terminal, with names that fit it."""

from __future__ import annotations

from dataclasses import replace

from pffl.callbacks import Callback, Lines, Progress, Round
from pffl.cli import console
from pffl.problem import Problem

LONGEST_NAME = 30


def shown() -> Callback:
    """Return a bar on a terminal, and lines elsewhere."""
    fancy = console.stderr()
    bar = fancy.is_terminal and not fancy.is_dumb_terminal
    return Readable(Progress() if bar else Lines())


class Readable(Callback):
    """Another callback that sees cells by names which a terminal can show."""

    def __init__(self, inner: Callback) -> None:
        self.inner = inner
        self.problem: Problem | None = None

    def before(self, problem: Problem, planned_rounds: int | None) -> None:
        """Clean the names, once."""
        names = tuple(console.clean(n, LONGEST_NAME) for n in problem.cells.names)
        cells = replace(problem.cells, names=names)
        self.problem = replace(problem, task=replace(problem.task, cells=cells))
        self.inner.before(self.problem, planned_rounds)

    def after_round(self, problem: Problem, row: Round) -> bool:
        """Pass on."""
        return self.inner.after_round(self.problem or problem, row)

    def after(self, problem: Problem) -> None:
        """Pass on."""
        self.inner.after(self.problem or problem)
