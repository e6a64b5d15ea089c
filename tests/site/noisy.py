"""Sites that share noise inside secure sums: an account each, and a run."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pffl
from pffl.data import Federation
from pffl.privacy import Privacy
from pffl.site import Agreement, Rules, Site
from pffl.wire import Policy
from tests.engines.test_secure import engine_of as secured
from tests.helpers import make_federation
from tests.inside import Account, Line
from tests.inside import engines_remote_Secured as Secured
from tests.site.secure import agree, sites_of

EPSILON = 2.0
BOUND = 0.69


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
    privacy |= {"range": [f"{name}=-6,6" for name in terms.ranges]}
    return {
        "model": {},
        "constraint": {"kind": "bgl", "bound": BOUND},
        "method": {"kind": method},
        "run": {"seed": 0},
        "privacy": privacy,
    }


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
    return sites_of(data, agreed, folder=folder, rules=Rules(epsilon=epsilon))


def engine_of(
    data: Federation, agreed: Agreement, sites: dict[str, Any], **more: Any
) -> Secured:
    """An honest server over the sites."""
    known = {"policy": Policy(seconds=60.0), "name": agreed.name, "noise": True}
    return secured(data, sites, agreed, **known, **more)


def solve(
    data: Federation, engine: Secured, method: str = "exact", **more: Any
) -> pffl.Solution:
    """Run what was agreed on."""
    terms = more.pop("privacy", None) or budget(data)
    return pffl.solve(
        engine,
        pffl.BoundedGroupLoss(BOUND),
        method=method,
        seed=0,
        privacy=terms,
        **more,
    )


def lines_of(folder: Path, name: str) -> list[Line]:
    """A site's account."""
    return Account(folder / name, 10.0, 1e-6).lines()


def entered(lines: list[Line]) -> list[Any]:
    """What all sites must have entered alike: all but times, and hashes of them."""
    return [replace(line, time="", before="") for line in lines]


def sites_behind(engine: Secured) -> dict[str, Any]:
    """The sites of secure sums in one process."""
    transport: Any = engine._transport
    return {name: answer.__self__ for name, answer in transport.sites.items()}
