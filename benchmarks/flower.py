"""A round over 200 silos and an in-memory Grid: what messages cost beside the answers.

    python benchmarks/flower.py

Fails if codec, admission and Flower's own message objects take more than 3 ms a silo
and round, over what the same silos take to answer in this process. The second figure is
with sites that are opened for each message and remember on disk what they were asked,
as in a deployed run. Processor time, since machines are shared.
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
from pffl.engines.remote import Remote
from pffl.flower import GridTransport
from pffl.preparation import Options
from pffl.queries import Train
from pffl.solving import prepared as prepare
from tests.flower.memory import MemoryGrid, grid_of, lasting_grid

SILOS, ROUNDS, LIMIT = 200, 5, 3.0


def main() -> None:
    federation = pffl.datasets.synthetic(silos=SILOS, rows=40 * SILOS, seed=0)
    plain = _seconds(Reference(federation))
    lasting = _seconds(_remote(lasting_grid(federation), federation))
    with tempfile.TemporaryDirectory() as folder:
        anew = _seconds(_remote(grid_of(federation, Path(folder)), federation))
    print(f"{SILOS} silos, ms a silo and round beside the answers (limit {LIMIT:g}):")
    print(f"  sites that live on             {_per_silo(lasting - plain):.2f}")
    print(f"  sites opened for each message  {_per_silo(anew - plain):.2f}")
    if _per_silo(lasting - plain) > LIMIT:
        raise SystemExit(1)


def _remote(grid: MemoryGrid, federation: pffl.Federation) -> Remote:
    transport = GridTransport(grid, pause=0)
    return Remote(transport, federation.schema, federation.silo_names)


def _per_silo(seconds: float) -> float:
    return 1e3 * seconds / SILOS


def _seconds(engine: pffl.engines.Engine) -> float:
    """The median processor time of a round of training."""
    constraint = pffl.BoundedGroupLoss(0.6)
    problem, _ = prepare(engine, constraint, None, pffl.PFFL(), Options(), 0)
    weights = problem.cell_weights(np.ones(problem.n_cells))
    times = []
    for number in range(ROUNDS):
        w = np.full(problem.n_parameters, 0.01 * number)
        query = Train(problem.task, w, 1.0, weights, np.full(5, 0.1), round=number)
        began = time.process_time()
        engine.ask(query)
        times.append(time.process_time() - began)
    return float(np.median(times))


if __name__ == "__main__":
    main()
