"""What must hold before the first round; every problem is noted, none is repaired.

Rows that are on both sides of a split, or in two silos (fault 15): with an id column
the answer is exact. Without one, equal rows may be different people: discrete data are
full of twins. So rows are compared only where at most a tenth of the training rows have
a twin among themselves, and twins on both sides of a split count only where they are
more than such chance explains.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pffl.data.schema import Schema
from pffl.data.silo import Rows, Silo
from pffl.data.sparse import (
    column_ends,
    is_canonical,
    not_finite,
    stored_numbers,
    stored_width,
)
from pffl.errors import DataError, Problems, split_code
from pffl.typing import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SHOWN = 10
LARGEST = 1e75  # a loss is a square, and losses are squared again


class DataWarning(UserWarning):
    """Something about the data that is allowed but deserves a look."""


def check_silos(
    schema: Schema,
    silos: Sequence[Silo],
    problems: Problems,
    *,
    labels: bool = True,
    empty: bool = False,
) -> None:
    """Note everything that is wrong with the silos (faults 1, 5, 6, 14, …).

    `labels`: whether there must be several, as there are to learn from; `empty`:
    whether silos may have no training rows.
    """
    if not silos:
        problems.add("[no-silos] no silos")
        return
    repeated = [n for n, c in Counter(silo.name for silo in silos).items() if c > 1]
    if repeated:
        problems.add(
            f"[repeated-name] repeated silo names: {listing(sorted(repeated))}"
        )
    untrained = [silo.name for silo in silos if "train" not in silo.splits]
    if untrained:
        problems.add(
            f"[no-training-rows] silos without a 'train' split: {listing(untrained)}"
        )
        return
    bare = [silo.name for silo in silos if len(silo.rows("train").counting) == 0]
    if bare and not empty:
        problems.add(
            f"[no-training-rows] silos without training rows: {listing(bare)} "
            "(`drop_empty=True` leaves them out and says so)"
        )
    parts = [
        (rows, f"silo '{silo.name}', {split}")
        for silo in silos
        for split, rows in silo.splits.items()
    ]
    shaped = [part for part in parts if _check_shape(schema, *part, problems)]
    if not all(map(_fine, _batches([rows for rows, _ in shaped]))):
        for rows, where in shaped:
            _check_finite(schema, rows, where, problems)
    for rows, where in shaped:
        if rows.weight is not None:
            note_weights(rows.weight, f"{where}, weight", problems)
    _check_all_codes(schema, shaped, problems)
    if labels and not problems.found:
        _check_labels(schema, silos, problems)


def _check_labels(schema: Schema, silos: Sequence[Silo], problems: Problems) -> None:
    """One label in one silo is fine; one label in all leaves nothing to learn."""
    if not schema.labels:
        return
    seen: set[int] = set()
    for silo in silos:
        y = silo.rows("train").y
        seen.update((int(y.min()), int(y.max())))
        if len(seen) > 1:
            return
    problems.add(
        f"[one-class] all training rows have the label '{schema.labels[seen.pop()]}': "
        "there is nothing to learn"
    )


def _check_shape(schema: Schema, rows: Rows, where: str, problems: Problems) -> bool:
    if rows.X.ndim != 2 or rows.X.shape[1] != schema.n_features:
        problems.add(
            f"[wrong-shape] {where}: inputs have shape {rows.X.shape}, expected "
            f"(rows, {schema.n_features})"
        )
        return False
    if not isinstance(rows.X, np.ndarray) and not is_canonical(rows.X):
        problems.add(
            f"[wrong-sparse] {where}: sparse inputs must be a csr_array of float64, "
            "sorted, each entry once: use `Rows.of`, which makes them so"
        )
        return False
    if not rows.X.shape[0] == len(rows.y) == len(rows.group):
        problems.add(
            f"[wrong-length] {where}: {rows.X.shape[0]} inputs, {len(rows.y)} labels, "
            f"{len(rows.group)} groups"
        )
        return False
    if rows.weight is not None and rows.weight.shape != rows.y.shape:
        problems.add(
            f"[wrong-shape] {where}: {len(rows)} rows, weights of {rows.weight.shape}"
        )
        return False
    return True


def _fine(rows: Rows) -> bool:
    """Whether all inputs are numbers, and none is too large: of many silos at once."""
    X = stored_numbers(rows.X)
    size = max(float(X.max(initial=0)), -float(X.min(initial=0)))
    return size <= LARGEST  # of a NaN nothing is


def _check_finite(schema: Schema, rows: Rows, where: str, problems: Problems) -> None:
    """Note what is no number, or one whose powers are beyond a computer's numbers."""
    if len(rows) == 0:
        return
    # Extremes are not finite where an entry is not: no mask as large as the data.
    low, high = column_ends(rows.X)
    if np.isfinite(low).all() and np.isfinite(high).all():
        size = np.maximum(high.astype(np.float64), -low.astype(np.float64))
        large = np.flatnonzero(size > LARGEST)
        columns = [f"'{schema.features[j]}' (up to {size[j]:.3g})" for j in large]
        if columns:
            problems.add(
                f"[too-large-numbers] {where}: numbers beyond {LARGEST:g} in "
                f"{listing(columns)}: their squares cannot be added; use another "
                "unit, or repair them"
            )
    else:
        bad = not_finite(rows.X)
        columns = [f"'{schema.features[j]}' ({bad[j]})" for j in np.flatnonzero(bad)]
        problems.add(
            f"[not-finite] {where}: missing or infinite values in {', '.join(columns)}"
        )


def _check_all_codes(
    schema: Schema, parts: Sequence[tuple[Rows, str]], problems: Problems
) -> None:
    """Look at all silos at once first: with many small ones that is much faster."""
    if not parts:
        return
    y = np.concatenate([rows.y for rows, _ in parts])
    group = np.concatenate([rows.group for rows, _ in parts])
    if _code_problems(schema, y, group):
        for rows, where in parts:
            problems.extend(
                f"[{code}] {where}: {problem}"
                for code, problem in _code_problems(schema, rows.y, rows.group)
            )


def _code_problems(
    schema: Schema, y: FloatArray, group: IntArray
) -> list[tuple[str, str]]:
    if len(y) == 0:
        return []
    found = []
    missing = int((~np.isfinite(y)).sum())
    if missing:
        found.append(("missing-values", f"{missing} missing labels"))
    elif np.abs(y).max() > LARGEST:
        beyond = f"numbers beyond {LARGEST:g} as labels: use another unit"
        found.append(("too-large-numbers", beyond))
    elif schema.labels and (
        y.min() < 0 or y.max() >= schema.n_labels or (y != np.floor(y)).any()
    ):
        outside = f"label codes outside 0..{schema.n_labels - 1}"
        found.append(("unknown-label", outside))
    if group.min() < 0 or group.max() >= len(schema.groups):
        outside = (
            f"group codes outside 0..{len(schema.groups) - 1}: "
            "a value that the schema does not declare"
        )
        found.append(("unknown-group", outside))
    return found


def note_weights(
    weights: FloatArray,
    what: str,
    problems: Problems,
    place: Callable[[int], str] = lambda row: f"row {row + 1:,}",
) -> None:
    """Note weights that are not finite, below 0 or too large.

    ``place(row)`` says where a row is, counted from 0.
    """
    wrong = {
        "not finite": ~np.isfinite(weights),
        "below 0": weights < 0,
        f"beyond {LARGEST:g}": np.isfinite(weights) & (weights > LARGEST),
    }
    for kind, rows in wrong.items():
        if rows.any():
            first = int(np.argmax(rows))
            problems.add(
                f"[bad-weights] {what}: {int(rows.sum()):,} of {len(rows):,} are "
                f"{kind}, the first ({weights[first]:g}) in {place(first)}; a weight "
                "is a number ≥ 0"
            )
    if len(weights) and not weights.any():
        problems.add(
            f"[bad-weights] {what}: every weight is zero, so that no row counts"
        )


def check_whole(problems: Problems, *, least: int = 1, **values: float) -> None:
    """Note each named option that is not a whole number of at least so much."""
    for name, value in values.items():
        if int(value) != value or value < least:
            problems.add(
                f"[wrong-value] '{name}' must be a whole number ≥ {least}. Got "
                f"{value} instead."
            )


def check_shares(problems: Problems, **values: float) -> None:
    """Note each named option that is not between 0 and 1."""
    for name, value in values.items():
        if not 0 <= value <= 1:
            problems.add(
                f"[wrong-value] '{name}' must be in [0, 1]. Got {value} instead."
            )


def check_choice(
    problems: Problems, name: str, value: object, choices: Sequence[str]
) -> None:
    """Note an option that is none of the choices."""
    if value not in choices:
        problems.add(
            f"[wrong-value] '{name}' must be one of {choices}. Got '{value}' instead."
        )


def refuse_or_warn(message: str, *, strict: bool) -> None:
    """Raise under `strict`, otherwise warn."""
    if strict:
        raise DataError(message)
    warn(split_code(message)[1])


def warn(message: str) -> None:
    """Warn at the line of the caller outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("pffl."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DataWarning, stacklevel=level)


def listing(names: Iterable[str]) -> str:
    """Join names, the first few only where there are many."""
    shown = list(names)
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return ", ".join(shown[:SHOWN]) + more


SAMPLE = 5_000
BATCH = 1 << 16  # rows
WIDE = 1 << 24  # numbers of a batch
FEW = 0.1
PICTURE = 256  # columns of bytes

Hashes = NDArray[np.uint64]


def repeated_rows(train: Sequence[Rows], test: Sequence[Rows]) -> int:
    """Number of test rows that are also training rows; 0 if none, or if unknowable."""
    seen = _varied_hashes(train)
    if seen is None or not any(map(len, test)):
        return 0
    seen.sort()
    asked = row_hashes(test)
    found = int(_among(seen, asked).sum())
    # A training row has a twin among the others as often as an honest test row has one.
    chance = _share_with_twin(seen) * len(asked)
    return found if found > chance + 4 * np.sqrt(chance) else 0


def equal_rows(train: Sequence[Rows], test: Sequence[Rows]) -> int:
    """Number of test rows that equal a training row, by chance or not."""
    if not any(map(len, train)) or not any(map(len, test)):
        return 0
    seen, asked = np.sort(row_hashes(train)), np.sort(row_hashes(test))
    return int(_among(seen, asked).sum())


def _among(seen: Hashes, asked: Hashes) -> BoolArray:
    """Say which hashes are among others, which are sorted."""
    places = np.searchsorted(seen, asked).clip(max=len(seen) - 1)
    return np.asarray(seen[places] == asked)


def shared_rows(silos: Sequence[Rows]) -> int:
    """Number of rows that also occur in another silo; 0 if none, or if unknowable."""
    hashes = _varied_hashes(silos) if len(silos) > 1 else None
    if hashes is None:
        return 0
    return shared_ids(hashes, np.repeat(np.arange(len(silos)), [len(s) for s in silos]))


def _varied_hashes(parts: Sequence[Rows]) -> Hashes | None:
    """Hashes of all rows; None without rows, or where many have a twin."""
    if not any(map(len, parts)):
        return None
    # A sample without many twins is no proof, but one with many saves the rest.
    step = -(-sum(map(len, parts)) // SAMPLE)
    sample = [Rows(p.X[::step], p.y[::step], p.group[::step]) for p in parts]
    if _share_with_twin(row_hashes(sample)) > FEW:
        return None
    hashes = row_hashes(parts)
    return None if _share_with_twin(hashes) > FEW else hashes


def repeated_people(train: Sequence[Rows], test: Sequence[Rows]) -> int | None:
    """Number of test rows of people who are in training; None if nobody is known."""
    seen = [rows.person for rows in train if rows.person is not None]
    asked = [rows.person for rows in test if rows.person is not None]
    if len(seen) < len(train) or len(asked) < len(test):
        return None
    return int(np.isin(np.concatenate(asked), np.concatenate(seen)).sum())


def shared_ids(ids: NDArray[np.generic], silo: IntArray) -> int:
    """Number of rows whose id also occurs in another silo."""
    import pandas as pd

    places = pd.DataFrame({"id": ids, "silo": silo}).drop_duplicates()["id"]
    return int(np.isin(ids, places[places.duplicated()]).sum())


def row_hashes(parts: Sequence[Rows]) -> Hashes:
    """A 64-bit hash of each row: inputs, label and group."""
    return np.concatenate([_hash(batch) for batch in _batches(parts)])


def _hash(rows: Rows) -> Hashes:
    state = np.zeros(len(rows), dtype=np.uint64)
    if not isinstance(rows.X, np.ndarray):
        state, columns = _sparse_hash(rows.X), (rows.y, rows.group)
    elif rows.X.dtype == np.uint8 and rows.X.shape[1] >= PICTURE:
        state = np.array([_digest(row) for row in rows.X], dtype=np.uint64)
        columns = (rows.y, rows.group)
    else:
        columns = (*rows.X.T, rows.y, rows.group)
    for column in columns:
        # Adding 0.0 turns −0.0 into 0.0.
        state ^= (column.astype(np.float64) + 0.0).view(np.uint64)
        _mix(state)
    return state


def _mix(state: Hashes) -> None:
    """Spread what is in the last bits over all."""
    state *= np.uint64(0x9E3779B97F4A7C15)
    state ^= state >> np.uint64(29)


def _sparse_hash(X: csr_array) -> Hashes:
    """Add up hashes of what a row stores: of places and numbers."""
    entries = X.indices.astype(np.uint64)
    _mix(entries)
    entries ^= X.data.view(np.uint64)
    _mix(entries)
    _mix(entries)
    sums = np.append(np.uint64(0), np.cumsum(entries))  # modulo 2⁶⁴
    return sums[X.indptr[1:]] - sums[X.indptr[:-1]]


def _digest(row: NDArray[np.uint8]) -> int:
    """Hash a picture at once: column by column would walk through memory in leaps."""
    return int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest())


def _batches(parts: Sequence[Rows]) -> Iterator[Rows]:
    """Join small parts and cut large ones, so that the work per call is even."""
    waiting: list[Rows] = []
    width = max((stored_width(part.X) for part in parts[:1]), default=1)
    most, held = max(64, min(BATCH, WIDE // max(1, width))), 0
    for part in parts:
        for start in range(0, len(part), most):
            waiting.append(part.view(start, min(start + most, len(part))))
            held += len(waiting[-1])
            if held >= most:
                yield waiting[0] if len(waiting) == 1 else Rows.joined(waiting)
                waiting, held = [], 0
    if waiting:
        yield waiting[0] if len(waiting) == 1 else Rows.joined(waiting)


def _share_with_twin(hashes: Hashes) -> float:
    """Share of the rows whose hash occurs more than once."""
    _, counts = np.unique(hashes, return_counts=True)
    return float(counts[counts > 1].sum() / len(hashes))
