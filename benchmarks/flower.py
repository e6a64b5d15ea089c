"""A round over 200 silos and an in-memory Grid: what messages cost beside the answers.

    python benchmarks/flower.py

Fails if codec, admission, guard and Flower's own message objects take more than 3 ms a
silo and round, over what the same silos take to answer in this process. Every message
is answered by a ClientApp that opens its site anew and remembers, on disk, what it was
asked. Processor time, since machines are shared.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import pffl
from pffl.engines import Reference
from pffl.engines.flower import GridTransport
from pffl.engines.remote import Remote
from pffl.preparation import Options, prepare
from pffl.questions import Train
from tests.engines.flower.memory import EASY, grid_of

SILOS, ROUNDS, LIMIT = 200, 5, 3e-3


def main() -> None:
    federation = pffl.datasets.synthetic(silos=SILOS, rows=40 * SILOS, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        grid = grid_of(federation, Path(folder), EASY)
        there = Remote(
            GridTransport(grid, pause=0), federation.schema, federation.silo_names
        )
        here = Reference(federation)
        plain, messages = _seconds(here), _seconds(there)
    extra = (messages - plain) / SILOS
    print(f"{SILOS} silos: {messages:.3f} s a round, {plain:.3f} s without messages")
    print(f"{1e3 * extra:.2f} ms a silo and round (limit {1e3 * LIMIT:.0f})")
    if extra > LIMIT:
        raise SystemExit(1)


def _seconds(engine: pffl.engines.Engine) -> float:
    """The median processor time of a round of training."""
    constraint = pffl.BoundedGroupLoss(0.6)
    problem, _ = prepare(engine, constraint, None, pffl.PFFL(), Options(), 0)
    weights = problem.cell_weights(np.ones(problem.n_cells))
    times = []
    for number in range(ROUNDS):
        w = np.full(problem.n_parameters, 0.01 * number)
        question = Train(problem.task, w, 1.0, weights, np.full(5, 0.1), round=number)
        began = time.process_time()
        engine.ask(question)
        times.append(time.process_time() - began)
    return float(np.median(times))


if __name__ == "__main__":
    main()
