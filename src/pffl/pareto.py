"""The Pareto front: what nothing else beats in every measure at once."""

from __future__ import annotations

import numpy as np

from pffl.typing import BoolArray, FloatArray


def front(values: FloatArray) -> BoolArray:
    """Mark the rows of `values`, shape (n, 2), that no other row beats.

    Smaller is better. A row is beaten if another is at least as small in both columns
    and smaller in one. Of equal rows the first is kept; rows with NaN are never on it.

    >>> front(np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 4.0], [np.nan, 0.0]]))
    array([ True,  True, False, False])
    """
    mark = np.zeros(len(values), dtype=bool)
    known = np.flatnonzero(~np.isnan(values).any(axis=1))
    order = known[np.lexsort((values[known, 1], values[known, 0]))]
    lowest = np.inf
    for index in order:
        if values[index, 1] < lowest:
            lowest = values[index, 1]
            mark[index] = True
    return mark
