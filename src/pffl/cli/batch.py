"""A bar on a terminal, lines elsewhere, for commands that run many things."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pffl.cli import console

SECONDS_BETWEEN = 2.0


@contextmanager
def batch_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Give a function that shows what runs now, how many are done, and of how many."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    target = console.stderr()
    if not target.is_terminal or target.is_dumb_terminal:
        last, begun, first = -SECONDS_BETWEEN, time.monotonic(), -1

        def line(what: str, done: int, total: int) -> None:
            nonlocal last, first
            now = time.monotonic()
            first = done if first < 0 else first  # what an earlier run had done
            if now - last < SECONDS_BETWEEN and done != total:
                return
            last = now
            text = f"{done}/{total} {console.clean(what)}"
            if first < done < total:
                left = (now - begun) / (done - first) * (total - done)
                text += f", {left:.0f} s left"
            target.print(text, markup=False, soft_wrap=True)

        yield line
        return
    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.completed:.0f}/{task.total:.0f} {task.description}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=target, transient=True) as bar:
        task = bar.add_task("", total=1)
        yield lambda what, done, total: bar.update(
            task, description=console.clean(what), completed=done, total=total
        )
