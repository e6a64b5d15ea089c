"""Sites in this process that answer bytes with bytes, and ways to spoil a message."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

import pffl
from pffl.data import Federation, Schema, Silo
from pffl.flow import Round
from pffl.parcel import Parcel
from pffl.queries import Census, Total, View, read_query
from pffl.site import Rules, Site
from pffl.wire import (
    Answer,
    Policy,
    read_answer,
    read_request,
    total_body,
    write_answer,
)
from tests.helpers import make_federation, make_problem
from tests.inside import InMemory, Remote, Reply

VERSION = version("pffl")
QUICK = Policy(seconds=5.0, join_seconds=5.0)


@dataclass
class PlainSite:
    """Answers every query, and keeps nothing but the scaled rows."""

    silo: Silo
    schema: Schema
    _view: Any = None

    def __call__(self, content: bytes) -> bytes:
        request = read_request(content)
        posed = [
            read_query(body.header, body.arrays, self.schema) for body in request.bodies
        ]
        answer = Answer(
            request.run,
            *request.number,
            VERSION,
            self.schema.hash,
            tuple(total_body(q, self.total(q, index)) for q, index in posed),
            self.silo.name,
            tuple(self.silo.splits),
        )
        return write_answer(answer)

    def total(self, query, index) -> Total:
        return query.answer(self.view(query, index))

    def view(self, query, index) -> View:
        if query.task is None:
            return View.of(self.silo, self.schema, None, query.split)
        inputs = query.task.model.inputs
        key = (index, query.split, inputs.mean.tobytes(), inputs.scale.tobytes())
        if self._view is None or self._view[0] != key:
            here = replace(self.silo, index=index)
            model, split = query.task.model, query.split
            self._view = (key, View.of(here, self.schema, model, split))
        return self._view[1]


def sites_of(federation: Federation) -> dict[str, Callable[[bytes], bytes]]:
    """One node for each silo."""
    return {
        f"node {silo.index}": PlainSite(silo, federation.schema)
        for silo in federation.silos
    }


def remote(
    federation: Federation,
    sites: Mapping[str, Callable[[bytes], bytes]] | None = None,
    *,
    policy: Policy = QUICK,
    wrap: Callable[[Any], Any] = lambda transport: transport,
    **options: Any,
) -> Remote:
    """Return the engine over sites in memory."""
    transport = wrap(InMemory(sites_of(federation) if sites is None else sites))
    return Remote(
        transport, federation.schema, federation.silo_names, policy=policy, **options
    )


def counted(engine, split="train"):
    """Return the census of a split."""
    return engine.ask(Census(engine.schema, split))


def spoil(site, kinds=("train",), *, change=None, header=None, body=None, times=None):
    """Change a site's answers to some kinds of query.

    `change` takes the arrays (copies) and returns them; `header` the envelope's
    fields; `body` the first parcel. Only the first `times` answers are changed, or all.
    """
    left = [np.inf if times is None else times]

    def answer(content: bytes) -> bytes:
        reply = site(content)
        kind = read_request(content).kind
        if kind not in kinds or left[0] <= 0:
            return reply
        left[0] -= 1
        sent = read_answer(reply)
        parcel, *others = sent.bodies
        if change is not None:
            arrays = {k: v.copy() for k, v in parcel.arrays.items()}
            parcel = Parcel(parcel.header, change(arrays))
        if body is not None:
            parcel = body(parcel)
        bodies = (parcel, *others)
        return write_answer(replace(sent, bodies=bodies, **(header or {})))

    return answer


class Faulty:
    """A transport that drops, delays, duplicates, corrupts and lies, now and then.

    Each fault strikes with `rate`; no message of a silo is struck more than `in_a_row`
    times in a row, so that every fault passes.
    """

    KINDS = ("drop", "error", "delay", "duplicate", "corrupt", "truncate", "lie")

    def __init__(self, transport, *, seed=0, rate=0.2, in_a_row=2, kinds=KINDS):
        self.transport, self.rate, self.kinds = transport, rate, kinds
        self.in_a_row = in_a_row
        self.random = np.random.default_rng(seed)
        self.struck: dict[str, int] = {}
        self.held: list[Reply] = []
        self.done: dict[str, int] = dict.fromkeys(self.KINDS, 0)

    def addresses(self):
        return self.transport.addresses()

    def exchange(self, requests, seconds, kind):
        held, self.held = self.held, []
        yield from held  # late ones of earlier exchanges
        for reply in self.transport.exchange(requests, seconds, kind):
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
        if fault == "error":
            yield Reply(reply.address, None, "RuntimeError")
        elif fault == "delay":
            self.held.append(reply)
        elif fault == "duplicate":
            yield reply
            yield reply
        elif fault == "corrupt":
            content = bytearray(reply.content)
            place = self.random.integers(8, len(content) // 2)
            content[place] ^= 1 << int(self.random.integers(8))
            yield Reply(reply.address, bytes(content[:place]) + b"\0" + content[place:])
        elif fault == "truncate":
            yield Reply(reply.address, reply.content[: len(reply.content) // 2])
        elif fault == "lie":
            yield Reply(reply.address, lie(reply.content))


def lie(content: bytes) -> bytes:
    """Return an answer with losses below zero, or counts that cannot be."""
    sent = read_answer(content)
    body, *others = sent.bodies
    arrays = {k: v.copy() for k, v in body.arrays.items()}
    for name in ("counts", "cell_losses", "losses", "atoms", "risk"):
        if name in arrays:
            arrays[name] = -1 - arrays[name]
    bodies = (Parcel(body.header, arrays), *others)
    return write_answer(replace(sent, bodies=bodies))


def slow(site, seconds):
    """Answer after a while."""

    def answer(content):
        time.sleep(seconds)
        return site(content)

    return answer


@cache
def deployed() -> dict[str, Any]:
    """A run of PFFL over three sites with rules, before its first round."""
    federation = make_federation(0, sizes=(60, 80, 50))
    rules = Rules(floor=1, queries=10**6)
    sites = {
        silo.name: Site(silo, federation.schema, rules).answer
        for silo in federation.silos
    }
    engine, method = remote(federation, sites), pffl.PFFL()
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.6))
    steps = method.run(problem)
    return {"engine": engine, "steps": steps, "total": engine.ask(next(steps))}


def one_round() -> None:
    """Ask, answer and step once: what `benchmarks/house.py` follows."""
    run = deployed()
    query = run["steps"].send(run["total"])
    while isinstance(query, Round):
        query = next(run["steps"])
    run["total"] = run["engine"].ask(query)
