"""What messages cost: a round over the codec and the gate, against the answers alone.

200 silos in this process, one function of bytes to bytes each; no Flower. Overhead is
the round over `Remote` less the time that the silos' own `Question.answer` takes, and
holds both ends: the server's and the sites'. Processor time, since machines are shared.

.venv/bin/python benchmarks/remote.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import pffl
from pffl.engines import Reference
from pffl.engines.remote import InMemory, Remote
from pffl.preparation import Options
from pffl.questions import Curvature, Evaluate, Question, Train
from pffl.solving import prepared as prepare

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.engine import federation
from tests.engines.sites import PlainSite

SILOS, ROWS = 200, 500
GOAL = 3.0  # ms a silo


def questions(engine: Reference) -> list[Question]:
    """One of each kind, with two cells and 24 parameters."""
    method = pffl.PFFL()
    constraint = pffl.BoundedGroupLoss(0.6)
    problem, _ = prepare(engine, constraint, None, method, Options(), seed=0)
    w = np.full(problem.n_parameters, 0.01)
    weights = problem.cell_weights(np.array([0.5, 1.5]))
    task = problem.task
    return [
        Train(task, w, 1.0, weights, np.full(5, 0.01)),
        Evaluate(task, w, "train"),
        Curvature(task, w),
        Curvature(task, w, majorant=True),
    ]


def cpu(work: Callable[[], object], repeats: int = 5) -> float:
    """Best processor time of several runs, in ms a silo."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best / SILOS * 1e3


def main() -> None:
    """Print a line for each question; fail above the goal."""
    data = federation(SILOS, ROWS)
    sites = {s.name: PlainSite(s, data.schema) for s in data.silos}
    plain = Reference(data)
    remote = Remote(InMemory(sites), data.schema, data.silo_names)
    print(f"{SILOS} silos of {ROWS} rows; ms a silo and round")
    worst = 0.0
    for question in questions(plain):
        remote.ask(question)
        plain.ask(question)
        alone = cpu(lambda q=question: plain.ask(q))
        whole = cpu(lambda q=question: remote.ask(q))
        worst = max(worst, whole - alone)
        entry = remote.record.entries[-1]
        print(
            f"{type(question).__name__.lower():10} answers {alone:6.3f}   "
            f"over messages {whole:6.3f}   overhead {whole - alone:6.3f}   "
            f"bytes out {entry['bytes_sent'] // SILOS:,}, "
            f"back {entry['bytes_received'] // SILOS:,}"
        )
    if worst > GOAL:
        raise SystemExit(f"{worst:.2f} ms a silo: the goal is {GOAL:g}")


if __name__ == "__main__":
    main()
