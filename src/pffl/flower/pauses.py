"""Flower's own waits, made short in the versions of Flower that this was tried with.

A part of a message that has not arrived yet is asked for again after a second, and then
after two: that is longer than a whole query takes. And the SuperLink looks for tasks
whose time is over at nearly every request, with a lock on its database each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from importlib.metadata import version
from typing import Any

KNOWN = ("1.41.",)  # versions of Flower, by their beginning
RETRY = 0.05  # seconds until a part that is not there is asked for again


def known() -> bool:
    """Whether the installed Flower is one whose insides are known here."""
    return version("flwr").startswith(KNOWN)


def shorten(name: str) -> None:
    """Make short the pauses of a module of Flower's that pulls parts of messages."""
    module: Any = import_module(name)
    module.pull_objects = partial(module.pull_objects, initial_backoff=RETRY)


def seldom(action: Callable[[Any], None], seconds: float) -> Callable[[Any], None]:
    """Return a method that does nothing if it was called just before."""
    last = -float("inf")

    @wraps(action)
    def sometimes(self: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            action(self)

    return sometimes
