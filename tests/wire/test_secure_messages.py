"""Messages under secure sums: what is relayed, chained and told to a pool of silos."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.engines import Reference
from pffl.errors import Malformed
from pffl.parcel import Parcel
from pffl.queries import Expand, Place, Pool, View, read_query
from pffl.wire import (
    Answer,
    Request,
    bodies_digest,
    first_transcript,
    masked_body,
    next_transcript,
    query_body,
    read_answer,
    read_masked,
    read_request,
    signed_content,
    write_answer,
    write_request,
)
from tests.helpers import make_federation, make_problem
from tests.raising import raises


def test_answers_are_relayed_byte_for_byte() -> None:
    relay = (b"one", b"", b"three\x00")
    body = Parcel({"a": 1}, {"w": np.ones(2)})
    sent = Request("r", 1, 2, "0", "h", (body,), step=3, relay=relay)
    found = read_request(write_request(sent))
    assert (found.relay, found.step) == (relay, 3)
    assert found.bodies[0].arrays["w"].tolist() == [1.0, 1.0]
    assert bodies_digest(found.bodies) == bodies_digest(sent.bodies)


def test_masked_numbers_travel_whole() -> None:
    flat = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    sent = Answer("r", 1, 2, "0", "h", (masked_body(flat),), "north", step=1)
    found = read_answer(write_answer(sent))
    assert read_masked(found, 4).tolist() == flat.tolist()
    with pytest.raises(Malformed):
        read_masked(found, 3)
    with pytest.raises(Malformed):
        read_masked(replace(found, bodies=found.bodies * 2), 4)


def test_a_signature_is_of_all_but_itself() -> None:
    sent = Answer("r", 1, 2, "0", "h", (), "north", asked="ab", signature="cd")
    assert signed_content(sent) == write_answer(replace(sent, signature=""))
    for changed in ({"run": "s"}, {"asked": "x"}, {"step": 1}, {"transcript": "t"}):
        assert signed_content(replace(sent, **changed)) != signed_content(sent)


def test_a_transcript_depends_on_all_that_was_said() -> None:
    one, two = np.arange(3, dtype=np.uint64), np.arange(4, dtype=np.uint64)
    first = first_transcript("agreement", "run")
    seen = {
        first,
        first_transcript("another", "run"),
        first_transcript("agreement", "other"),
        next_transcript(first, "asked", [one, two]),
        next_transcript(first, "asked", [two, one]),
        next_transcript(first, "other", [one, two]),
        next_transcript(first, "asked", [one, one]),
    }
    assert len(seen) == 7


@pytest.mark.parametrize("by_rows", [True, False])
def test_a_pool_is_told_the_same_and_each_finds_its_share(by_rows: bool) -> None:
    federation = make_federation(0)
    problem = make_problem(Reference(federation), pffl.BoundedGroupLoss(0.5))
    masses = [float(len(silo.rows("train"))) for silo in federation.silos]
    pool = Pool(len(masses), by_rows, sum(masses))
    shares = np.array([pool.share(mass) for mass in masses])
    task = replace(problem.task, pool=pool)
    w = np.full(problem.n_parameters, 0.1)
    bodies = [query_body(Expand(task, w), k) for k in range(len(masses))]
    assert len({bodies_digest([body]) for body in bodies}) == 1
    plain = Expand(replace(problem.task, shares=shares), w)
    for k, silo in enumerate(federation.silos):
        view = View.of(silo, federation.schema, task.model, "train")
        place = Place(k, masses[k])
        read, index = read_query(
            bodies[k].header, bodies[k].arrays, federation.schema, place=place
        )
        assert index == k
        assert read.answer(view).losses == pytest.approx(plain.answer(view).losses)
    with raises(Malformed, "bad-message", "pool"):
        read_query(bodies[0].header, bodies[0].arrays, federation.schema)
