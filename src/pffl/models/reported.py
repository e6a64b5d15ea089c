"""A model of somebody else's app, known by the losses that its clients report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, ClassVar, Final, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from pffl.data.schema import Schema
from pffl.errors import UsageError
from pffl.models.base import Inputs, Model
from pffl.models.scaled import Design
from pffl.typing import FloatArray

CLASSES: Final = "cross_entropy"
NUMBERS: Final = "squared"
KINDS = "biuf"  # of NumPy types: numbers that a vector can hold


@dataclass(frozen=True, eq=False)
class Reported(Model):
    """A model whose code is at its clients: here it is names, shapes and numbers.

    Parameters
    ----------
    shapes
        Name, type and shape of its arrays, in order; w is all their numbers.
    loss
        "cross_entropy", or "squared" for a numeric target: what clients report.
    """

    shapes: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    loss: str = CLASSES
    inputs: Inputs = field(default_factory=lambda: Inputs.identity(0))
    l2: float = 0.0
    n_outputs: int = 1
    name: ClassVar[str] = "reported"

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], loss: str) -> Reported:
        """Return the model of some arrays; refuse what are no numbers."""
        odd = [name for name, a in arrays.items() if a.dtype.kind not in KINDS]
        if odd:
            raise UsageError(
                f"[not-numbers] arrays that do not hold numbers: {', '.join(odd)}"
            )
        named = arrays.items()
        return cls(tuple((n, a.dtype.str, a.shape) for n, a in named), loss)

    @classmethod
    def rebuilt(cls, described: Mapping[str, Any]) -> Reported:
        """Return the model that a `describe` stands for; refuse anything else."""
        try:
            found = cls(
                tuple((str(n), str(t), tuple(s)) for n, t, s in described["arrays"]),
                described["loss"],
            )
            sizes = [size for _, _, shape in found.shapes for size in shape]
            good = all(type(size) is int and size >= 0 for size in sizes)
            good = good and all(np.dtype(t).kind in KINDS for _, t, _ in found.shapes)
        except (KeyError, TypeError, ValueError):
            good = False
        if not good or dict(found.describe()) != dict(described):
            raise UsageError(
                "[unknown-model] no model of this version is described by "
                f"{described!r}"
            )
        return found

    @property
    def n_parameters(self) -> int:
        """Numbers in all arrays."""
        return sum(prod(shape) for _, _, shape in self.shapes)

    def bind(self, schema: Schema, inputs: Inputs) -> Self:
        """Return this model for these groups and labels."""
        identity = Inputs.identity(schema.n_features)
        return replace(self, inputs=identity, n_outputs=schema.n_labels)

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a numeric target."""
        return self.n_outputs if self.loss == CLASSES else 0

    @property
    def clips(self) -> bool:
        """Of two classes, as a logistic regression does."""
        return self.n_classes == 2

    def vector(self, arrays: Mapping[str, NDArray[Any]]) -> FloatArray:
        """Return arrays as w."""
        if not self.shapes:
            return np.zeros(0)
        flat = [np.asarray(arrays[n], np.float64).reshape(-1) for n, *_ in self.shapes]
        return np.concatenate(flat)

    def arrays(self, w: FloatArray) -> dict[str, NDArray[Any]]:
        """Return w as the app's own arrays, in their types and shapes."""
        sizes: Sequence[int] = [prod(shape) for _, _, shape in self.shapes]
        parts = np.split(w, np.cumsum(sizes)[:-1])
        return {
            name: part.astype(kind).reshape(shape)
            for (name, kind, shape), part in zip(self.shapes, parts, strict=True)
        }

    def start(self, seed: int) -> FloatArray:
        """Refuse: an app starts where it starts."""
        _refuse("is started by its app")

    def losses(self, w: FloatArray, X: Design, y: FloatArray) -> FloatArray:
        """Refuse: the code is elsewhere."""
        _refuse("has its losses at the clients only")

    def losses_and_gradient(
        self, w: FloatArray, X: Design, y: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Refuse: the code is elsewhere."""
        _refuse("is trained by its app")

    def classes(self, w: FloatArray, X: Design) -> FloatArray | None:
        """Refuse: the code is elsewhere."""
        _refuse("predicts by its own code")

    def predict_proba(self, w: FloatArray, X: Design) -> FloatArray:
        """Refuse: the code is elsewhere."""
        _refuse("predicts by its own code: load its arrays into your module")

    def predict_values(self, w: FloatArray, X: Design) -> FloatArray:
        """Refuse: the code is elsewhere."""
        _refuse("predicts by its own code: load its arrays into your module")

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        arrays = [[name, kind, list(shape)] for name, kind, shape in self.shapes]
        return {"kind": self.name, "loss": self.loss, "arrays": arrays}


def _refuse(what: str) -> NoReturn:
    raise UsageError(f"[own-module] the model of an app of your own {what}")
