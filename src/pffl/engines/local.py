"""The fast engine for one process: all silos' rows in one array, passes in threads.

It answers as `Reference` does, up to the order of summation. Its memory is one scaled
copy of the rows plus buffers that fit in cache. A stack of S `Train` questions that
differ in w, weights and step sizes is answered in one pass.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from pffl.data.federation import Federation
from pffl.engines._evaluation import evaluate
from pffl.engines._expansion import expand
from pffl.engines._layout import Layout
from pffl.engines._threads import Spread
from pffl.engines._training import train
from pffl.engines.reference import Reference
from pffl.models.base import Inputs
from pffl.models.linear import LinearModel
from pffl.questions import (
    Curvature,
    Evaluate,
    ModelQuestion,
    Question,
    Total,
    Train,
)

T = TypeVar("T", bound=Total)


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
        self._spread = Spread(threads or len(os.sched_getaffinity(0)))
        self._layouts: dict[str, Layout] = {}
        self._scaling: Inputs | None = None
        self._blas = ThreadpoolController()

    def ask(self, question: Question[T]) -> T:
        """Ask every silo and add the answers."""
        total: T = self.ask_many([question])[0]
        return total

    def ask_many(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Ask several questions: those that can share a pass do."""
        if not any(map(_linear, questions)):
            return [self._ask_other(question) for question in questions]
        # One BLAS thread each: ours are the threads, and BLAS's would compete.
        with self._blas.limit(limits=1, user_api="blas"):
            if len(questions) > 1 and _stackable(questions):
                stack = [q for q in questions if isinstance(q, Train)]
                return list(train(self.layout(stack[0]), stack, self._spread))
            if len(questions) > 1 and _same(questions):
                return [self._ask(questions[0])] * len(questions)
            return [self._ask(question) for question in questions]

    def _ask(self, question: Question[Any]) -> Total:
        if not _linear(question):
            return self._ask_other(question)
        if isinstance(question, Train):
            return train(self.layout(question), [question], self._spread)[0]
        if isinstance(question, Evaluate):
            return evaluate(self.layout(question), question, self._spread)
        if isinstance(question, Curvature):
            return expand(self.layout(question), question, self._spread)
        return self._ask_other(question)

    def _ask_other(self, question: Question[Any]) -> Total:
        """Ask about rows as they are, or a model that is not linear."""
        if question.task and getattr(question.task.model, "name", "") == "network":
            from pffl.engines import _networks  # needs torch

            views, names = self.views(question), self.silo_names
            if isinstance(question, Train):
                return _networks.train(views, question, self._spread, names)
            if isinstance(question, Evaluate):
                return _networks.evaluate(views, question, self._spread)
        total: Total = super().ask(question)
        return total

    def layout(self, question: ModelQuestion[Any]) -> Layout:
        """Rows of the question's split, laid out once per scaling."""
        inputs = question.task.model.inputs
        if not _equal(self._scaling, inputs):
            self._scaling, self._layouts = inputs, {}
        if question.split not in self._layouts:
            self._layouts[question.split] = Layout.of(
                self.federation, question.split, inputs
            )
        return self._layouts[question.split]


def _linear(question: Question[Any]) -> bool:
    """Whether a question is about a linear model."""
    return question.task is not None and isinstance(question.task.model, LinearModel)


def _stackable(questions: Sequence[Question[Any]]) -> bool:
    """Whether the questions are `Train`s that may share one pass."""
    first = questions[0]
    return isinstance(first, Train) and all(
        isinstance(q, Train)
        and _linear(q)
        and q.task.model is first.task.model
        and q.task.shares is first.task.shares
        and q.task.cells.membership is first.task.cells.membership
        and len(q.step_sizes) == len(first.step_sizes)
        and (q.batch_size, q.proximal, q.seed, q.round, q.silos)
        == (first.batch_size, first.proximal, first.seed, first.round, first.silos)
        for q in questions
    )


def _same(questions: Sequence[Question[Any]]) -> bool:
    """Whether the questions are one `Curvature` asked by several methods."""
    first = questions[0]
    return isinstance(first, Curvature) and all(
        isinstance(q, Curvature)
        and q.task.model is first.task.model
        and q.task.shares is first.task.shares
        and q.task.cells.membership is first.task.cells.membership
        and (q.majorant, q.order, q.sharpness)
        == (first.majorant, first.order, first.sharpness)
        and np.array_equal(q.w, first.w)
        for q in questions
    )


def _equal(one: Inputs | None, other: Inputs) -> bool:
    """Whether two scalings are the same: each `solve` makes its own from the census."""
    return one is other or (
        one is not None
        and np.array_equal(one.mean, other.mean)
        and np.array_equal(one.scale, other.scale)
    )
