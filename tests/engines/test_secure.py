"""Secure sums: the same run as without, and no site's figures at the server."""

from __future__ import annotations

import gc
import json
import types
from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.errors import ArtefactError, FederationError, UsageError
from pffl.methods import METHODS
from pffl.preparation import Options
from pffl.queries import (
    Census,
    Evaluate,
    Expand,
    ExpandTotal,
    Pool,
    Total,
    View,
)
from pffl.site import Site
from pffl.solving import open_engine, setting_of
from pffl.wire import Gate, Policy, read_answer, read_request, write_answer
from tests.helpers import make_federation, make_problem
from tests.inside import InMemory, Record, Transcript, masks
from tests.inside import engines_remote_Secured as Secured
from tests.raising import raises
from tests.site.secure import agree, keys_of, sites_of
from tests.wire.test_admission import MODELS, queries, wild

BGL, CBGL = pffl.BoundedGroupLoss(0.68), pffl.ConditionalBoundedGroupLoss(0.9)
STRONG = pffl.LogisticRegression(l2=0.1)
CLOSE = pffl.FirstOrder(target_gap=1e-15)
STEPS = pffl.PFFL(dual_rounds=3, rounds_per_dual=4, local_steps=3, step_size=0.1)


def engine_of(federation, sites, agreed, *, transport=None, **options) -> Secured:
    """Ask sites that are elsewhere, as far as the server can tell."""
    return Secured(
        transport or InMemory({name: site.answer for name, site in sites.items()}),
        agreed.encoding,
        agreed.sites,
        agreed.keys,
        agreement=agreed.hash,
        splits=agreed.splits,
        floor=agreed.floor,
        **options,
    )


# The same run


@pytest.mark.parametrize(
    ("method", "weighting", "constraint"),
    [
        (pffl.Exact(), "silos", BGL),
        (pffl.Exact(), "rows", CBGL),
        (CLOSE, "silos", CBGL),
        (STEPS, "silos", BGL),
        (replace(STEPS, batch_size=7), "rows", CBGL),
    ],
    ids=["exact", "exact by rows", "first-order", "pffl", "pffl in batches"],
)
def test_a_run_under_secure_sums_is_the_run_without(method, weighting, constraint):
    federation = make_federation(3, sizes=(120, 100, 160, 110))  # none below the floor
    options = Options(weighting=weighting, baseline=False, least=False)
    asked = {"model": STRONG, "options": options, "seed": 1}
    plain = pffl.solve(federation, constraint, method=method, **asked)
    secure = pffl.solve(federation, constraint, method=method, secure_sum=True, **asked)
    np.testing.assert_allclose(secure.w, plain.w, rtol=0, atol=1e-9)
    assert secure.status == plain.status
    if method is not STEPS and method.batch_size is None:
        assert secure.gap <= max(1e-10, plain.gap + 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("silos", [3, 10])
@pytest.mark.parametrize(
    "constraint", [pffl.BoundedGroupLoss(0.62), pffl.ConditionalBoundedGroupLoss(0.75)]
)
@pytest.mark.parametrize(
    ("method", "model"),
    [
        (pffl.Exact(target_gap=1e-12), None),
        (CLOSE, STRONG),
        (pffl.PFFL(dual_rounds=5, step_size=0.5), None),
    ],
    ids=["exact", "first-order", "pffl"],
)
def test_compas_is_the_same_under_secure_sums(silos, constraint, method, model):
    federation = pffl.datasets.compas(silos=silos)
    asked = {"method": method, "model": model, "seed": 1}
    plain = pffl.solve(federation, constraint, **asked)
    secure = pffl.solve(federation, constraint, secure_sum=True, **asked)
    np.testing.assert_allclose(secure.w, plain.w, rtol=0, atol=1e-9)
    assert abs(secure.gap - plain.gap) <= 1e-10


def test_every_method_runs_under_secure_sums_or_is_refused_by_name():
    federation = make_federation(3, sizes=(120, 100, 160))
    options = Options(baseline=False, least=False)
    for name, kind in METHODS.sound().items():
        if not kind.looks_at_silos:
            continue
        with raises(UsageError, "not-with-secure-sums", kind.__name__):
            pffl.solve(federation, None, method=kind(), secure_sum=True)
        assert name in ("afl", "fairfed", "fcfl", "fedfair", "local-bgl")
    few = {"dual_rounds": 1, "rounds_per_dual": 2, "step_size": 0.1}
    for name, given in (
        ("qffl", {"q": 1.0, "rounds": 2, "step_size": 0.1}),
        ("fedavg", {"rounds": 2}),
        ("pooled", {}),
        ("pffl", few),
    ):
        method = METHODS[name](**given)
        asked = {"method": method, "options": options, "seed": 0}
        plain = pffl.solve(federation, BGL, **asked)
        secure = pffl.solve(federation, BGL, secure_sum=True, **asked)
        close = 1e-9 if name != "fedavg" else 1.0  # whose step sizes look at silos
        np.testing.assert_allclose(secure.w, plain.w, rtol=0, atol=close, err_msg=name)


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        ("not-with-secure-sums", {"constraint": pffl.PerSilo(0.7)}),
        ("not-with-secure-sums", {"constraint": BGL & pffl.PerSilo(0.7)}),
        ("not-with-secure-sums", {"method": pffl.PFFL(participation=0.5)}),
        ("auto-refused", {"constraint": pffl.BoundedGroupLoss("auto")}),
        ("auto-refused", {"options": Options(l2="auto")}),
        ("wrong-engine", {"engine": "reference"}),
    ],
)
def test_what_needs_single_silos_is_refused_before_anything_is_asked(code, asked):
    federation = make_federation(0)
    constraint = asked.pop("constraint", BGL)
    with raises(UsageError, code):
        pffl.solve(federation, constraint, secure_sum=True, **asked)


def test_two_sites_a_quorum_and_a_missing_key_are_refused():
    federation = make_federation(0)
    with raises(UsageError, "too-few-sites", "3", "2"):
        pffl.solve(make_federation(0, sizes=(40, 25)), BGL, secure_sum=True)
    agreed = agree(federation)
    for policy, code in (
        (Policy(quorum=2), "secure-sum-quorum"),
        (Policy(update_clip=1.0), "secure-sum-clip"),
    ):
        with raises(UsageError, code):
            engine_of(federation, {}, agreed, policy=policy)
    with raises(UsageError, "missing-key", "site 0"):
        engine_of(federation, {}, replace(agreed, keys={}))
    plain = open_engine(federation, "local")
    with raises(UsageError, "wrong-engine"):
        pffl.solve(plain, BGL, secure_sum=True)


# What totals can be


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("by_rows", [True, False], ids=["by rows", "silos alike"])
def test_sums_of_true_answers_are_never_refused(name, by_rows):
    model, labels = MODELS[name]
    for seed in range(2):
        rng = np.random.default_rng(seed)
        heaviest = [None, 3.0][seed % 2]
        federation = wild(rng, labels, n_silos=4, heaviest=heaviest)
        gate = Gate(Policy(weight_bound=heaviest), federation.schema)
        sums = Sums(federation)
        for split in ("train", "test"):
            gate.census(0, split, sums(Census(federation.schema, split)), 0)
        weighting = "rows" if by_rows else "silos"
        problem = make_problem(
            pffl.engines.Reference(federation),
            BGL if labels else pffl.BoundedGroupLoss(30.0),
            model=model,
            options=Options(weighting=weighting),
        )
        pool = Pool(4, by_rows, float(problem.masses.sum()))
        task = replace(problem.task, shares=np.ones(1), pool=pool)
        pooled = replace(problem, task=task)
        for query in queries(pooled, rng, J=1 + seed % 3):
            if heaviest and isinstance(query, Evaluate) and query.bets.size:
                continue  # nobody asks that of weighted rows
            shares = problem.task.shares
            total = sums(replace(query, task=replace(task, shares=shares)))
            gate.report(query, 0, total)


class Sums:
    """Sums of a federation's true answers, as a secure sum gives them."""

    def __init__(self, federation):
        self.federation = federation

    def own(self, query) -> list[Total]:
        """Return each silo's answer."""
        schema = self.federation.schema
        model = None if query.task is None else query.task.model
        return [
            query.answer(View.of(silo, schema, model, query.split))
            for silo in self.federation.silos
        ]

    def __call__(self, query) -> Total:
        flats = [masks.encode(query, total) for total in self.own(query)]
        return masks.decode(query, masks.add(flats), len(flats))


def test_a_sum_that_no_rows_have_ends_the_run():
    federation = make_federation(3)
    agreed = agree(federation)
    sites = sites_of(federation, agreed)
    sites["site 1"] = Liar(
        federation.silos[1],
        federation.schema,
        sites["site 1"].rules,
        agreement=agreed,
        keys=keys_of("site 1"),
    )
    engine = engine_of(federation, sites, agreed)
    with raises(FederationError, "implausible-sum") as e:
        pffl.solve(engine, BGL, method=pffl.Exact(), seed=0)
    assert e.value.exit_code == 5


class Liar(Site):
    """Says that its losses at the start are half of what they are (n·ln 2).

    It does not judge its own answers, as an honest site does.
    """

    def _totals(self, *asked):
        found = super()._totals(*asked)
        return [
            replace(total, losses=total.losses / [1, *[2] * (len(total.losses) - 1)])
            if isinstance(total, ExpandTotal) and total.losses.size
            else total
            for total in found
        ]


def test_a_site_whose_few_rows_would_outweigh_all_others_takes_no_part():
    rows = Pool(3, by_rows=True, mass=6e6)
    assert rows.share(1.0) == 1 / 6e6
    alike = Pool(3, by_rows=False, mass=6e6)
    assert alike.share(2000.0) == 1 / 3
    with raises(FederationError, "uneven-silo"):
        alike.share(1999.0)


# What the server holds


def test_no_single_sites_figures_are_at_the_server(tmp_path):
    federation = make_federation(5, sizes=(41, 26, 63))
    agreed = agree(federation)
    told: list[np.ndarray] = []
    sites = sites_of(federation, agreed)
    for site in sites.values():
        overheard(site, told)
    record = Record(tmp_path / "record.jsonl")
    engine = engine_of(federation, sites, agreed, record=record, folder=tmp_path)
    found = pffl.solve(engine, CBGL, method=pffl.Exact(), seed=0, checkpoint=tmp_path)
    secret = single_figures(told)
    assert len(secret) > 1000
    engine._transport = None  # the sites are in this process, the server elsewhere
    held = [*figures_held([engine, found])]
    assert len(held) > 5000  # totals among them
    assert [value for value in held if value in secret] == []
    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert {"record.jsonl", "sums.jsonl"} <= {p.name for p in tmp_path.rglob("*")}
    text = b"\n".join(texts)
    for value in list(secret)[::7]:
        assert repr(value).encode() not in text
        assert np.float64(value).tobytes() not in text
        assert np.float64(value).tobytes().hex().encode() not in text


def overheard(site, told):
    """Note what a site would say without masks, as numbers and as they are encoded."""
    inner = site._total

    def noting(query, *rest):
        total = inner(query, *rest)
        told.extend(np.ravel(array) for array in total.sent().values())
        return total

    site._total = noting


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


# Sites that drop, servers that stop


class Dropping(InMemory):
    """Ends the server's process at its n-th call of a site; a site may stay away."""

    def __init__(self, sites, *, after=None, away=()):
        super().__init__(sites)
        self.calls, self.after, self.away = 0, after, away

    def exchange(self, requests, seconds, kind):
        for address, content in requests.items():
            self.calls += 1
            if self.calls == self.after:
                raise MemoryError("killed")
            if (address, kind) not in self.away:
                yield from super().exchange({address: content}, seconds, kind)


def test_a_site_that_stays_away_ends_the_run_and_no_sum_is_over_fewer(tmp_path):
    federation = make_federation(3)
    agreed = agree(federation)
    sites = sites_of(federation, agreed)
    answers = {name: site.answer for name, site in sites.items()}
    away = Dropping(answers, away=[("site 2", "expand")])
    engine = engine_of(federation, sites, agreed, transport=away, folder=tmp_path)
    with raises(FederationError, "sites-missing", "2 of 3", "3 must") as e:
        pffl.solve(engine, BGL, method=pffl.Exact(), seed=0)
    assert e.value.exit_code == 5
    entry = engine.record.entries[-1]
    assert entry["asked"] == list(agreed.sites)
    assert entry["missing"] == ["site 2"]
    asked = entry["messages"]["site 2"]["requests"]
    assert len(asked) == len(set(asked)) == 3  # new numbers, the same queries
    assert len((tmp_path / "sums.jsonl").read_text().splitlines()) == 1  # the census


@pytest.mark.parametrize(
    ("floor", "every"), [(3, 23), pytest.param(1, 1, marks=pytest.mark.slow)]
)
def test_a_server_that_stops_anywhere_goes_on_and_asks_no_site_twice(
    tmp_path, floor, every
):
    federation = make_federation(3, sizes=(80, 65, 90))
    agreed = agree(federation, floor=floor)

    def run(folder, sites, session, after=None):
        answers = {name: site.answer for name, site in sites.items()}
        transport = Dropping(answers, after=after)
        kept = {"run": "r", "session": session, "folder": folder}
        engine = engine_of(federation, sites, agreed, transport=transport, **kept)
        method = pffl.PFFL(dual_rounds=2, rounds_per_dual=2, step_size=0.1)
        options = Options(baseline=False, least=False)
        known = {"method": method, "options": options, "seed": 4}
        found = pffl.solve(engine, BGL, checkpoint=folder / "stopped", **known)
        return found, transport.calls

    whole, calls = run(tmp_path / "whole", sites_of(federation, agreed), 0)
    for after in range(4, calls + 1, every):
        sites, folder = sites_of(federation, agreed), tmp_path / str(after)
        with pytest.raises(MemoryError):
            run(folder, sites, 0, after)
        found, again = run(folder, sites, 1)
        assert np.array_equal(found.w, whole.w)
        assert found.evidence.seen == whole.evidence.seen
        assert again <= calls - after + 1 + 3 + 3  # who is there, and the last step


def test_a_crash_between_the_answers_and_their_sum_loses_nothing(tmp_path):
    federation = make_federation(3)
    agreed = agree(federation)
    sites = sites_of(federation, agreed)
    asked = [Census(federation.schema), Census(federation.schema, "test")]
    kept = {"run": "r", "folder": tmp_path}
    total = engine_of(federation, sites, agreed, **kept).ask_many(asked)
    path = tmp_path / "sums.jsonl"
    before = path.read_text()
    path.write_text("")
    again = engine_of(federation, sites, agreed, session=1, **kept)
    assert path.read_text() == before
    assert again.ask_many(asked)[0].same(total[0])
    whole = (tmp_path / "answers.safetensors").read_bytes()
    (tmp_path / "answers.safetensors").write_bytes(whole[:-9])
    with raises(ArtefactError, "bad-transcript"):
        Transcript(agreed.hash, "r", tmp_path)


def test_an_answer_of_another_key_step_or_transcript_is_not_taken():
    federation = make_federation(3)
    agreed = agree(federation)
    elsewhere = {"transcript": "0" * 64}
    changes = {
        "not signed with the site's key": lambda a: replace(a, signature="00" * 64),
        "to step 7": lambda a: signed(replace(a, step=7)),
        "told other answers": lambda a: signed(replace(a, **elsewhere)),
        "other queries": lambda a: signed(replace(a, asked="0" * 64)),
        "masked": lambda a: signed(replace(a, bodies=())),
    }
    opening = {  # answers that announce keys of the run
        "not signed with the site's key": lambda a: replace(a, signature="00" * 64),
        "another federation.json": lambda a: signed(replace(a, **elsewhere)),
        "not one masked": lambda a: signed(replace(a, bodies=())),
    }
    every = [(1, *one) for one in changes.items()]
    every += [(0, *one) for one in opening.items()]
    for at, said, change in every:
        sites = sites_of(federation, agreed)
        answers = {name: site.answer for name, site in sites.items()}

        def other(content, at=at, change=change, inner=answers["site 1"]):
            found = read_answer(inner(content))
            return write_answer(change(found) if found.step == at else found)

        answers["site 1"] = other
        known = {"policy": Policy(join_seconds=0.1)}
        transport = InMemory(answers)
        engine = engine_of(federation, sites, agreed, transport=transport, **known)
        with pytest.raises(FederationError, match=said):
            engine.ask(Census(federation.schema))


def test_a_site_that_was_told_other_answers_is_not_added():
    federation = make_federation(3)
    agreed = agree(federation)
    sites = sites_of(federation, agreed)
    answers = {name: site.answer for name, site in sites.items()}

    def other(content, inner=answers["site 1"]):
        found = read_answer(inner(content))
        astray = signed(replace(found, transcript="0" * 64))
        return write_answer(astray if found.step == 2 else found)

    answers["site 1"] = other
    engine = engine_of(federation, sites, agreed, transport=InMemory(answers))
    engine.ask(Census(federation.schema))
    centre = np.zeros(1 + federation.schema.n_features)
    with pytest.raises(FederationError, match=r"'site 1' .*told other answers"):
        engine.ask(Census(federation.schema, "train", centre))


def signed(answer):
    key = keys_of(answer.silo)
    bare = replace(answer, signature="")
    return replace(bare, signature=key.sign(write_answer(bare)))


# Steps, and words


def test_counts_come_first_and_many_queries_take_several_steps():
    federation = make_federation(3, sizes=(60, 60, 60))
    problem = make_problem(pffl.engines.Reference(federation), BGL)
    pool = Pool(3, False, 180.0)
    task = replace(problem.task, shares=np.ones(1), pool=pool)
    posed = [Expand(task, np.full(4, i / 30)) for i in range(30)]
    agreed, asked = agree(federation), []
    sites = sites_of(federation, agreed)
    first = sites["site 0"].answer

    def heard(content):
        asked.append(read_request(content).kinds)
        return first(content)

    transport = InMemory({**{n: s.answer for n, s in sites.items()}, "site 0": heard})
    engine = engine_of(federation, sites, agreed, transport=transport)
    census, *rest = engine.ask_many([Census(federation.schema), *posed])
    assert census.counts.sum() == 180
    assert len({float(total.losses[0]) for total in rest}) == 30
    engine.ask_many([Census(federation.schema), posed[0]])  # the census is frozen
    steps = [("census",) * 2, ("expand",) * 24, ("expand",) * 6, ("expand",)]
    assert asked == [(), *steps]


def test_what_is_said_of_secure_sums():
    federation = make_federation(3)
    found = pffl.solve(federation, BGL, secure_sum=True, seed=0)
    said = [note for note in found.evidence.notes if "secure sum of 3 sites" in note]
    assert len(said) == 1
    assert found.evidence.data.silos == 3
    assert found.evidence.data.card["silos"] == ["all 3 sites"]
    assert "site 1" not in json.dumps(found.evidence.as_dict())
    agreed = agree(federation, floor=30)
    engine = engine_of(federation, sites_of(federation, agreed), agreed)
    with pytest.raises(pffl.errors.DataError):  # nobody is left: never "met"
        pffl.solve(engine, BGL, seed=0)
    (said,) = [n for n in engine.notes if n.startswith("left out at sites with")]
    assert "30" in said
    assert "87" in said
    assert setting_of(engine).access.pooled == 3
