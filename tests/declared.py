"""Declared columns for tests: what a private run asks of a table."""

from __future__ import annotations

import pandas as pd

from pffl.config import dumps


def columns(frame, *, ranges=None, leave=(), **more):
    """Declare a made-up table as it is; numbers with `ranges`, else their own ends.

    `more` are entries of single columns; columns to `leave` out are not declared.
    """
    out = {}
    for name in frame.columns.difference([*leave], sort=False):
        series = frame[name]
        if pd.api.types.is_numeric_dtype(series):
            ends = (ranges or {}).get(name, (series.min(), series.max()))
            out[name] = {"kind": "number", "range": [float(end) for end in ends]}
        else:
            values = sorted(map(str, series.dropna().unique()))
            out[name] = {"kind": "category", "values": values}
        own = more.get(name, {})
        out[name] = own if "kind" in own else out[name] | own
    return out


def columns_file(path, frame, **options):
    """Write them to a run file, and return its name."""
    path.write_text(dumps({"columns": columns(frame, **options)}))
    return str(path)
