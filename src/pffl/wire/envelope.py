"""Envelopes: who asks or answers, in which run, under which number and schema.

A message carries a list of queries, and its answer the list of their totals. Every
message of a run has a number that only grows, as a pair (session, sequence): a server
that was restarted begins a new session. A site answers no number twice, and the server
takes an answer only under the number that it asked with.

An answer is signed, where the site has a key: over all that it says, the digest of what
was asked included. Under secure sums messages are also numbered by the step of the run,
which all sites are asked alike; a request brings the answers of all sites to the step
before, and the transcript, a chain of hashes over all of them, says what was said so
far. Masks depend on it: sites that were shown different things do not add up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.errors import Malformed
from pffl.parcel import LARGEST, Parcel, pack, unpack
from pffl.queries import Query, Total

PROTOCOL = 4
QUESTION = "pffl query"
ANSWER = "pffl answer"
REFUSAL = "pffl refusal"
LONGEST = 300  # characters of a name, or of a reason
MOST_QUERIES = 24  # of a message, whose arrays a parcel can hold
SEVERAL = "queries"  # the kind of a message with queries of different kinds
HELLO = "hello"  # and of one without any: who is there?
RELAY, MASKED = "relay", "masked"  # arrays of a message under secure sums
KEY = 4  # masked numbers that are a site's key of a run
MOST_SITES = 1000  # whose answers are relayed

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
        The queries, or their totals, as parcels.
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
    """Queries on their way to a site; none to ask who is there.

    Attributes
    ----------
    step
        Place in the run of a query under secure sums, from 1; 0 for all else.
    relay
        What all sites answered to the step before, in their order, as they sent it.
    """

    step: int = 0
    relay: tuple[bytes, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is asked for, by name."""
        named = (str(body.header.get("query"))[:40] for body in self.bodies)
        return tuple(shown(name) for name in named)

    @property
    def kind(self) -> str:
        """What to call the message."""
        return kind_of(self.kinds) if self.bodies else HELLO


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
    asked
        Digest of the queries that it answers.
    step, transcript
        Under secure sums: as in the request, and what was said before it.
    signature
        Of all the rest, by the site's key; empty without one.
    """

    silo: str
    splits: tuple[str, ...] = ()
    refusal: str = ""
    asked: str = ""
    step: int = 0
    transcript: str = ""
    signature: str = ""


def kind_of(kinds: Sequence[str]) -> str:
    """Return what to call a message with queries of these kinds."""
    return kinds[0] if len(set(kinds)) == 1 else SEVERAL


def query_body(query: Query[Any], index: int) -> Parcel:
    """Write a query for the silo at `index`."""
    return Parcel(*query.plain(index))


def total_body(query: Query[T], total: T, withheld: int = 0) -> Parcel:
    """Write one silo's answer, which leaves out so many (group, label)s."""
    header = {"total": query.kind, "withheld": withheld}
    return Parcel(header, total.sent())


def read_total(body: Parcel, query: Query[T], index: int, schema: str) -> tuple[T, int]:
    """Read silo `index`'s answer to a query, and how many counts it withholds."""
    withheld = body.header.get("withheld")
    if dict(body.header) != {"total": query.kind, "withheld": withheld}:
        raise Malformed(f"not an answer to {query.kind}")
    if not _whole(withheld):
        raise Malformed(f"'withheld' is {str(withheld)[:40]!r}")
    who = {"silos": np.array([index]), "schema_hash": schema}
    total: Any = query.answer_type.received(body.arrays, query.dims, **who)
    return total, int(withheld or 0)


def masked_body(flat: NDArray[np.uint64]) -> Parcel:
    """Write one site's masked numbers, those of all queries of a message."""
    header = {"total": MASKED, "withheld": 0}
    return Parcel(header, {MASKED: flat.view(np.int64)})


def read_masked(answer: Answer, length: int) -> NDArray[np.uint64]:
    """Read one site's masked numbers, of which there are so many."""
    if len(answer.bodies) != 1:
        raise Malformed("not one masked answer")
    body = answer.bodies[0]
    found = body.arrays.get(MASKED)
    if dict(body.header) != {"total": MASKED, "withheld": 0} or len(body.arrays) != 1:
        raise Malformed("not a masked answer")
    if found is None or found.dtype != np.int64 or found.shape != (length,):
        raise Malformed(f"not {length:,} masked numbers")
    return found.view(np.uint64)


def bodies_digest(bodies: Sequence[Parcel]) -> str:
    """Return a digest of queries, as they are written."""
    return files.digest(*(pack(body) for body in bodies))


def first_transcript(agreement: str, run: str) -> str:
    """Return the transcript of a run that has not begun, under an agreement's hash."""
    return files.digest("pffl transcript", agreement, run)


def next_transcript(
    transcript: str, asked: str, masked: Sequence[NDArray[np.uint64]]
) -> str:
    """Return the transcript after a step: what was asked, and all sites' answers."""
    said = [files.digest_arrays(flat.view(np.int64)) for flat in masked]
    return files.digest(transcript, asked, *said)


def signed_content(answer: Answer) -> bytes:
    """Return the bytes that a site signs."""
    return write_answer(replace(answer, signature=""))


def write_request(request: Request) -> bytes:
    """Return the bytes that a site receives."""
    return _write(QUESTION, request)


def read_request(content: bytes, *, largest: int = LARGEST) -> Request:
    """Read what a server sent; anything else is `Malformed`."""
    parcel = unpack(content, largest=largest)
    return Request(**_read(parcel, (QUESTION,), Request))


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
    if isinstance(message, Request):
        header[RELAY] = [len(content) for content in message.relay]
        if message.relay:
            arrays[RELAY] = np.frombuffer(b"".join(message.relay), np.uint8)
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
            f"[other-version] protocol {protocol!r} of pffl {str(theirs)[:40]}, and "
            f"this is protocol {PROTOCOL}: install the same version everywhere"
        )
    names = {field.name for field in fields(into)}
    if set(header) != names:
        raise Malformed(
            f"[unknown-key] fields {sorted(set(header) ^ names)} are missing or unknown"
        )
    for name, value in header.items():
        if not FITS.get(name, _name)(value):
            raise Malformed(f"'{name}' is {str(value)[:40]!r}")
    arrays = dict(parcel.arrays)
    if RELAY in header:
        header[RELAY] = _relay(header[RELAY], arrays.pop(RELAY, None))
    header["bodies"] = _bodies(header["bodies"], arrays)
    if "splits" in header:
        header["splits"] = tuple(header["splits"])
    return header


def _relay(lengths: list[int], array: NDArray[Any] | None) -> tuple[bytes, ...]:
    """Cut the answers of a step apart."""
    if array is None:
        array = np.zeros(0, np.uint8)
    if array.dtype != np.uint8 or array.shape != (sum(lengths),):
        raise Malformed("answers that are not as long as the request says")
    content, ends = array.tobytes(), np.cumsum([0, *lengths]).tolist()
    return tuple(content[ends[i] : ends[i + 1]] for i in range(len(lengths)))


def _bodies(
    headers: list[dict[str, Any]], given: Mapping[str, NDArray[Any]]
) -> tuple[Parcel, ...]:
    """Give every body its own arrays: `w` is the first one's, `w 1` the second's."""
    arrays: dict[str, dict[str, Any]] = {str(i): {} for i in range(len(headers))}
    for name, array in given.items():
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
    "step": _whole,
    "relay": lambda value: _list(value, MOST_SITES, _whole),
    "splits": lambda value: _list(value, 16, _name),
    "bodies": lambda value: _list(
        value, MOST_QUERIES, lambda body: isinstance(body, dict)
    ),
}
