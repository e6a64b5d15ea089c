"""Algorithm 1 on ACS: what a budget of gradients buys, with which settings.

    python -m benchmarks.acs_algorithm_one [PEOPLE] [SEEDS]

ACS employment 2024 by state, bounded loss of races; PEOPLE a state (3,000; 0 for all
rows), SEEDS of the split. Every setting has 1,000 gradients per silo (J local steps a
round, those of the looks and of drift correction not counted: they are in the column
"gradients"). Beside them `exact`, which solves the same problem to its gap.
"value" is βF + B·max(0, max r) on training rows, less the optimum's: what is left to
gain. The gap is that of a Newton best response, in parts of β + Σλ. "worst" is the
largest loss of a race on test rows.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pffl
from pffl import flow
from pffl._solve import prepared
from pffl.driver import drive
from pffl.engines import Local
from pffl.evidence.metrics import metrics
from pffl.evidence.proofs import measure_gap
from pffl.methods.base import Method
from pffl.prepare import Options
from pffl.problem import upper_value
from pffl.queries import Evaluate

FILE = Path(__file__).parents[2] / "shared/data/acs_employment_2024_48st_dc.parquet"
BUDGET = 1000
PRICES = ((0.58, 1.0), (0.58, 10.0))  # (ζ, B)
PLAIN: dict[str, Any] = {"by_mass": False, "iterate": "average"}
FAST: dict[str, Any] = {"server": "momentum"}
SETTINGS: dict[str, dict[str, Any]] = {
    "paper: J = 5, T = 10, average": PLAIN,
    "recent": {"by_mass": False},
    "J = 1, recent": {"by_mass": False, "local_steps": 1},
    "corrected, T = 3, recent": {
        "by_mass": False,
        "drift_correction": True,
        "rounds_per_dual": 3,
    },
    "by mass, average": {"iterate": "average", "by_mass": True},
    "default: by mass, recent": {},
    "T = 3": {"rounds_per_dual": 3},
    "J = 1": {"local_steps": 1},
    "momentum": FAST,
    "J = 1, momentum": {**FAST, "local_steps": 1},
}


def methods(price: float) -> Iterator[tuple[str, Method]]:
    """`exact` first: its value is the optimum."""
    yield "exact", pffl.Exact(multiplier_bound=price)
    for name, setting in SETTINGS.items():
        method = pffl.PFFL.within(
            BUDGET, multiplier_bound=price, target_gap=1e-9, **setting
        )
        yield name, method


def measured(engine: Local, bound: float, price: float) -> Iterator[list[Any]]:
    """Train every way, and yield the figures of a row of the table."""
    best = np.inf
    for name, method in methods(price):
        constraint = pffl.BoundedGroupLoss(bound)
        problem = prepared(engine, constraint, None, method, Options(), 0)[0]
        began = time.process_time()
        run = drive(engine, flow.rounds(problem, method))
        seconds = time.process_time() - began
        w = run.point.w
        train = engine.ask(Evaluate(problem.task, w, "train"))
        test = engine.ask(Evaluate(problem.task, w, "test"))
        r = problem.violation(train.column("loss", of="cells"))
        value = upper_value(problem.risk(w, train), r, problem)
        best = min(best, value) if name == "exact" else best
        upper, lower = drive(engine, measure_gap(problem, run.point))[:2]
        part = (upper - lower) / (1.0 + float(run.point.multipliers.sum()))
        found = metrics(test, problem.schema)
        worst = float(r.max()) + bound
        shown = [found.worst_cell_loss, found.error, seconds]
        yield [name, run.rounds, value - best, part, worst, *shown]


def main() -> None:
    """Print a table for each (ζ, B), figures averaged over seeds."""
    warnings.simplefilter("ignore")
    people = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    seeds = range(int(sys.argv[2]) if len(sys.argv) > 2 else 3)
    engines = [
        Local(
            pffl.datasets.acs(
                year=2024,
                filter="filtered",
                source=FILE,
                people=people or None,
                seed=seed,
            ),
            threads=1,
        )
        for seed in seeds
    ]
    for bound, price in PRICES:
        print(f"\nζ = {bound}, B = {price:g}; {people or 'all'} a state, {seeds}\n")
        print(
            "| setting | rounds | value | gap | worst, train | worst | error | CPU s |"
        )
        print("|---|---|---|---|---|---|---|---|", flush=True)
        runs = zip(*(measured(engine, bound, price) for engine in engines), strict=True)
        for found in runs:
            m = np.mean([row[1:] for row in found], axis=0)
            print(
                f"| {found[0][0]} | {m[0]:.0f} | {m[1]:.1e} | {m[2]:.1e} | {m[3]:.4f} "
                f"| {m[4]:.4f} | {m[5]:.4f} | {m[6]:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
