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
        model = linear(questions[0].task)
        if model.n_outputs > 1 and len(questions) > 1:
            return [self._train([question])[0] for question in questions]
        layout = self.layout(questions[0])
        columns = _linear.Columns(
            model, np.concatenate([q.w.reshape(-1, model.n_columns) for q in questions])
        )
        shares = questions[0].task.shares[layout.order]
        weights = self._unit_weights(layout, questions)  # c_i, (units, S)
        size = len(layout.X) * len(columns.w)
        first = questions[0]
        if len(first.step_sizes) == 1 and first.batch_size is None:
            results = self._spread(
                lambda pieces: _linear.gradient_pass(layout, columns, pieces, weights),
                layout.pieces,
                size,
            )
            sums = sum(r[0] for r in results)
            gradients = sum(r[1] for r in results)
            ridge = np.array([q.risk_weight * model.l2 for q in questions])
            rates = np.array([q.step_sizes[0] for q in questions])
            per_column = len(columns.w) // len(questions)
            gradients += (
                np.repeat(ridge, per_column)[:, None] * columns.w * shares.sum()
            )
            update = -np.repeat(rates, per_column)[:, None] * gradients
        else:
            # Local steps descend c_i/p_k.
            local = weights / np.repeat(shares, layout.n_atoms)[:, None]
            sums = sum(
                self._spread(
                    lambda pieces: _linear.losses_pass(
                        layout, columns, pieces, len(questions)
                    ),
                    layout.pieces,
                    size,
                )
            )
            update = sum(
                self._spread(
                    lambda groups: _linear.steps_pass(
                        layout, questions, columns, groups, local
                    ),
                    layout.groups(len(columns.w)),
                    size,
                )
            )
        return self._train_totals(
            layout, questions, np.asarray(sums), np.asarray(update)
        )

    def _unit_weights(self, layout: Layout, questions: Sequence[Train]) -> FloatArray:
        """Return c_i per unit (silo position × atom) and question."""
        task = questions[0].task
        with np.errstate(divide="ignore", invalid="ignore"):
            per_row = task.shares[layout.order] / layout.sizes
        per_row[layout.sizes == 0] = 0.0
        weights = np.empty((layout.n_silos, layout.n_atoms, len(questions)))
        for s, q in enumerate(questions):
            by_silo = task.cells.spread(q.cell_weights, layout.n_silos)
            weights[:, :, s] = by_silo[layout.order]
            weights[:, :, s] += q.risk_weight * per_row[:, None]
        return weights.reshape(-1, len(questions))

    def _train_totals(
        self,
        layout: Layout,
        questions: Sequence[Train],
        sums: FloatArray,
        update: FloatArray,
    ) -> list[TrainTotal]:
        task = questions[0].task
        by_silo = layout.to_federation(
            sums.reshape(layout.n_silos, layout.n_atoms, len(questions))
        )
        sizes = layout.to_federation(layout.sizes.astype(np.float64))
        risks = (task.shares / sizes) @ by_silo.sum(axis=1)
        cells = task.cells.totals(by_silo)
        share = float(task.shares.sum())
        updates = update.reshape(len(questions), -1)
        return [
            TrainTotal(updates[s], share, float(risks[s]), cells[:, s])
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
        risk_weights = question.task.shares[layout.order] / layout.sizes
        results = self._spread(
            lambda pieces: _linear.curvature_pass(
                layout, question, model, pieces, risk_weights
            ),
            layout.pieces,
            len(layout.X) * model.n_parameters,
        )
        risk = np.sum([r.risk for r in results], axis=0)
        everywhere = cells.everywhere[:, None] * cells.membership
        packed = everywhere @ np.sum([r.atoms for r in results], axis=0)
        packed += np.sum([r.cells for r in results], axis=0)
        p = model.n_parameters
        return CurvatureTotal(
            float(risk[0]),
            risk[1 : p + 1],
            risk[p + 1 :].reshape(p, p),
            packed[:, 0],
            packed[:, 1 : p + 1],
            packed[:, p + 1 :].reshape(-1, p, p),
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
        and (q.batch_size, q.proximal, q.seed, q.round)
        == (first.batch_size, first.proximal, first.seed, first.round)
        for q in questions
    )
