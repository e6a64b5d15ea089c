"""The engine for sites on other machines, over sites in this process."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import pffl
from pffl.data import Rows
from pffl.engines import Local
from pffl.errors import ArtefactError, DataError, FederationError, UsageError
from pffl.methods import METHODS
from pffl.queries import Census, Evaluate, Train
from pffl.site import Rules, Site
from pffl.wire import read_request
from tests.engines.sites import QUICK, counted, remote, sites_of, spoil
from tests.helpers import assert_same_total, make_federation, make_problem
from tests.inside import Record, Remote
from tests.methods.biased import biased
from tests.raising import raises

SHORT = {
    "pffl": {"dual_rounds": 4, "rounds_per_dual": 2},
    "local-bgl": {"dual_rounds": 4, "rounds_per_dual": 2},
    "fcfl": {"stage_one_rounds": 4, "stage_two_rounds": 2},
    "reductions": {"iterations": 3},
}
CONSTRAINTS = {
    "bgl": pffl.BoundedGroupLoss(0.62),
    "cbgl": pffl.ConditionalBoundedGroupLoss(0.7),
}


def short(name):
    """Return a method with few rounds."""
    kind = METHODS[name]
    options = SHORT.get(name)
    if options is None:
        options = {"rounds": 4} if "rounds" in kind.__dataclass_fields__ else {}
    return kind(**options)


def run(engine, constraint, method, model=None):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "cells with fewer than 10")
        return pffl.solve(engine, constraint, method=method, model=model, seed=3)


def ask(engine, seed=0, **changes):
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.6))
    w = np.random.default_rng(seed).normal(size=problem.n_parameters)
    weights = problem.cell_weights(np.ones(problem.n_cells))
    return replace(Train(problem.task, w, 1.0, weights, np.full(3, 0.1)), **changes)


def last(engine):
    return engine.record.entries[-1]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_every_method_ends_where_it_ends_locally(name, constraint):
    federation, method = biased(2), short(name)
    engine = remote(federation)
    there = run(engine, CONSTRAINTS[constraint], method)
    here = run(Local(federation), CONSTRAINTS[constraint], method)
    np.testing.assert_allclose(there.w, here.w, rtol=0, atol=1e-10)
    np.testing.assert_allclose(there.multipliers, here.multipliers, rtol=0, atol=1e-9)
    assert (there.status, there.rounds) == (here.status, here.rounds)
    assert not any(entry["refused"] for entry in engine.record.entries)
    assert not any(entry["clipped"] for entry in engine.record.entries)


@pytest.mark.parametrize(
    ("model", "labels"),
    [
        (pffl.SoftmaxRegression(), 3),
        (pffl.LeastSquares(), 0),
        (pffl.HuberRegression(delta=0.5), 0),
    ],
)
@pytest.mark.parametrize("name", ["exact", "pffl"])
def test_other_models_end_where_they_end_locally(model, labels, name):
    federation, method = make_federation(4, labels=labels, sizes=(60, 50)), short(name)
    bound = pffl.BoundedGroupLoss(1.0)
    there = run(remote(federation), bound, method, model)
    here = run(Local(federation), bound, method, model)
    np.testing.assert_allclose(there.w, here.w, rtol=0, atol=1e-10)


def test_a_network_ends_where_it_ends_locally():
    pytest.importorskip("torch")
    from pffl.models import Network, mlp

    federation = biased(1)
    model = Network(mlp(3, (4,), 2).double(), l2=1e-3)
    method = replace(short("pffl"), step_size=0.1, batch_size=16)
    there = run(remote(federation), CONSTRAINTS["bgl"], method, model)
    here = run(Local(federation), CONSTRAINTS["bgl"], method, model)
    np.testing.assert_allclose(there.w, here.w, rtol=0, atol=1e-10)


def test_a_guarded_site_withholds_small_cells_and_passes_the_gate():
    federation = biased(0)
    sites = {
        silo.name: Site(silo, federation.schema, Rules(floor=14)).answer
        for silo in federation.silos
    }
    engine = remote(federation, sites)
    solution = run(engine, CONSTRAINTS["bgl"], short("pffl"))
    assert np.isfinite(solution.w).all()
    assert not any(entry["refused"] for entry in engine.record.entries)
    for split in ("train", "test"):
        withheld = [
            note for note in solution.notes if f"leave out {split} rows" in note
        ]
        assert any("'site 1'" in note for note in withheld)
    shown = counted(engine).counts
    true = Local(federation).ask(Census(federation.schema)).counts
    assert ((shown == true) | (shown == 0)).all()
    assert (shown != true).any()


def test_a_cell_that_every_site_withholds_is_refused_as_such():
    federation = biased(0, sizes=(120, 150, 200))
    counts = Local(federation).ask(Census(federation.schema)).counts
    rows = min(int(n) for n in counts.max(axis=0) if n)
    sites = {
        silo.name: Site(silo, federation.schema, Rules(floor=rows + 1)).answer
        for silo in federation.silos
    }
    with raises(DataError, "empty-cells"):
        run(remote(federation, sites), CONSTRAINTS["cbgl"], pffl.Exact())


def test_a_nodes_nonsense_is_named_printable():
    """What a node sends ends in the record, in logs and on terminals."""
    header = {"format": "pffl answer", "protocol": 99, "version": "\x1b[2J\ud800"}
    table = json.dumps({"__metadata__": {"pffl": json.dumps(header)}}).encode()
    content = len(table).to_bytes(8, "little") + table
    federation = biased(0, sizes=(120,))
    engine = remote(federation, {"1": lambda _: content})
    with raises(FederationError, "sites-missing", "protocol 99") as caught:
        counted(engine)
    assert str(caught.value).isprintable()


def test_some_silos_can_be_asked():
    federation = biased(0, sizes=(120, 50, 60, 70))
    method = pffl.FedAvg(rounds=5, participation=0.5)
    engine = remote(federation)
    there = run(engine, None, method)
    here = run(Local(federation), None, method)
    np.testing.assert_allclose(there.w, here.w, rtol=0, atol=1e-10)
    asked = [e["asked"] for e in engine.record.entries if e["query"] == "train"]
    assert all(len(names) == 2 for names in asked)


class Shuffled:
    """Replies in another order every time."""

    def __init__(self, transport):
        self.inner, self.addresses = transport, transport.addresses
        self.random = np.random.default_rng(0)

    def exchange(self, requests, seconds, kind):
        replies = list(self.inner.exchange(requests, seconds, kind))
        yield from (replies[i] for i in self.random.permutation(len(replies)))


def test_the_order_of_arrival_changes_no_bit():
    federation = biased(0, sizes=(40, 50, 60, 70, 80, 90, 45))
    engine = remote(federation, wrap=Shuffled)
    query = ask(engine)
    first = engine.ask(query)
    orders = {tuple(last(engine)["answered"])}
    for _ in range(3):
        assert_same_total(engine.ask(query), first, 0.0)
        orders.add(tuple(last(engine)["answered"]))
    assert len(orders) > 1


class Slow:
    """The answer of one node to its first message comes with the next exchange."""

    def __init__(self, transport):
        self.inner, self.addresses, self.held = transport, transport.addresses, []
        self.armed = False

    def exchange(self, requests, seconds, kind):
        held, self.held = self.held, []
        yield from held
        for reply in self.inner.exchange(requests, seconds, kind):
            if self.armed and kind == "train" and reply.address == "node 1":
                self.armed = False
                self.held.append(reply)
            else:
                yield reply


def test_an_answer_to_the_first_of_two_messages_counts_once():
    federation, slow = biased(0), []
    engine = remote(federation, wrap=lambda t: slow.append(Slow(t)) or slow[0])
    query = ask(engine)
    slow[0].armed = True
    total = engine.ask(query)
    assert_same_total(total, Local(federation).ask(query), 1e-10)
    assert len(last(engine)["messages"]["site 1"]["requests"]) == 2
    assert last(engine)["answered"] == ["site 0", "site 2", "site 1"]


def test_a_restarted_node_is_found_at_its_new_address():
    federation = biased(0)
    sites = sites_of(federation)
    engine = remote(federation, sites)
    query = ask(engine)
    engine.ask(query)
    sites["node 7"] = sites.pop("node 1")
    total = engine.ask(query)
    assert_same_total(total, Local(federation).ask(query), 1e-10)
    # … also where the old address is still listed, and does not answer.
    sites["node 8"], sites["node 7"] = sites["node 7"], lambda content: b""
    assert_same_total(engine.ask(query), total, 1e-12)
    assert last(engine)["answered"] == ["site 0", "site 2", "site 1"]


def test_a_restarted_node_with_other_rows_is_refused():
    federation, other = biased(0), biased(9)
    sites = sites_of(federation)
    engine = remote(federation, sites, policy=replace(QUICK, seconds=0.3))
    query = ask(engine)
    del sites["node 1"]
    sites["node 7"] = sites_of(other)["node 1"]
    with raises(FederationError, "sites-missing", "'site 1'"):
        engine.ask(query)
    assert ["node 7", "the census changed since it was frozen"] in last(engine)[
        "refused"
    ]


def test_strangers_and_namesakes_are_refused():
    federation, stranger = biased(0), biased(0, sizes=(30, 30, 30, 30))
    sites = sites_of(federation)
    sites["node x"] = sites_of(stranger)["node 3"]
    engine = remote(federation, sites)
    assert counted(engine).rows.tolist() == [120, 50, 200]
    assert ["node x", "'site 3' is none of this run's silos"] in last(engine)["refused"]
    sites["node y"] = sites["node 1"]
    with raises(FederationError, "repeated-site", "site 1", "1"):
        counted(remote(federation, sites))


def test_a_namesake_that_comes_later_does_not_stop_the_run():
    federation = biased(0)
    sites = sites_of(federation)
    engine = remote(federation, sites)
    query = ask(engine)
    sites["node y"] = sites["node 1"]
    sites["node z"] = sites.pop("node 0")
    total = engine.ask(query)
    assert_same_total(total, Local(federation).ask(query), 1e-10)
    ((node, reason),) = last(engine)["refused"]
    assert node == "node y"
    assert "node 1 and node y" in reason


def test_another_schema_is_refused_with_both_shown():
    federation = biased(0)
    sites = sites_of(federation)
    sites["node 2"] = spoil(sites["node 2"], ("census",), header={"schema": "e" * 64})
    named = (federation.schema.hash[:12], "eeeeeeeeeeee", "'site 2'")
    with raises(FederationError, "sites-missing", *named):
        counted(remote(federation, sites))


def test_a_site_that_refuses_is_quoted_on_one_line():
    federation = biased(0)
    sites = sites_of(federation)
    header = {"refusal": "no\nmore \x1b[2J queries"}
    sites["node 2"] = spoil(
        sites["node 2"], header=header, body=lambda p: replace(p, arrays={})
    )
    engine = remote(federation, sites)
    with raises(FederationError, "sites-missing", "no more  [2J queries"):
        engine.ask(ask(engine))
    assert len(last(engine)["refused"]) == 1 + QUICK.retries


def test_the_census_is_asked_once_a_split_and_numbers_only_grow():
    federation, numbers = biased(0), []
    sites = sites_of(federation)
    honest = sites["node 0"]

    def noted(content):
        request = read_request(content)
        numbers.append((request.session, request.sequence, request.run))
        return honest(content)

    sites["node 0"] = noted
    engine = remote(federation, sites, run="r", session=3)
    query = ask(engine)
    for _ in range(2):
        counted(engine)
        engine.ask(query)
        engine.ask(Evaluate(query.task, query.w))
    kinds = [entry["query"] for entry in engine.record.entries]
    assert kinds == ["census", "train", "census", "evaluate", "train", "evaluate"]
    assert all(session == 3 and name == "r" for session, _, name in numbers)
    assert all(a < b for a, b in pairwise(number for _, number, _ in numbers))
    assert engine.splits == ("train", "test")
    with raises(UsageError, "unknown-split"):
        counted(engine, "validation")


def test_silos_without_training_rows_are_all_named():
    federation = biased(0)
    empty = Rows.of(np.zeros((0, 3)), np.zeros(0), np.zeros(0))
    silos = [
        silo if silo.index == 1 else replace(silo, splits={"train": empty})
        for silo in federation.silos
    ]
    sites = {
        f"node {silo.index}": replace(site, silo=silo)
        for silo, site in zip(silos, sites_of(federation).values(), strict=True)
    }
    with raises(DataError, "no-training-rows", "0", "2"):
        counted(remote(federation, sites))


def test_names_must_differ():
    federation = biased(0)
    for names in ((), ("a", "a")):
        with raises(UsageError, "repeated-name"):
            Remote(remote(federation)._transport, federation.schema, names)


def test_a_record_that_cannot_be_written_stops_the_run(tmp_path):
    engine = remote(biased(0), record=Record(tmp_path / "missing" / "record.jsonl"))
    with raises(ArtefactError, "cannot-write"):
        counted(engine)
