"""The objective G(w; λ) = β F(w) + λᵀ r(w), and how far a pair is from its saddle.

F(w)   = Σ_k p_k (1/m_k) Σ_{i∈k} s_i ℓ_i(w) + (μ/2)‖w‖²    m_k = Σ_{i∈k} s_i
r_z(w) = (1/m_z) Σ_{i∈z} s_i ℓ_i(w) − ζ_z                   m_z = Σ_{i∈z} s_i

with s_i = 1 where rows have no weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from pffl.bounds import gap
from pffl.bounds.gap import Errors, Sizes, Sparse
from pffl.constraints import Cells
from pffl.data.schema import Schema
from pffl.models.base import Model
from pffl.models.linear import LinearModel
from pffl.numerics import divisors
from pffl.queries.base import Task
from pffl.queries.evaluate import EvaluateTotal
from pffl.queries.expand import ExpandTotal
from pffl.queries.train import TrainTotal
from pffl.typing import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Point:
    """A pair (w, λ)."""

    w: FloatArray
    multipliers: FloatArray


@dataclass(frozen=True, eq=False)
class Expansion:
    """F and r to first or second order at w, as means and with the ridge term."""

    w: FloatArray
    risk: float
    risk_gradient: FloatArray
    risk_hessian: FloatArray
    violation: FloatArray
    jacobian: FloatArray
    hessians: FloatArray

    def times(self, factor: float) -> Expansion:
        """Return the expansion with losses in another unit."""
        if factor == 1:
            return self
        names = [f.name for f in fields(self) if f.name != "w"]
        return Expansion(self.w, *(factor * getattr(self, name) for name in names))


class SaddleTerms(Protocol):
    """What G has besides F and r: β, B, βμ and, where that is 0, the ball's R."""

    @property
    def risk_weight(self) -> float:
        """β."""

    @property
    def multiplier_bound(self) -> float:
        """B."""

    @property
    def modulus(self) -> float:
        """βμ, in the unit that F and r have."""

    @property
    def radius(self) -> float:
        """R."""

    @property
    def n_cells(self) -> int:
        """Z."""


@dataclass(frozen=True)
class Access:
    """How silos are reached.

    Attributes
    ----------
    elsewhere
        Whether answers come as messages from other machines.
    pooled
        How many sites answer as one, under secure sums; 0 where silos are kept apart.
    floor
        Fewest people of a group that a site counts, under secure sums.
    """

    elsewhere: bool = False
    pooled: int = 0
    floor: int = 1


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything the server knows after the census.

    Attributes
    ----------
    task
        Model, cells and silo weights p_k.
    schema, silo_names
        Names of groups, labels and silos.
    counts
        m_z: weight Σs_i of the rows per cell over all silos, frozen at the census.
    silo_counts, silo_weights
        Rows per (silo, stratum), shape (K, strata), and their weight Σs_i.
    masses
        m_k: weight of all rows of each silo.
    silo_targets
        Σs(y − ȳ) and Σs(y − ȳ)² of a numeric target per (silo, stratum), ȳ the mean of
        all, shape (K, strata, 2); (K, strata, 0) of classes.
    column_sizes, target_size
        √Σsx² of each input as the model sees it, √Σs for the intercept, and
        √Σs(y − mean)² in units of the target's scale, all over all rows: for rounding.
    risk_weight, multiplier_bound
        β and B.
    radius, fixed_ball
        R of the norm ball ‖w‖ ≤ R, which is used only where βμ = 0; and whether it was
        declared. Otherwise it is where to begin, and grows where models come near it.
    seed
        Seed of the run.
    stored
        Most inputs that a row stores, where silos keep rows sparse; 0: all are dense.
    access
        How silos are reached.
    """

    task: Task
    schema: Schema
    silo_names: tuple[str, ...]
    counts: FloatArray
    silo_counts: IntArray
    silo_weights: FloatArray
    masses: FloatArray
    silo_targets: FloatArray
    column_sizes: FloatArray
    target_size: float
    risk_weight: float
    multiplier_bound: float
    radius: float
    seed: int = 0
    fixed_ball: bool = True
    stored: int = 0
    access: Access = Access()

    @property
    def cells(self) -> Cells:
        """The cells of the constraint."""
        return self.task.cells

    @property
    def n_cells(self) -> int:
        """Number of cells Z."""
        return len(self.task.cells)

    @property
    def n_parameters(self) -> int:
        """Length p of w."""
        return self.task.model.n_parameters

    @property
    def weighted(self) -> bool:
        """Whether some rows count more than others."""
        return not np.array_equal(self.silo_weights, self.silo_counts)

    @property
    def rows(self) -> FloatArray:
        """Number of rows per cell over all silos, shape (Z,)."""
        return self.cells.totals(self.silo_counts.astype(np.float64))

    @property
    def unit(self) -> float:
        """What losses are measured in: that of a prediction one scale off."""
        return self.task.model.unit

    @property
    def mu(self) -> float:
        """μ of the ridge term, in the losses' unit."""
        return self.task.model.mu

    @property
    def modulus(self) -> float:
        """βμ: how strongly convex G is in w, whatever λ."""
        return self.risk_weight * self.mu

    @cached_property
    def scales(self) -> FloatArray:
        """What a loss is large or small against in each cell, shape (Z,).

        The cell's mean loss under the best constant model of all rows; no less than a
        thousandth of the unit.
        """
        masses, schema = self.silo_weights, self.schema
        if schema.labels:
            rows = masses.sum(axis=0).reshape(-1, schema.n_labels).sum(axis=0)
            losses = np.log(rows.sum() / divisors(rows))
            sums = masses * np.tile(losses, len(schema.groups))
        else:
            squares = self.silo_targets[:, :, 1] / divisors(masses)
            sums = masses * self.task.model.residual_losses(np.sqrt(squares))
        return np.maximum(self.cells.totals(sums) / self.counts, 1e-3 * self.unit)

    def with_cells(self, cells: Cells) -> Task:
        """Return the task with further cells behind the constraint's own.

        For methods that weigh other sets of examples: in totals, the first `n_cells`
        entries are still the constraint's.
        """
        return replace(self.task, cells=self.cells.join(cells))

    def over(self, cells: Cells) -> Problem:
        """Return the problem of weighing other cells' mean losses, and no risk.

        A cell without rows has no loss, whatever it is divided by.
        """
        counts, task = divisors(self.count(cells)), replace(self.task, cells=cells)
        return replace(self, task=task, counts=counts, risk_weight=0.0)

    def count(self, cells: Cells, silos: tuple[int, ...] | None = None) -> FloatArray:
        """Weight Σs_i of any cells' rows, over all silos or some, from the census."""
        counts = self.silo_weights.copy()
        if silos is not None:
            others = np.delete(np.arange(len(counts)), list(silos))
            counts[others] = 0.0
        return cells.totals(counts)

    def with_bounds(self, bounds: FloatArray) -> Problem:
        """Return the same problem with other ζ."""
        task = replace(self.task, cells=self.cells.with_bounds(bounds))
        return replace(self, task=task)

    def cell_weights(self, multipliers: FloatArray) -> FloatArray:
        """Return λ_z/m_z: with β p_k/m_k, the weight of each example in G."""
        return multipliers / self.counts

    def start(self) -> FloatArray:
        """Return the model's first w."""
        return self.task.model.start(self.seed)

    def start_point(self) -> Point:
        """Return the model's first w, and multipliers of 0."""
        return Point(self.start(), np.zeros(self.n_cells))

    def ridge(self, w: FloatArray) -> float:
        """Return (μ/2)‖w‖²; a network's running statistics do not count."""
        v = w[: self.task.model.n_trained]
        return 0.5 * self.mu * float(v @ v)

    def violation(self, cell_losses: FloatArray) -> FloatArray:
        """Return r from loss sums per cell."""
        return cell_losses / self.counts - self.cells.bounds

    def violation_among(
        self, cell_losses: FloatArray, silos: tuple[int, ...] | None
    ) -> FloatArray:
        """Return r over the rows of some silos; NaN for cells without rows there."""
        if silos is None:
            return self.violation(cell_losses)
        among = self.count(self.cells, silos)
        means = np.full_like(among, np.nan)
        np.divide(cell_losses, among, out=means, where=among > 0)
        return means - self.cells.bounds

    def risk(self, w: FloatArray, total: TrainTotal | EvaluateTotal) -> float:
        """Return F(w) from a total taken at w; NaN if no silo that answered counts."""
        if total.share == 0:
            return float("nan")
        return total.risk / total.share + self.ridge(w)

    def expand(self, w: FloatArray, total: ExpandTotal | Expansion) -> Expansion:
        """Turn a total taken at w into means, and add the ridge.

        Hessians that were not asked for stay empty. What is expanded already stays as
        it is.
        """
        if isinstance(total, Expansion):
            return total
        trained = np.arange(len(w)) < self.task.model.n_trained
        risk, hessians = float(total.losses[0]), total.hessians
        return Expansion(
            w,
            risk + self.ridge(w),
            total.gradients[0] + self.mu * np.where(trained, w, 0.0),
            hessians[0] + self.mu * np.eye(hessians.shape[1]),
            self.violation(total.losses[1:]),
            total.gradients[1:] / self.counts[:, None],
            hessians[1:] / self.counts[:, None, None],
        )

    def errors(self, at: Expansion) -> Errors:
        """Bound what rounding can have done to an expansion.

        Nothing is known of linear models of one's own: they count as exact.
        """
        if self._sizes is None:
            return Errors(0.0, np.zeros(self.n_cells), np.zeros(1 + self.n_cells))
        bounds = self.cells.bounds
        losses = np.append(at.risk - self.ridge(at.w), at.violation + bounds)
        return self._sizes.errors(at.w, losses, bounds, mu=self.mu)

    @cached_property
    def _sizes(self) -> Sizes | None:
        """How large the numbers are that losses are computed from, if that is known."""
        if (known := loss_limits(self.task.model)) is None:
            return None
        in_risk, pool = (self.task.shares / self.masses).max(), self.task.pool
        if pool is not None:  # which does not say what a silo's rows weigh
            in_risk *= pool.uneven
        return Sizes(
            self.column_sizes,
            self.target_size,
            np.append(float(self.silo_counts.sum()), self.rows),
            np.append(in_risk, 1 / self.counts),
            self.silo_counts.size * (1 if pool is None else pool.silos),
            *known,
            self.weighted,
            self._sparse() if self.stored else None,
        )

    def _sparse(self) -> Sparse:
        """Return what rounding does otherwise to rows that store few inputs."""
        inputs, columns = self.task.model.inputs, len(self.column_sizes)
        shifts, mean = np.zeros(columns), np.abs(inputs.mean)
        apart = mean < inputs.scale  # others are stored in every row, centred
        shifts[: len(mean)] = np.where(apart, mean / inputs.scale, 0.0)
        always = len(inputs.fill) + int((~apart).sum()) + columns - len(mean)
        return Sparse(
            min(self.stored + always, columns),
            shifts * math.sqrt(self.masses.sum()),
        )


def loss_limits(model: Model) -> tuple[float | None, float] | None:
    """Return the largest slope (None: none) and curvature of a loss in its scores.

    None for models that are not linear, of which nothing is known.
    """
    return model.score_limits if isinstance(model, LinearModel) else None


def value(
    risk: float, violation: FloatArray, multipliers: FloatArray, risk_weight: float
) -> float:
    """Return G = βF + λᵀr."""
    return risk_weight * risk + float(multipliers @ violation)


def upper_value(risk: float, violation: FloatArray, problem: SaddleTerms) -> float:
    """Return max over λ of G(w; λ) = βF(w) + B·max(0, max_z r_z(w))."""
    worst = float(violation.max(initial=0.0))
    return problem.risk_weight * risk + problem.multiplier_bound * worst


def lower_value(
    expansion: Expansion,
    multipliers: FloatArray,
    problem: SaddleTerms,
    errors: Errors | None = None,
) -> float:
    """Return a number that G(·; λ) never goes below, from one gradient.

    In floating point, too, if `errors` says how far the expansion may be off.

    Over all w where βμ > 0, over the ball ‖w‖ ≤ R otherwise. It holds at any
    w, and is tight where w minimises G.
    """
    lam, beta = multipliers, problem.risk_weight
    at_w = value(expansion.risk, expansion.violation, lam, beta)
    gradient = beta * expansion.risk_gradient + lam @ expansion.jacobian
    if errors is not None:
        at_w -= errors.lower(
            beta,
            lam,
            gradient=float(np.linalg.norm(gradient)),
            modulus=problem.modulus,
            reach=problem.radius + float(np.linalg.norm(expansion.w)),
        )
    if problem.modulus > 0:
        return gap.lower_strong(at_w, gradient, problem.modulus)
    return gap.lower_ball(at_w, gradient, expansion.w, problem.radius)
