"""Rows back into a table, for a trial of the whole path on one machine."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pffl.data.encoding import TableEncoding
from pffl.data.silo import Rows, Silo

SPLIT = "split"


def table_of(silo: Silo, encoding: TableEncoding) -> tuple[pd.DataFrame, str]:
    """Return a table that `encoding` reads as these rows, and its split column."""
    taken = {column.name for column in encoding.columns} | {encoding.label}
    taken |= {attribute.name for attribute in encoding.schema.attributes}
    split = SPLIT
    while split in taken:
        split = f"{split}_"
    parts = [
        _decoded(rows, encoding).assign(**{split: name})
        for name, rows in silo.splits.items()
    ]
    return pd.concat(parts, ignore_index=True), split


def _decoded(rows: Rows, encoding: TableEncoding) -> pd.DataFrame:
    schema = encoding.schema
    found: dict[str, object] = {}
    start = 0
    for column in encoding.columns:
        values = rows.X[:, start : start + len(column.features)]
        start += len(column.features)
        if column.kind == "category":
            found[column.name] = np.array(column.values, object)[values.argmax(axis=1)]
        else:
            numbers = np.asarray(values[:, 0], np.float64).copy()
            if column.indicator:
                numbers[values[:, 1] == 1] = np.nan
            found[column.name] = numbers
    for attribute in schema.attributes:
        codes = schema.attribute_codes(attribute.name)[rows.group]
        found[attribute.name] = np.array(attribute.values, object)[codes]
    found[encoding.label] = (
        np.array(schema.labels, object)[rows.y.astype(np.int64)]
        if schema.labels
        else rows.y
    )
    return pd.DataFrame(found)
