"""`evaluate` and `curvature` for linear models over laid-out rows.

Rows are passed over piece by piece, and several questions share a pass: each piece is
read once for all of them, and each is answered as if it were alone.

Scores of one model with q outputs, or of S models with one output each, are columns of
one matrix product; "columns" is that last axis wherever the engine speaks of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pffl.engines.local.layout import Layout, Piece, piece_rows
from pffl.engines.local.threads import Spread
from pffl.models.linear import LinearModel
from pffl.questions import Curvature, CurvatureTotal, Evaluate, EvaluateTotal
from pffl.questions.curvature import linear, powers
from pffl.questions.evaluate import COLUMNS
from pffl.typing import FloatArray

MOST_SUMS = 1 << 22  # numbers of a stack of evaluations


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


def evaluate(
    layout: Layout, questions: Sequence[Evaluate], spread: Spread
) -> list[EvaluateTotal]:
    """Answer questions about one task and split, for all silos."""
    model = linear(questions[0].task)
    at_once = max(1, MOST_SUMS // (layout.n_silos * layout.n_atoms * len(COLUMNS)))
    if len(questions) > at_once:
        head, tail = questions[:at_once], questions[at_once:]
        return evaluate(layout, head, spread) + evaluate(layout, tail, spread)
    parts = spread(
        lambda pieces: evaluate_pass(layout, questions, model, pieces),
        layout.pieces(),
        len(layout.X),
    )
    found = zip(questions, np.sum(parts, axis=0), strict=True)
    return [_evaluated(layout, question, sums) for question, sums in found]


def _evaluated(layout: Layout, question: Evaluate, sums: FloatArray) -> EvaluateTotal:
    """Return the total from sums per unit."""
    task = question.task
    by_silo = layout.to_federation(
        np.reshape(sums, (layout.n_silos, layout.n_atoms, -1))
    )
    counts = by_silo[:, :, 0].sum(axis=1)
    present = counts > 0
    losses = by_silo[:, :, 1].sum(axis=1)
    means = np.divide(losses, counts, out=np.zeros_like(losses), where=present)
    return EvaluateTotal(
        by_silo.sum(axis=0),
        task.cells.totals(by_silo),
        float(task.shares @ means),
        float(task.shares[present].sum()),
    )


def evaluate_pass(
    layout: Layout,
    questions: Sequence[Evaluate],
    model: LinearModel,
    pieces: Sequence[Piece],
) -> FloatArray:
    """Sums of the evaluation columns per question and unit."""
    sums = np.zeros((len(questions), layout.n_silos * layout.n_atoms, len(COLUMNS)))
    for piece in pieces:
        X, y = layout.X[piece.rows], layout.y[piece.rows]
        for question, into in zip(questions, sums, strict=True):
            z = model.scores(question.w, X)
            losses, classes = model.score_losses(z, y), model.score_classes(z)
            into[piece.units] += run_sums(piece, question.columns(losses, classes, y))
    return sums


def expand(
    layout: Layout, questions: Sequence[Curvature], spread: Spread
) -> list[CurvatureTotal]:
    """Answer questions about one task, for all silos."""
    model = linear(questions[0].task)
    parts = spread(
        lambda pieces: curvature_pass(layout, questions, model, pieces),
        layout.pieces(),
        len(layout.X) * model.n_parameters,
    )
    return [
        _expanded(sums, question, _peaks(layout, question, model, spread))
        for question, *sums in zip(questions, *parts, strict=True)
    ]


def _expanded(
    parts: Sequence[CurvatureSums], question: Curvature, peaks: FloatArray
) -> CurvatureTotal:
    """Return the total from the parts' packed sums."""
    cells, packing = question.task.cells, parts[0].packing
    risk = np.sum([part.risk for part in parts], axis=0)
    everywhere = cells.everywhere[:, None] * cells.membership
    packed = everywhere @ np.sum([part.atoms for part in parts], axis=0)
    packed += np.sum([part.cells for part in parts], axis=0)
    p, h = packing.p, packing.p if packing.hessian else 0
    score = packed[:, packing.score_part]
    return CurvatureTotal(
        float(risk[0]),
        risk[1 : p + 1],
        risk[packing.hessian_part].reshape(h, h),
        packed[:, 0],
        packed[:, 1 : p + 1],
        packed[:, packing.hessian_part].reshape(len(cells), h, h),
        score[:, 0] if packing.score else np.zeros(len(cells)),
        score[:, 1:] if packing.score else np.zeros((len(cells), p)),
        peaks,
    )


def _peaks(
    layout: Layout, question: Curvature, model: LinearModel, spread: Spread
) -> FloatArray:
    """Σ_k ‖H‖^q for F and each cell, see `CurvatureTotal.peaks`."""
    cells, shares = question.task.cells, question.task.shares[layout.order]
    if not (question.majorant and question.order == 2):
        return np.zeros(1 + len(cells))

    def part(positions: Sequence[int]) -> FloatArray:
        total = np.zeros(1 + len(cells))
        for position in positions:
            rows = slice(layout.starts[position], layout.starts[position + 1])
            total += _silo_peaks(layout, question, model, position, rows) * (
                shares[position] > 0
            )
        return total

    positions = range(layout.n_silos)
    return np.sum(spread(part, positions, len(layout.X) * model.n_parameters), axis=0)


def _silo_peaks(
    layout: Layout,
    question: Curvature,
    model: LinearModel,
    position: int,
    rows: slice,
) -> FloatArray:
    """‖H‖^q for F and each cell in one silo, from the Hessians of its atoms."""
    p, share = model.n_parameters, question.task.shares[layout.order[position]]
    by_atom = np.zeros((layout.n_atoms, p, p))
    step = piece_rows(layout.X.shape[1])
    for start in range(rows.start, rows.stop, step):
        piece = layout.piece(slice(start, min(start + step, rows.stop)))
        X = layout.X[piece.rows]
        z = np.zeros(len(X) if model.n_outputs == 1 else (len(X), model.n_outputs))
        curvatures = model.score_curvatures(z, layout.y[piece.rows], majorant=True)
        for unit, run in piece.runs():
            by_atom[unit % layout.n_atoms] += model.gram(X[run], curvatures[run])
    member = question.task.cells.of_silo(int(layout.order[position]))
    hessians = np.concatenate(
        [
            by_atom.sum(axis=0)[None] / layout.sizes[position],
            np.tensordot(member, by_atom, axes=1) / max(share, 1e-300),
        ]
    )
    return powers(hessians)


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

    packing: Packing
    risk: FloatArray
    atoms: FloatArray
    cells: FloatArray

    @classmethod
    def zero(cls, layout: Layout, question: Curvature, p: int) -> CurvatureSums:
        """Nothing yet."""
        packing = Packing(p, question.order == 2, question.sharpness > 0)
        size, cells = packing.size, len(question.task.cells)
        return cls(
            packing,
            np.zeros(size),
            np.zeros((layout.n_atoms, size)),
            np.zeros((cells, size)),
        )


def curvature_pass(
    layout: Layout,
    questions: Sequence[Curvature],
    model: LinearModel,
    pieces: Sequence[Piece],
) -> list[CurvatureSums]:
    """Expand run by run: each row enters one product, whatever the cells."""
    task = questions[0].task
    cells, risk_weights = task.cells, task.shares[layout.order] / layout.sizes
    found = [CurvatureSums.zero(layout, q, model.n_parameters) for q in questions]
    own_cells: dict[int, list[int]] = {}
    for cell in np.flatnonzero(~cells.everywhere).tolist():
        own_cells.setdefault(int(cells.silo[cell]), []).append(cell)
    for piece, (question, sums) in itertools.product(
        pieces, list(zip(questions, found, strict=True))
    ):
        for unit, packed in _packed_runs(layout, question, model, piece, sums.packing):
            position, atom = divmod(unit, layout.n_atoms)
            sums.risk += risk_weights[position] * packed
            sums.atoms[atom] += packed
            for cell in own_cells.get(int(layout.order[position]), ()):
                if cells.membership[cell, atom]:
                    sums.cells[cell] += packed
    return found


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
        curvatures = model.score_curvatures(z, y, majorant=question.majorant)
    scores, score_slopes = question.scores(z)
    for unit, run in piece.runs():
        packed[0] = losses[run].sum()
        packed[1 : p + 1] = model.pull_back(X[run], slopes[run])
        if packing.hessian:
            gram = model.gram(X[run], curvatures[run])
            packed[packing.hessian_part] = gram.reshape(-1)
        if packing.score:
            gradient = model.pull_back(X[run], score_slopes[run])
            packed[packing.score_part] = np.append(scores[run].sum(), gradient)
        yield unit, packed
