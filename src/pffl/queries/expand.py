"""`expand` and `witness`: what a solver asks at w, and what a proof does.

**expand.** Row i of silo k has inputs x_i, a label, a weight s_i (1 unless rows have
weights) and a loss ℓ_i(w), which depends on w through its scores z_i = W(x_i, 1). The
silo answers with sums over its rows, which add over silos:

    F      p_k Σ_i s_i ℓ_i / Σ_i s_i      its share p_k of the mean loss
    z      Σ_{i∈z} s_i ℓ_i                for each cell z, a set of rows such as a group

and with what was asked for of their derivatives:

    order 1   values and gradients; Hessians times `directions`, and their diagonals;
              smooth scores
    order 2   values, gradients and Hessians
    order 0   L: how much the losses curve at most, whatever w is

Order 1 grows with p, not with p², and so is asked of models of any width.

*Smooth scores.* With `sharpness` s the silos add, per cell, the sum of σ(s·z) over its
rows and that sum's gradient: a smooth count of positive predictions, which methods on
parity gaps descend.

*Order 0* is a number per sum, for step sizes: with h_i the largest curvature of row i's
loss in its scores, a sum of losses curves by no more than
λ_max(Σ_i s_i h_i (x_i, 1)(x_i, 1)ᵀ). Each silo finds its own. The silos' largest
eigenvalues add up to a bound on that of all rows; and the q-th root of the sum of their
q-th powers bounds the largest of them, by which local steps are kept from diverging
where silos differ in scale.

*Noise.* A cell may share rows with another. So strata (group and label) are put into
blocks of those that are in the same cells, and a person is in one block. Losses,
gradients and a bound on Hessians are released for each block; sums for F and for cells
follow from these. `declared_parts` states how much one person can change each of them.

**witness.** A plane below a weighted loss. With weights c_i ≥ 0 and any slopes u_i at
which the conjugate ℓ* is finite,

    Σ c_i ℓ_i(w')  ≥  Σ c_i (−ℓ*(u_i))  +  (Σ c_i u_i ⊗ (x_i, 1))ᵀ w'     for every w'

(Fenchel and Young). The silos take u_i from w, moved along `direction` as second order
says, and answer with both sums: `value` and `residual`. If the residual is 0, `value`
is a lower bound for all models, however long their weights are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import ClassVar

import numpy as np

from pffl.bounds.infeasible import BLOCK
from pffl.errors import UsageError
from pffl.models.linear import LinearModel
from pffl.models.scaled import Design, ScaledRows
from pffl.numerics import sigmoid
from pffl.queries.base import (
    LOSS,
    Dims,
    ModelQuery,
    RowRange,
    Task,
    Total,
    View,
    array,
    empty,
    vector,
)
from pffl.queries.release import (
    QUARTER_SQUARES,
    Part,
    TrainingQuery,
    blocks_of,
    longest_gradient,
    longest_input,
    losses_part,
    refuse,
)
from pffl.typing import FloatArray

SCORE = RowRange(0.0, 1.0, weighted=True)
CURVED = RowRange(0.0)
MAX_DIRECTIONS = 64
POWER = 8  # q: the bound on the largest of K silos is loose by K^(1/8) at most
POWER_STEPS = 12  # of the power method
POWER_MARGIN = 1.1  # what it may be short of; steps of less than twice 1/L are safe
MAX_GRAM = 64  # rows or columns, up to which the bound is one of a Gram matrix


class ExpandTotal(Total):
    """Sums over silos; F stands first, as Σ p_k × silo means, without the ridge.

    What was not asked for has no length. Axes: v, F and then each cell; z, the cells;
    p, parameters; t, an upper triangle of p × p; d, directions; g, p or none; s, one
    score or none; l, as v.

    Attributes
    ----------
    losses, gradients, triangles
        Of F, and of each cell's loss sum; Hessians by their upper triangles.
    products
        A Hessian times each direction, one row a direction.
    diagonals
        Of the Hessians.
    scores, score_gradients
        Σσ(s·z) of each cell.
    curvatures
        L of the silo's p_k F_k, and of its loss sum in each cell.
    peaks
        (L/p_k)^q of the same, in units of what is typical: of what each is in the
        silo's G_k.
    """

    losses: FloatArray = array("v", row=LOSS)
    gradients: FloatArray = array("v", "p")
    triangles: FloatArray = array("v", "t")
    products: FloatArray = array("v", "d", "p")
    diagonals: FloatArray = array("v", "g")
    scores: FloatArray = array("z", "s", row=SCORE)
    score_gradients: FloatArray = array("z", "s", "p")
    curvatures: FloatArray = array("l", row=CURVED)
    peaks: FloatArray = array("l", row=CURVED)

    @property
    def hessians(self) -> FloatArray:
        """Hessians of F and of each cell's loss sum, shape (1 + Z, p, p)."""
        return unfolded(self.triangles, self.gradients.shape[1])


class Expand(TrainingQuery[ExpandTotal]):
    """Ask for F and each cell at `w`; of order 0, `w` is any.

    Attributes
    ----------
    order
        0, 1 or 2.
    directions
        Directions to multiply Hessians with, as columns, shape (p, d).
    diagonal
        Whether the diagonals of Hessians are asked for.
    sharpness
        s of the smooth scores σ(s·z); 0 for none.
    typical
        What L/p_k is about, so that powers of it stay in the range of fixed point;
        empty for the losses' unit.
    sample
        Rows of a stratum that are enough for Hessians, which may then be estimates; 0:
        all rows. Sites are not told, and take all.
    noise, loss_bound
        Of losses up to M, of gradients and of ¼Σxxᵀ, which no Hessian of a logistic
        loss is above, of each block of strata: F and cells follow from these.
    """

    total_type: ClassVar = ExpandTotal
    releasable: ClassVar = ("losses", "gradients", "curvatures")

    order: int = 1
    directions: FloatArray = vector(
        "p", "any", most=MAX_DIRECTIONS, default_factory=empty
    )
    diagonal: bool = False
    sharpness: float = 0.0
    typical: FloatArray = vector("1+z", default_factory=empty)
    sample: int = 0

    def __post_init__(self) -> None:
        if self.directions.size == 0:
            none = np.zeros((self.task.model.n_parameters, 0))
            object.__setattr__(self, "directions", none)
        at_w = bool(self.directions.size or self.diagonal or self.sharpness)
        wrong = (self.order == 0 and at_w) or (self.order == 2 and self.diagonal)
        if self.order not in (0, 1, 2) or wrong:
            raise UsageError("wrong-order:expand")
        super().__post_init__()

    def check_release(self) -> None:
        """Refuse what has no declared sensitivity."""
        super().check_release()
        if self.order == 0 or self.directions.size or self.diagonal or self.sharpness:
            refuse("products with Hessians, scores and bounds on curvature")
        if "curvatures" in self.parts and self.task.model.n_outputs > 1:
            refuse("curvature of several outputs")

    def declared_parts(self) -> Mapping[str, Part]:
        """Return what is released: a person is in one block."""
        model, (sets, _) = linear(self.task), blocks_of(self.task.cells)
        blocks, size = len(sets), model.n_columns * (model.n_columns + 1) // 2
        longest = longest_gradient(model)
        return {
            "losses": losses_part(self.loss_bound, sets),
            "gradients": Part(
                (blocks, model.n_parameters), longest, lambda r: r.gradients(sets)
            ),
            "curvatures": Part(
                (blocks, size),
                longest_input(model) ** 2 / 4,
                lambda rows: rows.curvatures(sets),
                QUARTER_SQUARES,
            ),
        }

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer."""
        if self.released:
            return {"n": self.length}
        shared, asked = super().dims, self.order > 0
        h = shared["p"] if self.order == 2 else 0
        return {
            **shared,
            "v": shared["1+z"] if asked else 0,
            "h": h,
            "t": h * (h + 1) // 2,
            "d": self.directions.shape[1],
            "g": shared["p"] if self.diagonal else 0,
            "s": int(self.sharpness > 0),
            "l": 0 if asked else shared["1+z"],
        }

    @property
    def steepness(self) -> float:
        """By how much the answer is steeper in w than losses are."""
        return max(self.sharpness, 1.0)

    def answer(self, view: View) -> ExpandTotal:
        """Answer for one silo, one sum after the other: F first, then each cell."""
        if self.released:
            return self.add_whole(view)
        model, weights = linear(self.task), row_weights(self.task, view)
        X, y, p = view.X, view.y, model.n_parameters
        if self.order == 0:
            found = [curvature(model, X, row) for row in weights]
            return self.curved(np.array(found), float(self.task.shares[view.index]))
        z = model.scores(self.w, X)
        losses, slopes = model.score_losses_and_slopes(z, y)
        in_cells = weights[1:]
        # Sums add in pairs, unlike a product: what rounding can do stays small.
        risk = view.weigh(losses).sum() * in_mean(self.task, view)
        known = {
            "losses": np.append(risk, (in_cells * losses).sum(axis=1)),
            "gradients": gradients_of(model, X, slopes, weights),
        }
        if self.order == 2:
            hessians = [model.hessian(self.w, X, y, row) for row in weights]
            known["hessians"] = np.array(hessians)
        if self.directions.size:
            changes = (
                model.slope_changes(v[:, None], X, z, y) for v in self.directions.T
            )
            products = [gradients_of(model, X, slopes, weights) for slopes in changes]
            known["products"] = np.stack(products, axis=1)
        if self.diagonal:
            bent = model.score_curvatures(z, y)
            diagonals = [model.diagonal(X, (bent.T * row).T) for row in weights]
            known["diagonals"] = np.array(diagonals)
        if self.sharpness:
            scores, score_slopes = self.scores(z)
            gradients = gradients_of(model, X, score_slopes, in_cells)
            known["scores"] = (in_cells @ scores)[:, None]
            known["score_gradients"] = gradients.reshape(-1, 1, p)
        return self.total(**known)

    def total(self, **known: FloatArray) -> ExpandTotal:
        """Return an answer of these parts; what was not asked for has no length."""
        dims, declared = self.dims, ExpandTotal.declared
        if (hessians := known.pop("hessians", None)) is not None and self.order == 2:
            upper = np.triu_indices(dims["p"])
            known["triangles"] = hessians[..., upper[0], upper[1]]
        none = {n: np.zeros(of.shape(dims)) for n, of in declared.items()}
        return ExpandTotal(**{**none, **known})

    def scores(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return σ(s·z) and its slope for each example."""
        if z.ndim > 1:
            raise UsageError("no-scores")
        smooth = sigmoid(self.sharpness * z)
        return smooth, self.sharpness * smooth * (1 - smooth)

    def curved(self, sums: FloatArray, share: float) -> ExpandTotal:
        """Return one silo's answer of order 0."""
        typical = self.typical if self.typical.size else self.task.model.unit
        own = sums / (share * typical) if share > 0 else 0.0 * sums
        return self.total(curvatures=sums, peaks=own**POWER)


def unfolded(triangles: FloatArray, p: int) -> FloatArray:
    """Return symmetric matrices, from their upper triangles; empty ones from none."""
    p = p if triangles.shape[-1] else 0
    matrices = np.zeros((*triangles.shape[:-1], p, p))
    rows, columns = np.triu_indices(p)
    matrices[..., rows, columns] = matrices[..., columns, rows] = triangles
    return matrices


def in_mean(task: Task, view: View) -> float:
    """Return p_k/m_k, the factor of s_i ℓ_i in F; m_k is the silo's total weight."""
    return float(task.shares[view.index] / (view.mass or 1.0))


def row_weights(task: Task, view: View) -> FloatArray:
    """Weights of a silo's rows in F, then in each cell, shape (1 + Z, n)."""
    member = task.cells.of_silo(view.index)[:, view.stratum]
    in_risk = np.full((1, len(view)), in_mean(task, view))
    rows = np.concatenate([in_risk, member])
    return rows if view.weight is None else rows * view.weight


def gradients_of(
    model: LinearModel, X: Design, slopes: FloatArray, weights: FloatArray
) -> FloatArray:
    """Return the gradient Σ_i weights_i slopes_i ⊗ (x_i, 1) for each row of weights."""
    found = [model.pull_back(X, (slopes.T * row).T) for row in weights]
    return np.reshape(found, (len(weights), model.n_parameters))


def linear(task: Task) -> LinearModel:
    """Return the task's model, which must be a linear one."""
    if not isinstance(task.model, LinearModel):
        raise UsageError("not-linear:linear", name=type(task.model).__name__)
    return task.model


def curvature(model: LinearModel, X: Design, weights: FloatArray) -> float:
    """Return a bound on λ_max(Σ_i weights_i h_i (x_i, 1)(x_i, 1)ᵀ).

    Of wide or sparse rows it is an estimate with a margin, not proved: for step sizes.
    """
    rows = np.flatnonzero(weights)
    if len(rows) < len(weights):
        X, weights = X[rows], weights[rows]
    if not len(rows):
        return 0.0
    sizes = weights * model.score_limits[1]
    if isinstance(X, np.ndarray) and min(X.shape[0], X.shape[1] + 1) <= MAX_GRAM:
        return _gram_norm(X, sizes, intercept=model.intercept)
    return _power_norm(X, sizes, intercept=model.intercept)


def _gram_norm(X: FloatArray, sizes: FloatArray, *, intercept: bool) -> float:
    """Return Schatten's 4-norm: above λ_max, by a factor of rank^(1/4) at most."""
    scaled = X * np.sqrt(sizes)[:, None]
    if X.shape[0] <= X.shape[1]:
        gram = scaled @ scaled.T
        if intercept:
            root = np.sqrt(sizes)
            gram += np.outer(root, root)
    else:
        if intercept:
            scaled = np.column_stack([scaled, np.sqrt(sizes)])
        gram = scaled.T @ scaled
    return float(np.sqrt(np.linalg.norm(gram @ gram)))


def _power_norm(X: Design, sizes: FloatArray, *, intercept: bool) -> float:
    """Return λ_max by the power method, and a margin."""
    v = np.random.default_rng(0).standard_normal(X.shape[1] + intercept)
    found = 0.0
    for _ in range(POWER_STEPS):
        v /= max(float(np.linalg.norm(v)), 1e-300)
        z = X @ v[: X.shape[1]]
        if intercept:
            z = z + v[-1]
        z = z * sizes
        v[: X.shape[1]] = (z[None] @ X)[0]
        if intercept:
            v[-1] = z.sum()
        found = float(np.linalg.norm(v))
    return POWER_MARGIN * found


class WitnessTotal(Total):
    """Sums over silos.

    Attributes
    ----------
    value
        Σ c_i (−ℓ*(u_i)).
    residual
        Σ c_i u_i ⊗ (x_i, 1).
    sizes
        Sums of the terms of both without their signs, by which rounding is bounded:
        of `value`, and Σ c_i ‖u_i‖ ‖(x_i, 1)‖.
    """

    value: float = array()
    residual: FloatArray = array("p")
    sizes: FloatArray = array(2, row=RowRange(0.0))


class Witness(ModelQuery[WitnessTotal]):
    """Ask for the plane of the slopes at `w`, moved along `direction`.

    Attributes
    ----------
    risk_weight, cell_weights
        β and λ_z/m_z ≥ 0: c_i = s_i(β p_k/m_k + Σ_{z∋i} λ_z/m_z).
    direction
        v: the score of row i moves by −(x_i, 1)ᵀv.
    """

    total_type: ClassVar = WitnessTotal

    risk_weight: float
    cell_weights: FloatArray = vector("z")
    direction: FloatArray = vector("p")
    split: str = field(default="train", init=False)

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        """Everything that rows are scored with."""
        return self.w, self.direction

    def answer(self, view: View) -> WitnessTotal:
        """Answer for one silo."""
        per_stratum = self.cell_weights @ self.task.cells.of_silo(view.index)
        share = float(self.task.shares[view.index])
        in_risk = self.risk_weight * share / (view.mass or 1.0)
        weights = view.weigh(per_stratum[view.stratum] + in_risk)
        return self.total(self.sums(linear(self.task), view.X, view.y, weights))

    def sums(
        self, model: LinearModel, X: Design, y: FloatArray, weights: FloatArray
    ) -> list[FloatArray]:
        """Return for each block of rows its value, two sizes and residual, packed."""
        shift = model.scores(self.direction, X)
        slopes, values, sizes = model.duals(model.scores(self.w, X), y, shift)
        lengths = _lengths(X, model)
        if slopes.ndim == 1:
            lengths *= np.abs(slopes)
            slopes = slopes * weights
        else:  # on the simplex only up to rounding of 1
            lengths *= 1.0 + np.linalg.norm(slopes, axis=1)
            slopes = slopes * weights[:, None]
        columns = np.stack([values, sizes, lengths], axis=1) * weights[:, None]
        if isinstance(X, ScaledRows):  # a block is as wide as all columns
            sums = np.ascontiguousarray(columns.T).sum(axis=1)
            return [np.append(sums, _pairwise_residual(model, X, slopes))]
        return [
            np.append(columns[rows].sum(axis=0), model.pull_back(X[rows], slopes[rows]))
            for rows in (slice(i, i + BLOCK) for i in range(0, len(X), BLOCK))
        ]

    def total(self, blocks: Sequence[FloatArray]) -> WitnessTotal:
        """Add blocks up exactly: the residual is what is left of large terms."""
        if not blocks:
            blocks = [np.zeros(3 + self.task.model.n_parameters)]
        sums = blocks[0]
        if len(blocks) > 1:
            columns = np.stack(blocks, axis=1).tolist()
            sums = np.array([math.fsum(column) for column in columns])
        return WitnessTotal(float(sums[0]), sums[3:], sums[1:3])


def _lengths(X: Design, model: LinearModel) -> FloatArray:
    """Return ‖(x, 1)‖ of each row; of sparse ones a bound on what their sums add up."""
    if isinstance(X, ScaledRows):
        return np.hypot(X.lengths(), model.intercept)
    return np.sqrt(np.einsum("ij,ij->i", X, X) + model.intercept)


def _pairwise_residual(
    model: LinearModel, X: ScaledRows, slopes: FloatArray
) -> FloatArray:
    """Return ``Σ_i slopes_i ⊗ (x_i, 1)``, added up in pairs."""
    columns = np.ascontiguousarray(slopes.reshape(len(X), -1).T)
    residual = X.pairwise(columns)
    if model.intercept:
        residual = np.column_stack([residual, columns.sum(axis=1)])
    return residual.reshape(-1)
