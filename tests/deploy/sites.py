"""Sites in this process, and servers that ask them step by step."""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import pffl
from pffl._solve import solving
from pffl.callbacks import Callback
from pffl.config import read_plan
from pffl.data import Federation, Rows, Schema, Silo, TableEncoder
from pffl.deploy import Agreement, InMemory, Limits, Remote, Site, SiteKey
from pffl.driver import drive
from pffl.engines import Reference
from pffl.methods import Exact
from pffl.models import LogisticRegression
from pffl.prepare import Options, Setting
from pffl.privacy import Privacy
from pffl.problem import Problem
from pffl.queries import Census, Policy, Query, Total
from pffl.solution import Solution
from tests.driving import prepare
from tests.helpers import make_federation, make_rows, make_schema
from tests.inside import (
    HOLDERS,
    Adding,
    Answer,
    Request,
    SiteMemory,
    planned,
    private_run,
    query_body,
    read_answer,
    read_masked,
    read_total,
    secure_sum,
    write_request,
)

OPEN = Limits(floor=1, queries=10_000, radius=100.0)
FREE = replace(OPEN, radius=1e300, queries=10**9, floor=0, layouts=10**9)
EPSILON, BOUND = 2.0, 0.69
RUN: dict[str, Any] = {  # that sites may agree on
    "constraint": {"kind": "bgl", "bound": BOUND},
    "method": {"kind": "exact"},
    "run": {"seed": 0},
}


# What is agreed on


@cache
def keys_of(name: str) -> SiteKey:
    """The same key for a name throughout."""
    return SiteKey.generate()


def agree(federation: Federation, **changes: Any) -> Agreement:
    """What the silos of a federation agree on: secure sums."""
    public = {name: keys_of(name).public for name in federation.silo_names}
    agreed = replace(Agreement.of(federation), keys=public, secure_sum=True, floor=1)
    return replace(agreed, **changes)


def alone(silo: Silo, schema: Schema, **changes: Any) -> Agreement:
    """What a site by itself agrees on: nothing but names."""
    encoding = TableEncoder.of_numbers(schema)
    agreed = Agreement("data", encoding, (silo.name,), tuple(silo.splits), floor=0)
    return replace(agreed, **changes)


def sites_of(
    federation: Federation,
    agreed: Agreement,
    *,
    folder: Path | None = None,
    rules: Limits = OPEN,
) -> dict[str, Site]:
    """A site for each silo, by name."""
    return {
        silo.name: Site(
            silo,
            agreed,
            rules,
            None if folder is None else folder / silo.name,
            key=keys_of(silo.name) if agreed.keys else None,
        )
        for silo in federation.silos
    }


def engine_of(sites: Mapping[str, Any], agreed: Agreement, **options: Any) -> Remote:
    """Ask sites that are elsewhere, as far as the server can tell."""
    transport = options.pop("transport", None) or InMemory(answers(sites))
    options.setdefault("policy", Policy(seconds=5.0, join_seconds=5.0))
    return Remote(transport, agreed, **options)


def answers(sites: Mapping[str, Any]) -> dict[str, Callable[[bytes], bytes]]:
    """What sites are for a transport in memory."""
    return {name: site.answer for name, site in sites.items()}


def remote(
    federation: Federation,
    *,
    spoiled: Mapping[str, Callable[[Any], Any]] | None = None,
    wrap: Callable[[Any], Any] = lambda transport: transport,
    limits: Limits = FREE,
    **options: Any,
) -> Remote:
    """An engine over sites without masks and limits; some of them spoilt."""
    agreed = agree(federation, secure_sum=False, floor=0)
    sites: dict[str, Any] = sites_of(federation, agreed, rules=limits)
    sites |= {name: spoil(sites[name]) for name, spoil in (spoiled or {}).items()}
    return engine_of({}, agreed, transport=wrap(InMemory(answers(sites))), **options)


def counted(engine: Any, split: str = "train") -> Any:
    """The census of a split."""
    return engine.ask(Census(engine.schema, split))


# A server, step by step


@dataclass
class Server:
    """Asks all sites the same, step by step; subclasses lie."""

    sites: Mapping[str, Any]
    schema_hash: str = ""  # of no use any more
    run: str = "run"
    step: int = 0
    relay: tuple[bytes, ...] = ()
    log: list[tuple[Request, tuple[bytes, ...]]] = field(default_factory=list)

    def request(self, queries: Sequence[Query[Any]], **changes: Any) -> Request:
        """The next step, as a message."""
        if queries and not self.step and not self.relay:
            self.open()
        bodies = tuple(query_body(q, 0) for q in queries)
        known = {"step": self.step + 1, "relay": self.relay}
        return replace(Request(self.run, self.agreed.hash, bodies, **known), **changes)

    @property
    def agreed(self) -> Agreement:
        """What the sites joined."""
        return next(iter(self.sites.values())).agreement

    def open(self) -> None:
        """Have all sites announce their keys of the run, and whom they have."""
        content = write_request(Request(self.run, self.agreed.hash))
        self.relay = tuple(site.answer(content) for site in self.sites.values())
        if all(site.agreement.counts_sites for site in self.sites.values()):
            known = {"step": 1, "relay": self.relay}
            made = Request(self.run, self.agreed.hash, (HOLDERS,), **known)
            content, self.step = write_request(made), 1
            self.relay = tuple(site.answer(content) for site in self.sites.values())

    def send(self, name: str, request: Request) -> Answer:
        """What one site says."""
        return read_answer(self.sites[name].answer(write_request(request)))

    def ask(self, queries: Sequence[Query[Any]]) -> list[Total]:
        """Ask all sites, add their answers, and go on to the next step."""
        request = self.request(queries)
        content = tuple(s.answer(write_request(request)) for s in self.sites.values())
        answers = [read_answer(one) for one in content]
        assert not any(a.refusal for a in answers), [a.refusal for a in answers]
        self.step, self.relay = request.step, content
        self.log.append((request, content))
        return summed(queries, answers)


def summed(queries: Sequence[Query[Any]], answers: Sequence[Answer]) -> list[Any]:
    """The totals that a server can read."""
    length = sum(secure_sum.size(q) for q in queries)
    flats = [read_masked(answer, length) for answer in answers]
    return secure_sum.decode_all(queries, secure_sum.add(flats), len(flats))


@dataclass
class Asker:
    """Asks one site without masks, step by step; refusals are kept."""

    site: Any
    run: str = "run"
    step: int = 0
    refusals: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        hello = Request(self.run, self.site.agreement.hash)
        assert not read_answer(self.site.answer(write_request(hello))).refusal

    def request(self, *queries: Any, **changes: Any) -> Request:
        """The next step."""
        bodies = tuple(query_body(query, 0) for query in queries)
        made = Request(self.run, self.site.agreement.hash, bodies, step=self.step + 1)
        return replace(made, **changes)

    def send(self, *queries: Any, **changes: Any) -> Answer:
        """What the site says; a step that was answered is over."""
        asked = self.request(*queries, **changes)
        answer = read_answer(self.site.answer(write_request(asked)))
        if answer.refusal:
            self.refusals.append(answer.refusal)
        else:
            self.step = asked.step
        return answer

    def ask(self, query: Any) -> Any:
        """The total that the site answers with; None if it refuses."""
        answer = self.send(query)
        if answer.refusal:
            return None
        return read_total(answer.bodies[0], query)[0]


def run(
    server: Any,
    agreed: Agreement,
    *,
    callbacks: Sequence[Callback] = (),
    ask: Callable[[list[Query[Any]]], list[Total]] | None = None,
    sections: dict[str, Any] | None = None,
) -> Solution:
    """Run the agreed sections, or others, over sites; `ask` may lie about a step."""
    plan = read_plan(sections or agreed.run)
    assert plan is not None
    k, terms = len(agreed.sites), plan.privacy
    setting = Setting.pooled(agreed.name, agreed.encoding, agreed.splits, k)
    known: dict[str, Any] = {
        "model": plan.model_for(agreed.schema),
        "method": plan.method,
        "options": plan.options,
        "seed": plan.settings.seed or 0,
    }
    if terms is None:
        flow = solving(setting, plan.constraint, **known)
    else:
        adding = Adding(None, k, True, terms.colluding)
        about = (known["method"], known["options"])
        releases, clipped = planned(
            setting, plan.constraint, known["model"], *about, terms
        )
        flow = private_run(
            setting, plan.constraint, releases, clipped, *about, known["seed"], adding
        )
    splits = () if terms is not None else agreed.splits
    counts = [Census(agreed.schema, split) for split in splits]
    counted: dict[str, Any] = {}

    class Sites:
        """Asks the census once, and all else as it comes."""

        def ask_many(self, queries: list[Query[Any]]) -> list[Any]:
            told = ask or server.ask
            if counts and not counted:
                counted.update(zip(splits, told(counts), strict=True))
            posed = [q for q in queries if not q.counts_rows]
            found = iter(told(posed) if posed else ())
            return [counted[q.split] if q.counts_rows else next(found) for q in queries]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine: Any = Sites()
        return drive(engine, flow, callbacks=callbacks)


# Small rows


def make_silo(
    counts: dict[tuple[int, int], int], schema: Schema, seed: int = 0
) -> Silo:
    """Draw rows with so many of each (group, label), in train and test alike."""
    rng = np.random.default_rng(seed)
    splits = {}
    for split in ("train", "test"):
        n = sum(counts.values())
        group = np.repeat([g for g, _ in counts], list(counts.values()))
        y = np.repeat([y for _, y in counts], list(counts.values()))
        splits[split] = Rows.of(make_rows(rng, schema, n).X, y, group)
    return Silo("north", 0, splits)


def small_site(rules: Limits = OPEN, state: Path | None = None, **sizes: int) -> Site:
    """A site with groups f and m, and 40 rows of each label but what is said."""
    schema = make_schema()
    counts = {(g, y): sizes.get(f"{'fm'[g]}{y}", 40) for g in (0, 1) for y in (0, 1)}
    silo = make_silo(counts, schema)
    return Site(silo, alone(silo, schema), rules, state)


def problem_of(site: Site, constraint: Any = None, model: Any = None) -> Problem:
    """What a server knows after its census, here of this site alone."""
    federation = pffl.Federation(site.schema, (site.silo,), "one")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # small cells are the point
        problem, _ = prepare(
            Reference(federation),
            constraint or pffl.ConditionalBoundedGroupLoss(0.7),
            model or LogisticRegression(),
            Exact(multiplier_bound=10),
            Options(),
            0,
        )
    return problem


# Noise inside secure sums


@cache
def people(sites: int = 3, rows: int = 700) -> Federation:
    """Rows at so many sites."""
    return make_federation(0, sizes=(rows,) * sites, test=rows // 2)


def budget(data: Federation, epsilon: float = EPSILON, **more: Any) -> Privacy:
    """A budget, with the ranges of drawn inputs."""
    ranges = {str(name): (-6.0, 6.0) for name in data.schema.features}
    return Privacy(epsilon, ranges=ranges, **more)


def sections(terms: Privacy, method: str = "exact") -> dict[str, Any]:
    """The agreed run of a budget, as federation.json has it."""
    privacy = {"epsilon": terms.epsilon, "colluding": terms.colluding}
    privacy |= {"delta": terms.delta, "ranges": {n: [-6, 6] for n in terms.ranges}}
    return {**RUN, "model": {}, "method": {"kind": method}, "privacy": privacy}


def noisy_census(data: Federation, rows: float, inputs: float) -> Census:
    """A census whose counts, and sums of inputs, have so much noise."""
    end = np.full(data.schema.n_features, 6.0)
    noise = np.array([rows, inputs])
    return Census(data.schema, low=-end, high=end, longest=2.0, noise=noise)


def agreement(data: Federation, method: str = "exact", **more: Any) -> Agreement:
    """What sites agree on: secure sums, and a run with noise."""
    terms = budget(data, **more)
    return agree(data, run=sections(terms, method), floor=10)


def members(
    data: Federation, agreed: Agreement, folder: Path, epsilon: float = 10.0
) -> dict[str, Site]:
    """The sites, each in a folder, with a limit of its own."""
    for name in data.silo_names:
        (folder / name).mkdir(parents=True, exist_ok=True)
    return sites_of(data, agreed, folder=folder, rules=Limits(epsilon=epsilon))


def solve(
    data: Federation, engine: Remote, method: str = "exact", **more: Any
) -> pffl.Solution:
    """Run what was agreed on."""
    terms = more.pop("privacy", None) or budget(data)
    constraint = pffl.BoundedGroupLoss(BOUND)
    known = {"method": method, "random_state": 0, "privacy": terms, **more}
    return pffl.solve(engine, constraint, **known)


def put_back(folder: Path, site: str, copy: str) -> None:
    """Put a site's folder back as it was when it was copied."""
    shutil.rmtree(folder / site)
    shutil.copytree(folder / copy, folder / site)


def lines_of(folder: Path, name: str) -> list[Any]:
    """A site's account: what each release cost, and of what."""
    memory = SiteMemory(folder / name, new=False)
    found = [
        SimpleNamespace(mu=math.sqrt(e.mu2), mark=e.mark, body=dict(e.body))
        for e in memory.entries("charge")
    ]
    memory.close()
    return found
