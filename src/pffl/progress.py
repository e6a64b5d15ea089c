"""How far something is: a bar on a terminal, elsewhere a line now and then.

Rounds of a run, runs of a study and bytes of a download are all shown in this way; bar
and line have the same words, such as ``round 12 of 300: risk 0.61, 4 s left``. A bar
fills only where it is known how much there is to do; otherwise it moves to and fro.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pffl.callbacks import Callback
from pffl.flow import Round
from pffl.text import shorten, visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from pffl.queries import Query

LINE_SECONDS = 5.0  # between two lines
#: What is asked beside rounds, by the kind of the query.
KINDS = {"census": "counting rows", "evaluate": "evaluating the model"}
GRADIENTS = "losses and gradients"  # of all others
MAX_NAME = 30
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
    patience
        Seconds before the first line.
    """

    def __init__(self, words: Words, *, patience: float = 0.0) -> None:
        from rich.console import Console

        self.words = words
        self._target = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._bar: Bar | None = None
        self._last, self._begun, self._first = -LINE_SECONDS, 0.0, 0
        self._patience = patience
        self._done, self._total = -1, -1

    def __enter__(self) -> Progress:
        if self._target.is_terminal and not self._target.is_dumb_terminal:
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                BarColumn(bar_width=20),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}{task.description}", markup=False),
                console=self._target,
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, what: str, done: int, total: int | None = None) -> None:
        """Show how far it is."""
        now = time.monotonic()
        fresh = done < self._done or (total or 0) != self._total  # another thing
        if fresh:
            self._begun, self._first = now, done
        self._done, self._total = done, total or 0
        text, left = visible(self.words(what, done, total)), ""
        if total is not None and self._first < done < total:
            rate = (done - self._first) / max(now - self._begun, 1e-9)
            left = f"{(total - done) / rate:.0f} s left"
        if self._bar is None:
            # A line at both ends, and now and then between them.
            waited = now - (self._begun if self._last < 0 else self._last)
            due = fresh or done == total or waited >= LINE_SECONDS or self._last < 0
            if due and not (self._patience and waited < self._patience):
                self._last = now
                self._target.print(f"{text}, {left}" if left else text, soft_wrap=True)
            return
        if fresh:
            for task in self._bar.task_ids:
                self._bar.remove_task(task)
            self._bar.add_task(text, total=self._total or None, left="")
        left = f"{left}, " if left else ""
        task = self._bar.task_ids[0]
        self._bar.update(task, completed=done, description=text, left=left)


def counted(noun: str) -> Progress:
    """Show things of a kind that are done one after the other."""
    return Progress(
        lambda what, done, total: (
            f"{noun} {done:,}{'' if total is None else f' of {total:,}'}: {what}"
        )
    )


def arriving() -> Progress:
    """Show files that are fetched, by name; or pictures that are read."""

    def words(what: str, done: int, total: int | None) -> str:
        amount = (lambda n: f"{n:,}") if what == PICTURES else size
        of = "" if total is None else f" of {amount(total)}"
        return f"{shorten(what, MAX_NAME)}: {amount(done)}{of}"

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
    """Shows the rounds of a run, with the worst cell and the measured gap.

    Where none comes for a while, what is asked.
    """

    def __init__(self) -> None:
        self.queries, self.last = 0, -LINE_SECONDS  # when the last round was shown
        self.shown: Progress | None = None

    def after_round(self, row: Round) -> bool:
        """Go on."""
        if self.shown is None or self.shown.words is _message:
            self.ended()
            self.shown = counted("round").__enter__()
        self.last = time.monotonic()
        self.shown(describe(row), row.number, row.planned)
        return False

    def asking(self, queries: Sequence[Query[Any]]) -> None:
        """Show what is measured."""
        self.queries += 1
        if time.monotonic() - self.last < LINE_SECONDS:
            return
        if self.shown is None or self.shown.words is not _message:
            self.ended()
            self.shown = Progress(_message, patience=LINE_SECONDS).__enter__()
        self.shown(measured(queries), self.queries)

    def ended(self) -> None:
        """End."""
        if self.shown is not None:
            self.shown.__exit__(None, None, None)
        self.shown = None


def measured(queries: Sequence[Query[Any]]) -> str:
    """Say what the queries of a message are for."""
    kinds = (KINDS.get(one.kind, GRADIENTS) for one in queries)
    return "; ".join(dict.fromkeys(kinds))


def _message(what: str, done: int, total: int | None) -> str:
    return f"message {done:,}: {what}"


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
