"""The census of many silos in one pass: small silos are counted together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pffl.data.federation import Federation
from pffl.data.rows import Rows, stored_width
from pffl.queries import Census, CensusTotal, add_all
from pffl.queries.base import raw, weighed
from pffl.queries.census import (
    feature_powers,
    run_sums,
    stored_inputs,
    target_powers,
)
from pffl.typing import IntArray

NUMBERS = 2**21  # of inputs that are joined: a large silo stands alone, uncopied


def census(federation: Federation, query: Census) -> CensusTotal:
    """Answer for all silos, as `Census.answer` does for one."""
    parts = [silo.rows(query.split).counting for silo in federation.silos]
    sizes = np.array([len(rows) for rows in parts])
    width = max(1, *(stored_width(rows.X) for rows in parts))
    found = []
    for some in _batches(sizes, NUMBERS // width):
        own = parts[some]
        rows = own[0] if len(own) == 1 else Rows.joined(own)
        found.append(_count(query, rows, sizes[some]))
    return add_all(found)


def _batches(sizes: IntArray, most: int) -> Iterator[slice]:
    """Yield consecutive silos that have at most so many rows together, or are one."""
    ends, first = np.cumsum(sizes), 0
    while first < len(sizes):
        before = ends[first] - sizes[first]
        after = int(np.searchsorted(ends, before + most, side="right"))
        yield slice(first, max(first + 1, after))
        first = max(first + 1, after)


def _count(query: Census, rows: Rows, sizes: IntArray) -> CensusTotal:
    """Count silos whose rows stand one after another."""
    schema, silos = query.schema, len(sizes)
    strata, weight, X = schema.n_strata, rows.weight, raw(rows.X)
    place = np.repeat(np.arange(silos) * strata, sizes)
    unit = place + schema.strata(rows.group, rows.y)
    counts = np.bincount(unit, minlength=silos * strata)
    by_unit = np.argsort(unit, kind="stable")
    powers = weighed(target_powers(schema, rows.y), weight)
    mass, masses = sizes.astype(np.float64), counts.astype(np.float64)
    if weight is not None:
        mass, masses = run_sums(weight, sizes), run_sums(weight[by_unit], counts)
    return CensusTotal(
        sizes,
        counts.reshape(silos, strata),
        mass,
        masses.reshape(silos, strata),
        run_sums(powers, sizes),
        run_sums(powers[by_unit], counts).reshape(silos, strata, powers.shape[1]),
        *feature_powers(X, weight),
        stored_inputs(X, sizes),
    )
