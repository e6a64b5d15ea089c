"""What is known of a silo, and what its honest sums can be, proved from its census.

Every check refuses with a reason that holds no figure of the report.

With x̃ the model's inputs, q_j = √Σ_i x̃_ij² of a silo (known from its sums and squares)
and z = Wx̃ + b, Minkowski's inequality gives, over any of the silo's rows,

    √Σ_i ‖z_i‖² ≤ A(w) = ( Σ_c (Σ_j |W_cj| q_j + |b_c| √n)² )^½

A loss that is `at_zero` for z = 0 and lies between at_zero − down·‖z‖ and
at_zero + up·‖z‖ then sums over n_z rows to n_z·at_zero − down·√n_z·A … + up·√n_z·A
(Cauchy and Schwarz). An honest silo is never above or below, but for rounding.
Where rows have weights, every sum here is of s_i times what it says, n is Σs_i, and
the same inequalities hold.

    logistic   log(1 + e^t), t = ±z:  at_zero log 2, up 1, down ½;  |slope| ≤ 1
    softmax    z_c − z_y ≤ √2‖z‖;  Jensen: ≥ log C + mean_c z_c − z_y, hence
               at_zero log C, up √2, down √(1 − 1/C);  ‖slope‖ ≤ √2
    squares    the residual is scale·z − (y − mean), so with T² = Σ(y − mean)² of the
               silo's rows Σℓ ≤ (scale·A + T)²; slopes follow from the losses reported
    Huber      the same, its loss being no more;  |slope| ≤ 2δ·scale
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pffl.bounds.gap import Sparse
from pffl.data.schema import Schema
from pffl.errors import Refused
from pffl.models.base import Inputs, Model, Target
from pffl.models.linear import (
    HuberRegression,
    LeastSquares,
    LinearModel,
    LogisticRegression,
    SoftmaxRegression,
)
from pffl.queries.declared import ROUNDING, Row
from pffl.typing import FloatArray

if TYPE_CHECKING:
    from pffl.queries.base import ModelQuery
    from pffl.queries.census import CensusTotal

LOSS = Row(0.0, weighted=True, loss=True, called="a loss sum")
LOOSE = 1e-6  # relative, of sums in another order, after powers of them
UNIT = 2.0**-53  # rounding of one operation


@dataclass(frozen=True)
class Shape:
    """How a linear model's loss depends on its scores; None: no such constant."""

    at_zero: float | None
    up: float
    down: float
    slope: float | None
    curvature: float


def _softmax(model: Any) -> Shape:
    c = model.n_outputs
    return Shape(math.log(c), math.sqrt(2), math.sqrt(1 - 1 / c), math.sqrt(2), 0.5)


SHAPES: dict[type[Model], Callable[[Any], Shape]] = {  # of these very classes alone
    LogisticRegression: lambda model: Shape(math.log(2), 1.0, 0.5, 1.0, 0.25),
    SoftmaxRegression: _softmax,
    HuberRegression: lambda model: Shape(
        None,
        0.0,
        0.0,
        2 * model.delta * model.target.scale,
        2.0 * model.target.scale**2,
    ),
    LeastSquares: lambda model: Shape(
        None, 0.0, 0.0, None, 2.0 * model.target.scale**2
    ),
}


def lengths(
    rows: int, mass: float, sums: FloatArray, squares: FloatArray, mean: FloatArray
) -> FloatArray:
    """Return an upper bound of √Σs(x − mean)² over n rows that weigh Σs together.

    Σs(x − mean)² = Σsx² − 2·mean·Σsx + mean²·Σs cancels; what rounding of n additions
    can do to it is added.
    """
    centred = squares - 2 * mean * sums + mass * mean**2
    size = squares + 2 * np.abs(mean * sums) + mass * mean**2
    above = np.maximum(centred, 0.0) + 4 * (rows + 8) * UNIT * size
    return np.sqrt(above)


def sparse_sizes(
    stored: int, inputs: Inputs, columns: int, mass: float
) -> Sparse | None:
    """Return what rounding does otherwise to rows that store so many inputs at most.

    None where rows are dense, and store 0.
    """
    if stored == 0:
        return None
    shifts = np.zeros(columns)
    mean, scale = np.abs(inputs.mean), inputs.scale
    apart = mean < scale  # others are stored in every row, centred
    shifts[: len(mean)] = np.where(apart, mean / scale, 0.0)
    entries = stored + len(inputs.fill) + int((~apart).sum()) + columns - len(mean)
    return Sparse(min(entries, columns), shifts * math.sqrt(mass))


@dataclass(frozen=True, eq=False)
class Ceilings:
    """Ceilings of one silo's sums under one model.

    Attributes
    ----------
    shape
        Of the model's loss; None where nothing is known.
    columns
        q_j, with √n behind them for the intercept, shape (n_columns,).
    rows, mass
        Number of rows, and n: what they weigh together.
    target, targets, unit
        How a numeric target is scaled, T, and what losses are measured in.
    """

    shape: Shape | None
    columns: FloatArray
    rows: int
    mass: float
    target: Target
    targets: float
    unit: float

    @classmethod
    def of(cls, model: Model, census: CensusTotal) -> Ceilings:
        """Read the census of one silo."""
        known, rows, target = SHAPES.get(type(model)), int(census.rows[0]), model.target
        mass = float(census.weight[0])
        if known is None or not isinstance(model, LinearModel):
            return cls(None, np.zeros(0), rows, mass, target, math.inf, model.unit)
        shape, inputs = known(model), model.inputs
        sums, squares = inputs.fill_sums(census.feature_sums, census.feature_squares)
        columns = lengths(rows, mass, sums, squares, inputs.mean) / inputs.scale
        if model.intercept:
            columns = np.append(columns, math.sqrt(mass))
        far = np.zeros(1)
        if census.target.size:
            total, square = census.target.T
            far = lengths(rows, mass, total, square, np.array([target.mean]))
        targets = float(far[0])
        return cls(shape, columns, rows, mass, target, targets, model.unit)

    def reach(self, w: FloatArray) -> float:
        """Return A(w)."""
        table = np.abs(w).reshape(-1, len(self.columns))
        return float(np.linalg.norm(table @ self.columns))

    def losses(self, w: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest loss sum of n of the rows."""
        if self.shape is None:
            return np.zeros_like(n), np.full_like(n, np.inf)
        if self.shape.at_zero is None:
            most = (self.target.scale * self.reach(w) + self.targets) ** 2
            return np.zeros_like(n), np.where(n > 0, most, 0.0)
        spread = np.sqrt(n) * self.reach(w)
        base = n * self.shape.at_zero
        low = np.maximum(base - self.shape.down * spread, 0.0)
        return low, base + self.shape.up * spread


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a silo when its report comes in.

    Attributes
    ----------
    rows, counts
        Rows, and rows per atom, both frozen at the census.
    weights
        What the rows of each atom weigh together; of all rows: `ceilings.mass`.
    share
        p_k.
    member, sizes
        The silo's part of the cells, (Z, atoms), and what it weighs in each, (Z,).
    ceilings
        What its census implies.
    schema
        Names.
    loss_bound, update_clip
        M, and the largest norm of an update, where the federation has agreed on one.
    sites, uneven
        Of a sum of several sites' reports under masks: how many they are, and how many
        times as much as in the mean over all rows one row weighs in F at most. Infinite
        where nothing is known.
    """

    rows: int
    counts: FloatArray
    weights: FloatArray
    share: float
    member: FloatArray
    sizes: FloatArray
    ceilings: Ceilings
    schema: Schema
    loss_bound: float | None = None
    update_clip: float | None = None
    sites: int = 1
    uneven: float = 1.0

    @property
    def risk_mass(self) -> float:
        """The mass of a silo whose mean loss can be no further off than F is."""
        return self.mass / self.uneven

    @property
    def in_each(self) -> Mapping[str, FloatArray]:
        """Rows for each atom, for each cell, and in all."""
        in_cells = self.member @ self.counts
        rows = float(self.rows)
        some = {"atoms": self.counts, "z": in_cells, "": np.array(rows)}
        return {**some, "v": np.append(rows, in_cells)}

    @property
    def in_weight(self) -> Mapping[str, FloatArray] | None:
        """What they weigh together; None where all count alike."""
        if not self.weighted:
            return None
        some = {"atoms": self.weights, "z": self.sizes, "": np.array(self.mass)}
        return {**some, "v": np.append(self.mass, self.sizes)}

    @property
    def mass(self) -> float:
        """m_k: what all rows weigh together."""
        return self.ceilings.mass

    @property
    def weighted(self) -> bool:
        """Whether rows do not count alike."""
        return self.mass != self.rows or bool((self.weights != self.counts).any())

    def judge(self, query: ModelQuery[Any], total: Any) -> None:
        """Refuse sums that no honest rows can have: by range, and by their losses."""
        total.check_ranges(self.in_each, query.scales, self.in_weight)
        masses = {"atoms": self.weights, "z": self.sizes}
        for name, of in total.declared.items():
            losses = [place for place, row in enumerate(of.rows) if row.loss]
            values = np.asarray(getattr(total, name), np.float64)
            if not losses or not values.size:
                continue
            if of.axes and of.axes[0] in masses:
                values = values if len(of.rows) == 1 else values[:, losses[0]]
                self.loss_sums(query.w, masses[str(of.axes[0])], values)
                continue
            first, *cells = np.atleast_1d(values)
            self.risk(query.w, float(first), getattr(total, "share", self.share))
            if cells:
                self.loss_sums(query.w, self.sizes, np.array(cells))

    def risk(self, w: FloatArray, risk: float, share: float) -> None:
        """Refuse p_k × a mean loss that no honest rows can have."""
        whole = self.share if self.rows else 0.0
        agreed = 0 <= share <= whole * (1 + LOOSE) if self.sites > 1 else share == whole
        require(agreed, "another share than the agreed one")
        require(risk >= 0 and (share > 0 or risk == 0), "a risk")
        if share > 0 and math.isfinite(self.uneven):
            rows = np.array([self.risk_mass])
            self.loss_sums(w, rows, rows * risk / share)

    def loss_sums(self, w: FloatArray, n: FloatArray, sums: FloatArray) -> None:
        """Refuse loss sums that no honest rows weighing n can have (fault 49)."""
        low, high = self.ceilings.losses(w, n)
        if self.loss_bound is not None:
            high = np.minimum(high, self.loss_bound * n)
        size = np.where(np.isfinite(high), high, np.abs(sums))
        slack = ROUNDING * (n * self.ceilings.unit + size)
        within(sums, low - slack, high + slack, "a loss sum")
        require(bool((sums[n == 0] == 0).all()), "a loss where there are no rows")


def within(values: FloatArray, low: FloatArray, high: FloatArray, what: str) -> None:
    """Refuse numbers outside their range; NaN is outside of any."""
    inside = bool(((values >= low) & (values <= high)).all())
    require(inside, f"{what} outside what is possible")


def require(condition: bool, reason: str) -> None:
    """Refuse, unless the condition holds."""
    if not condition:
        raise Refused(f"[implausible-answer] {reason}")
