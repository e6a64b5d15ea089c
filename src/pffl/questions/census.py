"""`census`, asked once: who is there, how many rows per atom, and feature sums."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pffl.data.schema import Schema
from pffl.errors import FederationError
from pffl.questions.base import Question, View
from pffl.typing import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class CensusTotal:
    """Counts per silo and atom (frozen for the run), and feature sums over silos."""

    silos: IntArray
    rows: IntArray
    counts: IntArray
    feature_sums: FloatArray
    feature_squares: FloatArray
    schema_hash: str

    def __add__(self, other: CensusTotal) -> CensusTotal:
        if self.schema_hash != other.schema_hash:
            raise FederationError(
                "silos disagree on the schema: "
                f"{self.schema_hash[:12]} and {other.schema_hash[:12]}"
            )
        return CensusTotal(
            np.concatenate([self.silos, other.silos]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.counts, other.counts]),
            self.feature_sums + other.feature_sums,
            self.feature_squares + other.feature_squares,
            self.schema_hash,
        )

    def in_order(self) -> CensusTotal:
        """Sort the silos' entries by their place in the federation."""
        order = np.argsort(self.silos)
        return CensusTotal(
            self.silos[order],
            self.rows[order],
            self.counts[order],
            self.feature_sums,
            self.feature_squares,
            self.schema_hash,
        )


@dataclass(frozen=True, eq=False)
class Census(Question[CensusTotal]):
    """Ask for counts and feature sums, of rows as they are."""

    schema: Schema
    split: str = "train"
    task: None = field(default=None, init=False)

    def answer(self, view: View) -> CensusTotal:
        """Answer for one silo, from raw (unscaled) rows."""
        X = view.X
        return CensusTotal(
            np.array([view.index]),
            np.array([len(view)]),
            np.bincount(view.atom, minlength=self.schema.n_atoms)[None, :],
            X.sum(axis=0, dtype=np.float64),
            np.einsum("ij,ij->j", X, X, dtype=np.float64),
            self.schema.hash,
        )
