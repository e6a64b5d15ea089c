"""Find rows that are on both sides of a split, or in two silos (FAULTS 15).

With an id column the answer is exact. Without one, equal rows may be different people:
discrete data are full of twins. So rows are compared only where nearly all training
rows are distinct, and only a number of twins that chance does not explain is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pffl.data.silo import Rows
from pffl.typing import BoolArray, IntArray

SAMPLE = 5_000
BATCH = 1 << 16
NEARLY = 0.9

Hashes = NDArray[np.uint64]


def repeated_rows(train: Sequence[Rows], test: Sequence[Rows]) -> int:
    """Number of test rows that are also training rows; 0 if none, or if unknowable."""
    if not any(map(len, train)) or not any(map(len, test)):
        return 0
    if not _nearly_distinct(row_hashes([_sample(train)])):
        return 0
    seen = row_hashes(train)
    if not _nearly_distinct(seen):
        return 0
    found = int(np.isin(row_hashes(test), seen).sum())
    # A training row has a twin among the others as often as an honest test row has one.
    chance = _share_with_twin(seen) * sum(map(len, test))
    return found if found > chance + 4 * np.sqrt(chance) else 0


def shared_rows(silos: Sequence[Rows]) -> int:
    """Number of rows that also occur in another silo; 0 if none, or if unknowable."""
    if len(silos) < 2 or not any(map(len, silos)):
        return 0
    if not _nearly_distinct(row_hashes([_sample(silos)])):
        return 0
    hashes = row_hashes(silos)
    if not _nearly_distinct(hashes):
        return 0
    return shared_ids(hashes, np.repeat(np.arange(len(silos)), [len(s) for s in silos]))


def shared_ids(ids: NDArray[np.generic], silo: IntArray) -> int:
    """Number of rows whose id also occurs in another silo."""
    _, codes = np.unique(ids, return_inverse=True)
    codes = codes.reshape(-1)
    if not len(codes):
        return 0
    first = np.full(codes.max() + 1, np.iinfo(np.int64).max)
    last = np.full(codes.max() + 1, -1)
    np.minimum.at(first, codes, silo)
    np.maximum.at(last, codes, silo)
    return int((first != last)[codes].sum())


def row_hashes(parts: Sequence[Rows]) -> Hashes:
    """A 64-bit hash of each row: inputs, label and group."""
    return np.concatenate([_hash(batch) for batch in _batches(parts)])


def _hash(rows: Rows) -> Hashes:
    state = np.zeros(len(rows), dtype=np.uint64)
    columns = (*rows.X.T, rows.y, rows.group)
    for column in columns:
        # Adding 0.0 turns −0.0 into 0.0.
        state ^= (column.astype(np.float64) + 0.0).view(np.uint64)
        state *= np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(29)
    return state


def _batches(parts: Sequence[Rows]) -> Iterator[Rows]:
    """Join small parts and cut large ones, so that the work per call is even."""
    waiting: list[Rows] = []
    for part in parts:
        for start in range(0, len(part), BATCH):
            waiting.append(part.view(start, min(start + BATCH, len(part))))
            if sum(map(len, waiting)) >= BATCH or len(waiting) >= BATCH // 64:
                yield _join(waiting)
                waiting = []
    if waiting:
        yield _join(waiting)


def _join(parts: Sequence[Rows]) -> Rows:
    return Rows(
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.group for part in parts]),
    )


def _sample(parts: Sequence[Rows]) -> Rows:
    """Rows at even distances over all parts."""
    sizes = np.array([len(part) for part in parts])
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    places = np.linspace(0, total - 1, min(SAMPLE, total)).astype(np.int64)
    owner = np.searchsorted(ends, places, side="right")
    return _join(
        [
            parts[k].take(places[owner == k] - (ends[k] - sizes[k]))
            for k in np.unique(owner)
        ]
    )


def _nearly_distinct(hashes: Hashes) -> bool:
    return len(np.unique(hashes)) > NEARLY * len(hashes)


def _share_with_twin(hashes: Hashes) -> float:
    _, counts = np.unique(hashes, return_counts=True)
    twins: BoolArray = counts > 1
    return float(counts[twins].sum() / len(hashes))
