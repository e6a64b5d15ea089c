"""Whole grids: `Exact` from neighbour to neighbour, `PFFL` as stacks.

    .venv/bin/python benchmarks/sweep.py compas    the paper's grid, three notions
    .venv/bin/python benchmarks/sweep.py pffl      stacks against one-by-one runs
    .venv/bin/python benchmarks/sweep.py acs [FILE]

`pffl` runs every point in stacks, and every STEP-th point alone, through the same
`sweep`, in the same process; the time alone is multiplied up. FILE is a Parquet
extract, by default the one beside the project; it has all 2,240,783 rows.
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from pathlib import Path

from ratios import header, show

import pffl
from pffl.study.sweep import GridPoint, Sweep, paper_grid, sweep

FILE = Path(__file__).parents[2] / "shared/data/acs_employment_2024_48st_dc.parquet"
NOTIONS = ("bgl", "cbgl-y1", "cbgl-y0")
TOLERANCE = 1e-6
STEP = 7


def timed(
    data: pffl.Federation, points: list[GridPoint], **method: object
) -> tuple[Sweep, float, float]:
    """Run a sweep; return it with its seconds, on the clock and of processors."""
    wall, processor = time.perf_counter(), time.process_time()
    found = sweep(data, points, **method)  # type: ignore[arg-type]
    return found, time.perf_counter() - wall, time.process_time() - processor


def certified(found: Sweep) -> str:
    """Say how many points have a small measured gap, and the verdicts."""
    table = found.table
    small = int((table["gap"] <= TOLERANCE).sum())
    verdicts = table["status"].value_counts().to_dict()
    rounds = table["rounds"]
    return (
        f"{small} of {len(table)} points with a measured gap of at most "
        f"{TOLERANCE:g} (largest {table['gap'].max():.1e}); {verdicts}; "
        f"rounds {rounds.mean():.1f} on average, {rounds.max()} at most"
    )


def compas_data() -> pffl.Federation:
    """COMPAS with a validation part, as `pffl sweep` has it."""
    return pffl.datasets.compas(validation_fraction=0.2)


def compas() -> None:
    """The paper's grid with `Exact`."""
    data, points = compas_data(), paper_grid("compas", NOTIONS)
    found, wall, processor = timed(data, points)
    print(certified(found))
    show(f"seconds for {len(points)} points, clock", wall, "below 10")
    show(f"seconds for {len(points)} points, processor", processor, "")


def stacks() -> None:
    """The paper's grid with `PFFL`: stacks, and some points alone."""
    data, points = compas_data(), paper_grid("compas", NOTIONS)
    method = pffl.PFFL(dual_rounds=20, rounds_per_dual=10, local_steps=5)
    alone = points[::STEP]
    before = [timed(data, [p], method=method)[1:] for p in alone[::2]]
    _, wall, processor = timed(data, points, method=method)
    after = [timed(data, [p], method=method)[1:] for p in alone[1::2]]
    times = [*before, *after]
    one = [sum(t[i] for t in times) * len(points) / len(times) for i in (0, 1)]
    print(
        f"{len(points)} points: stacks {wall:.1f} s; {len(times)} of them alone "
        f"{sum(t[0] for t in times):.1f} s, so all {one[0]:.1f} s"
    )
    show("stacks against one-by-one, clock", wall / one[0], "at most 0.25")
    show("stacks against one-by-one, processor", processor / one[1], "at most 0.25")


def acs(path: Path) -> None:
    """All rows of ACS 2024, bounded group loss by race, `Exact`."""
    start = time.perf_counter()
    data = pffl.datasets.acs(year=2024, filter="filtered", source=path)
    print(f"{sum(map(data.rows, data.splits)):,} rows, {len(data)} silos")
    found, wall, processor = timed(data, paper_grid("acs", ["bgl"]))
    print(certified(found))
    show("seconds from file to 48 points, clock", time.perf_counter() - start, "< 600")
    show("seconds of the sweep, clock", wall, "below 600")
    show("seconds of the sweep, processor", processor, "")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    show("peak memory, GB", peak, "below 3")


if __name__ == "__main__":
    header()
    warnings.simplefilter("ignore")  # a bound of 0 cannot be met, and is in the grid
    what = sys.argv[1] if len(sys.argv) > 1 else "compas"
    if what == "acs":
        acs(Path(sys.argv[2]) if len(sys.argv) > 2 else FILE)
    else:
        {"compas": compas, "pffl": stacks}[what]()
