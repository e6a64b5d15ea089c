"""A site: its limits, its floor, its steps, and noise inside secure sums."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import pffl
from pffl.deploy import Limits, Site, SiteKey
from pffl.errors import FederationError, PrivacyBudgetError, UsageError
from pffl.queries import Census, Evaluate, Expand, Pool, Train
from tests.deploy import sites as made
from tests.deploy.sites import OPEN, Asker, Server, agree, noisy_census, sites_of
from tests.helpers import make_federation, make_schema
from tests.inside import (
    PROTOCOL,
    RunRecord,
    bodies_digest,
    read_answer,
    write_request,
)
from tests.raising import raises


def w_of(task: Any, size: float = 0.1) -> np.ndarray:
    return np.full(task.model.n_parameters, size)


# Steps


def test_a_step_is_answered_once_and_repeated_byte_for_byte(tmp_path):
    site = made.small_site(OPEN, tmp_path)
    task = made.problem_of(site).task
    asker, census = Asker(site), Census(site.schema)
    asked = write_request(asker.request(Expand(task, w_of(task), 2)))
    first = read_answer(site.answer(asked))
    assert not first.refusal
    other = Site(site.silo, site.agreement, OPEN, tmp_path)  # another process
    for one in (site, other):
        again = read_answer(one.answer(asked))
        assert bodies_digest(again.bodies) == bodies_digest(first.bodies)
    assert site.memory.queries == 1
    asker.step = 1
    for changes, said in (
        ({"step": 4}, "not the one after"),
        ({"step": 0}, "outside of any step"),
        ({"relay": (b"x",)}, "no secure sum"),
        ({"version": "9.9"}, "9.9"),
        ({"federation": "ab" * 32}, "abababababab"),
        ({"run": "other"}, "has not begun"),
    ):
        answer = asker.send(census, **changes)
        assert said in answer.refusal
        assert not answer.bodies
    moved = asker.send(Expand(task, w_of(task, 0.2)), step=1)
    assert "answered once" in moved.refusal
    content = write_request(asker.request(census))
    ours, theirs = (f'\\"protocol\\": {n}'.encode() for n in (PROTOCOL, PROTOCOL + 1))
    refusal = read_answer(site.answer(content.replace(ours, theirs))).refusal
    assert f"protocol {PROTOCOL}" in refusal
    assert not asker.send(census).refusal  # the honest one still is
    assert len(site.memory.entries("refusal")) == 8


def test_a_run_that_ended_does_not_begin_again(tmp_path):
    site = made.small_site(OPEN, tmp_path)
    asker = Asker(site)
    assert asker.ask(Census(site.schema)) is not None
    assert list((tmp_path / "runs").iterdir())
    assert not asker.send().refusal  # a step without queries
    assert not list((tmp_path / "runs").iterdir())
    hello = replace(asker.request(), step=0)
    assert "ended" in read_answer(site.answer(write_request(hello))).refusal


def test_garbage_is_refused_and_nothing_is_written(tmp_path):
    site = made.small_site(OPEN, tmp_path)
    for content in (b"", b"\0" * 64, (1 << 63).to_bytes(8, "little") + b"{}"):
        assert read_answer(site.answer(content)).refusal
    big = Site(site.silo, site.agreement, Limits(largest_message=100))
    assert "at most 100" in read_answer(big.answer(bytes(101))).refusal


# Limits over the life of the rows


def test_queries_are_counted_over_all_runs_and_processes(tmp_path):
    limits = Limits(floor=1, queries=3)
    site = made.small_site(limits, tmp_path)
    task = made.problem_of(site).task
    for run in ("a", "b"):
        asker = Asker(site, run)
        assert asker.ask(Census(site.schema)) is not None  # not counted
        assert asker.ask(Evaluate(task, w_of(task), "train")) is not None
    site = Site(site.silo, site.agreement, limits, tmp_path)
    asker = Asker(site, "c")
    assert asker.ask(Evaluate(task, w_of(task), "train")) is not None
    assert asker.ask(Evaluate(task, w_of(task, 0.3), "train")) is None
    assert "over all runs" in asker.refusals[0]


def test_norm_ball_batches_layouts_and_the_agreed_model(tmp_path):
    site = made.small_site(Limits(floor=1, radius=1.0, layouts=1))
    problem = made.problem_of(site)
    task, asker = problem.task, Asker(site)
    assert asker.ask(Expand(task, w_of(task, 0.1))) is not None
    assert asker.ask(Expand(task, w_of(task, 9.0))) is None
    weights = problem.cell_weights(np.ones(problem.n_cells))
    train = Train(task, w_of(task, 0.0), 1.0, weights, np.full(2, 0.1))
    assert asker.ask(replace(train, batch_size=20)) is None
    assert asker.ask(replace(train, step_sizes=np.full(2, 1e3))) is None
    other = replace(task, cells=replace(task.cells, membership=~task.cells.membership))
    assert asker.ask(Expand(other, w_of(task))) is None
    moved = replace(task.model.inputs, mean=task.model.inputs.mean + 1e6)
    far = replace(task, model=replace(task.model, inputs=moved))
    assert Asker(site, "far").ask(Expand(far, w_of(task))) is None
    said = " ".join(asker.refusals)
    for text in ("norm ball", "batches", "another layout"):
        assert text in said
    agreed = replace(site.agreement, run={"model": {"kind": "least-squares"}})
    strict = Asker(Site(site.silo, agreed, OPEN))
    assert strict.ask(Expand(task, w_of(task))) is None
    assert "another model" in strict.refusals[0]


def test_limits_that_are_weaker_than_the_default_are_named():
    assert Limits().weaker() == []
    weak = Limits(floor=1, queries=10**6, radius=1e9).weaker()
    assert [text.split(":")[0] for text in weak] == ["floor", "queries", "radius"]
    for wrong in ({"floor": -1}, {"queries": 1.5}, {"delta": 2.0}, {"radius": "x"}):
        with raises(UsageError, "wrong-value"):
            Limits(**wrong)


# The floor


VICTIM = 1  # stratum (f, class 1), which has one row


def probed(site: Any, size: float = 1.0) -> np.ndarray:
    """Ask for the loss at w = size·e_1 … size·e_p, and invert it for the one row."""
    task = made.problem_of(made.small_site(f1=1)).task
    learnt, asker = np.full(task.model.n_parameters, np.nan), Asker(site)
    for j, w in enumerate(size * np.eye(task.model.n_parameters)):
        answer = asker.send(Evaluate(task, w, "train"))
        assert not answer.refusal
        loss = answer.bodies[0].arrays["strata"][VICTIM, 1]
        learnt[j] = -np.log(np.expm1(loss)) / size if loss > 0 else np.nan
    return learnt


def test_floor_stops_a_probe_that_reads_a_record_without_it():
    site = made.small_site(f1=1)
    rows = site.silo.rows("train")
    strata = site.schema.strata(rows.group, rows.y)
    inputs = made.problem_of(site).task.model.inputs
    truth = np.append(inputs.apply(rows.X[strata == VICTIM])[0], 1.0)
    assert probed(made.small_site(OPEN, f1=1)) == pytest.approx(truth, rel=1e-9)
    assert np.isnan(probed(made.small_site(Limits(), f1=1))).all()


def test_nothing_that_leaves_depends_on_who_is_in_a_withheld_cell():
    """Labels of withheld rows swapped within their group: all cells stay the same."""
    sites = [made.small_site(Limits(), f1=n, f0=10 - n) for n in (4, 6)]
    a, b = (Asker(site).ask(Census(site.schema)) for site in sites)
    assert a.counts.tolist() == b.counts.tolist() == [[0, 0, 40, 40]]
    task = made.problem_of(made.small_site(f1=4, f0=6)).task
    query = Evaluate(task, w_of(task), "train")
    a, b = (Asker(site, "r").ask(query) for site in sites)
    assert a.cells == pytest.approx(b.cells, rel=1e-12)
    assert a.strata == pytest.approx(b.strata, rel=1e-12)


def test_the_floor_acts_on_the_sets_of_the_agreed_constraint():
    """By group where bounds are for groups: few of one label do not bias the rest."""
    schema = make_schema()
    silo = made.make_silo({(0, 0): 9, (0, 1): 30, (1, 0): 5, (1, 1): 4}, schema)
    for kind, hidden in (("bgl", [0, 0, 1, 1]), ("cbgl", [1, 0, 1, 1])):
        run = {"constraint": {"kind": kind, "bound": 0.7}}
        site = Site(silo, made.alone(silo, schema, run=run), Limits(floor=10))
        assert site.hidden("train").tolist() == hidden


def test_debug_logs_and_files_hold_no_group_figure(caplog, capfd, tmp_path):
    caplog.set_level(logging.DEBUG)
    sizes = {"f0": 1237, "f1": 1553, "m0": 7, "m1": 1019}
    site = made.small_site(Limits(), tmp_path, **sizes)
    task = made.problem_of(made.small_site(**sizes)).task
    asker, w = Asker(site), w_of(task)
    for query in (Census(site.schema), Evaluate(task, w, "train"), Expand(task, w, 2)):
        assert asker.ask(query) is not None
        assert asker.send(query, step=asker.step).refusal == ""
        asker.send(Census(site.schema, "test"), step=asker.step)
    seen = [record.getMessage() for record in caplog.records]
    streams = capfd.readouterr()
    kept = json.dumps([dict(entry.body) for entry in site.memory.entries()])
    text = "\n".join([*seen, streams.out, streams.err, kept])
    assert not re.findall(r"(?<![0-9a-f.])(?:1237|1553|1019)(?![0-9a-f])", text)


# Secure sums


def test_another_set_of_sites_and_another_key_are_refused():
    federation = make_federation(3, sizes=(60, 70, 80))
    agreed = agree(federation)
    server = Server(sites_of(federation, agreed))
    server.ask([Census(federation.schema)])
    problem = made.problem_of(server.sites["site 0"])
    task = replace(problem.task, shares=np.ones(1), pool=Pool(4, False, 210.0))
    answer = server.send("site 0", server.request([Expand(task, w_of(task))]))
    assert "4 sites" in answer.refusal
    silo = federation.silos[0]
    with raises(UsageError, "other-key", "site 0"):
        Site(silo, agreed, OPEN, key=made.keys_of("mallory"))
    with raises(UsageError, "missing-key"):
        Site(silo, agreed, OPEN)


# Noise


def test_the_totals_have_the_noise_that_was_agreed_on():
    """Each share has σ²/(K − c): all but c sites add up to what is needed.

    All secrets are fixed, so that the draws are the same each time.
    """
    data = made.people(4, 60)
    names = data.silo_names
    keys = {name: SiteKey(fixed("key", name), fixed("split", name)) for name in names}
    public = {name: key.public for name, key in keys.items()}
    agreed = replace(made.agreement(data, epsilon=8.0), keys=public)
    query = noisy_census(data, 3.0, 0.0)
    drawn = []
    for k in range(60):
        sites = {}
        for silo in data.silos:
            site = Site(silo, agreed, Limits(epsilon=1e2), key=keys[silo.name])
            about = (f"run {k}", silo.name)
            secrets = (fixed("mask", *about).hex(), fixed(*about).hex())
            record = RunRecord(site.records.first(f"run {k}"), *secrets)
            site.records.begin = lambda run, record=record: record
            site.memory.allow = lambda *_: None
            sites[silo.name] = site
        (total,) = Server(sites, run=f"run {k}").ask([query])
        drawn.append(query.real(total, "counts"))
    true = pffl.engines.Reference(data).ask(Census(data.schema)).counts.sum(axis=0)
    errors = (np.array(drawn) - true).ravel() / (3.0 * np.sqrt(4 / 3))
    assert stats.kstest(errors, "norm").pvalue > 0.01
    low, high = stats.chi2.ppf([0.005, 0.995], len(errors)) / len(errors)
    assert low < np.mean(errors**2) < high


def fixed(*about: str) -> bytes:
    """32 bytes that are always the same."""
    return hashlib.sha256(" ".join(about).encode()).digest()


def test_private_mode_has_no_floor():
    few = made.people(3, 20)  # below the floor of 10, at each site
    sites = sites_of(few, made.agreement(few), rules=Limits(epsilon=1.0))
    for site in sites.values():
        site.memory.allow = lambda *_: None
    query = noisy_census(few, 1 / 200, 0.0)
    (total,) = Server(sites).ask([query])
    true = pffl.engines.Reference(few).ask(Census(few.schema)).counts.sum(axis=0)
    assert np.round(query.real(total, "counts")).tolist() == true.tolist()


def test_the_budget_ends_with_exit_7_and_goes_on_after_a_raise(tmp_path):
    data = made.people()
    agreed = made.agreement(data)
    whole = made.engine_of(made.members(data, agreed, tmp_path / "w"), agreed)
    made.solve(data, whole)
    sites = made.members(data, agreed, tmp_path)
    sites["site 1"].limits = Limits(epsilon=1.0)
    known = {"run": "r", "folder": tmp_path / "steps"}
    engine, log = made.engine_of(sites, agreed, **known), tmp_path / "log"
    with raises(PrivacyBudgetError, "budget-exceeded", "site 1") as e:
        made.solve(data, engine, checkpoint=log)
    assert e.value.exit_code == 7
    paid = len(made.lines_of(tmp_path, "site 0"))
    sites = made.members(data, agreed, tmp_path)  # with a larger budget, again
    found = made.solve(data, made.engine_of(sites, agreed, **known), checkpoint=log)
    assert found.evidence.privacy.epsilon <= 2.0 + 1e-9
    accounts = [
        [(one.mu, one.mark, str(one.body)) for one in made.lines_of(tmp_path, name)]
        for name in data.silo_names
    ]
    assert accounts[0] == accounts[1] == accounts[2]
    # Nothing was paid twice.
    assert len(accounts[0]) == len(made.lines_of(tmp_path / "w", "site 0")) >= paid


def test_a_folder_that_is_put_back_draws_the_same_noise(tmp_path):
    data = made.people(3, 100)
    agreed = made.agreement(data)
    query = noisy_census(data, 30.0, 30.0)
    server = Server(made.members(data, agreed, tmp_path))
    server.open()
    shutil.copytree(tmp_path / "site 0", tmp_path / "copy")
    request = server.request([query])
    first = server.send("site 0", request)
    made.put_back(tmp_path, "site 0", "copy")
    server.sites = made.members(data, agreed, tmp_path)
    again = server.send("site 0", request)
    assert bodies_digest(again.bodies) == bodies_digest(first.bodies)


def test_noise_that_could_be_taken_off_is_refused():
    data = made.people()
    agreed = made.agreement(data)
    privacy = {**agreed.run["privacy"], "noise_seed": 1}
    seeded = replace(agreed, run={**agreed.run, "privacy": privacy})
    with raises(UsageError, "noise-seed"):
        sites_of(data, seeded)


def test_a_restored_site_is_stopped_by_the_head_that_it_signed(tmp_path):
    federation = make_federation(3)
    agreed = agree(federation)
    for name in federation.silo_names:
        (tmp_path / name).mkdir()
    sites = sites_of(federation, agreed, folder=tmp_path)
    shutil.copytree(tmp_path / "site 0", tmp_path / "copy")
    heads = tmp_path / "heads.json"
    engine = made.engine_of(sites, agreed, heads=heads)
    engine.ask(Census(federation.schema))
    engine.end()
    for site in sites.values():
        site.memory.close()
    made.put_back(tmp_path, "site 0", "copy")
    sites = sites_of(federation, agreed, folder=tmp_path)
    again = made.engine_of(sites, agreed, heads=heads)
    with raises(FederationError, "site-refused", "'site 0'", "restored"):
        again.ask(Census(federation.schema))
