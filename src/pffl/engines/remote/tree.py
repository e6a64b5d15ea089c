"""A tree of aggregators between server and sites: sums add, so parts may add first.

An aggregator asks those below it as the server does, and answers its parent as a site
does: with the sum of what was admitted, or with why there is none. The lowest ones ask
sites, and judge each answer by itself (`wire.admission`); those above judge that a sum
has the right shape and speaks for as many sites as were asked. What silos say of
themselves, their counts, stands side by side. So the server reads as many messages as
there are aggregators below it, whatever the number of sites.

Every level numbers the sites below it from 0; `Task.first` says where they begin in the
federation, since a site's batches are drawn by its place in it. No round of training
does without a site here: an aggregator answers for all of its sites, or refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from pffl.constraints.base import EVERY_SILO
from pffl.data.schema import Schema
from pffl.engines.remote.engine import Remote, SitesMissing
from pffl.engines.remote.exchange import InMemory, Transport
from pffl.errors import Malformed, PFFLError, Refused, UsageError
from pffl.parcel import Parcel
from pffl.questions import Census, Question, read_question
from pffl.typing import IntArray
from pffl.wire import (
    Answer,
    Policy,
    Request,
    Verdict,
    question_body,
    read_request,
    refusal,
    write_answer,
)

ELSEWHERE = -2  # of a cell: confined to a silo that is not below
OURS = version("pffl")


class Branches(Remote):
    """Ask aggregators, each of which answers for some of the silos.

    Parameters
    ----------
    transport
        Carries the messages.
    schema, silo_names
        What the silos agree on, and who they are, in order.
    branches
        From an aggregator's name to how many of the silos are below it, in order.
    options
        As for `Remote`.
    """

    def __init__(
        self,
        transport: Transport,
        schema: Schema,
        silo_names: Sequence[str],
        branches: Mapping[str, int],
        **options: Any,
    ) -> None:
        super().__init__(transport, schema, tuple(branches), **options)
        ends = np.cumsum([0, *branches.values()]).tolist()
        if ends[-1] != len(silo_names) or min(branches.values()) < 1:
            raise UsageError(
                f"{ends[-1]:,} silos are below aggregators, and there are "
                f"{len(silo_names):,}"
            )
        if self.partial:
            raise UsageError("a tree of aggregators needs every site in every round")
        self.silo_names = tuple(silo_names)
        self._below = [range(*ends[k : k + 2]) for k in range(len(branches))]

    def _asked(self, question: Question[Any]) -> Sequence[int]:
        if question.silos is None:
            return range(len(self._members))
        ends = [below.stop for below in self._below]
        found = np.searchsorted(ends, np.array(question.silos), side="right")
        return np.unique(found).tolist()

    def _body(self, question: Question[Any], index: int) -> Parcel:
        return part_body(question, self._below[index])

    def _admit(
        self, questions: Sequence[Question[Any]], index: int, answer: Answer
    ) -> list[Verdict]:
        """Read the sums of one aggregator, which has judged what it added."""
        if len(answer.bodies) != len(questions):
            raise Refused(f"{len(answer.bodies)} sums for {len(questions)} questions")
        verdicts, below = [], self._below[index]
        for body, question in zip(answer.bodies, questions, strict=True):
            try:
                total, withheld = read_sum(body, question, below, self.schema.hash)
            except Malformed as error:
                raise Refused(str(error)) from error
            total.check_size()
            if isinstance(question, Census):
                total = self.gate.freeze(index, question.split, total, withheld)
            verdicts.append(Verdict(total))
        return verdicts


class Aggregator:
    """Answers its parent's messages with sums over the sites below it.

    Parameters
    ----------
    name
        Under which it answers.
    schema
        What the silos agree on.
    engine
        Makes its engine, given `run=` and `session=`: `Remote` over sites, or
        `Branches` over aggregators.
    """

    def __init__(
        self, name: str, schema: Schema, engine: Callable[..., Remote]
    ) -> None:
        self.name, self.schema, self._engine = name, schema, engine
        self._open: tuple[tuple[str, int], Remote] | None = None

    def __call__(self, content: bytes) -> bytes:
        """Answer a message; what is wrong is the answer, and no exception."""
        request: Request | None = None
        try:
            request = read_request(content)
            return write_answer(self._answer(request))
        except PFFLError as error:
            reason = error.who if isinstance(error, SitesMissing) else str(error)
            who = {"silo": self.name, "schema": self.schema.hash}
            return write_answer(refusal(request, version=OURS, reason=reason, **who))

    def _answer(self, request: Request) -> Answer:
        engine = self._below(request.run, request.session)
        questions = [read_part(body, self.schema) for body in request.bodies]
        every = range(len(engine.silo_names))
        bodies = [
            sum_body(
                question,
                total,
                sites=len(chosen(question, every)),
                withheld=engine.withheld(question.split),
            )
            for question, total in zip(
                questions, engine.ask_many(questions), strict=True
            )
        ]
        head = (request.run, *request.number, OURS, self.schema.hash)
        return Answer(*head, tuple(bodies), self.name, engine.splits)

    def _below(self, run: str, session: int) -> Remote:
        """Return the engine of this run's session: its numbers only grow."""
        if self._open is None or self._open[0] != (run, session):
            self._open = ((run, session), self._engine(run=run, session=session))
        return self._open[1]


def chosen(question: Question[Any], below: range) -> IntArray:
    """Return which silos of a part are asked, counted from its first."""
    if question.silos is None:
        return np.arange(len(below))
    silos = np.array(question.silos)
    return silos[(silos >= below.start) & (silos < below.stop)] - below.start


def part_body(question: Question[Any], below: range) -> Parcel:
    """Write a question for the aggregator of some of the silos."""
    body, task = question_body(question, below.start), question.task
    if task is None:
        return body
    cell = task.cells.silo
    inside = (cell >= below.start) & (cell < below.stop)
    cell = np.where(inside, cell - below.start, np.minimum(cell, ELSEWHERE))
    arrays = {
        "membership": task.cells.membership.astype(np.float64),
        "cell_silo": np.where(task.cells.everywhere, EVERY_SILO, cell),
        "shares": task.shares[below.start : below.stop],
        "silos": chosen(question, below),
    }
    return Parcel(body.header, {**body.arrays, **arrays})


def read_part(body: Parcel, schema: Schema) -> Question[Any]:
    """Read a question, and what it says of the sites below."""
    arrays = dict(body.arrays)
    own = [arrays.pop(name, None) for name in ("shares", "cell_silo", "silos")]
    question, first = read_question(body.header, arrays, schema)
    if question.task is None:
        return question
    task, (shares, cell, silos) = question.task, own
    if shares is None or cell is None or silos is None:
        raise Malformed("a question to a site, and this is an aggregator")
    if cell.shape != (len(task.cells),) or shares.ndim != 1 or silos.ndim != 1:
        raise Malformed("what is said of the sites below does not fit the cells")
    cells = replace(task.cells, silo=cell)
    changed: dict[str, Any] = {
        "task": replace(task, cells=cells, shares=shares, first=first)
    }
    if len(silos) < len(shares):
        changed["silos"] = tuple(silos.tolist())
    return replace(question, **changed)


def sum_body(
    question: Question[Any], total: Any, *, sites: int, withheld: int
) -> Parcel:
    """Write the sum of so many sites' answers."""
    header = {"total": question.kind, "withheld": withheld, "sites": sites}
    return Parcel(header, total.sent())


def read_sum(
    body: Parcel, question: Question[Any], below: range, schema: str
) -> tuple[Any, int]:
    """Read the sum over some of the silos, and how many counts they withhold."""
    sites, withheld = body.header.get("sites"), body.header.get("withheld")
    header = {"total": question.kind, "withheld": withheld, "sites": sites}
    if dict(body.header) != header or type(withheld) is not int or withheld < 0:
        raise Malformed(f"not a sum of answers to {question.kind}")
    asked = len(chosen(question, below))
    if sites != asked:
        raise Malformed(f"a sum over {str(sites)[:20]} sites, and {asked} were asked")
    dims = {**question.dims, "K": len(below)}
    who = {"silos": np.arange(below.start, below.stop), "schema_hash": schema}
    return question.total_type.received(body.arrays, dims, **who), withheld


def grow(
    sites: Mapping[str, Callable[[bytes], bytes]],
    schema: Schema,
    *,
    fan_out: int,
    policy: Policy | None = None,
    run: str | None = None,
    session: int = 0,
) -> Remote:
    """Return an engine over sites in this process, with aggregators between.

    Parameters
    ----------
    sites
        From a silo's name to what answers for it, in order.
    schema
        What the silos agree on.
    fan_out
        How many others the server, or an aggregator, asks at most.
    policy
        Deadlines and limits of the lowest aggregators; those above wait for all that
        these may take.
    run, session
        As for `Remote`.
    """
    names, rules = tuple(sites), policy or Policy()
    if fan_out < 2:
        raise UsageError(f"'fan_out' must be at least 2. Got {fan_out} instead.")
    if len(names) <= fan_out:
        at = InMemory(dict(sites))
        return Remote(at, schema, names, policy=rules, run=run, session=session)
    size, tries = fan_out, 1 + rules.retries
    while size * fan_out < len(names):
        size, tries = size * fan_out, tries * (1 + rules.retries)
    parts = [names[i : i + size] for i in range(0, len(names), size)]
    below: dict[str, Aggregator] = {}
    for part in parts:
        name = f"'{part[0]}' to '{part[-1]}'"
        own = {site: sites[site] for site in part}
        engine = partial(grow, own, schema, fan_out=fan_out, policy=policy)
        below[name] = Aggregator(name, schema, engine)
    sizes = dict(zip(below, map(len, parts), strict=True))
    longer = replace(
        rules,
        seconds=tries * rules.seconds + rules.join_seconds,
        join_seconds=tries * rules.join_seconds,
    )
    return Branches(
        InMemory(below), schema, names, sizes, policy=longer, run=run, session=session
    )
