"""Ways to cut one table into silos, for simulations.

Each function returns ``(codes, names)``: the silo of every row, and the silos' names.
All are pure: the same arguments, the same cut. Every row is in exactly one silo, and
no silo is left empty as long as there are at least as many rows as silos.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pffl.data.encode import as_column, encode_values
from pffl.errors import DataError, UsageError
from pffl.typing import IntArray

Partition: TypeAlias = tuple[IntArray, tuple[str, ...]]


def by_column(values: ArrayLike) -> Partition:
    """One silo per distinct value of a column.

    >>> by_column(["north", "south", "north"])
    (array([0, 1, 0]), ('north', 'south'))
    """
    names, codes = encode_values(as_column(values), "silo")
    return codes, names


def equal(rows: int, silos: int, seed: int = 0) -> Partition:
    """Silos of equal size (up to one row), drawn at random: identically distributed.

    >>> codes, names = equal(7, 3, seed=0)
    >>> np.bincount(codes), names
    (array([3, 2, 2]), ('silo 1', 'silo 2', 'silo 3'))
    """
    _check(rows, silos)
    codes = np.empty(rows, dtype=np.int64)
    codes[np.random.default_rng(seed).permutation(rows)] = np.arange(rows) % silos
    return codes, silo_names(silos)


def dirichlet(values: ArrayLike, alpha: float, silos: int, seed: int = 0) -> Partition:
    """Share out the rows of each distinct value by a draw from Dirichlet(α, …, α).

    The usual way to make silos differ: a small α gives each value to few silos, a large
    α makes all silos alike. `values` may be any column: the label, a group, a category.

    Parameters
    ----------
    values
        The column on which the silos shall differ.
    alpha
        Concentration α > 0.
    silos
        Number of silos.
    seed
        Seed of the draw.
    """
    if not (np.isfinite(alpha) and alpha > 0):
        raise UsageError(f"'alpha' must be a positive number. Got {alpha} instead.")
    distinct, codes = encode_values(as_column(values), "column of the Dirichlet cut")
    _check(len(codes), silos)
    generator = np.random.default_rng(seed)
    silo = np.empty(len(codes), dtype=np.int64)
    for code in range(len(distinct)):
        members = generator.permutation(np.flatnonzero(codes == code))
        shares = generator.dirichlet(np.full(silos, alpha))
        # Cut at the rounded cumulative shares: each silo is within a row of its share.
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        silo[members] = np.searchsorted(cuts, np.arange(len(members)), side="right")
    return fill_empty(silo, silos), silo_names(silos)


def quantile_bands(values: ArrayLike, silos: int) -> Partition:
    """Cut along the order of a column into bands of equal size (up to one row).

    Equal values may lie on both sides of a border, in the order of the rows; that keeps
    the sizes equal and no band empty.

    >>> quantile_bands([30, 10, 20, 40], 2)
    (array([1, 0, 0, 1]), ('band 1 (10 to 20)', 'band 2 (30 to 40)'))
    """
    column = as_column(values)
    encode_values(column, "column of the bands")
    _check(len(column), silos)
    order = np.argsort(column, kind="stable")
    codes = np.empty(len(column), dtype=np.int64)
    names = []
    for band, members in enumerate(np.array_split(order, silos)):
        codes[members] = band
        names.append(f"band {band + 1}")
        if len(members):
            names[-1] += f" ({column[members[0]]} to {column[members[-1]]})"
    return codes, tuple(names)


def fill_empty(codes: IntArray, count: int) -> IntArray:
    """Give each empty silo one row of the largest silo, where there are enough rows."""
    sizes = np.bincount(codes, minlength=count)
    if len(codes) < count or sizes.all():
        return codes
    filled = codes.copy()
    for silo in np.flatnonzero(sizes == 0):
        donor = int(sizes.argmax())
        filled[np.flatnonzero(filled == donor)[-1]] = silo
        sizes[donor] -= 1
        sizes[silo] = 1
    return filled


def silo_names(count: int) -> tuple[str, ...]:
    """Return ``silo 1``, ``silo 2``, …, padded so that they sort in order."""
    width = len(str(count))
    return tuple(f"silo {k + 1:0{width}d}" for k in range(count))


def _check(rows: int, silos: int) -> None:
    if isinstance(silos, bool) or int(silos) != silos or silos < 1:
        raise UsageError(f"'silos' must be a whole number ≥ 1. Got {silos} instead.")
    if rows == 0:
        raise DataError("there are no rows to share out over silos")
