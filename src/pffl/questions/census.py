"""`census`, asked once: who is there, how many rows per atom, and feature sums."""

from __future__ import annotations

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
WEIGHT = Row(0.0, 1.0, called="a weight")  # s_i, which is 1 for every row


class CensusTotal(Total):
    """Counts per silo and atom (frozen for the run), and feature sums over silos.

    Attributes
    ----------
    rows, counts
        Numbers of rows, for floors and bounds.
    weight, weights
        Sums of sample weights Σs_i of the same rows, for means.
    """

    silos: IntArray = places()
    rows: IntArray = array(row=COUNT, per_silo=True)
    counts: IntArray = array("atoms", row=COUNT, per_silo=True)
    weight: FloatArray = array(row=WEIGHT, per_silo=True)
    weights: FloatArray = array("atoms", row=WEIGHT, per_silo=True)
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
        return {"features": self.schema.n_features, "atoms": self.schema.n_atoms}

    def answer(self, view: View) -> CensusTotal:
        """Answer for one silo, from raw (unscaled) rows."""
        X = view.X
        counts = np.bincount(view.atom, minlength=self.schema.n_atoms)[None, :]
        return CensusTotal(
            np.array([view.index]),
            np.array([len(view)]),
            counts,
            np.array([float(len(view))]),
            counts.astype(np.float64),
            X.sum(axis=0, dtype=np.float64),
            np.einsum("ij,ij->j", X, X, dtype=np.float64),
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
        with np.errstate(over="ignore"):
            least = sums**2 / max(rows, 1)
        fits = (
            squares * (1 + ROUNDING) >= least if rows else (sums == 0) & (squares == 0)
        )
        require(bool(fits.all()), "feature sums and squares do not fit each other")
