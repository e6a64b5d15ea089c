"""The engine for sites on other machines: asks by messages, admits, adds.

One message a silo and question. Answers are judged one by one (`pffl.admission`), those
who did not answer are asked again under new numbers, and what was admitted is added in
the silos' order, so that the same answers give the same total however they arrive.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from pffl.admission import Gate, Policy, Refused, Verdict, missing_cells
from pffl.codec import Answer, decode_total
from pffl.data.schema import Schema
from pffl.engines.remote.desk import Desk
from pffl.engines.remote.gathering import Gathering
from pffl.engines.remote.record import Page, Record
from pffl.engines.remote.roll import Roll
from pffl.engines.remote.transport import Transport
from pffl.errors import DataError, FederationError, UsageError
from pffl.parcel import Malformed
from pffl.questions import (
    Census,
    CensusTotal,
    ModelQuestion,
    Question,
    Total,
    Train,
    add_all,
)

T = TypeVar("T", bound=Total)


class Remote:
    """Ask sites through a transport.

    Parameters
    ----------
    transport
        Carries the messages.
    schema, silo_names
        What the silos agree on, and who is expected, in order.
    policy
        Quorum, deadlines, limits.
    record
        Where to write what happened; None keeps it in memory.
    run, session
        Name of the run (drawn if None), and how often its server was started before:
        numbers of messages only grow.
    """

    name = "data"
    federation = None  # the rows are elsewhere

    def __init__(
        self,
        transport: Transport,
        schema: Schema,
        silo_names: Sequence[str],
        *,
        policy: Policy | None = None,
        record: Record | None = None,
        run: str | None = None,
        session: int = 0,
    ) -> None:
        names = tuple(silo_names)
        if not names or len(set(names)) < len(names):
            raise UsageError("a federation needs silos, each with a name of its own")
        self._transport, self._schema, self._names = transport, schema, names
        self.policy = policy or Policy()
        self.record = record or Record()
        self.run = run or secrets.token_hex(8)
        self.gate = Gate(self.policy, schema)
        self._desk = Desk(self.run, session, schema.hash, self.policy.largest_message)
        self._roll = Roll(
            transport,
            self._desk,
            names,
            self._joined,
            self.policy.seconds,
            1 + self.policy.retries,
        )
        self._splits: dict[int, tuple[str, ...]] = {}
        self._absent = dict.fromkeys(range(len(names)), 0)
        self._round = 0

    @property
    def schema(self) -> Schema:
        """What the silos agree on."""
        return self._schema

    @property
    def silo_names(self) -> tuple[str, ...]:
        """Names of the silos, in order."""
        return self._names

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that every silo has."""
        self._meet()
        first, *others = (self._splits[k] for k in range(len(self._names)))
        return tuple(s for s in first if all(s in other for other in others))

    @property
    def partial(self) -> bool:
        """Whether a round of training may do without some of the silos."""
        return self.policy.needed(len(self._names)) < len(self._names)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the sites, for the result: who withholds what (fault 23)."""
        notes = []
        for split in ("train", "test", "validation"):
            known = [self.gate.frozen(k, split) for k in range(len(self._names))]
            cut = [k for k, census in enumerate(known) if census and census.withheld]
            if cut:
                rows = sum(int(c.total.rows[0]) for c in known if c)
                counted = sum(int(c.total.counts.sum()) for c in known if c)
                notes.append(
                    f"{self._listing(cut)} withhold small (group, label) counts: "
                    f"{rows - counted:,} of all {rows:,} {split} rows are in no cell, "
                    "and no statement speaks of people like them"
                )
        return tuple(notes)

    def census(self, split: str = "train") -> CensusTotal:
        """Return the counts and feature sums; asked once a split, then frozen."""
        self._meet()
        every = range(len(self._names))
        if any(self.gate.frozen(k, split) is None for k in every):
            if split not in self.splits:
                raise UsageError(f"not every site has a split '{split}'")
            self._gather(Census(self._schema, split), tuple(every))
        frozen = [self.gate.frozen(k, split) for k in every]
        total = add_all([known.total for known in frozen if known is not None])
        empty = [n for n, m in zip(self._names, total.rows, strict=True) if m == 0]
        if empty and split == "train":
            raise DataError(f"silos without training rows: {', '.join(empty)}")
        return total.in_order()

    def ask(self, question: Question[T]) -> T:
        """Ask every silo and add the answers."""
        if isinstance(question, Census):
            return cast(T, self.census(question.split))
        chosen = question.silos
        asked = tuple(range(len(self._names))) if chosen is None else tuple(chosen)
        self.census(question.split)
        found = self._gather(question, asked)
        missing = tuple(k for k in asked if k not in found)
        return cast(T, self._add(question, found, missing))

    def ask_many(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Ask several questions, one after the other."""
        return [self.ask(question) for question in questions]

    def _add(
        self, question: Question[Any], found: dict[int, Any], missing: tuple[int, ...]
    ) -> Any:
        # Secure sums and noise on totals belong here.
        total = add_all([found[k] for k in sorted(found)])
        if not missing or not isinstance(question, Train):
            return total
        blank = missing_cells(self.gate, question, missing)
        return replace(total, cell_losses=total.cell_losses + blank)

    def _meet(self) -> None:
        """Wait until every silo has been there once (fault 56)."""
        every = tuple(range(len(self._names)))
        if len(self._splits) == len(every):
            return
        page, started = Page(asked=list(self._names)), time.monotonic()
        census = Census(self._schema)
        try:
            self._roll.find(every, census, self.policy.join_seconds, page)
        finally:
            page.answered = [self._names[k] for k in sorted(self._splits)]
            self._write("census", page, started)
        missing = [k for k in every if k not in self._splits]
        if missing:
            waited = f"after {self.policy.join_seconds:g} s"
            raise FederationError(
                f"{len(missing)} of {len(every)} sites are not there {waited}: "
                f"{self._listing(missing)}.{self._unfit()} Start the missing sites' "
                "nodes (or raise join_seconds), and run again"
            )
        self._roll.complete = True

    def _joined(self, index: int, answer: Answer) -> None:
        """Take the census that comes with a site's first answer, or its return."""
        self._admit(Census(self._schema), index, answer)
        self._splits[index] = answer.splits

    def _admit(self, question: Question[Any], index: int, answer: Answer) -> Verdict:
        """Decode and judge an answer."""
        try:
            total = decode_total(answer.body, question, index, self._schema.hash)
        except Malformed as error:
            raise Refused(str(error)) from error
        if isinstance(question, ModelQuestion):
            return self.gate.report(question, index, total)
        split = question.split
        return Verdict(self.gate.census(index, split, total, answer.withheld))

    def _gather(
        self, question: Question[Any], asked: tuple[int, ...]
    ) -> dict[int, Any]:
        """Ask silos until enough have answered; write the page; return totals."""
        started = time.monotonic()
        gathering = Gathering(
            self._transport,
            self._desk,
            self._roll,
            self._names,
            self.policy.seconds,
            self._admit,
            question,
            Page(asked=[self._names[k] for k in asked]),
        )
        found, page = gathering.found, gathering.page
        try:
            for attempt in range(1 + self.policy.retries):
                missing = [k for k in asked if k not in found]
                if not missing:
                    break
                short = len(found) < self._needed(question, asked)
                self._look(missing, page, wait=not attempt or (attempt == 1 and short))
                gathering.exchange(missing)
        finally:
            self._write(gathering.kind, page, started)
        self._demand(question, asked, found, page)
        return found

    def _look(self, missing: Sequence[int], page: Page, *, wait: bool) -> None:
        """Call new nodes, and wait for silos that have none, if they were there.

        A node may be lost before a question or while it is out (fault 54).
        """
        patient = wait and any(self._absent[k] == 0 for k in missing)
        seconds = self.policy.seconds if patient else 0.0
        self._roll.find(missing, Census(self._schema), seconds, page)

    def _needed(self, question: Question[Any], asked: Sequence[int]) -> int:
        """Return how many of those asked must answer."""
        train = isinstance(question, Train)
        return self.policy.needed(len(asked)) if train else len(asked)

    def _demand(
        self,
        question: Question[Any],
        asked: Sequence[int],
        found: dict[int, Any],
        page: Page,
    ) -> None:
        """Go on only with a quorum, and not without a silo for ever (faults 41, 42)."""
        missing = [k for k in asked if k not in found]
        train = isinstance(question, Train)
        needed = self._needed(question, asked)
        kind = question.kind
        reasons = dict(page.refused)
        if len(found) < needed:
            raise FederationError(
                f"round {self._round} ({kind}): {len(found)} of {len(asked)} silos "
                f"answered, and {needed} must. Missing: "
                f"{self._listing(missing, reasons)}. See to these sites, and resume "
                "the run from its checkpoint"
            )
        for k in asked if train else ():
            self._absent[k] = self._absent[k] + 1 if k in missing else 0
        lost = [k for k in missing if self._absent[k] > self.policy.patience]
        if lost:
            self.record.write(
                {
                    "session": self._desk.session,
                    "round": self._round,
                    "event": "participation_lost",
                    "silos": [self._names[k] for k in lost],
                }
            )
            raise FederationError(
                f"participation lost (participation_lost): more than "
                f"{self.policy.patience} rounds in a row without "
                f"{self._listing(lost, reasons)}. See to these sites, and resume the "
                "run from its checkpoint"
            )

    def _write(self, kind: str, page: Page, started: float) -> None:
        self._round += 1
        self.record.write(
            {
                "session": self._desk.session,
                "round": self._round,
                "question": kind,
                **page.as_dict(),
                "seconds": round(time.monotonic() - started, 6),
            }
        )

    def _listing(
        self, silos: Sequence[int], reasons: dict[str, str] | None = None
    ) -> str:
        names = [self._names[k] for k in silos]
        if reasons is None:
            return ", ".join(f"'{name}'" for name in names)
        return ", ".join(
            f"'{name}' ({reasons.get(name, 'no answer')})" for name in names
        )

    def _unfit(self) -> str:
        nodes = [f"{at} ({reason})" for at, reason in self._roll.unfit.items()]
        return f" Not admitted: {'; '.join(nodes)}." if nodes else ""
