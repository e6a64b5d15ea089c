"""Group losses before and after on ACS 2024: the figure and the numbers of docs/acs.md.

    .venv/bin/python benchmarks/acs_figure.py [FILE]

From the file to a verdict with `Exact`, bounded group loss by race; seconds and peak
memory are taken before anything is drawn. FILE is a Parquet extract, by default the one
beside the project.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

from ratios import header, show

import pffl

FILE = Path(__file__).parents[2] / "shared/data/acs_employment_2024_48st_dc.parquet"
FIGURE = Path(__file__).parents[1] / "docs/figures/acs-race.svg"
BOUND = 0.575


def main() -> None:
    """Measure, print a table, draw."""
    header()
    start, processor = time.perf_counter(), time.process_time()
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    federation = pffl.datasets.acs(year=2024, filter="filtered", source=path)
    solution = pffl.solve(
        federation,
        pffl.BoundedGroupLoss(BOUND),
        method=pffl.Exact(multiplier_bound=10.0),
        seed=0,
    )
    show("seconds, clock", time.perf_counter() - start, "below 60")
    show("seconds, processors", time.process_time() - processor, "")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    show("peak memory, GB", peak, "below 3")
    gap, rounds = solution.gap, solution.rounds
    print(f"{solution.status}, gap {gap:.1e} after {rounds} rounds: {solution.message}")
    print("| group | training rows | before | after | test before | test after |")
    print("|---|---|---|---|---|---|")
    for name, row in solution.cells.iterrows():
        losses = ("before_train_loss", "train_loss", "before_test_loss", "test_loss")
        numbers = " | ".join(f"{row[key]:.4f}" for key in losses)
        print(f"| {name} | {int(row['count']):,} | {numbers} |")
    print(f"train {solution.train}\ntest {solution.test}")

    axes = pffl.figures.group_losses(solution.cells).axes()
    axes.set_title(f"ACS 2024, employment, bound {BOUND:g}", fontsize="medium", pad=38)
    axes.figure.savefig(FIGURE)
    print(f"{FIGURE.name}: {FIGURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
