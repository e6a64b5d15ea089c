"""A silo: rows that stay where they are, split into named parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pffl.data.sparse import Matrix, as_csr, is_sparse, spreads, stacked
from pffl.errors import UsageError
from pffl.typing import FloatArray, IntArray

INPUT_TYPES = (np.float64, np.float32, np.uint8)


def as_inputs(X: object) -> Matrix:
    """Return inputs in a type of `INPUT_TYPES`, without a copy where they have one.

    Sparse ones stay sparse, in float64.
    """
    if is_sparse(X):
        return as_csr(X)
    inputs = np.asarray(X)
    return inputs if inputs.dtype in INPUT_TYPES else inputs.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Rows:
    """Examples of one silo and one split.

    Attributes
    ----------
    X
        Inputs as given (unscaled), shape (n, features); float32, float64, or uint8
        (pictures); or SciPy's compressed rows, float64, as `as_csr` makes them.
    y
        Label codes (classification) or numbers (regression), float64.
    group
        Group codes of the schema.
    person
        Code of whom each row is about, where an id told; equal in all silos and splits
        of a federation.
    weight
        How much each row counts in every mean, s_i ≥ 0; None: as much as any other.
    """

    X: Matrix
    y: FloatArray
    group: IntArray
    person: IntArray | None = None
    weight: FloatArray | None = None

    @classmethod
    def of(cls, X: object, y: object, group: object) -> Rows:
        """Build from array-likes; an `X` of `INPUT_TYPES` is kept, without a copy."""
        return cls(
            as_inputs(X),
            np.asarray(y, dtype=np.float64),
            np.asarray(group, dtype=np.int64),
        )

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """All rows of the parts, one after another, as a copy."""
        known = [part.person for part in parts if part.person is not None]
        weighed = any(part.weight is not None for part in parts)
        return cls(
            stacked([part.X for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.group for part in parts]),
            np.concatenate(known) if known and len(known) == len(parts) else None,
            np.concatenate([part.weights for part in parts]) if weighed else None,
        )

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: IntArray) -> Rows:
        """Return the rows at `index`."""
        who = None if self.person is None else self.person[index]
        weight = None if self.weight is None else self.weight[index]
        return Rows(self.X[index], self.y[index], self.group[index], who, weight)

    def view(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` up to `stop` without a copy."""
        part = slice(start, stop)
        who = None if self.person is None else self.person[part]
        weight = None if self.weight is None else self.weight[part]
        return Rows(self.X[part], self.y[part], self.group[part], who, weight)

    @property
    def weights(self) -> FloatArray:
        """Return s_i of every row: 1 where none is given."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @cached_property
    def spread(self) -> FloatArray:
        """Standard deviation of each input."""
        return spreads(self.X)

    @cached_property
    def mean(self) -> FloatArray:
        """Mean of each input."""
        if not len(self):
            return np.zeros(self.X.shape[1])
        sums = self.X.sum(axis=0, dtype=np.float64)
        return np.asarray(sums, np.float64).reshape(-1) / len(self)

    @property
    def counting(self) -> Rows:
        """Return the rows that count: those that weigh nothing are as if not there."""
        if self.weight is None or self.weight.all():
            return self
        return self.take(np.flatnonzero(self.weight))


@dataclass(frozen=True, eq=False)
class Silo:
    """One site: its name, its place in the federation, and its rows per split."""

    name: str
    index: int
    splits: Mapping[str, Rows]

    def rows(self, split: str = "train") -> Rows:
        """Rows of one split."""
        if split not in self.splits:
            raise UsageError(
                f"[unknown-split] silo '{self.name}' has no split '{split}': there "
                f"are {sorted(self.splits)}"
            )
        return self.splits[split]

    def __len__(self) -> int:
        return len(self.rows("train"))
