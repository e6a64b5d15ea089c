"""What must hold before the first round; every problem is noted, none is repaired."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from pffl.data.schema import Schema
from pffl.data.silo import Rows, Silo
from pffl.errors import DataError, Problems
from pffl.typing import FloatArray, IntArray

SHOWN = 10


class DataWarning(UserWarning):
    """Something about the data that is allowed but deserves a look."""


def check_silos(schema: Schema, silos: Sequence[Silo], problems: Problems) -> None:
    """Note everything that is wrong with the silos (faults 1, 5, 6, 14, …)."""
    if not silos:
        problems.add("no silos")
        return
    repeated = [n for n, c in Counter(silo.name for silo in silos).items() if c > 1]
    if repeated:
        problems.add(f"repeated silo names: {listing(sorted(repeated))}")
    untrained = [silo.name for silo in silos if "train" not in silo.splits]
    if untrained:
        problems.add(f"silos without a 'train' split: {listing(untrained)}")
        return
    empty = [silo.name for silo in silos if len(silo.rows("train")) == 0]
    if empty:
        problems.add(
            f"silos without training rows: {', '.join(empty)} "
            "(drop_empty=True leaves them out and says so)"
        )
    parts = [
        (rows, f"silo '{silo.name}', {split}")
        for silo in silos
        for split, rows in silo.splits.items()
    ]
    shaped = [part for part in parts if _check_shape(schema, *part, problems)]
    for rows, where in shaped:
        _check_finite(schema, rows, where, problems)
    _check_all_codes(schema, shaped, problems)
    if not problems.found:
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
        f"all training rows have the label '{schema.labels[seen.pop()]}': "
        "there is nothing to learn"
    )


def _check_shape(schema: Schema, rows: Rows, where: str, problems: Problems) -> bool:
    if rows.X.ndim != 2 or rows.X.shape[1] != schema.n_features:
        problems.add(
            f"{where}: inputs have shape {rows.X.shape}, expected "
            f"(rows, {schema.n_features})"
        )
        return False
    if not len(rows.X) == len(rows.y) == len(rows.group):
        problems.add(
            f"{where}: {len(rows.X)} inputs, {len(rows.y)} labels, "
            f"{len(rows.group)} groups"
        )
        return False
    return True


def _check_finite(schema: Schema, rows: Rows, where: str, problems: Problems) -> None:
    # A finite sum proves finite entries without a mask as large as the data.
    if np.isfinite(np.add.reduce(rows.X, axis=None, dtype=np.float64)):
        return
    bad = (~np.isfinite(rows.X)).sum(axis=0)
    columns = [f"'{schema.features[j]}' ({bad[j]})" for j in np.flatnonzero(bad)]
    if columns:
        problems.add(f"{where}: missing or infinite values in {', '.join(columns)}")


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
            problems.found.extend(
                f"{where}: {problem}"
                for problem in _code_problems(schema, rows.y, rows.group)
            )


def _code_problems(schema: Schema, y: FloatArray, group: IntArray) -> list[str]:
    if len(y) == 0:
        return []
    found = []
    missing = int((~np.isfinite(y)).sum())
    if missing:
        found.append(f"{missing} missing labels")
    elif schema.labels and (
        y.min() < 0 or y.max() >= schema.n_labels or (y != np.floor(y)).any()
    ):
        found.append(f"label codes outside 0..{schema.n_labels - 1}")
    if group.min() < 0 or group.max() >= len(schema.groups):
        found.append(
            f"group codes outside 0..{len(schema.groups) - 1}: "
            "a value that the schema does not declare"
        )
    return found


def protected_inputs(schema: Schema) -> list[str]:
    """Features that carry the name of a protected attribute (fault 12)."""
    names = {attribute.name for attribute in schema.attributes}
    return [
        feature
        for feature in schema.features
        if feature in names or feature.split("=", 1)[0] in names
    ]


def refuse_or_warn(message: str, *, strict: bool) -> None:
    """Raise under `strict`, otherwise warn."""
    if strict:
        raise DataError(message)
    warn(message)


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
