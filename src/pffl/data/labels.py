"""Labels in the type that they came in: names inside, the user's own values outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pffl.errors import DataError

LabelType = Literal["text", "integer", "number", "boolean"]
INFERRED: dict[str, LabelType] = {  # from what pandas calls the values
    "boolean": "boolean",
    "integer": "integer",
    "floating": "number",
    "mixed-integer-float": "number",
}
BOOLEANS = {"False": False, "True": True}


def label_type_of(values: Any, names: Sequence[str]) -> LabelType:
    """Return the type of a column of labels, whose values have these names."""
    import pandas as pd

    column = pd.Series(values, copy=False)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = pd.Series(column.cat.categories)
    found = INFERRED.get(pd.api.types.infer_dtype(column, skipna=True), "text")
    try:
        typed(names, found)
    except DataError:
        return "text"  # labels were declared that are not of the column's type
    return found


def typed(names: Sequence[str], kind: LabelType) -> NDArray[Any]:
    """Return labels in their own type, from their names.

    >>> typed(["0", "2"], "integer"), typed(["no", "yes"], "text")
    (array([0, 2]), array(['no', 'yes'], dtype='<U3'))
    """
    try:
        if kind == "integer":
            return np.array([int(name) for name in names])
        if kind == "number":
            return np.array([float(name) for name in names])
        if kind == "boolean":
            return np.array([BOOLEANS[name] for name in names])
    except (ValueError, KeyError, OverflowError) as error:
        raise DataError(
            f"[wrong-labels] labels {list(names)[:5]} are not of type '{kind}'"
        ) from error
    return np.array(names, dtype=np.str_)
