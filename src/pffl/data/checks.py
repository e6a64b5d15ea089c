"""What must hold before the first round; every problem is noted, none is repaired.

Rows that are on both sides of a split (fault 15): with an id column the answer is
exact. Without one, equal rows may be different people: discrete data are full of them.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

from pffl.data.rows import Rows, Silo
from pffl.data.schema import Schema
from pffl.errors import Problems
from pffl.typing import FloatArray

MOST_LISTED = 10
LARGEST = 1e75  # a loss is a square, and losses are squared again


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
            for code, problem in _row_problems(schema, rows):
                problems.add(f"[{code}] silo '{silo.name}', {split}: {problem}")
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
    seen = {key for rows in train for key in row_hashes(rows)}
    return sum(key in seen for rows in test for key in row_hashes(rows))


def row_hashes(rows: Rows) -> list[int]:
    """A hash of each row: inputs, label and group; in this process only."""
    X, about = rows.X, np.column_stack([rows.y, rows.group])
    if isinstance(X, np.ndarray):
        pairs = zip(X, about, strict=True)
        return [hash((x.tobytes(), own.tobytes())) for x, own in pairs]
    ends = zip(pairwise(X.indptr.tolist()), about, strict=True)
    return [
        hash((X.indices[a:b].tobytes(), X.data[a:b].tobytes(), own.tobytes()))
        for (a, b), own in ends
    ]


def repeated_people(train: Sequence[Rows], test: Sequence[Rows]) -> int | None:
    """Number of test rows of people who are in training; None without ids."""
    seen = [rows.person for rows in train if rows.person is not None]
    asked = [rows.person for rows in test if rows.person is not None]
    if len(seen) < len(train) or len(asked) < len(test):
        return None
    return int(np.isin(np.concatenate(asked), np.concatenate(seen)).sum())
