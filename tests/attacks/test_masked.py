"""Masked mode against a server that does not keep to the protocol.

It can choose w, and reads from the totals what it likes: nothing is promised against it
without noise (test_window_with_noise.py). It cannot read a single site's sums: whatever
it invents, leaves out or shows differently, masks do not cancel or sites refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pffl.deploy import Site
from pffl.errors import Refused
from pffl.queries import Place, read_query
from pffl.tensors import Parcel
from tests.attacks.askers import found, tell
from tests.attacks.chosen import FAR, Moved, Read, window
from tests.attacks.crowd import (
    Masked,
    counts_in_all,
    crowd,
    overheard,
    pooled_task,
    tell_all,
)
from tests.deploy.sites import keys_of
from tests.deploy.sites import summed as added
from tests.inside import Answer, Request, read_answer, signed_content, write_answer
from tests.raising import raises

AGES = np.arange(50.0, 81.0)
FEW = slice(8, None)  # of these ages; windows at the edge see younger people, too


@pytest.mark.parametrize(
    "moved", [None, pytest.param(FAR, marks=pytest.mark.slow)], ids=["ball", "mean"]
)
def test_a_window_on_the_totals(moved: Moved | None) -> None:
    """Masks alone do not stop it: it reads the sum over all sites."""
    task = pooled_task()
    truth = counts_in_all(task, AGES)[:, FEW]
    inputs = np.concatenate([np.asarray(s.rows("train").X) for s in crowd().silos])
    ask = Masked(overheard(), step=2)  # after the census
    read = window(ask, task, AGES, radius=80.0, moved=moved)
    read = Read(read.counts[:, FEW], read.sums[:, FEW])
    right, small = read.exact(truth)
    people, alone = found(inputs, read.alone(), 1e-2), int((truth == 1).sum())
    # With the mean moved the norm ball, in each site's own units, stops it by itself.
    assert (right, people) == ((small, alone) if moved is None else (0, 0))
    assert small > 40
    assert alone > 10
    tell(
        f"window on age{', mean moved' if moved else ''}, sum of 3 sites",
        f"{small} of {small} small counts, {alone} of {alone} people",
        f"{right}, {people}: masks do not hide totals; noise does",
    )


def with_array(name: str, change: Callable[[Any], Any]) -> Callable[[Request], Request]:
    """Change an array of every query that has it."""

    def twist(request: Request) -> Request:
        bodies = [
            Parcel(body.header, body.arrays | {name: change(body.arrays[name].copy())})
            for body in request.bodies
            if name in body.arrays
        ]
        return replace(request, bodies=tuple(bodies))

    return twist


def shifted(by: float) -> Callable[[Any], Any]:
    """Move the first number."""

    def change(array: Any) -> Any:
        array.flat[0] += by
        return array

    return change


def invented(request: Request) -> Request:
    """Show another sum: one site's numbers are made up, under its old signature."""
    last = read_answer(request.relay[-1])
    body = last.bodies[0]
    arrays = {name: array + 1 for name, array in body.arrays.items()}
    forged = write_answer(replace(last, bodies=(Parcel(body.header, arrays),)))
    return replace(request, relay=(*request.relay[:-1], forged))


FIRST, STEP = 2, 4  # with a model, and in the middle of training
MEAN = "the mean moved"  # at first: a run has one scaling
CHOSEN = {
    "w a little off": with_array("w", shifted(5e-4)),
    "w far out": with_array("w", lambda w: 90 * np.eye(len(w))[0]),
    MEAN: with_array("input_mean", shifted(1.0)),
    "other cells": with_array("membership", lambda m: 1 - m),
}
SHOWN = {
    "an invented total": invented,
    "unsigned answers": lambda r: replace(r, relay=tuple(map(_unsigned, r.relay))),
    "a total over fewer sites": lambda r: replace(r, relay=r.relay[:-1]),
    "one site's answer twice": lambda r: replace(r, relay=(*r.relay[:-1], r.relay[0])),
    "no totals": lambda r: replace(r, relay=()),
    "another run's step": lambda r: replace(r, run="another run"),
    "a step left out": lambda r: replace(r, step=r.step + 1),
    "no masks": lambda r: replace(r, step=0, relay=()),
}


def _unsigned(content: bytes) -> bytes:
    return write_answer(replace(read_answer(content), signature=""))


def test_a_server_chooses_what_it_asks_and_cannot_invent_what_others_said() -> None:
    whole = overheard()
    assert len(whole.steps) > STEP
    for name, twist in CHOSEN.items():  # not promised, and so answered
        step = FIRST if name == MEAN else STEP
        answers = everybody(whole.until(step), twist(whole.steps[step - 1]))
        assert not any(one.refusal for one in answers), name
        tell(f"server asks with {name}", "answered", "answered: the sum over all sites")
    for step in (FIRST, STEP):
        sites, asked = whole.until(step), whole.steps[step - 1]
        for name, twist in SHOWN.items():
            answers = everybody(sites, twist(asked))
            assert all(one.refusal for one in answers), name
            if step == STEP:
                tell(f"server asks with {name}", "–", answers[0].refusal)
        # The honest query is answered still, and a second one at its step is not.
        assert not any(one.refusal for one in everybody(sites, asked))
        other = CHOSEN["w a little off"](asked)
        assert all("answered once" in one.refusal for one in everybody(sites, other))


def everybody(sites: Mapping[str, Site], request: Request) -> list[Answer]:
    """Ask all sites the same."""
    return tell_all(sites, [request] * len(sites))


def test_totals_shown_differently_to_two_sites() -> None:
    """With a site's help the server has two signed answers to show; masks depend on it.

    They differ in the last bit.
    """
    whole = overheard()
    asked = whole.steps[STEP - 1]
    true = read_answer(asked.relay[-1])
    body = true.bodies[0]
    numbers = body.arrays["masked"].copy()
    numbers[0] += 1
    other = replace(true, bodies=(Parcel(body.header, {"masked": numbers}),))
    signature = keys_of(crowd().silo_names[-1]).sign(signed_content(other))
    signed = write_answer(replace(other, signature=signature))
    shown = replace(asked, relay=(*asked.relay[:-1], signed))
    answers = tell_all(whole.until(STEP), [asked, shown, asked])
    assert not any(one.refusal for one in answers)
    with raises(Refused, "masks-left-over"):
        summed(asked, answers)
    # All were told the same, and the sum is there; of all, and of no others.
    answers = everybody(whole.until(STEP), asked)
    assert summed(asked, answers)
    with raises(Refused, "too-few-sites", "3"):
        summed(asked, answers[:2])
    tell("totals shown differently to two sites", "–", "the masks do not cancel")
    tell("a sum over two of three sites", "–", "the masks do not cancel")


def summed(request: Request, answers: Sequence[Answer]) -> list[Any]:
    """The totals that a server can read."""
    place = Place(0, 1000.0)
    asked = [
        read_query(body.header, body.arrays, crowd().schema, place=place)[0]
        for body in request.bodies
    ]
    return added(asked, answers)
