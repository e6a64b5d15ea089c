"""A site's answers are those of the plain functions, and what it refuses is said."""

from __future__ import annotations

import json
from dataclasses import fields
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

from pffl.data import Silo
from pffl.queries import Evaluate, Expand, Train, View, Witness
from pffl.site import Rules, Site
from pffl.wire import read_answer
from tests.helpers import evaluate_query, make_federation
from tests.inside import withheld
from tests.site.sites import (
    OPEN,
    ask,
    census,
    message,
    problem_of,
    refusals_of,
    send,
    small_site,
)


def queries(site: Site) -> list[Any]:
    problem = problem_of(site)
    task, p = problem.task, problem.task.model.n_parameters
    w = np.linspace(-0.5, 0.5, p)
    z = len(task.cells)
    return [
        Train(task, w, 1.0, np.full(z, 0.1), np.full(3, 0.2), batch_size=32, seed=5),
        Evaluate(task, w, "test", 0.9),
        evaluate_query(task, w),
        Evaluate(task, w, "train"),
        Expand(task, w, 2),
        Witness(task, w, 0.5, np.full(z, 0.1), -w),
    ]


def same(a: Any, b: Any) -> None:
    for field in fields(a):
        np.testing.assert_allclose(
            getattr(a, field.name), getattr(b, field.name), rtol=1e-13, atol=1e-15
        )


@pytest.mark.parametrize("place", range(6))
def test_answers_are_those_of_the_plain_functions(place: int) -> None:
    site = small_site()
    query = queries(site)[place]
    view = View.of(site.silo, site.schema, query.task.model, query.split)
    same(ask(site, query), query.answer(view))


def test_census_is_that_of_the_rows() -> None:
    site = small_site(f1=17)
    answer = send(site, census(site))
    total = ask(site, census(site), (0, 2))
    assert total.counts.tolist() == [[40, 17, 40, 40]]
    assert total.rows.tolist() == [137]
    assert answer.silo == "north"
    assert answer.splits == ("train", "test")
    assert answer.bodies[0].header["withheld"] == 0


def test_a_query_for_another_place_uses_that_place() -> None:
    federation = make_federation(3, sizes=(60, 80))
    site = Site(federation.silos[1], federation.schema, OPEN)
    query = queries(small_site())[0]
    both = np.array([0.25, 0.75])
    query = Train(
        type(query.task)(query.task.model, query.task.cells, both),
        query.w,
        1.0,
        query.cell_weights,
        query.step_sizes,
        batch_size=16,
    )
    answer = send(site, query, index=1)
    view = View.of(federation.silos[1], site.schema, query.task.model, "train")
    expected = query.answer(view)
    assert answer.bodies[0].arrays["update"] == pytest.approx(
        expected.update, rel=1e-13
    )


@pytest.mark.parametrize(
    ("counts", "floor", "expected"),
    [
        ([40, 40, 40, 40], 10, [0, 0, 0, 0]),
        ([3, 40, 12, 0], 10, [1, 0, 1, 0]),  # one alone would be the difference
        ([3, 4, 40, 30], 10, [1, 1, 0, 1]),  # two of 7 rows are still too few
        ([6, 7, 40, 30], 10, [1, 1, 0, 0]),
        ([3, 0, 0, 50], 10, [1, 0, 0, 1]),
        ([3, 0, 0, 0], 10, [1, 0, 0, 0]),
        ([1, 1, 1, 1], 1, [0, 0, 0, 0]),
    ],
)
def test_withheld(counts: list[int], floor: int, expected: list[int]) -> None:
    hidden = withheld(np.array(counts), np.array(counts) < floor, floor)
    assert hidden.tolist() == [bool(e) for e in expected]


@pytest.mark.parametrize("place", range(4))
def test_withheld_rows_are_as_if_not_there(place: int) -> None:
    """Against an oracle that takes the rows out by hand, of F too."""
    site = small_site(Rules(floor=10, batches=True), f1=4, f0=12)
    query = queries(small_site(f1=4, f0=12))[place]
    total = ask(site, query)
    rows = site.silo.rows(query.split)
    others = rows.take(np.flatnonzero(rows.group == 1))
    left = Silo(site.name, 0, {query.split: others})
    view = View.of(left, site.schema, query.task.model, query.split)
    same(total, query.answer(view))


def test_preview_is_the_answer_and_remembers_nothing() -> None:
    site = small_site(Rules(queries=1, floor=1))
    query = queries(site)[1]
    content = message(site, query)
    first = site.preview(content)
    assert site.preview(content) == first
    assert site.answer(content) == first
    assert read_answer(site.preview(content)).refusal


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"x" * 10_000, b"\xff" * 8 + b"{}"]
)
def test_nonsense_is_refused_and_never_raises(content: bytes, tmp_path: Any) -> None:
    site = small_site(state=tmp_path)
    answer = read_answer(site.answer(content))
    assert answer.refusal
    assert len(refusals_of(tmp_path)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": 2, "version": "\ud800", "body": {}},
        {"body": {"query": "census", "split": "\ud800"}},
        {"version": "\x1b[2J", "body": {"query": "census", "split": "train"}},
        {"x" * 10_000: 1, "body": {}},
    ],
    ids=["half a pair in a version", "in a split", "control", "long"],
)
def test_a_servers_text_is_told_back_printable_and_short(
    changes: dict[str, Any], tmp_path: Any
) -> None:
    site = small_site(state=tmp_path)
    header: dict[str, Any] = {"format": "pffl query", "protocol": 1, "run": "run"}
    header |= {"session": 0, "sequence": 1, "schema": site.schema.hash}
    header |= {"version": version("pffl")} | changes
    table = json.dumps({"__metadata__": {"pffl": json.dumps(header)}}).encode()
    content = len(table).to_bytes(8, "little") + table
    refusal = read_answer(site.answer(content)).refusal
    assert refusal
    assert refusal.isprintable()
    assert [line.refused for line in refusals_of(tmp_path)] == [refusal]


def test_other_errors_leave_by_name_only() -> None:
    site = small_site()
    query = queries(site)[1]
    rows = site.silo.rows("test")
    secret = rows.X[:, :2]  # too few columns: NumPy says so, with the shapes
    site.silo.splits["test"] = type(rows)(secret, rows.y, rows.group)  # type: ignore[index]
    answer = send(site, query)
    assert answer.refusal == "ValueError at the site"


def test_large_messages_and_unknown_splits_are_refused() -> None:
    site = small_site(Rules(largest_message=200))
    assert "200" in send(site, census(site)).refusal
    site = small_site()
    assert "'validation'" in send(site, census(site, "validation")).refusal


def test_split_below_the_floor_is_not_answered() -> None:
    site = small_site(Rules(floor=300))
    for number, query in enumerate((census(site), *queries(small_site())), 1):
        answer = send(site, query, (0, number))
        if query.split == "train":
            assert "fewer training rows than the site's floor" in answer.refusal
        else:  # nobody to be told of
            assert not any(a.any() for a in answer.bodies[0].arrays.values())
