"""Discovery: which silo answers at which address.

A node is asked for its census, and its answer names the silo. A restarted node has a
new address and is found the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from pffl.engines.remote.exchange import (
    Entry,
    Look,
    Pause,
    Post,
    Reply,
    Session,
    Steps,
    Unfit,
)
from pffl.errors import FederationError, Refused
from pffl.questions import Census
from pffl.wire import Answer
from pffl.wire.envelope import shown

PAUSE = 0.05  # seconds between looks for new nodes, at first
LONGEST_PAUSE = 1.0


@dataclass
class Nodes:
    """Who is where.

    Attributes
    ----------
    session, names
        Numbers of messages, and the silos that are expected.
    admit
        Takes the census of silo `index` at its first call, or refuses it.
    seconds, tries
        How long one call may take, and how often an address may answer nonsense.
    address
        From a silo's index to its node.
    silent
        Silos that did not answer when last asked: another node may take their place.
    unfit
        Nodes that are not called again, and why.
    complete
        Whether all silos have been there once.
    """

    session: Session
    names: tuple[str, ...]
    admit: Callable[[int, Answer], object]
    seconds: float
    tries: int
    address: dict[int, str] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    unfit: dict[str, str] = field(default_factory=dict)
    complete: bool = False
    _failures: dict[str, int] = field(default_factory=dict)

    def find(
        self, wanted: Collection[int], census: Census, seconds: float, entry: Entry
    ) -> Steps[None]:
        """Look for silos, until all are found or the time is over.

        With no time, nodes that are new are called once.
        """
        deadline, pause = time.monotonic() + seconds, PAUSE
        while True:
            there: set[str] = set((yield Look()))
            for k, address in list(self.address.items()):
                if address not in there:
                    del self.address[k]
            new = there - set(self.address.values()) - set(self.unfit)
            if new and any(k not in self.address or k in self.silent for k in wanted):
                left = max(deadline - time.monotonic(), 0.0) or self.seconds
                seconds = min(left, self.seconds)
                yield from self._call(sorted(new), census, seconds, entry)
            lacking = [k for k in wanted if k not in self.address]
            left = deadline - time.monotonic()
            if not lacking or left <= 0:
                return
            if self._hopeless(lacking):
                return
            yield Pause(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _call(
        self, addresses: list[str], census: Census, seconds: float, entry: Entry
    ) -> Steps[None]:
        number, deadline = self.session.turn(), time.monotonic() + seconds
        content = self.session.write([census], 0)
        for address in addresses:
            entry.out(address, content)
        requests = dict.fromkeys(addresses, content)
        waiting = set(addresses)
        replies: Iterable[Reply] = yield Post(requests, seconds, census.kind)
        for reply in replies:
            if time.monotonic() > deadline:
                return
            if reply.address not in waiting:
                continue
            if reply.content is None:
                entry.refused.append((reply.address, f"error: {shown(reply.error)}"))
                continue
            entry.back(reply.address, reply.content)
            try:
                self._join(reply.address, self.session.read(reply.content, {number}))
            except Refused as error:
                self._refuse(reply.address, error, entry)
            waiting.discard(reply.address)
            if not waiting:
                return

    def _join(self, address: str, answer: Answer) -> None:
        """Give a silo its address."""
        if answer.silo not in self.names:
            raise Unfit(f"'{shown(answer.silo)}' is none of this run's silos")
        index = self.names.index(answer.silo)
        other = self.address.get(index)
        if other is not None and index not in self.silent:
            twice = f"two nodes answer as silo '{answer.silo}': {other} and {address}"
            if self.complete:  # the run goes on with the one that it knows
                raise Unfit(twice)
            raise FederationError(f"{twice}; stop one of them, or give it its own name")
        self.admit(index, answer)
        self.address[index] = address
        self.silent.discard(index)

    def _refuse(self, address: str, error: Refused, entry: Entry) -> None:
        entry.refused.append((address, str(error)))
        self._failures[address] = self._failures.get(address, 0) + 1
        if isinstance(error, Unfit) or self._failures[address] >= self.tries:
            self.unfit[address] = str(error)

    def _hopeless(self, lacking: Collection[int]) -> bool:
        """Whether every node that could still be a silo has been found unfit."""
        return len(self.unfit) >= len(lacking) and len(self.address) + len(
            self.unfit
        ) >= len(self.names)
