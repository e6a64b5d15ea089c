"""What every question shares: the task, a silo's rows as the model sees them, totals.

A question is a frozen request with ``answer(view)``, a pure function of one silo's
rows. Answers add, and only their total is used: that is the whole protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

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
    def of(cls, silo: Silo, schema: Schema, model: Model | None, split: str) -> View:
        """Scale the inputs and code the atoms of one split; without a model, raw."""
        rows = silo.rows(split)
        return cls(
            silo.index,
            rows.X if model is None else model.inputs.apply(rows.X),
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
T_co = TypeVar("T_co", bound=Total, covariant=True)


def add_all(answers: Sequence[T]) -> T:
    """Add answers pairwise: less rounding than one by one, and no quadratic copies."""
    layer = list(answers)
    while len(layer) > 1:
        paired = [a + b for a, b in zip(layer[::2], layer[1::2], strict=False)]
        layer = paired + layer[2 * len(paired) :]
    return layer[0]


class Question(Generic[T_co]):
    """A request that a silo can answer from one split of its rows.

    Attributes
    ----------
    split
        The split that is asked about.
    task
        What the silos agreed on; None before they did.
    silos
        Which silos are asked, by index; None for all.
    """

    split: str
    task: Task | None
    silos: tuple[int, ...] | None = None

    @property
    def kind(self) -> str:
        """What records and transports call the question."""
        return type(self).__name__.lower()

    def answer(self, view: View) -> T_co:
        """Answer for one silo."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class ModelQuestion(Question[T_co]):
    """A question about the model at `w`, on rows as the model sees them."""

    task: Task
    w: FloatArray
