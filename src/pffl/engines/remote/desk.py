"""The server's desk: numbers its questions, and opens what comes back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from importlib.metadata import version

from pffl.admission import Refused
from pffl.codec import Answer, Request, read_answer, write_request
from pffl.codec.envelope import LONGEST
from pffl.codec.envelope import shown as shown
from pffl.errors import PFFLError
from pffl.parcel import Parcel

Number = tuple[int, int]  # (session, sequence)


@dataclass
class Desk:
    """Writes requests and reads answers of one run.

    Attributes
    ----------
    run, session, sequence
        The run, and the last number given out.
    schema
        Hash of the schema that every answer must carry.
    largest
        Bytes of an answer.
    version
        Of the package, which every answer must have, too.
    """

    run: str
    session: int
    schema: str
    largest: int
    sequence: int = 0
    version: str = field(default_factory=lambda: version("pffl"))

    @property
    def number(self) -> Number:
        """The last number given out."""
        return self.session, self.sequence

    def turn(self) -> Number:
        """Give out the next number."""
        self.sequence += 1
        return self.number

    def write(self, body: Parcel) -> bytes:
        """Put a question into an envelope with the last number."""
        return write_request(
            Request(self.run, *self.number, self.version, self.schema, body)
        )

    def read(self, content: bytes, numbers: Collection[Number]) -> Answer:
        """Open an answer to one of these numbers, or raise why it does not count."""
        try:
            answer = read_answer(content, largest=self.largest)
        except PFFLError as error:
            raise Refused(f"not an answer: {shown(str(error), LONGEST)}") from error
        self.check_hand(answer)
        if answer.refusal:
            raise Refused(f"the site refuses: {shown(answer.refusal, LONGEST)}")
        if answer.run != self.run:
            raise Refused("an answer of another run")
        if answer.number not in numbers:
            if answer.number <= self.number:
                raise Late("late: an answer to an earlier question")
            raise Refused("an answer to a question that was never asked")
        return answer

    def check_hand(self, answer: Answer) -> None:
        """Refuse another version or schema, both shown (faults 45, 57)."""
        if answer.version != self.version:
            raise Unfit(
                f"it runs pffl {shown(answer.version, 40)}, and the server "
                f"{self.version}: install the same version"
            )
        if answer.schema != self.schema:
            raise Unfit(
                f"its schema is {shown(answer.schema, 12)}, and this run's "
                f"{self.schema[:12]}: prepare the site with this run's schema"
            )


class Late(Refused):
    """An answer that comes when nobody waits for it any more."""


class Unfit(Refused):
    """A site that cannot take part as it is: asking again does not help."""
