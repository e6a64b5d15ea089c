"""Local steps of many silos' networks as one: their weights stacked, run by vmap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from pffl.models._torch_state import Replica, join
from pffl.models.network import Network
from pffl.questions import Train, TrainTotal, View, add_all
from pffl.typing import FloatArray, IntArray

BLOCK_NUMBERS = 4_000_000  # of stacked weights and of a step's inputs, at most
PADDING = 1.5  # a block's longest batch against its shortest, at most


@dataclass(frozen=True, eq=False)
class Batches:
    """The rows of each local step of one silo, and the weight of each row."""

    view: View
    rows: list[IntArray]
    weights: list[FloatArray]

    @classmethod
    def of(cls, question: Train, view: View) -> Batches:
        """Draw the batches as the plain loop does."""
        weights, everything = question.row_weights(view), np.arange(len(view))
        rows = [everything[b] for b in question.batches(view.index, len(view))]
        return cls(view, rows, [weights[r] * (len(view) / len(r)) for r in rows])

    @property
    def length(self) -> int:
        """Rows of a step."""
        return len(self.rows[0])


def train(
    model: Network,
    views: Sequence[View],
    question: Train,
    losses: Sequence[FloatArray],
) -> TrainTotal:
    """Answer for all silos; `losses` are those at the w that was sent."""
    silos = [Batches.of(question, view) for view in views]
    totals = []
    for block in blocks(model, silos):
        reached = steps(model, question, [silos[k] for k in block])
        answers = [
            question.total(views[k], losses[k], w)
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


def steps(model: Network, question: Train, silos: Sequence[Batches]) -> FloatArray:
    """Take all local steps of a block; return each silo's w, shape (silos, p)."""
    replica = model.replica
    replica.load(question.w)
    replica.training(silos[0].length)
    anchor = {n: t.detach().clone() for n, t in replica.trained.items()}
    state = {
        name: tensor.detach().expand(len(silos), *tensor.shape).clone()
        for name, tensor in replica.tensors.items()
    }
    counts = _counts(replica, len(silos))
    gathered = None
    for j, size in enumerate(question.step_sizes):
        if gathered is None or question.batch_size is not None:
            gathered = _gather(model, silos, j)
        weights = {n: state[n].requires_grad_() for n in replica.trained}
        gradients = _gradients(
            model, replica.module, state | counts, weights, *gathered
        )
        with torch.no_grad():
            for (name, w), gradient in zip(weights.items(), gradients, strict=True):
                gradient = gradient + question.ridge_weight * w
                if question.proximal:
                    gradient += question.proximal * (w - anchor[name])
                state[name] = w - float(size) * gradient
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
    shape = (len(silos), longest)
    X = np.empty((*shape, silos[0].view.X.shape[1]), silos[0].view.X.dtype)
    y, weights = np.empty(shape), np.zeros(shape)
    for k, silo in enumerate(silos):
        rows, n = silo.rows[j], len(silo.rows[j])
        padded = np.concatenate([rows, np.repeat(rows[:1], longest - n)])
        X[k], y[k] = silo.view.X[padded], silo.view.y[padded]
        weights[k, :n] = silo.weights[j]
    flat = model.tensor(X.reshape(-1, X.shape[2]))
    return flat.reshape(*shape, -1), model.labels(y), model.labels(weights)


def _counts(replica: Replica, silos: int) -> dict[str, Tensor]:
    """Buffers that are not in w, one copy for each silo: vmap may write to them."""
    return {
        name: buffer.expand(silos, *buffer.shape).clone()
        for name, buffer in replica.module.named_buffers()
        if name not in replica.statistics
    }
