"""Ways to spoil a message: sites and transports that change, hold or repeat it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from pffl.deploy import Reply
from pffl.tensors import Parcel
from tests.deploy.sites import keys_of
from tests.inside import read_answer, read_request, signed_content, write_answer


def signed(answer: Any) -> Any:
    """An answer with the signature of the site that it names."""
    bare = replace(answer, signature="")
    return replace(bare, signature=keys_of(bare.site).sign(signed_content(bare)))


def spoil(
    site: Any,
    kinds: tuple[str, ...] = ("train",),
    *,
    change: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    header: Mapping[str, Any] | None = None,
    body: Callable[[Parcel], Parcel] | None = None,
    sign: bool = True,
) -> Any:
    """A site that changes its answers to some kinds of query, and signs them or not.

    `change` takes the arrays (copies) and returns them; `header` the envelope's fields;
    `body` the first parcel.
    """

    def answer(content: bytes) -> bytes:
        reply = site.answer(content)
        if not set(read_request(content).kinds) & set(kinds):
            return reply
        sent = read_answer(reply)
        bodies = sent.bodies
        if bodies and (change or body):
            parcel, *others = bodies
            if change is not None:
                arrays = {k: v.copy() for k, v in parcel.arrays.items()}
                parcel = Parcel(parcel.header, change(arrays))
            parcel = body(parcel) if body is not None else parcel
            bodies = (parcel, *others)
        other = replace(sent, **{"bodies": bodies, **(header or {})})
        if not sign:
            return write_answer(replace(other, signature=""))
        return write_answer(signed(other) if sent.signature else other)

    return SimpleNamespace(answer=answer)


class Faulty:
    """A transport that drops, delays, repeats, corrupts and lies, now and then.

    Each fault strikes with `rate`; no message of a site is struck more than `in_a_row`
    times in a row, so that every fault passes.
    """

    KINDS = ("drop", "error", "delay", "duplicate", "corrupt", "truncate", "lie")

    def __init__(self, transport, *, seed=0, rate=0.2, in_a_row=2, kinds=KINDS):
        self.transport, self.rate, self.kinds = transport, rate, kinds
        self.addresses, self.send = transport.addresses, transport.send
        self.in_a_row = in_a_row
        self.random = np.random.default_rng(seed)
        self.struck: dict[str, int] = {}
        self.held: list[Reply] = []
        self.done: dict[str, int] = dict.fromkeys(self.KINDS, 0)

    def receive(self):
        held, self.held = self.held, []
        yield from held  # late ones of earlier messages
        for reply in self.transport.receive():
            yield from self.strike(reply)

    def strike(self, reply: Reply):
        row = self.struck.get(reply.address, 0)
        if row >= self.in_a_row or self.random.random() > self.rate:
            self.struck[reply.address] = 0
            yield reply
            return
        fault = self.kinds[self.random.integers(len(self.kinds))]
        self.done[fault] += 1
        self.struck[reply.address] = row + (fault != "duplicate")
        content = reply.content or b""
        if fault == "error":
            yield Reply(reply.address, None, "RuntimeError")
        elif fault == "delay":
            self.held.append(reply)
        elif fault == "duplicate":
            yield reply
            yield reply
        elif fault == "corrupt":
            spoilt = bytearray(content)
            place = int(self.random.integers(8, len(spoilt) // 2))
            spoilt[place] ^= 1 << int(self.random.integers(8))
            yield Reply(reply.address, bytes(spoilt[:place]) + b"\0" + spoilt[place:])
        elif fault == "truncate":
            yield Reply(reply.address, content[: len(content) // 2])
        elif fault == "lie":
            yield Reply(reply.address, lie(content))


def lie(content: bytes) -> bytes:
    """Return an answer with losses below zero, or counts that cannot be; not signed."""
    sent = read_answer(content)
    if not sent.bodies:
        return content[:-1]
    body, *others = sent.bodies
    arrays = {k: v.copy() for k, v in body.arrays.items()}
    for name in arrays:
        arrays[name] = -1 - arrays[name]
    return write_answer(replace(sent, bodies=(Parcel(body.header, arrays), *others)))
