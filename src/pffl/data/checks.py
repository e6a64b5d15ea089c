"""What must hold before the first round; every problem is noted, none is repaired.

Rows that are on both sides of a split (fault 15): with an id column the answer is
exact. Without one, equal rows may be different people: discrete data are full of them.
So they are an overlap only where they are more than chance explains.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pffl.data.rows import Rows, Silo
from pffl.data.schema import Schema
from pffl.errors import Problems
from pffl.typing import FloatArray, IntArray

MOST_LISTED = 10
LARGEST = 1e75  # a loss is a square, and losses are squared again
BATCH_NUMBERS = 1 << 22  # whose hashes are computed at once
MOST_TWINS = 0.1  # share of the rows

Hashes = NDArray[np.uint64]


class DataWarning(UserWarning):
    """Something about the data that is allowed but deserves a look."""


def warn(message: str) -> None:
    """Warn at the line of the caller outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("pffl."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DataWarning, stacklevel=level)


def listing(names: Iterable[str]) -> str:
    """Join names, the first few only where there are many."""
    shown = list(names)
    more = f" and {len(shown) - MOST_LISTED} more" if len(shown) > MOST_LISTED else ""
    return ", ".join(shown[:MOST_LISTED]) + more


def check_whole(problems: Problems, *, least: int = 1, **values: float) -> None:
    """Note each named option that is not a whole number of at least so much."""
    for name, value in values.items():
        if int(value) != value or value < least:
            wanted = f"a whole number ≥ {least}. Got {value} instead."
            problems.add(f"[wrong-value] '{name}' must be {wanted}")


def check_choice(
    problems: Problems, name: str, value: object, choices: Sequence[str]
) -> None:
    """Note an option outside the choices."""
    if value not in choices:
        wanted = f"one of {tuple(choices)}. Got '{value}' instead."
        problems.add(f"[wrong-value] '{name}' must be {wanted}")


# Shapes, numbers and codes


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
    names = [silo.name for silo in silos]
    if not silos:
        problems.add("[no-silos] no silos")
    if repeated := sorted(n for n, count in Counter(names).items() if count > 1):
        problems.add(f"[repeated-name] repeated silo names: {listing(repeated)}")
    trained = [silo.splits["train"] for silo in silos if "train" in silo.splits]
    bare = [
        silo.name
        for silo in silos
        if "train" not in silo.splits
        or not (empty or len(silo.splits["train"].counting))
    ]
    if bare:
        problems.add(f"[no-training-rows] silos without training rows: {listing(bare)}")
    for silo in silos:
        for split, rows in silo.splits.items():
            problems.extend(
                f"[{code}] silo '{silo.name}', {split}: {problem}"
                for code, problem in _row_problems(schema, rows)
            )
    if labels and schema.labels and not problems.found:
        seen = {int(y) for rows in trained for y in (rows.y.min(), rows.y.max())}
        if len(seen) == 1:
            problems.add(
                f"[one-class] all training rows have the label "
                f"'{schema.labels[seen.pop()]}': there is nothing to learn"
            )


def _row_problems(schema: Schema, rows: Rows) -> list[tuple[str, str]]:
    """Return the code and the text of everything that is wrong with some rows."""
    X, y, group = rows.X, rows.y, rows.group
    if X.ndim != 2 or X.shape[1] != schema.n_features:
        expected = f"(rows, {schema.n_features})"
        return [("wrong-shape", f"inputs have shape {X.shape}, expected {expected}")]
    if not isinstance(X, np.ndarray) and not X.has_canonical_format:
        return [("wrong-sparse", "sparse inputs must be as `Rows.of` makes them")]
    lengths = {"inputs": X.shape[0], "labels": len(y), "groups": len(group)}
    lengths["weights"] = len(y) if rows.weight is None else rows.weight.size
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{count} {what}" for what, count in lengths.items())
        return [("wrong-length", told)]
    if not len(y):
        return []
    found = _number_problems(schema, rows)
    codes = (y == np.floor(y)) & (y >= 0) & (y < schema.n_labels)
    if missing := int((~np.isfinite(y)).sum()):
        found.append(("missing-values", f"{missing} missing labels"))
    elif np.abs(y).max() > LARGEST:
        found.append(("too-large-numbers", f"labels beyond {LARGEST:g}"))
    elif schema.labels and not codes.all():
        told = f"label codes outside 0..{schema.n_labels - 1}"
        found.append(("unknown-label", told))
    if group.min() < 0 or group.max() >= len(schema.groups):
        told = f"group codes outside 0..{len(schema.groups) - 1}"
        found.append(("unknown-group", told))
    if rows.weight is not None:
        wrong = weight_problems(rows.weight)
        found += [("bad-weights", f"weight: {told}") for told in wrong]
    return found


def _number_problems(schema: Schema, rows: Rows) -> list[tuple[str, str]]:
    """Name inputs that are no numbers, or whose powers no computer can add."""
    X = rows.X if isinstance(rows.X, np.ndarray) else rows.X.data
    if max(float(X.max(initial=0)), -float(X.min(initial=0))) <= LARGEST:
        return []  # of a NaN nothing is
    dense = rows.X if isinstance(rows.X, np.ndarray) else rows.X.toarray()
    bad = (~np.isfinite(dense)).sum(axis=0)
    names = [f"'{schema.features[j]}' ({bad[j]})" for j in np.flatnonzero(bad)]
    if names:
        return [("not-finite", f"missing or infinite values in {', '.join(names)}")]
    sizes = np.abs(dense.astype(np.float64)).max(axis=0)
    large = np.flatnonzero(sizes > LARGEST)
    names = [f"'{schema.features[j]}' (up to {sizes[j]:.3g})" for j in large]
    told = f"numbers beyond {LARGEST:g} in {listing(names)}: use another unit"
    return [("too-large-numbers", told)]


def weight_problems(
    weights: FloatArray, place: Callable[[int], str] = lambda row: f"row {row + 1:,}"
) -> list[str]:
    """Say which weights are not finite, below 0 or too large, and where the first is.

    ``place(row)`` says where a row is, counted from 0.
    """
    bad = ~((weights >= 0) & (weights <= LARGEST))
    if bad.any():
        first = int(bad.argmax())
        return [
            f"{int(bad.sum()):,} of {len(bad):,} are no number from 0 to {LARGEST:g}, "
            f"the first ({weights[first]:g}) in {place(first)}"
        ]
    none = len(weights) and not weights.any()
    return ["every weight is zero: no row counts"] if none else []


# Rows and people that are in two places


def equal_rows(train: Sequence[Rows], test: Sequence[Rows]) -> int:
    """Number of test rows that equal a training row, by chance or not."""
    return int(np.isin(row_hashes(test), row_hashes(train)).sum())


def leaked_rows(train: Sequence[Rows], test: Sequence[Rows]) -> tuple[int, int]:
    """Number of test rows that are training rows, and of rows in several silos.

    0 if they are no more than chance explains: training rows equal others as often as
    honest test rows do.
    """
    hashes = row_hashes(train)
    order = np.argsort(hashes)
    seen = hashes[order]
    same = np.append(False, seen[1:] == seen[:-1])
    twins = order[same | np.append(same[1:], False)]
    if len(twins) > MOST_TWINS * len(seen):
        return 0, 0
    silo = np.repeat(np.arange(len(train)), [len(rows) for rows in train])
    asked = row_hashes(test)
    found = int((seen[np.searchsorted(seen[:-1], asked)] == asked).sum())
    chance = len(twins) / max(1, len(seen)) * len(asked)
    leaked = found if found > chance + 4 * chance**0.5 else 0
    return leaked, shared_ids(hashes[twins], silo[twins])


def shared_ids(ids: NDArray[np.generic], silo: IntArray) -> int:
    """Number of rows whose id also occurs in another silo."""
    import pandas as pd

    return int((pd.Series(silo).groupby(ids).transform("nunique") > 1).sum())


def repeated_people(train: Sequence[Rows], test: Sequence[Rows]) -> int | None:
    """Number of test rows of people who are in training; None without ids."""
    seen = [rows.person for rows in train if rows.person is not None]
    asked = [rows.person for rows in test if rows.person is not None]
    if len(seen) < len(train) or len(asked) < len(test):
        return None
    return int(np.isin(np.concatenate(asked), np.concatenate(seen)).sum())


def row_hashes(parts: Sequence[Rows]) -> Hashes:
    """A 64-bit hash of each row: inputs, label and group.

    The sum of a mixed number for every place that is not 0, modulo 2⁶⁴; so rows have
    the same hash in any form, and all of them cost little more than a product.
    """
    hashes = [np.zeros(0, dtype=np.uint64)]
    for part in parts:
        width = part.X.shape[1] + 2
        drawn = np.random.default_rng(0).integers(1 << 63, size=width, dtype=np.uint64)
        factors = drawn * np.uint64(2) + np.uint64(1)
        own = _mixed(part.y) * factors[-1] + _mixed(part.group) * factors[-2]
        step = max(1, BATCH_NUMBERS // width)
        for start in range(0, len(part), step):
            X = part.X[start : start + step]
            if isinstance(X, np.ndarray):
                sums = _mixed(X) @ factors[:-2]
            else:
                terms = np.append(_mixed(X.data) * factors[X.indices], np.uint64(0))
                ends = np.append(np.uint64(0), np.cumsum(terms))
                sums = ends[X.indptr[1:]] - ends[X.indptr[:-1]]
            hashes.append(own[start : start + step] + sums)
    return np.concatenate(hashes)


def _mixed(values: NDArray[np.generic]) -> Hashes:
    """Spread the bits of numbers; of 0, and of −0, nothing is left."""
    bits = np.add(values, 0.0, dtype=np.float64).view(np.uint64)
    bits *= np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(29)
    return bits
