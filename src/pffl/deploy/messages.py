"""Messages between server and sites: one frame, judged before memory is given.

A message is a parcel (safetensors with a JSON header). A request carries queries of one
step of a run; an answer their totals, or why not. Steps are numbered from 1,
and a step that is asked again, byte for byte, has the same answer. Step 0 is the
greeting: who is there, with which key of the run? A step without queries ends the run.

Under secure sums a request brings what all sites answered to the step before, and the
transcript, a chain of hashes over all of it, says what came before. An answer is
signed over all that it says, the digest of what was asked included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from importlib.metadata import version
from itertools import pairwise
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, InstanceOf, ValidationError
from pydantic.dataclasses import dataclass

from pffl import files
from pffl.deploy.keys import PublicKey
from pffl.errors import Malformed
from pffl.queries import Query, Total
from pffl.tensors import MAX_BYTES, Parcel, pack, unpack

OURS = version("pffl")
PROTOCOL = 6
LONGEST = 300  # characters of a name, or of a reason
MOST_QUERIES = 24  # of a message, whose arrays a parcel can hold
MASKED = "masked"  # array of an answer under secure sums
KEY = 4  # masked words that are a site's key of a run
MOST_SITES = 1000  # whose answers are relayed

T = TypeVar("T", bound=Total)
Name = Annotated[str, Field(max_length=LONGEST)]
Step = Annotated[int, Field(ge=0, lt=2**53)]
Bodies = Annotated[tuple[InstanceOf[Parcel], ...], Field(max_length=MOST_QUERIES)]
Relay = Annotated[tuple[bytes, ...], Field(max_length=MOST_SITES)]
CHECKED = ConfigDict(strict=True)
KEPT = ConfigDict(strict=True, ser_json_bytes="hex", val_json_bytes="hex")  # in files
HOLDERS = Parcel({"query": "holders"})  # how many sites have which people


@dataclass(frozen=True, eq=False, config=CHECKED)
class Request:
    """Queries on their way to a site.

    Attributes
    ----------
    run, step
        Which run it is of, and its place there; 0 to ask who is there.
    federation
        Hash of the agreement: a site answers for the one that it joined.
    bodies
        The queries, as parcels.
    relay
        What all sites answered to the step before, in their order, as they sent it.
    heads
        With a greeting: the last head of its memory that each site has signed.
    version
        Version of the package that wrote it.
    """

    run: Name
    federation: Name
    bodies: Bodies = ()
    step: Step = 0
    relay: Relay = ()
    heads: dict[Name, Name] = field(default_factory=dict)
    version: Name = OURS

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is asked for, by name."""
        named = (str(body.header.get("query"))[:40] for body in self.bodies)
        return tuple(shown(name) for name in named) or ("hello",)

    @property
    def asked(self) -> str:
        """Digest of the queries."""
        return bodies_digest(self.bodies)


@dataclass(frozen=True, eq=False, config=CHECKED)
class Answer:
    """What a site sends back: totals, or why they are missing.

    Attributes
    ----------
    run, step, bodies, version
        As of the request; `bodies` are totals.
    site
        The site's name.
    refusal
        Why the site does not answer; then there are no totals.
    asked, transcript
        Digest of the queries that it answers, and what was said before them.
    head
        Where the site's memory stands, signed: see `deploy.store`.
    signature
        Of all the rest, by the site's key; empty without one.
    """

    run: Name
    bodies: Bodies
    site: Name
    step: Step = 0
    refusal: Name = ""
    asked: Name = ""
    transcript: Name = ""
    head: Name = ""
    signature: Name = ""
    version: Name = OURS


def query_body(query: Query[Any], index: int) -> Parcel:
    """Write a query for the silo at `index`."""
    return Parcel(*query.plain(index))


def total_body(query: Query[T], total: T, withheld: int = 0) -> Parcel:
    """Write one silo's answer, which leaves out n (group, label)s."""
    return Parcel({"total": query.kind, "withheld": withheld}, total.arrays())


def read_total(body: Parcel, query: Query[T]) -> tuple[T, int]:
    """Read a silo's answer to a query, and how many counts it withholds."""
    withheld = body.header.get("withheld")
    ours = dict(body.header) == {"total": query.kind, "withheld": withheld}
    if not ours or type(withheld) is not int or withheld < 0:
        raise Malformed(f"not an answer to {query.kind}")
    total: Any = query.answer_type.received(body.arrays, query.dims)
    return total, withheld


def masked_body(flat: NDArray[np.uint64]) -> Parcel:
    """Write one site's masked words, those of all queries of a message."""
    return Parcel({"total": MASKED}, {MASKED: flat.view(np.int64)})


def read_masked(answer: Answer, length: int | None = None) -> NDArray[np.uint64]:
    """Read one site's masked words, n of them if given."""
    body = answer.bodies[0] if len(answer.bodies) == 1 else Parcel({})
    found = body.arrays.get(MASKED, np.zeros(0))
    ours = dict(body.header) == {"total": MASKED} and [*body.arrays] == [MASKED]
    if not ours or found.dtype != np.int64 or found.ndim != 1:
        raise Malformed("not one masked answer")
    if length is not None and len(found) != length:
        raise Malformed(f"not {length:,} masked words")
    return found.view(np.uint64)


def bodies_digest(bodies: Sequence[Parcel]) -> str:
    """Return a digest of queries, as they are written."""
    return framed_digest(*(pack(body) for body in bodies))


def framed_digest(*parts: bytes | str) -> str:
    """Hash parts with their lengths: no two lists of parts read the same."""
    plain = [part.encode() if isinstance(part, str) else part for part in parts]
    return files.digest(*(x for p in plain for x in (len(p).to_bytes(8, "big"), p)))


def first_transcript(agreement: str, run: str) -> str:
    """Return the transcript of a run that has not begun, under an agreement's hash."""
    return framed_digest("pffl transcript", agreement, run)


def next_transcript(
    before: str, asked: str, answers: Sequence[NDArray[np.uint64]] = ()
) -> str:
    """Return the transcript after a step: what was asked, and what all answered."""
    return framed_digest(before, asked, *(flat.tobytes() for flat in answers))


def signed_content(answer: Answer) -> bytes:
    """Return what a signature is of: all but itself."""
    return write(replace(answer, signature=""))


def is_signed(answer: Answer, key: PublicKey) -> bool:
    """Whether the site with this key has signed the answer."""
    return key.verify(signed_content(answer), answer.signature)


def read_request(content: bytes, *, largest: int = MAX_BYTES) -> Request:
    """Read what a server sent; anything else is `Malformed`."""
    return _read(content, Request, largest)


def read_answer(content: bytes, *, largest: int = MAX_BYTES) -> Answer:
    """Read what a site sent; anything else is `Malformed`."""
    answer = _read(content, Answer, largest)
    if answer.refusal and answer.bodies:
        raise Malformed("a refusal with totals")
    return answer


def shown(text: str, longest: int = 80) -> str:
    r"""Return another's text fit for a message: short, one line, nothing hidden.

    >>> shown("north\x1b[2J\nsouth")
    'north [2J south'
    """
    return "".join(c if c.isprintable() else " " for c in text[:longest])


M = TypeVar("M", Request, Answer)
FORMATS = {Request: "pffl query", Answer: "pffl answer"}


def write(message: Request | Answer) -> bytes:
    """Return a message as bytes; nothing but an answer ever leaves a site."""
    plain = {f.name: getattr(message, f.name) for f in fields(message)}
    plain |= {"protocol": PROTOCOL, "format": FORMATS[type(message)]}
    plain["bodies"] = [dict(body.header) for body in message.bodies]
    arrays = {
        f"{place} {name}": array
        for place, body in enumerate(message.bodies)
        for name, array in body.arrays.items()
    }
    if relay := plain.get("relay", ()):
        arrays["relay"] = np.frombuffer(b"".join(relay), np.uint8)
        plain["relay"] = [len(content) for content in relay]
    return pack(Parcel(plain, arrays))


def _read(content: bytes, kind: type[M], largest: int) -> M:
    """Check the frame and its header, in which nothing else may stand."""
    parcel = unpack(content, largest=largest)
    header, arrays = dict(parcel.header), dict(parcel.arrays)
    protocol, form = header.pop("protocol", None), header.pop("format", None)
    if protocol != PROTOCOL:
        theirs = shown(str(header.get("version")), 40)
        raise Malformed(
            "other-version:read-2",
            protocol=str(protocol)[:10],
            theirs=theirs,
            protocol_2=PROTOCOL,
        )
    odd = set(header) ^ {f.name for f in fields(kind)}
    if odd or form != FORMATS[kind]:
        raise Malformed("unknown-key:read", formats=FORMATS[kind], odd=sorted(odd)[:5])
    try:
        if "relay" in header:
            header["relay"] = _cut(header["relay"], arrays.pop("relay", None))
        header["bodies"] = _bodies(header["bodies"], arrays)
        return kind(**header)
    except (ValidationError, TypeError, ValueError) as error:
        known = error.errors() if isinstance(error, ValidationError) else []
        where = sorted({str(one["loc"][0]) for one in known}) or "header"
        raise Malformed("wrong-value:read", where=where) from None


def _cut(lengths: list[int], joined: NDArray[Any] | None) -> tuple[bytes, ...]:
    """Return relayed answers, each as long as announced."""
    content = np.zeros(0, np.uint8) if joined is None else joined
    if any(type(n) is not int or n < 0 for n in lengths):
        raise TypeError
    if content.dtype != np.uint8 or content.shape != (sum(lengths),):
        raise Malformed("answers that are not as long as the request says")
    whole, ends = content.tobytes(), np.cumsum([0, *lengths]).tolist()
    return tuple(whole[a:b] for a, b in pairwise(ends))


def _bodies(
    headers: list[dict[str, Any]], given: Mapping[str, NDArray[Any]]
) -> tuple[Parcel, ...]:
    """Give every body its own arrays: `0 w` is the first one's, `1 w` the second's."""
    if not all(isinstance(header, dict) for header in headers):
        raise TypeError
    arrays: list[dict[str, Any]] = [{} for _ in headers]
    for name, array in given.items():
        place, _, own = name.partition(" ")
        if not place.isdecimal() or int(place) >= len(headers):
            raise Malformed(f"an array {shown(name)!r} that belongs to nothing")
        arrays[int(place)][own] = array
    return tuple(Parcel(h, a) for h, a in zip(headers, arrays, strict=True))
