"""A set of people that only one or two sites have: nobody is told its sum.

Masks hide a site among sites. A total over a set that one site has is that site's sum,
and of two each knows the other's. So sites count first, under masks, how many of them
have enough people of each set, and leave out the others, at every site.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pffl
from pffl.data import Federation, Rows, Silo
from pffl.deploy import Limits
from pffl.queries import Census
from tests.deploy.sites import RUN, Server, agree, engine_of, sites_of
from tests.helpers import make_schema
from tests.inside import Request, write_request

GROUPS = ("common", "at two", "at one")
MANY = 40


def people(sites: int) -> Federation:
    """All have the first group, two sites the second, one the third."""
    schema = make_schema(features=3, attributes=[("group", GROUPS)])
    silos = []
    for k in range(sites):
        rng = np.random.default_rng(k)
        own = [0, 0, *([1] if k < 2 else []), *([2] if k == 0 else [])]
        group = np.repeat(own, MANY)
        X = rng.normal(size=(len(group), 3))
        y = (rng.random(len(group)) < 0.5).astype(float)
        rows = Rows.of(X, y, group)
        silos.append(Silo(f"site {k}", k, {"train": rows, "test": rows}))
    return Federation(schema, tuple(silos), "people")


def told(sites: int) -> tuple[Any, Any]:
    """The census of training rows that a server reads, and its engine."""
    data = people(sites)
    agreed = agree(data, run=RUN, floor=10)
    answering = sites_of(data, agreed, rules=Limits())
    engine = engine_of(answering, agreed)
    return engine.ask(Census(data.schema, "train")), engine


@pytest.mark.parametrize(
    ("sites", "kept"), [(3, ["common", "at two"]), (4, ["common"])]
)
def test_sums_of_one_site_are_never_told(sites: int, kept: list[str]) -> None:
    """Of four sites a server and one of them learn no sum of one site."""
    total, engine = told(sites)
    people_of = total.counts[0].reshape(len(GROUPS), -1).sum(axis=1)
    assert [g for g, n in zip(GROUPS, people_of, strict=True) if n] == kept
    assert people_of[0] == 2 * MANY * sites
    said = " ".join(engine.notes)
    assert "left out at all sites, of 'train'" in said
    assert "at one" in said
    known = {"options": pffl.Options(empty_cells="remove"), "random_state": 0}
    found = pffl.solve(engine, pffl.BoundedGroupLoss(0.72), method="exact", **known)
    assert list(found.cells.index) == kept


def test_a_server_that_skips_the_count_is_refused() -> None:
    data = people(4)
    agreed = agree(data, run=RUN, floor=10)
    census = [Census(data.schema, "train")]
    server, early = (Server(sites_of(data, agreed, rules=Limits())) for _ in range(2))
    asked = server.request(census)
    assert asked.step == 2
    hello = write_request(Request(early.run, agreed.hash))
    early.relay = tuple(site.answer(hello) for site in early.sites.values())
    assert "how many sites" in early.send("site 0", early.request(census)).refusal
    assert not server.send("site 0", asked).refusal
