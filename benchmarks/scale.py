"""What many sites cost: bytes, seconds and memory, measured and fitted.

    .venv/bin/python benchmarks/scale.py messages [--sites 10000]
    .venv/bin/python benchmarks/scale.py memory [--silos 1000000]
    .venv/bin/python benchmarks/scale.py model

`messages` asks sites in this process over the codec. `memory` builds and solves a
federation of many small silos. `model` fits bytes and seconds of a message to sites,
cells and parameters, and computes what a national deployment would cost. Processor
time, since machines are shared.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pffl
from pffl._solve import prepared
from pffl.deploy import InMemory, Remote
from pffl.engines import Local
from pffl.prepare import Options
from pffl.queries import Census, Expand
from pffl.queries.validation import Policy

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.peers import (
    bound_for,
    federation,
    machine,
    people,
    ready,
    spent,
)
from tests.deploy.sites import FREE, agree
from tests.deploy.sites import sites_of as guarded

PATIENT = Policy(seconds=3600.0, join_seconds=3600.0)


def sites_of(data: pffl.Federation) -> dict[str, Any]:
    found = guarded(data, unmasked(data), rules=FREE)
    return {name: site.answer for name, site in found.items()}


def unmasked(data: pffl.Federation) -> Any:
    return agree(data, secure_sum=False, floor=0)


def queries(data: pffl.Federation) -> list[Expand]:
    """One of each kind that a certified run asks again and again."""
    engine = Local(data)
    constraint = pffl.BoundedGroupLoss(0.6)
    problem, _ = prepared(engine, constraint, None, pffl.Exact(), Options(), seed=0)
    w = np.full(problem.n_parameters, 0.01)
    task = problem.task
    return [Expand(task, w), Expand(task, w, 2)]


# ---------------------------------------------------------------- messages


class Clocked(InMemory):
    """Knows how many seconds were spent below."""

    below = 0.0

    def exchange(self, requests: Any, seconds: float, kind: str) -> Any:
        replies = super().exchange(requests, seconds, kind)
        while True:
            start = time.process_time()
            reply = next(replies, None)
            self.below += time.process_time() - start
            if reply is None:
                return
            yield reply


def messages(sites: int, rows: int = 20, p: int = 20) -> None:
    """Ask all sites; what the server itself does is timed apart."""
    X, y, group = people(sites * rows, p, 2)
    data = federation(X, y, group, sites)
    asked = queries(data)
    print(f"{machine()}\n\n{sites:,} sites × {rows} rows, {p} inputs, 2 cells\n")
    print(
        "| query | messages at the server | MB out | MB back | server CPU s "
        "| all CPU s |\n|---|---|---|---|---|---|"
    )
    at = sites_of(data)
    engine = Remote(InMemory(at), unmasked(data), policy=PATIENT)
    for query in [Census(data.schema), *asked]:  # the first also finds the sites
        clock = Clocked(at)
        engine._transport = clock
        done = spent(lambda q=query: engine.ask(q))
        entry = engine.record.entries[-1]
        print(
            f"| {query.kind} | {len(entry['answered']):,} "
            f"| {entry['bytes_sent'] / 1e6:.2f} "
            f"| {entry['bytes_received'] / 1e6:.2f} | {done.cpu - clock.below:.3f} "
            f"| {done.cpu:.2f} |",
            flush=True,
        )


# ---------------------------------------------------------------- many silos


def memory(silos: int, rows: int = 20, p: int = 10) -> None:
    """Build and solve a federation of many small silos."""
    print(f"{machine()}\n\n{silos:,} silos × {rows} rows × {p} inputs\n")
    print("| step | CPU s | wall s | peak GB |\n|---|---|---|---|")
    X, y, group = people(silos * rows, p, 2)
    constraint, places = pffl.BoundedGroupLoss(0.6), np.arange(silos * rows) // rows

    def step(what: str, work: Callable[[], Any]) -> Any:
        done = spent(work)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"| {what} | {done.cpu:.1f} | {done.wall:.0f} | {peak:.2f} |", flush=True)
        return done.found

    data = step(
        "Federation.from_arrays",
        lambda: pffl.Federation.from_arrays(
            X, y, sensitive_features=group, silo=places
        ),
    )
    given = (Local(data), constraint, None, pffl.Exact(), Options())
    step("census and hashes of all rows", lambda: prepared(*given, seed=0))
    found = step("solve", lambda: pffl.solve(data, constraint, seed=0))
    print(f"\n{found.status}, {found.rounds} rounds")


# ---------------------------------------------------------------- cost model


POINTS = ((2, 20), (10, 20), (50, 20), (2, 100), (10, 100), (2, 300), (10, 300))
SITES, ROWS = 20, 400
NATION = {"sites": 5_000, "cells": 50, "inputs": 500}
QUESTION_SECONDS = 6.5  # of Flower as deployed, 3 sites, a quiet machine: measured
WARM_SECONDS = 2.6  # with a warm executor and shorter pauses, loaded: measured
FLOWER_CPU = 2.2e-3  # s a site and message of Flower's objects and our codec: measured
LINE = 125e6  # bytes a second: 1 Gbit/s, assumed


def numbers(kind: str, cells: int, p: int) -> float:
    """Numbers of an answer: of F and of each cell, value, gradient, half a Hessian."""
    one = 1 + p + (p * (p + 1) / 2 if kind == "curvature" else 0)
    return (cells + 1) * one


def measured(order: int, cells: int, inputs: int) -> tuple[float, ...]:
    """Bytes to and from a site, and seconds of server and site, of one message."""
    X, y, group = people(SITES * ROWS, inputs, cells)
    data = federation(X, y, group, SITES)
    query = next(q for q in queries(data) if q.order == order)
    transport = Clocked(sites_of(data))
    engine = Remote(transport, unmasked(data), policy=PATIENT)
    engine.ask(query)
    best = (np.inf, np.inf)
    for _ in range(3):
        transport.below = 0.0
        done = spent(lambda: engine.ask(query))
        best = min(best, (done.cpu - transport.below, transport.below))
    entry = engine.record.entries[-1]
    sent, back = entry["bytes_sent"] / SITES, entry["bytes_received"] / SITES
    return sent, back, best[0] / SITES, best[1] / SITES


def fitted(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return a ≥ 0 and b ≥ 0 of y ≈ a + b x, in relative error."""
    from scipy.optimize import nnls

    design = np.column_stack([1 / y, x / y])
    return tuple(nnls(design, np.ones(len(y)))[0])


def model() -> None:
    """Fit what a message costs; compute what a nation would pay."""
    print(f"{machine()}; {SITES} sites × {ROWS} rows, best of 3\n")
    print(
        "| query | cells | inputs | bytes out | bytes back | numbers back "
        "| server ms | site ms |\n|---|---|---|---|---|---|---|---|"
    )
    found: dict[str, list[tuple[float, ...]]] = {}
    for name, order in (("slopes", 1), ("curvature", 2)):
        for cells, inputs in POINTS:
            row = measured(order, cells, inputs)
            n = numbers(name, cells, inputs + 1)
            found.setdefault(name, []).append((n, *row))
            print(
                f"| {name} | {cells} | {inputs} | {row[0]:,.0f} | {row[1]:,.0f} "
                f"| {n:,.0f} | {1e3 * row[2]:.2f} | {1e3 * row[3]:.2f} |",
                flush=True,
            )
    fits = {}
    print("\n| query | bytes back | server s | off by at most |\n|---|---|---|---|")
    for name, rows in found.items():
        n, _, back, server, _ = np.array(rows).T
        (a, b), (c, d) = fitted(n, back), fitted(n, server)
        off = np.abs((c + d * n) / server - 1).max()
        fits[name] = (a, b, c, d)
        print(
            f"| {name} | {a:,.0f} + {b:.2f} × numbers | {1e3 * c:.2f} ms + "
            f"{1e9 * d:.1f} ns × numbers | {off:.0%} |"
        )
    nation(fits)


def nation(fits: dict[str, tuple[float, ...]]) -> None:
    """Compute a national deployment's round from the fits and Flower's seconds."""
    sites, cells, p = NATION["sites"], NATION["cells"], NATION["inputs"] + 1
    print(f"\n{sites:,} sites, {cells} cells, {p - 1} inputs\n")
    X, y, group = people(50_000, p - 1, cells)
    method = pffl.FirstOrder(multiplier_bound=10.0)
    data, bound = federation(X, y, group, 10), bound_for(X, y, group)
    run = ready(Local(data), bound, method)[1]()
    print(f"{run.rounds} rounds of FirstOrder, in process, 50,000 rows\n")
    print(
        "| query | MB a site | read by the server | server CPU s | at 1 Gbit/s "
        "| a round on Flower |\n|---|---|---|---|---|---|"
    )
    for name, (a, b, c, d) in fits.items():
        n = numbers(name, cells, p)
        each, work = a + b * n, c + d * n + FLOWER_CPU
        line, cpu_s = sites * each / LINE, sites * work
        seconds = QUESTION_SECONDS + max(line, cpu_s)
        print(
            f"| {name} | {each / 1e6:.3g} | {sites * each / 1e9:.3g} GB "
            f"| {cpu_s:,.3g} | {line:,.3g} s | {seconds:,.3g} s |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("messages", "memory", "model"))
    parser.add_argument("--sites", type=int, default=10_000)
    parser.add_argument("--silos", type=int, default=1_000_000)
    asked = parser.parse_args()
    match asked.what:
        case "messages":
            messages(asked.sites)
        case "memory":
            memory(asked.silos)
        case "model":
            model()


if __name__ == "__main__":
    main()
