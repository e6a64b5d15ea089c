"""Masked mode against a server that does not keep to the protocol.

It can choose w, and reads from the totals what it likes: nothing is promised against it
without noise (test_window_with_noise.py). It cannot read a single site's sums: whatever
it invents, leaves out or shows differently, masks do not cancel or sites refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.data import Federation, Silo
from pffl.engines import Reference
from pffl.errors import Refused
from pffl.queries import Expand, Pool
from pffl.tensors import Parcel
from tests.attacks.askers import Pooled, found, people, tell
from tests.attacks.chosen import FAR, Moved, Read, counts_by_value, window
from tests.deploy.sites import OPEN, RUN, Server, summed
from tests.deploy.spoiling import signed
from tests.helpers import make_problem
from tests.inside import Answer, Request, read_answer, write_answer
from tests.raising import raises

AGES = np.arange(50.0, 81.0)
FEW = slice(8, None)  # of these ages; windows at the edge see younger people, too


@cache
def crowd() -> Federation:
    """Three sites with people who are alone with their age in their cell."""
    drawn = [people(400, seed=k) for k in range(3)]
    silos = [Silo(f"site {k}", k, silo.splits) for k, (silo, _) in enumerate(drawn)]
    return Federation(drawn[0][1], tuple(silos), "crowd")


def expand(w: Any = 0.1, **changes: Any) -> Expand:
    """A query of what a server knows after the census, by (group, label)."""
    engine = Reference(crowd())
    task = make_problem(engine, pffl.ConditionalBoundedGroupLoss(0.7)).task
    rows = sum(len(silo.rows("train")) for silo in crowd().silos)
    task = replace(task, pool=Pool(3, False, float(rows)), **changes)
    return Expand(task, w * np.ones(task.model.n_parameters), 1)


def asking() -> Pooled:
    """A server after the census."""
    return Pooled(crowd(), OPEN, run=RUN)


@pytest.mark.parametrize(
    "moved", [None, pytest.param(FAR, marks=pytest.mark.slow)], ids=["ball", "mean"]
)
def test_a_window_on_the_totals(moved: Moved | None) -> None:
    """Masks alone do not stop it: it reads the sum over all sites."""
    task, (X, y, group, _) = expand().task, crowd().pooled("train")
    strata = crowd().schema.strata(group, y)
    truth = counts_by_value(task, X[:, 0], strata, AGES)[:, FEW]
    read = window(asking(), task, AGES, radius=80.0, moved=moved)
    read = Read(read.counts[:, FEW], read.sums[:, FEW])
    right, small = read.exact(truth)
    persons, alone = found(X, read.alone(), 1e-2), int((truth == 1).sum())
    # With the mean moved the norm ball, in each site's own units, stops it by itself.
    assert (right, persons) == ((small, alone) if moved is None else (0, 0))
    assert small > 40
    assert alone > 10
    tell(
        f"window on age{', mean moved' if moved else ''}, sum of 3 sites",
        f"{small} of {small} small counts, {alone} of {alone} people",
        f"{right}, {persons}: masks do not hide totals; noise does",
    )


def invented(request: Request) -> Request:
    """Show another sum: one site's numbers are made up, under its old signature."""
    last = read_answer(request.relay[-1])
    return shown(request, replace(last, bodies=(plus_one(last),)))


def plus_one(answer: Answer) -> Parcel:
    """Masked words that differ in the last bit."""
    (body,) = answer.bodies
    numbers = body.arrays["masked"].copy()
    numbers[0] += 1
    return Parcel(body.header, {"masked": numbers})


def shown(request: Request, last: Answer) -> Request:
    """Show another answer of the last site."""
    return replace(request, relay=(*request.relay[:-1], write_answer(last)))


def unsigned(content: bytes) -> bytes:
    return write_answer(replace(read_answer(content), signature=""))


SHOWN: dict[str, Callable[[Request], Request]] = {
    "an invented total": invented,
    "unsigned answers": lambda r: replace(r, relay=tuple(map(unsigned, r.relay))),
    "a total over fewer sites": lambda r: replace(r, relay=r.relay[:-1]),
    "one site's answer twice": lambda r: replace(r, relay=(*r.relay[:-1], r.relay[0])),
    "no totals": lambda r: replace(r, relay=()),
    "another run's step": lambda r: replace(r, run="another run"),
    "a step left out": lambda r: replace(r, step=r.step + 1),
    "no masks": lambda r: replace(r, step=0, relay=()),
}


def everybody(server: Server, *requests: Request) -> list[Answer]:
    """Ask all sites the same, or each its own."""
    pairs = zip(server.sites, requests * (3 // len(requests)), strict=True)
    return [server.send(name, request) for name, request in pairs]


def test_a_server_chooses_what_it_asks() -> None:
    """This is not promised, and so it is answered."""
    ask, cells = asking(), expand().task.cells
    far, other = 90 * np.eye(5)[0], replace(cells, membership=~cells.membership)
    for query in (expand(), expand(0.1005), expand(far), expand(cells=other)):
        assert ask(query) is not None
    inputs = expand().task.model.inputs
    moved = replace(expand().task.model, inputs=replace(inputs, mean=inputs.mean + 1))
    assert asking()(expand(model=moved)) is not None  # at first: a run has one scaling


def test_a_server_cannot_invent_what_others_said() -> None:
    server = asking().server
    for w in (0.1, 0.2, 0.3):  # with the first model, and in the middle of training
        asked = server.request([expand(w)])
        for name, twist in SHOWN.items():
            answers = everybody(server, twist(asked))
            assert all(one.refusal for one in answers), name
        # The honest query is answered still, and a second one at its step is not.
        server.ask([expand(w)])
        other = replace(asked, bodies=server.request([expand(w + 1e-3)]).bodies)
        assert all("answered once" in a.refusal for a in everybody(server, other))


def test_totals_shown_differently_to_two_sites() -> None:
    """With a site's help the server has two signed answers to show; masks depend on it.

    They differ in the last bit.
    """
    query, server = expand(), asking().server
    asked = server.request([query])
    true = read_answer(asked.relay[-1])
    other = shown(asked, signed(replace(true, bodies=(plus_one(true),))))
    answers = everybody(server, asked, other, asked)
    assert not any(one.refusal for one in answers)
    with raises(Refused, "masks-left-over"):
        summed([query], answers)
    # All were told the same, and the sum is there; of all, and of no others.
    server = asking().server
    answers = everybody(server, server.request([query]))
    assert summed([query], answers)
    with raises(Refused, "too-few-sites", "3"):
        summed([query], answers[:2])
