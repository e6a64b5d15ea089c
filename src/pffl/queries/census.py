"""`census`: who is there, rows per atom, sums of features and target.

It is asked once. Σx² − (Σx)²/n cancels where a mean is large beside the spread, as that
of a date in milliseconds is: then it is asked a second time, for sums about a `centre`
close to the mean, where nothing cancels. That tells nothing new, but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from pffl.data.schema import Schema
from pffl.data.sparse import powers
from pffl.errors import Malformed
from pffl.models.scaled import Design, ScaledRows, dense, filled
from pffl.queries.base import RowsQuery, View, raw
from pffl.queries.declared import (
    ROUNDING,
    Dims,
    Row,
    Total,
    agreed,
    array,
    empty,
    places,
    scalar,
    table,
    text,
)
from pffl.queries.plausible import require, within
from pffl.queries.release import (
    CHUNK,
    UNIT,
    Adding,
    Part,
    Releasable,
    kept,
)
from pffl.typing import FloatArray, IntArray

COUNT = Row(0.0, 1.0, whole=True, called="a count")
STORED = Row(0.0, whole=True, called="a number of inputs")
WEIGHT = Row(0.0, 1.0, weighted=True, called="a weight")
APART = 1 << 13  # more than there are sites under masks


class CensusTotal(Total):
    """Counts per silo and atom (frozen for the run), and feature sums over silos.

    Attributes
    ----------
    rows, counts
        Numbers of rows, for floors and bounds.
    weight, weights
        Sums of sample weights Σs_i of the same rows, for means.
    target, targets
        Σs_i y and Σs_i y² of a numeric target over the same rows, shape (K, 2) and
        (K, atoms, 2); (K, 0) and (K, atoms, 0) of classes.
    feature_sums, feature_squares
        Σs_i x and Σs_i x² of each feature. About a centre c, all four are of y − c and
        x − c, and missing values add nothing.
    stored
        Most inputs that a row of a silo with sparse rows stores; 0 of a dense one: what
        rounding does to scores depends on it.
    """

    silos: IntArray = places()
    rows: IntArray = array(row=COUNT, per_silo=True)
    counts: IntArray = array("atoms", row=COUNT, per_silo=True)
    weight: FloatArray = array(row=WEIGHT, per_silo=True)
    weights: FloatArray = array("atoms", row=WEIGHT, per_silo=True)
    target: FloatArray = array("sums", per_silo=True)
    targets: FloatArray = array("atoms", "sums", per_silo=True)
    feature_sums: FloatArray = array("features")
    feature_squares: FloatArray = array("features")
    stored: IntArray = array(row=STORED, per_silo=True)
    schema_hash: str = agreed("schema")

    def same(self, other: CensusTotal) -> bool:
        """Whether another census says the same (sums up to the order of addition)."""
        return all(
            np.array_equal(mine := getattr(self, name), theirs := getattr(other, name))
            or (of.dtype is np.float64 and np.allclose(mine, theirs, 1e-9, 1e-9))
            for name, of in self.declared.items()
        )


class Census(Releasable, RowsQuery[CensusTotal]):
    """Ask for counts and feature sums, of rows as they are.

    With noise, `counts` are people of each atom, and `features` Σu and Σu² of each
    input, u = (x − low)/(high − low) kept in [0, 1]; 0 of one that is missing.

    Attributes
    ----------
    centre
        That of the target, then one for each feature; none: 0.
    low, high, longest
        Under noise: what each input is between, known beforehand, and the length that
        (u, u²) of a row has at most.
    """

    total_type: ClassVar = CensusTotal
    releasable: ClassVar = ("counts", "features")

    split: str = text(default="train")
    centre: FloatArray = table("1+features", default_factory=empty)
    noise: FloatArray = table("any", most=2, default_factory=empty)
    low: FloatArray = table("features", default_factory=empty)
    high: FloatArray = table("features", default_factory=empty)
    longest: float = scalar(default=0.0)
    adding: Adding | None = None

    def __post_init__(self) -> None:
        if not self.released:
            return
        n = self.schema.n_features
        if not (len(self.low) == len(self.high) == n and (self.low < self.high).all()):
            raise Malformed(
                "[needs-ranges] a range for each input is needed, the lower end first"
            )
        if not 0 < self.longest <= 2.0**16:
            raise Malformed("[needs-length] a length of rows is needed")
        self.check_noise()

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer."""
        return {"n": self.length} if self.released else super().dims

    def lengths(self) -> Mapping[str, Part]:
        """Return what is released: a person is in one atom."""
        n = 2 * self.schema.n_features
        rounded = math.sqrt(n) * 2.0**-UNIT
        return {
            "counts": Part((self.schema.n_atoms,), 1.0),
            "features": Part((n,), self.longest + rounded),
        }

    def add_whole(self, view: View) -> Iterator[Mapping[str, IntArray]]:
        """Yield sums over some rows, as they are."""
        parts, (inputs, marks) = self.parts, self.schema.gaps
        if "counts" in parts:
            many = np.bincount(view.atom, minlength=self.schema.n_atoms)
            yield {"counts": many.astype(np.int64) << UNIT}
        for at in range(0, len(view) if "features" in parts else 0, CHUNK):
            X = dense(view.X[at : at + CHUNK])
            with np.errstate(over="ignore", invalid="ignore"):
                u = (X - self.low) / (self.high - self.low)
            u = np.clip(np.nan_to_num(u, nan=0.0), 0.0, 1.0)
            u[:, inputs] *= 1.0 - u[:, marks]
            both = np.rint(np.concatenate([u, u * u], axis=1) * 2.0**UNIT)
            yield {"features": kept(both, parts["features"].most).sum(axis=0)}

    @property
    def centred(self) -> bool:
        """Whether sums are about a centre: what was counted before is known."""
        return bool(self.centre.size)

    def answer(self, view: View) -> CensusTotal:
        """Answer for one silo, from raw (unscaled) rows."""
        if self.released:
            whole: Any = self.whole(view)
            return whole
        X, y, about = view.X, view.y, None
        if self.centred:
            y, about = y - self.centre[0], self.centre[1:]
            gaps, rows = self.schema.gaps, X.rows if isinstance(X, ScaledRows) else X
            X = raw(filled(rows, gaps, about[gaps[0]]))
        powers = view.weigh(target_powers(self.schema, y))
        counts = np.bincount(view.atom, minlength=self.schema.n_atoms)[None, :]
        return CensusTotal(
            np.array([view.index]),
            np.array([len(view)]),
            counts,
            np.array([view.mass]),
            atom_weights(view, counts[0])[None],
            powers.sum(axis=0)[None],
            view.atom_sums(powers, counts.shape[1])[None],
            *feature_powers(X, view.weight, about),
            np.array([most_stored(view.X)]),
            self.schema.hash,
        )

    def addend(self, total: CensusTotal) -> CensusTotal:
        """Write beside `stored`, which does not add, whether rows are sparse."""
        if self.released:
            return total
        stored = total.stored
        return replace(total, stored=np.where(stored > 0, stored * APART + 1, 0))

    def summed(self, total: CensusTotal, sites: int) -> CensusTotal:
        """Return the sum of what rows store, which is no less than the most.

        Where some sites' rows are dense, and those of others not, it is all inputs.
        """
        if self.released:
            return total
        stored, sparse = np.divmod(total.stored, APART)
        most = np.where(sparse == sites, stored, np.where(sparse > 0, np.inf, 0))
        few = np.minimum(most, self.schema.n_features)
        return replace(total, stored=few.astype(np.int64))

    def check(
        self,
        total: CensusTotal,
        withheld: int,
        most_rows: int,
        weight_bound: float | None = None,
    ) -> None:
        """Judge one silo's counts and feature sums before they are frozen (fault 48).

        `withheld` is the number of (group, label)s that the silo says it leaves out;
        `weight_bound` what no row weighs more than, None where all rows count alike.
        """
        total.check_size()
        rows, counts = int(total.rows[0]), total.counts[0]
        require(0 <= rows <= most_rows, "an impossible number of rows")
        weights = {"": total.weight}
        total.check_ranges({"": np.array(float(rows))}, self.scales, weights)
        require(rows == int(counts.sum()), "counts do not add up to the rows")
        empty = len(counts) - int(np.count_nonzero(counts))
        require(withheld <= empty, "counts that are withheld and given")
        _check_weights(total, weight_bound)

    def check_centred(self, census: CensusTotal, total: CensusTotal) -> None:
        """Refuse counts that changed since the census."""
        names = ("rows", "counts", "weight", "weights", "stored")
        same = all(np.allclose(getattr(census, n), getattr(total, n)) for n in names)
        require(same, "counts changed since the census")


def target_powers(schema: Schema, y: FloatArray) -> FloatArray:
    """Return y and y² of a numeric target, shape (n, 2); nothing of classes."""
    if schema.labels:
        return np.zeros((len(y), 0))
    return np.stack([y, np.square(y)], axis=1)


def atom_weights(view: View, counts: IntArray) -> FloatArray:
    """Return what the rows of each atom weigh together, given how many they are."""
    weights = counts.astype(np.float64)
    if view.weight is None:
        return weights
    ordered = view.weight[np.argsort(view.atom, kind="stable")]
    there = counts > 0
    starts = (np.cumsum(counts) - counts)[there]
    # Pairwise, unlike a count: what rounding can do stays small.
    weights[there] = np.add.reduceat(ordered, starts)
    return weights


def feature_powers(
    X: Design, weight: FloatArray | None, centre: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return Σs(x − centre) and Σs(x − centre)² of each column of raw rows."""
    if isinstance(X, ScaledRows):
        return powers(X.rows, weight, centre)
    if centre is not None:
        X = np.subtract(X, centre, dtype=np.float64)
    if weight is None:
        squares = np.einsum("ij,ij->j", X, X, dtype=np.float64)
        return X.sum(axis=0, dtype=np.float64), squares
    sums = np.einsum("i,ij->j", weight, X, dtype=np.float64)
    return sums, np.einsum("i,ij,ij->j", weight, X, X, dtype=np.float64)


def most_stored(X: Design) -> int:
    """Return the most inputs that a sparse row stores; 0 of dense rows."""
    if not isinstance(X, ScaledRows):
        return 0
    return int(np.diff(X.rows.indptr).max(initial=0))


def _check_weights(total: CensusTotal, weight_bound: float | None) -> None:
    """Demand weights that so many rows can have: of each atom, and of all."""
    rows = np.append(total.rows, total.counts[0]).astype(np.float64)
    weights = np.append(total.weight, total.weights[0])
    if weight_bound is None:
        require(np.allclose(weights, rows), "weights that are not those of the rows")
        return
    require(bool(((weights > 0) == (rows > 0)).all()), "weights of no rows, or none")
    most = weight_bound * rows * (1 + ROUNDING)
    within(weights, np.zeros_like(rows), most, "a weight")
    left = abs(float(total.weights.sum()) - weights[0])
    same = bool(left <= ROUNDING * weights[0])
    require(same, "weights do not add up to that of all rows")
