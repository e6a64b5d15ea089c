"""The engine over sites: the same run as in one process, whatever sites do."""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
import types
import warnings
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import pffl
from pffl._solve import open_engine, setting_of
from pffl.deploy import InMemory, Limits, Reply
from pffl.engines import Local, Reference
from pffl.errors import ArtefactError, DataError, FederationError, UsageError
from pffl.methods import METHODS, PFFL, Exact, FedAvg, FirstOrder
from pffl.models import LogisticRegression
from pffl.prepare import Options
from pffl.queries import Census, Evaluate, Expand, Policy, Pool, Train
from pffl.tensors import HEADER
from tests.deploy.sites import (
    OPEN,
    agree,
    answers,
    counted,
    engine_of,
    remote,
    sites_of,
)
from tests.deploy.spoiling import Faulty, spoil
from tests.helpers import assert_same_total, from_silos, make_federation, make_problem
from tests.inside import STATE, RunLog, read_request, secured
from tests.methods.biased import biased
from tests.raising import raises

QUICK = Policy(seconds=5.0, join_seconds=5.0, retries=0)
BGL, CBGL = pffl.BoundedGroupLoss(0.62), pffl.ConditionalBoundedGroupLoss(0.7)
LOOSE, STRONG = pffl.BoundedGroupLoss(0.68), LogisticRegression(l2=0.1)
BARE = Options(baseline=False, smallest_bound=False)
STEPS = PFFL(dual_rounds=3, rounds_per_dual=4, local_steps=3, step_size=0.1)
FEW = {"rounds": 4, "dual_rounds": 4, "rounds_per_dual": 2, "iterations": 3}
FEW |= {"stage_one_rounds": 4, "stage_two_rounds": 2}
#: Methods that look at single silos.
LOOKING = ("afl", "fairfed", "fcfl", "fedfair", "local-bgl")


def short(name):
    """Return a method with few rounds."""
    kind = METHODS[name]
    return kind(**{k: n for k, n in FEW.items() if k in kind.__dataclass_fields__})


def run(engine, constraint, method, model=None):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "cells with fewer than 10")
        return pffl.solve(
            engine, constraint, method=method, model=model, random_state=3
        )


def ask(engine, w=0.1, **changes):
    """A problem, and a `train` query over an engine."""
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.6))
    weights = problem.cell_weights(np.ones(problem.n_cells))
    start = np.full(problem.n_parameters, w)
    query = Train(problem.task, start, 1.0, weights, np.full(2, 0.1))
    return problem, replace(query, **changes)


def last(engine):
    return engine.record.entries[-1]


# The same run, without masks and with them


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("constraint", [BGL, CBGL], ids=["bgl", "cbgl"])
def test_every_method_ends_where_it_ends_locally(name, constraint):
    federation, method = biased(2), short(name)
    engine = remote(federation)
    there = run(engine, constraint, method)
    here = run(Local(federation), constraint, method)
    np.testing.assert_allclose(there.w, here.w, rtol=0, atol=1e-10)
    np.testing.assert_allclose(there.multipliers, here.multipliers, rtol=0, atol=1e-9)
    assert (there.status, there.rounds) == (here.status, here.rounds)
    assert not any(entry["refused"] for entry in engine.record.entries)


def test_every_site_answers_every_step():
    with raises(UsageError, "not-over-sites"):
        run(remote(biased(0)), None, FedAvg(rounds=5, participation=0.5))


@pytest.mark.parametrize(
    ("method", "weighting", "constraint"),
    [
        (Exact(), "silos", LOOSE),
        (Exact(), "rows", pffl.ConditionalBoundedGroupLoss(0.9)),
        (FirstOrder(target_gap=1e-15), "silos", CBGL),
        (STEPS, "silos", LOOSE),
        (replace(STEPS, batch_size=7), "rows", CBGL),
        (METHODS["qffl"](q=1.0, rounds=2, step_size=0.1), "silos", LOOSE),
        (METHODS["pooled"](), "silos", LOOSE),
    ],
    ids=["exact", "exact by rows", "first-order", "pffl", "batches", "qffl", "pooled"],
)
def test_a_run_under_secure_sums_is_the_run_without(method, weighting, constraint):
    federation = make_federation(3, sizes=(120, 100, 160, 110))  # none below the floor
    options = replace(BARE, weighting=weighting)
    asked = {"model": STRONG, "options": options, "random_state": 1}
    plain = pffl.solve(federation, constraint, method=method, **asked)
    secure = pffl.solve(federation, constraint, method=method, secure_sum=True, **asked)
    np.testing.assert_allclose(secure.w, plain.w, rtol=0, atol=1e-9)
    assert secure.status == plain.status
    if isinstance(method, Exact | FirstOrder):
        assert secure.gap <= max(1e-10, plain.gap + 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("data", ["compas 3", "compas 10", "adult 3"])
@pytest.mark.parametrize("constraint", [BGL, pffl.ConditionalBoundedGroupLoss(0.75)])
def test_real_data_are_the_same_under_secure_sums(data, constraint):
    """Over the same rows: a floor of 10 leaves out people of COMPAS at 10 sites.

    The model is compared with that of sites without masks, which are asked the same:
    in one process `Exact` takes products of large Hessians. So it is compared where
    rounding ends the run; the status where a run ends, with that in one process.
    """
    name, silos = data.split()
    federation = getattr(pffl.datasets, name)(silos=int(silos))

    def solved(method, plain):
        engine = secured(federation, constraint=constraint, floor=1)
        asked = {"method": method, "random_state": 1}
        return [pffl.solve(one, constraint, **asked) for one in (plain, engine)]

    plain, secure = solved(Exact(target_gap=1e-12), remote(federation))
    np.testing.assert_allclose(secure.w, plain.w, rtol=0, atol=1e-9)
    assert abs(secure.gap - plain.gap) <= 1e-9
    plain, secure = solved(Exact(), federation)
    assert abs(secure.gap - plain.gap) <= 1e-6
    assert secure.status == plain.status
    assert secure.status in ("met", "impossible")


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        ("not-with-secure-sums", {"constraint": pffl.PerSilo(0.7)}),
        ("not-with-secure-sums", {"constraint": LOOSE & pffl.PerSilo(0.7)}),
        ("not-with-secure-sums", {"method": PFFL(participation=0.5)}),
        *(("not-with-secure-sums", {"method": name}) for name in LOOKING),
        ("auto-refused", {"constraint": pffl.BoundedGroupLoss("auto")}),
        ("wrong-engine", {"engine": "reference"}),
    ],
)
def test_what_needs_single_silos_is_refused_before_anything_is_asked(code, asked):
    assert {n for n, kind in METHODS.own.items() if kind.looks_at_silos} == {*LOOKING}
    constraint = asked.pop("constraint", LOOSE)
    with raises(UsageError, code):
        pffl.solve(make_federation(0), constraint, secure_sum=True, **asked)


def test_two_sites_and_a_missing_key_are_refused():
    federation = make_federation(0)
    with raises(DataError, "too-few-sites", "3", "2"):
        pffl.solve(make_federation(0, sizes=(40, 25)), LOOSE, secure_sum=True)
    agreed = agree(federation)
    with raises(DataError, "missing-key"):
        engine_of({}, replace(agreed, keys={}))
    with raises(UsageError, "wrong-engine"):
        pffl.solve(open_engine(federation, "local"), LOOSE, secure_sum=True)


# What the server holds, and says


def test_no_single_sites_figures_are_at_the_server(tmp_path):
    federation = make_federation(5, sizes=(41, 26, 63))
    agreed = agree(federation)
    told: list[np.ndarray] = []
    sites = sites_of(federation, agreed)
    for site in sites.values():
        overheard(site, told)
    record = RunLog(tmp_path / "record.jsonl")
    engine = engine_of(sites, agreed, record=record, folder=tmp_path)
    found = pffl.solve(
        engine, LOOSE, method=Exact(), random_state=0, checkpoint=tmp_path
    )
    secret = single_figures(told)
    assert len(secret) > 500
    engine._transport = None  # the sites are in this process, the server elsewhere
    held = [*figures_held([engine, found])]
    assert len(held) > 5000  # totals among them
    assert [value for value in held if value in secret] == []
    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert {"record.jsonl", STATE} <= {p.name for p in tmp_path.rglob("*")}
    text = b"\n".join(texts)
    for value in list(secret)[::7]:
        assert repr(value).encode() not in text
        assert np.float64(value).tobytes() not in text
        assert np.float64(value).tobytes().hex().encode() not in text


def overheard(site, told):
    """Note what a site would say without masks."""
    inner = site._totals

    def noting(*asked):
        totals = inner(*asked)
        told.extend(np.ravel(a) for total in totals for a in total.arrays().values())
        return totals

    site._totals = noting


def single_figures(told) -> set[float]:
    """Figures that tell something: no short fractions such as ½, and no p_k = 1/3."""
    every = 64 * np.concatenate(told).astype(np.float64)
    return set((every[every != np.round(every)] / 64).tolist()) - {1 / 3}


def figures_held(roots):
    """Every number in every object that can be reached, also inside bytes."""
    skip = (type, types.ModuleType, types.FunctionType, types.CodeType)
    seen, todo = set(), list(roots)
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, skip):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray) and one.dtype.kind in "fiu":
            if one.dtype == np.float64 or one.dtype.itemsize != 8:
                yield from np.ravel(one).astype(np.float64).tolist()
            else:
                yield from np.ravel(one).view(np.float64).tolist()
        elif isinstance(one, float):
            yield one
        elif isinstance(one, bytes) and len(one) >= 8:
            for shift in range(8):
                end = shift + (len(one) - shift) // 8 * 8
                yield from np.frombuffer(one[shift:end], np.float64).tolist()
        todo += gc.get_referents(one)


def test_what_is_said_of_secure_sums():
    federation = make_federation(3)
    found = pffl.solve(federation, LOOSE, secure_sum=True, random_state=0)
    said = [note for note in found.evidence.notes if "secure sum of 3 sites" in note]
    assert len(said) == 1
    assert found.evidence.data.silos == 3
    assert "site 1" not in json.dumps(found.evidence.as_dict())
    agreed = agree(federation, floor=30)
    engine = engine_of(sites_of(federation, agreed), agreed)
    with pytest.raises((DataError, FederationError)):  # nobody is left: never "met"
        pffl.solve(engine, LOOSE, random_state=0)
    (said,) = [n for n in engine.notes if n.startswith("left out at sites with")]
    assert "30" in said
    assert "87" in said
    assert setting_of(engine).access.pooled == 3


def test_a_sum_that_no_rows_have_ends_the_run():
    federation = make_federation(3)
    agreed = agree(federation)
    sites = sites_of(federation, agreed)
    inner = sites["site 1"]._totals

    def negative(*asked):
        for total in inner(*asked):
            if np.size(getattr(total, "losses", 0)) > 1:
                total.losses[1:] *= -9
            yield total

    sites["site 1"]._totals = lambda *asked: list(negative(*asked))
    with raises(FederationError, "implausible-sum") as e:
        pffl.solve(engine_of(sites, agreed), LOOSE, method=Exact(), random_state=0)
    assert e.value.exit_code == 5


def test_counts_come_first_and_many_queries_take_several_steps():
    federation = make_federation(3, sizes=(60, 60, 60))
    problem = make_problem(Reference(federation), LOOSE)
    task = replace(problem.task, shares=np.ones(1), pool=Pool(3, False, 180.0))
    posed = [Expand(task, np.full(4, i / 30)) for i in range(30)]
    agreed, asked = agree(federation), []
    sites = sites_of(federation, agreed)
    first = sites["site 0"].answer

    def heard(content):
        asked.append(read_request(content).kinds)
        return first(content)

    transport = InMemory({**answers(sites), "site 0": heard})
    engine = engine_of(sites, agreed, transport=transport)
    census, *rest = engine.ask_many([Census(federation.schema), *posed])
    assert census.counts.sum() == 180
    assert len({float(total.losses[0]) for total in rest}) == 30
    engine.ask_many([Census(federation.schema), posed[0]])  # the census is frozen
    steps = [("census",) * 2, ("expand",) * 24, ("expand",) * 6, ("expand",)]
    assert asked == [("hello",), *steps]
    with raises(UsageError, "unknown-split"):
        counted(engine, "validation")


# Sites that stray


def put(name, value, where=0):
    """Put a value into an array of an answer."""

    def change(arrays):
        arrays[name][where] = value
        return arrays

    return {"change": change}


def other(name, change):
    return {"change": lambda arrays: {**arrays, name: change(arrays[name])}}


def without(name):
    return {"change": lambda a: {k: v for k, v in a.items() if k != name}}


ZERO = "0" * 64
#: What a site spoils, in answers to which query, under masks or not.
SPOILT = {
    "wrong shape": ("train", 0, other("update", lambda v: v[:-1])),
    "broadcastable": ("train", 0, other("update", lambda v: v[None])),
    "wrong type": ("train", 0, other("update", np.float32)),
    "extra key": ("train", 0, {"change": lambda a: {**a, "x": a["risk"]}}),
    "missing key": ("train", 0, without("risk")),
    "nan": ("train", 0, put("update", np.nan)),
    "infinity": ("train", 0, put("cell_losses", np.inf)),
    "too large": ("train", 0, put("powers", 1e200)),
    "negative losses": ("train", 0, other("cell_losses", lambda v: -v)),
    "changed counts": ("evaluate", 0, put("strata", 1e6, (0, 0))),
    "no totals": ("census", 1, {"header": {"bodies": ()}}),
    "another federation": ("hello", 0, {"header": {"transcript": ZERO}}),
    "another transcript": ("census", 1, {"header": {"transcript": ZERO}}),
    **{
        f"another {field} at {kind}": (kind, 1, {"header": {field: value}})
        for field, value in {"step": 7, "asked": ZERO, "run": "x"}.items()
        for kind in ("hello", "census")
    },
    "no signature at hello": ("hello", 1, {"sign": False}),
    "no signature at census": ("census", 1, {"sign": False}),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_answer_is_refused_by_the_name_of_its_site(name):
    kind, masked, how = SPOILT[name]
    federation = make_federation(3) if masked else biased(0)
    agreed = agree(federation, secure_sum=bool(masked), floor=0)
    sites = sites_of(federation, agreed)
    sites["site 1"] = spoil(sites["site 1"], (kind,), **how)
    policy = replace(QUICK, seconds=1.0, join_seconds=0.1)
    engine = engine_of(sites, agreed, policy=policy)
    with raises(FederationError, "sites-missing", "site 1") as e:
        if masked or kind == "hello":
            counted(engine)
        problem, query = ask(engine)
        engine.ask(
            query if kind == "train" else Evaluate(problem.task, query.w, "test")
        )
    assert e.value.exit_code == 5
    assert last(engine)["refused"]
    if kind in ("train", "evaluate"):
        assert [who for who, _ in last(engine)["refused"]] == ["site 1"]
        assert last(engine)["answered"] == ["site 0", "site 2"]


def test_oversized_messages_are_refused_before_memory_is_given():
    announced = {"dtype": "F64", "shape": [1 << 28], "data_offsets": [0, 1 << 31]}
    none, about = {**announced, "shape": [0], "data_offsets": [0, 0]}, {HEADER: "{}"}
    tables = [{"update": announced}, {f"a{i}": none for i in range(5_000)}]
    texts = [json.dumps({"__metadata__": about, **one}).encode() for one in tables]
    contents = [len(text).to_bytes(8, "little") + text for text in texts]
    contents.append((1 << 31).to_bytes(8, "little") + b"{}")
    contents.append((60 << 20).to_bytes(8, "little") + bytes(60 << 20))
    for content in contents:
        engine = remote(biased(0), policy=QUICK)
        _, query = ask(engine)
        engine._transport.sites["site 1"] = lambda _, content=content: content
        tracemalloc.start()
        with raises(FederationError, "sites-missing", "not an answer"):
            engine.ask(query)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 << 20


def test_a_site_that_raises_is_named_and_its_words_stay_there():
    engine = remote(biased(0), policy=QUICK)
    _, query = ask(engine)

    def broken(content):
        raise ZeroDivisionError("row 7 of Ms Smith")

    engine._transport.sites["site 1"] = broken
    with raises(FederationError, "sites-missing", "'site 1'", "ZeroDivision"):
        engine.ask(query)
    assert "Smith" not in json.dumps(list(engine.record.entries))


def heard(site, said, content):
    """Note what a site is asked."""
    said.append(content)
    return site.answer(content)


def test_a_site_that_refuses_ends_the_run_by_its_name_and_is_not_asked_again():
    federation = biased(0)
    header = {"refusal": "no\nmore \x1b[2J queries", "bodies": ()}
    for kinds in (("train",), ("hello",)):
        said = []

        engine = remote(federation)
        sites = engine._transport.sites
        spoilt = spoil(SimpleNamespace(answer=sites["site 2"]), kinds, header=header)
        sites["site 2"] = partial(heard, spoilt, said)
        told = ("'site 2'", "no more  [2J queries")
        with raises(FederationError, "site-refused", *told):
            engine.ask(ask(engine)[1])
        assert sum(read_request(c).kinds == kinds for c in said) == 1


def test_sites_that_are_not_there_are_waited_for_and_named(monkeypatch):
    jumps = iter(range(10**9, 10**12, 10**6))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))  # no wall clock
    engine = remote(biased(0), policy=replace(QUICK, join_seconds=0.4))
    del engine._transport.sites["site 2"]
    started = time.monotonic()
    with raises(FederationError, "sites-missing", "1 of 3", "site 2") as error:
        counted(engine)
    assert 0.4 <= time.monotonic() - started < 3
    assert error.value.exit_code == 5


def test_strangers_namesakes_and_new_addresses():
    federation = biased(0)
    engine = remote(federation)
    sites = engine._transport.sites
    silo = replace(federation.silos[0], name="mallory")
    stranger = from_silos(federation, [silo])
    other = sites_of(stranger, agree(stranger, secure_sum=False))
    sites["node x"] = next(iter(other.values())).answer
    assert counted(engine).rows.tolist() == [120, 50, 200]
    _, query = ask(engine)
    whole = Local(federation).ask(query)
    assert_same_total(engine.ask(query), whole, 1e-10)
    sites["node 7"] = sites.pop("site 1")  # a restarted node has a new address
    assert_same_total(engine.ask(query), whole, 1e-10)
    twice = remote(federation)
    twice._transport.sites["node y"] = twice._transport.sites["site 1"]
    with raises(FederationError, "repeated-site", "site 1"):
        counted(twice)


def test_sites_whose_rows_are_all_below_the_floor_refuse_by_name():
    engine = remote(biased(0), limits=Limits(floor=70))
    with raises(FederationError, "site-refused", "'site 0'", "floor"):
        counted(engine)


def test_a_record_that_cannot_be_written_stops_the_run(tmp_path):
    engine = remote(biased(0), record=RunLog(tmp_path / "missing" / "record.jsonl"))
    with raises(ArtefactError, "cannot-write"):
        counted(engine)


# Transports that lose, hold, repeat and shuffle


class Shuffled:
    """Replies in another order every time, each of them twice."""

    def __init__(self, transport):
        self.inner, self.addresses = transport, transport.addresses
        self.send = transport.send
        self.random = np.random.default_rng(0)

    def receive(self):
        replies = list(self.inner.receive()) * 2
        yield from (replies[i] for i in self.random.permutation(len(replies)))


def test_the_order_of_arrival_changes_no_bit():
    federation = biased(0, sizes=(40, 50, 60, 70, 80, 90, 45))
    engine = remote(federation, wrap=Shuffled)
    _, query = ask(engine)
    total = engine.ask(query)
    orders = {tuple(last(engine)["answered"])}
    for _ in range(3):
        assert_same_total(engine.ask(query), total, 0.0)
        orders.add(tuple(last(engine)["answered"]))
    assert len(orders) > 1


@pytest.mark.parametrize(
    ("name", "secure"),
    [("exact", 0), ("exact", 1), ("pffl", 0), ("pffl", 1), ("fcfl", 0)],
)
def test_methods_survive_faults_that_pass(name, secure):
    federation, method = biased(2, sizes=(120, 150, 200)), short(name)
    agreed = agree(federation, secure_sum=bool(secure), floor=0)
    sites = sites_of(federation, agreed, rules=replace(OPEN, radius=1e9, queries=10**6))
    faulty = Faulty(InMemory(answers(sites)), seed=len(name), rate=0.3)
    policy = Policy(seconds=0.4, join_seconds=5.0, retries=6)
    engine = engine_of({}, agreed, transport=faulty, policy=policy)
    there = run(engine, BGL, method)
    here = run(Local(federation), BGL, method)
    np.testing.assert_allclose(there.w, here.w, rtol=0, atol=1e-9)
    assert there.rounds == here.rounds
    assert sum(faulty.done.values()) > 5
    assert any(entry["refused"] for entry in engine.record.entries)


class Dropping(InMemory):
    """Ends the server's process at its n-th call of a site; a site may stay away."""

    def __init__(self, sites, *, after=None, away=()):
        super().__init__(sites)
        self.calls, self.after, self.away = 0, after, away

    def receive(self):
        while self._sent:
            address, content = self._sent.popleft()
            self.calls += 1
            if self.calls == self.after:
                raise MemoryError("killed")
            kinds = read_request(content).kinds
            if not any((address, kind) in self.away for kind in kinds):
                yield Reply(address, self.sites[address](content))


def test_a_site_that_stays_away_ends_the_run_and_no_sum_is_over_fewer(tmp_path):
    federation = make_federation(3)
    agreed = agree(federation)
    sites = sites_of(federation, agreed)
    away = Dropping(answers(sites), away=[("site 2", "expand")])
    policy = Policy(seconds=0.3, join_seconds=1.0)
    engine = engine_of({}, agreed, transport=away, folder=tmp_path, policy=policy)
    with raises(FederationError, "sites-missing", "2 of 3", "'site 2'") as e:
        pffl.solve(engine, LOOSE, method=Exact(), random_state=0)
    assert e.value.exit_code == 5
    assert sites["site 0"].records.memory[engine.run].step == 2  # asked once, kept


@pytest.mark.parametrize(
    ("secure", "every"),
    [(True, 23), (False, 23), pytest.param(True, 1, marks=pytest.mark.slow)],
)
def test_a_server_that_stops_anywhere_goes_on_to_the_same_model(
    tmp_path, secure, every
):
    federation = make_federation(3, sizes=(80, 65, 90))
    agreed = agree(federation, floor=3, secure_sum=secure)

    def sat(folder, sites, after=None):
        transport = Dropping(answers(sites), after=after)
        known = {"transport": transport, "run": "r", "folder": folder / "steps"}
        engine = engine_of({}, agreed, **known)
        method = PFFL(dual_rounds=2, rounds_per_dual=2, step_size=0.1)
        known = {"method": method, "options": BARE, "random_state": 4}
        found = pffl.solve(engine, LOOSE, checkpoint=folder / "stopped", **known)
        return found, transport.calls

    whole, calls = sat(tmp_path / "whole", sites_of(federation, agreed))
    for after in range(4, calls + 1, every):
        sites, folder = sites_of(federation, agreed), tmp_path / str(after)
        with pytest.raises(MemoryError):
            sat(folder, sites, after)
        found, again = sat(folder, sites)
        assert np.array_equal(found.w, whole.w)
        assert found.evidence.seen == whole.evidence.seen
        assert again <= calls - after + 1 + 3 + 3  # who is there, and the last step


def test_what_a_server_goes_on_from_is_whole_or_refused(tmp_path):
    federation = make_federation(3)
    agreed = agree(federation)
    sites = sites_of(federation, agreed)
    engine = engine_of(sites, agreed, run="r", folder=tmp_path)
    total = counted(engine)
    assert (tmp_path / STATE).stat().st_mode & 0o777 == 0o600
    again = engine_of(sites, agreed, run="r", folder=tmp_path)
    assert_same_total(counted(again), total, 1e-12)
    content = (tmp_path / STATE).read_bytes()
    (tmp_path / STATE).write_bytes(content[:-9])
    with raises(ArtefactError, "bad-file"):
        engine_of(sites, agreed, run="r", folder=tmp_path)
