"""Measure ratios inside one run: machines are shared, so seconds are not kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Best of several runs, after one to warm up."""
    work()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def show(what: str, ratio: float, limit: str) -> None:
    """Print one ratio beside what is asked of it."""
    print(f"{what:<66} {ratio:8.2f}   (asked: {limit})", flush=True)


def header() -> None:
    """Say what the ratios were measured on."""
    print(f"{len(os.sched_getaffinity(0))} cores; ratios of best times in one run")
