"""`tally` and `noised`: sums that are released with noise, and nothing without it.

What one row adds is bounded by declaration, rounded to a grid of whole numbers, and
summed in integers: so the length Δ of what one person can change is proved, rounding
included, and no sum in floating point is part of it. `noise` says for each field how
many times Δ the noise's standard deviation is (0: not asked for); what a release costs
is μ² = Σ 1/noise², over the fields that are asked for.

`sets` are rows of weights per atom, from 0 to 1: a row of atom a adds to set k what it
adds, times sets[k, a]. Disjoint sets have Δ of a single one; a weighted sum is one set.
A person counts once: of several rows of a person at a site the first is taken.

Both are answered in whole numbers (`UNIT`), and noise is added to these: by each site
to its own (`site.releases`), all of it or a share; or, where rows are in one process
and no secure sum is asked for, to their total (`pooled`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from pffl.errors import Malformed, UsageError
from pffl.models.linear import LinearModel
from pffl.models.scaled import dense
from pffl.numerics import shortened
from pffl.privacy.discrete import Source, discrete_gaussian
from pffl.queries.base import ModelQuery, RowsQuery, View
from pffl.queries.declared import (
    Dims,
    Row,
    Total,
    array,
    scalar,
    table,
    text,
    vector,
)
from pffl.queries.expand import linear
from pffl.typing import FloatArray, IntArray

UNIT = 24  # a released number is a whole number times 2^−24,
HALF = (
    12  # and inputs and slopes are whole numbers times 2^−12 before they are multiplied
)
CURVED = 2 * HALF + 2  # ¼xxᵀ
ROWS = 1 << 16  # that are multiplied at once: sums below 2^53 are exact in BLAS
MOST_SETS = 4096
SUREST = 1e6  # no score is further from 0
MOST_BETS = 16

T = TypeVar("T", bound=Total)
RELEASED = Row(whole=True, called="a released sum")


def released(*axes: str | int, norm: str, unit: int = UNIT) -> Any:
    """Declare a field that is released with noise.

    `norm` names the length of what one row adds to it, in the query's `scales`.
    """
    return array(*axes, row=RELEASED, norm=norm, unit=unit)


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


class Releasing(Generic[T]):
    """What `tally` and `noised` share: costs, noise, sums that add in integers.

    Attributes
    ----------
    noise
        Of each field: the noise's standard deviation, in multiples of what one person
        can change; 0 if it is not asked for.
    adding
        Who adds it, where rows are in one process; sites know by themselves.
    """

    noise: FloatArray
    adding: Adding | None
    fields: ClassVar[tuple[str, ...]]
    total_type: ClassVar[type[Total]]

    @property
    def sensitivity(self) -> dict[str, float]:
        """Δ of each field: the length of what one person changes, in its own unit."""
        raise NotImplementedError

    @property
    def asked_for(self) -> dict[str, float]:
        """The fields that are asked for, each with its noise."""
        pairs = zip(self.fields, self.noise.tolist(), strict=True)
        return {name: times for name, times in pairs if times > 0}

    @property
    def mu(self) -> float:
        """μ of the answer: its place in the account."""
        return math.sqrt(math.fsum(m**-2 for m in self.asked_for.values()))

    @property
    def sigma(self) -> dict[str, float]:
        """Standard deviation of the noise that μ stands for, of each field."""
        known = self.sensitivity
        return {name: times * known[name] for name, times in self.asked_for.items()}

    def noised(self, total: T, source: Source, *, factor: float) -> T:
        """Add noise of `factor` times the variance that is needed."""
        found: dict[str, IntArray] = {}
        for name, sigma in self.sigma.items():
            sums = getattr(total, name)
            scale = 2.0 ** self.total_type.declared[name].unit
            square = math.ceil((sigma * scale) ** 2 * factor)
            drawn = discrete_gaussian(square, sums.size, source)
            found[name] = sums + drawn.reshape(sums.shape)
        return replace(total, **found)

    def pooled(self, total: T, views: Sequence[View]) -> T:
        """Add all sites' noise at once, where rows are in one process."""
        if self.adding is None or self.adding.source is None:
            raise UsageError("[no-noise] a release with noise, and nobody adds any")
        return self.noised(total, self.adding.source, factor=self.adding.total)

    def real(self, total: T, name: str) -> FloatArray:
        """Return a field's released sums as numbers."""
        unit = self.total_type.declared[name].unit
        return np.asarray(getattr(total, name), np.float64) * 2.0**-unit

    def deviation(self, name: str, adding: Adding) -> float:
        """Return the standard deviation of what is added to a field, by all."""
        return self.sigma[name] * math.sqrt(adding.total)

    def _check_noise(self) -> None:
        known = len(self.noise) == len(self.fields)
        if not known or not ((self.noise == 0) | (self.noise >= 2.0**-8)).all():
            raise Malformed(
                "[wrong-noise] noise must be 0, or at least 1/256 of what a person adds"
            )
        if not self.noise.any():
            raise Malformed("nothing is asked for")


class TallyTotal(Total):
    """Sums over silos.

    Attributes
    ----------
    counts
        People of each atom.
    features
        Σu and Σu² of each input, u = (x − low)/(high − low) kept in [0, 1]; 0 of one
        that is missing.
    """

    counts: IntArray = released("counts", norm="count")
    features: IntArray = released("features", norm="inputs")


class Tally(Releasing[TallyTotal], RowsQuery[TallyTotal]):
    """Ask how many people there are, and for sums of their inputs.

    Attributes
    ----------
    low, high
        What each input is between; those beyond are moved to the end.
    longest
        Length to which (u, u²) of a row is shortened.
    """

    total_type: ClassVar = TallyTotal
    fields: ClassVar = ("counts", "features")

    low: FloatArray = vector("any")
    high: FloatArray = vector("any")
    longest: float = scalar()
    noise: FloatArray = vector("any", most=2)
    split: str = text(default="train")
    adding: Adding | None = None

    def __post_init__(self) -> None:
        n = self.schema.n_features
        if not (len(self.low) == len(self.high) == n and (self.low < self.high).all()):
            raise Malformed(
                "[needs-ranges] a range for each input is needed, the lower end first"
            )
        if not 0 < self.longest <= 2.0**16:
            raise Malformed("[needs-clip] a length to shorten rows to is needed")
        self._check_noise()

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer."""
        asked = self.asked_for
        inputs = 2 * self.schema.n_features if "features" in asked else 0
        counts = self.schema.n_atoms if "counts" in asked else 0
        return {**super().dims, "counts": counts, "features": inputs}

    @property
    def scales(self) -> Mapping[str, float]:
        """Numbers that an answer's fields name."""
        return {"count": 1.0, "inputs": self.longest}

    @property
    def sensitivity(self) -> dict[str, float]:
        """Δ of each field."""
        rounded = math.sqrt(2 * self.schema.n_features) * 2.0**-UNIT
        return {"counts": 1.0, "features": self.longest + rounded}

    def answer(self, view: View) -> TallyTotal:
        """Answer for one silo, from raw (unscaled) rows, without noise."""
        view, dims = once(view), self.dims
        counts = np.zeros(dims["counts"], np.int64)
        if dims["counts"]:
            many = np.bincount(view.atom, minlength=self.schema.n_atoms)
            counts = many.astype(np.int64) << UNIT
        features = np.zeros(dims["features"], np.int64)
        inputs, marks = self.schema.gaps
        for rows in chunks(len(view)) if dims["features"] else ():
            X = dense(view.X[rows])
            with np.errstate(over="ignore", invalid="ignore"):
                u = (X - self.low) / (self.high - self.low)
            u = np.clip(np.nan_to_num(u, nan=0.0), 0.0, 1.0)
            u[:, inputs] *= 1.0 - u[:, marks]
            both = shortened(np.concatenate([u, u * u], axis=1), self.longest)
            features += whole(both, UNIT).sum(axis=0)
        return TallyTotal(counts, features)


class NoisedTotal(Total):
    """Sums over silos, for each set.

    Attributes
    ----------
    counts
        People.
    losses
        Σ min(ℓ, M) of the bounded predictor.
    correct
        Correct predictions.
    gradients
        Σ∇ℓ at w.
    curvatures
        Σ¼(x, 1)(x, 1)ᵀ, the upper triangle: no Hessian of a logistic loss is above.
    logs
        Σ log(1 − γx) for each bet γ, x = bounded loss / M, in units of −log(1 − γ): one
        row adds between −1 and 0 to each.
    """

    counts: IntArray = released("counts", norm="count")
    losses: IntArray = released("losses", norm="loss")
    correct: IntArray = released("correct", norm="count")
    gradients: IntArray = released("steep", "g", norm="gradient")
    curvatures: IntArray = released("bent", "h", norm="curvature", unit=CURVED)
    logs: IntArray = released("staked", "bets", norm="logs")


class Noised(Releasing[NoisedTotal], ModelQuery[NoisedTotal]):
    """Ask for sums over sets of rows at `w`, with noise.

    Attributes
    ----------
    sets
        Weights from 0 to 1 of each atom in each set, shape (sets, atoms).
    noise
        Of each field, in the order of `fields`.
    loss_bound
        M.
    bets
        γ, the same for all sets.
    """

    total_type: ClassVar = NoisedTotal
    fields: ClassVar = (
        "counts",
        "losses",
        "correct",
        "gradients",
        "curvatures",
        "logs",
    )

    noise: FloatArray = vector("any", most=6)
    sets: FloatArray = table("sets", "atoms", default_factory=lambda: np.zeros((0, 0)))
    loss_bound: float = scalar(default=1.0)
    bets: FloatArray = table("any", most=MOST_BETS, default_factory=lambda: np.zeros(0))
    split: str = text(default="train")
    adding: Adding | None = None

    def __post_init__(self) -> None:
        atoms = self.task.cells.membership.shape[1]
        sets, model = self.sets, self.task.model
        if not (sets.ndim == 2 and 1 <= len(sets) <= MOST_SETS):
            raise Malformed("no sets of rows, or too many")
        if sets.shape[1] != atoms or not ((sets >= 0) & (sets <= 1)).all():
            raise Malformed("weights of sets are from 0 to 1, one for each atom")
        self._check_noise()
        if not model.n_classes or not isinstance(model, LinearModel):
            raise UsageError(
                "[not-under-noise] not available under noise: models other than "
                "logistic and softmax regression"
            )
        if model.input_bound is None:
            raise UsageError(
                "[not-under-noise] not available under noise: inputs without a clip"
            )
        if model.loss_bound(self.loss_bound) is None:
            raise UsageError(
                "[not-under-noise] not available under noise: losses without a bound"
            )
        if "curvatures" in self.asked_for:
            if model.n_outputs > 1:
                raise UsageError(
                    "[not-under-noise] not available under noise: curvature of "
                    "several outputs"
                )
            if not np.isin(sets, (0.0, 1.0)).all():
                raise Malformed("curvature is of whole atoms")
        good = ((self.bets > 0) & (self.bets <= 0.99)).all()
        if not good or ("logs" in self.asked_for) != bool(self.bets.size):
            raise Malformed(
                "[wrong-bets] bets are from 0 to 0.99, and go with log-sums"
            )

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer: none of what is not asked for."""
        asked, k, p = self.asked_for, len(self.sets), self.task.model.n_parameters
        parts = zip(
            ("counts", "losses", "correct", "steep", "bent", "staked"),
            self.fields,
            strict=True,
        )
        lengths = {axis: k if name in asked else 0 for axis, name in parts}
        own = {"g": p, "h": p * (p + 1) // 2, "bets": len(self.bets)}
        return {**super().dims, **lengths, **own}

    @property
    def clip(self) -> float:
        """‖(x, 1)‖ at most, before rounding."""
        model = linear(self.task)
        if model.input_bound is None:
            raise UsageError(
                "[not-under-noise] not available under noise: inputs without a clip"
            )
        return model.input_bound

    @property
    def scales(self) -> Mapping[str, float]:
        """Numbers that an answer's fields name: the length of what one row adds.

        Slopes are at most 1 (√2 of softmax); inputs are rounded before they are
        multiplied.
        """
        return {
            "count": 1.0,
            "loss": self.loss_bound,
            "gradient": (1.0 if self._outputs == 1 else math.sqrt(2.0)) * self._far,
            "curvature": self._far**2 / 4,
            "logs": math.sqrt(len(self.bets)),
        }

    @property
    def _outputs(self) -> int:
        return self.task.model.n_outputs

    @property
    def _far(self) -> float:
        """‖(x, 1)‖ at most, each number of it rounded to 2^−12."""
        columns = self.task.model.n_parameters // self._outputs
        return self.clip + math.sqrt(columns) * 2.0 ** -(HALF + 1)

    @property
    def sensitivity(self) -> dict[str, float]:
        """Δ of each field: that of a row, times its longest weights over all sets.

        What rounding can add is added: to each number of a field, and to the slopes
        that inputs are multiplied with.
        """
        heaviest = float(np.sqrt((self.sets**2).sum(axis=0)).max())
        scales, dims, declared = self.scales, self.dims, self.total_type.declared
        out = {}
        for name in self.fields:
            of = declared[name]
            numbers = math.prod(dims[str(axis)] for axis in of.axes)
            rounded = math.sqrt(numbers) * 2.0**-of.unit
            out[name] = scales[str(of.norm)] * heaviest + rounded
        slopes = math.sqrt(len(self.sets) * self._outputs) * 2.0 ** -(HALF + 1)
        out["gradients"] += self._far * slopes
        return out

    def answer(self, view: View) -> NoisedTotal:
        """Answer for one silo, without noise."""
        view, dims, asked = once(view), self.dims, self.asked_for
        shapes = {
            name: tuple(dims[str(axis)] for axis in of.axes)
            for name, of in self.total_type.declared.items()
        }
        sums = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}
        for rows in chunks(len(view)):
            for name, part in self._part(view, rows, asked).items():
                sums[name] += part
        return NoisedTotal(**sums)

    def _part(
        self, view: View, rows: slice, asked: Mapping[str, float]
    ) -> dict[str, IntArray]:
        """Return the sums over some rows."""
        model, w = linear(self.task), self.w
        # What overflows by a scaling or a model that was asked for counts as 0, or as
        # surest: a number that is none would be the lowest whole number there is.
        X = np.nan_to_num(dense(view.X[rows]), nan=0.0, posinf=0.0, neginf=0.0)
        y = view.y[rows]
        weights = self.sets[:, view.atom[rows]]
        inputs = np.rint(X * 2.0**HALF)
        if model.intercept:
            inputs = np.concatenate([inputs, np.full((len(X), 1), 2.0**HALF)], axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            z = np.nan_to_num(scores_alone(model, w, X), nan=0.0)
        z = np.clip(z, -SUREST, SUREST)
        cut = right = np.zeros(len(y))
        if "losses" in asked or "logs" in asked:
            cut = model.score_bounded_losses(z, y, self.loss_bound)
        if "correct" in asked:
            right = np.asarray(model.score_classes(z) == y, np.float64)
        out = self._measured(cut, right, weights, asked)
        if "gradients" in asked:
            slopes = model.score_slopes(z, y).reshape(len(y), -1)
            parts = [
                exact(np.rint(slopes * row[:, None] * 2.0**HALF).T @ inputs).ravel()
                for row in weights
            ]
            out["gradients"] = np.array(parts)
        if "curvatures" in asked:
            out["curvatures"] = np.array([_gram(inputs, row) for row in weights])
        return out

    def _measured(
        self,
        losses: FloatArray,
        right: FloatArray,
        weights: FloatArray,
        asked: Mapping[str, float],
    ) -> dict[str, IntArray]:
        """Return the sums that follow from rows' losses, and from who is right."""
        out: dict[str, IntArray] = {}
        cut = np.clip(losses, 0.0, self.loss_bound)
        if "counts" in asked:
            out["counts"] = whole(weights, UNIT).sum(axis=1)
        if "losses" in asked:
            # Upwards: a released loss is never too small.
            out["losses"] = _up(weights * cut).sum(axis=1)
        if "correct" in asked:
            out["correct"] = whole(weights * right, UNIT).sum(axis=1)
        if "logs" in asked:
            x = (cut / self.loss_bound)[:, None]
            logs = np.maximum(np.log1p(-self.bets * x) / -np.log1p(-self.bets), -1.0)
            # Downwards: what is proved of a mean is never too good.
            out["logs"] = np.array(
                [(-_up(-logs * row[:, None])).sum(axis=0) for row in weights]
            )
        return out

    def log_sums(self, total: NoisedTotal) -> FloatArray:
        """Return Σ log(1 − γx) as numbers, shape (sets, bets)."""
        return self.real(total, "logs") * -np.log1p(-self.bets)

    def log_deviations(self, adding: Adding) -> FloatArray:
        """Return the standard deviation of the noise in each of them, by bet."""
        return self.deviation("logs", adding) * -np.log1p(-self.bets)

    def gradients(self, rows: float) -> float:
        """How many passes over a silo's rows compute a gradient."""
        return 1.0 if "gradients" in self.asked_for else 0.0

    def check(self, known: Any, total: NoisedTotal) -> NoisedTotal:
        """Judge nothing: with noise any sum is possible."""
        return total


def scores_alone(model: LinearModel, w: FloatArray, X: FloatArray) -> FloatArray:
    """Return the scores, each of which depends on its own row alone, to the last bit.

    In a product of matrices the last digits of a row can hang on where it stands, and
    so on who else is there: then one person more could move others' contributions from
    one number of the grid to the next.
    """
    coefficients = w.reshape(model.n_outputs, model.n_columns)
    d, rows = X.shape[1], np.ascontiguousarray(X)
    columns = [
        np.einsum("ij,j->i", rows, own[:d]) + (own[d] if model.intercept else 0.0)
        for own in coefficients
    ]
    return columns[0] if model.n_outputs == 1 else np.stack(columns, axis=1)


def once(view: View) -> View:
    """Return the first row of each person; all rows where nobody knows whose they are.

    What others' rows are changes nothing about it.
    """
    if view.weight is not None:
        raise UsageError("[not-under-noise] not available under noise: sample weights")
    if view.person is None:
        return view
    first = np.sort(np.unique(view.person, return_index=True)[1])
    return view if len(first) == len(view) else view.take(first)


def chunks(rows: int) -> list[slice]:
    """Return slices of rows that are multiplied at once."""
    return [slice(at, at + ROWS) for at in range(0, rows, ROWS)]


def whole(values: FloatArray, unit: int) -> IntArray:
    """Return values in units of the grid, each rounded by itself."""
    return np.rint(values * 2.0**unit).astype(np.int64)


def _up(values: FloatArray) -> IntArray:
    return np.ceil(values * 2.0**UNIT).astype(np.int64)


def exact(products: FloatArray) -> IntArray:
    """Return sums of products of whole numbers, which are exact below 2^53."""
    if np.abs(products).max(initial=0.0) >= 2.0**53:
        raise UsageError(
            "[too-large-numbers] sums too large for the grid: a smaller clip is needed"
        )
    return products.astype(np.int64)


def _gram(inputs: FloatArray, weights: FloatArray) -> IntArray:
    """Return Σ x xᵀ of whole inputs of some rows, the upper triangle."""
    part = inputs[weights == 1.0]
    rows, columns = np.triu_indices(inputs.shape[1])
    return exact(part.T @ part)[rows, columns]


def unfolded(triangles: FloatArray, p: int) -> FloatArray:
    """Return symmetric matrices, from their upper triangles."""
    rows, columns = np.triu_indices(p)
    found = np.zeros((*triangles.shape[:-1], p, p))
    found[..., rows, columns] = triangles
    found[..., columns, rows] = triangles
    return found
