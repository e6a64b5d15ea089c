"""Linear models in NumPy: logistic, softmax, least-squares and Huber regression.

The score of an example is ``z = W x + b``; a model adds only how the loss depends on
z. Parameters are the rows of [W, b], flattened. The ridge term covers b too: strong
convexity in all of w is what certificates stand on.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field

from pffl.data.schema import Schema
from pffl.errors import DataError, UsageError
from pffl.models.base import UNSCALED, Inputs, Model, Target
from pffl.models.scaled import Design, ScaledRows
from pffl.numerics import (
    log_softmax,
    logistic_losses,
    logistic_losses_and_slopes,
    sigmoid,
)
from pffl.records import Interval, NonNegative, Positive, Probability, check_parameters
from pffl.typing import FloatArray

MARGINS = (0.0, 0.25, 0.5, 1.0, 2.0)  # beyond the target's range, in parts of it
TWO, CLASSES, NUMBERS = "two classes", "classes", "a numeric target"
RARE = ("input_bound", "threshold")  # described where they are set
BOUND = ("inputs", "n_outputs", "target")  # known from the data
BEYOND = 0.1  # of a touching parabola's curvature, where Huber's loss itself has none


@dataclass(frozen=True, eq=False)
class LinearModel(Model):
    """A model whose loss depends on the inputs through ``W x + b`` only.

    Parameters
    ----------
    l2
        μ of the ridge term (μ/2)‖w‖².
    intercept
        Whether there is a b. Without it, x = 0 has score 0: inputs are not centred.
    standardize
        Whether features are scaled to mean 0 and variance 1 over all silos; without an
        intercept, or if not and l2 = 0, they are divided by their root mean squares.
    input_bound
        Scaled inputs are shortened to ‖(x, 1)‖ ≤ input_bound, where there is one, the 1
        of the intercept included: also those that the shipped predictor is given.
    """

    l2: NonNegative = 1e-3
    intercept: bool = True
    standardize: bool = True
    input_bound: Annotated[float, Field(gt=1)] | (
        None
    ) = field(default=None, repr=False, kw_only=True)
    inputs: Inputs = field(
        default_factory=lambda: Inputs.identity(0), repr=False, kw_only=True
    )
    n_outputs: int = field(default=1, repr=False, kw_only=True)

    convex: ClassVar[bool] = True
    needs: ClassVar[str] = CLASSES

    def __post_init__(self) -> None:
        check_parameters(self)

    def check_labels(self, schema: Schema) -> int:
        """Return the number of outputs for these labels, or refuse them."""
        n, several = len(schema.labels), self.needs == "classes"
        if not {TWO: n == 2, CLASSES: n > 1, NUMBERS: n == 0}[self.needs]:
            use = "least-squares" if not n else "logistic" if n == 2 else "softmax"
            raise DataError(
                "wrong-model:check-labels",
                name=type(self).__name__,
                needs=self.needs,
                target=schema.target,
                what=f"{n} classes" if n else "numeric values",
                use=use,
            )
        return n if several else 1

    @abstractmethod
    def score_losses(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return ℓ for each score."""

    @abstractmethod
    def score_slopes(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return ∂ℓ/∂z."""

    @abstractmethod
    def score_curvatures(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return ∂²ℓ/∂z²."""

    @property
    @abstractmethod
    def score_limits(self) -> tuple[float | None, float]:
        """Largest slope (None: there is none) and curvature of ℓ in z, for every z."""

    def score_losses_and_slopes(
        self, z: FloatArray, y: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return both; a model may share work between them."""
        return self.score_losses(z, y), self.score_slopes(z, y)

    def duals(
        self, z: FloatArray, y: FloatArray, shift: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return slopes u near those at z − shift, −ℓ*(u), and the sizes of its terms.

        A score s has ``ℓ(s) ≥ u·s − ℓ*(u)`` for *every* u: the tangent at any point
        lies below a convex loss. Here it is the one at z − shift; where ℓ is not
        quadratic, a model rather moves u itself, as its second order says, and keeps
        it where ℓ* is finite.
        """
        at = z - shift
        losses, slopes = self.score_losses_and_slopes(at, y)
        moved = slopes * at if at.ndim == 1 else (slopes * at).sum(axis=1)
        return slopes, losses - moved, losses + np.abs(moved)

    def bind(self, schema: Schema, inputs: Inputs) -> Self:
        """Return this model for these data; refuse labels that it cannot model."""
        if not self.standardize and self.l2 > 0:
            # Without a ridge the unit of an input changes no model, and all arithmetic.
            inputs = inputs.unscaled()
        if self.input_bound is not None:
            longest = math.sqrt(self.input_bound**2 - self.intercept)
            inputs = replace(inputs, longest=longest)
        return replace(self, inputs=inputs, n_outputs=self.check_labels(schema))

    @property
    def centred(self) -> bool:
        """Whether means are taken off the inputs: not without an intercept."""
        return self.standardize and self.intercept

    @property
    def n_columns(self) -> int:
        """Parameters per output."""
        return len(self.inputs.mean) + self.intercept

    @property
    def n_parameters(self) -> int:
        """Length p of w."""
        return self.n_outputs * self.n_columns

    def start(self, seed: int) -> FloatArray:
        """Return w = 0."""
        return np.zeros(self.n_parameters)

    def scores(self, w: FloatArray, X: Design) -> FloatArray:
        """Return z, shape (n,), or (n, outputs) for several outputs."""
        table, d = w.reshape(self.n_outputs, self.n_columns), X.shape[1]
        table = table[0] if self.n_outputs == 1 else table
        z = X @ table[..., :d].T
        return z + table[..., d] if self.intercept else z

    def pull_back(self, X: Design, slopes: FloatArray) -> FloatArray:
        """Return ``Σ_i slopes_i ⊗ (x_i, 1)``: the gradient in w, or several in turn.

        Slopes have shape (n,) or (n, outputs), and (n, gradients, outputs) of several.
        """
        columns = slopes.reshape(len(slopes), math.prod(slopes.shape[1:]))
        gradient = columns.T @ X
        if self.intercept:
            gradient = np.concatenate([gradient, columns.sum(axis=0)[:, None]], axis=1)
        return gradient.reshape(-1)

    def losses_and_gradient(
        self, w: FloatArray, X: Design, y: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the losses and ``Σ_i weights_i ∇ℓ_i(w)``."""
        losses, slopes = self.score_losses_and_slopes(self.scores(w, X), y)
        slopes *= weights if slopes.ndim == 1 else weights[:, None]
        return losses, self.pull_back(X, slopes)

    def hessian(
        self, w: FloatArray, X: Design, y: FloatArray, weights: FloatArray
    ) -> FloatArray:
        """Return ``Σ_i weights_i ∇²ℓ_i(w)``, shape (p, p)."""
        curvatures = self.score_curvatures(self.scores(w, X), y)
        return self.gram(X, (curvatures.T * weights).T)

    def slope_changes(
        self, directions: FloatArray, X: Design, z: FloatArray, y: FloatArray
    ) -> FloatArray:
        """Return ∂²ℓ/∂z² times how z changes along directions in w, (p, d).

        The shape is (n, d, outputs).
        """
        n, d, width = len(X), directions.shape[1], X.shape[1]
        coefficients = directions.T.reshape(d * self.n_outputs, self.n_columns)
        along = X @ coefficients[:, :width].T
        if self.intercept:
            along += coefficients[:, width]
        along = along.reshape(n, d, self.n_outputs)
        curvatures = self.score_curvatures(z, y)
        if curvatures.ndim == 1:
            return curvatures[:, None, None] * along
        return np.einsum("nab,ndb->nda", curvatures, along)

    def gram(self, X: Design, curvatures: FloatArray) -> FloatArray:
        """Return ``Σ_i curvatures_i ⊗ (x_i, 1)(x_i, 1)ᵀ``."""
        if curvatures.ndim == 1:
            return self._gram(X, curvatures)
        q, c = self.n_outputs, self.n_columns
        full = np.empty((q, c, q, c))
        for a in range(q):
            for b in range(a + 1):
                full[a, :, b] = full[b, :, a] = self._gram(X, curvatures[:, a, b])
        return full.reshape(q * c, q * c)

    def diagonal(self, X: Design, curvatures: FloatArray) -> FloatArray:
        """Return the diagonal of `gram`."""
        bent = curvatures.reshape(len(X), self.n_outputs, -1)
        own = np.einsum("naa->an", bent)
        squares = X.square_sums(own) if isinstance(X, ScaledRows) else own @ X**2
        if self.intercept:
            squares = np.column_stack([squares, own.sum(axis=1)])
        return squares.reshape(-1)

    def _gram(self, X: Design, curvatures: FloatArray) -> FloatArray:
        if isinstance(X, ScaledRows) or curvatures.min(initial=0.0) < 0:
            return self._mixed_gram(X, curvatures)
        rows = self.rooted(X, curvatures)
        # The product of one matrix with itself takes BLAS half the work (syrk).
        return rows.T @ rows

    def rooted(self, X: FloatArray, curvatures: FloatArray) -> FloatArray:
        """Return the rows √curvature_i·(x_i, 1): their products make up `gram`."""
        root, rows = np.sqrt(curvatures), np.empty((len(X), self.n_columns))
        np.multiply(X, root[:, None], out=rows[:, : X.shape[1]])
        if self.intercept:
            rows[:, -1] = root
        return rows

    def _mixed_gram(self, X: Design, curvatures: FloatArray) -> FloatArray:
        d = X.shape[1]
        gram = np.empty((self.n_columns, self.n_columns))
        if isinstance(X, ScaledRows):
            gram[:d, :d] = X.gram(curvatures)
        else:  # curvatures below 0 are those between two outputs of softmax
            np.matmul(X.T, X * curvatures[:, None], out=gram[:d, :d])
        if self.intercept:
            gram[d, :d] = gram[:d, d] = curvatures @ X
            gram[d, d] = curvatures.sum()
        return gram

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        plain: dict[str, object] = {"kind": self.name}
        for own in fields(self):
            value = getattr(self, own.name)
            rare = own.name in RARE and value == own.default
            if own.name not in BOUND and not rare:
                plain[own.name] = list(value) if isinstance(value, tuple) else value
        return plain


@dataclass(frozen=True, eq=False)
class LogisticRegression(LinearModel):
    """Two classes; ``ℓ = log(1 + e^z) − y z``.

    Parameters
    ----------
    l2
        μ of the ridge term (μ/2)‖w‖², on standardised inputs.
    intercept
        Whether there is a constant. Without one, inputs are scaled but not centred.
    standardize
        Whether inputs are scaled to mean 0 and variance 1 over all silos.
    input_bound
        Scaled inputs are shortened to ‖(x, 1)‖ ≤ input_bound; None: as they are.
    threshold
        People whose probability is above it are predicted to be of the second class.
        It changes errors and selection rates, and no loss.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> model = pffl.models.LogisticRegression(l2=0.01)
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.66), model=model)
    >>> solution.predict_proba(people.pooled("test").X[:2]).shape
    (2, 2)
    """

    threshold: Probability = field(default=0.5, kw_only=True)
    name = "logistic"
    needs = TWO
    score_limits = (1.0, 0.25)

    def score_losses(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return log(1 + e^z) − y z."""
        return logistic_losses(z, y)

    def score_slopes(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return σ(z) − y."""
        slopes = sigmoid(z)
        slopes -= y
        return slopes

    def score_losses_and_slopes(
        self, z: FloatArray, y: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return both from one exponential e = exp(−|z|)."""
        return logistic_losses_and_slopes(z, y)

    def score_curvatures(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return σ(z)(1 − σ(z)) ≤ 1/4."""
        # σ(|z|)·σ(−|z|) from one exponential: nothing cancels at large |z|.
        e = np.exp(-np.abs(z))
        return e / np.square(1.0 + e)

    def duals(
        self, z: FloatArray, y: FloatArray, shift: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return u = ±α, α in [0, 1] the weight of the wrong label; −ℓ* = h(α).

        h(α) = −α log α − (1 − α) log(1 − α), the entropy.
        """
        slopes = self.score_slopes(z, y)
        slopes -= self.score_curvatures(z, y) * shift
        np.clip(slopes, -y, 1.0 - y, out=slopes)
        alpha = np.abs(slopes)
        rest = 1.0 - alpha
        # log1p: 1 − α rounds to 1 where α itself is still a number.
        values = -_times_log(alpha)
        values -= rest * np.log1p(-alpha, out=np.zeros_like(alpha), where=rest > 0)
        return slopes, values, values

    def score_classes(self, z: FloatArray) -> FloatArray:
        """Return 1 for probabilities above the threshold."""
        return (z > self.least_score).astype(np.float64)

    @property
    def least_score(self) -> float:
        """The log-odds of the threshold."""
        return math.log(self.threshold) - math.log1p(-self.threshold)

    def score_proba(self, z: FloatArray) -> FloatArray:
        """Return class probabilities, shape (n, 2)."""
        return np.stack([sigmoid(-z), sigmoid(z)], axis=1)  # 1 − σ(z) would cancel

    @property
    def n_classes(self) -> int:
        """Two."""
        return 2


class SoftmaxRegression(LinearModel):
    """Several classes; ``ℓ = log Σ_c e^{z_c} − z_y``.

    Parameters
    ----------
    l2
        μ of the ridge term (μ/2)‖w‖², on standardised inputs.
    intercept
        Whether there is a constant. Without one, inputs are scaled but not centred.
    standardize
        Whether inputs are scaled to mean 0 and variance 1 over all silos.
    input_bound
        Scaled inputs are shortened to ‖(x, 1)‖ ≤ input_bound; None: as they are.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, classes=3)
    >>> solution = pffl.solve(people, None, model=pffl.models.SoftmaxRegression())
    >>> solution.predict_proba(people.pooled("test").X[:2]).shape
    (2, 3)
    """

    name = "softmax"
    needs = CLASSES
    score_limits = (math.sqrt(2), 0.5)

    def score_losses(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return the cross entropy."""
        return -log_softmax(z)[np.arange(len(z)), y.astype(np.int64)]

    def score_slopes(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return π − e_y."""
        slopes = np.exp(log_softmax(z))
        slopes[np.arange(len(z)), y.astype(np.int64)] -= 1.0
        return slopes

    def score_curvatures(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return diag(π) − ππᵀ ≼ ½(I − 11ᵀ/C) (Böhning 1992)."""
        q = z.shape[1]
        pi = np.exp(log_softmax(z))
        curvatures = -pi[:, :, None] * pi[:, None, :]
        curvatures[:, np.arange(q), np.arange(q)] += pi
        return curvatures

    def duals(
        self, z: FloatArray, y: FloatArray, shift: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return u = q − e_y with q on the simplex; −ℓ* is the entropy of q."""
        pi = np.exp(log_softmax(z))
        q = pi - pi * (shift - (pi * shift).sum(axis=1, keepdims=True))
        np.maximum(q, 0.0, out=q)
        q /= q.sum(axis=1, keepdims=True)
        values = -_times_log(q).sum(axis=1)
        q[np.arange(len(z)), y.astype(np.int64)] -= 1.0
        # q is on the simplex up to rounding of 1, whatever its entropy is.
        return q, values, 1.0 + values

    def score_classes(self, z: FloatArray) -> FloatArray:
        """Return the class with the largest score."""
        return z.argmax(axis=1).astype(np.float64)

    def score_proba(self, z: FloatArray) -> FloatArray:
        """Return class probabilities, shape (n, classes)."""
        return np.exp(log_softmax(z))

    @property
    def n_classes(self) -> int:
        """As many as outputs."""
        return self.n_outputs


@dataclass(frozen=True, eq=False)
class NumericModel(LinearModel):
    """A linear model of a numeric target: it predicts ``mean + scale · z``.

    Parameters
    ----------
    l2, intercept, standardize
        As for every linear model.
    target_range
        Ends between which all targets lie, in their own units; the shipped predictor
        keeps its numbers there, or near. None: nothing is known, and losses have no
        bound.
    """

    target_range: Interval | None = field(default=None, kw_only=True)
    target: Target = field(default=UNSCALED, repr=False, kw_only=True)

    needs = NUMBERS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_range is not None:
            low, high = map(float, self.target_range)
            object.__setattr__(self, "target_range", (low, high))

    def with_target(self, target: Target) -> Self:
        """Return this model with its scores in units of the target."""
        return replace(self, target=target if self.intercept else target.about_zero())

    def residuals(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return prediction − y."""
        return self.target.scale * z - (y - self.target.mean)

    def score_losses(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return ℓ for each score."""
        return self.residual_losses(self.residuals(z, y))

    def score_classes(self, z: FloatArray) -> None:
        """Return None: numbers have no classes."""
        return None

    @property
    def loss_bounds(self) -> tuple[float, ...]:
        """Largest losses of numbers in the range, or so far outside; see `MARGINS`."""
        if self.target_range is None:
            return ()
        low, high = self.target_range
        most = self.residual_losses((high - low) * (1 + np.array(MARGINS)))
        return tuple(M for M in most.tolist() if np.isfinite(M))

    def loss_bound(self, asked: float | None = None) -> float | None:
        """Return M as asked for; it follows from the range, and a margin around it."""
        if asked is None or np.isposinf(asked):
            return None
        if not np.isclose(self.loss_bounds, asked, rtol=1e-9, atol=0.0).any():
            raise UsageError("wrong-loss-bound:loss-bound-2")
        return float(asked)

    def limits(self, bound: float) -> tuple[float, float]:
        """Return where numbers are kept, so that no loss is above `bound`."""
        if self.target_range is None or self.loss_bound(bound) is None:
            return -np.inf, np.inf
        low, high = self.target_range
        far = np.abs(np.subtract(self.loss_bounds, bound))
        margin = MARGINS[int(np.argmin(far))] * (high - low)
        return low - margin, high + margin

    def score_bounded_losses(
        self, z: FloatArray, y: FloatArray, bound: float
    ) -> FloatArray:
        """Return ℓ with numbers kept within limits; refuse targets out of range."""
        if self.target_range is None:
            return self.score_losses(z, y)
        low, high = self.target_range
        if ((y < low) | (y > high)).any():
            raise DataError("outside-range:score-bounded-losses", low=low, high=high)
        values = (self.target.mean + self.target.scale * z).clip(*self.limits(bound))
        return np.minimum(self.residual_losses(values - y), bound)

    def bounded_values(self, w: FloatArray, X: Design, bound: float) -> FloatArray:
        """Return predicted numbers, kept within limits."""
        return self.predict_values(w, X).clip(*self.limits(bound))


class LeastSquares(NumericModel):
    """A numeric target; ``ℓ = r²`` for the residual r: a bound is a mean square.

    Parameters
    ----------
    l2
        μ of the ridge term (μ/2)‖w‖², on standardised inputs.
    intercept
        Whether there is a constant. Without one, inputs are scaled but not centred.
    standardize
        Whether inputs are scaled to mean 0 and variance 1 over all silos.
    input_bound
        Scaled inputs are shortened to ‖(x, 1)‖ ≤ input_bound; None: as they are.
    target_range
        Ends between which all targets lie: predictions are kept there. Statements on
        unseen people need it.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, task="regression")
    >>> solution = pffl.solve(people, None, model=pffl.models.LeastSquares(l2=0.01))
    >>> solution.predict(people.pooled("test").X[:2]).shape
    (2,)
    """

    name = "least-squares"

    def score_slopes(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return 2r, in units of the score."""
        return 2.0 * self.target.scale * self.residuals(z, y)

    def score_curvatures(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return 2, in units of the score."""
        return np.full_like(z, 2.0 * self.target.scale**2)

    @property
    def score_limits(self) -> tuple[float | None, float]:
        """No slope is the largest; the curvature is 2, in units of the score."""
        return None, 2.0 * self.target.scale**2


@dataclass(frozen=True, eq=False)
class HuberRegression(NumericModel):
    """A numeric target; ``ℓ = r²`` for residuals ``|r| ≤ δ``, else ``2δ|r| − δ²``.

    It is `LeastSquares` for small residuals, and one wild value cannot decide a group's
    mean loss. The curvature is 2 up to δ and 0 beyond. Second-order methods receive a
    little more than 0 there: a tenth of that of the parabola ``2(δ/|r|)·½r²`` + … which
    touches ℓ at r from above. With 0 a model of all-large residuals would be flat, and
    its minimum anywhere; certificates rest on values and gradients, which are exact.
    Reference: Huber 1964; the scaling is that of scikit-learn's HuberRegressor.

    Parameters
    ----------
    l2, intercept, standardize, input_bound, target_range
        As for every linear model of a numeric target.
    delta
        δ, in units of the target.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, task="regression")
    >>> model = pffl.models.HuberRegression(delta=2.0)
    >>> pffl.solve(people, None, model=model, random_state=0).status
    'no bounds'
    """

    delta: Positive = 1.0

    name = "huber"

    robust: ClassVar[bool] = True

    def residual_losses(self, residual: FloatArray) -> FloatArray:
        """Return r², or 2δ|r| − δ²: with c the clipped residual, c(2r − c)."""
        clipped = np.clip(residual, -self.delta, self.delta)
        return clipped * (2.0 * residual - clipped)

    def score_slopes(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return 2r, clipped to ±2δ, in units of the score."""
        clipped = np.clip(self.residuals(z, y), -self.delta, self.delta)
        return 2.0 * self.target.scale * clipped

    @property
    def score_limits(self) -> tuple[float | None, float]:
        """A slope of 2δ and a curvature of 2, in units of the score."""
        scale = self.target.scale
        return 2 * self.delta * scale, 2.0 * scale**2

    def score_curvatures(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return 2 up to δ, `BEYOND` · 2δ/|r| outside, in units of the score."""
        size = np.abs(self.residuals(z, y))
        outside = BEYOND * 2.0 * self.delta / np.maximum(size, self.delta)
        return self.target.scale**2 * np.where(size <= self.delta, 2.0, outside)

    def duals(
        self, z: FloatArray, y: FloatArray, shift: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return u within ±2δ; −ℓ* = −u²/4 − u y, with y and u in the target's unit."""
        slopes = self.score_slopes(z, y)
        slopes -= self.score_curvatures(z, y) * shift
        slopes /= self.target.scale
        np.clip(slopes, -2.0 * self.delta, 2.0 * self.delta, out=slopes)
        own, linear = 0.25 * np.square(slopes), slopes * (y - self.target.mean)
        return self.target.scale * slopes, -own - linear, own + np.abs(linear)


def _times_log(x: FloatArray) -> FloatArray:
    """Return x · log x; 0 where x is."""
    return x * np.log(x, out=np.zeros_like(x), where=x > 0)


LINEAR_MODELS: dict[str, type[LinearModel]] = {
    model.name: model
    for model in (LogisticRegression, SoftmaxRegression, LeastSquares, HuberRegression)
}


def model_of(name: str) -> LinearModel:
    """Return a linear model by its name, with its own defaults."""
    if name not in LINEAR_MODELS:
        there = ", ".join(LINEAR_MODELS)
        raise UsageError("unknown-model:model-of", name=name, there=there)
    return LINEAR_MODELS[name]()


def default_model(schema: Schema) -> LinearModel:
    """Return the linear model that the labels ask for."""
    if not schema.labels:
        return LeastSquares()
    return LogisticRegression() if len(schema.labels) == 2 else SoftmaxRegression()


def rebuild(described: object, parameters: int, *, module: object = None) -> Model:
    """Return the unbound model that a `describe()` stands for; refuse anything else.

    Only names of our own tables are looked up: no code is ever loaded, and a network
    that would not have exactly n `parameters` is refused before memory is given
    to it. One with a module of the user's own needs that `module`, which must be what
    was described.
    """
    values = dict(described) if isinstance(described, Mapping) else {}
    kind = values.pop("kind", None)
    try:
        if kind == "network":
            again = import_module("pffl.models.network").rebuild
            model: Model = again(values, parameters, module)
        else:
            model = LINEAR_MODELS[kind](**values)
        known = dict(model.describe()) == described
    except (KeyError, TypeError):
        known = False
    if not known:
        raise UsageError("unknown-model:rebuild", described=described)
    return model
