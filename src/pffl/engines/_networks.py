"""`train` and `evaluate` for networks: many silos at once, in this process.

Losses at the w that was sent are the same network for all silos, so their rows are
pooled into full batches. Local steps are not: each silo has its own w. There are two
ways to take them, and the module decides which is faster:

- stacked (`_stacked`): the silos' weights are stacked and one `torch.func.vmap` runs
  them all. Small dense networks are all overhead, which this pays once for many silos
  (of each thread: torch's own threads would wait for each other in every layer).
- looped: one silo after the other, in as many threads as torch may use, one thread
  each. Convolutions are all arithmetic; stacked they become grouped convolutions, which
  take four to six times as long on a CPU, and torch's own threads would wait for each
  other in every layer of a small batch. Dropout, which must draw as the reference does,
  and layers that vmap cannot stack are looped too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar
from weakref import WeakSet

import numpy as np
import torch
from torch import nn

from pffl.engines import _stacked
from pffl.engines._threads import Spread
from pffl.errors import FederationError, PFFLError, UsageError
from pffl.models.network import Network
from pffl.questions import Evaluate, EvaluateTotal, Train, TrainTotal, View, add_all
from pffl.typing import FloatArray

BLOCK = 8  # silos that a thread takes at a time

LOOPED = (
    nn.modules.conv._ConvNd,
    nn.MultiheadAttention,
    nn.RNNBase,
)

_UNSTACKABLE: WeakSet[nn.Module] = WeakSet()  # learnt by trying

A = TypeVar("A")
R = TypeVar("R")


def train(
    views: Sequence[View], question: Train, spread: Spread, names: Sequence[str]
) -> TrainTotal:
    """Answer for all silos."""
    model = network_of(question)
    losses = [found[0] for found in evaluated(model, question.w, views, spread)]

    def together(part: slice) -> TrainTotal:
        return _stacked.train(model, views[part], question, losses[part])

    if stackable(model):
        try:
            return add_all(side_by_side(spread, together, parts(len(views), spread)))
        except RuntimeError:  # vmap cannot stack this module
            _UNSTACKABLE.add(model.module)

    def one_by_one(block: range) -> TrainTotal:
        totals = []
        for k in block:
            try:
                totals.append(
                    question.total(views[k], losses[k], question.descend(views[k]))
                )
            except PFFLError:
                raise
            except Exception as error:
                raise FederationError(
                    f"silo '{names[views[k].index]}' failed to answer train: {error}"
                ) from error
        return add_all(totals)

    blocks = [range(a, min(a + BLOCK, len(views))) for a in range(0, len(views), BLOCK)]
    # torch has one generator: threads would draw from it in any order.
    workers = Spread(1) if model.random else spread
    return add_all(side_by_side(workers, one_by_one, blocks))


def evaluate(
    views: Sequence[View], question: Evaluate, spread: Spread
) -> EvaluateTotal:
    """Answer for all silos, from one pass over their rows."""
    found = evaluated(network_of(question), question.w, views, spread)
    return add_all(
        [
            question.total(view, losses, classes)
            for view, (losses, classes) in zip(views, found, strict=True)
        ]
    )


def network_of(question: Train | Evaluate) -> Network:
    """Return the task's model, which must be a network."""
    model = question.task.model
    if not isinstance(model, Network):
        raise UsageError(f"{type(model).__name__} is not a network")
    return model


def stackable(model: Network) -> bool:
    """Whether silos' copies of the module are faster stacked than one by one."""
    if model.random or model.module in _UNSTACKABLE:
        return False
    return not any(isinstance(part, LOOPED) for part in model.module.modules())


def parts(silos: int, spread: Spread) -> list[slice]:
    """Cut the silos into one part for each thread that may work."""
    workers = max(1, min(spread.threads, torch.get_num_threads(), silos))
    cuts = np.linspace(0, silos, workers + 1).astype(int).tolist()
    return [slice(a, b) for a, b in itertools.pairwise(cuts)]


def evaluated(
    model: Network, w: FloatArray, views: Sequence[View], spread: Spread
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


def side_by_side(spread: Spread, work: Callable[[A], R], items: Sequence[A]) -> list[R]:
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

    pool = spread if spread.threads <= allowed else Spread(allowed)
    try:
        return pool.each(alone, items)
    finally:
        torch.set_num_threads(allowed)
