"""What every model can do, and how raw inputs become the inputs of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self, TypeGuard

import numpy as np

from pffl.data.schema import Schema
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class Inputs:
    """Shift and scale of each feature, agreed over all silos from census sums.

    Where they are `deferred`, the model scales its own batches: rows stay as they are,
    in their own type, and no scaled copy of them is ever made.
    """

    mean: FloatArray
    scale: FloatArray
    deferred: bool = False

    @classmethod
    def identity(cls, n_features: int) -> Inputs:
        """Leave the inputs as they are."""
        return cls(np.zeros(n_features), np.ones(n_features))

    @classmethod
    def from_sums(cls, rows: int, sums: FloatArray, squares: FloatArray) -> Inputs:
        """Standardise by the mean and standard deviation over all silos' rows.

        A constant column gets scale 1 and becomes 0. The cut is relative to the
        column's size, because Σx²/n − mean² cancels there.
        """
        mean = sums / rows
        second = squares / rows
        variance = np.maximum(second - mean**2, 0.0)
        constant = variance <= 1e-12 * np.maximum(second, 1e-300)
        return cls(mean, np.where(constant, 1.0, np.sqrt(variance)))

    def apply(self, X: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Return ``(X − mean) / scale`` in float64, in one new array (or `out`).

        Deferred ones return `X`.
        """
        if self.deferred:
            return X
        centred = np.subtract(X, self.mean, out=out, dtype=np.float64)
        centred /= self.scale
        return centred


class Model(Protocol):
    """A predictor with parameters in one flat vector w.

    Every function below takes the model's own inputs (after `inputs`).
    """

    @property
    def l2(self) -> float:
        """Weight μ of the ridge term (μ/2)‖w‖²."""

    @property
    def inputs(self) -> Inputs:
        """How raw features become inputs."""

    @property
    def n_parameters(self) -> int:
        """Length p of w."""

    @property
    def convex(self) -> bool:
        """Whether every example's loss is convex in w."""

    def bind(self, schema: Schema, inputs: Inputs) -> Self:
        """Return this model for these data; refuse what it cannot model."""

    def start(self, seed: int) -> FloatArray:
        """Return the first w."""

    def losses(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss of each example."""

    def losses_and_gradient(
        self, w: FloatArray, X: FloatArray, y: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the losses and ``Σ_i weights_i ∇ℓ_i(w)``."""

    def classes(self, w: FloatArray, X: FloatArray) -> FloatArray | None:
        """Return predicted label codes, or None for a numeric target."""

    def predict_proba(self, w: FloatArray, X: FloatArray) -> FloatArray:
        """Return class probabilities, shape (n, classes)."""

    def predict_values(self, w: FloatArray, X: FloatArray) -> FloatArray:
        """Return predicted numbers (for a numeric target)."""

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""


@dataclass(frozen=True, eq=False)
class Step:
    """One local step, and what it descends besides the losses.

    That is (ridge/2)‖w‖² + (proximal/2)‖w − anchor‖². `key` (run, round, silo, step)
    seeds a model whose training is random.
    """

    size: float
    ridge: float
    proximal: float
    anchor: FloatArray
    key: tuple[int, ...] = ()


class Stateful(Protocol):
    """A model whose w ends with running statistics, such as those of batch norm.

    They are averaged over silos as the rest of w is, but never descended: no gradient,
    no ridge, no server optimiser touches them.
    """

    @property
    def n_trained(self) -> int:
        """Length of the part of w that is descended."""

    def local_step(
        self,
        w: FloatArray,
        X: FloatArray,
        y: FloatArray,
        weights: FloatArray,
        step: Step,
    ) -> FloatArray:
        """Return w after one step, its statistics moved by these rows."""


def is_stateful(model: Model | Stateful) -> TypeGuard[Stateful]:
    """Whether a model has running statistics; asked often, so not by its protocol."""
    return hasattr(type(model), "n_trained")


def local_step(
    model: Model,
    w: FloatArray,
    X: FloatArray,
    y: FloatArray,
    weights: FloatArray,
    step: Step,
) -> FloatArray:
    """Return w after one local step: the model's own, or a plain gradient step."""
    if is_stateful(model):
        return model.local_step(w, X, y, weights, step)
    _, gradient = model.losses_and_gradient(w, X, y, weights)
    gradient += step.ridge * w
    gradient += step.proximal * (w - step.anchor)
    return np.asarray(w - step.size * gradient)


def trained(model: Model, w: FloatArray) -> FloatArray:
    """Return the part of w that is descended: all of it, without the statistics."""
    return w[: model.n_trained] if is_stateful(model) else w
