"""Exchanges with sites: transport, sequence numbers, discovery, retry, and a record.

Which silo answers at which address is found by greeting a node, with a query for its
census: the answer names the silo. A restarted node has a new address and is found the
same way.

The record has one JSON line for each message, for audit. It says who was asked, who
answered, what was refused and why, and the SHA-256 of every message. No figure of a
silo is in it; those of a round are totals over all silos.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from pffl import files
from pffl.errors import FederationError, PFFLError, Refused
from pffl.parcel import Parcel
from pffl.queries import Query
from pffl.wire import (
    Answer,
    Request,
    Verdict,
    bodies_digest,
    read_answer,
    signed_content,
    write_request,
)
from pffl.wire.envelope import HELLO, LONGEST, kind_of, shown
from pffl.wire.keys import PublicKeys

PAUSE = 0.05  # seconds between looks for new nodes, at first
LONGEST_PAUSE = 1.0
KEPT = 1000  # entries of the record in memory
Number = tuple[int, int]  # (session, sequence)


@dataclass(frozen=True)
class Reply:
    """What came back from an address: bytes, or why there are none."""

    address: str
    content: bytes | None
    error: str = ""


class Transport(Protocol):
    """Carries bytes. It knows neither queries nor silos."""

    def addresses(self) -> Collection[str]:
        """Return the nodes that are there now."""

    def exchange(
        self, requests: Mapping[str, bytes], seconds: float, kind: str
    ) -> Iterator[Reply]:
        """Send all requests at once, and yield replies as they come.

        Ends after `seconds` on the monotonic clock at the latest. `kind` is that of all
        queries, or "queries". Late and repeated replies may be among those that are
        yielded: the engine judges them.
        """


class InMemory:
    """Sites in this process: one function of bytes to bytes for each address.

    Parameters
    ----------
    sites
        From address to function. It may be changed while a run goes on.
    """

    def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self.sites = sites

    def addresses(self) -> Collection[str]:
        """Return the addresses that have a function now."""
        return tuple(self.sites)

    def exchange(
        self, requests: Mapping[str, bytes], seconds: float, kind: str
    ) -> Iterator[Reply]:
        """Call one site after the other."""
        deadline = time.monotonic() + seconds
        for address, content in requests.items():
            if time.monotonic() > deadline:
                return
            site = self.sites.get(address)
            if site is None:
                yield Reply(address, None, "no such address")
                continue
            try:
                answer = site(content)
            except Exception as error:
                yield Reply(address, None, type(error).__name__)
            else:
                yield Reply(address, answer)


@dataclass
class Session:
    """Numbers the messages of one run, and opens what comes back.

    Attributes
    ----------
    run, session, sequence
        The run, and the last number given out.
    schema
        Hash of the schema that every answer must carry.
    largest
        Bytes of an answer.
    body
        Writes a query for one of those who are asked.
    greeting
        What a node is asked first.
    keys
        By which answers are signed, if they are.
    step, relay
        Under secure sums: the step of the run, and all answers to the one before.
    version
        Of the package, which every answer must have, too.
    """

    run: str
    session: int
    schema: str
    largest: int
    body: Callable[[Query[Any], int], Parcel]
    greeting: tuple[Query[Any], ...]
    keys: Mapping[str, PublicKeys]
    sequence: int = 0
    step: int = 0
    relay: tuple[bytes, ...] = ()
    version: str = field(default_factory=lambda: version("pffl"))

    @property
    def number(self) -> Number:
        """The last number given out."""
        return self.session, self.sequence

    def turn(self) -> Number:
        """Give out the next number."""
        self.sequence += 1
        return self.number

    def hello(self) -> bytes:
        """Put the greeting into an envelope with the last number: no step of a run."""
        return self._written(self.bodies(self.greeting, 0))

    def write(self, queries: Sequence[Query[Any]], index: int) -> bytes:
        """Put queries to a silo into an envelope with the last number."""
        bodies = self.bodies(queries, index)
        return self._written(bodies, step=self.step, relay=self.relay)

    def bodies(self, queries: Sequence[Query[Any]], index: int) -> tuple[Parcel, ...]:
        """Write queries to a silo."""
        return tuple(self.body(query, index) for query in queries)

    def _written(self, bodies: tuple[Parcel, ...], **more: Any) -> bytes:
        head = (self.run, *self.number, self.version, self.schema)
        return write_request(Request(*head, bodies, **more))

    def read(self, content: bytes, numbers: Collection[Number]) -> Answer:
        """Open an answer to one of these numbers, or raise why it does not count."""
        try:
            answer = read_answer(content, largest=self.largest)
        except PFFLError as error:
            raise Refused(
                f"[not-an-answer] not an answer: {shown(str(error), LONGEST)}"
            ) from error
        self.check_hand(answer)
        if answer.refusal:
            raise Refused(
                f"[site-refused] the site refuses: {shown(answer.refusal, LONGEST)}"
            )
        if answer.run != self.run:
            raise Refused("[other-run] an answer of another run")
        if answer.number not in numbers:
            if answer.number <= self.number:
                raise Late("[late-answer] late: an answer to an earlier query")
            raise Refused("[never-asked] an answer to a query that was never asked")
        if self.keys:
            key = self.keys.get(answer.silo)
            if key is None or not key.verify(signed_content(answer), answer.signature):
                raise Refused(
                    "[not-signed] an answer that is not signed with the site's key"
                )
        return answer

    def check_hand(self, answer: Answer) -> None:
        """Refuse another version or schema, both shown (faults 45, 57)."""
        if answer.version != self.version:
            raise Unfit(
                f"[other-version] it runs pffl {shown(answer.version, 40)}, and the "
                f"server {self.version}: install the same version"
            )
        if answer.schema != self.schema:
            raise Unfit(
                f"[other-schema] its schema is {shown(answer.schema, 12)}, and this "
                f"run's {self.schema[:12]}: prepare the site with this run's schema"
            )


class Late(Refused):
    """An answer that comes when nobody waits for it any more."""


class Unfit(Refused):
    """A site that cannot take part as it is: asking again does not help."""


@dataclass
class Nodes:
    """Who is where.

    Attributes
    ----------
    session, names
        Numbers of messages, and the silos that are expected.
    admit
        Takes what silo `index` answers to the greeting, or refuses it.
    seconds, tries
        How long one call may take, and how often an address may answer nonsense.
    address
        From a silo's index to its node.
    silent
        Silos that did not answer when last asked: another node may take their place.
    unfit
        Nodes that are not called again, and why.
    failed
        Nodes that are there and failed when they were last called, and how.
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
    failed: dict[str, str] = field(default_factory=dict)
    complete: bool = False
    _failures: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._places = {name: k for k, name in enumerate(self.names)}

    def find(
        self,
        transport: Transport,
        wanted: Collection[int],
        seconds: float,
        entry: Entry,
    ) -> None:
        """Look for silos, until all are found or the time is over.

        With no time, nodes that are new are called once.
        """
        deadline, pause = time.monotonic() + seconds, PAUSE
        while True:
            there = set(transport.addresses())
            for k, address in list(self.address.items()):
                if address not in there:
                    del self.address[k]
            new = there - set(self.address.values()) - set(self.unfit)
            if new and any(k not in self.address or k in self.silent for k in wanted):
                left = max(deadline - time.monotonic(), 0.0) or self.seconds
                seconds = min(left, self.seconds)
                self._call(transport, sorted(new), seconds, entry)
            lacking = [k for k in wanted if k not in self.address]
            left = deadline - time.monotonic()
            if not lacking or left <= 0:
                return
            if self._hopeless(lacking):
                return
            time.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _call(
        self, transport: Transport, addresses: list[str], seconds: float, entry: Entry
    ) -> None:
        number, deadline = self.session.turn(), time.monotonic() + seconds
        content = self.session.hello()
        for address in addresses:
            entry.out(address, content)
        requests = dict.fromkeys(addresses, content)
        waiting = set(addresses)
        kind = next((q.kind for q in self.session.greeting), HELLO)
        for reply in transport.exchange(requests, seconds, kind):
            if time.monotonic() > deadline:
                return
            if reply.address not in waiting:
                continue
            if reply.content is None:
                entry.refused.append([reply.address, f"error: {shown(reply.error)}"])
                self.failed[reply.address] = reply.error
                continue
            entry.back(reply.address, reply.content)
            self.failed.pop(reply.address, None)
            try:
                self._join(reply.address, self.session.read(reply.content, {number}))
            except Refused as error:
                self._refuse(reply.address, error, entry)
            waiting.discard(reply.address)
            if not waiting:
                return

    def _join(self, address: str, answer: Answer) -> None:
        """Give a silo its address."""
        index = self._places.get(answer.silo)
        if index is None:
            raise Unfit(
                f"[unknown-site] '{shown(answer.silo)}' is none of this run's silos"
            )
        other = self.address.get(index)
        if other is not None and index not in self.silent:
            twice = f"two nodes answer as silo '{answer.silo}': {other} and {address}"
            if self.complete:  # the run goes on with the one that it knows
                raise Unfit(f"[repeated-site] {twice}")
            raise FederationError(
                f"[repeated-site] {twice}; stop one of them, or give it its own name"
            )
        self.admit(index, answer)
        self.address[index] = address
        self.silent.discard(index)

    def _refuse(self, address: str, error: Refused, entry: Entry) -> None:
        entry.refused.append([address, str(error)])
        self._failures[address] = self._failures.get(address, 0) + 1
        if isinstance(error, Unfit) or self._failures[address] >= self.tries:
            self.unfit[address] = str(error)

    def _hopeless(self, lacking: Collection[int]) -> bool:
        """Whether every node that could still be a silo has been found unfit."""
        return len(self.unfit) >= len(lacking) and len(self.address) + len(
            self.unfit
        ) >= len(self.names)


@dataclass
class Exchange:
    """One message of queries to silos, sent again to those who do not answer.

    An answer to any of the message's numbers counts, once (fault 43): a slow site
    that answers the first message after the second was sent has answered.

    Attributes
    ----------
    session, nodes
        Numbers of messages, and who is where.
    seconds
        How long an exchange may take.
    admit
        Judges a silo's answer to these queries, or raises `Refused`.
    queries
        What each silo is asked.
    entry
        What the record says of it.
    found
        What was admitted, by silo: a total for each of its queries.
    numbers
        Under which the message was sent.
    """

    session: Session
    nodes: Nodes
    seconds: float
    admit: Callable[[Sequence[Query[Any]], int, Answer], list[Verdict]]
    queries: Mapping[int, Sequence[Query[Any]]]
    entry: Entry
    found: dict[int, list[Any]] = field(default_factory=dict)
    numbers: set[Number] = field(default_factory=set)

    @property
    def kind(self) -> str:
        """What a transport, and the record, call the message."""
        return kind_of([q.kind for asked in self.queries.values() for q in asked])

    def send(self, transport: Transport, silos: Sequence[int]) -> None:
        """Send one message to each of these silos, and take what comes back."""
        self.numbers.add(self.session.turn())
        requests = {}
        for k in silos:
            if k in self.nodes.address:
                content = self.session.write(self.queries[k], k)
                requests[self.nodes.address[k]] = content
                self.entry.out(self.nodes.names[k], content)
        waiting, index = set(requests), {at: k for k, at in self.nodes.address.items()}
        deadline = time.monotonic() + self.seconds
        if requests:
            for reply in transport.exchange(requests, self.seconds, self.kind):
                over = time.monotonic() > deadline
                if self._take(reply, index.get(reply.address), over=over):
                    waiting.discard(reply.address)
                if over or not waiting:
                    break
        for k in silos:
            (self.nodes.silent.discard if k in self.found else self.nodes.silent.add)(k)

    def _take(self, reply: Reply, index: int | None, *, over: bool) -> bool:
        """Judge one reply; return whether the silo has had its say."""
        name = reply.address if index is None else self.nodes.names[index]
        if reply.content is None:
            reason = f"error: {shown(reply.error) or 'no content'}"
            self.entry.refused.append([name, reason])
            return True
        self.entry.back(name, reply.content)
        try:
            if over:
                raise Late("[late-answer] late: after the deadline")
            verdicts = self._judged(reply.content, index)
        except Refused as error:
            self.entry.refused.append([name, str(error)])
            return not isinstance(error, Late)
        self.entry.answered.append(name)
        if any(verdict.clipped for verdict in verdicts):
            self.entry.clipped.append(name)
        return True

    def _judged(self, content: bytes, index: int | None) -> list[Verdict]:
        """Open and admit an answer."""
        answer = self.session.read(content, self.numbers)
        if index is None or answer.silo != self.nodes.names[index]:
            raise Refused(
                f"[other-node] an answer of '{shown(answer.silo)}' from another's node"
            )
        if index in self.found:
            raise Refused("[repeated-answer] duplicate: counted once")
        if self.session.keys:
            asked = self.session.bodies(self.queries[index], index)
            if answer.asked != bodies_digest(asked):
                raise Refused("[other-queries] an answer to other queries than these")
        verdicts = self.admit(self.queries[index], index, answer)
        self.found[index] = [verdict.total for verdict in verdicts]
        return verdicts


class Record:
    """Entries, in memory (the last ones) and, with a path, in a file.

    Parameters
    ----------
    path
        File to append to; None keeps them in memory only.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.entries: deque[dict[str, Any]] = deque(maxlen=KEPT)

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append an entry, on disk before this returns."""
        full = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **entry}
        self.entries.append(full)
        if self.path is not None:
            files.append(self.path, full)


@dataclass
class Entry:
    """What one message brings in, until it is written.

    Attributes
    ----------
    asked, answered
        Names of silos; those who answered in order of arrival.
    refused
        Pairs of a silo's name (or an address) and the reason, once for each reply.
    clipped
        Silos whose update was shortened.
    bytes_sent, bytes_received
        How many.
    messages
        SHA-256 of requests and answers, in order, by silo or address.
    """

    asked: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    refused: list[list[str]] = field(default_factory=list)
    clipped: list[str] = field(default_factory=list)
    bytes_sent: int = 0
    bytes_received: int = 0
    messages: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def out(self, name: str, content: bytes) -> None:
        """Note a request."""
        self.bytes_sent += len(content)
        self._note(name, "requests", content)

    def back(self, name: str, content: bytes) -> None:
        """Note a reply."""
        self.bytes_received += len(content)
        self._note(name, "answers", content)

    def _note(self, name: str, way: str, content: bytes) -> None:
        kept = self.messages.setdefault(name, {"requests": [], "answers": []})
        kept[way].append(files.digest(content))

    def as_dict(self) -> dict[str, Any]:
        """Plain form."""
        there = set(self.answered)
        missing = [name for name in self.asked if name not in there]
        return {**asdict(self), "missing": missing}
