"""`census`: rows per stratum, sums of features and target.

It is asked once. Σx² − (Σx)²/n cancels where means are large against spreads, as that
of a date in milliseconds is: then it is asked a second time, for sums about a `centre`
close to the mean, where nothing cancels. That tells nothing new, but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

import numpy as np

from pffl.data.rows import Rows, powers
from pffl.data.schema import Schema
from pffl.errors import Malformed
from pffl.models.scaled import Design, ScaledRows, dense, filled
from pffl.queries.base import (
    Dims,
    RowRange,
    Total,
    View,
    array,
    empty,
    raw,
    vector,
    weighed,
)
from pffl.queries.release import UNIT, Part, Releasable, short_rows
from pffl.typing import FloatArray, IntArray

COUNT = RowRange(0.0, 1.0, whole=True)
STORED = RowRange(0.0, whole=True)
WEIGHT = RowRange(0.0, 1.0, weighted=True)


class CensusTotal(Total):
    """Counts per silo and stratum (frozen for the run), and feature sums over silos.

    Attributes
    ----------
    rows, counts
        Numbers of rows, for floors and bounds.
    weight, weights
        Sums of sample weights Σs_i of the same rows, for means.
    target, targets
        Σs_i y and Σs_i y² of a numeric target over the same rows, shape (K, 2) and
        (K, strata, 2); (K, 0) and (K, strata, 0) of classes.
    feature_sums, feature_squares
        Σs_i x and Σs_i x² of each feature. About a centre c, all four are of y − c and
        x − c, and missing values add nothing.
    stored
        Most inputs that a row of a silo with sparse rows stores; 0 of a dense one: what
        rounding does to scores depends on it. Of a pool, a sum: above 0 if any silo's
        rows are sparse.
    """

    rows: IntArray = array(row=COUNT, per_silo=True)
    counts: IntArray = array("strata", row=COUNT, per_silo=True)
    weight: FloatArray = array(row=WEIGHT, per_silo=True)
    weights: FloatArray = array("strata", row=WEIGHT, per_silo=True)
    target: FloatArray = array("sums", per_silo=True)
    targets: FloatArray = array("strata", "sums", per_silo=True)
    feature_sums: FloatArray = array("features")
    feature_squares: FloatArray = array("features")
    stored: IntArray = array(row=STORED, per_silo=True)


class Census(Releasable[CensusTotal]):
    """Ask for counts and feature sums, of rows as they are.

    With noise, `counts` are people of each stratum, and `features` Σu and Σu² of each
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

    schema: Schema
    split: str = "train"
    centre: FloatArray = vector("1+features", default_factory=empty)
    low: FloatArray = vector("features", default_factory=empty)
    high: FloatArray = vector("features", default_factory=empty)
    longest: float = 0.0
    task: None = field(default=None, init=False)

    def check_release(self) -> None:
        """Refuse to release without what must be known beforehand."""
        n = self.schema.n_features
        if not (len(self.low) == len(self.high) == n and (self.low < self.high).all()):
            raise Malformed("needs-ranges:check-release")
        if not 0 < self.longest <= 2.0**16:
            raise Malformed("needs-length")

    def declared_parts(self) -> Mapping[str, Part]:
        """Return what is released: a person is in one stratum."""
        n, strata = 2 * self.schema.n_features, self.schema.n_strata
        longest = self.longest + math.sqrt(n) * 2.0**-UNIT

        def counts(rows: View) -> IntArray:
            return np.bincount(rows.stratum, minlength=strata).astype(np.int64) << UNIT

        def features(rows: View) -> IntArray:
            with np.errstate(over="ignore", invalid="ignore"):
                u = (dense(rows.X) - self.low) / (self.high - self.low)
            u = np.clip(np.nan_to_num(u, nan=0.0), 0.0, 1.0)
            inputs, marks = self.schema.gaps
            u[:, inputs] *= 1.0 - u[:, marks]
            both = np.concatenate([u, u * u], axis=1)
            return short_rows(both, longest).astype(np.int64).sum(axis=0)

        return {
            "counts": Part((strata,), 1.0, counts),
            "features": Part((n,), longest, features),
        }

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer."""
        if self.released:
            return {"n": self.length}
        schema, sums = self.schema, 0 if self.schema.labels else 2
        return {"features": schema.n_features, "strata": schema.n_strata, "sums": sums}

    @property
    def centred(self) -> bool:
        """Whether sums are about a centre: what was counted before is known."""
        return bool(self.centre.size)

    @property
    def counts_rows(self) -> bool:
        """Whether it is the census that is asked once, and frozen."""
        return not (self.centred or self.released)

    def answer(self, view: View) -> CensusTotal:
        """Answer for one silo, from raw (unscaled) rows."""
        if self.released:
            return self.add_whole(view)
        return self.counted(view, view.stratum, np.array([len(view)]))

    def counted(
        self, rows: View | Rows, strata: IntArray, sizes: IntArray
    ) -> CensusTotal:
        """Count silos of these sizes, whose raw rows stand one after another."""
        X, y, weight = raw(rows.X), rows.y, rows.weight
        stored, about, shape = stored_inputs(X, sizes), None, (len(sizes), -1)
        if self.centred:
            y, about = y - self.centre[0], self.centre[1:]
            gaps, given = self.schema.gaps, X.rows if isinstance(X, ScaledRows) else X
            X = raw(filled(given, gaps, about[gaps[0]]))
        units = np.repeat(np.arange(len(sizes)) * self.schema.n_strata, sizes) + strata
        counts = np.bincount(units, minlength=len(sizes) * self.schema.n_strata)
        by_unit = np.argsort(units, kind="stable")
        powers = weighed(target_powers(self.schema, y), weight)
        mass, masses = sizes.astype(np.float64), counts.astype(np.float64)
        if weight is not None:
            mass, masses = run_sums(weight, sizes), run_sums(weight[by_unit], counts)
        targets = run_sums(powers[by_unit], counts)
        return CensusTotal(
            sizes,
            counts.reshape(shape),
            mass,
            masses.reshape(shape),
            run_sums(powers, sizes),
            targets.reshape(len(sizes), self.schema.n_strata, powers.shape[1]),
            *feature_powers(X, weight, about),
            stored,
        )


def target_powers(schema: Schema, y: FloatArray) -> FloatArray:
    """Return y and y² of a numeric target, shape (n, 2); nothing of classes."""
    if schema.labels:
        return np.zeros((len(y), 0))
    return np.stack([y, np.square(y)], axis=1)


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


def stored_inputs(X: Design, sizes: IntArray) -> IntArray:
    """Return the most inputs that a sparse row of each silo stores; 0 of dense rows."""
    if not isinstance(X, ScaledRows):
        return np.zeros(len(sizes), dtype=np.int64)
    parts = np.split(np.diff(X.rows.indptr), np.cumsum(sizes)[:-1])
    return np.array([part.max(initial=0) for part in parts], dtype=np.int64)


def run_sums(values: FloatArray, lengths: IntArray) -> FloatArray:
    """Return the sums of consecutive runs of rows, 0 of those without length."""
    out = np.zeros((len(lengths), *values.shape[1:]))
    there = lengths > 0
    starts = (np.cumsum(lengths) - lengths)[there]
    if len(starts) and values.size:
        out[there] = np.add.reduceat(values, starts, axis=0)
    return out
