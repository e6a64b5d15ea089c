"""Open data with something to look at: bytes, share and time left.

A bar on a terminal; elsewhere a line every few seconds. Data that are there already
show nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pffl.cli import console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from pffl.data import Federation
    from pffl.datasets import Progress as Show
    from pffl.spec import DataSource, Job, RunSpec

SECONDS_BETWEEN = 5.0
UNITS = ("B", "kB", "MB", "GB")


def open_data(source: DataSource) -> Federation:
    """Open the data of a run file."""
    with progress() as show:
        return source.open(progress=show)


def build(spec: RunSpec) -> Job:
    """Open the data of a run file and fit the pieces together."""
    with progress() as show:
        return spec.build(progress=show)


@contextmanager
def progress() -> Iterator[Show]:
    """Give a function that shows how far a file is."""
    target = console.stderr()
    if target.is_terminal and not target.is_dumb_terminal:
        with _bars(target) as show:
            yield show
    else:
        yield _Lines(target)


def size(number: float) -> str:
    """Bytes in words.

    >>> size(999), size(2_546_489)
    ('999 B', '2.5 MB')
    """
    power = 0
    while number >= 1000 and power < len(UNITS) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.1f} {UNITS[power]}" if power else f"{number:.0f} {UNITS[0]}"


class _Lines:
    """A line when a file begins and ends, and every few seconds between."""

    def __init__(self, target: Console) -> None:
        self.target = target
        self.what = ""
        self.begun = self.last = 0.0
        self.first = 0

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if what != self.what:
            self.what, self.begun, self.first = what, now, done
        elif now - self.last < SECONDS_BETWEEN and done != total:
            return
        self.last = now
        text = f"{console.clean(what)}: {_amount(what, done)}"
        if total is not None:
            text += f" of {_amount(what, total)}"
            if self.first < done < total:
                rate = (done - self.first) / max(now - self.begun, 1e-9)
                text += f", {(total - done) / rate:.0f} s left"
        self.target.print(text, markup=False, soft_wrap=True)


def _amount(what: str, number: int) -> str:
    return f"{number:,}" if what == "pictures" else size(number)


@contextmanager
def _bars(target: Console) -> Iterator[Show]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[amount]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=target, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int | None) -> None:
            amount = _amount(what, done)
            if total is not None:
                amount += f" of {_amount(what, total)}"
            if what not in tasks:
                for old in tasks.values():
                    bar.remove_task(old)
                tasks.clear()
                name = console.clean(what, 30)
                tasks[what] = bar.add_task(name, total=total, amount=amount)
            bar.update(tasks[what], completed=done, total=total, amount=amount)

        yield show
