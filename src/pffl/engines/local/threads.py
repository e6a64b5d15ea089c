"""Sharing pieces of work among threads, in a fixed order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from pffl.typing import FloatArray

A = TypeVar("A")
R = TypeVar("R")

SMALL = 40_000  # scores below which threads cost more than they save


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

    def each(self, work: Callable[[A], R], items: Sequence[A]) -> list[R]:
        """Return the results of `work` on each item; a free thread takes the next."""
        if self._pool is None or len(items) < 2:
            return [work(item) for item in items]
        return list(self._pool.map(work, items))


def added(parts: Sequence[FloatArray]) -> FloatArray:
    """Add up what the threads found, into the first of them."""
    total, *others = parts
    for part in others:
        total += part
    return total
