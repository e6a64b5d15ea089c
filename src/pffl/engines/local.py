"""The fast engine for one process: all silos' rows in one array, passes in threads.

It answers as `Reference` does, up to the order of summation. Its memory is one scaled
copy of the rows plus buffers that fit in cache. Of several queries, those that ask
the same kind of thing about the same rows share a pass: a stack of S `Train` queries
that differ in w, weights and step sizes is one matrix product (`training`); the others
read each piece of the rows once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from pffl.data.federation import Federation
from pffl.data.rows import Rows, stored_width
from pffl.engines.base import Reference
from pffl.engines.layout import Layout, Piece
from pffl.engines.training import in_one_step, one_by_one, train
from pffl.models.base import Inputs
from pffl.models.linear import LinearModel
from pffl.models.scaled import Design
from pffl.processors import Threads, processors
from pffl.queries import (
    Census,
    CensusTotal,
    Evaluate,
    EvaluateTotal,
    Expand,
    ExpandTotal,
    ModelQuery,
    Query,
    Total,
    Train,
    Witness,
    WitnessTotal,
    add_all,
)
from pffl.queries.base import raw, weighed
from pffl.queries.evaluate import COLUMNS
from pffl.queries.expand import linear
from pffl.typing import FloatArray, IntArray

COUNTED = 2**21  # numbers of inputs that are joined for a census
MEANS = [COLUMNS.index("loss"), COLUMNS.index("bounded_loss")]
BOUNDED = MEANS[1]

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
        self._spread = Threads(threads or processors())
        self._layouts: dict[tuple[str, bool], Layout] = {}
        self._scaling: Inputs | None = None

    def ask(self, query: Query[T]) -> T:
        """Ask every silo and add the answers."""
        total: T = self.ask_many([query])[0]
        return total

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Ask several queries: those that can share a pass do."""
        stacks: dict[Hashable, dict[Hashable, list[int]]] = {}
        for place, query in enumerate(queries):
            # By scaling first: rows are laid out once for all that share it.
            same = stacks.setdefault(query.view_key[1], {})
            same.setdefault(_stack(query, place), []).append(place)
        totals: dict[int, Any] = {}
        for places in itertools.chain(*(same.values() for same in stacks.values())):
            answers = self._answer([queries[place] for place in places])
            totals |= zip(places, answers, strict=True)
        return [totals[place] for place in range(len(queries))]

    def _answer(self, queries: Sequence[Any]) -> Sequence[Any]:
        """Answer queries of one kind, about one task and split."""
        first, kind = queries[0], type(queries[0])
        model = None if first.task is None else first.task.model
        if kind is Census and not first.released:
            return [census(self.federation, query) for query in queries]
        if isinstance(model, LinearModel) and kind in PASSES and self._lies_out(first):
            return PASSES[kind](self.layout(queries), queries, self._spread)
        if model is not None and model.framework == "torch" and not first.released:
            from pffl.engines.networks import BATCHED  # needs torch

            if alone := BATCHED.get(kind):
                names = self.silo_names
                return [alone(self.views(q), q, self._spread, names) for q in queries]
        return [Reference.ask(self, query) for query in queries]

    def _lies_out(self, query: ModelQuery[Any]) -> bool:
        """Whether a query can be answered from a layout: it knows no person."""
        if query.released or not (isinstance(query, Evaluate) and query.weighs):
            return not query.released
        parts = [silo.rows(query.split) for silo in self.federation.silos]
        return all(rows.person is None for rows in parts)

    def layout(self, queries: Sequence[ModelQuery[Any]]) -> Layout:
        """Rows of the queries' split, laid out once per scaling.

        By stratum where no silo has to be told from others, if that pays.
        """
        split, inputs = queries[0].split, queries[0].task.model.inputs
        if self._scaling is None or not self._scaling.same(inputs):
            self._scaling, self._layouts = inputs, {}
        apart = _by_silo(queries)
        if (split, apart) not in self._layouts:
            found = Layout.of(self.federation, split, inputs, apart=apart)
            self._layouts[split, apart] = self._layouts[split, found.apart] = found
        return self._layouts[split, apart]


def _by_silo(queries: Sequence[ModelQuery[Any]]) -> bool:
    """Whether answers depend on which silo has which rows, beyond its share."""
    first = queries[0]
    if not first.task.cells.everywhere.all():
        return True
    if isinstance(first, Train):
        together = first.silos is None and bool((first.task.shares > 0).all())
        return not (together and in_one_step(queries))
    return isinstance(first, Expand) and not first.order


def _stack(query: Query[Any], place: int) -> Hashable:
    """Return what queries of one pass have in common; `place` if it goes alone.

    Each flow makes its own task from the census, so most are equal but not identical.
    """
    task = query.task
    if task is None or query.released or not isinstance(task.model, LinearModel):
        return place
    common = (type(task.model), task.digest, query.split, query.kind)
    if isinstance(query, Train):
        steps = (len(query.step_sizes), query.batch_size, query.proximal)
        asked = (query.slope, query.corrected, query.by_mass, query.silos)
        return *common, *steps, *asked, query.seed, query.round
    return (*common, query.order) if isinstance(query, Expand) else common


# The census: small silos are counted together


def census(federation: Federation, query: Census) -> CensusTotal:
    """Answer for all silos, as `Census.answer` does for one."""
    parts = [silo.rows(query.split).counting for silo in federation.silos]
    sizes = np.array([len(rows) for rows in parts])
    width, found = max(1, stored_width(parts[0].X)), []
    for some in _batches(sizes, COUNTED // width):
        own = parts[some]
        rows = own[0] if len(own) == 1 else Rows.joined(own)
        strata = federation.schema.strata(rows.group, rows.y)
        of = (raw(rows.X), rows.y, strata, rows.weight)
        found.append(query.counted(*of, sizes[some]))
    return add_all(found)


def _batches(sizes: IntArray, most: int) -> Iterator[slice]:
    """Yield consecutive silos that have at most n rows together, or are one."""
    ends, first = np.cumsum(sizes), 0
    while first < len(sizes):
        before = ends[first] - sizes[first]
        after = int(np.searchsorted(ends, before + most, side="right"))
        yield slice(first, max(first + 1, after))
        first = max(first + 1, after)


# `evaluate`, `expand` and `witness` for linear models over laid-out rows


def evaluate(
    layout: Layout, queries: Sequence[Evaluate], spread: Threads
) -> list[EvaluateTotal]:
    """Answer queries about one task and split, for all silos."""
    task = queries[0].task
    model, in_risk = linear(task), layout.in_risk(task.shares)

    def sums_of(pieces: Sequence[Piece]) -> list[FloatArray]:
        """Sum up for each unit, and in the last row for F."""
        sums = [np.zeros((layout.n_units + 1, q.width)) for q in queries]
        for piece in pieces:
            rows = piece.rows
            X, y = layout.X[rows], layout.y[rows]
            weight, per_row = layout.weights(rows), in_risk.rows(rows)
            stands_for = layout.times(rows)
            for place, (query, into) in enumerate(zip(queries, sums, strict=True)):
                z = model.scores(query.w, X)
                columns = query.columns(
                    model.score_losses(z, y),
                    model.score_classes(z),
                    y,
                    partial(model.score_bounded_losses, z, y),
                )
                into[piece.units] += piece.sums(
                    query.weighed(columns, weight, stands_for)
                )
                if per_row is not None:
                    for mean in MEANS:
                        into[-1, mean] += (columns[:, mean] * per_row).sum()
                if query.weighs:
                    bounded[place][rows] = columns[:, BOUNDED]
        return sums

    bounded = [np.zeros(len(layout) if q.weighs else 0) for q in queries]
    parts = spread(sums_of, layout.pieces(), len(layout))
    totals, width = [], len(COLUMNS)
    for query, cut, *each in zip(queries, bounded, *parts, strict=True):
        sums = sum(each[1:], each[0])
        if in_risk.by_unit is not None:
            sums[-1] = in_risk.by_unit @ sums[:-1]
        cells = layout.cell_sums(task.cells, sums[:-1])
        risk, bounded_risk = sums[-1, MEANS].tolist()
        total = EvaluateTotal(
            layout.stratum_sums(sums[:-1])[:, :width],
            cells[:, :width],
            risk,
            bounded_risk,
            float(task.shares[layout.masses > 0].sum()),
            cells[:, width:],
            **layout.row_sums(query, cut),
        )
        totals.append(total)
    return totals


def expand(
    layout: Layout, queries: Sequence[Expand], spread: Threads
) -> list[ExpandTotal]:
    """Answer queries of one order about one task, for all silos."""
    task, order = queries[0].task, queries[0].order
    if not order:  # they all ask the same
        return one_by_one(layout, queries[:1], spread) * len(queries)
    model, in_risk = linear(task), layout.in_risk(task.shares)
    p, places = model.n_parameters, dict[int, IntArray]()

    def sums_of(pieces: Sequence[Piece]) -> list[tuple[FloatArray, FloatArray]]:
        """Sum up run by run: each row enters one product, or two where F needs one."""
        found = [_zeros(query) for query in queries]
        for piece in pieces:
            X, y = layout.X[piece.rows], layout.y[piece.rows]
            weight, per_row = layout.weights(piece.rows), in_risk.rows(piece.rows)
            for query, (vectors, hessians) in zip(queries, found, strict=True):
                terms = Terms.of(query, model, X, y)
                if per_row is not None:
                    vector, hessian = terms.sums(per_row, slice(None))
                    vectors[0] += vector
                    hessians[0] += hessian
                for unit, run in piece.runs:
                    vector, hessian = terms.sums(weight, run)
                    if unit not in places:
                        places[unit] = 1 + layout.cells_of(task.cells, unit)
                    for place in places[unit]:
                        vectors[place] += vector
                        hessians[place] += hessian
                    if in_risk.by_unit is not None:
                        vectors[0] += in_risk.by_unit[unit] * vector
                        hessians[0] += in_risk.by_unit[unit] * hessian
        return found

    # A Hessian is added to p² numbers: not for a few rows each time.
    pieces = layout.pieces(least=p if order == 2 else 1)
    parts = spread(sums_of, pieces, len(layout) * p)
    totals = []
    for query, *each in zip(queries, *parts, strict=True):
        vectors, hessians = (sum(some[1:], some[0]) for some in zip(*each, strict=True))
        d, s = query.dims["d"], query.dims["s"]
        gradients = vectors[:, 1 + s :].reshape(len(vectors), 1 + d + s, p)
        total = query.total(
            losses=vectors[:, 0],
            gradients=gradients[:, 0],
            hessians=hessians,
            products=gradients[:, 1 : 1 + d],
            scores=vectors[1:, 1 : 1 + s],
            score_gradients=gradients[1:, 1 + d :],
        )
        totals.append(total)
    return totals


def _zeros(query: Expand) -> tuple[FloatArray, FloatArray]:
    """Return room for the sums of F and of each cell: vectors, and Hessians."""
    v, p, d, s, h = (query.dims[axis] for axis in "vpdsh")
    return np.zeros((v, 1 + s + (1 + d + s) * p)), np.zeros((v, h, h))


@dataclass(frozen=True, eq=False)
class Terms:
    """What is summed up of some rows.

    Attributes
    ----------
    values
        Numbers of each row, shape (n, values).
    slopes
        What is pulled back to gradients, shape (n, gradients, outputs).
    curvatures
        Of Hessians; None where none is asked for.
    """

    model: LinearModel
    X: Design
    values: FloatArray
    slopes: FloatArray
    curvatures: FloatArray | None

    @classmethod
    def of(cls, query: Expand, model: LinearModel, X: Design, y: FloatArray) -> Terms:
        """Return the terms of a query."""
        z = model.scores(query.w, X)
        losses, slopes = model.score_losses_and_slopes(z, y)
        values, pulled = [losses], [slopes.reshape(len(y), 1, model.n_outputs)]
        bent = None
        if query.order == 2:
            bent = model.score_curvatures(z, y, majorant=False)
        if query.directions.size:
            pulled.append(model.slope_changes(query.directions, X, z, y))
        if query.sharpness:
            scores, steep = query.scores(z)
            values.append(scores)
            pulled.append(steep[:, None, None])
        return cls(model, X, np.array(values), np.concatenate(pulled, axis=1), bent)

    def sums(self, weight: FloatArray | None, rows: slice) -> tuple[Any, Any]:
        """Return values and gradients in one vector, and the Hessian, of some rows."""
        X, own = self.X[rows], None if weight is None else weight[rows]
        values = self.values[:, rows]
        if own is not None:
            values = values * own
        slopes = weighed(self.slopes[rows], own)
        vector = np.append(values.sum(axis=1), self.model.pull_back(X, slopes))
        if self.curvatures is None:
            return vector, 0.0
        return vector, self.model.gram(X, weighed(self.curvatures[rows], own))


def witness(
    layout: Layout, queries: Sequence[Witness], spread: Threads
) -> list[WitnessTotal]:
    """Answer queries about one task, for all silos."""
    task = queries[0].task
    model, in_risk = linear(task), layout.in_risk(task.shares)
    by_units = []
    for query in queries:
        by_unit = layout.unit_weights(task.cells, query.cell_weights[:, None])[:, 0]
        if in_risk.by_unit is not None:
            by_unit = by_unit + query.risk_weight * in_risk.by_unit
        by_units.append(by_unit)

    def blocks_of(pieces: Sequence[Piece]) -> list[list[FloatArray]]:
        found: list[list[FloatArray]] = [[] for _ in queries]
        for piece in pieces:
            X, y = layout.X[piece.rows], layout.y[piece.rows]
            units, per_row = layout.units[piece.rows], in_risk.rows(piece.rows)
            for query, by_unit, into in zip(queries, by_units, found, strict=True):
                weights = layout.weigh(by_unit[units], piece.rows)
                if per_row is not None:
                    weights = weights + query.risk_weight * per_row
                into += query.sums(model, X, y, weights)
        return found

    parts = spread(blocks_of, layout.pieces(), len(layout) * model.n_parameters)
    return [
        query.total([block for part in of_one for block in part])
        for query, *of_one in zip(queries, *parts, strict=True)
    ]


PASSES: dict[Any, Callable[[Layout, Any, Threads], Sequence[Any]]] = {
    Train: train,
    Evaluate: evaluate,
    Expand: expand,
    Witness: witness,
}
