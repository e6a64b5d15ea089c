"""What every question shares: the task, a silo's rows as the model sees them, totals.

A question is a frozen request with ``answer(view)``, a pure function of one silo's
rows. Answers add, and only their total is used: that is the whole protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np

from pffl.constraints.base import Cells
from pffl.data.schema import Schema
from pffl.data.silo import Silo
from pffl.models.base import Model
from pffl.typing import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Task:
    """What all silos agree on after the census.

    Attributes
    ----------
    model
        The model, bound to the schema and to the agreed scaling.
    cells
        The cells of the constraint.
    shares
        p_k: the weight of each silo in the risk F, shape (K,), sum 1.
    """

    model: Model
    cells: Cells
    shares: FloatArray


@dataclass(frozen=True, eq=False)
class View:
    """One silo's rows of one split, as the model sees them."""

    index: int
    X: FloatArray
    y: FloatArray
    atom: IntArray

    @classmethod
    def of(cls, silo: Silo, schema: Schema, model: Model, split: str) -> View:
        """Scale the inputs and code the atoms of one split."""
        rows = silo.rows(split)
        return cls(
            silo.index,
            model.inputs.apply(rows.X),
            rows.y,
            schema.atoms(rows.group, rows.y),
        )

    def __len__(self) -> int:
        return len(self.y)

    def atom_sums(self, values: FloatArray, n_atoms: int) -> FloatArray:
        """Sum `values`, shape (n,) or (n, c), per atom."""
        sums = np.zeros((n_atoms, *values.shape[1:]))
        np.add.at(sums, self.atom, values)
        return sums


class Total(Protocol):
    """An answer, or a sum of answers."""

    def __add__(self, other: Self, /) -> Self: ...


T = TypeVar("T", bound=Total)


def add_all(answers: Sequence[T]) -> T:
    """Add answers pairwise: less rounding than one by one, and no quadratic copies."""
    layer = list(answers)
    while len(layer) > 1:
        paired = [a + b for a, b in zip(layer[::2], layer[1::2], strict=False)]
        layer = paired + layer[2 * len(paired) :]
    return layer[0]


class Question(Protocol):
    """A request that a silo can answer from one split of its rows."""

    @property
    def split(self) -> str:
        """The split that is asked about."""

    @property
    def task(self) -> Task:
        """What the silos agreed on."""

    def answer(self, view: View) -> Total:
        """Answer for one silo."""
