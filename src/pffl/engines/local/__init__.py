"""The fast engine for one process: all silos' rows in one array, passes in threads.

It answers as `Reference` does, up to the order of summation. Its memory is one scaled
copy of the rows plus buffers that fit in cache. Of several queries, those that ask
the same kind of thing about the same rows share a pass: a stack of S `Train` queries
that differ in w, weights and step sizes is one matrix product; the others read each
piece of the rows once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from pffl.data.federation import Federation
from pffl.engines.local.counting import census
from pffl.engines.local.layout import Layout
from pffl.engines.local.passes import evaluate, expand, witness
from pffl.engines.local.threads import Threads
from pffl.engines.local.trainings import in_one_step, train
from pffl.engines.reference import Reference
from pffl.models.base import Inputs, Model
from pffl.models.linear import LinearModel
from pffl.processors import blas_threads, processors
from pffl.queries import (
    Census,
    Evaluate,
    Expand,
    ModelQuery,
    Query,
    Task,
    Total,
    Train,
    Witness,
)

T = TypeVar("T", bound=Total)
IN_ONE_PASS: dict[Any, Callable[[Layout, Any, Threads], Sequence[Any]]] = {
    Train: train,
    Evaluate: evaluate,
    Expand: expand,
    Witness: witness,
}
Stack = tuple[int, *tuple[Hashable, ...]]


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
        self._spread = Threads(threads or processors())
        self._layouts: dict[tuple[str, bool], Layout] = {}
        self._scaling: Inputs | None = None

    def ask(self, query: Query[T]) -> T:
        """Ask every silo and add the answers."""
        total: T = self.ask_many([query])[0]
        return total

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Ask several queries: those that can share a pass do."""
        tasks: list[Task] = []
        stacks: dict[Stack, list[int]] = {}
        for place, query in enumerate(queries):
            stacks.setdefault(_stack(query, place, tasks), []).append(place)
        totals: dict[int, Any] = {}
        for _, places in sorted(stacks.items(), key=lambda stack: stack[0][0]):
            answers = self._answer([queries[place] for place in places])
            totals |= zip(places, answers, strict=True)
        return [totals[place] for place in range(len(queries))]

    def _answer(self, queries: Sequence[Any]) -> Sequence[Any]:
        """Answer queries of one kind, about one task and split."""
        task = queries[0].task
        model = None if task is None else task.model
        kind = type(queries[0])
        if queries[0].released:
            return [Reference.ask(self, query) for query in queries]
        if kind is Census and not queries[0].centred:
            return [census(self.federation, query) for query in queries]
        work = IN_ONE_PASS.get(kind)
        if kind is Evaluate and any(q.by_row for q in queries):
            parts = [silo.rows(queries[0].split) for silo in self.federation.silos]
            if any(rows.person is not None for rows in parts):
                work = None  # the layout does not know whom rows are about
        if isinstance(model, LinearModel) and work is not None:
            # One BLAS thread each: ours are the threads, and BLAS's would compete.
            with blas_threads(1):
                return work(self.layout(queries), queries, self._spread)
        if model is not None and model.framework == "torch":
            from pffl.engines.local.networks import BATCHED  # needs torch

            if alone := BATCHED.get(kind):
                names = self.silo_names
                return [alone(self.views(q), q, self._spread, names) for q in queries]
        return [Reference.ask(self, query) for query in queries]

    def layout(self, queries: Sequence[ModelQuery[Any]]) -> Layout:
        """Rows of the queries' split, laid out once per scaling.

        By stratum where no silo has to be told from others, if that pays.
        """
        split, inputs = queries[0].split, queries[0].task.model.inputs
        if self._scaling is None or not self._scaling.same(inputs):
            self._scaling, self._layouts = inputs, {}
        apart = _by_silo(queries)
        if (split, apart) not in self._layouts:
            known = self._layouts.get((split, True))
            given = (self.federation, split, inputs)
            found = Layout.of(*given, apart=apart, known=known)
            self._layouts[split, apart] = self._layouts[split, found.apart] = found
        return self._layouts[split, apart]


def _by_silo(queries: Sequence[ModelQuery[Any]]) -> bool:
    """Whether answers depend on which silo has which rows, beyond its share."""
    first = queries[0]
    if not first.task.cells.everywhere.all():
        return True
    trainings = [q for q in queries if isinstance(q, Train)]
    if trainings and (first.silos is not None or not in_one_step(trainings)):
        return True
    if trainings and not (first.task.shares > 0).all():
        return True  # what takes no step
    return isinstance(first, Expand) and not first.order


def _stack(query: Query[Any], place: int, tasks: list[Task]) -> Stack:
    """Return what queries of one pass have in common; `place` if it goes alone.

    The scaling stands first: rows are laid out once for all that share it.
    """
    if query.task is None:
        return -1, place
    task = next((known for known in tasks if _same(known, query.task)), None)
    if task is None:
        tasks.append(task := query.task)
    scaling = next(
        i for i, known in enumerate(tasks) if known.model.inputs.same(task.model.inputs)
    )
    common = (scaling, task, query.split, query.kind)
    if query.released:
        return *common, place
    if isinstance(query, Train):
        steps = (len(query.step_sizes), query.batch_size, query.proximal)
        asked = (query.slope, query.corrected, query.by_mass, query.silos)
        return *common, *steps, *asked, query.seed, query.round
    if isinstance(query, Expand):
        return *common, query.order
    return common if type(query) in IN_ONE_PASS else (*common, place)


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
        and one.target == other.target
    )
