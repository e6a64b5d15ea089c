"""How far something is: a bar on a terminal, elsewhere a line now and then.

Rounds of a run and runs of a study are shown in this way, in words such as ``round 12
of 300: risk 0.61``. A bar fills only where it is known how much there is to do;
otherwise it oscillates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pffl.callbacks import Callback
from pffl.flow import Round
from pffl.text import shorten, visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from pffl.queries import Query

LINE_SECONDS = 5.0  # between two lines
#: What is asked besides rounds, by the kind of the query.
KINDS = {"census": "counting rows", "evaluate": "evaluating the model"}
GRADIENTS = "losses and gradients"  # of all others
MAX_NAME = 30


class Progress:
    """Shows things of a kind that are done one after the other.

    Call it with what it is, how many are done, and of how many if that is known.
    """

    def __init__(self, noun: str) -> None:
        from rich.console import Console

        self.noun = noun
        self._target = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._bar: Bar | None = None
        self._shown = -np.inf  # when the last line was written

    def __enter__(self) -> Progress:
        if self._target.is_terminal and not self._target.is_dumb_terminal:
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            text = TextColumn("{task.description}", markup=False)
            columns = (BarColumn(bar_width=20), TimeRemainingColumn(), text)
            self._bar = Bar(*columns, console=self._target, transient=True)
            self._bar.add_task("")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, what: str, done: int, total: int | None = None) -> None:
        """Show how far it is."""
        many, now = "" if total is None else f" of {total:,}", time.monotonic()
        text = visible(f"{self.noun} {done:,}{many}: {what}")
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, completed=done, total=total, description=text)
        elif done == total or now - self._shown >= LINE_SECONDS:
            self._shown = now
            self._target.print(text, soft_wrap=True)


class Rounds(Callback):
    """Shows the rounds of a run, with the worst cell and the measured gap.

    Where none comes for a while, what is asked.
    """

    def __init__(self) -> None:
        self.queries, self.last = 0, time.monotonic()  # when a round was shown
        self.shown: Progress | None = None

    def _show(self, noun: str, what: str, done: int, total: int | None) -> None:
        if self.shown is None or noun != self.shown.noun:
            self.ended()
            self.shown = Progress(noun).__enter__()
        self.shown(what, done, total)

    def after_round(self, row: Round) -> bool:
        """Go on."""
        self.last = time.monotonic()
        self._show("round", describe(row), row.number, row.planned)
        return False

    def asking(self, queries: Sequence[Query[Any]]) -> None:
        """Show what is measured."""
        self.queries += 1
        if time.monotonic() - self.last >= LINE_SECONDS:
            self._show("message", measured(queries), self.queries, None)

    def ended(self) -> None:
        """End."""
        if self.shown is not None:
            self.shown.__exit__(None, None, None)
        self.shown = None


def measured(queries: Sequence[Query[Any]]) -> str:
    """Say what the queries of a message are for."""
    kinds = (KINDS.get(one.kind, GRADIENTS) for one in queries)
    return "; ".join(dict.fromkeys(kinds))


def describe(row: Round) -> str:
    """One line about a round."""
    parts, problem = [f"risk {row.risk:.4f}"], row.problem
    if problem is not None and problem.n_cells:
        worst = int(np.nan_to_num(row.violation, nan=-np.inf).argmax())
        bound, name = problem.cells.bounds[worst], problem.cells.names[worst]
        loss = row.violation[worst] + bound
        group = f"worst group '{shorten(name, MAX_NAME)}'"
        parts.append(f"{group} {loss:.4f} (bound {bound:.4g})")
    if row.gap is not None:
        parts.append(f"gap {row.gap:.1e}")
    return ", ".join(parts)
