"""Sites of a secure sum in this process, and a server that asks them step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pffl.data import Federation
from pffl.queries import Query, Total
from pffl.site import Agreement, Rules, Site
from pffl.wire import (
    Answer,
    Request,
    query_body,
    read_answer,
    read_masked,
    write_request,
)
from tests.inside import SiteKeys, masks
from tests.site.sites import OPEN

VERSION = version("pffl")


@cache
def keys_of(name: str) -> SiteKeys:
    """The same keys for a name throughout."""
    return SiteKeys.generate()


def agree(federation: Federation, **changes: Any) -> Agreement:
    """What the silos of a federation agree on: secure sums."""
    public = {name: keys_of(name).public for name in federation.silo_names}
    agreed = replace(Agreement.of(federation), keys=public, secure_sum=True, floor=1)
    return replace(agreed, **changes)


def sites_of(
    federation: Federation,
    agreed: Agreement,
    *,
    folder: Path | None = None,
    rules: Rules = OPEN,
) -> dict[str, Site]:
    """A site for each silo, by name."""
    return {
        silo.name: Site(
            silo,
            federation.schema,
            rules,
            None if folder is None else folder / silo.name,
            agreement=agreed,
            keys=keys_of(silo.name),
        )
        for silo in federation.silos
    }


@dataclass
class Server:
    """Asks all sites the same, step by step; subclasses lie."""

    sites: Mapping[str, Any]
    schema_hash: str
    run: str = "run"
    step: int = 0
    number: int = 0
    relay: tuple[bytes, ...] = ()
    log: list[tuple[Request, tuple[bytes, ...]]] = field(default_factory=list)

    def request(self, queries: Sequence[Query[Any]], **changes: Any) -> Request:
        """The next step, as a message."""
        if queries and not self.step and not self.relay:
            self.open()
        self.number += 1
        bodies = tuple(query_body(q, 0) for q in queries)
        made = Request(
            self.run,
            0,
            self.number,
            VERSION,
            self.schema_hash,
            bodies,
            step=self.step + 1,
            relay=self.relay,
        )
        return replace(made, **changes)

    def open(self) -> None:
        """Have all sites announce their keys of the run."""
        self.number += 1
        asked = Request(self.run, 0, self.number, VERSION, self.schema_hash, ())
        content = write_request(asked)
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
        length = sum(masks.size(q) for q in queries)
        flats = [read_masked(answer, length) for answer in answers]
        return masks.decode_all(queries, masks.add(flats), len(flats))
