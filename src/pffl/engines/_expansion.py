"""`curvature` for linear models over laid-out rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pffl.engines._layout import Layout, Piece, piece_rows
from pffl.engines._threads import Spread
from pffl.models.linear import LinearModel
from pffl.questions import Curvature, CurvatureTotal
from pffl.questions.curvature import linear, powers
from pffl.typing import FloatArray


def expand(layout: Layout, question: Curvature, spread: Spread) -> CurvatureTotal:
    """Answer for all silos."""
    model, cells = linear(question.task), question.task.cells
    p = model.n_parameters
    packing = Packing(p, question.order == 2, question.sharpness > 0)
    risk_weights = question.task.shares[layout.order] / layout.sizes
    results = spread(
        lambda pieces: curvature_pass(
            layout, question, model, pieces, risk_weights, packing
        ),
        layout.pieces(),
        len(layout.X) * p,
    )
    risk = np.sum([r.risk for r in results], axis=0)
    everywhere = cells.everywhere[:, None] * cells.membership
    packed = everywhere @ np.sum([r.atoms for r in results], axis=0)
    packed += np.sum([r.cells for r in results], axis=0)
    h = p if packing.hessian else 0
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
        _peaks(layout, question, model, spread),
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
        z = (
            np.zeros(len(X))
            if model.n_outputs == 1
            else np.zeros((len(X), model.n_outputs))
        )
        curvatures = model.score_curvatures(z, layout.y[piece.rows], majorant=True)
        for unit, begin, length in zip(
            piece.units.tolist(),
            piece.starts.tolist(),
            piece.lengths.tolist(),
            strict=True,
        ):
            run = slice(begin, begin + length)
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
        curvatures = model.score_curvatures(z, y, majorant=question.majorant)
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
