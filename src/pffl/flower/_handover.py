"""A transport between two threads: `solve` asks in one, Flower's loop sends in another.

`solve` owns its loop and so does Flower's `Strategy.start`; they take turns here. One
of them always waits, so nothing runs at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import Queue

from pffl.engines.remote import Reply
from pffl.errors import FederationError
from pffl.solution import Solution


@dataclass(frozen=True, eq=False)
class Asked:
    """Messages that wait to be sent."""

    requests: Mapping[str, bytes]
    seconds: float
    kind: str


@dataclass(frozen=True, eq=False)
class Ended:
    """How the solver's thread ended."""

    solution: Solution | None = None
    error: BaseException | None = None


class Handover:
    """The solver's transport, and the other side of it.

    Parameters
    ----------
    addresses
        Returns the nodes that are there now.
    work
        Called in a thread of its own with this transport; returns what it solved.
    """

    def __init__(
        self,
        addresses: Callable[[], Collection[str]],
        work: Callable[[Handover], Solution],
    ) -> None:
        self.addresses = addresses
        self._asked: Queue[Asked | Ended] = Queue()
        self._replies: Queue[Sequence[Reply] | None] = Queue()
        self._next: Asked | Ended | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def exchange(
        self, requests: Mapping[str, bytes], seconds: float, kind: str
    ) -> Iterator[Reply]:
        """Hand messages over, and wait for the replies (the solver's side)."""
        self._asked.put(Asked(requests, seconds, kind))
        replies = self._replies.get()
        if replies is None:
            raise FederationError("Flower ended the run")
        yield from replies

    def next(self) -> Asked | Ended:
        """Wait for what the solver wants next; stays until it is answered."""
        if self._next is None:
            self._next = self._asked.get()
        return self._next

    def answer(self, replies: Sequence[Reply]) -> None:
        """Give the replies to what was asked."""
        self._next = None
        self._replies.put(replies)

    def close(self) -> None:
        """Let the solver's thread end, if it has not."""
        while isinstance(self.next(), Asked):
            self._next = None
            self._replies.put(None)
        self._thread.join()

    def _run(self, work: Callable[[Handover], Solution]) -> None:
        try:
            self._asked.put(Ended(solution=work(self)))
        except BaseException as error:
            self._asked.put(Ended(error=error))
