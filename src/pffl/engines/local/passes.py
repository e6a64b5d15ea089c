"""`evaluate`, `curvature`, `witness` and `train` for linear models over laid-out rows.

The arithmetic alone, apart from the engine that decides which questions share a pass.

Rows are passed over piece by piece, and several questions share a pass. Evaluations and
curvatures read each piece once for all of them, and each is answered as if it were
alone. Trainings are one matrix product: scores of one model with q outputs, or of S
models with one output each, are its columns; "columns" is that last axis wherever the
engine speaks of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from pffl.constraints.base import Cells
from pffl.engines.local.layout import Layout, Piece, piece_rows
from pffl.engines.local.threads import Threads
from pffl.models.linear import LinearModel
from pffl.models.scaled import Design
from pffl.numerics import divisors
from pffl.questions import (
    Curvature,
    CurvatureTotal,
    Evaluate,
    EvaluateTotal,
    Slopes,
    SlopesTotal,
    Train,
    TrainTotal,
    Witness,
    WitnessTotal,
)
from pffl.questions.curvature import powers
from pffl.questions.evaluate import COLUMNS
from pffl.questions.slopes import linear
from pffl.questions.train import TINY
from pffl.typing import BoolArray, FloatArray, IntArray

BOUNDED = COLUMNS.index("bounded_loss")
MOST_SUMS = 1 << 22  # numbers of a stack of evaluations

R = TypeVar("R")
# of silos of one group: (silos, n, features), (silos, n) and weights (silos, n, models)
# or, of one silo with sparse rows, (n, features), (1, n) and (1, n, models)
LocalRows = tuple[Design, FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Columns:
    """Coefficients as columns of one product, and the pointwise parts of the model."""

    model: LinearModel
    w: FloatArray  # (columns, features + intercept)

    def scores(self, X: Design) -> FloatArray:
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

    def pull_back(self, X: Design, slopes: FloatArray, out: FloatArray) -> None:
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
    layout: Layout, questions: Sequence[Evaluate], spread: Threads
) -> list[EvaluateTotal]:
    """Answer questions about one task and split, for all silos."""
    model = linear(questions[0].task)
    units, widths = layout.n_silos * layout.n_atoms, [q.width for q in questions]
    at_once = max(1, MOST_SUMS // (units * max(widths)))
    if len(questions) > at_once:
        head, tail = questions[:at_once], questions[at_once:]
        return evaluate(layout, head, spread) + evaluate(layout, tail, spread)

    def sums_of(pieces: Sequence[Piece]) -> list[FloatArray]:
        sums = [np.zeros((units, width)) for width in widths]
        for piece in pieces:
            X, y = layout.X[piece.rows], layout.y[piece.rows]
            for place, (question, into) in enumerate(zip(questions, sums, strict=True)):
                z = model.scores(question.w, X)
                columns = question.columns(
                    model.score_losses(z, y),
                    model.score_classes(z),
                    y,
                    partial(model.score_bounded_losses, z, y),
                )
                weighed = question.weighed(columns, layout.weights(piece.rows))
                into[piece.units] += run_sums(piece, weighed)
                if question.by_row:
                    bounded[place][piece.rows] = columns[:, BOUNDED]
        return sums

    bounded = [np.zeros(len(layout.X) if q.by_row else 0) for q in questions]
    parts = spread(sums_of, layout.pieces(), len(layout.X))
    found = [np.sum(sums, axis=0) for sums in zip(*parts, strict=True)]
    return [
        _evaluated(layout, *each)
        for each in zip(questions, found, bounded, strict=True)
    ]


def _evaluated(
    layout: Layout, question: Evaluate, sums: FloatArray, bounded: FloatArray
) -> EvaluateTotal:
    """Return the total from sums per unit, and bounded losses row by row."""
    task, width = question.task, len(COLUMNS)
    by_silo = layout.to_federation(
        np.reshape(sums, (layout.n_silos, layout.n_atoms, -1))
    )
    masses = by_silo[:, :, COLUMNS.index("weight")].sum(axis=1)
    present = masses > 0
    losses = by_silo[:, :, [COLUMNS.index("loss"), BOUNDED]].sum(axis=1)
    means = losses / divisors(masses)[:, None]
    risk, bounded_risk = (task.shares @ means).tolist()
    cells = task.cells.totals(by_silo)
    member = _members(layout, task.cells)
    logs = question.row_sums(bounded, member, weight=layout.weight)
    return EvaluateTotal(
        by_silo.sum(axis=0)[:, :width],
        cells[:, :width],
        risk,
        bounded_risk,
        float(task.shares[present].sum()),
        cells[:, width:],
        *logs,
    )


def _members(layout: Layout, cells: Cells) -> Callable[[int], BoolArray]:
    """Return what says which rows are in a cell."""
    positions, atoms = np.divmod(layout.units, layout.n_atoms)
    silos = layout.order[positions]

    def member(cell: int) -> BoolArray:
        rows: BoolArray = cells.membership[cell][atoms]
        return rows if cells.everywhere[cell] else rows & (silos == cells.silo[cell])

    return member


Expanding = Curvature | Slopes


def expand(
    layout: Layout, questions: Sequence[Expanding], spread: Threads
) -> list[CurvatureTotal | SlopesTotal]:
    """Answer questions of one kind about one task, for all silos."""
    model = linear(questions[0].task)
    parts = spread(
        lambda pieces: expand_pieces(layout, questions, model, pieces),
        layout.pieces(),
        len(layout.X) * model.n_parameters,
    )
    found: list[CurvatureTotal | SlopesTotal] = []
    for question, *each in zip(questions, *parts, strict=True):
        packed = _by_cell(question, np.sum(each, axis=0))
        if isinstance(question, Slopes):
            found.append(_sloped(question, packed))
        else:
            peaks = _peaks(layout, question, spread)
            found.append(_expanded(question, packed, peaks))
    return found


def _packing(question: Expanding) -> list[int]:
    """Lengths of the parts of one vector: value, gradient, and what else is asked."""
    p = question.task.model.n_parameters
    if isinstance(question, Curvature):
        return [1, p, p**2]
    score = question.sharpness > 0
    return [1, p, question.directions.size, int(score), p * score]


def _by_cell(question: Expanding, sums: FloatArray) -> list[FloatArray]:
    """Turn packed sums for F, each atom, and silos' own cells into F's and cells'."""
    cells = question.task.cells
    n_atoms = cells.membership.shape[1]
    everywhere = cells.everywhere[:, None] * cells.membership
    packed = everywhere @ sums[1 : 1 + n_atoms]
    packed += sums[1 + n_atoms :]
    ends = np.cumsum(_packing(question))[:-1]
    return np.split(np.concatenate([sums[:1], packed]), ends, axis=1)


def _expanded(
    question: Curvature, parts: list[FloatArray], peaks: FloatArray
) -> CurvatureTotal:
    value, gradient, hessian = parts
    p = question.task.model.n_parameters
    hessians = hessian.reshape(-1, p, p)
    return CurvatureTotal(
        float(value[0, 0]),
        gradient[0],
        hessians[0],
        value[1:, 0],
        gradient[1:],
        hessians[1:],
        peaks,
    )


def _sloped(question: Slopes, parts: list[FloatArray]) -> SlopesTotal:
    value, gradient, product, score, slope = parts
    p, d = question.directions.shape
    products = product.reshape(len(value), d, p)
    return SlopesTotal(
        float(value[0, 0]),
        gradient[0],
        value[1:, 0],
        gradient[1:],
        products[0],
        products[1:],
        score[1:],
        slope[1:].reshape(len(value) - 1, question.dims["s"], p),
    )


def _peaks(layout: Layout, question: Curvature, spread: Threads) -> FloatArray:
    """Σ_k ‖H‖^q for F and each cell, see `CurvatureTotal.peaks`."""
    z, shares = len(question.task.cells), question.task.shares[layout.order]
    if not question.majorant:
        return np.zeros(1 + z)

    def part(positions: Sequence[int]) -> FloatArray:
        total = np.zeros(1 + z)
        for position in positions:
            total += _silo_peaks(layout, question, position) * (shares[position] > 0)
        return total

    scores = len(layout.X) * question.task.model.n_parameters
    return np.sum(spread(part, range(layout.n_silos), scores), axis=0)


def _silo_peaks(layout: Layout, question: Curvature, position: int) -> FloatArray:
    """‖H‖^q for F and each cell in one silo, from the Hessians of its atoms."""
    task, model, index = question.task, linear(question.task), layout.order[position]
    by_atom = np.zeros((layout.n_atoms, model.n_parameters, model.n_parameters))
    first, last = layout.starts[position : position + 2].tolist()
    step = piece_rows(layout.X.shape[1])
    for start in range(first, last, step):
        piece = layout.piece(slice(start, min(start + step, last)))
        X = layout.X[piece.rows]
        z = np.zeros(len(X) if model.n_outputs == 1 else (len(X), model.n_outputs))
        curvatures = model.score_curvatures(z, layout.y[piece.rows], majorant=True)
        curvatures = layout.weigh(curvatures, piece.rows)
        for unit, run in piece.runs():
            by_atom[unit % layout.n_atoms] += model.gram(X[run], curvatures[run])
    whole = by_atom.sum(axis=0)[None] / layout.masses[position]
    in_cells = np.tensordot(task.cells.of_silo(int(index)), by_atom, axes=1)
    return powers(np.concatenate([whole, in_cells / max(task.shares[index], 1e-300)]))


def expand_pieces(
    layout: Layout,
    questions: Sequence[Expanding],
    model: LinearModel,
    pieces: Sequence[Piece],
) -> list[FloatArray]:
    """Expand run by run: each row enters one product, whatever the cells."""
    task = questions[0].task
    cells, risk_weights = task.cells, task.shares[layout.order] / layout.masses
    rows = 1 + layout.n_atoms + len(cells)
    found = [np.zeros((rows, sum(_packing(question)))) for question in questions]
    own_cells: dict[int, list[int]] = {}
    for cell in np.flatnonzero(~cells.everywhere).tolist():
        own_cells.setdefault(int(cells.silo[cell]), []).append(cell)
    for piece, (question, sums) in itertools.product(
        pieces, list(zip(questions, found, strict=True))
    ):
        for unit, packed in _packed_runs(layout, question, model, piece):
            position, atom = divmod(unit, layout.n_atoms)
            sums[0] += risk_weights[position] * packed
            sums[1 + atom] += packed
            for cell in own_cells.get(int(layout.order[position]), ()):
                if cells.membership[cell, atom]:
                    sums[1 + layout.n_atoms + cell] += packed
    return found


def _packed_runs(
    layout: Layout, question: Expanding, model: LinearModel, piece: Piece
) -> Iterator[tuple[int, FloatArray]]:
    """Yield (unit, packed sums) for each run."""
    X, y = layout.X[piece.rows], layout.y[piece.rows]
    z = model.scores(question.w, X)
    losses, slopes = model.score_losses_and_slopes(z, y)
    losses = layout.weigh(losses, piece.rows)
    pulled, scores, curvatures = [slopes], np.zeros(0), np.zeros(0)
    if isinstance(question, Curvature):
        curvatures = model.score_curvatures(z, y, majorant=question.majorant)
        curvatures = layout.weigh(curvatures, piece.rows)
    else:
        directions = question.directions.T
        pulled += [model.times_curvature(z, y, model.scores(d, X)) for d in directions]
        if question.sharpness:
            scores, score_slopes = question.scores(z)
            scores = layout.weigh(scores, piece.rows)
            pulled.append(score_slopes)
    pulled = [layout.weigh(each, piece.rows) for each in pulled]
    for unit, run in piece.runs():
        gradients = [model.pull_back(X[run], each[run]) for each in pulled]
        parts = [losses[run].sum(keepdims=True), *gradients]
        if len(curvatures):
            parts.append(model.gram(X[run], curvatures[run]).reshape(-1))
        if len(scores):
            parts.insert(-1, scores[run].sum(keepdims=True))
        yield unit, np.concatenate(parts)


def witness(
    layout: Layout, questions: Sequence[Witness], spread: Threads
) -> list[WitnessTotal]:
    """Answer questions about one task, for all silos."""
    task, model = questions[0].task, linear(questions[0].task)
    in_risk = (task.shares[layout.order] / layout.masses)[:, None]
    by_units = [
        task.cells.spread(question.cell_weights, layout.n_silos)[layout.order]
        + question.risk_weight * in_risk
        for question in questions
    ]

    def blocks_of(pieces: Sequence[Piece]) -> list[list[FloatArray]]:
        found: list[list[FloatArray]] = [[] for _ in questions]
        for piece in pieces:
            X, y = layout.X[piece.rows], layout.y[piece.rows]
            units = layout.units[piece.rows]
            for question, by_unit, into in zip(questions, by_units, found, strict=True):
                weights = layout.weigh(by_unit.reshape(-1)[units], piece.rows)
                into += question.sums(model, X, y, weights)
        return found

    parts = spread(blocks_of, layout.pieces(), len(layout.X) * model.n_parameters)
    return [
        question.total([block for part in of_one for block in part])
        for question, *of_one in zip(questions, *parts, strict=True)
    ]


def train(
    layout: Layout, questions: Sequence[Train], spread: Threads
) -> list[TrainTotal]:
    """Answer a stack of questions that share one pass, for all silos."""
    if linear(questions[0].task).n_outputs > 1 and len(questions) > 1:
        return [train(layout, [question], spread)[0] for question in questions]
    return TrainStack(layout, questions, spread).totals()


@dataclass(frozen=True, eq=False)
class TrainStack:
    """A stack of `Train` questions over laid-out rows.

    A single full step is one pass over the rows: the silos' mean is one step on the
    whole. Several steps are taken by groups of silos, each silo with a w of its own.
    """

    layout: Layout
    questions: Sequence[Train]
    spread: Threads

    @cached_property
    def columns(self) -> Columns:
        """Coefficients of all questions."""
        model = linear(self.questions[0].task)
        return Columns(
            model,
            np.concatenate([q.w.reshape(-1, model.n_columns) for q in self.questions]),
        )

    @cached_property
    def asked(self) -> FloatArray:
        """Shares p_k by position; 0 for silos that are not asked."""
        first = self.questions[0]
        shares = first.task.shares
        if first.silos is not None:
            chosen = np.zeros_like(shares)
            chosen[list(first.silos)] = shares[list(first.silos)]
            shares = chosen
        return shares[self.layout.order]

    @property
    def unit_weights(self) -> FloatArray:
        """c_i/s_i per unit (silo position × atom) and question."""
        layout, questions = self.layout, self.questions
        cells = questions[0].task.cells
        risk_weights = np.array([q.risk_weight for q in questions])
        weights = np.empty((layout.n_silos, layout.n_atoms, len(questions)))
        weights[:] = ((self.asked / layout.masses)[:, None] * risk_weights)[:, None]
        if cells.everywhere.all():
            by_cell = np.stack([q.cell_weights for q in questions], axis=1)
            weights += cells.membership.T.astype(np.float64) @ by_cell
        else:
            for s, q in enumerate(questions):
                by_silo = cells.spread(q.cell_weights, layout.n_silos)
                weights[:, :, s] += by_silo[layout.order]
        weights[self.asked == 0] = 0.0
        return weights.reshape(-1, len(questions))

    def per_column(self, values: Sequence[Any]) -> FloatArray:
        """Repeat one value of each question for each of its columns."""
        return np.repeat(values, len(self.columns.w) // len(self.questions), axis=0)

    def totals(self) -> list[TrainTotal]:
        """Answer all questions."""
        first, powers = self.questions[0], [q.loss_power for q in self.questions]
        whole = first.batch_size is None and not any(powers)
        if whole and len(first.step_sizes) == 1:
            sums, update = self.one_step()
            tilts = np.repeat(self.asked[:, None], len(powers), axis=1)
            lengths = np.zeros_like(tilts)
        else:
            sums = self.losses()
            tilts = self.asked[:, None] * self.tilts(sums)
            update, lengths = self.local_steps(tilts)
        by_position = sums.reshape(self.layout.n_silos, -1, len(powers))
        if first.silos is not None:  # a silo without weight still tells its losses
            there = np.isin(self.layout.order, first.silos)
            by_position = by_position * there[:, None, None]
        means = by_position.sum(axis=1) / self.layout.masses[:, None]
        risks = self.asked @ means
        cells = first.task.cells.totals(self.layout.to_federation(by_position))
        moved = tilts * lengths / (means + TINY)
        return [
            TrainTotal(
                own,
                float(self.asked.sum()),
                float(risks[s]),
                cells[:, s],
                np.array([tilts[:, s].sum(), powers[s] * moved[:, s].sum()]),
            )
            for s, own in enumerate(update.reshape(len(powers), -1))
        ]

    def one_step(self) -> tuple[FloatArray, FloatArray]:
        """Loss sums per unit, and the update of one full gradient step."""
        layout, columns, weights = self.layout, self.columns, self.unit_weights

        def work(pieces: Sequence[Piece]) -> tuple[FloatArray, FloatArray]:
            sums, gradients = np.zeros_like(weights), np.zeros_like(columns.w)
            for piece in pieces:
                X = layout.X[piece.rows]
                losses, slopes = columns.losses_and_slopes(
                    columns.scores(X), layout.y[piece.rows]
                )
                sums[piece.units] += run_sums(piece, layout.weigh(losses, piece.rows))
                slopes *= np.repeat(weights[piece.units], piece.lengths, axis=0)
                slopes = layout.weigh(slopes, piece.rows)
                columns.pull_back(X, slopes, gradients)
            return sums, gradients

        results = self._over_pieces(work)
        sums = np.sum([r[0] for r in results], axis=0)
        gradients = np.sum([r[1] for r in results], axis=0)
        ridge = self.per_column([q.ridge_weight for q in self.questions])
        rates = self.per_column([q.step_sizes[0] for q in self.questions])
        gradients += (ridge * self.asked.sum())[:, None] * columns.w
        return sums, -rates[:, None] * gradients

    def losses(self) -> FloatArray:
        """Loss sums per unit, shape (units, models)."""
        layout, columns = self.layout, self.columns

        def work(pieces: Sequence[Piece]) -> FloatArray:
            sums = np.zeros((layout.n_silos * layout.n_atoms, len(self.questions)))
            for piece in pieces:
                z = columns.scores(layout.X[piece.rows])
                losses = columns.losses(z, layout.y[piece.rows])
                losses = layout.weigh(losses, piece.rows)
                sums[piece.units] += run_sums(piece, losses)
            return sums

        return np.sum(self._over_pieces(work), axis=0)

    def tilts(self, sums: FloatArray) -> FloatArray:
        """F_k^q by position and question."""
        powers = np.array([q.loss_power for q in self.questions])
        if not powers.any():
            return np.ones((self.layout.n_silos, len(powers)))
        totals = sums.reshape(self.layout.n_silos, -1, len(powers)).sum(axis=1)
        return (totals / self.layout.masses[:, None] + TINY) ** powers

    def local_steps(self, tilts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Take all local steps.

        Returns Σ_k p_k F_k^q Δ_k, shape (columns, features + intercept), and ‖Δ_k‖² per
        position and model. `tilts` holds p_k F_k^q, shape (positions, models). Steps
        descend c_i/p_k; silos that are not asked take none.
        """
        layout, first = self.layout, self.questions[0]
        shares = first.task.shares[layout.order]
        divisors = np.repeat(np.where(shares > 0, shares, 1.0), layout.n_atoms)
        weights = self.unit_weights / divisors[:, None]
        groups = layout.groups(len(self.columns.w))
        if first.silos is not None:
            groups = tuple(g for g in groups if tilts[g.start : g.stop].any())
        results = self.spread(
            lambda part: self.steps_pass(part, weights, tilts),
            groups,
            len(layout.X) * len(self.columns.w),
        )
        return (
            np.sum([r[0] for r in results], axis=0),
            np.sum([r[1] for r in results], axis=0),
        )

    def _over_pieces(self, work: Callable[[Sequence[Piece]], R]) -> list[R]:
        columns = len(self.columns.w)
        layout = self.layout
        return self.spread(work, layout.pieces(columns), len(layout.X) * columns)

    @np.errstate(over="ignore", invalid="ignore")  # too large steps: the server sees it
    def steps_pass(
        self, groups: Sequence[range], weights: FloatArray, tilts: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Take the local steps of some groups, see `local_steps`."""
        columns, models = self.columns, len(self.questions)
        proximal = self.questions[0].proximal
        column_of = self.per_column(range(models))
        rates = self.per_column([q.step_sizes for q in self.questions])  # (columns, J)
        ridge = self.per_column([q.ridge_weight for q in self.questions])
        update, lengths = np.zeros_like(columns.w), np.zeros_like(tilts)
        for group in groups:
            w = np.repeat(columns.w[None], len(group), axis=0)  # (silos, columns, c)
            for j, rows in enumerate(self._local_rows(group, weights)):
                gradient = _gradient(columns.model, w, *rows)
                gradient += ridge[None, :, None] * w
                if proximal:
                    gradient += proximal * (w - columns.w)
                gradient *= rates[None, :, j, None]
                w -= gradient
            w -= columns.w
            here = slice(group.start, group.stop)
            update += np.einsum("ks,ksc->sc", tilts[here][:, column_of], w)
            squares = np.einsum("ksc,ksc->ks", w, w)
            lengths[here] = squares.reshape(len(group), models, -1).sum(axis=2)
        return update, lengths

    def _local_rows(self, group: range, unit_weights: FloatArray) -> list[LocalRows]:
        """Rows and weights of each local step."""
        layout, question = self.layout, self.questions[0]
        sizes = layout.sizes[group.start : group.stop]
        batch, steps = question.batch_size, len(question.step_sizes)
        if batch is None or batch >= sizes.max():
            lo, hi = layout.starts[group.start], layout.starts[group.stop]
            if sizes[0] == sizes[-1]:
                shape = (len(group), int(sizes[0]))
                X = layout.X[lo:hi]
                if isinstance(X, np.ndarray):
                    X = X.reshape(*shape, -1)
                y = layout.y[lo:hi].reshape(shape)
                weights = layout.weigh(unit_weights[layout.units[lo:hi]], slice(lo, hi))
                weights = weights.reshape(*shape, -1)
                return [(X, y, weights)] * steps
            whole = [np.arange(layout.starts[k], layout.starts[k + 1]) for k in group]
            return [_gather(layout, whole, sizes, unit_weights)] * steps
        drawn = []
        for position in group:
            places = layout.places(position)
            index = int(layout.order[position])
            drawn.append([places[b] for b in question.batches(index, len(places))])
        return [
            _gather(layout, list(step), sizes, unit_weights)
            for step in zip(*drawn, strict=True)
        ]


def _gather(
    layout: Layout, rows: list[IntArray], sizes: IntArray, unit_weights: FloatArray
) -> LocalRows:
    """Stack each silo's rows; short ones are padded with rows of weight 0."""
    longest = max(len(index) for index in rows)
    padded = np.array(
        [np.concatenate([i, np.repeat(i[:1], longest - len(i))]) for i in rows]
    )
    weights = unit_weights[layout.units[padded]]
    if layout.weight is not None:
        weights *= layout.weight[padded][..., None]
    for k, index in enumerate(rows):
        weights[k, : len(index)] *= sizes[k] / len(index)
        weights[k, len(index) :] = 0.0
    X = layout.X
    inputs = X[padded] if isinstance(X, np.ndarray) else X[padded[0]]
    return inputs, layout.y[padded], weights


def _gradient(
    model: LinearModel, w: FloatArray, X: Design, y: FloatArray, weights: FloatArray
) -> FloatArray:
    """Weighted gradients of some silos, each with its own w; sparse ones are one."""
    if isinstance(X, np.ndarray):
        return _block_gradient(model, w, X, y, weights)
    columns, gradient = Columns(model, w[0]), np.zeros_like(w)
    _, slopes = columns.losses_and_slopes(columns.scores(X), y[0])
    slopes *= weights[0]
    columns.pull_back(X, slopes, gradient[0])
    return gradient


def _block_gradient(
    model: LinearModel,
    w: FloatArray,
    X: FloatArray,
    y: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Weighted gradients of a block: silo b has its own w[b] and its rows X[b]."""
    d = X.shape[2]
    step = max(64, piece_rows(d, w.shape[1]) // len(X))
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
