"""Aggregators between server and sites change nothing but who adds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.engines import Reference
from pffl.engines.remote.tree import Aggregator, Branches, grow
from pffl.errors import FederationError, UsageError
from pffl.parcel import Parcel
from pffl.questions import Census, Curvature, Evaluate, Moments, Train
from pffl.site import Rules, Site
from pffl.wire import read_answer, read_request, write_answer
from tests.engines.sites import QUICK, PlainSite, remote, spoil
from tests.helpers import assert_same_total, make_federation, make_problem

SIZES = (12, 9, 30, 7, 14, 5, 21, 8, 11, 6, 10)


@pytest.fixture(scope="module")
def federation():
    return make_federation(2, sizes=SIZES, test=4)


def sites_of(federation):
    return {s.name: PlainSite(s, federation.schema) for s in federation.silos}


def tree(federation, sites=None, *, fan_out=2, policy=QUICK):
    at = sites_of(federation) if sites is None else sites
    return grow(at, federation.schema, fan_out=fan_out, policy=policy)


def questions(federation, constraint):
    problem = make_problem(Reference(federation), constraint)
    task, w = problem.task, np.linspace(-0.3, 0.2, problem.n_parameters)
    weights = problem.cell_weights(np.linspace(0.5, 1.5, len(problem.cells)))
    descent = Train(task, w, 1.0, weights, np.full(4, 0.05), batch_size=3, seed=7)
    some = (0, 1, 4, 10)
    return [
        Census(federation.schema),
        Census(federation.schema, "test"),
        Moments(federation.schema, np.zeros(1 + federation.schema.n_features)),
        descent,
        replace(descent, silos=some, round=2),
        Evaluate(task, w, "test"),
        Curvature(task, w),
    ]


@pytest.mark.parametrize(
    ("fan_out", "constraint"),
    [
        (2, pffl.BoundedGroupLoss(0.6)),
        (4, pffl.BoundedGroupLoss(0.6)),
        (3, pffl.PerSilo(0.6)),
        (20, pffl.PerSilo(0.6)),  # no aggregator at all
    ],
    ids=str,
)
def test_a_tree_answers_as_the_plain_loop(federation, fan_out, constraint):
    engine, plain = tree(federation, fan_out=fan_out), Reference(federation)
    asked = questions(federation, constraint)
    for question, total in zip(asked, engine.ask_many(asked), strict=True):
        assert_same_total(total, plain.ask(question), 1e-12)


def test_a_solve_over_a_tree_is_the_solve_over_sites(federation):
    constraint = pffl.BoundedGroupLoss(0.62)
    flat = pffl.solve(remote(federation), constraint, seed=0)
    high = pffl.solve(tree(federation, fan_out=4), constraint, seed=0)
    np.testing.assert_allclose(high.w, flat.w, rtol=1e-9, atol=1e-12)
    assert high.status == flat.status
    assert high.evidence.data.silos == len(SIZES)


def test_the_server_reads_as_many_messages_as_it_has_aggregators(federation):
    engine, flat = tree(federation, fan_out=4), remote(federation)
    assert isinstance(engine, Branches)
    question = questions(federation, pffl.BoundedGroupLoss(0.6))[-1]
    for each in (engine, flat):
        each.ask(question)
    few, many = engine.record.entries[-1], flat.record.entries[-1]
    assert len(few["answered"]) == 3
    assert len(many["answered"]) == 11
    assert few["bytes_received"] < many["bytes_received"] / 3


def test_the_site_that_fails_is_named_through_the_tree(federation):
    sites = sites_of(federation)
    sites["site 6"] = spoil(
        sites["site 6"],
        ("curvature",),
        change=lambda a: {**a, "risk": -1 - a["risk"]},
    )
    engine = tree(federation, sites, policy=replace(QUICK, retries=0))
    question = questions(federation, pffl.BoundedGroupLoss(0.6))[-1]
    with pytest.raises(FederationError, match=r"'site 6' .*outside what is possible"):
        engine.ask(question)


def test_a_site_that_refuses_says_why_through_the_tree(federation):
    sites = {
        s.name: Site(
            s, federation.schema, Rules(floor=1, questions=10**6, release=math.inf)
        ).answer
        for s in federation.silos
    }
    sites["site 9"] = Site(
        federation.silos[9], federation.schema, Rules(floor=50, release=math.inf)
    ).answer
    engine = tree(federation, sites, policy=replace(QUICK, retries=0, join_seconds=1))
    with pytest.raises(FederationError, match=r"'site 9'.*fewer training rows than"):
        engine.ask(Census(federation.schema))


def lying(aggregator, **header):
    """Change what an aggregator says of its sums."""

    def answer(content):
        sent = read_answer(aggregator(content))
        bodies = tuple(Parcel({**b.header, **header}, b.arrays) for b in sent.bodies)
        return write_answer(replace(sent, bodies=bodies))

    return answer


def test_a_sum_over_fewer_sites_is_refused(federation):
    engine = tree(federation, fan_out=4, policy=replace(QUICK, retries=0))
    branches = engine._transport.sites
    first = next(iter(branches))
    branches[first] = lying(branches[first], sites=3)
    with pytest.raises(FederationError, match="a sum over 3 sites, and 4 were asked"):
        engine.ask(Census(federation.schema))


def test_withheld_counts_are_told_through_the_tree(federation):
    sites = {
        s.name: Site(
            s, federation.schema, Rules(floor=2, questions=10**6, release=math.inf)
        ).answer
        for s in federation.silos
    }
    flat, high = remote(federation, sites), tree(federation, sites, fan_out=4)
    census = Census(federation.schema)
    assert_same_total(high.ask(census), flat.ask(census), 1e-12)
    assert high.withheld("train") == flat.withheld("train") > 0
    assert high.notes[0].partition(": ")[2] == flat.notes[0].partition(": ")[2]


def test_an_aggregator_answers_nonsense_with_a_refusal(federation):
    aggregator = Aggregator("a", federation.schema, lambda **_: remote(federation))
    assert read_answer(aggregator(b"nonsense")).refusal
    plain = remote(federation)
    question = questions(federation, pffl.BoundedGroupLoss(0.6))[-1]
    plain.ask(question)
    content = plain._session.write([question], 0)
    assert read_request(content)
    assert "aggregator" in read_answer(aggregator(content)).refusal


def test_who_is_below_must_be_all():
    federation = make_federation(0)
    with pytest.raises(UsageError, match="2 silos are below aggregators"):
        Branches(None, federation.schema, federation.silo_names, {"a": 2})
    with pytest.raises(UsageError, match="fan_out"):
        grow({}, federation.schema, fan_out=1)
