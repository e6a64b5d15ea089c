"""Rounds of `Exact` and of `PFFL` to a measured gap, on COMPAS.

    .venv/bin/python benchmarks/convergence.py

Prints the table of README. `PFFL` runs with its defaults (J = 5, T = 10) for up to
20,000 rounds; its gap is measured along the way.
"""

from __future__ import annotations

import sys
import time

import pffl
from pffl.callbacks import Callback, Round

TARGETS = (1e-2, 1e-4, 1e-6)


class Stop(Callback):
    """Stop at the last target, and remember when each was reached."""

    def __init__(self, targets: tuple[float, ...]) -> None:
        self.reached: dict[float, tuple[int, float]] = {}
        self.targets = targets
        self.last = float("inf")

    def after_round(self, row: Round) -> bool:
        if row.gap is not None:
            self.last = row.gap
            for target in self.targets:
                if row.gap <= target and target not in self.reached:
                    self.reached[target] = (row.number, row.seconds)
        return len(self.reached) == len(self.targets)


def rounds(
    constraint: object, method: object, gap_every: int
) -> tuple[list[str], float]:
    """Rounds to each target, as words."""
    stop = Stop(TARGETS)
    pffl.solve(
        pffl.datasets.compas(),
        constraint,
        method=method,
        seed=0,
        callbacks=[stop],
        gap_every=gap_every,
    )
    return [
        f"{stop.reached[target][0]:,}" if target in stop.reached else "not reached"
        for target in TARGETS
    ], stop.last


def main() -> None:
    """Print a Markdown table."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    print(
        "| COMPAS, 10 silos | method | " + " | ".join(f"{t:g}" for t in TARGETS) + " |"
    )
    print("|---|---|" + "---|" * len(TARGETS))
    for words, constraint in (
        ("BGL 0.606, B = 10", pffl.BoundedGroupLoss(0.606)),
        ("BGL 0.55 (impossible), B = 10", pffl.BoundedGroupLoss(0.55)),
        ("CBGL 0.65, B = 10", pffl.ConditionalBoundedGroupLoss(0.65)),
    ):
        for method, every in (
            (pffl.Exact(multiplier_bound=10), 1),
            (pffl.PFFL(multiplier_bound=10, dual_rounds=most), most // 20),
        ):
            start = time.perf_counter()
            found, last = rounds(constraint, method, every)
            cells = " | ".join(found)
            print(f"| {words} | {type(method).__name__} | {cells} |", flush=True)
            print(
                f"  {time.perf_counter() - start:.1f} s, last gap {last:.1e}",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main()
