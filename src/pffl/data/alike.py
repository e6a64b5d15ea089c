"""Another table with labels, read as the first one was: the same columns and names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pffl.data.chunks import require
from pffl.data.column import category_codes
from pffl.data.encoding import TableEncoding
from pffl.data.federation import Federation
from pffl.data.newcomers import Newcomers
from pffl.data.reading import read_table
from pffl.data.table import TableOptions, silos_of
from pffl.errors import DataError, Problems

if TYPE_CHECKING:
    import os

    import pandas as pd


def read_alike(
    table: pd.DataFrame | str | os.PathLike[str],
    encoding: TableEncoding,
    options: TableOptions,
    *,
    newcomers: Newcomers | None = None,
    name: str = "table",
    learnt_from: bool = True,
) -> Federation:
    """Build a federation of the rows of another table.

    Parameters
    ----------
    table
        A DataFrame, or a file.
    encoding
        How the first table became rows; so will this one.
    options
        Silos and splits; a column of silos or ids need not be there.
    newcomers
        What becomes of unseen categories, if they are not refused; it is noted.
    name
        What to call the rows.
    learnt_from
        As for `Federation`.
    """
    frame, notes = read_table(table)
    columns = list(map(str, frame.columns))
    if encoding.label not in columns:
        raise DataError(
            f"[missing-column] '{name}' has no column '{encoding.label}', the label: "
            "without it nobody knows where the model is wrong (pffl predict needs "
            "none)"
        )
    groups = [attribute.name for attribute in encoding.schema.attributes]
    require(groups, columns, f"'{name}'")
    options = replace(
        options,
        silo=options.silo if options.silo in columns else None,
        id=options.id if options.id in columns else None,
        partition=options.partition if options.by in (None, *columns) else "equal",
    )
    rows = encoding.rows(frame, newcomers)
    with Problems(f"'{name}'", DataError) as problems:
        silo, names = silos_of(frame, options, problems)
    return Federation.from_rows(
        encoding.schema,
        rows,
        silo,
        names,
        test_fraction=options.test_fraction,
        validation_fraction=options.validation_fraction,
        drop_empty=options.drop_empty,
        name=name,
        seed=options.seed,
        notes=[*notes, *([] if newcomers is None else newcomers.remarks())],
        encoding=encoding,
        people=None if options.id is None else category_codes(frame[options.id]),
        learnt_from=learnt_from,
    )
