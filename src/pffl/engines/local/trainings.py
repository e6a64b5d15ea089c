"""`train` for linear models over laid-out rows.

A stack of queries that differ in w, weights and step sizes is one matrix product:
scores of one model with q outputs, or of S models with one output each, are its
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from pffl.engines.local.layout import Layout, Piece, piece_rows
from pffl.engines.local.threads import Threads, added
from pffl.models.linear import LinearModel
from pffl.models.scaled import Design
from pffl.numerics import divisors
from pffl.queries import Train, TrainTotal
from pffl.queries.expand import linear
from pffl.queries.train import TINY
from pffl.typing import BoolArray, FloatArray, IntArray

R = TypeVar("R")
# of silos of one group: (silos, n, features), (silos, n) and weights (silos, n, models)
# or, of one silo with sparse rows, (n, features), (1, n) and (1, n, models)
LocalRows = tuple[Design, FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Columns:
    """Coefficients as columns of one product, and the pointwise parts of the model.

    Scores of one model with q outputs, or of S models with one output each, are its
    columns.
    """

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


def in_one_step(queries: Sequence[Train]) -> bool:
    """Whether the silos' mean is one full step on the whole."""
    first = queries[0]
    whole = first.batch_size is None and len(first.step_sizes) == 1
    tilted = any(q.loss_power for q in queries)
    # By mass, silos without any take no step, not even towards 0.
    apart = first.by_mass and not all(q.risk_weight for q in queries)
    return whole and not tilted and not first.corrected and not apart


def train(
    layout: Layout, queries: Sequence[Train], spread: Threads
) -> list[TrainTotal]:
    """Answer a stack of queries that share one pass, for all silos."""
    if linear(queries[0].task).n_outputs > 1 and len(queries) > 1:
        return [train(layout, [query], spread)[0] for query in queries]
    if in_one_step(queries):
        return OneStep(layout, queries, spread).totals()
    return LocalSteps(layout, queries, spread).totals()


@dataclass(frozen=True, eq=False)
class Stack:
    """A stack of `Train` queries over laid-out rows."""

    layout: Layout
    queries: Sequence[Train]
    spread: Threads

    @cached_property
    def columns(self) -> Columns:
        """Coefficients of all queries."""
        model = linear(self.queries[0].task)
        return Columns(
            model,
            np.concatenate([q.w.reshape(-1, model.n_columns) for q in self.queries]),
        )

    @cached_property
    def asked(self) -> FloatArray:
        """Shares p_k; 0 for silos that are not asked."""
        first = self.queries[0]
        if first.silos is None:
            return first.task.shares
        return np.where(self.telling, first.task.shares, 0.0)

    @cached_property
    def telling(self) -> BoolArray:
        """Which silos are asked: one without weight still tells its losses."""
        first = self.queries[0]
        if first.silos is None:
            return np.ones(len(first.task.shares), dtype=bool)
        return np.isin(np.arange(len(first.task.shares)), first.silos)

    @property
    def risk_weights(self) -> FloatArray:
        """β of each query."""
        return np.array([q.risk_weight for q in self.queries])

    @property
    def unit_weights(self) -> FloatArray:
        """c_i/s_i per unit and query; without F's part where that is by row."""
        return self.weights_of([q.cell_weights for q in self.queries])

    def weights_of(self, cell_weights: Sequence[FloatArray]) -> FloatArray:
        """Return the same from weights of cells, one vector a query."""
        layout, cells = self.layout, self.queries[0].task.cells
        by_cell = np.stack(cell_weights, axis=1)
        weights = layout.unit_weights(cells, by_cell)
        in_risk = layout.in_risk(self.asked).by_unit
        if in_risk is not None:
            weights = weights + in_risk[:, None] * self.risk_weights
        return weights * layout.units_of(self.asked > 0)[:, None]

    @property
    def in_cells(self) -> FloatArray:
        """Σ_z |λ_z|m_z'/m_z: what the rows of each unit weigh in cells, by query."""
        layout, cells = self.layout, self.queries[0].task.cells
        sizes = np.stack([np.abs(q.cell_weights) for q in self.queries], axis=1)
        mass = np.bincount(layout.units, layout.weight, layout.n_units)
        return layout.unit_weights(cells, sizes) * mass[:, None]

    def per_column(self, values: Sequence[Any]) -> FloatArray:
        """Repeat one value of each query for each of its columns."""
        return np.repeat(values, len(self.columns.w) // len(self.queries), axis=0)

    def told(
        self,
        update: FloatArray,
        sums: FloatArray,
        risks: FloatArray,
        powers: FloatArray,
        gradient: FloatArray,
    ) -> list[TrainTotal]:
        """Return the totals from updates, loss sums per unit, risks and the rest."""
        layout, first = self.layout, self.queries[0]
        cells = layout.cell_sums(first.task.cells, sums)
        share = float(self.asked.sum())
        slopes = (gradient if first.slope else gradient[:, :0]).reshape(len(risks), -1)
        rest = zip(risks.tolist(), cells.T, powers.T, slopes, strict=True)
        return [
            TrainTotal(own, share, *each)
            for own, each in zip(update.reshape(len(risks), -1), rest, strict=True)
        ]

    def over_pieces(self, work: Callable[[Sequence[Piece]], R]) -> list[R]:
        """Do some work on all pieces."""
        columns, layout = len(self.columns.w), self.layout
        return self.spread(work, layout.pieces(columns), len(layout) * columns)


class OneStep(Stack):
    """A single full step: one pass over the rows, whoever has them."""

    def totals(self) -> list[TrainTotal]:
        """Answer all queries."""
        sums, risks, gradient = self.slopes()
        ridge = self.per_column([q.ridge_weight for q in self.queries])
        rates = self.per_column([q.step_sizes[0] for q in self.queries])
        pull = (ridge * self.asked.sum())[:, None] * self.columns.w
        powers = np.zeros((2, len(self.queries)))
        powers[0] = self.asked.sum()
        if self.queries[0].by_mass:
            own = self.layout.units_of(self.asked > 0) @ self.in_cells
            powers[0] = self.risk_weights * self.asked.sum() + own
        update = -rates[:, None] * (gradient + pull)
        return self.told(update, sums, risks, powers, gradient)

    def slopes(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Loss sums per unit, risks, and Σ c_i ∇ℓ_i, at the w that was sent."""
        layout, columns, weights = self.layout, self.columns, self.unit_weights
        in_risk, betas = layout.in_risk(self.asked), self.risk_weights
        models = len(self.queries)

        def work(pieces: Sequence[Piece]) -> FloatArray:
            """Return sums per unit, those for F, and gradients, packed."""
            sums = np.zeros((layout.n_units + 1, models))
            gradients = np.zeros_like(columns.w)
            for piece in pieces:
                X = layout.X[piece.rows]
                losses, slopes = columns.losses_and_slopes(
                    columns.scores(X), layout.y[piece.rows]
                )
                sums[piece.units] += piece.sums(layout.weigh(losses, piece.rows))
                per_row = np.repeat(weights[piece.units], piece.lengths, axis=0)
                per_row = layout.weigh(per_row, piece.rows)
                if (own := in_risk.rows(piece.rows)) is not None:
                    per_row = per_row + own[:, None] * betas
                    sums[-1] += (losses * own[:, None]).sum(axis=0)
                slopes *= per_row
                columns.pull_back(X, slopes, gradients)
            return np.concatenate([sums.reshape(-1), gradients.reshape(-1)])

        packed = added(self.over_pieces(work))
        size = (layout.n_units + 1) * models
        sums = packed[:size].reshape(-1, models)
        gradients = packed[size:].reshape(columns.w.shape)
        risks, sums = sums[-1], sums[:-1] * layout.units_of(self.telling)[:, None]
        if in_risk.by_unit is not None:
            risks = in_risk.by_unit @ sums
        return sums, risks, gradients


class LocalSteps(Stack):
    """Several steps, or steps on batches: each silo has a w of its own."""

    def totals(self) -> list[TrainTotal]:
        """Answer all queries."""
        layout, powers = self.layout, [q.loss_power for q in self.queries]
        sums = self.losses() * layout.units_of(self.telling)[:, None]
        by_silo = layout.by_silo(sums).sum(axis=1)
        means = by_silo / divisors(layout.masses)[:, None]
        tilts = self.asked[:, None] * self.tilts(means) * self.masses
        update, lengths, gradient = self.local_steps(tilts[layout.order])
        if self.queries[0].slope and self.queries[0].batch_size is not None:
            whole = OneStep(self.layout, self.queries, self.spread)
            gradient = whole.slopes()[2]
        moved = tilts[layout.order] * lengths / (means[layout.order] + TINY)
        both = np.stack([tilts.sum(axis=0), powers * moved.sum(axis=0)])
        return self.told(update, sums, self.asked @ means, both, gradient)

    def losses(self) -> FloatArray:
        """Loss sums per unit, shape (units, models)."""
        layout, columns = self.layout, self.columns

        def work(pieces: Sequence[Piece]) -> FloatArray:
            sums = np.zeros((layout.n_units, len(self.queries)))
            for piece in pieces:
                z = columns.scores(layout.X[piece.rows])
                losses = columns.losses(z, layout.y[piece.rows])
                losses = layout.weigh(losses, piece.rows)
                sums[piece.units] += piece.sums(losses)
            return sums

        return added(self.over_pieces(work))

    def tilts(self, means: FloatArray) -> FloatArray:
        """F_k^q by silo and query."""
        powers = np.array([q.loss_power for q in self.queries])
        if not powers.any():
            return np.ones_like(means)
        return np.asarray((means + TINY) ** powers)

    @cached_property
    def masses(self) -> FloatArray:
        """M_k by silo and query, by which steps are divided; 1 where they are not.

        A silo without weight has 0, and takes no step.
        """
        shares = self.queries[0].task.shares
        if not self.queries[0].by_mass:
            return np.ones((len(shares), len(self.queries)))
        cells = self.layout.by_silo(self.in_cells).sum(axis=1)
        per_share = np.divide(1.0, shares, out=np.zeros_like(shares), where=shares > 0)
        return self.risk_weights + cells * per_share[:, None]

    def local_steps(
        self, tilts: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Take all local steps.

        Returns Σ_k p_k F_k^q Δ_k, shape (columns, features + intercept), ‖Δ_k‖² per
        position and model, and Σ_k p_k × what the first step descends without ridge and
        correction: Σ c_i ∇ℓ_i, where steps take all rows. `tilts` holds p_k F_k^q,
        shape (positions, models). Steps descend c_i/p_k; silos that are not asked take
        none.
        """
        layout, first = self.layout, self.queries[0]
        shares = first.task.shares[layout.order]
        divisors = np.repeat(np.where(shares > 0, shares, 1.0), layout.n_strata)
        weights = self.unit_weights
        if first.corrected:  # those at the anchor stand behind
            there = self.weights_of([q.anchor_weights for q in self.queries])
            weights = np.concatenate([weights, there], axis=1)
        weights = weights / divisors[:, None]
        groups = layout.groups(len(self.columns.w))
        if first.silos is not None:
            groups = tuple(g for g in groups if tilts[g.start : g.stop].any())
        results = self.spread(
            lambda part: self.steps_pass(part, weights, tilts),
            groups,
            len(layout.X) * len(self.columns.w),
        )
        updates, lengths, slopes = zip(*results, strict=True)
        return added(updates), added(lengths), added(slopes)

    @np.errstate(over="ignore", invalid="ignore")  # too large steps: the server sees it
    def steps_pass(
        self, groups: Sequence[range], weights: FloatArray, tilts: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Take the local steps of some groups, see `local_steps`."""
        columns, models, first = self.columns, len(self.queries), self.queries[0]
        shares = self.asked[self.layout.order]
        column_of = self.per_column(range(models))
        rates = self.per_column([q.step_sizes for q in self.queries])  # (columns, J)
        ridge = self.per_column([q.ridge_weight for q in self.queries])
        masses = self.masses[self.layout.order]
        per_mass = np.divide(1.0, masses, out=np.zeros_like(masses), where=masses > 0)
        per_mass = per_mass[:, column_of]
        update, lengths = np.zeros_like(columns.w), np.zeros_like(tilts)
        slopes = np.zeros_like(columns.w)
        for group in groups:
            here = slice(group.start, group.stop)
            w = np.repeat(columns.w[None], len(group), axis=0)  # (silos, columns, c)
            for j, (X, y, c) in enumerate(self._local_rows(group, weights)):
                gradient = _gradient(columns.model, w, X, y, c[..., :models])
                if j == 0:
                    slopes += np.einsum("k,ksc->sc", shares[here], gradient)
                gradient += ridge[None, :, None] * w
                if first.proximal:
                    gradient += first.proximal * (w - columns.w)
                if first.corrected:
                    if j == 0 or first.batch_size is not None:
                        shift = self._shift(X, y, c[..., models:])
                    gradient += shift
                gradient *= (rates[None, :, j] * per_mass[here])[..., None]
                w -= gradient
            w -= columns.w
            update += np.einsum("ks,ksc->sc", tilts[here][:, column_of], w)
            squares = np.einsum("ksc,ksc->ks", w, w)
            lengths[here] = squares.reshape(len(group), models, -1).sum(axis=2)
        return update, lengths, slopes

    def _shift(self, X: Design, y: FloatArray, weights: FloatArray) -> FloatArray:
        """All silos' gradient at the anchor, less each one's own on these rows."""
        shape, queries = (-1, self.columns.w.shape[1]), self.queries
        anchor = np.concatenate([q.anchor.reshape(shape) for q in queries])
        mean = np.concatenate([q.anchor_gradient.reshape(shape) for q in queries])
        at = np.repeat(anchor[None], len(weights), axis=0)
        return mean - _gradient(self.columns.model, at, X, y, weights)

    def _local_rows(self, group: range, unit_weights: FloatArray) -> list[LocalRows]:
        """Rows and weights of each local step."""
        layout, query = self.layout, self.queries[0]
        sizes = layout.sizes[group.start : group.stop]
        batch, steps = query.batch_size, len(query.step_sizes)
        if batch is None or batch >= sizes.max():
            lo, hi = layout.first[group.start], layout.first[group.stop]
            if sizes[0] == sizes[-1]:
                shape = (len(group), int(sizes[0]))
                X = layout.X[lo:hi]
                if isinstance(X, np.ndarray):
                    X = X.reshape(*shape, -1)
                y = layout.y[lo:hi].reshape(shape)
                weights = layout.weigh(unit_weights[layout.units[lo:hi]], slice(lo, hi))
                weights = weights.reshape(*shape, -1)
                return [(X, y, weights)] * steps
            whole = [np.arange(*layout.first[k : k + 2].tolist()) for k in group]
            return [_gather(layout, whole, sizes, unit_weights)] * steps
        drawn = []
        for position in group:
            places = layout.places(position)
            index = int(layout.order[position])
            drawn.append([places[b] for b in query.batches(index, len(places))])
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
