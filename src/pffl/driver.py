"""The driver: what carries a flow's queries to silos, and shows its rounds.

`drive` is the only loop. It drops what is asked twice in a message, shows rounds to
callbacks, and writes down what it hears, so that a run that was stopped anywhere goes
on and ends as if it had not been.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pffl.callbacks import Callback
from pffl.engines.base import Engine
from pffl.flow import Flow, Round, Signal, gather
from pffl.log import Log
from pffl.processors import blas_threads
from pffl.queries import Query, Total

R = TypeVar("R")
NUMBER_BYTES = 8


def drive(
    engine: Engine,
    flow: Flow[R],
    *,
    callbacks: Sequence[Callback] = (),
    log: Log | None = None,
) -> R:
    """Carry a flow's queries to an engine; return what the flow returns.

    An interruption (Ctrl-C) is thrown into the flow, which may end its training and go
    on; any other error ends it.
    """
    began = time.monotonic() - (0.0 if log is None else log.seconds)
    step: Callable[[Any], Signal] = flow.send
    value: Any = None
    number = 0
    try:
        with blas_threads(1), DeferredSignals() as signals:

            def ask(queries: list[Query[Any]]) -> list[Total]:
                for callback in callbacks:
                    callback.asking(queries)
                try:
                    with signals.allowed():
                        return engine.ask_many(queries)
                except Exception as error:
                    kinds = ", ".join(query.kind for query in queries)
                    error.add_note(f"while asking message {number}: {kinds}")
                    raise

            while True:
                try:
                    told = step(value)
                except StopIteration as done:
                    result: R = done.value
                    return result
                try:
                    step = flow.send
                    if isinstance(told, Round):
                        # All are called, whatever the first of them says.
                        seen = [callback.after_round(told) for callback in callbacks]
                        value = time.monotonic() - began, any(seen)
                        continue
                    number += 1
                    once: dict[bytes, Query[Any]] = {}
                    for query in told:
                        once.setdefault(query.digest, query)
                    asked = b"".join(once)
                    totals = None if log is None else log.recall(asked)
                    if totals is None:
                        totals = ask(list(once.values()))
                        if log is not None:
                            log.record(asked, totals, time.monotonic() - began)
                    elif number == 1 and log is not None and log.counted:
                        log.compare(totals, ask(list(once.values())))
                    found = dict(zip(once, totals, strict=True))
                    value = [found[query.digest] for query in told]
                except KeyboardInterrupt as stop:
                    # What is asked from here on is about a model that is unfinished.
                    log, value, step = None, stop, flow.throw
    finally:
        flow.close()
        for callback in callbacks:
            callback.ended()


def drive_many(engine: Engine, flows: Sequence[Flow[R]]) -> list[R]:
    """Drive flows side by side: in each round, all that is asked goes out at once."""
    return list(drive(engine, gather(*flows)))


class DeferredSignals:
    """Holds a signal such as Ctrl-C back until it is allowed, during an exchange.

    A flow has many parts, and an interruption must reach all of them, not the one at
    whose lines it happens to come. A second signal is not held back.
    """

    def __enter__(self) -> DeferredSignals:
        self._due: list[int] = []
        self._open = False
        self._before: dict[int, Callable[[int, Any], Any]] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    self._before[number] = handler
                    signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._take:  # else it was replaced meanwhile
                signal.signal(number, handler)

    def _take(self, number: int, frame: Any) -> None:
        if self._open or self._due:
            self._before[number](number, frame)
        else:
            self._due.append(number)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let a signal come: the one that was held back, or one that comes now."""
        self._open = True
        try:
            while self._due:
                number = self._due.pop()
                self._before[number](number, None)
            yield
        finally:
            self._open = False


@dataclass(frozen=True)
class Cost:
    """What was asked of the federation.

    Attributes
    ----------
    asked, distinct
        Queries, and different ones among them; the census left out.
    messages
        Times that queries went out together.
    passes
        What silos compute, in gradients over all of their rows, per silo.
    bytes
        From and to the server, all silos together.
    """

    asked: int = 0
    distinct: int = 0
    messages: int = 0
    passes: float = 0.0
    bytes: int = 0


class Meter:
    """Counts what flows ask.

    Parameters
    ----------
    silos, rows
        How many silos there are, and rows of a silo on average, until a census tells.
    """

    def __init__(self, silos: int, rows: float = 0.0) -> None:
        self._silos, self._rows = silos, rows
        self._asked: list[bytes] = []
        self._messages = self._bytes = 0
        self._passes = 0.0

    @property
    def cost(self) -> Cost:
        """What was asked so far."""
        asked = self._asked
        counts = len(asked), len(set(asked)), self._messages
        return Cost(*counts, self._passes, self._bytes)

    def watch(self, flow: Flow[R]) -> Flow[R]:
        """Run a flow, and count what it asks."""
        step: Callable[[Any], Signal] = flow.send
        value: Any = None
        while True:
            try:
                told = step(value)
            except StopIteration as done:
                result: R = done.value
                return result
            try:
                value, step = (yield told), flow.send
            except GeneratorExit:
                flow.close()
                raise
            except BaseException as error:
                value, step = error, flow.throw
                continue
            if not isinstance(told, Round):
                self._charge(told, value)

    def _charge(self, queries: Sequence[Query[Any]], totals: Sequence[Any]) -> None:
        counted = set[bytes]()
        for query, total in zip(queries, totals, strict=True):
            if query.counts_rows:
                self._rows = float(total.rows.mean())
            elif query.digest not in counted:
                self._messages += not counted
                counted.add(query.digest)
                self._asked.append(query.digest)
                silos = self._silos if query.silos is None else len(query.silos)
                self._passes += query.passes(self._rows) * silos / self._silos
                numbers = query.numbers + total.numbers
                self._bytes += silos * NUMBER_BYTES * numbers
