"""ACS 2024, all 2,240,783 rows: from the file to a verdict, with `Exact`.

    .venv/bin/python benchmarks/acs.py [FILE]

Prints for each (bound, B) rounds, gap, seconds and the ratio of the solve to as many bare
products ``X.T @ (d[:, None] * X)`` on the same rows, measured in the same run; and the
peak memory against the feature matrix. FILE is a Parquet extract, by default the one
beside the project (see its README).
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np
from ratios import header, seconds, show

import pffl
from pffl.engines import Local

FILE = Path(__file__).parents[2] / "shared/data/acs_employment_2024_48st_dc.parquet"
POINTS = tuple(
    (bound, price) for bound in (0.58, 0.6, 0.62, 0.65) for price in (1.0, 10.0, 500.0)
)
TOLERANCE = 1e-6


def peak() -> float:
    """Peak memory of this process in bytes, as the system counts it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def load(path: Path) -> tuple[pffl.Federation, float]:
    """Read the file; also return the seconds."""
    start = time.perf_counter()
    federation = pffl.datasets.acs(year=2024, filter="filtered", source=path)
    return federation, time.perf_counter() - start


def matrix(federation: pffl.Federation) -> float:
    """Bytes of the feature matrix: all rows of all splits."""
    return float(
        sum(rows.X.nbytes for silo in federation.silos for rows in silo.splits.values())
    )


def solve(engine: Local, bound: float, price: float) -> tuple[pffl.Solution, float]:
    """Solve one point from a cold start; also return the seconds."""
    start = time.perf_counter()
    solution = pffl.solve(
        engine,
        pffl.BoundedGroupLoss(bound),
        method=pffl.Exact(multiplier_bound=price, tolerance=TOLERANCE),
        seed=0,
    )
    return solution, time.perf_counter() - start


def bare_product(engine: Local) -> float:
    """Seconds of one ``X.T @ (d[:, None] * X)`` over the training rows, silo by silo.

    Row-blocked, for a temporary as large as X would be slower and not fit the memory
    asked for; BLAS uses all its threads.
    """
    parts = [silo.rows().X for silo in engine.federation.silos]
    weights = np.full(max(map(len, parts)), 0.25)
    step = 4096

    def products() -> None:
        total = np.zeros((parts[0].shape[1],) * 2)
        for X in parts:
            for start in range(0, len(X), step):
                block = X[start : start + step]
                total += block.T @ (weights[: len(block), None] * block)

    return seconds(products, repeats=3)


def main() -> None:
    """Measure, and print beside what is asked."""
    header()
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    begin = time.perf_counter()
    federation, loading = load(path)
    engine = Local(federation)
    first, _ = solve(engine, *POINTS[0])
    verdict = time.perf_counter() - begin
    rows = federation.rows("train") + federation.rows("test")
    features = matrix(federation)
    print(f"{federation.name}: {rows:,} rows, {len(federation)} silos")
    print(f"{federation.schema.n_features} inputs, {features / 1e9:.2f} GB")
    show("seconds from file to Federation", loading, "below 25")
    show(f"seconds from file to verdict ('{first.status}')", verdict, "below 60")
    show("peak memory, GB", peak() / 1e9, "below 3")
    product = bare_product(engine)
    print(f"one bare product: {product:.3f} s")
    print("bound     B  status        rounds      gap  seconds  ratio to products")
    most_rounds, largest_gap, ratios = 0, 0.0, []
    for bound, price in POINTS:
        solution, took = solve(engine, bound, price)
        ratio = took / (solution.rounds * product)
        print(
            f"{bound:5.2f} {price:5g}  {solution.status:<12} {solution.rounds:7d} "
            f"{solution.gap:8.1e} {took:8.2f} {ratio:8.2f}",
            flush=True,
        )
        most_rounds = max(most_rounds, solution.rounds)
        largest_gap = max(largest_gap, solution.gap or np.inf)
        ratios.append(ratio)
    show("rounds, at most", most_rounds, "at most 12")
    show("gap / 1e-6, at most", largest_gap / 1e-6, "at most 1")
    show("solve against that many products, median", float(np.median(ratios)), "≤ 3")
    show("solve against that many products, worst", max(ratios), "≤ 3")
    show("peak memory against the feature matrix", peak() / features, "at most 2.5")


if __name__ == "__main__":
    main()
