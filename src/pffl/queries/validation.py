"""Whether an answer can be true, judged by the silo's frozen census.

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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pffl.bounds.gap import Sparse
from pffl.data.schema import Schema
from pffl.errors import Problems, Refused, UsageError, wrong
from pffl.models.base import Inputs, Model
from pffl.models.linear import (
    HuberRegression,
    LeastSquares,
    LinearModel,
    LogisticRegression,
    SoftmaxRegression,
)
from pffl.numerics import is_number
from pffl.queries.base import ModelQuery, Query
from pffl.queries.census import Census, CensusTotal
from pffl.queries.evaluate import Evaluate
from pffl.queries.fields import ROUNDING
from pffl.tensors import MAX_BYTES
from pffl.typing import FloatArray

MIN_SITES = 3  # of a secure sum: of two, each would know the other's answer
POOLED_ROUNDING = 1e-6  # relative, of a share that several sites add up to
EPSILON = 2.0**-53  # rounding of one operation


@dataclass(frozen=True)
class LossShape:
    """How a linear model's loss depends on its scores; None: no such constant."""

    at_zero: float | None
    up: float
    down: float
    slope: float | None
    curvature: float


def _softmax(model: Any) -> LossShape:
    c = model.n_outputs
    root = math.sqrt(2)
    return LossShape(math.log(c), root, math.sqrt(1 - 1 / c), root, 0.5)


def _numeric(slope: Callable[[Any], float | None]) -> Callable[[Any], LossShape]:
    def shape(model: Any) -> LossShape:
        return LossShape(None, 0.0, 0.0, slope(model), 2.0 * model.target.scale**2)

    return shape


SHAPES: dict[type[Model], Callable[[Any], LossShape]] = {  # of these classes alone
    LogisticRegression: lambda model: LossShape(math.log(2), 1.0, 0.5, 1.0, 0.25),
    SoftmaxRegression: _softmax,
    HuberRegression: _numeric(lambda model: 2 * model.delta * model.target.scale),
    LeastSquares: _numeric(lambda model: None),
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
    above = np.maximum(centred, 0.0) + 4 * (rows + 8) * EPSILON * size
    return np.sqrt(above)


def sparse_sizes(
    stored: int, inputs: Inputs, columns: int, mass: float
) -> Sparse | None:
    """Return what rounding does otherwise to rows that store n inputs at most.

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
class LossCeilings:
    """Ceilings of one silo's loss sums under one model.

    Attributes
    ----------
    model, shape
        The model, and the shape of its loss; None where nothing is known.
    columns
        q_j, with √n behind them for the intercept, shape (n_columns,).
    targets
        T of a numeric target.
    """

    model: Model
    shape: LossShape | None
    columns: FloatArray
    targets: float

    @classmethod
    def of(cls, model: Model, census: CensusTotal) -> LossCeilings:
        """Read the census of one silo."""
        known = SHAPES.get(type(model))
        if known is None or not isinstance(model, LinearModel):
            return cls(model, None, np.zeros(0), math.inf)
        inputs, rows, mass = model.inputs, int(census.rows[0]), float(census.weight[0])
        sums, squares = inputs.fill_sums(census.feature_sums, census.feature_squares)
        columns = lengths(rows, mass, sums, squares, inputs.mean) / inputs.scale
        if model.intercept:
            columns = np.append(columns, math.sqrt(mass))
        far = np.zeros(1)
        if census.target.size:
            total, square = census.target.T
            far = lengths(rows, mass, total, square, np.array([model.target.mean]))
        return cls(model, known(model), columns, float(far[0]))

    def reach(self, w: FloatArray) -> float:
        """Return A(w)."""
        table = np.abs(w).reshape(-1, len(self.columns))
        return float(np.linalg.norm(table @ self.columns))

    def losses(self, w: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest loss sum of n of the rows."""
        if self.shape is None:
            return np.zeros_like(n), np.full_like(n, np.inf)
        if self.shape.at_zero is None:
            most = (self.model.target.scale * self.reach(w) + self.targets) ** 2
            return np.zeros_like(n), np.where(n > 0, most, 0.0)
        spread, base = np.sqrt(n) * self.reach(w), n * self.shape.at_zero
        low = np.maximum(base - self.shape.down * spread, 0.0)
        return low, base + self.shape.up * spread


@dataclass(frozen=True)
class Policy:
    """Rules of a deployed run.

    Parameters
    ----------
    seconds
        How long one message may take until its answer counts as missing.
    join_seconds
        How long to wait for sites that are not there.
    retries
        How often those who did not answer are asked again, byte for byte.
    loss_bound
        M: no loss is larger. None: what the model and the census imply, if anything.
    largest_message
        Bytes of an answer.
    largest_rows
        Rows of a silo.
    weight_bound
        What no row weighs more than, where the sites' rows have weights. None: all
        rows are unweighted, and a site whose rows have weights is refused.
    """

    seconds: float = 300.0
    join_seconds: float = 600.0
    retries: int = 2
    loss_bound: float | None = None
    largest_message: int = MAX_BYTES
    largest_rows: int = 10**9
    weight_bound: float | None = None

    def __post_init__(self) -> None:
        with Problems("policy", UsageError) as problems:
            bounds = ("loss_bound", "weight_bound")
            for name in ("seconds", "join_seconds", *bounds):
                value = getattr(self, name)
                optional = value is None and name in bounds
                if not (optional or (is_number(value) and value > 0)):
                    wanted = "a finite number > 0"
                    problems.add(wrong(name, "[policy]", wanted, value))
            for name in ("retries", "largest_message", "largest_rows"):
                value, least = getattr(self, name), int(name != "retries")
                if type(value) is not int or value < least:
                    wanted = f"a whole number ≥ {least}"
                    problems.add(wrong(name, "[policy]", wanted, value))


class Gate:
    """Judges reports, silo by silo.

    Parameters
    ----------
    policy, schema
        The rules, and what the silos agreed on.
    """

    def __init__(self, policy: Policy, schema: Schema) -> None:
        self.policy, self.schema = policy, schema
        self.frozen: dict[tuple[int, str], CensusTotal] = {}
        self.withheld: dict[tuple[int, str], int] = {}
        self._ceilings: dict[tuple[int, str], LossCeilings] = {}

    def census(
        self, index: int, split: str, total: CensusTotal, withheld: int
    ) -> CensusTotal:
        """Freeze a silo's census, or compare it with the frozen one (fault 48).

        `withheld` is the number of (group, label)s that the silo says it leaves out.
        """
        total.check_size()
        rows, counts = int(total.rows[0]), total.counts[0]
        require(0 <= rows <= self.policy.largest_rows, "an impossible number of rows")
        total.check_ranges({"": np.array(float(rows))}, {}, {"": total.weight})
        require(rows == int(counts.sum()), "counts do not add up to the rows")
        empty = len(counts) - int(np.count_nonzero(counts))
        require(withheld <= empty, "counts that are withheld and given")
        self._check_weights(total)
        known = self.frozen.setdefault((index, split), total)
        hidden = self.withheld.setdefault((index, split), withheld)
        if hidden != withheld or not _same(known, total):
            raise Refused("[changed-census] the census changed since it was frozen")
        return known

    def _check_weights(self, total: CensusTotal) -> None:
        """Demand weights that n rows can have: of each stratum, and of all."""
        rows = np.append(total.rows, total.counts[0]).astype(np.float64)
        weights = np.append(total.weight, total.weights[0])
        if self.policy.weight_bound is None:
            equal = np.allclose(weights, rows)
            require(equal, "weights that are not those of the rows")
            return
        there = (weights > 0) == (rows > 0)
        require(bool(there.all()), "weights of no rows, or none")
        most = self.policy.weight_bound * rows * (1 + ROUNDING)
        require(bool((weights <= most).all()), "a weight outside what is possible")
        left = abs(float(total.weights.sum()) - weights[0])
        require(left <= ROUNDING * weights[0], "weights do not add up to that of all")

    def report(self, query: Query[Any], index: int, total: Any) -> Any:
        """Return one silo's report, or raise `Refused`; with noise any sum can be."""
        total.check_size()
        if isinstance(query, Census) and query.centred:
            names = ("rows", "counts", "weight", "weights", "stored")
            known = self.frozen[index, query.split]
            require(_same(known, total, names), "counts changed since the census")
        if isinstance(query, ModelQuery) and not query.released:
            with np.errstate(over="ignore", invalid="ignore"):
                self._judge(query, index, total)
        return total

    def _judge(self, query: ModelQuery[Any], index: int, total: Any) -> None:
        """Refuse sums that no honest rows can have: by range, and by their losses."""
        census, member = (
            self.frozen[index, query.split],
            query.task.cells.of_silo(index),
        )
        rows = _by_axis(census.counts[0], float(census.rows[0]), member)
        masses = _by_axis(census.weights[0], float(census.weight[0]), member)
        if isinstance(query, Evaluate):
            same = bool((total.column("count") == census.counts[0]).all())
            require(same, "counts changed since the census")
        weighted = any((masses[axis] != rows[axis]).any() for axis in ("strata", ""))
        total.check_ranges(rows, query.scales, masses if weighted else None)
        for name, of in total.declared.items():
            places = [place for place, row in enumerate(of.rows) if row.loss]
            values = np.asarray(getattr(total, name), np.float64)
            if not places or not values.size:
                continue
            if len(of.rows) > 1:
                values = values[:, places[0]]
            axis = str(of.axes[0]) if of.axes else ""
            if axis not in ("strata", "z"):  # F stands first
                values = np.atleast_1d(values)
                self._check_risk(query, index, total, float(values[0]))
                values, axis = values[1:], "z"
            if len(values):
                self._check_losses(query, index, masses[axis], values)

    def _check_risk(
        self, query: ModelQuery[Any], index: int, total: Any, risk: float
    ) -> None:
        """Refuse p_k × a mean loss that no honest rows can have."""
        census, pool = self.frozen[index, query.split], query.task.pool
        whole = float(query.task.shares[index]) if census.rows[0] else 0.0
        share = getattr(total, "share", whole)
        agreed = share == whole
        if pool is not None and pool.silos > 1:
            agreed = 0 <= share <= whole * (1 + POOLED_ROUNDING)
        require(agreed, "another share than the agreed one")
        require(risk >= 0 and (share > 0 or risk == 0), "a risk")
        # No row weighs more than n times the mean in the F of a pool.
        uneven = 1.0 if pool is None else pool.uneven(query.split)
        if share > 0 and math.isfinite(uneven):
            mass = np.array([float(census.weight[0]) / uneven])
            self._check_losses(query, index, mass, mass * risk / share)

    def _check_losses(
        self, query: ModelQuery[Any], index: int, n: FloatArray, sums: FloatArray
    ) -> None:
        """Refuse loss sums that no honest rows weighing n can have (fault 49)."""
        low, high = self.ceilings(query, index).losses(query.w, n)
        if self.policy.loss_bound is not None:
            high = np.minimum(high, self.policy.loss_bound * n)
        size = np.where(np.isfinite(high), high, np.abs(sums))
        slack = ROUNDING * (n * query.task.model.unit + size)
        inside = (sums >= low - slack) & (sums <= high + slack)
        require(bool(inside.all()), "a loss sum outside what is possible")
        require(bool((sums[n == 0] == 0).all()), "a loss where there are no rows")

    def ceilings(self, query: ModelQuery[Any], index: int) -> LossCeilings:
        """Return the ceilings of a silo's losses, which its census implies."""
        model, key = query.task.model, (index, query.split)
        if key not in self._ceilings or self._ceilings[key].model is not model:
            self._ceilings[key] = LossCeilings.of(model, self.frozen[key])
        return self._ceilings[key]


def _by_axis(
    strata: FloatArray, whole: float, member: FloatArray
) -> dict[str, FloatArray]:
    """Return what is known per stratum for each axis of an answer, and of all ("")."""
    cells = member @ strata
    some = {"strata": strata, "z": cells, "": np.array(whole)}
    return {**some, "v": np.append(whole, cells)}


def _same(one: CensusTotal, other: CensusTotal, names: tuple[str, ...] = ()) -> bool:
    """Whether two censuses say the same, sums up to the order of addition."""
    pairs = ((getattr(one, n), getattr(other, n)) for n in names or one.declared)
    return all(
        np.array_equal(a, b)
        or (a.dtype == np.float64 and np.allclose(a, b, 1e-9, 1e-9))
        for a, b in pairs
    )


def require(condition: bool, reason: str) -> None:
    """Refuse, unless the condition holds."""
    if not condition:
        raise Refused(f"[implausible-answer] {reason}")
