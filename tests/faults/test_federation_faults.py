"""Faults 40 to 52 and 56 to 58: sites that fail, stray, or lie."""

from __future__ import annotations

import json
import time
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.engines import Local
from pffl.errors import FederationError, UsageError
from pffl.methods import METHODS
from pffl.parcel import HEADER, Parcel
from pffl.queries import Evaluate, Train
from pffl.wire import read_request
from tests.driving import iterate
from tests.engines.sites import QUICK, Faulty, counted, remote, sites_of, slow, spoil
from tests.engines.test_remote import CONSTRAINTS, run, short
from tests.helpers import assert_same_total, make_problem
from tests.inside import Record
from tests.methods.biased import biased, states
from tests.raising import raises

ONCE = replace(QUICK, retries=0)
TWO = replace(ONCE, quorum=2)


def ask(engine, w=0.1, **changes):
    """Return a problem and a `train` query over an engine."""
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.6))
    weights = problem.cell_weights(np.ones(problem.n_cells))
    start = np.full(problem.n_parameters, w)
    query = Train(problem.task, start, 1.0, weights, np.full(2, 0.1))
    return problem, replace(query, **changes)


def spoiled(k=1, policy=ONCE, kinds=("train",), **spoiling):
    """Return an engine one of whose three sites is spoiled."""
    federation = biased(0)
    sites = sites_of(federation)
    sites[f"node {k}"] = spoil(sites[f"node {k}"], kinds, **spoiling)
    return remote(federation, sites, policy=policy)


def last(engine):
    return engine.record.entries[-1]


def reasons(engine, silo="site 1"):
    return [reason for name, reason in last(engine)["refused"] if name == silo]


def test_fault_40_a_site_that_raises_is_named_and_the_quorum_decides():
    def broken(content):
        if b"train" in content[:4000] and b"step_sizes" in content:
            raise ZeroDivisionError("row 7 of Ms Smith")
        return honest(content)

    federation = biased(0)
    sites = sites_of(federation)
    honest, sites["node 1"] = sites["node 1"], broken
    engine = remote(federation, sites, policy=ONCE)
    with raises(FederationError, "sites-missing", "'site 1'", "ZeroDivision") as e:
        engine.ask(ask(engine)[1])
    assert e.value.exit_code == 5
    assert "Smith" not in json.dumps(list(engine.record.entries))
    engine = remote(federation, sites, policy=TWO)
    assert engine.ask(ask(engine)[1]).share == pytest.approx(2 / 3)
    assert last(engine)["missing"] == ["site 1"]


def test_fault_41_a_silo_that_is_late_is_left_out_only_with_a_quorum():
    federation = biased(0)
    sites = sites_of(federation)
    tardy = slow(sites["node 2"], 0.6)
    engine = remote(federation, sites, policy=replace(ONCE, seconds=0.3))
    _, query = ask(engine)
    sites["node 2"] = tardy
    with raises(FederationError, "sites-missing", "'site 2' (late"):
        engine.ask(query)
    engine = remote(federation, sites_of(federation), policy=TWO)
    problem, query = ask(engine)
    engine._transport.sites["node 2"] = lambda content: b""
    total = engine.ask(query)
    assert np.isnan(total.cell_losses).all()  # never "no violation"
    part = Local(federation).ask(replace(query, silos=(0, 1)))
    np.testing.assert_allclose(total.update, part.update, atol=1e-12)
    assert total.share == pytest.approx(2 / 3)
    assert last(engine)["missing"] == ["site 2"]
    for partial in (
        Evaluate(problem.task, query.w),
        Evaluate(problem.task, query.w, "train"),
    ):
        with raises(FederationError, "sites-missing", "site 2"):
            engine.ask(partial)


def test_fault_41_a_partial_quorum_skips_the_dual_step_of_uncovered_cells():
    federation = biased(0)
    sites = sites_of(federation)
    method = pffl.PFFL(dual_rounds=6, rounds_per_dual=1, dual_step_size=1.0)
    engine = remote(federation, sites, policy=replace(TWO, patience=100))
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.6))
    thetas, honest = [], sites["node 1"]
    for state in states(engine, problem, method):
        away = state.trainer.done in (1, 2)
        sites["node 1"] = (lambda content: b"") if away else honest
        thetas.append(state.theta)  # by the rounds before this one
    assert (thetas[1] != 0).all()
    np.testing.assert_array_equal(thetas[2], thetas[1])
    np.testing.assert_array_equal(thetas[3], thetas[1])
    assert (thetas[4] != thetas[3]).all()
    assert np.isfinite(state.w).all()


def test_fault_41_a_run_with_a_quorum_ends_where_all_silos_judge_it():
    federation = biased(0)
    sites, rounds = sites_of(federation), []
    honest = sites["node 1"]

    def away(content):
        kind = read_request(content).kind
        rounds.append(kind)
        if kind == "train" and rounds.count("train") in (3, 4):
            raise OSError
        return honest(content)

    sites["node 1"] = away
    engine = remote(federation, sites, policy=TWO)
    solution = run(engine, CONSTRAINTS["bgl"], short("pffl"))
    whole = run(Local(federation), CONSTRAINTS["bgl"], short("pffl"))
    assert solution.rounds == whole.rounds
    assert np.isfinite(solution.w).all()
    assert np.abs(solution.w - whole.w).max() > 1e-6
    missing = [np.isnan(row.violation).all() for row in solution.rows]
    assert [number for number, gone in enumerate(missing) if gone] == [2, 3]
    history = solution.history  # not known is not "no violation"
    assert history["upper"].isna().tolist() == missing
    assert history["worst_cell"].isna().tolist() == missing
    assert all(np.isfinite(cell.train_loss) for cell in solution.cell_results)


def test_fault_41_a_silo_that_is_away_does_not_end_a_run_with_a_quorum_at_a_look():
    federation, kinds = biased(0), []
    sites = sites_of(federation)
    honest = sites["node 1"]

    def away(content):
        kinds.append(read_request(content).kind)
        if kinds.count("train") in (10, 11):  # and what is asked in between
            raise OSError
        return honest(content)

    sites["node 1"] = away
    method = pffl.PFFL(dual_rounds=2, rounds_per_dual=10, target_gap=1e9)
    solution = run(remote(federation, sites, policy=TWO), CONSTRAINTS["bgl"], method)
    trained = [row for row in solution.rows if np.isfinite(row.risk)]
    assert len(trained) == 20  # nobody looked at the gap, which all must answer
    whole = run(Local(federation), CONSTRAINTS["bgl"], method)
    assert len(whole.rows) < 20  # as here


@pytest.mark.parametrize("name", METHODS)
def test_fault_41_methods_that_need_every_cell_are_refused_with_a_quorum(name):
    federation, method = biased(0), short(name)
    problem = make_problem(Local(federation), pffl.BoundedGroupLoss(0.6))

    class Gaps(Local):
        """Leave the losses of all cells out, as a partial round does."""

        def ask_many(self, queries):
            totals = super().ask_many(queries)
            return [
                replace(total, cell_losses=np.full_like(total.cell_losses, np.nan))
                if isinstance(query, Train)
                else total
                for query, total in zip(queries, totals, strict=True)
            ]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            ended = iterate(Gaps(federation), problem, method)
            steps = ended.stopped is None and bool(np.isfinite(ended.point.w).all())
        except IndexError:  # no place for NaN on the simplex
            steps = False
    assert steps == METHODS[name].steps_without_some
    if not steps:
        engine = remote(federation, policy=TWO)
        with raises(UsageError, "quorum-refused"):
            pffl.solve(engine, pffl.BoundedGroupLoss(0.6), method=method)


def test_fault_41_a_quorum_goes_with_full_participation_only():
    engine = remote(biased(0), policy=TWO)
    with raises(UsageError, "quorum-refused", "1"):
        pffl.solve(engine, None, method=pffl.FedAvg(participation=0.5))


def test_fault_42_a_silo_that_stays_away_ends_the_run():
    federation = biased(0)
    sites = sites_of(federation)
    engine = remote(federation, sites, policy=replace(TWO, patience=2, seconds=0.5))
    _, query = ask(engine)
    engine.ask(query)
    del sites["node 0"]
    for _ in range(2):
        engine.ask(query)
    with raises(FederationError, "participation-lost", "site 0"):
        engine.ask(query)
    assert last(engine)["event"] == "participation_lost"
    assert last(engine)["silos"] == ["site 0"]


def test_fault_43_a_duplicate_counts_once():
    federation = biased(0)

    class Twice:
        def __init__(self, transport):
            self.addresses, self.inner = transport.addresses, transport

        def exchange(self, requests, seconds, kind):
            for reply in self.inner.exchange(requests, seconds, kind):
                yield from (reply, reply)

    engine = remote(federation, policy=ONCE, wrap=Twice)
    _, query = ask(engine)
    total = engine.ask(query)
    assert_same_total(total, Local(federation).ask(query), 1e-10)
    assert reasons(engine, "site 0") == ["duplicate: counted once"]
    assert last(engine)["answered"] == ["site 0", "site 1", "site 2"]


def test_fault_44_a_late_reply_of_an_earlier_round_is_discarded():
    federation, kept = biased(0), []

    class Late:
        def __init__(self, transport):
            self.addresses, self.inner = transport.addresses, transport

        def exchange(self, requests, seconds, kind):
            yield from list(kept)
            for reply in self.inner.exchange(requests, seconds, kind):
                kept.append(reply)
                yield reply

    engine = remote(federation, policy=ONCE, wrap=Late)
    _, query = ask(engine)
    engine.ask(query)
    kept[:] = kept[-3:]
    other = replace(query, w=query.w * 3)
    total = engine.ask(other)
    assert_same_total(total, Local(federation).ask(other), 1e-10)
    assert reasons(engine) == ["late: an answer to an earlier query"]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("run", "another", "another run"),
        ("schema", "f" * 64, "ffffffffffff"),
        ("silo", "site 0", "'site 0'"),
        ("sequence", 10**6, "never asked"),
    ],
)
def test_fault_45_a_reply_for_another_run_or_schema_is_refused(field, value, reason):
    engine = spoiled(header={field: value}, policy=TWO)
    engine.ask(ask(engine)[1])
    (seen,) = reasons(engine)
    assert reason in seen
    assert last(engine)["answered"] == ["site 0", "site 2"]


def first(arrays, name, change):
    return {**arrays, name: change(arrays[name])}


SHAPES = {
    "wrong shape": lambda a: first(a, "update", lambda v: v[:-1]),
    "broadcastable": lambda a: first(a, "update", lambda v: v[None]),
    "one number": lambda a: first(a, "update", lambda v: v[:1]),
    "wrong type": lambda a: first(a, "update", lambda v: v.astype(np.float32)),
    "whole numbers": lambda a: first(a, "update", lambda v: v.astype(np.int64)),
    "extra key": lambda a: {**a, "rows": np.zeros(3)},
    "missing key": lambda a: {k: v for k, v in a.items() if k != "risk"},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_fault_46_wrong_shapes_types_and_keys_are_refused(shape):
    engine = spoiled(change=SHAPES[shape], policy=TWO)
    _, query = ask(engine)
    total = engine.ask(query)
    assert len(reasons(engine)) == 1
    part = Local(biased(0)).ask(replace(query, silos=(0, 2)))
    np.testing.assert_allclose(total.update, part.update, atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("name", ["update", "cell_losses", "powers"])
def test_fault_47_numbers_that_are_not_finite_are_refused(name, value):
    def change(arrays):
        arrays[name][0] = value
        return arrays

    engine = spoiled(change=change, policy=TWO)
    total = engine.ask(ask(engine)[1])
    assert np.isfinite(total.update).all()
    assert len(reasons(engine)) == 1


def test_fault_48_counts_that_change_after_the_census_are_refused():
    def grow(arrays):
        arrays["atoms"][0, 0] += 1
        return arrays

    engine = spoiled(kinds=("evaluate",), change=grow)
    problem, query = ask(engine)
    with pytest.raises(FederationError, match="counts changed since the census"):
        engine.ask(Evaluate(problem.task, query.w))


@pytest.mark.parametrize("factor", [-1.0, 0.0, 1e3])
def test_fault_49_a_loss_sum_that_cannot_be_is_refused(factor):
    def change(arrays):
        arrays["cell_losses"] *= factor
        arrays["risk"] *= factor
        arrays["powers"][0] *= factor if factor < 0 else 1
        return arrays

    engine = spoiled(change=change, policy=TWO)
    engine.ask(ask(engine)[1])
    assert reasons(engine) == ["a loss sum outside what is possible"]


def test_fault_50_long_updates_are_clipped_and_far_longer_ones_refused():
    federation = biased(0)
    engine = remote(federation, policy=ONCE)
    _, query = ask(engine)
    honest = engine.ask(replace(query, silos=(1,)))
    norm = np.linalg.norm(honest.update) / honest.share
    limit = float(10 * norm)
    share = float(honest.share)
    for over, clipped in ((3.0, True), (200.0, False)):
        factor = over * limit / norm
        engine = spoiled(
            change=lambda a, f=factor: first(a, "update", lambda u: f * u),
            policy=replace(ONCE, quorum=1, update_clip=limit),
        )
        total = engine.ask(replace(query, silos=(0, 1)))
        assert (last(engine)["clipped"] == ["site 1"]) is clipped
        assert bool(reasons(engine)) is not clipped
        rest = engine.ask(replace(query, silos=(0,)))
        moved = np.linalg.norm(total.update - rest.update)
        np.testing.assert_allclose(moved, share * limit * clipped, rtol=1e-6)


def test_fault_51_oversized_messages_are_refused_before_memory_is_given():
    announced = {"dtype": "F64", "shape": [1 << 28], "data_offsets": [0, 1 << 31]}
    tables = [
        {"__metadata__": {HEADER: "{}"}, "update": announced},
        {
            "__metadata__": {HEADER: "{}"},
            **{
                f"a{i}": {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}
                for i in range(5_000)
            },
        },
    ]
    texts = [json.dumps(table).encode() for table in tables]
    contents = [len(text).to_bytes(8, "little") + text for text in texts]
    contents.append((1 << 31).to_bytes(8, "little") + b"{}")
    million = 60 << 20  # bytes of a header with a million arrays
    contents.append(million.to_bytes(8, "little") + bytes(million))
    federation = biased(0)
    for content in contents:
        sites = sites_of(federation)
        engine = remote(federation, sites, policy=replace(TWO, seconds=60.0))
        _, query = ask(engine)
        sites["node 1"] = lambda _, content=content: content
        tracemalloc.start()
        engine.ask(query)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 << 20
        assert reasons(engine)[0].startswith("not an answer")
    small = replace(TWO, largest_message=2000)
    engine = spoiled(
        body=lambda p: Parcel(p.header, {**p.arrays, "big": np.zeros(1000)}),
        policy=small,
    )
    engine.ask(ask(engine)[1])
    assert "at most 2,000 are accepted" in reasons(engine)[0]


def constant(arrays):
    arrays["update"][:] = 0.01
    return arrays


ATTACKS = {
    "sign flip": lambda a: first(a, "update", lambda u: -u),
    "a thousand times": lambda a: first(a, "update", lambda u: 1000 * u),
    "constant": constant,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_fault_52_an_attack_on_updates_is_bounded_and_recorded(attack):
    """One silo moves w by at most p_k × (the clip + its honest update) a round."""
    federation = biased(0, sizes=(120, 100, 110, 90, 80), pull=0.0)
    sites = sites_of(federation)
    sites["node 1"] = spoil(sites["node 1"], change=ATTACKS[attack])
    limit = 1.0
    engine = remote(federation, sites, policy=replace(ONCE, quorum=4, update_clip=1.0))
    problem, query = ask(engine, w=0.0)
    marks = set()
    for _ in range(2):
        total = engine.ask(query)
        honest = Local(federation).ask(query)
        moved = total.update / total.share
        far = np.linalg.norm(moved - honest.update)
        alone = Local(federation).ask(replace(query, silos=(1,)))
        own = np.linalg.norm(alone.update)
        # A refused report leaves the mean of the others: no more than p_k/(1 − p_k).
        others = np.linalg.norm(honest.update)
        p = problem.task.shares[1]
        assert far <= p * limit + own + p / (1 - p) * (others + own)
        entry = last(engine)
        marks |= {"clipped" for name in entry["clipped"] if name == "site 1"}
        marks |= {"refused" for name, _ in entry["refused"] if name == "site 1"}
        query = replace(query, w=query.w + honest.update)
    assert bool(marks) == (attack == "a thousand times")


def test_fault_52_false_group_losses_are_refused_or_bounded():
    """False sums stay inside the census's range."""
    federation = biased(0)

    def flatter(arrays):
        """Move what one group loses to the other, so that the sum still fits."""
        losses = arrays["cell_losses"]
        losses[:] = losses + np.array([-1.0, 1.0]) * 0.5 * losses[0]
        return arrays

    engine = spoiled(change=flatter, policy=TWO)
    _, query = ask(engine, w=0.0)
    engine.ask(query)  # at w = 0 every loss is log 2: there is no room for a lie
    assert reasons(engine) == ["a loss sum outside what is possible"]
    engine = remote(federation, sites := sites_of(federation), policy=TWO)
    _, query = ask(engine, w=0.3)
    true = engine.ask(query)
    sites["node 1"] = spoil(sites["node 1"], change=flatter)
    nearby = replace(query, w=query.w * 1.01)
    false = engine.ask(nearby)
    known = engine.gate.known(nearby, 1)
    low, high = known.ceilings.losses(nearby.w, known.sizes)
    slack = np.abs(true.cell_losses) * 0.02
    assert (np.abs(false.cell_losses - true.cell_losses) <= high - low + slack).all()
    text = json.dumps(list(engine.record.entries))
    assert str(false.cell_losses[0])[:8] not in text


def test_fault_56_too_few_nodes_are_waited_for_and_named():
    federation = biased(0)
    sites = sites_of(federation)
    del sites["node 2"]
    engine = remote(federation, sites, policy=replace(QUICK, join_seconds=0.4))
    started = time.monotonic()
    with raises(FederationError, "sites-missing", "1 of 3", "'site 2'") as error:
        counted(engine)
    assert 0.4 <= time.monotonic() - started < 3
    assert error.value.exit_code == 5
    assert last(engine)["missing"] == ["site 2"]


def test_fault_57_another_version_is_refused_at_the_handshake():
    engine = spoiled(kinds=("census",), header={"version": "9.9.9"})
    started = time.monotonic()
    with raises(FederationError, "sites-missing", "9.9.9"):
        counted(engine)
    assert time.monotonic() - started < 2  # no use in waiting


def test_fault_58_deadlines_do_not_follow_the_wall_clock(monkeypatch):
    jumps = iter(range(10**9, 10**12, 10**6))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    federation = biased(0)
    engine = remote(federation, policy=replace(QUICK, seconds=2.0, join_seconds=2.0))
    _, query = ask(engine)
    assert_same_total(engine.ask(query), Local(federation).ask(query), 1e-10)
    sites = sites_of(federation)
    del sites["node 0"]
    started = time.monotonic()
    with raises(FederationError, "sites-missing", "'site 0'"):
        counted(remote(federation, sites, policy=replace(QUICK, join_seconds=0.3)))
    assert 0.3 <= time.monotonic() - started < 2


@pytest.mark.parametrize("name", ["exact", "pffl", "fedavg", "fcfl", "reductions"])
def test_methods_survive_faults_that_pass(name):
    federation, method = biased(2), short(name)
    constraint = CONSTRAINTS["bgl"]
    faults = []

    def wrap(transport):
        faults.append(Faulty(transport, seed=len(name), rate=0.3))
        return faults[0]

    engine = remote(federation, policy=replace(QUICK, retries=4), wrap=wrap)
    there = run(engine, constraint, method)
    here = run(Local(federation), constraint, method)
    np.testing.assert_allclose(there.w, here.w, rtol=0, atol=1e-10)
    assert there.rounds == here.rounds
    assert sum(faults[0].done.values()) > 5
    refused = {
        reason for entry in engine.record.entries for _, reason in entry["refused"]
    }
    assert refused


def test_the_record_is_one_json_line_a_query_and_tells_no_figures(tmp_path):
    path = tmp_path / "record.jsonl"
    federation = biased(0)
    engine = remote(federation, policy=ONCE, record=Record(path), session=4)
    _, query = ask(engine)
    total = engine.ask(query)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["query"] for line in lines] == ["census", "train"]
    assert all(line["session"] == 4 for line in lines)
    assert [line["round"] for line in lines] == [1, 2]
    entry = lines[-1]
    assert entry["asked"] == entry["answered"] == list(federation.silo_names)
    assert entry["bytes_sent"] > 0 < entry["bytes_received"]
    assert entry["seconds"] > 0
    for silo in federation.silo_names:
        for way in ("requests", "answers"):
            (digest,) = entry["messages"][silo][way]
            assert len(digest) == 64
    for number in (*total.cell_losses, total.risk, *total.update):
        assert f"{number:.6g}"[:6] not in path.read_text()
