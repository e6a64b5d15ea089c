"""Algorithm 1: rounds until the measured gap is 1e-3, with and without its options.

    python -m benchmarks.algorithm_one

J = 5 local steps, 10 silos, B = 10; every setting stops at its own first look at the
gap that is small enough (so rounds include looks), and at 2,000 rounds at the latest.
The gap shown is that of a Newton best response, absolute and in parts of β + Σλ.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import pffl
from pffl import flow
from pffl._solve import prepared
from pffl.driver import drive
from pffl.engines import Local
from pffl.evidence.proofs import measure_gap
from pffl.prepare import Options

TARGET = 1e-3
ROUNDS = 2000
PLAIN: dict[str, Any] = {"by_mass": False, "iterate": "average"}
LATE: dict[str, Any] = {"rounds_per_dual": 3, "iterate": "recent"}
DRIFT: dict[str, Any] = {"drift_correction": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "paper (T = 10, average)": PLAIN,
    "by mass, average": {"iterate": "average", "by_mass": True},
    "default: by mass, recent": {},
    "T = 3, recent": LATE,
    "T = 3, corrected, recent, not by mass": {**LATE, **DRIFT, "by_mass": False},
    "T = 3, corrected, recent": {**LATE, **DRIFT},
    "the same, batches of 64": {**LATE, **DRIFT, "batch_size": 64},
}


def problems() -> Iterator[tuple[str, Any, Any]]:
    """COMPAS with silos that differ little, much and very much, and generated rows."""
    compas, by_sex = pffl.datasets.compas, pffl.BoundedGroupLoss(0.606)
    yield "COMPAS, sex", compas(), by_sex
    yield "COMPAS, sex, silos apart (α = 0.1)", compas(alpha=0.1), by_sex
    by_race = pffl.BoundedGroupLoss(0.61)
    yield "COMPAS, race", compas(group="race"), by_race
    by_label = pffl.ConditionalBoundedGroupLoss(0.65)
    yield "COMPAS, sex × label, α = 0.3", compas(alpha=0.3), by_label
    apart = pffl.datasets.synthetic(6000, silos=10, groups=4, heterogeneity=1.0, seed=1)
    yield "synthetic, heterogeneity 1", apart, pffl.BoundedGroupLoss(0.47)


def main() -> None:
    """Print a table for each problem."""
    warnings.simplefilter("ignore")
    for name, federation, constraint in problems():
        print(f"\n{name}\n| setting | rounds | gap | of β + Σλ | CPU s |")
        print("|---|---|---|---|---|")
        engine = Local(federation, threads=1)
        for label, setting in SETTINGS.items():
            each = setting.get("rounds_per_dual", 10)
            method = pffl.PFFL(dual_rounds=ROUNDS // each, target_gap=TARGET, **setting)
            problem = prepared(engine, constraint, None, method, Options(), 0)[0]
            began = time.process_time()
            run = drive(engine, flow.rounds(problem, method))
            seconds = time.process_time() - began
            ends = drive(engine, measure_gap(problem, run.point))
            gap = ends[0] - ends[1]
            part = gap / (1.0 + run.point.multipliers.sum())
            row = f"| {label} | {run.rounds} | {gap:.1e} | {part:.1e} | {seconds:.1f} |"
            print(row, flush=True)


if __name__ == "__main__":
    main()
