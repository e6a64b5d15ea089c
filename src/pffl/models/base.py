"""What every model can do, and how raw inputs become the inputs of a model."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from pffl.data.rows import Matrix
from pffl.data.schema import Schema
from pffl.errors import UsageError
from pffl.models.scaled import Design, ScaledRows, dense, filled
from pffl.numerics import bounded_log_losses, bounded_probabilities, row_lengths
from pffl.records import Record
from pffl.typing import FloatArray, IntArray

LOSS_BOUNDS = (3.0, 5.0, 8.0, 12.0, 20.0, 35.0)  # M; e⁻³⁸ and less is lost next to 1
NO_GAPS = np.zeros((2, 0), dtype=np.int64)
CONSTANT = 1e-12  # of the mean square: a smaller variance is rounding


@dataclass(frozen=True, eq=False)
class Inputs:
    """Shift and scale of each feature, agreed over all silos from census sums.

    Where they are `deferred`, the model scales its own batches: rows stay as they are,
    in their own type, and no scaled copy of them is ever made. Scaled rows are
    shortened to `longest`, where that is finite.

    A missing input gets `fill`, the mean of those present, before anything else: one
    for each pair of `gaps`, which is that of the schema. So it adds as much to a score
    as an average one, and the coefficient of its indicator is what missing does.
    """

    mean: FloatArray
    scale: FloatArray
    deferred: bool = False
    longest: float = math.inf
    fill: FloatArray = field(default_factory=lambda: np.zeros(0))
    gaps: IntArray = field(default_factory=lambda: NO_GAPS)

    @classmethod
    def identity(cls, n_features: int) -> Inputs:
        """Leave the inputs as they are."""
        return cls(np.zeros(n_features), np.ones(n_features))

    def unscaled(self) -> Inputs:
        """Return these without shift and scale: only what is missing gets a value."""
        return replace(
            self, mean=np.zeros_like(self.mean), scale=np.ones_like(self.scale)
        )

    @classmethod
    def from_sums(
        cls,
        mass: float,
        sums: FloatArray,
        squares: FloatArray,
        centre: FloatArray | float = 0.0,
        texts: Sequence[slice] = (),
        *,
        gaps: IntArray = NO_GAPS,
        centred: bool = True,
    ) -> Inputs:
        """Standardise by the mean and standard deviation over all silos' rows.

        Where the inputs are not to be centred, they are divided by their root mean
        squares instead. The sums are those of x − centre, over rows that weigh `mass`
        together, missing ones at the mean. A centred constant column gets scale 1 and
        becomes 0. The cut is relative to the column's size, because Σx²/n − mean²
        cancels there.

        The inputs of a text share a scale, the root of the sum of their squares: all
        of it varies as much as one number. By its own deviation a rare word would
        weigh as much as a frequent one, and rows would be learnt by heart.
        """
        mean = sums / mass
        second = squares / mass
        variance = np.maximum(second - mean**2, 0.0)
        variance[variance <= CONSTANT * np.maximum(second, 1e-300)] = 0.0
        mean = centre + mean
        size = variance if centred else variance + mean**2
        scale = np.sqrt(size)
        for text in texts:
            scale[text] = np.sqrt(size[text][size[text] > 0].sum())
        scale[scale == 0] = 1.0
        shift = mean if centred else np.zeros_like(mean)
        return cls(shift, scale, fill=mean[gaps[0]], gaps=gaps)

    @property
    def arrays(self) -> tuple[FloatArray, ...]:
        """All numbers: shift, scale, and what missing inputs get where some may be."""
        return (self.mean, self.scale, *([self.fill] if len(self.fill) else []))

    def fill_sums(
        self, sums: FloatArray, squares: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return Σx and Σx² with missing inputs filled, which are 0 in those given."""
        if not len(self.fill):
            return sums, squares
        inputs, marks = self.gaps
        sums, squares, missing = sums.copy(), squares.copy(), sums[marks]
        sums[inputs] += self.fill * missing
        squares[inputs] += self.fill**2 * missing
        return sums, squares

    def apply(self, X: Matrix, out: FloatArray | None = None) -> Any:
        """Return ``(X − mean) / scale`` in float64, in one new array (or `out`).

        Sparse rows stay sparse. Deferred ones return `X`. Missing inputs are filled.
        """
        X = filled(X, self.gaps, self.fill)
        if self.deferred:
            return dense(X)
        if not isinstance(X, np.ndarray):
            if math.isfinite(self.longest):
                raise UsageError("needs-dense:apply")
            return ScaledRows.of(X, self.mean, self.scale)
        centred = np.subtract(X, self.mean, out=out, dtype=np.float64)
        centred /= self.scale
        if math.isfinite(self.longest):
            # By a hair less, so that rounding does not undo it.
            size = row_lengths(centred) * (1 + 1e-14)
            centred /= np.maximum(1.0, size / self.longest)[:, None]
        return centred


@dataclass(frozen=True)
class Target(Record):
    """Shift and scale of a numeric target, agreed over all silos from census sums.

    A model predicts ``mean + scale · score``: its parameters have no unit. Losses stay
    in the target's own, and so do bounds on them. Classes are left as they are.
    """

    mean: float = 0.0
    scale: float = 1.0

    @classmethod
    def from_sums(
        cls,
        rows: FloatArray,
        sums: FloatArray,
        *,
        centre: float = 0.0,
        robust: bool = False,
    ) -> Target:
        """Standardise by the mean and standard deviation of parts of the rows.

        `sums` are Σ(y − centre) and Σ(y − centre)² of each part. A `robust` scaling
        takes the median of the parts' means and deviations, so that one wild value
        moves one part only. A target that does not vary keeps its size as its scale, or
        1 if it is 0.
        """
        total, squares = sums.T / rows
        if not robust:
            total, squares = np.average([total, squares], axis=1, weights=rows)[:, None]
            rows = np.ones(1)
        mean = _median(total, rows)
        second = _median(squares, rows)
        variance = _median(squares - 2.0 * mean * total + mean**2, rows)
        if variance <= CONSTANT * second:
            return cls(centre + mean, abs(centre + mean) or 1.0)
        return cls(centre + mean, math.sqrt(variance))

    def about_zero(self) -> Target:
        """Return the scaling without a shift, for a model that has no intercept."""
        return Target(0.0, math.hypot(self.mean, self.scale))


def _median(values: FloatArray, weights: FloatArray) -> float:
    """Return the value at which half of the weight is reached."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, 0.5 * reached[-1])])


UNSCALED = Target()


@dataclass(frozen=True, eq=False)
class Step:
    """One local step, and what it descends besides the losses.

    That is (ridge/2)‖w‖² + (proximal/2)‖w − anchor‖² + shift·w. `key` (run, round,
    silo, step) seeds a model whose training is random.
    """

    size: float
    ridge: float
    proximal: float
    anchor: FloatArray
    key: tuple[int, ...] = ()
    shift: FloatArray | None = None

    def take(self, v: FloatArray, gradient: FloatArray) -> FloatArray:
        """Return the trained part v of w, moved along the losses' gradient."""
        gradient += self.ridge * v
        gradient += self.proximal * (v - self.anchor[: len(v)])
        if self.shift is not None:
            gradient += self.shift[: len(v)]
        return np.asarray(v - self.size * gradient)


class Model(ABC):
    """A predictor with parameters in one flat vector w.

    Every function below takes the model's own inputs (after `inputs`). w may end with
    running statistics, such as those of batch norm: silos' values are averaged as the
    rest of w is, but never descended, so that no gradient, no ridge and no server
    optimiser touches them.

    Attributes
    ----------
    name
        What files and messages call it.
    convex
        Whether every example's loss is convex in w.
    l2
        Weight μ of the ridge term (μ/2)‖w‖².
    inputs
        How raw features become inputs.
    target
        How scores become predictions of a numeric target.
    n_outputs
        Scores of an example: one for each class, or one.
    n_classes
        Number of classes C; 0 for a numeric target.
    centred
        Whether means are subtracted from the inputs.
    robust
        Whether one extreme value of a numeric target has little weight.
    as_is
        Whether its own losses are declared to be at most M: then nothing is clipped.
    """

    name: ClassVar[str]
    convex: ClassVar[bool] = False
    robust: ClassVar[bool] = False

    l2: float
    inputs: Inputs
    target: Target = UNSCALED
    n_outputs: int = 1
    as_is = False

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Length p of w."""

    @property
    def n_trained(self) -> int:
        """Length of the part of w that is descended: all but running statistics."""
        return self.n_parameters

    @property
    def n_classes(self) -> int:
        """Number of classes C; 0 for a numeric target."""
        return 0

    @property
    def centred(self) -> bool:
        """Whether means are subtracted from the inputs."""
        return True

    @property
    def unit(self) -> float:
        """What losses are measured in: that of a prediction one scale off."""
        return float(self.residual_losses(np.asarray(self.target.scale)))

    @property
    def mu(self) -> float:
        """Weight of (·/2)‖w‖² next to losses: μ, in their unit."""
        return self.l2 * self.unit

    @abstractmethod
    def bind(self, schema: Schema, inputs: Inputs) -> Self:
        """Return this model for these data; refuse what it cannot model."""

    def with_target(self, target: Target) -> Self:
        """Return this model with predictions in units of the target, if it has such."""
        return self

    @abstractmethod
    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""

    # What follows from w and rows. A model known only by its answers has less of it.

    def start(self, seed: int) -> FloatArray:
        """Return the first w."""
        self.refuse("be trained")

    def losses_and_gradient(
        self, w: FloatArray, X: Design, y: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the losses and ``Σ_i weights_i ∇ℓ_i(w)``."""
        self.refuse("be trained")

    def local_step(
        self, w: FloatArray, X: Design, y: FloatArray, weights: FloatArray, step: Step
    ) -> FloatArray:
        """Return w after one step on these rows, its statistics moved by them."""
        return step.take(w, self.losses_and_gradient(w, X, y, weights)[1])

    def step_gradient(
        self,
        w: FloatArray,
        X: Design,
        y: FloatArray,
        weights: FloatArray,
        key: tuple[int, ...],
    ) -> FloatArray:
        """Return the gradient that a local step from w would descend on these rows."""
        return self.losses_and_gradient(w, X, y, weights)[1]

    @property
    def link(self) -> Model:
        """What follows from scores: losses, classes and probabilities."""
        self.refuse("compute losses or predict")

    def scores(self, w: FloatArray, X: Design) -> FloatArray:
        """Return what losses and predictions follow from, one score per output."""
        self.refuse("return scores")

    def score_losses(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return ℓ for each score."""
        return self.link.score_losses(z, y)

    def score_classes(self, z: FloatArray) -> FloatArray | None:
        """Return the label code that each score predicts; None for numbers."""
        return self.link.score_classes(z)

    def score_proba(self, z: FloatArray) -> FloatArray:
        """Return the class probabilities of each score."""
        return self.link.score_proba(z)

    def losses(self, w: FloatArray, X: Design, y: FloatArray) -> FloatArray:
        """Return the loss of each example."""
        return self.score_losses(self.scores(w, X), y)

    def classes(self, w: FloatArray, X: Design) -> FloatArray | None:
        """Return predicted label codes, or None for a numeric target."""
        return self.score_classes(self.scores(w, X))

    def predict_proba(self, w: FloatArray, X: Design) -> FloatArray:
        """Return class probabilities, shape (n, classes)."""
        return self.score_proba(self.scores(w, X))

    def predict_values(self, w: FloatArray, X: Design) -> FloatArray:
        """Return predicted numbers, in the target's own units."""
        if self.n_classes:
            self.refuse("predict numbers")
        return self.target.mean + self.target.scale * self.scores(w, X)

    def residual_losses(self, residual: FloatArray) -> FloatArray:
        """Return the loss of predictions that are so far off (for a numeric target)."""
        return np.square(residual)

    def refuse(self, what: str) -> NoReturn:
        """Raise the error of a model that cannot do something."""
        raise UsageError("not-available:refuse", name=type(self).__name__, what=what)

    # The predictor that is shipped: kept within limits, so that its loss is at most M
    # for everyone. It is certified and saved; training rows are judged by `losses`.

    @property
    def loss_bounds(self) -> tuple[float, ...]:
        """Values of M to choose from, in order; none where losses have no bound."""
        C = self.n_classes
        return tuple(M for M in LOSS_BOUNDS if C and C * np.exp(-M) < 0.5)

    def loss_bound(self, asked: float | None = None) -> float | None:
        """Return M, the largest loss that the shipped predictor can have, as asked for.

        None where losses have no bound. M ≤ log C is refused: the same probability for
        every class has a loss of log C.
        """
        C = self.n_classes
        if C == 0 or asked is None or np.isposinf(asked):
            return None
        if not C * np.exp(-asked) < 1.0:
            raise UsageError(
                "wrong-loss-bound:loss-bound", c=C, log=np.log(C), asked=asked
            )
        return float(asked)

    def bounded(self, losses: FloatArray, bound: float) -> FloatArray:
        """Return a classifier's bounded losses, which follow from its own."""
        if self.loss_bound(bound) is None:
            return losses
        if self.as_is:
            return np.minimum(losses, bound)
        return bounded_log_losses(losses, bound, self.n_classes)

    def score_bounded_losses(
        self, z: FloatArray, y: FloatArray, bound: float
    ) -> FloatArray:
        """Return ℓ of the bounded predictor for each score."""
        return self.bounded(self.score_losses(z, y), bound)

    def bounded_losses(
        self, w: FloatArray, X: Design, y: FloatArray, bound: float
    ) -> FloatArray:
        """Return the loss of each example under the bounded predictor."""
        return self.score_bounded_losses(self.scores(w, X), y, bound)

    def bounded_proba(self, w: FloatArray, X: Design, bound: float) -> FloatArray:
        """Return the bounded predictor's class probabilities, shape (n, classes)."""
        p = self.predict_proba(w, X)
        return p if self.loss_bound(bound) is None else bounded_probabilities(p, bound)

    def bounded_values(self, w: FloatArray, X: Design, bound: float) -> FloatArray:
        """Return the bounded predictor's numbers (for a numeric target)."""
        return self.predict_values(w, X)

    def fingerprint(self, w: FloatArray) -> str:
        """SHA-256 of a trained model: kind, scaling, that of its target, weights."""
        plain = json.dumps(dict(self.describe()), sort_keys=True, ensure_ascii=False)
        digest = hashlib.sha256(plain.encode())
        target = np.array([self.target.mean, self.target.scale])
        for array in (*self.inputs.arrays, target, w):
            numbers = np.ascontiguousarray(array, dtype="<f8")
            digest.update(f"\0{len(numbers)}\0".encode() + numbers.tobytes())
        return digest.hexdigest()
