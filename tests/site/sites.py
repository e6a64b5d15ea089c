"""Sites over small rows, and queries as a server would send them."""

from __future__ import annotations

import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import pffl
from pffl.data import Rows, Schema, Silo
from pffl.engines import Reference
from pffl.preparation import Options
from pffl.problem import Problem
from pffl.queries import Census
from pffl.site import Agreement, Rules, Site
from pffl.wire import (
    Answer,
    Request,
    query_body,
    read_answer,
    read_total,
    write_request,
)
from tests.driving import prepare
from tests.helpers import make_federation, make_rows, make_schema
from tests.inside import Entry, Log

OPEN = Rules(floor=1, queries=10_000, batches=True, radius=100.0)


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
        X = make_rows(rng, schema, n).X
        splits[split] = Rows.of(X, y, group)
    return Silo("north", 0, splits)


def small_site(rules: Rules = OPEN, state: Path | None = None, **sizes: int) -> Site:
    """A site with groups f and m, and 40 rows of each label but what is said."""
    schema = make_schema()
    counts = {(g, y): sizes.get(f"{'fm'[g]}{y}", 40) for g in (0, 1) for y in (0, 1)}
    return Site(make_silo(counts, schema), schema, rules, state)


def problem_of(site: Site, constraint: Any = None, model: Any = None) -> Problem:
    """What a server knows after its census, here of this site alone."""
    federation = pffl.Federation(site.schema, (site.silo,), "one")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # small cells are the point
        problem, _ = prepare(
            Reference(federation),
            constraint or pffl.ConditionalBoundedGroupLoss(0.7),
            model or pffl.LogisticRegression(),
            pffl.Exact(multiplier_bound=10),
            Options(),
            0,
        )
    return problem


def message(
    site: Site,
    query: Any,
    number: tuple[int, int] = (0, 1),
    *,
    index: int = 0,
    run: str = "run",
    **changes: Any,
) -> bytes:
    """The bytes that a server sends."""
    fields = {"version": version("pffl"), "schema": site.schema.hash} | changes
    queries = query if isinstance(query, list) else [query]
    bodies = tuple(query_body(one, index) for one in queries)
    return write_request(Request(run, *number, bodies=bodies, **fields))


def ask(site: Site, query: Any, number: tuple[int, int] = (0, 1), **more: Any) -> Any:
    """The total that a site answers with."""
    answer = send(site, query, number, **more)
    assert not answer.refusal, answer.refusal
    return read_total(answer.bodies[0], query, 0, site.schema.hash)[0]


def send(
    site: Site, query: Any, number: tuple[int, int] = (0, 1), **more: Any
) -> Answer:
    """What a site answers with."""
    return read_answer(site.answer(message(site, query, number, **more)))


def census(site: Site, split: str = "train") -> Census:
    return Census(site.schema, split)


def refusals_of(folder: Path) -> list[Entry]:
    """What a site's log says that it refused."""
    return [entry for entry in Log(folder).read() if entry.refused]


def write_site(folder: Path, text: str = "", *, seed: int = 0) -> Path:
    """A folder as `pffl deploy` leaves it, with a table of 200 rows; not prepared."""
    federation = make_federation(seed, sizes=(200, 60), test=20)
    agreed = Agreement.of(federation, ("north", "south"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "federation.json").write_text(agreed.text(), "utf-8")
    (folder / "site.toml").write_text(
        text or '[site]\nname = "north"\ntable = "rows.csv"\n', "utf-8"
    )
    rows = federation.silos[0].rows("train")
    schema = federation.schema
    lines = [",".join([*schema.features, "sex", schema.target])]
    lines += [
        ",".join([*map(repr, x.tolist()), schema.groups[g], schema.labels[int(y)]])
        for x, y, g in zip(rows.X, rows.y, rows.group, strict=True)
    ]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    return folder
