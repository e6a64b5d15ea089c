"""`train` for linear models over laid-out rows, one question or a stack of them.

Apart from `passes` because here silos leave the shared w: a single full step is one
pass over the rows, several steps are taken by blocks of silos, each with its own w.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pffl.engines.local.layout import Layout, Piece, piece_rows
from pffl.engines.local.passes import Columns, run_sums
from pffl.engines.local.threads import Spread
from pffl.models.linear import LinearModel
from pffl.questions import Train, TrainTotal
from pffl.questions.curvature import linear
from pffl.questions.train import TINY
from pffl.typing import FloatArray, IntArray


def train(
    layout: Layout, questions: Sequence[Train], spread: Spread
) -> list[TrainTotal]:
    """Answer a stack of questions that share one pass."""
    first = questions[0]
    model = linear(first.task)
    if model.n_outputs > 1 and len(questions) > 1:
        return [train(layout, [question], spread)[0] for question in questions]
    columns = Columns(
        model, np.concatenate([q.w.reshape(-1, model.n_columns) for q in questions])
    )
    asked = _asked(layout, first)  # p_k, or 0 where not asked
    weights = _unit_weights(layout, questions, asked)  # c_i, (units, S)
    if (
        len(first.step_sizes) == 1
        and first.batch_size is None
        and not (any(q.loss_power for q in questions))
    ):
        sums, update = _one_step(spread, layout, questions, columns, weights, asked)
        tilts = np.repeat(asked[:, None], len(questions), axis=1)
        lengths = np.zeros_like(tilts)
    else:
        sums = _losses(spread, layout, columns, len(questions))
        tilts = asked[:, None] * _tilts(layout, questions, sums)
        update, lengths = _steps(spread, layout, questions, columns, weights, tilts)
    return _train_totals(layout, questions, sums, update, asked, tilts, lengths)


def _asked(layout: Layout, question: Train) -> FloatArray:
    """Shares p_k by position; 0 for silos that are not asked."""
    shares = question.task.shares
    if question.silos is not None:
        chosen = np.zeros_like(shares)
        chosen[list(question.silos)] = shares[list(question.silos)]
        shares = chosen
    return shares[layout.order]


def _one_step(
    spread: Spread,
    layout: Layout,
    questions: Sequence[Train],
    columns: Columns,
    weights: FloatArray,
    asked: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """One full gradient step: the silos' mean is one step on the whole."""
    results = spread(
        lambda pieces: gradient_pass(layout, columns, pieces, weights),
        layout.pieces(len(columns.w)),
        len(layout.X) * len(columns.w),
    )
    sums = np.sum([r[0] for r in results], axis=0)
    gradients = np.sum([r[1] for r in results], axis=0)
    per_column = len(columns.w) // len(questions)
    ridge = np.repeat([q.ridge_weight for q in questions], per_column)
    rates = np.repeat([q.step_sizes[0] for q in questions], per_column)
    gradients += (ridge * asked.sum())[:, None] * columns.w
    return sums, -rates[:, None] * gradients


def _losses(
    spread: Spread, layout: Layout, columns: Columns, models: int
) -> FloatArray:
    results = spread(
        lambda pieces: losses_pass(layout, columns, pieces, models),
        layout.pieces(len(columns.w)),
        len(layout.X) * len(columns.w),
    )
    return np.sum(results, axis=0)


def _steps(
    spread: Spread,
    layout: Layout,
    questions: Sequence[Train],
    columns: Columns,
    weights: FloatArray,
    tilts: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Local steps descend c_i/p_k; silos that are not asked take none."""
    shares = questions[0].task.shares[layout.order]
    divisors = np.repeat(np.where(shares > 0, shares, 1.0), layout.n_atoms)
    local = weights / divisors[:, None]
    groups = layout.groups(len(columns.w))
    if questions[0].silos is not None:
        groups = tuple(g for g in groups if tilts[g.start : g.stop].any())
    results = spread(
        lambda part: steps_pass(layout, questions, columns, part, local, tilts),
        groups,
        len(layout.X) * len(columns.w),
    )
    return (
        np.sum([r[0] for r in results], axis=0),
        np.sum([r[1] for r in results], axis=0),
    )


def _tilts(layout: Layout, questions: Sequence[Train], sums: FloatArray) -> FloatArray:
    """F_k^q by position and question."""
    if not any(q.loss_power for q in questions):
        return np.ones((layout.n_silos, len(questions)))
    totals = sums.reshape(layout.n_silos, layout.n_atoms, -1).sum(axis=1)
    powers = np.array([q.loss_power for q in questions])
    return (totals / layout.sizes[:, None] + TINY) ** powers


def _unit_weights(
    layout: Layout, questions: Sequence[Train], asked: FloatArray
) -> FloatArray:
    """Return c_i per unit (silo position × atom) and question."""
    cells = questions[0].task.cells
    risk_weights = np.array([q.risk_weight for q in questions])
    weights = np.empty((layout.n_silos, layout.n_atoms, len(questions)))
    weights[:] = ((asked / layout.sizes)[:, None] * risk_weights)[:, None]
    if cells.everywhere.all():
        by_cell = np.stack([q.cell_weights for q in questions], axis=1)
        weights += cells.membership.T.astype(np.float64) @ by_cell
    else:
        for s, q in enumerate(questions):
            by_silo = cells.spread(q.cell_weights, layout.n_silos)
            weights[:, :, s] += by_silo[layout.order]
    weights[asked == 0] = 0.0
    return weights.reshape(-1, len(questions))


def _train_totals(
    layout: Layout,
    questions: Sequence[Train],
    sums: FloatArray,
    update: FloatArray,
    asked: FloatArray,
    tilts: FloatArray,
    lengths: FloatArray,
) -> list[TrainTotal]:
    by_position = sums.reshape(layout.n_silos, layout.n_atoms, len(questions))
    if questions[0].silos is not None:  # a silo without weight still tells its losses
        there = np.isin(layout.order, questions[0].silos)
        by_position = by_position * there[:, None, None]
    means = by_position.sum(axis=1) / layout.sizes[:, None]
    risks = asked @ means
    cells = questions[0].task.cells.totals(layout.to_federation(by_position))
    updates = update.reshape(len(questions), -1)
    powers = [
        (
            tilts[:, s].sum(),
            q.loss_power * (tilts * lengths / (means + TINY))[:, s].sum(),
        )
        for s, q in enumerate(questions)
    ]
    return [
        TrainTotal(
            updates[s],
            float(asked.sum()),
            float(risks[s]),
            cells[:, s],
            np.array(powers[s]),
        )
        for s in range(len(questions))
    ]


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


@np.errstate(over="ignore", invalid="ignore")  # too large steps: the server sees it
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
