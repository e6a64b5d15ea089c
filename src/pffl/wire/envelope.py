"""Envelopes: who asks or answers, in which run, under which number and schema.

A message carries a list of questions, and its answer the list of their totals. Every
message of a run has a number that only grows, as a pair (session, sequence): a server
that was restarted begins a new session. A site answers no number twice, and the server
takes an answer only under the number that it asked with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from pffl.errors import Malformed
from pffl.parcel import LARGEST, Parcel, pack, unpack
from pffl.questions import Question, Total

PROTOCOL = 2
QUESTION = "pffl question"
ANSWER = "pffl answer"
REFUSAL = "pffl refusal"
LONGEST = 300  # characters of a name, or of a reason
MOST_QUESTIONS = 24  # of a message, whose arrays a parcel can hold
SEVERAL = "questions"  # the kind of a message with questions of different kinds

T = TypeVar("T", bound=Total)


@dataclass(frozen=True, eq=False)
class Message:
    """What all messages have.

    Attributes
    ----------
    run, session, sequence
        Which run it is of, and under which number it was asked.
    version
        Version of the package that wrote it.
    schema
        Hash of the schema.
    bodies
        The questions, or their totals, as parcels.
    """

    run: str
    session: int
    sequence: int
    version: str
    schema: str
    bodies: tuple[Parcel, ...]

    @property
    def number(self) -> tuple[int, int]:
        """(session, sequence)."""
        return self.session, self.sequence


@dataclass(frozen=True, eq=False)
class Request(Message):
    """Questions on their way to a site."""

    @property
    def kind(self) -> str:
        """What is asked for, by name."""
        return kind_of([str(body.header.get("question"))[:40] for body in self.bodies])


@dataclass(frozen=True, eq=False)
class Answer(Message):
    """What a site sends back: totals, or why there are none.

    Attributes
    ----------
    silo
        The site's name.
    splits
        Splits that the site has.
    refusal
        Why the site does not answer; then there are no totals.
    """

    silo: str
    splits: tuple[str, ...] = ()
    refusal: str = ""


def kind_of(kinds: Sequence[str]) -> str:
    """Return what to call a message with questions of these kinds."""
    return kinds[0] if len(set(kinds)) == 1 else SEVERAL


def question_body(question: Question[Any], index: int) -> Parcel:
    """Write a question for the silo at `index`."""
    return Parcel(*question.plain(index))


def total_body(question: Question[T], total: T, withheld: int = 0) -> Parcel:
    """Write one silo's answer, which withholds so many (group, label) counts."""
    header = {"total": question.kind, "withheld": withheld}
    return Parcel(header, total.sent())


def read_total(
    body: Parcel, question: Question[T], index: int, schema: str
) -> tuple[T, int]:
    """Read silo `index`'s answer to a question, and how many counts it withholds."""
    withheld = body.header.get("withheld")
    if dict(body.header) != {"total": question.kind, "withheld": withheld}:
        raise Malformed(f"not an answer to {question.kind}")
    if not _whole(withheld):
        raise Malformed(f"'withheld' is {str(withheld)[:40]!r}")
    who = {"silos": np.array([index]), "schema_hash": schema}
    total: Any = question.total_type.received(body.arrays, question.dims, **who)
    return total, int(withheld or 0)


def write_request(request: Request) -> bytes:
    """Return the bytes that a site receives."""
    return _write(QUESTION, request)


def read_request(content: bytes, *, largest: int = LARGEST) -> Request:
    """Read what a server sent; anything else is `Malformed`."""
    parcel = unpack(content, largest=largest)
    request = Request(**_read(parcel, (QUESTION,), Request))
    if not request.bodies:
        raise Malformed("a request without a question")
    return request


def write_answer(answer: Answer) -> bytes:
    """Return the bytes that leave a site: all that ever leaves it."""
    return _write(REFUSAL if answer.refusal else ANSWER, answer)


def read_answer(content: bytes, *, largest: int = LARGEST) -> Answer:
    """Read what a site sent; anything else is `Malformed`."""
    parcel = unpack(content, largest=largest)
    answer = Answer(**_read(parcel, (ANSWER, REFUSAL), Answer))
    if bool(answer.refusal) != (parcel.header["format"] == REFUSAL):
        raise Malformed("a refusal without a reason, or an answer with one")
    if answer.refusal and parcel.arrays:
        raise Malformed("a refusal with arrays")
    return answer


def refusal(
    request: Request | None, *, version: str, silo: str, schema: str, reason: str
) -> Answer:
    """Return the answer that says why there is none."""
    run, number = (request.run, request.number) if request else ("", (0, 0))
    text = shown(reason, LONGEST) or "no reason given"
    return Answer(run, *number, version, schema, (), silo, refusal=text)


def shown(text: str, longest: int = 80) -> str:
    r"""Return another's text fit for a message: short, one line, nothing hidden.

    >>> shown("north\x1b[2J\nsouth")
    'north [2J south'
    """
    return "".join(c if c.isprintable() else " " for c in text[:longest])


def _write(kind: str, message: Message) -> bytes:
    header: dict[str, Any] = {"format": kind, "protocol": PROTOCOL}
    header |= {field.name: getattr(message, field.name) for field in fields(message)}
    header["bodies"] = [dict(body.header) for body in message.bodies]
    arrays = {
        f"{name} {place}" if place else name: array
        for place, body in enumerate(message.bodies)
        for name, array in body.arrays.items()
    }
    return pack(Parcel(header, arrays))


def _read(parcel: Parcel, kinds: tuple[str, ...], into: type[Any]) -> dict[str, Any]:
    """Check the header, and return the fields of a message."""
    header = dict(parcel.header)
    if header.pop("format", None) not in kinds:
        raise Malformed(f"not a {' or '.join(kinds)}")
    protocol = header.pop("protocol", None)
    if protocol != PROTOCOL:
        theirs = header.get("version")
        raise Malformed(
            f"protocol {protocol!r} of pffl {str(theirs)[:40]}, and this is protocol "
            f"{PROTOCOL}: install the same version everywhere"
        )
    names = {field.name for field in fields(into)}
    if set(header) != names:
        raise Malformed(f"fields {sorted(set(header) ^ names)} are missing or unknown")
    for name, value in header.items():
        if not FITS.get(name, _name)(value):
            raise Malformed(f"'{name}' is {str(value)[:40]!r}")
    header["bodies"] = _bodies(header["bodies"], parcel)
    if "splits" in header:
        header["splits"] = tuple(header["splits"])
    return header


def _bodies(headers: list[dict[str, Any]], parcel: Parcel) -> tuple[Parcel, ...]:
    """Give every body its own arrays: `w` is the first one's, `w 1` the second's."""
    arrays: dict[str, dict[str, Any]] = {str(i): {} for i in range(len(headers))}
    for name, array in parcel.arrays.items():
        own, _, place = name.partition(" ")
        if place == "0" or (place or "0") not in arrays:
            raise Malformed(f"an array {shown(name)!r} that belongs to nothing")
        arrays[place or "0"][own] = array
    return tuple(Parcel(h, arrays[str(i)]) for i, h in enumerate(headers))


def _whole(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _list(value: object, most: int, good: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and len(value) <= most and all(map(good, value))


def _name(value: object) -> bool:
    """Whether a value is a short text that can be written down again."""
    if not isinstance(value, str) or len(value) > LONGEST:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair
        return False
    return True


FITS: Mapping[str, Callable[[object], bool]] = {
    "session": _whole,
    "sequence": _whole,
    "splits": lambda value: _list(value, 16, _name),
    "bodies": lambda value: _list(
        value, MOST_QUESTIONS, lambda body: isinstance(body, dict)
    ),
}
