"""Ctrl-C and SIGTERM: the round is abandoned, where the run stands is saved."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

from pffl.cli import console

INTERRUPTED = 128 + signal.SIGINT


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Treat SIGTERM like Ctrl-C, and remember which one it was.

    The second of them ends the process at once, whatever it is doing: it is left to
    the system. Files are whole at any time.
    """
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen  # only the main thread may handle signals
        return

    def remember(number: int, frame: object) -> None:
        seen.append(number)
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        with suppress(OSError):
            os.write(2, b"\nstopping; once more ends at once\n")
        raise KeyboardInterrupt

    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, remember)
    try:
        yield seen
    except KeyboardInterrupt:
        console.error("interrupted")
        raise typer.Exit(code_of(seen)) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def code_of(seen: list[int]) -> int:
    """Exit code after these signals."""
    return 128 + seen[-1] if seen else INTERRUPTED


@contextmanager
def resumable(directory: Path) -> Iterator[None]:
    """If the run stops, by an error or a signal, say how to go on with it."""
    from pffl.log import SPEC

    try:
        yield
    except BaseException:
        if (directory / SPEC).is_file():
            console.note(how_to_go_on(directory))
        raise


def how_to_go_on(directory: Path) -> str:
    """Return the command that goes on with a run."""
    return f"to go on: pffl run --resume {shlex.quote(str(directory))}"
