"""How many processors there are for us, and how many of them BLAS may use.

A server's matrices are small: BLAS with a thread for each processor spends most of its
time waiting for itself (four to seven times the work at 100 to 1,000 parameters), and
the local engine has its own threads. So a run is driven with BLAS held to one.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pffl.errors import UsageError

OVERRIDE = "PFFL_THREADS"
SMALL = 40_000  # scores below which threads cost more than they save

A = TypeVar("A")
R = TypeVar("R")


def processors(root: Path = Path("/")) -> int:
    """Return how many processors this process may use, at least 1.

    The least of affinity and the container's quota. ``PFFL_THREADS`` says otherwise.
    """
    if given := os.environ.get(OVERRIDE, "").strip():
        if not given.isdecimal() or int(given) < 1:
            raise UsageError(f"{OVERRIDE} must be a whole number ≥ 1. Got '{given}'.")
        return int(given)
    affinity = getattr(os, "sched_getaffinity", None)
    present = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota, period = [*_words(root / "sys/fs/cgroup/cpu.max"), "max", "1"][:2]
    most = math.inf if quota == "max" else int(quota) / int(period)
    return max(1, math.ceil(min(present, most)))


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.is_file() else []


class Threads:
    """Share items among threads in equal consecutive parts.

    Results come back in the order of the parts, so sums do not depend on timing.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def __call__(
        self, work: Callable[[Sequence[A]], R], items: Sequence[A], size: int
    ) -> list[R]:
        """Return the results of `work` on each part; `size` is the number of scores."""
        if self._pool is None or size < SMALL or len(items) < 2:
            return [work(items)]
        cuts = np.linspace(0, len(items), min(self.threads, len(items)) + 1).astype(int)
        parts = [items[a:b] for a, b in itertools.pairwise(cuts.tolist())]
        return list(self._pool.map(work, parts))


@contextmanager
def blas_threads(limit: int) -> Iterator[None]:
    """Hold BLAS to n threads; fewer stay fewer."""
    known = _libraries(len(sys.modules))  # a module may have brought a library
    more = [
        library.filepath
        for library in known.lib_controllers
        if library.user_api == "blas" and library.num_threads > limit
    ]
    with known.select(filepath=more).limit(limits=limit):
        yield


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """Find the libraries that are loaded, which takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
