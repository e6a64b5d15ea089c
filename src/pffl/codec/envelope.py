"""Envelopes: who asks or answers, in which run, under which number and schema.

Every message of a run has a number that only grows, as a pair (session, sequence): a
server that was restarted begins a new session. A site answers no number twice, and the
server takes an answer only under the number that it asked with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pffl.parcel import LARGEST, Malformed, Parcel, pack, unpack

PROTOCOL = 1
QUESTION = "pffl question"
ANSWER = "pffl answer"
REFUSAL = "pffl refusal"
LONGEST = 300  # characters of a name, or of a reason


@dataclass(frozen=True, eq=False)
class Request:
    """A question on its way to a site.

    Attributes
    ----------
    run, session, sequence
        Which run asks, and under which number.
    version
        Version of the package that asks.
    schema
        Hash of the schema.
    body
        The question; see `pffl.codec.questions`.
    """

    run: str
    session: int
    sequence: int
    version: str
    schema: str
    body: Parcel

    @property
    def number(self) -> tuple[int, int]:
        """(session, sequence)."""
        return self.session, self.sequence


@dataclass(frozen=True, eq=False)
class Answer:
    """What a site sends back: a total, or why there is none.

    Attributes
    ----------
    run, session, sequence
        Of the request that is answered.
    version, silo, schema
        The site's package version, name and schema hash.
    splits
        Splits that the site has.
    withheld
        Number of (group, label) counts that the site withholds, being small.
    refusal
        Why the site does not answer; then `body` has no arrays.
    body
        The total; see `pffl.codec.totals`.
    """

    run: str
    session: int
    sequence: int
    version: str
    silo: str
    schema: str
    splits: tuple[str, ...] = ()
    withheld: int = 0
    refusal: str = ""
    body: Parcel = Parcel({})  # noqa: RUF009 - frozen

    @property
    def number(self) -> tuple[int, int]:
        """(session, sequence)."""
        return self.session, self.sequence


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
    values = _read(parcel, (ANSWER, REFUSAL), Answer)
    if bool(values["refusal"]) != (parcel.header["format"] == REFUSAL):
        raise Malformed("a refusal without a reason, or an answer with one")
    if values["refusal"] and parcel.arrays:
        raise Malformed("a refusal with arrays")
    return Answer(**values)


def refusal(
    request: Request | None, *, version: str, silo: str, schema: str, reason: str
) -> Answer:
    """Return the answer that says why there is none."""
    return Answer(
        request.run if request else "",
        request.session if request else 0,
        request.sequence if request else 0,
        version,
        silo,
        schema,
        refusal=shown(reason, LONGEST) or "no reason given",
    )


def shown(text: str, longest: int = 80) -> str:
    r"""Return another's text fit for a message: short, one line, nothing hidden.

    >>> shown("north\x1b[2J\nsouth")
    'north [2J south'
    """
    return "".join(c if c.isprintable() else " " for c in text[:longest])


def _write(kind: str, message: Request | Answer) -> bytes:
    names = [field.name for field in fields(message) if field.name != "body"]
    plain = {name: getattr(message, name) for name in names}
    header = {
        "format": kind,
        "protocol": PROTOCOL,
        **plain,
        "body": message.body.header,
    }
    return pack(Parcel(header, message.body.arrays))


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
    _check(header)
    header["body"] = Parcel(header["body"], parcel.arrays)
    if "splits" in header:
        header["splits"] = tuple(header["splits"])
    return header


def _check(header: Mapping[str, Any]) -> None:
    """Refuse values of the wrong type, and names without an end."""
    for name, value in header.items():
        if name == "body":
            good = isinstance(value, dict)
        elif name in ("session", "sequence", "withheld"):
            good = type(value) is int and 0 <= value < 2**53
        elif name == "splits":
            good = (
                isinstance(value, list) and len(value) <= 16 and all(map(_name, value))
            )
        else:
            good = _name(value)
        if not good:
            raise Malformed(f"'{name}' is {str(value)[:40]!r}")


def _name(value: object) -> bool:
    """Whether a value is a short text that can be written down again."""
    if not isinstance(value, str) or len(value) > LONGEST:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair
        return False
    return True
