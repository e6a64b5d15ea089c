"""A model that is known by its probabilities alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from pffl.data.schema import Schema
from pffl.errors import UsageError
from pffl.models.base import Inputs, Model
from pffl.models.scaled import Design, dense
from pffl.typing import FloatArray

SMALLEST = 5e-324  # a probability of 0 counts as this, the least number above 0


@dataclass(frozen=True, eq=False)
class Probabilities(Model):
    """A model whose inputs are its outputs: ``ℓ = −log(probability of the label)``.

    One input is the probability of the positive class; several are the probabilities
    of all classes, in the order of their codes. It has no parameters.
    """

    inputs: Inputs = field(default_factory=lambda: Inputs.identity(1))
    l2: float = 0.0
    name: ClassVar[str] = "probabilities"

    @property
    def n_parameters(self) -> int:
        """There are none."""
        return 0

    def bind(self, schema: Schema, inputs: Inputs) -> Self:
        """Return this model for these probabilities, unscaled."""
        return type(self)(Inputs.identity(schema.n_features))

    def start(self, seed: int) -> FloatArray:
        """Return no parameters."""
        return np.zeros(0)

    def losses(self, w: FloatArray, X: Design, y: FloatArray) -> FloatArray:
        """Return minus the logarithm of each label's probability."""
        chosen = self.predict_proba(w, X)[np.arange(len(y)), y.astype(np.int64)]
        return -np.log(np.clip(chosen, SMALLEST, 1.0))

    def losses_and_gradient(
        self, w: FloatArray, X: Design, y: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Refuse: there is nothing to train."""
        raise UsageError(
            "[not-trainable] a model known by its probabilities cannot be trained"
        )

    def classes(self, w: FloatArray, X: Design) -> FloatArray | None:
        """Return the class with the largest probability."""
        p = dense(X)
        if p.shape[1] == 1:
            return np.asarray(p[:, 0] > 0.5, dtype=np.float64)
        return np.asarray(p.argmax(axis=1), dtype=np.float64)

    def predict_proba(self, w: FloatArray, X: Design) -> FloatArray:
        """Return the probabilities, shape (n, classes)."""
        p = dense(X)
        return np.stack([1 - p[:, 0], p[:, 0]], axis=1) if p.shape[1] == 1 else p

    @property
    def n_classes(self) -> int:
        """Number of classes: two for one probability."""
        return max(2, len(self.inputs.mean))

    @property
    def clips(self) -> bool:
        """Of two classes, as a logistic regression does."""
        return self.n_classes == 2

    def predict_values(self, w: FloatArray, X: Design) -> FloatArray:
        """Refuse: probabilities are not numbers of a target."""
        raise UsageError(
            "[predicts-classes] a model known by its probabilities predicts classes"
        )

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        return {"kind": self.name}
