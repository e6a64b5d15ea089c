"""What must hold before the first round; every problem is noted, none is repaired."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

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
            problems.add("wrong-value:check-whole", name=name, wanted=wanted)


def check_choice(
    problems: Problems, name: str, value: object, choices: Sequence[str]
) -> None:
    """Note an option outside the choices."""
    if value not in choices:
        wanted = f"one of {tuple(choices)}. Got '{value}' instead."
        problems.add("wrong-value:check-whole", name=name, wanted=wanted)


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
        problems.add("no-silos:check-silos")
    if repeated := sorted(n for n, count in Counter(names).items() if count > 1):
        problems.add("repeated-name:check-silos", repeated=listing(repeated))
    trained = {silo.name: silo.splits.get("train") for silo in silos}
    bare = [
        name
        for name, rows in trained.items()
        if rows is None or not (empty or len(rows.counting))
    ]
    if bare:
        problems.add("no-training-rows:check-silos", bare=listing(bare))
    for silo in silos:
        for split, rows in silo.splits.items():
            for code, told in _row_problems(schema, rows):
                problems.add(f"[{code}] silo '{silo.name}', {split}: {told}")
    if labels and schema.labels and not problems.found:
        seen = {y for r in trained.values() if r for y in (r.y.min(), r.y.max())}
        if len(seen) == 1:
            problems.add("one-class:check-silos", label=schema.labels[int(seen.pop())])


def _row_problems(schema: Schema, rows: Rows) -> Iterator[tuple[str, str]]:
    """Yield the code and the text of everything that is wrong with some rows."""
    X, y, group = rows.X, rows.y, rows.group
    shapes = X.shape, y.shape, group.shape, rows.weights.shape
    if shapes != ((len(y), schema.n_features), *[(len(y),)] * 3):
        wanted = f"of {schema.n_features} inputs and as many labels, groups and weights"
        yield "wrong-shape", f"rows must be {wanted}. Got the shapes {shapes}."
        return
    if not isinstance(X, np.ndarray) and not X.has_canonical_format:
        yield "wrong-sparse", "sparse inputs must be as `Rows.of` makes them"
        return
    if not len(y):
        return
    values = X if isinstance(X, np.ndarray) else X.data
    largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    if not largest <= LARGEST:  # or NaN
        dense = X if isinstance(X, np.ndarray) else X.toarray()
        bad = (~(np.abs(dense) <= LARGEST)).sum(axis=0)
        names = [f"'{schema.features[j]}' ({bad[j]})" for j in np.flatnonzero(bad)]
        finite = np.isfinite(largest)
        told = f"numbers beyond {LARGEST:g}" if finite else "missing or infinite values"
        yield (
            "too-large-numbers" if finite else "not-finite",
            f"{told}: {listing(names)}",
        )
    if not (np.abs(y) <= LARGEST).all():
        yield "missing-values", f"labels are missing, or beyond {LARGEST:g}"
    elif schema.labels and not np.isin(y, np.arange(schema.n_labels)).all():
        yield "unknown-label", f"label codes outside 0..{schema.n_labels - 1}"
    if group.min() < 0 or group.max() >= len(schema.groups):
        yield "unknown-group", f"group codes outside 0..{len(schema.groups) - 1}"
    if told := weight_problem(rows.weights):
        yield "bad-weights", f"weight: {told}"


def weight_problem(weights: FloatArray) -> str:
    """Say which weights are not finite, below 0 or too large, and the first row."""
    bad = ~((weights >= 0) & (weights <= LARGEST))
    if bad.any():
        first = int(bad.argmax())
        return (
            f"{int(bad.sum()):,} of {len(bad):,} are no number from 0 to {LARGEST:g}, "
            f"the first ({weights[first]:g}) in row {first + 1:,}"
        )
    none = len(weights) and not weights.any()
    return "every weight is zero: no row counts" if none else ""
