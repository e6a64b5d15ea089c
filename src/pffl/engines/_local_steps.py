"""Local steps of many silos at once: blocks of silos, each with its own w."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pffl.engines._columns import Columns
from pffl.engines._layout import Layout, piece_rows
from pffl.models.linear import LinearModel
from pffl.questions import Train
from pffl.typing import FloatArray, IntArray


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
