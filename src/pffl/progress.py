"""How far something is: a bar on a terminal, elsewhere a line now and then.

Rounds of a run, runs of a study and bytes of a download are all shown in this way; bar
and line have the same words, such as ``round 12 of 300: risk 0.61, 4 s left``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pffl.callbacks import Callback, Round
from pffl.problem import Problem
from pffl.text import shorten, visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

EVERY = 5.0  # seconds between two lines
LONGEST_NAME = 30
UNITS = ("B", "kB", "MB", "GB")
PICTURES = "pictures"  # what is counted, while all else that arrives is weighed

#: What it is, how much is done, and of how much (where that is known), in words.
Words: TypeAlias = Callable[[str, int, int | None], str]


class Progress:
    """Shows one thing at a time; call it with what, how much, and of how much.

    Parameters
    ----------
    words
        How to say it.
    """

    def __init__(self, words: Words) -> None:
        from rich.console import Console

        self.words = words
        self._target = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._bar: Bar | None = None
        self._last, self._begun, self._first = -EVERY, 0.0, 0
        self._done, self._total = -1, -1

    def __enter__(self) -> Progress:
        if self._target.is_terminal and not self._target.is_dumb_terminal:
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                BarColumn(bar_width=20),
                TextColumn("{task.description}", markup=False),
                TimeRemainingColumn(),
                console=self._target,
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, what: str, done: int, total: int | None = None) -> None:
        """Show how far it is."""
        now = time.monotonic()
        fresh = done < self._done or (total or 0) != self._total
        if fresh:  # another thing
            self._begun, self._first = now, done
        self._done, self._total = done, total or 0
        text = visible(self.words(what, done, total))
        if self._bar is not None:
            self._move(self._bar, text, fresh)
        elif fresh or done == total or now - self._last >= EVERY:
            self._last = now
            if total is not None and self._first < done < total:
                rate = (done - self._first) / max(now - self._begun, 1e-9)
                text += f", {(total - done) / rate:.0f} s left"
            self._target.print(text, soft_wrap=True)

    def _move(self, bar: Bar, text: str, fresh: bool) -> None:
        if fresh:
            for task in bar.task_ids:
                bar.remove_task(task)
            bar.add_task(text, total=self._total or None)
        bar.update(bar.task_ids[0], completed=self._done, description=text)


def counted(noun: str) -> Progress:
    """Show things of a kind that are done one after the other."""

    def words(what: str, done: int, total: int | None) -> str:
        return f"{noun} {done:,}{'' if total is None else f' of {total:,}'}: {what}"

    return Progress(words)


def arriving() -> Progress:
    """Show files that are fetched, by name; or pictures that are read."""

    def words(what: str, done: int, total: int | None) -> str:
        amount = (lambda n: f"{n:,}") if what == PICTURES else size
        of = "" if total is None else f" of {amount(total)}"
        return f"{shorten(what, LONGEST_NAME)}: {amount(done)}{of}"

    return Progress(words)


def size(number: float) -> str:
    """Bytes in words.

    >>> size(999), size(2_546_489)
    ('999 B', '2.5 MB')
    """
    power = 0
    while number >= 1000 and power < len(UNITS) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.1f} {UNITS[power]}" if power else f"{number:.0f} {UNITS[0]}"


class Rounds(Callback):
    """Shows the rounds of a run, with the worst cell and the measured gap."""

    def before(self, problem: Problem, planned_rounds: int | None) -> None:
        """Begin."""
        self.planned = planned_rounds
        self.shown = counted("round").__enter__()

    def after_round(self, problem: Problem, row: Round) -> bool:
        """Go on."""
        self.shown(describe(problem, row), row.number, self.planned)
        return False

    def after(self, problem: Problem) -> None:
        """End."""
        self.shown.__exit__(None, None, None)


def describe(problem: Problem, row: Round) -> str:
    """One line about a round."""
    parts = [f"risk {row.risk:.4f}"]
    if problem.n_cells:
        worst = int(np.nan_to_num(row.violation, nan=-np.inf).argmax())
        loss = row.violation[worst] + problem.cells.bounds[worst]
        parts.append(
            f"worst {shorten(problem.cells.names[worst], LONGEST_NAME)} {loss:.4f} "
            f"({row.violation[worst]:+.4f} to its bound)"
        )
    if row.gap is not None:
        parts.append(f"gap {row.gap:.1e}")
    return ", ".join(parts)
