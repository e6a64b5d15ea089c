"""Passes over laid-out rows for linear models: the fast twins of the questions.

Scores of one model with q outputs, or of S models with one output each, are columns
of one matrix product. "Columns" below is that last axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pffl.engines._layout import Layout, Piece, piece_rows
from pffl.models.linear import LinearModel
from pffl.questions import Curvature, Evaluate, Train
from pffl.questions.evaluate import COLUMNS
from pffl.typing import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Columns:
    """Coefficients as columns of one product, and the pointwise parts of the model."""

    model: LinearModel
    w: FloatArray  # (columns, features + intercept)

    def scores(self, X: FloatArray) -> FloatArray:
        """Return scores, shape (n, columns)."""
        d = X.shape[1]
        z = X @ self.w[:, :d].T
        if self.model.intercept:
            z += self.w[:, d]
        return z

    def losses(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return losses, shape (n, models)."""
        if self.model.n_outputs > 1:
            return self.model.score_losses(z, y)[:, None]
        return self.model.score_losses(z, y[:, None])

    def losses_and_slopes(
        self, z: FloatArray, y: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return losses, shape (n, models), and slopes, shape (n, columns)."""
        if self.model.n_outputs > 1:
            losses, slopes = self.model.score_losses_and_slopes(z, y)
            return losses[:, None], slopes
        return self.model.score_losses_and_slopes(z, y[:, None])

    def pull_back(self, X: FloatArray, slopes: FloatArray, out: FloatArray) -> None:
        """Add the gradients, shape (columns, features + intercept), to `out`."""
        d = X.shape[1]
        out[:, :d] += slopes.T @ X
        if self.model.intercept:
            out[:, d] += slopes.sum(axis=0)


def run_sums(piece: Piece, values: FloatArray) -> FloatArray:
    """Sum rows, shape (n, c), over each run."""
    if values.shape[1] == 1:
        return np.add.reduceat(values[:, 0], piece.starts)[:, None]
    return np.add.reduceat(values, piece.starts, axis=0)


def losses_pass(
    layout: Layout, columns: Columns, pieces: Sequence[Piece], models: int
) -> FloatArray:
    """Loss sums per unit, shape (units, models)."""
    sums = np.zeros((layout.n_silos * layout.n_atoms, models))
    for piece in pieces:
        z = columns.scores(layout.X[piece.rows])
        sums[piece.units] += run_sums(piece, columns.losses(z, layout.y[piece.rows]))
    return sums


def gradient_pass(
    layout: Layout,
    columns: Columns,
    pieces: Sequence[Piece],
    unit_weights: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Loss sums per unit, and Σ_i weight_i ∇ℓ_i for each column, in one pass."""
    sums = np.zeros_like(unit_weights)
    gradients = np.zeros_like(columns.w)
    for piece in pieces:
        X = layout.X[piece.rows]
        losses, slopes = columns.losses_and_slopes(
            columns.scores(X), layout.y[piece.rows]
        )
        sums[piece.units] += run_sums(piece, losses)
        slopes *= np.repeat(unit_weights[piece.units], piece.lengths, axis=0)
        columns.pull_back(X, slopes, gradients)
    return sums, gradients


def evaluate_pass(
    layout: Layout, question: Evaluate, model: LinearModel, pieces: Sequence[Piece]
) -> FloatArray:
    """Sums of the evaluation columns per unit."""
    sums = np.zeros((layout.n_silos * layout.n_atoms, len(COLUMNS)))
    for piece in pieces:
        y = layout.y[piece.rows]
        z = model.scores(question.w, layout.X[piece.rows])
        values = question.columns(model.score_losses(z, y), model.score_classes(z), y)
        sums[piece.units] += run_sums(piece, values)
    return sums


@dataclass(frozen=True)
class Packing:
    """Where value, gradient, Hessian, score and its gradient stand in one vector."""

    p: int
    hessian: bool
    score: bool

    @property
    def size(self) -> int:
        """Length of the vector."""
        return 1 + self.p + self.hessian * self.p**2 + self.score * (1 + self.p)

    @property
    def hessian_part(self) -> slice:
        """Place of the Hessian."""
        return slice(1 + self.p, 1 + self.p + self.hessian * self.p**2)

    @property
    def score_part(self) -> slice:
        """Place of the score and its gradient."""
        return slice(self.hessian_part.stop, self.size)


@dataclass(eq=False)
class CurvatureSums:
    """Packed sums for F, for each atom and for each silo's own cells."""

    risk: FloatArray
    atoms: FloatArray
    cells: FloatArray


def curvature_pass(
    layout: Layout,
    question: Curvature,
    model: LinearModel,
    pieces: Sequence[Piece],
    risk_weights: FloatArray,
    packing: Packing,
) -> CurvatureSums:
    """Expand run by run: each row enters one product, whatever the cells."""
    size, cells = packing.size, question.task.cells
    sums = CurvatureSums(
        np.zeros(size), np.zeros((layout.n_atoms, size)), np.zeros((len(cells), size))
    )
    own_cells: dict[int, list[int]] = {}
    for cell in np.flatnonzero(~cells.everywhere).tolist():
        own_cells.setdefault(int(cells.silo[cell]), []).append(cell)
    for piece in pieces:
        for unit, packed in _packed_runs(layout, question, model, piece, packing):
            position, atom = divmod(unit, layout.n_atoms)
            sums.risk += risk_weights[position] * packed
            sums.atoms[atom] += packed
            for cell in own_cells.get(int(layout.order[position]), ()):
                if cells.membership[cell, atom]:
                    sums.cells[cell] += packed
    return sums


def _packed_runs(
    layout: Layout,
    question: Curvature,
    model: LinearModel,
    piece: Piece,
    packing: Packing,
) -> Iterator[tuple[int, FloatArray]]:
    """Yield (unit, packed sums) for each run; the array is used again."""
    p = packing.p
    packed = np.empty(packing.size)
    X, y = layout.X[piece.rows], layout.y[piece.rows]
    z = model.scores(question.w, X)
    losses, slopes = model.score_losses_and_slopes(z, y)
    if packing.hessian:
        curvatures = model.score_curvatures(z, majorant=question.majorant)
    scores, score_slopes = question.scores(z)
    for unit, start, length in zip(
        piece.units.tolist(), piece.starts.tolist(), piece.lengths.tolist(), strict=True
    ):
        run = slice(start, start + length)
        packed[0] = losses[run].sum()
        packed[1 : p + 1] = model.pull_back(X[run], slopes[run])
        if packing.hessian:
            gram = model.gram(X[run], curvatures[run])
            packed[packing.hessian_part] = gram.reshape(-1)
        if packing.score:
            gradient = model.pull_back(X[run], score_slopes[run])
            packed[packing.score_part] = np.append(scores[run].sum(), gradient)
        yield unit, packed


def steps_pass(
    layout: Layout,
    questions: Sequence[Train],
    columns: Columns,
    groups: Sequence[range],
    unit_weights: FloatArray,
    tilts: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Take all local steps.

    Returns Σ_k p_k F_k^q Δ_k, shape (columns, features + intercept), and ‖Δ_k‖² per
    position and model. `tilts` holds p_k F_k^q, shape (positions, models).
    """
    first = questions[0]
    models = unit_weights.shape[1]
    per_model = len(columns.w) // models
    column_of = np.repeat(np.arange(models), per_model)
    rates = np.array([q.step_sizes for q in questions])[column_of]  # (columns, J)
    ridge = np.array([q.ridge_weight for q in questions])[column_of]
    update = np.zeros_like(columns.w)
    lengths = np.zeros_like(tilts)
    for group in groups:
        w = np.repeat(columns.w[None], len(group), axis=0)  # (silos, columns, c)
        for j, (X, y, weights) in enumerate(
            _local_rows(layout, first, group, unit_weights)
        ):
            gradient = _block_gradient(columns.model, w, X, y, weights)
            gradient += ridge[None, :, None] * w
            if first.proximal:
                gradient += first.proximal * (w - columns.w)
            gradient *= rates[None, :, j, None]
            w -= gradient
        w -= columns.w
        here = slice(group.start, group.stop)
        update += np.einsum("ks,ksc->sc", tilts[here][:, column_of], w)
        squares = np.einsum("ksc,ksc->ks", w, w)
        lengths[here] = squares.reshape(len(group), models, per_model).sum(axis=2)
    return update, lengths


def _local_rows(
    layout: Layout, question: Train, group: range, unit_weights: FloatArray
) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
    """Rows and weights of each local step: (silos, n, d), (silos, n), (silos, n, S)."""
    sizes = layout.sizes[group.start : group.stop]
    batch = question.batch_size
    if batch is None or batch >= sizes.max():
        lo, hi = layout.starts[group.start], layout.starts[group.stop]
        if sizes[0] == sizes[-1]:
            shape = (len(group), int(sizes[0]))
            X = layout.X[lo:hi].reshape(*shape, -1)
            y = layout.y[lo:hi].reshape(shape)
            weights = unit_weights[layout.units[lo:hi]].reshape(*shape, -1)
            return [(X, y, weights)] * len(question.step_sizes)
        whole = [np.arange(a, b) for a, b in _bounds(layout, group)]
        return [_gather(layout, whole, sizes, unit_weights)] * len(question.step_sizes)
    drawn = []
    for position in group:
        places = layout.places(position)
        index = int(layout.order[position])
        drawn.append([places[b] for b in question.batches(index, len(places))])
    return [
        _gather(layout, list(step), sizes, unit_weights)
        for step in zip(*drawn, strict=True)
    ]


def _bounds(layout: Layout, group: range) -> list[tuple[int, int]]:
    return [(int(layout.starts[k]), int(layout.starts[k + 1])) for k in group]


def _gather(
    layout: Layout, rows: list[IntArray], sizes: IntArray, unit_weights: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Stack each silo's rows; short ones are padded with rows of weight 0."""
    longest = max(len(index) for index in rows)
    padded = np.array(
        [np.concatenate([i, np.repeat(i[:1], longest - len(i))]) for i in rows]
    )
    weights = unit_weights[layout.units[padded]]
    for k, index in enumerate(rows):
        weights[k, : len(index)] *= sizes[k] / len(index)
        weights[k, len(index) :] = 0.0
    return layout.X[padded], layout.y[padded], weights


def _block_gradient(
    model: LinearModel,
    w: FloatArray,
    X: FloatArray,
    y: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Weighted gradients of a block: silo b has its own w[b] and its rows X[b]."""
    d = X.shape[2]
    step = max(64, piece_rows(d) // len(X))
    gradient = np.empty_like(w)
    if X.shape[1] <= step:
        _write_gradient(model, w, X, y, weights, gradient)
        return gradient
    part = np.empty_like(w)
    gradient[:] = 0.0
    for start in range(0, X.shape[1], step):
        rows = slice(start, start + step)
        _write_gradient(model, w, X[:, rows], y[:, rows], weights[:, rows], part)
        gradient += part
    return gradient


def _write_gradient(
    model: LinearModel,
    w: FloatArray,
    X: FloatArray,
    y: FloatArray,
    weights: FloatArray,
    out: FloatArray,
) -> None:
    """Write the weighted gradients of a block that fits in cache to `out`."""
    d = X.shape[2]
    z = np.matmul(X, w[:, :, :d].swapaxes(1, 2))
    if model.intercept:
        z += w[:, None, :, d]
    if model.n_outputs > 1:
        flat = model.score_slopes(z.reshape(-1, z.shape[2]), y.reshape(-1))
        slopes = flat.reshape(z.shape)
    else:
        slopes = model.score_slopes(z, y[..., None])
    slopes *= weights
    np.matmul(slopes.swapaxes(1, 2), X, out=out[:, :, :d])
    if model.intercept:
        np.add.reduce(slopes, axis=1, out=out[:, :, d])
