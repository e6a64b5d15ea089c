"""Rounds over many sites in one process, plain and under secure sums; see .md.

    .venv/bin/python benchmarks/secure_sums.py

Every message goes through the codec: envelopes, and under secure sums relayed answers,
signatures, transcripts and masks. A site does its own rows' work in both. Processor
milliseconds a round (a message to every site), divided by the number of sites; plain
and secure rounds take turns, and the least of a few is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import pffl
from pffl.data import Attribute, Federation, Rows, Schema, Silo
from pffl.engines.remote import InMemory, Remote
from pffl.preparation import Options
from pffl.queries import Expand, Query, Train
from pffl.site import Site
from pffl.site.at_hand import OPEN, secured
from pffl.solving import prepared

SITES = {3: 3, 10: 3, 50: 3, 200: 1}  # and repeats
ROWS, FEATURES = 100, 9


def federation_of(sites: int, features: int = FEATURES) -> Federation:
    """Draw so many silos of a hundred rows."""
    rng = np.random.default_rng(sites)
    names = tuple(f"x{j}" for j in range(features))
    schema = Schema(names, (Attribute("sex", ("f", "m")),), ("no", "yes"))
    silos = []
    for k in range(sites):
        X = rng.normal(size=(ROWS, features))
        y = (X[:, 0] + rng.normal(size=ROWS) > 0).astype(float)
        rows = Rows.of(X, y, rng.integers(2, size=ROWS))
        silos.append(Silo(f"site {k:03d}", k, {"train": rows, "test": rows}))
    return Federation(schema, tuple(silos))


@dataclass
class Clock:
    """Adds up what sites spend, apart from the server."""

    seconds: float = 0.0
    bytes: int = 0
    answers: dict[str, Callable[[bytes], bytes]] = field(default_factory=dict)

    def timed(self, answer: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        """Return a site whose processor time is counted."""

        def timed(content: bytes) -> bytes:
            start = time.process_time()
            found = answer(content)
            self.seconds += time.process_time() - start
            self.bytes += len(content) + len(found)
            return found

        return timed


def engines_of(federation: Federation) -> dict[str, tuple[Remote, Clock]]:
    """Return an engine without masks and one with them, over the same rows."""
    open_sites = {s.name: Site(s, federation.schema, OPEN) for s in federation.silos}
    plain = Remote(
        InMemory({name: site.answer for name, site in open_sites.items()}),
        federation.schema,
        federation.silo_names,
    )
    found = {}
    for name, engine in (("plain", plain), ("secure", secured(federation))):
        clock, transport = Clock(), engine._transport
        assert isinstance(transport, InMemory)
        transport.sites = {at: clock.timed(s) for at, s in transport.sites.items()}
        found[name] = (engine, clock)
    return found


def asked(engine: Remote, rng: np.random.Generator) -> dict[str, Query]:
    """Return what `Exact`, `FirstOrder` and `PFFL` ask in a round, at another w."""
    constraint, method = pffl.BoundedGroupLoss(0.6), pffl.Exact()
    problem, _ = prepared(engine, constraint, None, method, Options(), 0)
    w, weights = 0.1 * rng.normal(size=problem.n_parameters), 1 / problem.counts
    return {
        "curvature": Expand(problem.task, w, 2),
        "slopes": Expand(problem.task, w),
        "train": Train(problem.task, w, 1.0, weights, np.full(5, 0.1)),
    }


def main() -> None:
    """Print the table."""
    columns = "sites", "query", "", "site ms", "server ms", "kB both ways"
    print("|", " | ".join(columns), "|")
    print("|---" * len(columns) + "|")
    for sites, repeats in SITES.items():
        engines, rng = engines_of(federation_of(sites)), np.random.default_rng(0)
        times: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
        for _ in range(repeats):
            for name, (engine, clock) in engines.items():
                for kind, query in asked(engine, rng).items():
                    clock.seconds = clock.bytes = 0
                    start = time.process_time()
                    engine.ask(query)
                    whole = time.process_time() - start
                    spent = (clock.seconds, whole - clock.seconds, clock.bytes)
                    times.setdefault((kind, name), []).append(spent)
        for (kind, name), found in times.items():
            site, server, size = (min(column) for column in zip(*found, strict=True))
            numbers = (1e3 * site / sites, 1e3 * server / sites, size / 1e3 / sites)
            cells = " | ".join(f"{number:,.2f}" for number in numbers)
            print(f"| {sites} | {kind} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
