"""The engine for sites on other machines: asks by messages, checks, adds.

Every step asks the sites, brings them what all answered to the step before (under
secure sums), and needs all of their answers: those who did not answer are asked again,
byte for byte, and a site that stays away or refuses ends the run, by its name. Under
secure sums the sites are one silo to everybody above, and only totals are read.

A server that was stopped resumes: the last answers are on disk before anybody uses
them, and the driver's log tells all that came before.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from pffl import files
from pffl.constraints import Constraint
from pffl.data.checks import listing
from pffl.data.federation import Federation
from pffl.deploy import messages, secure_sum
from pffl.deploy.federation import Agreement, agreed_sets, sets_of
from pffl.deploy.keys import SiteKey
from pffl.deploy.messages import Answer, Request, read_answer, read_masked, shown
from pffl.deploy.site import Limits, Site
from pffl.errors import (
    ArtefactError,
    DataError,
    FederationError,
    Malformed,
    PFFLError,
    PrivacyBudgetError,
    Refused,
    UsageError,
)
from pffl.models import rebuild
from pffl.models.base import Model
from pffl.privacy.run import sharing
from pffl.privacy.terms import Privacy
from pffl.queries import Census, CensusTotal, Query, Total, add_all
from pffl.queries.validation import Gate, Policy
from pffl.tensors import MAX_BYTES, Parcel

STATE = "steps.json"
PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between two looks
GRACE = 15.0  # seconds for other sites, once one has refused or all are waited for
LAST = 30.0  # seconds to wait for the last answers, which are not needed
MOST_ENTRIES = 1000  # entries of the record in memory
ALL_SITES = "every site answers every step: participation = 1 over sites"
LOST = "Masks hide which site it was: compare the sites' logs and versions"
T = TypeVar("T", bound=Total)
V = TypeVar("V")


@dataclass(frozen=True)
class Reply:
    """What came back from an address: bytes, or why they are missing."""

    address: str
    content: bytes | None
    error: str = ""


class Transport(Protocol):
    """Carries bytes. It knows neither queries nor sites: another engine fits here."""

    def addresses(self) -> Collection[str]:
        """Return the nodes that are there now."""

    def send(self, requests: Mapping[str, bytes], seconds: float) -> None:
        """Send all requests at once; each is good for `seconds`."""

    def receive(self) -> Iterable[Reply]:
        """Return the replies that have come since, also late and repeated ones."""


@dataclass
class InMemory:
    """Sites in this process: one function of bytes to bytes for each address.

    Parameters
    ----------
    sites
        From address to function. It may be changed while a run is in progress.
    """

    sites: Mapping[str, Callable[[bytes], bytes]]
    _sent: deque[tuple[str, bytes]] = field(default_factory=deque, init=False)

    def addresses(self) -> Collection[str]:
        """Return the addresses that have a function now."""
        return tuple(self.sites)

    def send(self, requests: Mapping[str, bytes], seconds: float) -> None:
        """Put requests in line."""
        self._sent.extend(requests.items())

    def receive(self) -> Iterable[Reply]:
        """Call one site after the other."""
        while self._sent:
            address, content = self._sent.popleft()
            try:
                yield Reply(address, self.sites[address](content))
            except Exception as error:
                yield Reply(address, None, type(error).__name__)


@dataclass
class RunLog:
    """What happened, message by message: in memory (the last ones) and in a file.

    It says who was asked, who answered, and what was refused and why; no figure of a
    site is in it.

    Parameters
    ----------
    path
        File to append to; None keeps entries in memory only.
    """

    path: Path | None = None
    entries: deque[dict[str, Any]] = field(
        default_factory=lambda: deque(maxlen=MOST_ENTRIES), init=False
    )

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append an entry, on disk before this returns."""
        full = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **entry}
        self.entries.append(full)
        if self.path is not None:
            files.append(self.path, full)


@dataclass(frozen=True, eq=False)
class LastStep:
    """What a server keeps of a run: the last answers, as they were sent.

    Attributes
    ----------
    step
        How many steps the sites have answered.
    transcript
        Under secure sums: what was said before the next step.
    asked, answers
        What the last step asked, and what each site said.
    census
        What all sites said to the step that counts rows.
    holders
        At how many sites each set of people is, of each split.
    """

    step: int
    transcript: str
    asked: str = ""
    answers: Mapping[str, bytes] = field(default_factory=dict)
    census: Mapping[str, bytes] = field(default_factory=dict)
    holders: tuple[int, ...] = ()

    __pydantic_config__: ClassVar = messages.KEPT


KEEPER = TypeAdapter(LastStep)


@dataclass
class Exchange:
    """One message to sites, and what came back, until it is recorded."""

    kind: str
    asked: list[str]
    answered: list[str] = field(default_factory=list)
    refused: list[list[str]] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)


class Remote:
    """Ask the sites of a federation through a transport.

    Parameters
    ----------
    transport
        Carries the messages.
    agreement
        What the sites agreed on: names, keys, whether sums are secure, noise.
    policy
        Deadlines and limits.
    record
        Where to write what happened; None keeps it in memory.
    run
        Name of the run; drawn if None.
    folder
        Where to keep what a stopped server needs to go on; None for memory only.
    heads
        File with the last heads that sites have signed, over all runs; None for none.
    """

    federation: Federation | None = None  # the rows are elsewhere

    def __init__(
        self,
        transport: Transport,
        agreement: Agreement,
        *,
        policy: Policy | None = None,
        record: RunLog | None = None,
        run: str | None = None,
        folder: Path | None = None,
        heads: Path | None = None,
    ) -> None:
        agreement.check()
        self._transport, self.agreement = transport, agreement
        self.name, self.schema = agreement.name, agreement.schema
        self.encoding, self.splits = agreement.encoding, agreement.splits
        self.sites, self.sets = agreement.sites, agreed_sets(agreement)
        self.policy, self.record = policy or Policy(), record or RunLog()
        self.run = run or secrets.token_hex(8)
        self.gate = Gate(self.policy, agreement.schema)
        self.pooled = len(self.sites) if agreement.secure_sum else 0
        self.noisy = agreement.private
        self._heads_file = heads
        self._heads = _stored(heads, TypeAdapter(dict[str, str])) or {}
        self._address: dict[str, str] = {}  # of each site that was found
        self._unfit: dict[str, str] = {}  # addresses that are not called again
        self._census: dict[str, CensusTotal] = {}
        self._path = None if folder is None else folder / STATE
        known = _stored(self._path, KEEPER)
        self._recalled, first = known is not None, messages.first_transcript
        self._last = known or LastStep(0, first(agreement.hash, self.run))

    @property
    def silo_names(self) -> tuple[str, ...]:
        """Names of the sites; under secure sums they are one silo."""
        return (f"all {self.pooled} sites",) if self.pooled else self.sites

    @property
    def floor(self) -> int:
        """Fewest people of a group that a site counts, under secure sums."""
        return self.agreement.floor

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the sites, for the result: who leaves out people."""
        least, many = self.agreement.floor, len(self.sites)
        if self.noisy:
            return ("every sum has noise: whether it can be true was not checked",)
        floor = (
            f"left out at sites with fewer than {least} people: their own of any group "
            "(of a group and label, where bounds are for these), in each split, "
            f"whatever other sites have. Up to {(least - 1) * many:,} people of each "
            "can be missing, and no statement speaks of them"
        )
        if not self.pooled:
            return (floor,) if any(self.gate.withheld.values()) else ()
        masked = (
            f"every answer is a secure sum of {many} sites: whether sums can be true "
            "was checked, whether a single site's answers can was not, and what one "
            "site could have done to a bound is not known"
        )
        return (masked, *([floor] if least > 1 else []), *self._held_by_few())

    def _held_by_few(self) -> Iterator[str]:
        """Say who was left out everywhere, since too few sites have enough of them."""
        fewest, sets = self.agreement.fewest_holders, self.sets
        held = np.array(self._last.holders).reshape(-1, int(sets.max()) + 1)
        for split, counts in zip(self.splits, held, strict=False):
            few = np.flatnonzero((counts < fewest)[sets]).tolist()
            if lone := [self.schema.stratum_name(stratum) for stratum in few]:
                yield (
                    f"left out at all sites, of '{split}': {listing(lone)}, since "
                    f"fewer than {fewest} sites have {self.agreement.floor} people of "
                    "them, and their sum would be one site's"
                )

    def ask(self, query: Query[T]) -> T:
        """Ask every site and add the answers."""
        total: T = self.ask_many([query])[0]
        return total

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Ask several queries in one message, and add the answers to each.

        Rows of all splits are counted with the first message.
        """
        self.meet()
        for query in queries:
            if query.split not in self.splits:
                raise UsageError("unknown-split:ask-many", split=query.split)
        if not self.noisy and not self._census:
            self._count()
        posed = [q for q in queries if not q.counts_rows]
        found: dict[int, Any] = {}
        for first in range(0, len(posed), messages.MOST_QUERIES):
            some = posed[first : first + messages.MOST_QUERIES]
            found |= zip(map(id, some), self._step(some), strict=True)
        return [
            self._census[q.split] if q.counts_rows else found[id(q)] for q in queries
        ]

    def end(self) -> None:
        """Have the sites forget the run's secrets; who is away does so in time."""
        last = messages.write(self._request(1 + self._last.step))
        waiting = set(self._address.values())
        self._transport.send(dict.fromkeys(waiting, last), LAST)
        deadline = time.monotonic() + LAST
        while waiting and time.monotonic() < deadline:
            waiting -= {reply.address for reply in self._transport.receive()}
            time.sleep(PAUSE if waiting else 0.0)

    # One step

    def _count(self) -> None:
        """Count rows of all splits: before, under masks, the sites of each group."""
        if self.agreement.counts_sites and not self._last.holders:
            bodies = dict.fromkeys(self.sites, (messages.HOLDERS,))
            told = self._told(bodies, "holders", "holders", read_masked)
            with self._plausible("holders"):
                total = secure_sum.add([*told.values()])
                held = secure_sum.read_counts(total, self.pooled)
            self._keep(replace(self._last, holders=tuple(held.tolist())))
        counts = [Census(self.schema, split) for split in self.splits]
        if known := self._last.census:
            parse = self._parser(counts)
            told = {site: parse(read_answer(one)) for site, one in known.items()}
            totals = self._added(counts, told)
        else:
            totals = self._step(counts)
            self._keep(replace(self._last, census=self._last.answers))
        self._census = dict(zip(self.splits, totals, strict=True))

    def _step(self, asked: Sequence[Query[Any]]) -> list[Any]:
        """Ask one step, or recall it; return the totals."""
        if any(query.silos is not None for query in asked):
            raise UsageError(f"[not-over-sites] {ALL_SITES}")
        places = range(1) if self.pooled else range(len(self.sites))
        bodies = [tuple(messages.query_body(q, k) for q in asked) for k in places]
        told = self._told(
            dict(zip(self.sites, cycle(bodies), strict=False)),
            messages.framed_digest(*(query.digest for query in asked)),
            kind_of(asked),
            self._parser(asked),
        )
        return self._added(asked, told)

    def _told(
        self,
        bodies: Mapping[str, tuple[Parcel, ...]],
        asked: str,
        kind: str,
        parse: Callable[[Answer], V],
    ) -> dict[str, V]:
        """Ask all sites one step, or recall it; their answers are on disk then."""
        last, recalled, self._recalled = self._last, self._recalled, False
        if recalled and asked == last.asked:
            return {s: parse(read_answer(one)) for s, one in last.answers.items()}
        step = 1 + last.step
        relay = tuple(last.answers.values()) if self.pooled else ()
        requests = {
            site: self._request(step, bodies=own, relay=relay)
            for site, own in bodies.items()
        }
        answers, found = self._exchange(requests, kind, parse)
        said = last.transcript
        if self.pooled:
            flats = [read_masked(read_answer(one)) for one in answers.values()]
            first = requests[self.sites[0]]
            said = messages.next_transcript(said, first.asked, flats)
        now = replace(last, step=step, transcript=said, asked=asked, answers=answers)
        self._keep(now)
        return found

    def _exchange(
        self, requests: Mapping[str, Request], kind: str, parse: Callable[[Answer], V]
    ) -> tuple[dict[str, bytes], dict[str, V]]:
        """Ask sites until all have answered; return that as it came, and as read."""
        entry, content = Exchange(kind, list(requests)), dict[str, bytes]()
        written = {s: messages.write(one) for s, one in requests.items()}
        found: dict[str, V] = {}
        try:
            for _ in range(1 + self.policy.retries):
                missing = [site for site in requests if site not in content]
                if not missing:
                    break
                self._find(missing, entry)
                there = {self._address[s]: s for s in missing if s in self._address}
                posted = {at: written[s] for at, s in there.items()}
                self._transport.send(posted, self.policy.seconds)
                for address, reply in self._replies(set(there), entry):
                    site = there[address]
                    try:
                        answer = self._read(reply, site, requests[site])
                        found[site] = parse(answer)
                    except (Refused, Malformed) as error:
                        entry.refused.append([site, str(error)])
                        continue
                    content[site], self._heads[site] = reply, answer.head
                    entry.answered.append(site)
        finally:
            self._write(entry)
        why = dict(entry.refused)
        missing = [
            f"'{site}' ({why.get(site, 'no answer')})"
            for site in requests
            if site not in content
        ]
        if missing:
            raise FederationError(
                "sites-missing:exchange",
                kind=kind,
                n_content=len(content),
                n_requests=len(requests),
                missing=listing(missing),
            )
        return {s: content[s] for s in self.sites}, {s: found[s] for s in self.sites}

    def _read(self, content: bytes, site: str, request: Request) -> Answer:
        """Open an answer to a request, or say why it does not count.

        A refusal of the site itself ends the run.
        """
        answer = self._open(content)
        if answer.site != site:
            raise Refused("other-node", site=shown(answer.site))
        if answer.refusal:
            raise _refused({site: answer.refusal})
        wanted = {"run": self.run, "step": request.step, "asked": request.asked}
        wanted |= {"transcript": self._last.transcript} if self.pooled else {}
        if others := [n for n, value in wanted.items() if getattr(answer, n) != value]:
            raise Refused("other-message", other=others[0])
        return answer

    def _open(self, content: bytes) -> Answer:
        """Open an answer that its site has signed."""
        try:
            answer = read_answer(content)
        except PFFLError as error:
            why = shown(str(error), messages.LONGEST)
            raise Refused("not-an-answer", why=why) from error
        key = self.agreement.keys.get(answer.site)
        if key is not None and not messages.is_signed(answer, key):
            raise Refused("not-signed:open")
        return answer

    def _parser(self, asked: Sequence[Query[Any]]) -> Callable[[Answer], Any]:
        """Return what reads an answer to these queries, and refuses other forms.

        Under masks these are words; otherwise totals, which are judged at once.
        """
        length = sum(secure_sum.size(query) for query in asked)

        def totals(answer: Answer) -> list[Any]:
            if len(answer.bodies) != len(asked):
                raise Malformed(f"{len(answer.bodies)} totals for {len(asked)} queries")
            k = self.sites.index(answer.site)
            return [
                self._judged(query, k, *messages.read_total(body, query))
                for query, body in zip(asked, answer.bodies, strict=True)
            ]

        return (lambda one: read_masked(one, length)) if self.pooled else totals

    def _judged(self, query: Query[Any], k: int, total: Any, withheld: int) -> Any:
        """Judge a total, of one site or of all together; with noise any can be true."""
        if self.noisy:
            return total
        if query.counts_rows:
            return self.gate.census(k, query.split, total, withheld)
        return self.gate.report(query, k, total)

    def _added(self, asked: Sequence[Query[Any]], told: Mapping[str, Any]) -> list[Any]:
        """Add the sites' answers to each query, in their order."""
        parts = list(told.values())
        if self.pooled:
            with self._plausible(kind_of(asked)):
                flat = secure_sum.add(parts)
                totals = secure_sum.decode_all(asked, flat, self.pooled)
                pairs = zip(asked, totals, strict=True)
                found = [self._judged(query, 0, total, 0) for query, total in pairs]
        else:
            found = [add_all(own) for own in zip(*parts, strict=True)]
        for query, total in zip(asked, found, strict=True):
            counted = query.counts_rows and query.split == "train" and not self.noisy
            if counted and not total.rows.all():
                rows = zip(self.silo_names, total.rows, strict=True)
                empty = listing([site for site, n in rows if n == 0])
                raise DataError("no-training-rows:added", empty=empty)
        return found

    @contextmanager
    def _plausible(self, kind: str) -> Iterator[None]:
        """Say that a sum of masked answers cannot be true."""
        try:
            yield
        except (Refused, Malformed) as error:
            raise FederationError(
                "implausible-sum:plausible",
                kind=kind,
                pooled=self.pooled,
                error=error,
                lost=LOST,
            ) from error

    # Who is where

    def meet(self) -> None:
        """Wait until every site has been there once (fault 56)."""
        if len(self._address) == len(self.sites):
            return
        entry = Exchange("hello", list(self.sites))
        try:
            self._find(self.sites, entry, self.policy.join_seconds)
        finally:
            entry.answered = list(self._address)
            self._write(entry)
        missing = [site for site in self.sites if site not in self._address]
        if missing:
            others = {**self._unfit, **dict(entry.refused)}
            nodes = [f"node {at}: {why}" for at, why in others.items()]
            said = f" Of nodes that are there, {'; '.join(nodes)}." if nodes else ""
            raise FederationError(
                "sites-missing:meet-2",
                n_missing=len(missing),
                n_sites=len(self.sites),
                join_seconds=self.policy.join_seconds,
                missing=listing(missing),
                said=said,
            )

    def _find(
        self, wanted: Sequence[str], entry: Exchange, seconds: float | None = None
    ) -> None:
        """Look for sites, until all are found or the time is over."""
        limit = self.policy.seconds if seconds is None else seconds
        begun, pause, silent = time.monotonic(), PAUSE, True
        while True:
            there = set(self._transport.addresses())
            for site, address in list(self._address.items()):
                if address not in there:
                    del self._address[site]
            new = there - set(self._address.values()) - set(self._unfit)
            if new and not set(wanted) <= set(self._address):
                before = len(entry.refused)
                self._greet(sorted(new), entry)
                if failed := entry.refused[before:]:  # say at once who failed
                    self.record.write({"event": "waiting", "refused": failed})
            lacking = [site for site in wanted if site not in self._address]
            waited = time.monotonic() - begun
            if not lacking or waited >= limit:
                return
            if silent and waited > GRACE:
                silent, absent = False, [[site, "not there yet"] for site in lacking]
                self.record.write({"event": "waiting", "refused": absent})
            time.sleep(min(pause, limit - waited))
            pause = min(2 * pause, LONGEST_PAUSE if not new else 10.0)

    def _greet(self, addresses: Sequence[str], entry: Exchange) -> None:
        """Ask nodes who they are; a site that refuses ends the run, by its name."""
        content = messages.write(self._request(0, heads=self._heads))
        refused = dict[str, str]()
        self._transport.send(dict.fromkeys(addresses, content), self.policy.seconds)
        for address, reply in self._replies(set(addresses), entry, refused):
            try:
                answer = self._open(reply)
                if answer.refusal and answer.site in self.sites:
                    refused[answer.site] = answer.refusal
                    continue
                self._join(address, answer)
            except Refused as error:
                self._unfit[address] = str(error)
                entry.refused.append([address, str(error)])
        if refused:
            entry.refused += [[site, why] for site, why in refused.items()]
            raise _refused(refused)

    def _join(self, address: str, answer: Answer) -> None:
        """Give a site its address, and take its key of the run."""
        site, last = answer.site, self._last
        first = messages.first_transcript(self.agreement.hash, self.run)
        if site not in self.sites:
            raise Refused("unknown-site:join", site=shown(site))
        said = (answer.run, answer.step, answer.asked, answer.transcript)
        if said != (self.run, 0, messages.bodies_digest(()), first):
            raise Refused("other-run:join")
        if site in self._address:
            raise FederationError(
                "repeated-site", site=site, addre=self._address[site], address=address
            )
        if self.pooled and not last.step:
            try:
                read_masked(answer, messages.KEY)
            except Malformed as error:
                raise Refused(error) from error
            known = {**last.answers, site: messages.write(answer)}
            known = {s: known[s] for s in self.sites if s in known}
            last = replace(last, answers=known)
            if len(known) == self.pooled:  # the first step begins with the keys of all
                flats = [read_masked(read_answer(one)) for one in known.values()]
                said_first = messages.next_transcript(first, answer.asked, flats)
                last = replace(last, transcript=said_first)
            self._last = last
        self._address[site] = address
        self._heads[site] = answer.head

    # Messages

    def _request(self, step: int, **known: Any) -> Request:
        return Request(self.run, self.agreement.hash, step=step, **known)

    def _replies(
        self,
        waiting: set[str],
        entry: Exchange,
        refused: Mapping[str, str] | None = None,
    ) -> Iterable[tuple[str, bytes]]:
        """Yield what comes back from each address, once, until the deadline."""
        deadline, pause = time.monotonic() + self.policy.seconds, PAUSE
        while waiting:
            for reply in self._transport.receive():
                if reply.address not in waiting:
                    continue  # late, or twice
                waiting.discard(reply.address)
                if reply.content is not None:
                    yield reply.address, reply.content
                    continue
                who = {at: site for site, at in self._address.items()}
                why = f"no answer: {shown(reply.error, 200)}"
                entry.refused.append([who.get(reply.address, reply.address), why])
            if refused:
                deadline = min(deadline, time.monotonic() + GRACE)
            left = deadline - time.monotonic()
            if left <= 0:
                return
            if waiting:
                time.sleep(min(pause, left))
                pause = min(2 * pause, LONGEST_PAUSE)

    def _write(self, entry: Exchange) -> None:
        plain = {k: v for k, v in vars(entry).items() if k != "begun"}
        seconds = round(time.monotonic() - entry.begun, 6)
        self.record.write({**plain, "seconds": seconds})
        if self._heads_file is not None:
            files.write(self._heads_file, json.dumps(self._heads).encode())

    def _keep(self, last: LastStep) -> None:
        """Keep the last answers, on disk before anybody uses them."""
        self._last = last
        if self._path is not None:
            files.folder(self._path.parent, private=True)
            files.write(self._path, KEEPER.dump_json(last), private=True)


def kind_of(asked: Sequence[Query[Any]]) -> str:
    """Return what to call a message with these queries."""
    return ", ".join(dict.fromkeys(query.kind for query in asked))


def _refused(reasons: Mapping[str, str]) -> PFFLError:
    """Return the error of sites that refuse: they are not asked again."""
    said = "; ".join(
        f"site '{site}' refuses: {shown(why, messages.LONGEST)}"
        for site, why in reasons.items()
    )
    if PrivacyBudgetError.said in said:
        return PrivacyBudgetError(f"[budget-exceeded] {said}")
    return FederationError(f"[site-refused] {said}")


def _stored(path: Path | None, kind: TypeAdapter[V]) -> V | None:
    """Read what a server keeps; None where there is nothing."""
    if path is None or not path.exists():
        return None
    try:
        return kind.validate_json(files.read(path))
    except ValidationError as error:
        raise ArtefactError("bad-file:stored", path=path) from error


# Secure sums in one process: the same messages, masks, floor and shares of noise as
# between machines. Whoever runs it has the rows: no limit applies, nothing is charged.

FOR_EVER = 1e9  # seconds: there is nothing to wait for


def secured(
    federation: Federation,
    model: Model | None = None,
    privacy: Privacy | None = None,
    constraint: Constraint | None = None,
    floor: int = Limits().floor,
) -> Remote:
    """Return an engine that asks a federation's silos for secure sums.

    `model` is the one that is trained, which may be one of the user's own. With
    `privacy` the silos share its noise; without it each leaves out its own people of a
    set of the `constraint` with fewer than `floor`.
    """
    keys = {name: SiteKey.generate() for name in federation.silo_names}
    agreed = replace(
        Agreement.of(federation),
        keys={name: own.public for name, own in keys.items()},
        secure_sum=True,
        floor=floor if privacy is None else 1,  # a floor would break ε
    )
    sets = sets_of(constraint, agreed.schema, agreed.sites)
    limits = Limits(floor=0, largest_message=MAX_BYTES)
    told = None if model is None else json.loads(json.dumps(dict(model.describe())))
    own: Any = lambda of, size: model if of == told else rebuild(of, size)  # noqa: E731
    known: dict[str, Any] = {"own_model": own if model else None, "sets": sets}
    sites = {
        silo.name: Site(
            silo, agreed, limits, key=keys[silo.name], trusting=True, **known
        )
        for silo in federation.silos
    }
    for name, site in sites.items():
        site.adding = None if privacy is None else sharing(len(sites), privacy, name)
    parts = [rows for silo in federation.silos for rows in silo.splits.values()]
    heaviest = max(float(rows.weights.max(initial=0.0)) for rows in parts)
    weight_bound = heaviest if federation.weighted else None
    policy = Policy(weight_bound=weight_bound, seconds=FOR_EVER)
    answers = {name: site.answer for name, site in sites.items()}
    engine = Remote(InMemory(answers), agreed, policy=policy)
    engine.noisy = privacy is not None
    engine.federation, engine.sets = federation, sets
    return engine
