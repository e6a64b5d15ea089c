"""Noise as a second way to add the same rows up: whole numbers, and a proved length.

A query with `noise` is answered by `ReleasedSums`: for each field that is asked for, a
sum of whole numbers. What a row adds follows from that row and public values alone, to
the last bit; who else is there changes nothing about it. Its length is held in whole
numbers, after rounding: a row that is longer than declared, or is no number, adds
nothing. Only gradients are shortened, by the clip of the inputs; counts, losses and
log-sums are what they are, since their largest length is proved. Losses are rounded up
and log-sums down, so that statements are never too good.

`noise` says for each field how many times Δ, the declared length, the noise's standard
deviation is (0: not asked for). A release costs μ² = Σ 1/noise². Noise is added to the
whole numbers: by each site to its own, all of it or a share; or, where rows are in one
process, to their total (`pooled`).

A person counts once: of several rows of a person the first is taken. Sets of rows are
strata, or blocks of strata that are in the same cells: a person is in one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from pffl.constraints import Cells
from pffl.errors import Malformed, UsageError
from pffl.models.linear import LinearModel
from pffl.models.scaled import dense
from pffl.privacy.discrete import Source, discrete_gaussian
from pffl.queries.base import (
    ModelQuery,
    Query,
    RowRange,
    T_co,
    Total,
    View,
    array,
    empty,
    vector,
)
from pffl.typing import BoolArray, FloatArray, IntArray

UNIT = 24  # a released number is a whole number times 2^−24,
HALF = 12  # and inputs and slopes are times 2^−12, before they are multiplied
QUARTER_SQUARES = 2 * HALF + 2  # the unit of ¼xxᵀ
CHUNK_ROWS = 1 << 16  # multiplied at once: sums below 2^53 are exact in BLAS
MAX_SCORE = 1e6  # no score is further from 0
MIN_NOISE = 2.0**-8  # of Δ: less noise counts as no noise


class ReleasedSums(Total):
    """Whole numbers with noise, field after field: see `Releasable.real`."""

    sums: IntArray = array("n", row=RowRange(whole=True))


@dataclass(frozen=True)
class Part:
    """A field of a release.

    Attributes
    ----------
    shape, sensitivity
        Its shape, and Δ: the length of what one person adds, with all rounding.
    add
        Returns the whole-number sums over some rows: a `View`, or `ScoredRows`.
    unit
        It is written on the grid 2^−unit.
    noise
        Standard deviation of its noise, in multiples of Δ.
    """

    shape: tuple[int, ...]
    sensitivity: float
    add: Callable[[Any], IntArray]
    unit: int = UNIT
    noise: float = 0.0

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Adding:
    """How noise is added to answers.

    Attributes
    ----------
    source
        Where random numbers come from; None where sites draw their own.
    sites
        How many add noise.
    shared
        Whether their noise adds up to what one would add; otherwise each adds it all.
    colluding
        How many are not counted on: the others' adds up to what is needed.
    """

    source: Source | None = field(repr=False)  # secret, and no part of a digest
    sites: int = 1
    shared: bool = False
    colluding: int = 0

    @property
    def each(self) -> float:
        """Variance that each site adds, as a multiple of what is needed."""
        return 1.0 / (self.sites - self.colluding) if self.shared else 1.0

    @property
    def total(self) -> float:
        """Variance of all that is added, as a multiple of what is needed."""
        return self.sites * self.each


class Releasable(Query[T_co]):
    """A query that can be released: Δ, cost, noise, and reading it.

    Attributes
    ----------
    releasable
        Fields that have a declared length, in the order of `noise`.
    noise
        Of each: the noise's standard deviation, in multiples of Δ; 0 if it is not
        asked for. None of it: the answer is exact.
    adding
        Who adds it, where rows are in one process; sites know by themselves.
    """

    releasable: ClassVar[tuple[str, ...]]
    noise: FloatArray = vector("any", most=4, kw_only=True, default_factory=empty)
    adding: Adding | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.released:
            return
        known = len(self.noise) == len(self.releasable)
        if not known or not ((self.noise == 0) | (self.noise >= MIN_NOISE)).all():
            raise Malformed("wrong-noise:releasable")
        if not self.noise.any():
            raise Malformed("nothing is asked for")
        self.check_release()

    def check_release(self) -> None:
        """Refuse what has no declared length."""
        raise NotImplementedError

    def declared_parts(self) -> Mapping[str, Part]:
        """Return what each field is that can be released."""
        raise NotImplementedError

    def chunks(self, view: View) -> Iterator[Any]:
        """Yield the rows as `Part.add` takes them, some at a time."""
        for start in range(0, len(view), CHUNK_ROWS):
            yield view.take(slice(start, start + CHUNK_ROWS))

    @property
    def released(self) -> bool:
        """Whether the answer is whole numbers with noise."""
        return bool(self.noise.size)

    @property
    def answer_type(self) -> type[Total]:
        """The class of its answers."""
        return ReleasedSums if self.released else self.total_type

    @cached_property
    def parts(self) -> dict[str, Part]:
        """The fields that are asked for, each with its noise."""
        known = zip(self.declared_parts().items(), self.noise.tolist(), strict=True)
        return {n: replace(part, noise=m) for (n, part), m in known if m > 0}

    @property
    def mu(self) -> float:
        """μ of the answer: its place in the account."""
        return math.sqrt(math.fsum(part.noise**-2 for part in self.parts.values()))

    @property
    def sigma(self) -> dict[str, float]:
        """Standard deviation of the noise that μ stands for, of each field."""
        return {n: part.noise * part.sensitivity for n, part in self.parts.items()}

    @property
    def length(self) -> int:
        """How many numbers are released."""
        return sum(part.size for part in self.parts.values())

    def add_whole(self, view: View) -> Any:
        """Return what a release is before noise: it never leaves a site."""
        if view.weight is not None:
            refuse("sample weights")
        sums = np.zeros(self.length, np.int64)
        for rows in self.chunks(first_rows(view)):
            added = [part.add(rows).ravel() for part in self.parts.values()]
            sums += np.concatenate(added)
        return ReleasedSums(sums)

    def noised(
        self, total: ReleasedSums, source: Source, *, factor: float
    ) -> ReleasedSums:
        """Add noise of `factor` times the variance that is needed."""
        drawn = []
        for part in self.parts.values():
            sigma = part.noise * part.sensitivity
            square = math.ceil((sigma * 2.0**part.unit) ** 2 * factor)
            drawn.append(discrete_gaussian(square, part.size, source))
        return ReleasedSums(total.sums + np.concatenate(drawn))

    def pooled(self, total: Any, views: Sequence[View]) -> Any:
        """Add all sites' noise at once, where rows are in one process."""
        if not self.released:
            return super().pooled(total, views)
        if self.adding is None or self.adding.source is None:
            raise UsageError("no-noise")
        return self.noised(total, self.adding.source, factor=self.adding.total)

    def real(self, total: ReleasedSums, name: str) -> FloatArray:
        """Return a field's released sums as numbers."""
        parts = self.parts
        ends = np.cumsum([part.size for part in parts.values()])[:-1]
        found = dict(zip(parts, np.split(total.sums, ends), strict=True))[name]
        part = parts[name]
        return found.reshape(part.shape).astype(np.float64) * 2.0**-part.unit

    def deviation(self, name: str, adding: Adding) -> float:
        """Return the standard deviation of what is added to a field, by all."""
        return self.sigma[name] * math.sqrt(adding.total)


class TrainingQuery(Releasable[T_co], ModelQuery[T_co]):
    """What training asks at w. `loss_bound` is M of losses that are released."""

    loss_bound: float = field(default=1.0, kw_only=True)
    split: str = field(default="train", init=False)

    def check_release(self) -> None:
        """Refuse what has no declared length."""
        check_linear(self.task.model, self.loss_bound)

    def chunks(self, view: View) -> Iterator[ScoredRows]:
        """Yield the rows as the model scores them at w."""
        return ScoredRows.each(self.task.model, self.w, view)


def refuse(what: str) -> None:
    """Say that something has no form in which it could be released."""
    raise UsageError("not-under-noise:refuse", what=what)


def first_rows(view: View) -> View:
    """Return the first row of each person; all rows where no id is known.

    What others' rows are changes nothing about it.
    """
    if view.person is None:
        return view
    first = np.sort(np.unique(view.person, return_index=True)[1])
    return view if len(first) == len(view) else view.take(first)


def blocks_of(cells: Cells) -> tuple[FloatArray, BoolArray]:
    """Cut strata into blocks of those that are in the same cells.

    Returns 0 and 1, shape (blocks, strata), and which block is in which cell.
    """
    n_strata = cells.membership.shape[1]
    if not len(cells):
        return np.ones((1, n_strata)), np.zeros((0, 1), dtype=bool)
    if not cells.everywhere.all():
        refuse("bounds for single silos")
    patterns, code = np.unique(cells.membership, axis=1, return_inverse=True)
    codes = code.reshape(-1)
    sets = (codes[None, :] == np.arange(patterns.shape[1])[:, None]).astype(np.float64)
    return sets, np.asarray(patterns, dtype=bool)


# What a row adds under a linear model


def check_linear(model: Any, loss_bound: float) -> None:
    """Refuse models whose rows have no declared length."""
    if not getattr(model, "n_classes", 0) or not isinstance(model, LinearModel):
        refuse("models other than logistic and softmax regression")
    if model.input_bound is None:
        refuse("inputs without a clip")
    if model.loss_bound(loss_bound) is None:
        refuse("losses without a bound")


def longest_input(model: Any) -> float:
    """Return ‖(x, 1)‖ at most, with each number rounded to the grid."""
    return float(model.input_bound) + math.sqrt(model.n_columns) * 2.0 ** -(HALF + 1)


def longest_slope(model: Any) -> float:
    """Return the length of a row's slopes at most: 1 or, of softmax, √2; rounded."""
    steepest = 1.0 if model.n_outputs == 1 else math.sqrt(2.0)
    return steepest + math.sqrt(model.n_outputs) * 2.0 ** -(HALF + 1)


def longest_gradient(model: Any) -> float:
    """Return the length of a row's gradient at most."""
    return longest_input(model) * longest_slope(model)


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Some rows as a linear model sees them, each alone.

    Attributes
    ----------
    inputs
        (x, 1) in whole numbers; 0 of a row that is longer than the clip.
    z, y, stratum
        Scores, labels and strata.
    """

    model: LinearModel
    inputs: FloatArray
    z: FloatArray
    y: FloatArray
    stratum: IntArray

    @classmethod
    def each(cls, model: Any, w: FloatArray, view: View) -> Iterator[ScoredRows]:
        """Yield all rows, some at a time."""
        for start in range(0, len(view), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            # What overflows by a scaling or a model that was asked for counts as 0, or
            # as surest: a NaN would be the lowest whole number.
            X = np.ascontiguousarray(dense(view.X[rows]), np.float64)
            X = np.nan_to_num(X, nan=0.0, posinf=0.0, neginf=0.0)
            with np.errstate(over="ignore", invalid="ignore"):
                z = np.nan_to_num(scores_alone(model, w, X), nan=0.0)
            long = (np.abs(X) > model.input_bound).any(axis=1)
            X[long] = 0.0
            if model.intercept:
                X = np.column_stack([X, np.ones(len(X))])
            inputs = short_rows(X, longest_input(model), HALF)
            inputs[long] = 0.0
            bounded = np.clip(z, -MAX_SCORE, MAX_SCORE)
            yield cls(model, inputs, bounded, view.y[rows], view.stratum[rows])

    def losses(self, bound: float) -> FloatArray:
        """Losses of the bounded predictor, from 0 to M."""
        found = self.model.score_bounded_losses(self.z, self.y, bound)
        return np.clip(np.nan_to_num(found, nan=bound), 0.0, bound)

    def slopes(self, weights: FloatArray | float = 1.0) -> FloatArray:
        """Slopes times weights from 0 to 1, in whole numbers, (n, outputs)."""
        slopes = self.model.score_slopes(self.z, self.y).reshape(len(self.y), -1)
        return short_rows((slopes.T * weights).T, longest_slope(self.model), HALF)

    def in_sets(self, values: FloatArray, sets: FloatArray) -> IntArray:
        """Sums over sets of strata of what rows have, rounded up to the grid."""
        return exact(sets[:, self.stratum] @ np.ceil(values * 2.0**UNIT))

    def gradients(self, sets: FloatArray) -> IntArray:
        """Sums of gradients over sets of strata, (sets, p)."""
        slopes, member = self.slopes(), sets[:, self.stratum]
        found = [exact((slopes * own[:, None]).T @ self.inputs) for own in member]
        return np.array([sums.ravel() for sums in found])

    def gradient(self, weights: FloatArray) -> IntArray:
        """Sum of gradients, each times the weight of its stratum."""
        return exact(self.slopes(weights[self.stratum]).T @ self.inputs).ravel()

    def curvatures(self, sets: FloatArray) -> IntArray:
        """Sums of xxᵀ over sets of strata, upper triangles."""
        rows, columns = np.triu_indices(self.inputs.shape[1])
        parts = [self.inputs[own == 1.0] for own in sets[:, self.stratum]]
        return np.array([exact(part.T @ part)[rows, columns] for part in parts])


def losses_part(bound: float, sets: FloatArray) -> Part:
    """Declare losses up to a bound, summed over sets of strata."""
    return Part(
        (len(sets),),
        bound + 2.0**-UNIT,
        lambda rows: rows.in_sets(rows.losses(bound), sets),
    )


def scores_alone(model: LinearModel, w: FloatArray, X: FloatArray) -> FloatArray:
    """Return the scores, each of which depends on its own row alone, to the last bit.

    In a product of matrices the last digits of a row can hang on where it stands, and
    so on who else is there: then one person more could move others' contributions from
    one number of the grid to the next. Column by column, every row takes the same
    steps.
    """
    coefficients = w.reshape(model.n_outputs, model.n_columns)
    d = X.shape[1]
    scores = np.zeros((len(X), model.n_outputs))
    for own, z in zip(coefficients, scores.T, strict=True):
        for j in range(d):
            z += X[:, j] * own[j]
        if model.intercept:
            z += own[d]
    return scores[:, 0].copy() if model.n_outputs == 1 else scores


def exact(products: FloatArray) -> IntArray:
    """Return sums of products of whole numbers, which are exact below 2^53."""
    if np.abs(products).max(initial=0.0) >= 2.0**53:
        raise UsageError("too-large-numbers:exact")
    return products.astype(np.int64)


def short_rows(rows: FloatArray, longest: float, unit: int = UNIT) -> FloatArray:
    """Return rows as whole numbers on the grid 2^−unit; longer ones become 0."""
    found = np.rint(rows * 2.0**unit)
    whole = found.astype(np.int64)
    short = (whole * whole).sum(axis=1) <= math.floor(longest * 2.0**unit) ** 2
    found[~short] = 0.0
    return found
