"""The fast engine for one process: all silos' rows in one array, passes in threads.

It answers as `Reference` does, up to the order of summation. Its memory is one scaled
copy of the rows plus buffers that fit in cache. Of several questions, equal ones are
answered once, and those that ask the same kind of thing about the same rows share a
pass: a stack of S `Train` questions that differ in w, weights and step sizes is one
matrix product; `Evaluate` and `Curvature` read each piece of the rows once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from pffl.data.federation import Federation
from pffl.engines.local.layout import Layout
from pffl.engines.local.passes import evaluate, expand, train
from pffl.engines.local.threads import Spread, processors
from pffl.engines.reference import Reference
from pffl.models.base import Inputs, Model
from pffl.models.linear import LinearModel
from pffl.questions import (
    Curvature,
    Evaluate,
    ModelQuestion,
    Question,
    Task,
    Total,
    Train,
)

T = TypeVar("T", bound=Total)


class Key(NamedTuple):
    """What an answer depends on, the task as its place among those of the call."""

    task: int  # −1 without one
    kind: type[Question[Any]]
    split: str
    values: tuple[Hashable, ...]


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
        self._spread = Spread(threads or processors())
        self._layouts: dict[str, Layout] = {}
        self._scaling: Inputs | None = None
        self._blas = ThreadpoolController()

    def ask(self, question: Question[T]) -> T:
        """Ask every silo and add the answers."""
        total: T = self.ask_many([question])[0]
        return total

    def ask_many(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Ask several questions: equal ones once, and those that can share a pass."""
        tasks: list[Task] = []
        keys = [_key(question, tasks) for question in questions]
        distinct = dict(zip(keys, questions, strict=True))
        stacks: dict[Key, list[Key]] = {}
        for key, question in distinct.items():
            stacks.setdefault(_shared(question, key), []).append(key)
        totals: dict[Key, Total] = {}
        for stack in sorted(stacks.values(), key=lambda s: _scaling(s[0], tasks)):
            answers = self._answer([distinct[key] for key in stack])
            totals |= zip(stack, answers, strict=True)
        return [totals[key] for key in keys]

    def _answer(self, questions: Sequence[Question[Any]]) -> Sequence[Any]:
        """Answer questions of one kind, about one task and split."""
        task = questions[0].task
        model = None if task is None else task.model
        if isinstance(model, LinearModel):
            # One BLAS thread each: ours are the threads, and BLAS's would compete.
            with self._blas.limit(limits=1, user_api="blas"):
                return self._in_one_pass(questions)
        if model is not None and model.framework == "torch":
            return [self._ask_network(question) for question in questions]
        return [Reference.ask(self, question) for question in questions]

    def _in_one_pass(self, questions: Sequence[Question[Any]]) -> Sequence[Any]:
        """Answer questions about a linear model."""
        if trains := [q for q in questions if isinstance(q, Train)]:
            return train(self.layout(trains[0]), trains, self._spread)
        if evaluates := [q for q in questions if isinstance(q, Evaluate)]:
            return evaluate(self.layout(evaluates[0]), evaluates, self._spread)
        if curvatures := [q for q in questions if isinstance(q, Curvature)]:
            return expand(self.layout(curvatures[0]), curvatures, self._spread)
        return [Reference.ask(self, question) for question in questions]

    def _ask_network(self, question: Question[Any]) -> Any:
        from pffl.engines.local import networks  # needs torch

        views = self.views(question)
        if isinstance(question, Train):
            return networks.train(views, question, self._spread, self.silo_names)
        if isinstance(question, Evaluate):
            return networks.evaluate(views, question, self._spread)
        return super().ask(question)

    def layout(self, question: ModelQuestion[Any]) -> Layout:
        """Rows of the question's split, laid out once per scaling."""
        inputs = question.task.model.inputs
        if self._scaling is None or not self._scaling.same(inputs):
            self._scaling, self._layouts = inputs, {}
        if question.split not in self._layouts:
            self._layouts[question.split] = Layout.of(
                self.federation, question.split, inputs
            )
        return self._layouts[question.split]


def _key(question: Question[Any], tasks: list[Task]) -> Key:
    """Return what the answer depends on."""
    values = [value for name, value in vars(question).items() if name != "task"]
    plain = [(v.shape, v.tobytes()) if isinstance(v, np.ndarray) else v for v in values]
    place = -1 if question.task is None else _place(question.task, tasks)
    return Key(place, type(question), question.split, tuple(plain))


def _shared(question: Question[Any], key: Key) -> Key:
    """Return what questions of one pass have in common; everything, of other kinds."""
    if isinstance(question, Train):
        q = question
        batches = (len(q.step_sizes), q.batch_size, q.seed, q.round)
        return key._replace(values=(*batches, q.proximal, q.silos))
    if isinstance(question, Evaluate | Curvature):
        return key._replace(values=())
    return key


def _place(task: Task, tasks: list[Task]) -> int:
    """Return where a task, or one that gives the same answers, stands in the list."""
    for place, known in enumerate(tasks):
        if _same(known, task):
            return place
    tasks.append(task)
    return len(tasks) - 1


def _same(one: Task, other: Task) -> bool:
    """Whether two tasks give the same answers: bounds and names do not matter.

    Each flow makes its own task from the census, so most are equal but not identical.
    """
    if one is other:
        return True
    pairs = (
        (one.shares, other.shares),
        (one.cells.membership, other.cells.membership),
        (one.cells.silo, other.cells.silo),
    )
    return _same_model(one.model, other.model) and all(
        a is b or np.array_equal(a, b) for a, b in pairs
    )


def _same_model(one: Model, other: Model) -> bool:
    """Whether two models are one; of networks nothing but themselves is known."""
    return one is other or (
        isinstance(one, LinearModel)
        and type(one) is type(other)
        and one.n_outputs == other.n_outputs
        and one.describe() == other.describe()
        and one.inputs.same(other.inputs)
    )


def _scaling(key: Key, tasks: Sequence[Task]) -> int:
    """Return the first task of the same scaling: rows are laid out once for them."""
    if key.task < 0:
        return -1
    inputs = tasks[key.task].model.inputs
    return next(i for i, task in enumerate(tasks) if task.model.inputs.same(inputs))
