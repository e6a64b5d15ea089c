"""The fast engine for one process: all silos' rows in one array, passes in threads.

It answers as `Reference` does, up to the order of summation. Its memory is one scaled
copy of the rows plus buffers that fit in cache. A stack of S `Train` questions that
differ in w, weights and step sizes is answered in one pass.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from pffl.data.federation import Federation
from pffl.engines import _linear
from pffl.engines._layout import Layout
from pffl.engines.reference import Reference
from pffl.models.base import Inputs
from pffl.models.linear import LinearModel
from pffl.questions import (
    Curvature,
    CurvatureTotal,
    Evaluate,
    EvaluateTotal,
    Question,
    Total,
    Train,
    TrainTotal,
)
from pffl.questions.curvature import linear
from pffl.questions.train import TINY
from pffl.typing import FloatArray

A = TypeVar("A")
R = TypeVar("R")

SMALL = 40_000  # scores below which threads cost more than they save


class Local(Reference):
    """Ask all silos at once, in this process.

    Parameters
    ----------
    federation
        The silos.
    threads
        Number of threads; None for the number of processors available.
    """

    def __init__(self, federation: Federation, *, threads: int | None = None) -> None:
        super().__init__(federation)
        self.threads = threads or len(os.sched_getaffinity(0))
        self._layouts: dict[str, Layout] = {}
        self._scaling: Inputs | None = None
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self._blas = ThreadpoolController()

    def ask(self, question: Question) -> Any:
        """Ask every silo and add the answers."""
        return self.ask_many([question])[0]

    def ask_many(self, questions: Sequence[Question]) -> list[Total]:
        """Ask several questions: those that can share a pass do."""
        model = questions[0].task.model
        if not isinstance(model, LinearModel):
            return [super(Local, self).ask(question) for question in questions]
        # One BLAS thread each: ours are the threads, and BLAS's would compete.
        with self._blas.limit(limits=1, user_api="blas"):
            if len(questions) > 1 and _stackable(questions):
                return list(self._train([q for q in questions if isinstance(q, Train)]))
            return [self._ask(question) for question in questions]

    def _ask(self, question: Question) -> Total:
        if isinstance(question, Train):
            return self._train([question])[0]
        if isinstance(question, Evaluate):
            return self._evaluate(question)
        if isinstance(question, Curvature):
            return self._curvature(question)
        total: Total = super().ask(question)
        return total

    def layout(self, question: Question) -> Layout:
        """Rows of the question's split, laid out once per scaling."""
        inputs = question.task.model.inputs
        if self._scaling is not inputs:
            self._scaling, self._layouts = inputs, {}
        if question.split not in self._layouts:
            self._layouts[question.split] = Layout.of(
                self.federation, question.split, inputs
            )
        return self._layouts[question.split]

    def _spread(
        self, work: Callable[[Sequence[A]], R], items: Sequence[A], size: int
    ) -> list[R]:
        """Share items among threads in equal consecutive parts, in a fixed order."""
        if self._pool is None or size < SMALL or len(items) < 2:
            return [work(items)]
        cuts = np.linspace(0, len(items), min(self.threads, len(items)) + 1).astype(int)
        parts = [items[a:b] for a, b in itertools.pairwise(cuts.tolist())]
        return list(self._pool.map(work, parts))

    def _train(self, questions: Sequence[Train]) -> list[TrainTotal]:
        first = questions[0]
        model = linear(first.task)
        if model.n_outputs > 1 and len(questions) > 1:
            return [self._train([question])[0] for question in questions]
        layout = self.layout(first)
        columns = _linear.Columns(
            model, np.concatenate([q.w.reshape(-1, model.n_columns) for q in questions])
        )
        asked = self._asked(layout, first)  # p_k, or 0 where not asked
        weights = self._unit_weights(layout, questions, asked)  # c_i, (units, S)
        if (
            len(first.step_sizes) == 1
            and first.batch_size is None
            and not (any(q.loss_power for q in questions))
        ):
            sums, update = self._one_step(layout, questions, columns, weights, asked)
            tilts = np.repeat(asked[:, None], len(questions), axis=1)
            lengths = np.zeros_like(tilts)
        else:
            sums = self._losses(layout, columns, len(questions))
            tilts = asked[:, None] * self._tilts(layout, questions, sums)
            update, lengths = self._steps(layout, questions, columns, weights, tilts)
        return self._train_totals(
            layout, questions, sums, update, asked, tilts, lengths
        )

    def _asked(self, layout: Layout, question: Train) -> FloatArray:
        """Shares p_k by position; 0 for silos that are not asked."""
        shares = question.task.shares
        if question.silos is not None:
            chosen = np.zeros_like(shares)
            chosen[list(question.silos)] = shares[list(question.silos)]
            shares = chosen
        return shares[layout.order]

    def _one_step(
        self,
        layout: Layout,
        questions: Sequence[Train],
        columns: _linear.Columns,
        weights: FloatArray,
        asked: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """One full gradient step: the silos' mean is one step on the whole."""
        results = self._spread(
            lambda pieces: _linear.gradient_pass(layout, columns, pieces, weights),
            layout.pieces,
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
        self, layout: Layout, columns: _linear.Columns, models: int
    ) -> FloatArray:
        results = self._spread(
            lambda pieces: _linear.losses_pass(layout, columns, pieces, models),
            layout.pieces,
            len(layout.X) * len(columns.w),
        )
        return np.sum(results, axis=0)

    def _steps(
        self,
        layout: Layout,
        questions: Sequence[Train],
        columns: _linear.Columns,
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
        results = self._spread(
            lambda part: _linear.steps_pass(
                layout, questions, columns, part, local, tilts
            ),
            groups,
            len(layout.X) * len(columns.w),
        )
        return (
            np.sum([r[0] for r in results], axis=0),
            np.sum([r[1] for r in results], axis=0),
        )

    def _tilts(
        self, layout: Layout, questions: Sequence[Train], sums: FloatArray
    ) -> FloatArray:
        """F_k^q by position and question."""
        if not any(q.loss_power for q in questions):
            return np.ones((layout.n_silos, len(questions)))
        totals = sums.reshape(layout.n_silos, layout.n_atoms, -1).sum(axis=1)
        powers = np.array([q.loss_power for q in questions])
        return (totals / layout.sizes[:, None] + TINY) ** powers

    def _unit_weights(
        self, layout: Layout, questions: Sequence[Train], asked: FloatArray
    ) -> FloatArray:
        """Return c_i per unit (silo position × atom) and question."""
        task = questions[0].task
        per_row = asked / layout.sizes
        weights = np.empty((layout.n_silos, layout.n_atoms, len(questions)))
        for s, q in enumerate(questions):
            by_silo = task.cells.spread(q.cell_weights, layout.n_silos)
            weights[:, :, s] = by_silo[layout.order]
            weights[:, :, s] += q.risk_weight * per_row[:, None]
        weights[asked == 0] = 0.0
        return weights.reshape(-1, len(questions))

    def _train_totals(
        self,
        layout: Layout,
        questions: Sequence[Train],
        sums: FloatArray,
        update: FloatArray,
        asked: FloatArray,
        tilts: FloatArray,
        lengths: FloatArray,
    ) -> list[TrainTotal]:
        by_position = sums.reshape(layout.n_silos, layout.n_atoms, len(questions))
        by_position = by_position * (asked > 0)[:, None, None]
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

    def _evaluate(self, question: Evaluate) -> EvaluateTotal:
        model, task = linear(question.task), question.task
        layout = self.layout(question)
        sums = sum(
            self._spread(
                lambda pieces: _linear.evaluate_pass(layout, question, model, pieces),
                layout.pieces,
                len(layout.X),
            )
        )
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

    def _curvature(self, question: Curvature) -> CurvatureTotal:
        model, cells = linear(question.task), question.task.cells
        layout = self.layout(question)
        p = model.n_parameters
        packing = _linear.Packing(p, question.order == 2, question.sharpness > 0)
        risk_weights = question.task.shares[layout.order] / layout.sizes
        results = self._spread(
            lambda pieces: _linear.curvature_pass(
                layout, question, model, pieces, risk_weights, packing
            ),
            layout.pieces,
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
        )


def _stackable(questions: Sequence[Question]) -> bool:
    """Whether the questions are `Train`s that may share one pass."""
    first = questions[0]
    return isinstance(first, Train) and all(
        isinstance(q, Train)
        and q.task.model is first.task.model
        and q.task.shares is first.task.shares
        and q.task.cells.membership is first.task.cells.membership
        and len(q.step_sizes) == len(first.step_sizes)
        and (q.batch_size, q.proximal, q.seed, q.round, q.silos)
        == (first.batch_size, first.proximal, first.seed, first.round, first.silos)
        for q in questions
    )
