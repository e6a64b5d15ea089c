"""Find rows that are on both sides of a split, or in two silos (fault 15).

With an id column the answer is exact. Without one, equal rows may be different people:
discrete data are full of twins. So rows are compared only where at most a tenth of the
training rows have a twin among themselves, and twins on both sides of a split count
only where they are more than such chance explains.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pffl.data.silo import Rows
from pffl.data.split import Plan
from pffl.typing import BoolArray, IntArray

SAMPLE = 5_000
BATCH = 1 << 16
FEW = 0.1
PICTURE = 256  # columns of bytes

Hashes = NDArray[np.uint64]


def repeated_rows(train: Sequence[Rows], test: Sequence[Rows]) -> int:
    """Number of test rows that are also training rows; 0 if none, or if unknowable."""
    if not any(map(len, train)) or not any(map(len, test)):
        return 0
    if _share_with_twin(np.sort(row_hashes([_sample(train)]))) > FEW:
        return 0
    seen = np.sort(row_hashes(train))
    share = _share_with_twin(seen)
    if share > FEW:
        return 0
    asked = row_hashes(test)
    places = np.searchsorted(seen, asked).clip(max=len(seen) - 1)
    found = int((seen[places] == asked).sum())
    # A training row has a twin among the others as often as an honest test row has one.
    chance = share * len(asked)
    return found if found > chance + 4 * np.sqrt(chance) else 0


def shared_rows(silos: Sequence[Rows]) -> int:
    """Number of rows that also occur in another silo; 0 if none, or if unknowable."""
    if len(silos) < 2 or not any(map(len, silos)):
        return 0
    if _share_with_twin(np.sort(row_hashes([_sample(silos)]))) > FEW:
        return 0
    hashes = row_hashes(silos)
    if _share_with_twin(np.sort(hashes)) > FEW:
        return 0
    return shared_ids(hashes, np.repeat(np.arange(len(silos)), [len(s) for s in silos]))


def repeated_ids(ids: NDArray[np.generic], plan: Plan) -> int:
    """Number of test rows whose id is also that of a training row."""
    train = np.concatenate([index["train"] for _, index in plan])
    test = [index["test"] for _, index in plan if "test" in index]
    if not test:
        return 0
    return int(np.isin(ids[np.concatenate(test)], ids[train]).sum())


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
    if rows.X.dtype == np.uint8 and rows.X.shape[1] >= PICTURE:
        state = np.array([_digest(row) for row in rows.X], dtype=np.uint64)
        columns = (rows.y, rows.group)
    for column in columns:
        # Adding 0.0 turns −0.0 into 0.0.
        state ^= (column.astype(np.float64) + 0.0).view(np.uint64)
        state *= np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(29)
    return state


def _digest(row: NDArray[np.uint8]) -> int:
    """Hash a picture at once: column by column would walk through memory in leaps."""
    return int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest())


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
    if len(parts) == 1:
        return parts[0]
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


def _share_with_twin(ordered: Hashes) -> float:
    """Share of the rows whose hash occurs more than once; the hashes are sorted."""
    same = ordered[1:] == ordered[:-1]
    twins: BoolArray = np.append(same, False) | np.append(False, same)
    return float(twins.mean())
