"""`train` and `evaluate` for networks: many silos at once, in this process.

Apart from the engine because it needs torch.

Losses at the w that was sent are the same network for all silos, so their rows are
pooled into full batches. Local steps are not: each silo has its own w. There are two
ways to take them, and the module decides which is faster:

- stacked: the silos' weights are stacked and one `torch.func.vmap` runs them all. Small
  dense networks are all overhead, which this pays once for many silos (of each thread:
  torch's own threads would wait for each other in every layer).
- looped: one silo after the other, in as many threads as torch may use, one thread
  each. Convolutions are all arithmetic; stacked they become grouped convolutions, which
  take four to six times as long on a CPU, and torch's own threads would wait for each
  other in every layer of a small batch. Dropout, which must draw as the reference does,
  and layers that vmap cannot stack are looped too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from pffl.engines.base import naming
from pffl.errors import UsageError
from pffl.models.network import Network, join
from pffl.models.scaled import dense
from pffl.processors import Threads
from pffl.queries import (
    Evaluate,
    EvaluateTotal,
    Train,
    TrainTotal,
    View,
    add_all,
)
from pffl.typing import FloatArray, IntArray

BLOCK = 8  # silos that a thread takes at a time
BLOCK_NUMBERS = 4_000_000  # of stacked weights and of a step's inputs, at most
PADDING = 1.5  # a block's longest batch against its shortest, at most

LOOPED = (nn.modules.conv._ConvNd, nn.MultiheadAttention, nn.RNNBase)

_UNSTACKABLE: WeakSet[nn.Module] = WeakSet()  # learnt by trying

A = TypeVar("A")
R = TypeVar("R")


def train(
    views: Sequence[View], query: Train, spread: Threads, names: Sequence[str]
) -> TrainTotal:
    """Answer for all silos."""
    model = network_of(query)
    losses = [found[0] for found in evaluated(model, query.w, views, spread)]

    def together(part: slice) -> TrainTotal:
        return stacked_train(model, views[part], query, losses[part])

    if stackable(model) and not query.corrected:
        try:
            return add_all(side_by_side(spread, together, parts(len(views), spread)))
        except RuntimeError:  # vmap cannot stack this module
            _UNSTACKABLE.add(model.module)

    def one_by_one(block: range) -> TrainTotal:
        totals = []
        for k in block:
            with naming(names[views[k].index], query):
                reached = query.descend(views[k])
                totals.append(query.total(views[k], losses[k], reached))
        return add_all(totals)

    blocks = [range(a, min(a + BLOCK, len(views))) for a in range(0, len(views), BLOCK)]
    # torch has one generator: threads would draw from it in any order.
    workers = Threads(1) if model.random else spread
    return add_all(side_by_side(workers, one_by_one, blocks))


def evaluate(
    views: Sequence[View], query: Evaluate, spread: Threads, names: Sequence[str]
) -> EvaluateTotal:
    """Answer for all silos, from one pass over their rows."""
    model = network_of(query)
    found = evaluated(model, query.w, views, spread)
    totals = [
        query.total(view, losses, classes, partial(model.bounded, losses))
        for view, (losses, classes) in zip(views, found, strict=True)
    ]
    return query.pooled(add_all(totals), views)


BATCHED: dict[Any, Callable[..., Any]] = {
    Train: train,
    Evaluate: evaluate,
}


def network_of(query: Train | Evaluate) -> Network:
    """Return the task's model, which must be a network."""
    model = query.task.model
    if not isinstance(model, Network):
        raise UsageError(f"[not-a-network] {type(model).__name__} is not a network")
    return model


def stackable(model: Network) -> bool:
    """Whether silos' copies of the module are faster stacked than one by one."""
    if model.random or model.module in _UNSTACKABLE:
        return False
    return not any(isinstance(part, LOOPED) for part in model.module.modules())


def parts(silos: int, spread: Threads) -> list[slice]:
    """Cut the silos into one part for each thread that may work."""
    workers = max(1, min(spread.threads, torch.get_num_threads(), silos))
    cuts = np.linspace(0, silos, workers + 1).astype(int).tolist()
    return [slice(a, b) for a, b in itertools.pairwise(cuts)]


def evaluated(
    model: Network, w: FloatArray, views: Sequence[View], spread: Threads
) -> list[tuple[FloatArray, FloatArray | None]]:
    """Losses and classes of each silo's rows, computed in batches over all silos."""

    def work(
        parts: Sequence[tuple[int, slice]],
    ) -> tuple[FloatArray, FloatArray | None]:
        X = np.concatenate([views[k].X[rows] for k, rows in parts])
        y = np.concatenate([views[k].y[rows] for k, rows in parts])
        return model.losses_and_classes(w, X, y)

    sizes = [len(view) for view in views]
    batches = list(pooled_batches(sizes, model.rows_at_once))
    found = side_by_side(spread, work, batches)
    cuts = np.cumsum(sizes)[:-1]
    losses = np.split(np.concatenate([f[0] for f in found] or [np.zeros(0)]), cuts)
    codes = [f[1] for f in found if f[1] is not None]
    if not codes:
        return [(part, None) for part in losses]
    return list(zip(losses, np.split(np.concatenate(codes), cuts), strict=True))


def pooled_batches(
    sizes: Sequence[int], batch_size: int
) -> Iterator[list[tuple[int, slice]]]:
    """Cut all silos' rows, one silo after the other, into batches of (silo, rows)."""
    batch: list[tuple[int, slice]] = []
    room = batch_size
    for k, size in enumerate(sizes):
        start = 0
        while start < size:
            stop = min(size, start + room)
            batch.append((k, slice(start, stop)))
            room -= stop - start
            start = stop
            if room == 0:
                yield batch
                batch, room = [], batch_size
    if batch:
        yield batch


def side_by_side(
    spread: Threads, work: Callable[[A], R], items: Sequence[A]
) -> list[R]:
    """Return the results of `work` in order, with as many threads as torch may use.

    Each of them has one thread of torch's own. Where only one may work, torch's own
    setting is left alone.
    """
    allowed = torch.get_num_threads()
    if min(allowed, spread.threads, len(items)) < 2:
        return [work(item) for item in items]

    def alone(item: A) -> R:
        torch.set_num_threads(1)
        return work(item)

    pool = spread if spread.threads <= allowed else Threads(allowed)
    try:
        return pool.each(alone, items)
    finally:
        torch.set_num_threads(allowed)


@dataclass(frozen=True, eq=False)
class Batches:
    """The rows of each local step of one silo, and the weight of each row."""

    view: View
    rows: list[IntArray]
    weights: list[FloatArray]

    @classmethod
    def of(cls, query: Train, view: View) -> Batches:
        """Draw the batches as the plain loop does."""
        weights, everything = query.row_weights(view), np.arange(len(view))
        rows = [everything[b] for b in query.batches(view.index, len(view))]
        return cls(view, rows, [weights[r] * (len(view) / len(r)) for r in rows])

    @property
    def length(self) -> int:
        """Rows of a step."""
        return len(self.rows[0])


def stacked_train(
    model: Network,
    views: Sequence[View],
    query: Train,
    losses: Sequence[FloatArray],
) -> TrainTotal:
    """Answer for all silos; `losses` are those at the w that was sent."""
    silos = [Batches.of(query, view) for view in views]
    totals = []
    for block in blocks(model, silos):
        reached = steps(model, query, [silos[k] for k in block])
        answers = [
            query.total(views[k], losses[k], w)
            for k, w in zip(block, reached, strict=True)
        ]
        totals.append(add_all(answers))
    return add_all(totals)


def blocks(model: Network, silos: Sequence[Batches]) -> Iterator[list[int]]:
    """Silos that step together: of nearly equal batches, as many as memory allows.

    Shorter batches are padded with rows of weight 0; not so under batch norm, which
    would normalise by them.
    """
    norm = nn.modules.batchnorm._BatchNorm
    exact = any(isinstance(part, norm) for part in model.module.modules())
    lengths = np.array([silo.length for silo in silos])
    features = len(model.inputs.mean)
    block: list[int] = []
    for k in np.argsort(lengths, kind="stable").tolist():
        if block:
            most = 1.0 if exact else PADDING
            size = max(model.n_parameters, lengths[k] * features) * (len(block) + 1)
            if lengths[k] > most * lengths[block[0]] or size > BLOCK_NUMBERS:
                yield block
                block = []
        block.append(k)
    if block:
        yield block


def steps(model: Network, query: Train, silos: Sequence[Batches]) -> FloatArray:
    """Take all local steps of a block; return each silo's w, shape (silos, p)."""
    replica = model.replica
    replica.load(query.w)
    replica.training(silos[0].length)
    anchor = {n: t.detach().clone() for n, t in replica.trained.items()}
    state = {
        name: tensor.detach().expand(len(silos), *tensor.shape).clone()
        for name, tensor in replica.tensors.items()
    }
    counts = {  # buffers that are not in w, one copy a silo: vmap may write to them
        name: buffer.expand(len(silos), *buffer.shape).clone()
        for name, buffer in replica.module.named_buffers()
        if name not in replica.statistics
    }
    gathered = None
    masses = [query.mass(silo.view) for silo in silos]
    sizes = np.stack([query.over_mass(query.step_sizes, m) for m in masses])
    for j in range(len(query.step_sizes)):
        size = model.column(sizes[:, j])
        if gathered is None or query.batch_size is not None:
            gathered = _gather(model, silos, j)
        weights = {n: state[n].requires_grad_() for n in replica.trained}
        gradients = _gradients(
            model, replica.module, state | counts, weights, *gathered
        )
        with torch.no_grad():
            for (name, w), gradient in zip(weights.items(), gradients, strict=True):
                gradient = gradient + query.ridge_weight * w
                if query.proximal:
                    gradient += query.proximal * (w - anchor[name])
                state[name] = w - size.reshape(-1, *[1] * (w.ndim - 1)) * gradient
    return join(list(state.values()), stack=1)


def _gradients(
    model: Network,
    module: nn.Module,
    state: dict[str, Tensor],
    weights: dict[str, Tensor],
    X: Tensor,
    y: Tensor,
    row_weights: Tensor,
) -> tuple[Tensor, ...]:
    """Gradients of all silos from one pass: no silo's loss knows another's weights."""

    def run(own: dict[str, Tensor], rows: Tensor) -> Tensor:
        outputs: Tensor = functional_call(module, own, (rows,))
        return outputs

    outputs = vmap(run, randomness="error")(state, X)
    flat = outputs.reshape(-1, *outputs.shape[2:])
    losses = model.example_losses(flat, y.reshape(-1))
    return torch.autograd.grad(
        (losses * row_weights.reshape(-1)).sum(),
        list(weights.values()),
        allow_unused=True,
        materialize_grads=True,
    )


def _gather(
    model: Network, silos: Sequence[Batches], j: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Stack the rows, labels and weights of step j; short ones padded with weight 0."""
    longest = max(len(silo.rows[j]) for silo in silos)
    weights = np.zeros((len(silos), longest))
    places = np.empty(weights.shape, dtype=np.int64)
    for k, silo in enumerate(silos):
        rows, n = silo.rows[j], len(silo.rows[j])
        places[k, :n], places[k, n:] = rows, rows[0]
        weights[k, :n] = silo.weights[j]
    chosen = list(zip([silo.view for silo in silos], places, strict=True))
    X = model.tensor(np.concatenate([dense(view.X)[rows] for view, rows in chosen]))
    y = model.labels(np.stack([view.y[rows] for view, rows in chosen]))
    return X.reshape(*places.shape, -1), y, model.column(weights)
