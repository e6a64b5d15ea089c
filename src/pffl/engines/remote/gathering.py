"""One question on its way to silos, and what comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pffl.admission import Refused, Verdict
from pffl.codec import Answer, encode_question
from pffl.engines.remote.desk import Desk, Late, Number, shown
from pffl.engines.remote.record import Page
from pffl.engines.remote.roll import Roll
from pffl.engines.remote.transport import Reply, Transport
from pffl.questions import Question


@dataclass
class Gathering:
    """The answers to one question, over one or more exchanges.

    An answer to any of the question's numbers counts, once (fault 43): a slow site
    that answers the first message after the second was sent has answered.

    Attributes
    ----------
    transport, desk, roll, names
        How to ask, and who is where.
    seconds
        How long an exchange may take.
    admit
        Judges an answer, or raises `Refused`.
    question, page
        What is asked, and the page of the record for it.
    found
        What was admitted, by silo.
    numbers
        Under which the question was sent.
    """

    transport: Transport
    desk: Desk
    roll: Roll
    names: tuple[str, ...]
    seconds: float
    admit: Callable[[Question[Any], int, Answer], Verdict]
    question: Question[Any]
    page: Page
    found: dict[int, Any] = field(default_factory=dict)
    numbers: set[Number] = field(default_factory=set)

    @property
    def kind(self) -> str:
        """What a transport, and the record, call the question."""
        return self.question.kind

    def exchange(self, silos: Sequence[int]) -> None:
        """Send one message to each of these silos, and take what comes back."""
        self.numbers.add(self.desk.turn())
        requests = {}
        for k in silos:
            if k in self.roll.address:
                content = self.desk.write(encode_question(self.question, k))
                requests[self.roll.address[k]] = content
                self.page.out(self.names[k], content)
        waiting, index = set(requests), {at: k for k, at in self.roll.address.items()}
        deadline = time.monotonic() + self.seconds
        if requests:
            for reply in self.transport.exchange(requests, self.seconds, self.kind):
                over = time.monotonic() > deadline
                if self._take(reply, index.get(reply.address), over=over):
                    waiting.discard(reply.address)
                if over or not waiting:
                    break
        for k in silos:
            (self.roll.silent.discard if k in self.found else self.roll.silent.add)(k)

    def _take(self, reply: Reply, index: int | None, *, over: bool) -> bool:
        """Judge one reply; return whether the silo has had its say."""
        name = reply.address if index is None else self.names[index]
        if reply.content is None:
            reason = f"error: {shown(reply.error) or 'no content'}"
            self.page.refused.append((name, reason))
            return True
        self.page.back(name, reply.content)
        try:
            if over:
                raise Late("late: after the deadline")
            verdict = self._judged(reply.content, index)
        except Refused as error:
            self.page.refused.append((name, str(error)))
            return not isinstance(error, Late)
        self.page.answered.append(name)
        self.page.flagged += [(name, flag) for flag in verdict.flags]
        if verdict.clipped:
            self.page.clipped.append(name)
        return True

    def _judged(self, content: bytes, index: int | None) -> Verdict:
        """Open and admit an answer."""
        answer = self.desk.read(content, self.numbers)
        if index is None or answer.silo != self.names[index]:
            raise Refused(f"an answer of '{shown(answer.silo)}' from another's node")
        if index in self.found:
            raise Refused("duplicate: counted once")
        verdict = self.admit(self.question, index, answer)
        self.found[index] = verdict.total
        return verdict
