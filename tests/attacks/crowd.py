"""Three sites behind secure sums, and a server that twists what it asks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import pffl
from pffl.data import Federation, Silo
from pffl.deploy import Agreement, InMemory, Remote, Site
from pffl.engines import Reference
from pffl.methods import FirstOrder
from pffl.queries import Pool, Task
from tests.attacks.askers import Pooled, people
from tests.deploy.sites import Server, agree, sites_of
from tests.helpers import make_problem
from tests.inside import Answer, Request, read_answer, read_request, write_request

RUN: Mapping[str, Any] = {
    "constraint": {"kind": "bgl", "bound": 0.68},
    "method": {"kind": "first-order"},
    "run": {"seed": 0},
}
NAME = "a run"
STEPS = 4


@cache
def crowd(inputs: int = 4) -> Federation:
    """Three sites with people who are alone with their age in their cell."""
    drawn = [people(400, seed=k, inputs=inputs) for k in range(3)]
    silos = [Silo(f"site {k}", k, silo.splits) for k, (silo, _) in enumerate(drawn)]
    return Federation(drawn[0][1], tuple(silos), "crowd")


@cache
def pooled_task() -> Task:
    """What a server knows of the crowd after the census, by (group, label)."""
    federation = crowd()
    engine = Reference(federation)
    problem = make_problem(engine, pffl.ConditionalBoundedGroupLoss(0.7))
    rows = sum(len(silo.rows("train")) for silo in federation.silos)
    return replace(problem.task, pool=Pool(len(federation.silos), False, float(rows)))


def agreed() -> Agreement:
    """What the crowd agrees on."""
    return agree(crowd(), run=RUN)


class Enough(BaseException):
    """All that is needed was heard."""


class Overheard:
    """An honest run, and the first messages of it."""

    def __init__(self) -> None:
        self.steps: list[Request] = []
        self.before: list[dict[str, Any]] = []  # each step, what sites remembered
        self.agreement = agreed()
        self.sites = sites_of(crowd(), self.agreement)
        heard = {name: self._heard(site) for name, site in self.sites.items()}
        engine = Remote(InMemory(heard), self.agreement, run=NAME)
        with suppress(Enough):
            constraint = pffl.BoundedGroupLoss(0.68)
            pffl.solve(engine, constraint, method=FirstOrder(), random_state=0)

    def _heard(self, site: Site) -> Any:
        def answer(content: bytes) -> bytes:
            request = read_request(content)
            if request.bodies and site.name == crowd().silo_names[0]:
                self.steps.append(request)
                self.before.append({n: memory(s) for n, s in self.sites.items()})
                if len(self.steps) > STEPS:
                    raise Enough
            return site.answer(content)

        return answer

    def until(self, step: int) -> Mapping[str, Site]:
        """Return sites that were asked all that comes before a step."""
        sites = sites_of(crowd(), self.agreement)
        for name, (runs, remembered) in self.before[step - 1].items():
            site: Any = sites[name]
            site.records.memory = dict(runs)
            site.memory._db.deserialize(remembered)
            site.memory._seen = (0, "")
        return sites


def memory(site: Any) -> tuple[Any, bytes]:
    """What a site remembers of its runs."""
    return dict(site.records.memory), site.memory._db.serialize()


class Masked(Pooled):
    """Goes on with a run, and asks all sites whatever it likes; reads the sums."""

    def __init__(self, run: Overheard, step: int) -> None:
        relay, self.refusals = run.steps[step - 1].relay, []
        self.server = Server(run.until(step), run=NAME, step=step - 1, relay=relay)


def tell_all(sites: Mapping[str, Site], requests: Sequence[Request]) -> list[Answer]:
    """Send each site a request of its own."""
    return [
        read_answer(site.answer(write_request(request)))
        for site, request in zip(sites.values(), requests, strict=True)
    ]


@cache
def overheard() -> Overheard:
    """One honest run for all tests."""
    return Overheard()


def counts_in_all(task: Task, values: np.ndarray) -> np.ndarray:
    """People of all sites per cell and value of the first input."""
    from tests.attacks.chosen import counts_by_value

    rows = [silo.rows("train") for silo in crowd().silos]
    first = np.concatenate([np.asarray(r.X)[:, 0] for r in rows])
    strata = np.concatenate([crowd().schema.strata(r.group, r.y) for r in rows])
    return counts_by_value(task, first, strata, values)
