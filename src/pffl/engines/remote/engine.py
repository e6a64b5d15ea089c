"""The engine for sites on other machines: asks by messages, admits, adds.

One message a silo, with one query or many. Answers are judged one by one (`wire`),
those who did not answer are asked again under new numbers, and what was admitted is
added in the silos' order, so that the same answers give the same total however they
arrive.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from pffl.data.checks import listing
from pffl.data.encoding import TableEncoding
from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.engines.remote.exchange import (
    Entry,
    Exchange,
    Nodes,
    Record,
    Session,
    Transport,
)
from pffl.errors import (
    DataError,
    FederationError,
    Malformed,
    PrivacyBudgetError,
    Refused,
    UsageError,
)
from pffl.parcel import Parcel
from pffl.queries import Census, CensusTotal, Query, Total, add_all
from pffl.wire import Answer, Gate, Policy, Verdict, query_body, read_total
from pffl.wire.envelope import HELLO, LONGEST, MOST_QUERIES, shown
from pffl.wire.keys import PublicKeys

EARLY = ("test",)  # splits whose census is not waited for
T = TypeVar("T", bound=Total)


class Remote:
    """Ask sites through a transport.

    Parameters
    ----------
    transport
        Carries the messages.
    schema, silo_names
        What the silos agree on, and who is expected, in order.
    encoding
        How the sites read their tables, if not every input is a number.
    policy
        Quorum, deadlines, limits.
    record
        Where to write what happened; None keeps it in memory.
    name
        What the data are called in results.
    run, session
        Name of the run (drawn if None), and how often its server was started before:
        numbers of messages only grow.
    keys
        Public keys by site, by which answers must be signed; None where they are not.
    """

    federation: Federation | None = None  # the rows are elsewhere
    pooled = 0  # silos are told apart

    def __init__(
        self,
        transport: Transport,
        schema: Schema,
        silo_names: Sequence[str],
        *,
        encoding: TableEncoding | None = None,
        policy: Policy | None = None,
        record: Record | None = None,
        name: str = "data",
        run: str | None = None,
        session: int = 0,
        keys: Mapping[str, PublicKeys] | None = None,
    ) -> None:
        names = tuple(silo_names)
        if not names or len(set(names)) < len(names):
            raise UsageError(
                "[repeated-name] a federation needs silos, each with a name of its own"
            )
        self._transport, self.schema, self.silo_names = transport, schema, names
        self._members = names  # who is asked
        self.encoding = encoding or TableEncoding.of_numbers(schema)
        self.policy = policy or Policy()
        self.record = record or Record()
        self.name = name
        self.run = run or secrets.token_hex(8)
        self.gate = Gate(self.policy, schema)
        self._session = Session(
            self.run,
            session,
            schema.hash,
            self.policy.largest_message,
            self._body,
            self._greeting(),
            keys or {},
        )
        self._nodes = Nodes(
            self._session,
            names,
            self._joined,
            self.policy.seconds,
            1 + self.policy.retries,
        )
        self._splits: dict[int, tuple[str, ...]] = {}
        self._absent = dict.fromkeys(range(len(names)), 0)
        self._census: dict[str, CensusTotal] = {}
        self._round = 0

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that every silo has."""
        self._meet()
        return self._common()

    def _common(self) -> tuple[str, ...]:
        first, *others = (self._splits[k] for k in range(len(self._members)))
        return tuple(s for s in first if all(s in other for other in others))

    @property
    def partial(self) -> bool:
        """Whether a round of training may do without some of the silos."""
        return self.policy.needed(len(self._members)) < len(self._members)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the sites, for the result: who leaves out whom (fault 23)."""
        notes = []
        for split in ("train", "test", "validation"):
            known = [self.gate.frozen(k, split) for k in range(len(self._members))]
            cut = [k for k, census in enumerate(known) if census and census.withheld]
            if cut:
                notes.append(
                    f"{self._listing(cut)} leave out {split} rows of (group, label)s "
                    "that have few: they train nothing, and no statement speaks of "
                    "people like them"
                )
        return tuple(notes)

    def withheld(self, split: str) -> int:
        """How many (group, label)s of a split sites leave out."""
        known = [self.gate.frozen(k, split) for k in range(len(self._members))]
        return sum(census.withheld for census in known if census)

    def ask(self, query: Query[T]) -> T:
        """Ask every silo and add the answers."""
        total: T = self.ask_many([query])[0]
        return total

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Ask several queries in one message, and add the answers to each.

        Where a round of training may do without some silos, it goes out by itself. The
        census of the test rows, which a run needs at its end, otherwise goes with the
        first message that has several queries anyway.
        """
        self._meet()
        common = self._common()
        splits = dict.fromkeys(query.split for query in queries)
        for split in splits:
            if split not in common:
                raise UsageError(
                    f"[unknown-split] not every site has a split '{split}'"
                )
        posed = [q for q in queries if not counts(q)]
        several = len(posed) > 1 and not self.partial
        early = [split for split in EARLY if several and split in common]
        parts = {
            "counts": self._uncounted(splits),  # before what is judged by them
            "all": self._uncounted(s for s in early if s not in splits),
            "some": [],
        }
        for query in posed:
            parts["some" if self.partial and query.quorum else "all"].append(query)
        found: dict[int, Any] = {}
        for part in parts.values():
            for first in range(0, len(part), MOST_QUERIES):
                some = part[first : first + MOST_QUERIES]
                told = self._gather(some)
                for i, q in enumerate(some):
                    own = {k: told[k][i] for k in sorted(told) if i in told[k]}
                    found[id(q)] = self._added(q, own)
        counted = {split: self._counted(split) for split in splits}
        return [counted[q.split] if counts(q) else found[id(q)] for q in queries]

    def _greeting(self) -> tuple[Query[Any], ...]:
        """Return what a node is asked first."""
        return (Census(self.schema),)

    def _body(self, query: Query[Any], index: int) -> Parcel:
        """Write a query for one of those who are asked."""
        return query_body(query, index)

    def _uncounted(self, splits: Iterable[str]) -> list[Query[Any]]:
        """Return the census of those splits that some silo has not told yet."""
        every = range(len(self._members))
        new = [s for s in splits if any(self.gate.frozen(k, s) is None for k in every)]
        return [Census(self.schema, split) for split in new]

    def _counted(self, split: str) -> CensusTotal:
        """Return the census of a split, which is frozen once every silo has told it."""
        if split not in self._census:
            every = range(len(self._members))
            parts = [k.total for i in every if (k := self.gate.frozen(i, split))]
            total = add_all(parts)
            rows = zip(self.silo_names, total.rows, strict=True)
            empty = [name for name, n in rows if n == 0]
            if empty and split == "train":
                raise DataError(
                    f"[no-training-rows] silos without training rows: {listing(empty)}"
                )
            self._census[split] = total
        return self._census[split]

    def _added(self, query: Query[Any], found: dict[int, Any]) -> Any:
        """Add the silos' answers to one query of a message."""
        parts = list(found.values())
        total = query.keeping(add_all(parts), parts)
        missing = [k for k in self._asked(query) if k not in found]
        if not missing or query.task is None:
            return total
        cells = query.task.cells
        rows = [cells.of_silo(k) @ self.gate.counts(k, query.split) for k in missing]
        return query.lacking(total, np.sum(rows, axis=0))

    def _asked(self, query: Query[Any]) -> Sequence[int]:
        """Return who is asked a query."""
        every = range(len(self._members))
        return every if query.silos is None else query.silos

    def _meet(self) -> None:
        """Wait until every silo has been there once (fault 56)."""
        every = tuple(range(len(self._members)))
        if len(self._splits) == len(every):
            return
        entry, started = Entry(asked=list(self._members)), time.monotonic()
        try:
            self._nodes.find(self._transport, every, self.policy.join_seconds, entry)
        finally:
            entry.answered = [self._members[k] for k in sorted(self._splits)]
            kind = next((q.kind for q in self._session.greeting), HELLO)
            self._write(kind, entry, started)
        missing = [k for k in every if k not in self._splits]
        if missing:
            waited = f"after {self.policy.join_seconds:g} s"
            who = f"{self._listing(missing)}.{self._unfit()}"
            many = f"{len(missing)} of {len(every)} sites"
            if failed := self._failed():
                raise FederationError(
                    f"[sites-missing] {many} did not answer {waited}: {who}{failed}"
                )
            raise FederationError(
                f"[sites-missing] {many} are not there {waited}: {who} Start the "
                "missing sites' nodes (or raise join_seconds), and run again"
            )
        self._nodes.complete = True

    def _joined(self, index: int, answer: Answer) -> None:
        """Take the census that comes with a site's first answer, or its return."""
        self._admit([Census(self.schema)], index, answer)
        self._splits[index] = answer.splits

    def _admit(
        self, queries: Sequence[Query[Any]], index: int, answer: Answer
    ) -> list[Verdict]:
        """Decode and judge an answer to a message."""
        if len(answer.bodies) != len(queries):
            raise Refused(
                f"[wrong-number-of-totals] {len(answer.bodies)} totals for "
                f"{len(queries)} queries"
            )
        try:
            found = [
                read_total(body, query, index, self.schema.hash)
                for body, query in zip(answer.bodies, queries, strict=True)
            ]
        except Malformed as error:
            raise Refused(error) from error
        return [
            self._judge(query, index, total, withheld)
            for query, (total, withheld) in zip(queries, found, strict=True)
        ]

    def _judge(
        self, query: Query[Any], index: int, total: Any, withheld: int
    ) -> Verdict:
        """Judge a site's total for one query of a message."""
        if counts(query):
            return Verdict(self.gate.census(index, query.split, total, withheld))
        return self.gate.report(query, index, total)

    def _gather(self, queries: Sequence[Query[Any]]) -> dict[int, dict[int, Any]]:
        """Ask silos until enough have answered; record it.

        Return, by silo, its total for each query's place in the message.
        """
        places: dict[int, list[int]] = {k: [] for k in range(len(self._members))}
        for i, query in enumerate(queries):
            for k in self._asked(query):
                places[k].append(i)
        asked = [k for k in places if places[k]]
        exchange = Exchange(
            self._session,
            self._nodes,
            self.policy.seconds,
            self._admit,
            {k: [queries[i] for i in places[k]] for k in asked},
            Entry(asked=[self._members[k] for k in asked]),
        )
        found = exchange.found
        partly = all(query.quorum for query in queries)
        needed = self.policy.needed(len(asked)) if partly else len(asked)
        self._carry_out(exchange, asked, needed)
        if partly:
            self._be_patient(exchange, asked)
        return {k: dict(zip(places[k], found[k], strict=True)) for k in found}

    def _carry_out(self, exchange: Exchange, asked: Sequence[int], needed: int) -> None:
        """Send an exchange's messages, again to those who do not answer; record it."""
        found, entry, started = exchange.found, exchange.entry, time.monotonic()
        try:
            for attempt in range(1 + self.policy.retries):
                missing = [k for k in asked if k not in found]
                if not missing:
                    break
                wait = not attempt or (attempt == 1 and len(found) < needed)
                self._look(missing, entry, wait=wait)
                exchange.send(self._transport, missing)
        finally:
            self._write(exchange.kind, entry, started)
        self._demand(exchange, asked, needed)

    def _look(self, missing: Sequence[int], entry: Entry, *, wait: bool) -> None:
        """Call new nodes, and wait for silos that have none, if they were there.

        A node may be lost before a query or while it is out (fault 54).
        """
        there, nodes = set(self._transport.addresses()), self._nodes
        if all(
            nodes.address.get(k) in there and k not in nodes.silent for k in missing
        ):
            return
        patient = wait and any(self._absent[k] == 0 for k in missing)
        seconds = self.policy.seconds if patient else 0.0
        nodes.find(self._transport, missing, seconds, entry)

    def _demand(self, exchange: Exchange, asked: Sequence[int], needed: int) -> None:
        """Go on only with a quorum (fault 41), or say whose budget is at its end."""
        missing = [k for k in asked if k not in exchange.found]
        if len(exchange.found) < needed:
            for name, reason in exchange.entry.refused:
                if PrivacyBudgetError.said in reason:
                    raise PrivacyBudgetError(
                        f"[budget-exceeded] site '{name}': {reason}"
                    )
            who = self._listing(missing, exchange.entry)
            raise FederationError(
                f"[sites-missing] round {self._round} ({exchange.kind}): "
                f"{len(exchange.found)} of {len(asked)} silos answered, and {needed} "
                f"must. Missing: {who}. See to these sites, and resume the run from "
                "its checkpoint"
            )

    def _be_patient(self, exchange: Exchange, asked: Sequence[int]) -> None:
        """Go on without a silo, but not for ever (fault 42)."""
        for k in asked:
            self._absent[k] = 0 if k in exchange.found else self._absent[k] + 1
        lost = [k for k in asked if self._absent[k] > self.policy.patience]
        if lost:
            self.record.write(
                {
                    "session": self._session.session,
                    "round": self._round,
                    "event": "participation_lost",
                    "silos": [self._members[k] for k in lost],
                }
            )
            raise FederationError(
                "[participation-lost] participation lost (participation_lost): more "
                f"than {self.policy.patience} rounds in a row without "
                f"{self._listing(lost, exchange.entry)}. See to these sites, and "
                "resume the run from its checkpoint"
            )

    def _write(self, kind: str, entry: Entry, started: float) -> None:
        self._round += 1
        self.record.write(
            {
                "session": self._session.session,
                "round": self._round,
                "query": kind,
                **entry.as_dict(),
                "seconds": round(time.monotonic() - started, 6),
            }
        )

    def _listing(self, silos: Sequence[int], entry: Entry | None = None) -> str:
        names = [self._members[k] for k in silos]
        if entry is None:
            return listing(f"'{name}'" for name in names)
        why = dict(entry.refused)
        return listing(f"'{name}' ({why.get(name, 'no answer')})" for name in names)

    def _failed(self) -> str:
        """Name the nodes that are there and cannot answer, with what they lack."""
        nodes = [
            f"{at} ({lacking(reason)})"
            for at, reason in sorted(self._nodes.failed.items())
            if at not in self._nodes.address.values()
        ]
        return f" There, and without an answer: {'; '.join(nodes)}." if nodes else ""

    def _unfit(self) -> str:
        nodes = [f"{at} ({reason})" for at, reason in self._nodes.unfit.items()]
        return f" Not admitted: {'; '.join(nodes)}." if nodes else ""


def lacking(reason: str) -> str:
    """Say what a node lacks that failed when it was asked for the first time."""
    if "function registered with name" in reason:
        return (
            "its ClientApp does not answer queries: make it with pffl.flower.client_app"
        )
    if "Unanswered" in reason:
        return "its rows could not be opened: the log of that node says why"
    return shown(reason, LONGEST)


def counts(query: Query[Any]) -> bool:
    """Whether it is the census that is asked once, and frozen."""
    return isinstance(query, Census) and not (query.centred or query.released)
