"""Noise inside secure sums: how much there is, what it costs, and one draw of it."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import pffl
from pffl.errors import FederationError, PrivacyBudgetError, UsageError
from pffl.queries import Census, ReleasedSums
from pffl.solving import sharing
from pffl.wire import read_answer, write_request
from tests.inside import (
    HEAD,
    LINES,
    Account,
    Adding,
    Noise,
    Releases,
    composed,
    epsilon_of,
    keyed_source,
    secured,
    seeded_source,
)
from tests.inside import engines_remote_Secured as Secured
from tests.raising import raises
from tests.site.noisy import (
    agreement,
    budget,
    engine_of,
    entered,
    lines_of,
    members,
    people,
    sites_behind,
    solve,
)
from tests.site.running import run
from tests.site.secure import Server, agree

# How much noise there is


def tally(data: pffl.Federation, noise: float = 3.0) -> Census:
    """A query for counts and sums of inputs."""
    n = data.schema.n_features
    ends = np.full(n, -6.0), np.full(n, 6.0)
    longest = math.sqrt(2 * n)
    known = {"low": ends[0], "high": ends[1], "longest": longest}
    return Census(data.schema, noise=np.full(2, noise), **known)


def truth(data: pffl.Federation) -> np.ndarray:
    """Counts and sums of a tally, row by row."""
    counts = np.zeros(data.schema.n_atoms)
    sums = np.zeros(2 * data.schema.n_features)
    for silo in data.silos:
        rows = silo.rows("train")
        for x, y, group in zip(rows.X, rows.y, rows.group, strict=True):
            counts[group * data.schema.n_labels + int(y)] += 1
            u = np.clip((x + 6.0) / 12.0, 0.0, 1.0)
            sums += np.concatenate([u, u * u])
    return np.concatenate([counts, sums])


def drawn(engine: Secured, query: Census, times: int) -> np.ndarray:
    """Totals as a server reads them, in units of σ of a single number."""
    found = []
    for _ in range(times):
        total = engine.ask(query)
        found.append(np.concatenate([query.real(total, name) for name in query.parts]))
    return np.array(found)


@pytest.mark.parametrize(("sites", "colluding"), [(3, 1), (5, 2)])
def test_the_totals_have_the_noise_that_was_agreed_on(sites, colluding):
    """Against N(0, σ²K/(K − c)) about the true sums; as little as σ² is caught."""
    data = people(sites, 60)
    query, terms = tally(data), budget(data, colluding=colluding)
    sigma = np.repeat(
        [3.0 * 1.0, 3.0 * math.sqrt(2 * data.schema.n_features)],
        [data.schema.n_atoms, 2 * data.schema.n_features],
    )
    off = (drawn(secured(data, None, terms), query, 60) - truth(data)) / sigma
    expected = sites / (sites - colluding)
    assert off.size >= 600
    ratio = float((off**2).sum()) / expected
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], off.size)
    assert low < ratio < high
    assert stats.kstest(off.ravel() / math.sqrt(expected), "norm").pvalue > 1e-4
    assert ratio / expected < low  # as the statistic would be with σ² alone


def test_what_is_left_against_sites_that_work_together():
    """They take off what they added: σ² is left, and no less; half of it is caught."""
    data, colluding = people(4, 60), 2
    query, terms = tally(data), budget(data, colluding=colluding)

    def left(share: Adding) -> tuple[float, int]:
        engine = secured(data, None, terms)
        # Two sites know what they draw; with the same seed we draw it again.
        known = dict.fromkeys(data.silo_names[:colluding])
        for name, site in sites_behind(engine).items():
            source = seeded_source(name) if name in known else share.source
            site.adding = replace(share, source=source)
        totals, told = drawn(engine, query, 50), np.zeros(0)
        for name in known:
            source, parts = seeded_source(name), []
            for _ in range(50):
                none = ReleasedSums(np.zeros(query.length, np.int64))
                one = query.noised(none, source, factor=share.each)
                parts.append(np.concatenate([query.real(one, f) for f in query.parts]))
            told = np.array(parts) + (told if told.size else 0.0)
        off = totals - truth(data) - told
        off[:, : data.schema.n_atoms] /= 3.0
        off[:, data.schema.n_atoms :] /= 3.0 * math.sqrt(2 * data.schema.n_features)
        return float((off**2).sum()), off.size

    enough, many = left(sharing(4, terms))
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], many)
    assert low < enough < high
    short, many = left(replace(sharing(4, terms), colluding=0))  # a bug, planted
    assert short < low


def test_one_masked_answer_looks_like_any_other():
    """Whatever its rows are: every bit of it is set half of the time."""
    worlds = []
    for rows in (40, 400):
        data = people(3, rows)
        sites = sites_behind(secured(data, None, budget(data)))
        server = Server(sites, data.schema.hash)
        flats = []
        for _ in range(80):
            server.ask([tally(data)])
            answer = read_answer(server.relay[0])
            flats.append(answer.bodies[0].arrays["masked"])
        bits = np.unpackbits(np.array(flats).view(np.uint8), axis=1)
        worlds.append(bits)
        rate = bits.mean(axis=0)
        assert np.abs(rate - 0.5).max() < 5.5 * 0.5 / math.sqrt(len(bits))
    gap = worlds[0].mean(axis=0) - worlds[1].mean(axis=0)
    assert np.abs(gap).max() < 5.5 * 0.5 * math.sqrt(2 / 80)


# A whole run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run, its totals, and where its sites keep their accounts."""
    data, folder = people(), tmp_path_factory.mktemp("whole")
    agreed = agreement(data)
    sites = members(data, agreed, folder)
    return data, folder, solve(data, engine_of(data, agreed, sites))


def test_the_same_account_at_all_sites(whole):
    data, folder, found = whole
    part = found.evidence.privacy
    assert isinstance(part, Noise)
    assert (part.sites, part.shared, part.colluding) == (3, True, 1)
    accounts = [entered(lines_of(folder, name)) for name in data.silo_names]
    assert accounts[0] == accounts[1] == accounts[2]
    for split, mu in (("train", part.mu), ("test", part.heldout_mu)):
        own = composed(line.mu for line in accounts[0] if line.split == split)
        assert own == pytest.approx(mu)
        assert epsilon_of(own, 1e-6) == pytest.approx(2.0, rel=1e-6)
    # One line for each query that was asked, and nothing of it is told exactly.
    assert len(accounts[0]) == found.evidence.training.queries["asked"]
    assert all(count % 1 for count in part.seen.counts)


def test_in_one_process_it_is_the_same_sum():
    data = people()
    found, again = (
        pffl.solve(
            data,
            pffl.BoundedGroupLoss(0.69),
            method="exact",
            seed=0,
            secure_sum=True,
            privacy=budget(data, noise_seed=3),
        )
        for _ in range(2)
    )
    assert np.array_equal(found.w, again.w)
    part = found.evidence.privacy
    assert (part.sites, part.shared, part.colluding) == (3, True, 1)
    for one in part.releases:
        assert one.deviation / one.sigma == pytest.approx(math.sqrt(3 / 2))
    with raises(UsageError, "too-few-sites", "3"):
        pffl.solve(people(2), None, secure_sum=True, privacy=budget(people(2)))


def test_networks_are_refused(tmp_path):
    """In one process and between machines, before anything is asked."""
    torch = pytest.importorskip("torch")
    data = people(3, 300)
    layers = torch.nn.Linear(data.schema.n_features, 2)
    model = pffl.Network(torch.nn.Sequential(layers))
    known = {"model": model, "method": "pffl", "seed": 0}
    sites = members(data, agreement(data), tmp_path, epsilon=0.0)
    engine = engine_of(data, agreement(data), sites)
    bound = pffl.BoundedGroupLoss(0.9)
    for asked, more in ((data, {"secure_sum": True}), (data, {}), (engine, {})):
        with raises(UsageError, "not-under-noise"):
            pffl.solve(asked, bound, privacy=budget(data, 6.0), **known, **more)


# The budget


def test_the_budget_ends_with_exit_7_and_goes_on_after_a_raise(tmp_path):
    """With the same model: the one that follows from all totals, of both sessions."""
    data, agreed = people(), agreement(people())
    keep, steps = tmp_path / "checkpoint", tmp_path / "steps"
    heard: list[Any] = []

    class Heard(Secured):
        """Keeps what was released."""

        def ask_many(self, queries):
            told = super().ask_many(queries)
            heard.append(told)
            return told

    def attempt(limit, session):
        sites = members(data, agreed, tmp_path)
        name = data.silo_names[1]
        sites[name] = members(data, agreed, tmp_path, limit)[name]
        engine = engine_of(data, agreed, sites, run="r", session=session, folder=steps)
        engine.__class__ = Heard
        return solve(data, engine, checkpoint=keep)

    with raises(PrivacyBudgetError, "budget-exceeded", "site 1") as e:
        attempt(1.5, 0)  # in the middle of training
    assert e.value.exit_code == 7
    before = {name: lines_of(tmp_path, name) for name in data.silo_names}
    assert 3 <= len(before["site 1"]) <= 7
    # The others answered the step that one refused, and paid for it.
    assert len(before["site 0"]) == len(before["site 1"]) + 1
    found = attempt(10.0, 1)
    after = {name: lines_of(tmp_path, name) for name in data.silo_names}
    for name, lines in after.items():
        assert lines[: len(before[name])] == before[name]
    assert len({str(entered(lines)) for lines in after.values()}) == 1
    total = composed(line.mu for line in after["site 0"] if line.split == "train")
    assert epsilon_of(total, 1e-6) == pytest.approx(2.0, rel=1e-6)
    told = iter(heard)
    direct = run(None, agreed, ask=lambda queries: next(told))
    assert np.array_equal(direct.w, found.w)
    assert next(told, None) is None


def test_who_has_no_budget_or_another_agreement_refuses(tmp_path):
    data = people()
    noisy, plain = agreement(data), agree(data, floor=1)
    sites = members(data, noisy, tmp_path / "none", epsilon=0.0)
    with pytest.raises(FederationError, match="no budget"):
        solve(data, engine_of(data, noisy, sites))
    # A site with a budget answers nothing exactly, under masks neither.
    sites = members(data, plain, tmp_path / "plain")
    engine = engine_of(data, plain, sites)
    engine._counting = True
    with pytest.raises(FederationError, match="a sum without noise"):
        pffl.solve(engine, None, seed=0)
    # Nor does a site release what nobody agreed to, budget or not.
    with pytest.raises(FederationError, match="there is no noise"):
        solve(data, engine_of(data, plain, sites))


@pytest.mark.parametrize("colluding", [0, 3])
def test_a_site_checks_whom_it_counts_on(tmp_path, colluding):
    data = people()
    agreed = agreement(data, colluding=colluding)
    with raises(UsageError, "wrong-colluding", "1", "2"):
        members(data, agreed, tmp_path)


def test_a_site_draws_in_secret(tmp_path):
    """A seed in the agreed run would let whoever wrote it take the noise off."""
    data = people()
    agreed = agreement(data)
    privacy = {**agreed.run["privacy"], "noise_seed": 1}
    seeded = replace(agreed, run={**agreed.run, "privacy": privacy})
    with raises(UsageError, "noise-seed"):
        members(data, seeded, tmp_path)
    site = members(data, agreed, tmp_path)["site 0"]
    assert site.adding.source is None  # it follows from the site's secrets of the run
    hello = Server({}, data.schema.hash, run="a").request([], step=0)
    site.answer(write_request(hello))
    said = site._member.standing("a")
    asked, other = (
        Server({}, data.schema.hash, "a").request([], step=s) for s in (1, 2)
    )
    draws = [
        site._member.source(replace(said, **more), request).getrandbits(256)
        for request, more in (
            (asked, {}),
            (asked, {}),
            (other, {}),
            (asked, {"transcript": "0" * 64}),
            (asked, {"seed": "00" * 32}),
        )
    ]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 4


@pytest.mark.parametrize("bits", [1, 2, 7, 8, 9, 64])
def test_draws_from_a_key_are_uniform(bits):
    """As `random` makes whole numbers below any bound from them."""
    source = keyed_source(bytes(range(32)))
    found = np.array([source.getrandbits(bits) for _ in range(4000)], dtype=object)
    assert (found < 2**bits).all()
    for bit in range(bits):
        ones = sum(int(x) >> bit & 1 for x in found)
        assert abs(ones - 2000) < 5 * math.sqrt(1000)
    below = np.bincount([source.randrange(10) for _ in range(4000)], minlength=10)
    assert stats.chisquare(below).pvalue > 1e-5
    assert keyed_source(bytes(32)).getrandbits(64) != source.getrandbits(64)


# One draw, whatever happens


class Killed(BaseException):
    """The process ends here, as by kill −9."""


STAGES = ("before it is charged", "before the draw", "before it is kept", "kept")


@pytest.mark.parametrize("stage", STAGES)
def test_killed_while_it_answers(tmp_path, monkeypatch, stage):
    """Nothing that left is ever drawn again; and it is charged once."""
    data = people()
    agreed = agreement(data)
    sites = members(data, agreed, tmp_path)
    server = Server(sites, data.schema.hash)
    name, drawn = data.silo_names[0], []
    member, releases = sites[name]._member, sites[name].releases
    save, enter, shared = type(member).save, Releases.enter, Releases.shared

    def counted(self, asked, adding, source):
        if self is releases and stage == "before the draw":
            raise Killed
        found = shared(self, asked, adding, source)
        if self._silo.name == name:
            drawn.append(found)
        return found

    def saving(self, run, standing):
        ours = self is member and standing.step == 3
        if ours and stage == "before it is kept":
            raise Killed
        save(self, run, standing)
        if ours and stage == "kept":
            raise Killed

    def entering(self, run, marks, asked):
        if self is releases and stage == "before it is charged":
            raise Killed
        enter(self, run, marks, asked)

    def ask(queries):
        if server.step != 2:
            return server.ask(queries)
        for owner, what, how in (
            (Releases, "shared", counted),
            (Releases, "enter", entering),
            (type(member), "save", saving),
        ):
            monkeypatch.setattr(owner, what, how)
        before = len(lines_of(tmp_path, name))
        with pytest.raises(Killed):
            server.ask(queries)
        kept = member.standing(server.run)
        # Another process takes its place.
        sites[name] = members(data, agreed, tmp_path)[name]
        told = server.ask(queries)
        answer = read_answer(server.relay[0])
        if kept.step == 3:
            masked = answer.bodies[0].arrays["masked"].view(np.uint64)
            assert np.array_equal(masked, kept.masked)
        assert len(lines_of(tmp_path, name)) == before + len(queries)
        first, *again = ([sums_of(one) for one in found] for found in drawn)
        assert len(again) == (stage == "before it is kept")
        assert again in ([], [first])  # the same draw
        return told

    run(None, agreed, ask=ask)
    accounts = [entered(lines_of(tmp_path, name)) for name in data.silo_names]
    assert accounts[0] == accounts[1] == accounts[2]


def sums_of(total):
    """The released sums, as they were drawn."""
    return [array.tolist() for array in total.sent().values()]


def test_a_release_whose_answer_was_forgotten_has_no_other_draw(tmp_path):
    """What a site remembers of the run is put back from a copy, but not its account."""
    data = people()
    agreed = agreement(data)
    sites = members(data, agreed, tmp_path)
    server = Server(sites, data.schema.hash)
    server.open()
    name = data.silo_names[0]
    runs, copy = tmp_path / name / "runs", tmp_path / "copy"
    shutil.copytree(runs, copy)
    asked: list[Any] = []

    def ask(queries):
        asked.append(queries)
        return server.ask(queries)

    run(None, agreed, ask=ask)
    shutil.rmtree(runs)
    shutil.copytree(copy, runs)
    sites[name] = members(data, agreed, tmp_path)[name]
    relay = server.log[0][0].relay
    again = Server(sites, data.schema.hash, number=100, relay=relay)
    before = len(lines_of(tmp_path, name))
    answer = again.send(name, again.request(asked[0]))
    first = read_answer(server.log[0][1][0])
    masked = [one.bodies[0].arrays["masked"] for one in (first, answer)]
    assert np.array_equal(*masked)
    assert len(lines_of(tmp_path, name)) == before  # it was paid
    # All of it is gone: the run begins anew, with other secrets, and is paid again.
    shutil.rmtree(runs)
    (tmp_path / name / "guard.json").unlink()
    again = Server({name: sites[name]}, data.schema.hash, number=100)
    again.open()
    again.relay = (*again.relay, *relay[1:])
    answer = again.send(name, again.request(asked[0]))
    assert len(lines_of(tmp_path, name)) == before + len(asked[0])
    assert answer.transcript != first.transcript
    # And without its account it stops altogether.
    for file in (LINES, HEAD):
        (tmp_path / name / file).unlink()
    other = Server(sites, data.schema.hash, run="another")
    assert "is not whole" in other.send(name, other.request(asked[0])).refusal


def test_a_folder_that_is_put_back_draws_the_same_noise(tmp_path):
    """Its rows, account and secrets of the run with it: the same bytes, or none."""
    data, agreed = people(), agreement(people())
    sites = members(data, agreed, tmp_path)
    server, name = Server(sites, data.schema.hash), data.silo_names[0]
    place, copy = tmp_path / name, tmp_path / "copy"

    def ask(queries):
        if server.step != 2:
            return server.ask(queries)
        shutil.copytree(place, copy)
        request = server.request(queries)
        first = server.send(name, request)
        shutil.rmtree(place)
        shutil.copytree(copy, place)
        sites[name] = members(data, agreed, tmp_path)[name]
        again = server.send(name, request)
        masked = [one.bodies[0].arrays["masked"] for one in (first, again)]
        assert np.array_equal(*masked)
        raise Killed

    with pytest.raises(Killed):
        run(None, agreed, ask=ask)


def test_nothing_is_shown_beforehand(tmp_path):
    data = people()
    agreed = agreement(data)
    sites = members(data, agreed, tmp_path)
    server = Server(sites, data.schema.hash)

    def ask(queries):
        content = write_request(server.request(queries))
        shown = read_answer(sites["site 0"].preview(content))
        assert "not shown beforehand" in shown.refusal
        raise Killed

    with pytest.raises(Killed):
        run(None, agreed, ask=ask)
    assert not Account(tmp_path / "site 0", 10.0, 1e-6).begun


def test_a_site_whose_account_is_gone_as_a_whole_stops(tmp_path):
    """With all of its files: it is known that something was answered."""
    data, agreed = people(), agreement(people())
    sites = members(data, agreed, tmp_path)
    server, asked = Server(sites, data.schema.hash), []

    def ask(queries):
        if asked:
            raise Killed
        asked.append(queries)
        return server.ask(queries)

    with pytest.raises(Killed):
        run(None, agreed, ask=ask)
    folder = tmp_path / "site 0"
    for path in [*folder.glob("privacy*"), folder / ".privacy.lock"]:
        path.unlink()
    other = Server(members(data, agreed, tmp_path), data.schema.hash, run="another run")
    answer = other.send("site 0", other.request(asked[0]))
    assert "gone, or was never begun" in answer.refusal
