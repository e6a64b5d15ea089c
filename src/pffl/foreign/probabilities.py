"""A model by its predicted probabilities alone, one row of them per person."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pffl.data.federation import Federation
from pffl.data.reading import read_table
from pffl.errors import DataError, Problems
from pffl.models.predictor import PROBABILITY
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

COLUMN = "probability"
OTHER_NAMES = ("prob", "proba")
INPUT = "predicted probability"


def with_probabilities(
    table: str | os.PathLike[str],
    predictions: str | os.PathLike[str],
    options: Mapping[str, Any],
    *,
    id: str | None = None,
    column: str | None = None,
) -> Federation:
    """Build the federation of a table, with predicted probabilities as its inputs.

    Parameters
    ----------
    table
        The rows: a CSV or Parquet file.
    predictions
        A table with one row per row of `table`, in the same order or joined by `id`:
        the probability of the positive class, or one column per class named after it.
    options
        What `Federation.from_table` takes besides the table.
    id
        Column of both tables that says who a row is about.
    column
        Column of `predictions` with the probability.
    """
    frame, _ = read_table(table)
    labels = Federation.from_table(frame, **options).schema.labels
    if not labels:
        raise DataError(
            "[numeric-target] probabilities need classes, and the label is a number"
        )
    predicted, _ = read_table(predictions)
    predicted = _in_order(frame, predicted, id, column)
    known = set(frame.columns) - {COLUMN, *OTHER_NAMES, column}
    chosen = _columns([n for n in predicted.columns if n not in known], labels, column)
    values = _probabilities(predicted, chosen)
    names = [INPUT] if len(chosen) == 1 else [f"{INPUT}: {n}" for n in labels]
    joined = frame.assign(**{n: values[:, j] for j, n in enumerate(names)})
    with warnings.catch_warnings():
        # One input is often the same for two people: that is no sign of anything.
        warnings.simplefilter("ignore")
        made = Federation.from_table(joined, **_but_inputs(options), features=names)
    # That predictions tell of the label is what they are for.
    told = tuple(n for n in made.notes if not n.startswith(f"column '{INPUT}"))
    taken = [] if len(chosen) > 1 or chosen[0] in labels else [_taken(chosen[0], made)]
    return replace(made, notes=(*told, *taken))


def _taken(column: str, made: Federation) -> str:
    """Say what one column of predictions was taken to be."""
    return (
        f"predictions: column '{column}' is taken as the probability of "
        f"'{made.schema.labels[1]}'"
    )


def _but_inputs(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that do not speak of inputs."""
    inputs = ("features", "categorical", "drop", "inputs", "missing")
    return {key: value for key, value in options.items() if key not in inputs}


def _in_order(
    frame: pd.DataFrame, predicted: pd.DataFrame, id: str | None, column: str | None
) -> pd.DataFrame:
    """Bring the predictions into the order of the rows."""
    if id is None:
        if len(predicted) != len(frame):
            raise DataError(
                f"[wrong-length] {len(predicted):,} predictions for {len(frame):,} "
                "rows: give one per row in the same order, or name the column that "
                "joins them (--id)"
            )
        _refuse_other_order(frame, predicted, column)
        return predicted
    with Problems("predictions", DataError) as problems:
        for what, table in (("data", frame), ("predictions", predicted)):
            if id not in table.columns:
                problems.add(f"[missing-column] the {what} have no column '{id}'")
            elif what == "predictions" and table[id].duplicated().any():
                twice = int(table[id].duplicated().sum())
                problems.add(
                    f"[repeated-id] '{id}' is not unique in the predictions: {twice} "
                    "repeat"
                )
    by_id = predicted.set_index(predicted[id].astype(str))
    wanted = frame[id].astype(str)
    absent = wanted[~wanted.isin(by_id.index)]
    if len(absent):
        some = ", ".join(absent.head(3))
        raise DataError(
            f"[missing-predictions] no prediction for {len(absent):,} rows: {some}, …"
        )
    return by_id.loc[list(wanted)].reset_index(drop=True)


def _refuse_other_order(
    frame: pd.DataFrame, predicted: pd.DataFrame, column: str | None
) -> None:
    """Refuse predictions that repeat a column of the data with other values."""
    for name in predicted.columns:
        if name not in frame.columns or name in (COLUMN, *OTHER_NAMES, column):
            continue
        differ = int((frame[name].astype(str) != predicted[name].astype(str)).sum())
        if differ:
            raise DataError(
                f"[other-order] column '{name}' of the predictions differs from that "
                f"of the data in {differ:,} rows: the order is another one (--id "
                f"{name} joins by it)"
            )


def _columns(
    names: Sequence[object], labels: Sequence[str], column: str | None
) -> list[str]:
    """Return the columns with the probabilities, in the order of the classes."""
    there = [str(name) for name in names]
    if column is not None:
        if column not in there:
            raise DataError(
                f"[missing-column] the predictions have no column '{column}': {there}"
            )
        return [column]
    for before in ("", f"{PROBABILITY}_"):  # the second: as `pffl predict` does
        named = [f"{before}{label}" for label in labels]
        if all(name in there for name in named):
            return named[1:] if len(labels) == 2 else named
    named = [name for name in (COLUMN, *OTHER_NAMES) if name in there]
    if len(labels) == 2 and named:
        return named[:1]
    if len(labels) == 2 and len(there) == 1:
        return there
    need = f"one column per class: {list(labels)}"
    if len(labels) == 2:
        need = f"a column '{COLUMN}' (or name it: --probability), or {need}"
    raise DataError(
        f"[missing-column] the predictions have the columns {there}; needed: {need}"
    )


def _probabilities(predicted: pd.DataFrame, names: Sequence[str]) -> FloatArray:
    """Return the probabilities, or refuse what is none."""
    import pandas as pd

    values = np.column_stack(
        [
            pd.to_numeric(predicted[name], errors="coerce").to_numpy(dtype=np.float64)
            for name in names
        ]
    )
    checked(values, names)
    return values


def checked(values: FloatArray, names: Sequence[str]) -> None:
    """Refuse numbers that are no probabilities, of one class or of all."""
    with Problems("predictions", DataError) as problems:
        for j, name in enumerate(names):
            good = (values[:, j] >= 0) & (values[:, j] <= 1)
            if not good.all():
                bad = int((~good).sum())
                problems.add(
                    f"[bad-probabilities] column '{name}': {bad:,} values are not in "
                    "[0, 1]"
                )
        if len(names) > 1 and not problems.found:
            off = int((np.abs(values.sum(axis=1) - 1.0) > 1e-3).sum())
            if off:
                problems.add(
                    f"[bad-probabilities] {off:,} rows whose probabilities do not add "
                    "up to 1"
                )
