"""`census`, asked once: who is there, rows per atom, sums of features and target."""

from __future__ import annotations

import math
from dataclasses import field
from typing import ClassVar

import numpy as np

from pffl.data.schema import Schema
from pffl.questions.base import Question, View
from pffl.questions.declared import (
    ROUNDING,
    Dims,
    Row,
    Total,
    agreed,
    array,
    places,
    text,
)
from pffl.questions.plausible import require
from pffl.typing import FloatArray, IntArray

COUNT = Row(0.0, 1.0, whole=True, called="a count")
WEIGHT = Row(0.0, 1.0, called="a weight")  # sites do not weigh rows yet


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
        Σs_i x and Σs_i x² of each feature.
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
    schema_hash: str = agreed("schema")

    def same(self, other: CensusTotal) -> bool:
        """Whether another census says the same (sums up to the order of addition)."""
        return all(
            np.array_equal(mine := getattr(self, name), theirs := getattr(other, name))
            or (of.dtype is np.float64 and np.allclose(mine, theirs, 1e-9, 1e-9))
            for name, of in self.declared.items()
        )


class Census(Question[CensusTotal]):
    """Ask for counts and feature sums, of rows as they are."""

    total_type: ClassVar = CensusTotal

    schema: Schema
    split: str = text(default="train")
    task: None = field(default=None, init=False)

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer."""
        schema = self.schema
        sums = 0 if schema.labels else 2
        return {"features": schema.n_features, "atoms": schema.n_atoms, "sums": sums}

    def answer(self, view: View) -> CensusTotal:
        """Answer for one silo, from raw (unscaled) rows."""
        powers = view.weigh(target_powers(self.schema, view.y))
        counts = np.bincount(view.atom, minlength=self.schema.n_atoms)[None, :]
        return CensusTotal(
            np.array([view.index]),
            np.array([len(view)]),
            counts,
            np.array([view.mass]),
            np.bincount(view.atom, view.weight, counts.shape[1])[None].astype(float),
            powers.sum(axis=0)[None],
            view.atom_sums(powers, counts.shape[1])[None],
            *feature_powers(view.X, view.weight),
            self.schema.hash,
        )

    def check(self, total: CensusTotal, withheld: int, most_rows: int) -> None:
        """Judge one silo's counts and feature sums before they are frozen (fault 48).

        `withheld` is the number of counts that the silo says it keeps back.
        """
        total.check_size()
        rows, counts = int(total.rows[0]), total.counts[0]
        require(0 <= rows <= most_rows, "an impossible number of rows")
        total.check_ranges({"": np.array(float(rows))}, self.scales)
        short = rows - int(counts.sum())
        require(short >= 0, "more rows in groups than rows")
        require((short > 0) == (withheld > 0), "counts do not add up to the rows")
        empty = len(counts) - int(np.count_nonzero(counts))
        require(withheld <= empty, "counts that are withheld and given")
        close = np.allclose(total.weight, rows) and np.allclose(total.weights, counts)
        require(close, "weights that are not those of the rows")
        sums, squares = total.feature_sums, total.feature_squares
        fits = _fit(np.array(rows), sums, squares)
        require(fits, "feature sums and squares do not fit each other")
        if not self.schema.labels:
            _check_targets(total, whole=short == 0)


def target_powers(schema: Schema, y: FloatArray) -> FloatArray:
    """Return y and y² of a numeric target, shape (n, 2); nothing of classes."""
    if schema.labels:
        return np.zeros((len(y), 0))
    return np.stack([y, np.square(y)], axis=1)


def feature_powers(
    X: FloatArray, weight: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Return Σs_i x and Σs_i x² of each column."""
    if weight is None:
        squares = np.einsum("ij,ij->j", X, X, dtype=np.float64)
        return X.sum(axis=0, dtype=np.float64), squares
    sums = np.einsum("i,ij->j", weight, X, dtype=np.float64)
    return sums, np.einsum("i,ij,ij->j", weight, X, X, dtype=np.float64)


def _check_targets(total: CensusTotal, *, whole: bool) -> None:
    """Demand sums of a target that fit each other, and those of its groups."""
    all_rows, groups, what = total.target[0], total.targets[0], "sums of the target"
    fits = _fit(total.counts[0], *groups.T) and _fit(total.rows, *all_rows[:, None])
    require(fits, f"{what} and squares do not fit each other")
    left = all_rows - groups.sum(axis=0)
    size = math.sqrt(float(total.rows[0]) * max(all_rows[1], 0.0))  # ≥ Σ|y|
    slack = ROUNDING * np.array([size, all_rows[1]])
    require(bool(left[1] >= -slack[1]), f"{what} of groups exceed those of all")
    same = not whole or bool((np.abs(left) <= slack).all())
    require(same, f"{what} of groups do not add up to those of all")


def _fit(rows: IntArray, sums: FloatArray, squares: FloatArray) -> bool:
    """Whether (Σx)² ≤ n Σx², and both are 0 of no rows."""
    with np.errstate(over="ignore"):
        least = sums**2 / np.maximum(rows, 1)
    none = (sums == 0) & (squares == 0)
    return bool(np.where(rows > 0, squares * (1 + ROUNDING) >= least, none).all())
