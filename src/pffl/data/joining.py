"""One table per silo becomes one table; where their columns differ, that is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pffl.data.column import Column, as_numbers
from pffl.data.declared import read_as_declared, refuse_latin
from pffl.data.reading import read_table
from pffl.data.table import SITE, Table
from pffl.errors import DataError, Problems

if TYPE_CHECKING:
    import pandas as pd


def join_sites(
    tables: Mapping[str, Table], columns: Mapping[str, Column]
) -> tuple[pd.DataFrame, list[str]]:
    """Stack the tables with a column `SITE`; refuse different columns, with a diff.

    Declared columns are read as declared, and the others as they are.
    """
    import pandas as pd

    if not tables:
        raise DataError("[no-silos] no silos")
    frames: dict[str, pd.DataFrame] = {}
    notes: list[str] = []
    with Problems("silos", DataError) as problems:
        for name, table in tables.items():
            try:
                frame, more = read_table(table)
                if columns:
                    refuse_latin(more)
                    others = [c for c in map(str, frame.columns) if c not in columns]
                    frame = read_as_declared(table, columns, others)
                frames[str(name)] = frame
            except DataError as error:
                problems.add(f"[silo-refused] silo '{name}': {error}")
            else:
                notes.extend(f"silo '{name}': {note}" for note in more)
    _compare_columns(frames)
    stacked = [frame.assign(**{SITE: name}) for name, frame in frames.items()]
    return pd.concat(stacked, ignore_index=True), notes


def _compare_columns(frames: Mapping[str, pd.DataFrame]) -> None:
    """Raise one error with every difference to the first silo's columns (fault 11)."""
    kinds = {name: _kinds(frame) for name, frame in frames.items()}
    first, expected = next(iter(kinds.items()))
    with Problems(f"silos differ from '{first}'", DataError) as problems:
        for name, found in kinds.items():
            lines = [f"- {column}" for column in expected if column not in found]
            lines += [f"+ {column}" for column in found if column not in expected]
            lines += [
                f"~ {column}: {kind} → {found[column]}"
                for column, kind in expected.items()
                if "empty" not in (kind, found.get(column, kind))
                and kind != found.get(column, kind)
            ]
            if not lines and list(found) != list(expected):
                lines = [f"order {list(found)}, expected {list(expected)}"]
            if not len(frames[name]):
                lines.append("no rows")
            if lines:
                problems.add(f"[silos-differ] '{name}': {'; '.join(lines)}")


def _kinds(frame: pd.DataFrame) -> dict[str, str]:
    """Whether each column holds numbers or text; nothing is known of an empty one."""
    kinds = {}
    for name in frame.columns:
        series = frame[name]
        if not series.notna().any():
            kinds[str(name)] = "empty"
        elif series.dtype.kind in "mM":
            kinds[str(name)] = "date"
        else:
            kinds[str(name)] = "text" if as_numbers(series) is None else "number"
    return kinds
