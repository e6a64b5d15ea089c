"""The census of many silos in one pass: small silos are counted together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pffl.data.federation import Federation
from pffl.data.silo import Rows
from pffl.data.sparse import stored_width
from pffl.models.scaled import Design, ScaledRows
from pffl.queries import Census, CensusTotal, add_all
from pffl.queries.base import raw, weighed
from pffl.queries.census import feature_powers, target_powers
from pffl.typing import FloatArray, IntArray

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
        found.append(_count(query, rows, some.start, sizes[some]))
    return add_all(found)


def _batches(sizes: IntArray, most: int) -> Iterator[slice]:
    """Yield consecutive silos that have at most so many rows together, or are one."""
    ends, first = np.cumsum(sizes), 0
    while first < len(sizes):
        before = ends[first] - sizes[first]
        after = int(np.searchsorted(ends, before + most, side="right"))
        yield slice(first, max(first + 1, after))
        first = max(first + 1, after)


def _count(query: Census, rows: Rows, first: int, sizes: IntArray) -> CensusTotal:
    """Count silos whose rows stand one after another, from the silo at `first` on."""
    schema, silos = query.schema, len(sizes)
    atoms, weight, X = schema.n_atoms, rows.weight, raw(rows.X)
    place = np.repeat(np.arange(silos) * atoms, sizes)
    unit = place + schema.atoms(rows.group, rows.y)
    counts = np.bincount(unit, minlength=silos * atoms)
    by_unit = np.argsort(unit, kind="stable")
    powers = weighed(target_powers(schema, rows.y), weight)
    mass, masses = sizes.astype(np.float64), counts.astype(np.float64)
    if weight is not None:
        mass, masses = _sums(weight, sizes), _sums(weight[by_unit], counts)
    return CensusTotal(
        np.arange(first, first + silos),
        sizes,
        counts.reshape(silos, atoms),
        mass,
        masses.reshape(silos, atoms),
        _sums(powers, sizes),
        _sums(powers[by_unit], counts).reshape(silos, atoms, powers.shape[1]),
        *feature_powers(X, weight),
        _stored(X, sizes),
        schema.hash,
    )


def _stored(X: Design, sizes: IntArray) -> IntArray:
    """Return `most_stored` of each silo's rows."""
    if not isinstance(X, ScaledRows):
        return np.zeros(len(sizes), dtype=np.int64)
    entries = np.diff(X.rows.indptr)
    parts = np.split(entries, np.cumsum(sizes)[:-1])
    return np.array([part.max(initial=0) for part in parts], dtype=np.int64)


def _sums(values: FloatArray, lengths: IntArray) -> FloatArray:
    """Return the sums of consecutive runs, 0 of those without length."""
    out = np.zeros((len(lengths), *values.shape[1:]))
    there = lengths > 0
    starts = (np.cumsum(lengths) - lengths)[there]
    if len(starts) and values.size:
        out[there] = np.add.reduceat(values, starts, axis=0)
    return out
