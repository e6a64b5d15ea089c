"""`train` for linear models over laid-out rows.

A stack of queries that differ in w, weights and step sizes is one matrix product:
scores of one model with q outputs, or of S models with one output each, are its
columns. Local steps of sparse rows, and those corrected for drift, are taken by one
silo after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from pffl.engines.layout import Layout, Piece, piece_rows
from pffl.models.linear import LinearModel
from pffl.models.scaled import Design
from pffl.numerics import divisors
from pffl.processors import Threads
from pffl.queries import Train, TrainTotal, add_all
from pffl.queries.expand import linear
from pffl.queries.train import TINY
from pffl.typing import BoolArray, FloatArray, IntArray

R = TypeVar("R")
GROUP_COST = 3000  # a group of silos costs as much as n scores
# of silos of one group: (silos, n, features), (silos, n) and weights (silos, n, models)
LocalRows = tuple[FloatArray, FloatArray, FloatArray]


def train(
    layout: Layout, queries: Sequence[Train], spread: Threads
) -> list[TrainTotal]:
    """Answer a stack of queries that share one pass, for all silos."""
    first = queries[0]
    if in_one_step(queries):
        kind: type[Stack] = OneStep
    elif first.corrected or first.slope or not isinstance(layout.X, np.ndarray):
        return one_by_one(layout, queries, spread)
    else:
        kind = LocalSteps
    if linear(first.task).n_outputs > 1:
        return [kind(layout, [query], spread).totals()[0] for query in queries]
    return kind(layout, queries, spread).totals()


def in_one_step(queries: Sequence[Any]) -> bool:
    """Whether the silos' mean is one full step on the whole."""
    first = queries[0]
    whole = first.batch_size is None and len(first.step_sizes) == 1
    tilted = first.slope or first.corrected or any(q.loss_power for q in queries)
    # By mass, silos without any take no step, not even towards 0.
    apart = first.by_mass and not all(q.risk_weight for q in queries)
    return whole and not tilted and not apart


def one_by_one(layout: Layout, queries: Sequence[Any], spread: Threads) -> list[Any]:
    """Answer for one silo after the other, as the plain loop does."""

    def work(query: Any, positions: Sequence[int]) -> Any:
        return add_all([query.answer(layout.view(k)) for k in positions])

    found = []
    for query in queries:
        asked = range(layout.n_silos) if query.silos is None else query.silos
        positions = np.argsort(layout.order)[list(asked)].tolist()
        size = len(layout) * query.task.model.n_parameters
        found.append(add_all(spread(partial(work, query), positions, size)))
    return found


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


@dataclass(frozen=True, eq=False)
class Stack:
    """A stack of `Train` queries over laid-out rows."""

    layout: Layout
    queries: Sequence[Train]
    spread: Threads

    def totals(self) -> list[TrainTotal]:
        """Answer all queries."""
        raise NotImplementedError

    @cached_property
    def columns(self) -> Columns:
        """Coefficients of all queries."""
        model = linear(self.queries[0].task)
        return Columns(
            model,
            np.concatenate([q.w.reshape(-1, model.n_columns) for q in self.queries]),
        )

    @cached_property
    def telling(self) -> BoolArray:
        """Which silos are asked: one without weight still tells its losses."""
        first = self.queries[0]
        every = np.arange(len(first.task.shares))
        return np.isin(every, every if first.silos is None else first.silos)

    @cached_property
    def asked(self) -> FloatArray:
        """Shares p_k; 0 for silos that are not asked."""
        return np.where(self.telling, self.queries[0].task.shares, 0.0)

    @cached_property
    def risk_weights(self) -> FloatArray:
        """β of each query."""
        return np.array([q.risk_weight for q in self.queries])

    @cached_property
    def unit_weights(self) -> FloatArray:
        """c_i/s_i per unit and query; without F's part where that is by row."""
        layout, cells = self.layout, self.queries[0].task.cells
        by_cell = np.stack([q.cell_weights for q in self.queries], axis=1)
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
    ) -> list[TrainTotal]:
        """Return the totals from updates, loss sums per unit, risks and powers."""
        cells = self.layout.cell_sums(self.queries[0].task.cells, sums)
        share, updates = float(self.asked.sum()), update.reshape(len(risks), -1)
        rest = zip(updates, risks.tolist(), cells.T, powers.T, strict=True)
        return [
            TrainTotal(own, share, risk, losses, power, np.zeros(0))
            for own, risk, losses, power in rest
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
        return self.told(update, sums, risks, powers)

    def slopes(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Loss sums per unit, risks, and Σ c_i ∇ℓ_i, at the w that was sent."""
        layout, columns, weights = self.layout, self.columns, self.unit_weights
        in_risk, models = layout.in_risk(self.asked), len(self.queries)

        def work(pieces: Sequence[Piece]) -> tuple[FloatArray, FloatArray]:
            """Return sums per unit, those for F in the last row, and gradients."""
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
                    per_row = per_row + own[:, None] * self.risk_weights
                    sums[-1] += (losses * own[:, None]).sum(axis=0)
                slopes *= per_row
                columns.pull_back(X, slopes, gradients)
            return sums, gradients

        found = zip(*self.over_pieces(work), strict=True)
        sums, gradients = (sum(parts[1:], parts[0]) for parts in found)
        risks, sums = sums[-1], sums[:-1] * layout.units_of(self.telling)[:, None]
        if in_risk.by_unit is not None:
            risks = in_risk.by_unit @ sums
        return sums, risks, gradients


class LocalSteps(Stack):
    """Several steps, or steps on batches: each silo has its own w."""

    def totals(self) -> list[TrainTotal]:
        """Answer all queries."""
        layout, powers = self.layout, np.array([q.loss_power for q in self.queries])
        sums = self.losses() * layout.units_of(self.telling)[:, None]
        by_silo = layout.by_silo(sums).sum(axis=1)
        means = by_silo / divisors(layout.masses)[:, None]
        tilted = (means + TINY) ** powers if powers.any() else 1.0
        tilts = (self.asked[:, None] * tilted * self.masses)[layout.order]
        update, lengths = self.local_steps(tilts)
        moved = tilts * lengths / (means[layout.order] + TINY)
        both = np.stack([tilts.sum(axis=0), powers * moved.sum(axis=0)])
        return self.told(update, sums, self.asked @ means, both)

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

        return np.sum(self.over_pieces(work), axis=0)

    @cached_property
    def masses(self) -> FloatArray:
        """M_k by silo and query, by which steps are divided; 1 where they are not.

        A silo without weight has 0, and takes no step.
        """
        shares = self.queries[0].task.shares
        if not self.queries[0].by_mass:
            return np.ones((len(shares), len(self.queries)))
        cells = self.layout.by_silo(self.in_cells).sum(axis=1)
        return self.risk_weights + cells * _inverse(shares)[:, None]

    def local_steps(self, tilts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Take all local steps.

        Returns Σ_k p_k F_k^q Δ_k, shape (columns, features + intercept), and ‖Δ_k‖² per
        position and model. `tilts` holds p_k F_k^q, shape (positions, models). Steps
        descend c_i/p_k; silos that are not asked take none.
        """
        layout, first = self.layout, self.queries[0]
        shares = first.task.shares[layout.order]
        divisors = np.repeat(np.where(shares > 0, shares, 1.0), layout.n_strata)
        weights = self.unit_weights / divisors[:, None]
        groups = self.groups()
        if first.silos is not None:
            groups = [g for g in groups if tilts[g.start : g.stop].any()]
        results = self.spread(
            lambda part: self.steps_pass(part, weights, tilts),
            groups,
            len(layout.X) * len(self.columns.w),
        )
        updates, lengths = zip(*results, strict=True)
        return np.sum(updates, axis=0), np.sum(lengths, axis=0)

    def groups(self) -> list[range]:
        """Positions that take local steps together.

        Silos of one group are padded to the largest of them. A group is closed when
        padding would cost more than a separate group does, or when it would not fit
        in cache; a large silo stands alone.
        """
        layout, columns = self.layout, len(self.columns.w)
        limit = piece_rows(layout.X.shape[1], columns)
        groups, first, rows = [], 0, 0
        for position, size in enumerate(layout.sizes.tolist()):
            padded = size * (position + 1 - first)
            waste = padded - (rows + size)
            if position > first and (
                padded > limit or waste > max(0.2 * rows, GROUP_COST / columns)
            ):
                groups.append(range(first, position))
                first, rows = position, 0
            rows += size
        groups.append(range(first, layout.n_silos))
        return groups

    @np.errstate(over="ignore", invalid="ignore")  # too large steps: the server sees it
    def steps_pass(
        self, groups: Sequence[range], weights: FloatArray, tilts: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Take the local steps of some groups, see `local_steps`."""
        columns, models, first = self.columns, len(self.queries), self.queries[0]
        column_of = self.per_column(range(models))
        rates = self.per_column([q.step_sizes for q in self.queries])  # (columns, J)
        ridge = self.per_column([q.ridge_weight for q in self.queries])
        per_mass = _inverse(self.masses[self.layout.order])[:, column_of]
        update, lengths = np.zeros_like(columns.w), np.zeros_like(tilts)
        for group in groups:
            here = slice(group.start, group.stop)
            w = np.repeat(columns.w[None], len(group), axis=0)  # (silos, columns, c)
            for j, (X, y, c) in enumerate(self._local_rows(group, weights)):
                gradient = _gradient(columns.model, w, X, y, c)
                gradient += ridge[None, :, None] * w
                if first.proximal:
                    gradient += first.proximal * (w - columns.w)
                gradient *= (rates[None, :, j] * per_mass[here])[..., None]
                w -= gradient
            w -= columns.w
            update += np.einsum("ks,ksc->sc", tilts[here][:, column_of], w)
            squares = np.einsum("ksc,ksc->ks", w, w)
            lengths[here] = squares.reshape(len(group), models, -1).sum(axis=2)
        return update, lengths

    def _local_rows(self, group: range, unit_weights: FloatArray) -> list[LocalRows]:
        """Rows and weights of each local step."""
        layout, query = self.layout, self.queries[0]
        sizes = layout.sizes[group.start : group.stop]
        batch, steps = query.batch_size, len(query.step_sizes)
        if batch is None or batch >= sizes.max():
            whole = [np.arange(*layout.first[k : k + 2].tolist()) for k in group]
            return [self._gather(whole, sizes, unit_weights)] * steps
        drawn = []
        for position in group:
            places = layout.places(position)
            index = int(layout.order[position])
            drawn.append([places[b] for b in query.batches(index, len(places))])
        return [
            self._gather(step, sizes, unit_weights) for step in zip(*drawn, strict=True)
        ]

    def _gather(
        self, rows: Sequence[IntArray], sizes: IntArray, unit_weights: FloatArray
    ) -> LocalRows:
        """Stack each silo's rows; short ones are padded with rows of weight 0."""
        layout, lengths = self.layout, np.array([len(index) for index in rows])
        if lengths.min() == lengths.max() == sizes.max() == sizes.min():
            # All rows of silos of one size stand side by side: no copy.
            here, shape = slice(rows[0][0], rows[-1][-1] + 1), (len(rows), -1)
            weights = layout.weigh(unit_weights[layout.units[here]], here)
            X, y = np.asarray(layout.X[here]), layout.y[here].reshape(shape)
            return X.reshape(*y.shape, -1), y, weights.reshape(*y.shape, -1)
        longest = lengths.max()
        padded = np.array(
            [np.concatenate([i, np.repeat(i[:1], longest - len(i))]) for i in rows]
        )
        weights = unit_weights[layout.units[padded]]
        if layout.weight is not None:
            weights *= layout.weight[padded][..., None]
        inside = np.arange(longest) < lengths[:, None]
        weights *= (inside * (sizes / lengths)[:, None])[..., None]
        return np.asarray(layout.X[padded]), layout.y[padded], weights


def _inverse(values: FloatArray) -> FloatArray:
    """Return 1/value; 0 of 0."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def _gradient(
    model: LinearModel,
    w: FloatArray,
    X: FloatArray,
    y: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Weighted gradients of a block: silo b has its own w[b] and its rows X[b]."""
    d, gradient = X.shape[2], np.zeros_like(w)
    step = max(64, piece_rows(d, w.shape[1]) // len(X))
    for start in range(0, X.shape[1], step):
        rows = slice(start, start + step)
        inputs = X[:, rows]
        z = np.matmul(inputs, w[:, :, :d].swapaxes(1, 2))
        if model.intercept:
            z += w[:, None, :, d]
        if model.n_outputs > 1:
            flat = model.score_slopes(z.reshape(-1, z.shape[2]), y[:, rows].reshape(-1))
            slopes = flat.reshape(z.shape)
        else:
            slopes = model.score_slopes(z, y[:, rows, None])
        slopes *= weights[:, rows]
        gradient[:, :, :d] += np.matmul(slopes.swapaxes(1, 2), inputs)
        if model.intercept:
            gradient[:, :, d] += slopes.sum(axis=1)
    return gradient
