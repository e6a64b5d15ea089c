"""A network on each example by itself: losses, and gradients no longer than a clip.

What one person can change in a sum is bounded only if nothing else of the sum depends
on them. So the module is never given two examples together: `torch.func.vmap` maps it
over batches of one, and whatever a module does with its batch, it does with one person.
Kernels still multiply many of these at once, where last digits can hang on who else is
there: all is computed in double precision, so that this is some 1e-16, far below the
grid of 2^−24 on which contributions are rounded.
Layers whose training keeps or draws something between examples are refused by name.

Apart from `network` because only runs with noise need it.

Reference: Abadi et al., *Deep learning with differential privacy*, CCS 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from pffl.errors import UsageError
from pffl.models.network import Network, join, numbers
from pffl.models.scaled import Design
from pffl.numerics import shortened
from pffl.typing import FloatArray

NUMBERS = 4_000_000  # of gradients at once: rows × parameters
FARTHEST = 1e140  # squares, and sums of many of them, stay finite
#: Layers that are not functions of one example and the weights alone, and why.
REFUSED: tuple[tuple[tuple[type[nn.Module], ...], str], ...] = (
    (
        (nn.modules.batchnorm._BatchNorm,),
        "normalises by other people's rows: use GroupNorm or LayerNorm",
    ),
    (
        (nn.modules.dropout._DropoutNd,),
        "draws at random in training, which noise already does: leave it out",
    ),
    (
        (nn.RNNBase,),
        "cannot be differentiated example by example (torch.func has no rule for it)",
    ),
)

_CHECKED: WeakSet[nn.Module] = WeakSet()  # by trying


def faults(model: Network) -> list[str]:
    """Return, by name, what keeps a module from being trained example by example."""
    out = []
    for name, part in model.module.named_modules():
        where = f"the layer '{name}' ({type(part).__name__})"
        why = next((why for kinds, why in REFUSED if isinstance(part, kinds)), None)
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p == 0:
            continue
        if why is None and getattr(part, "track_running_stats", False):
            why = "keeps running statistics of other people's rows"
        if why is not None:
            out.append(f"{where} {why}")
    return out


def check(model: Network) -> None:
    """Refuse a bound model whose module cannot be mapped over single examples."""
    if model.module in _CHECKED:
        return
    found = faults(model)
    if not found:
        rows, zero = model._two_rows, np.zeros(2)
        w = model.replica.vector()
        try:
            losses_and_classes(model, w, rows, zero)
            for _ in gradients(model, w, rows, zero, 1.0):
                pass
        except (RuntimeError, ValueError, TypeError, IndexError) as reason:
            line = (str(reason).splitlines() or ["unknown"])[0]
            found = [f"a module that torch.func cannot map over examples ({line})"]
    if found:
        raise UsageError(f"not available under noise: {'; '.join(found)}")
    _CHECKED.add(model.module)


def losses_and_classes(
    model: Network, w: FloatArray, X: Design, y: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the loss and the predicted class of each example, each by itself."""
    tensors, score = _loaded(model, w)

    def one(tensors: dict[str, Tensor], x: Tensor, label: Tensor) -> tuple[Tensor, ...]:
        z = score(tensors, x)
        classes = model._loss.classes(model._loss.scores(z))
        return model.example_losses(z, label[None])[0], _known(classes)[0]

    mapped = vmap(one, in_dims=(None, 0, 0))
    losses, codes = np.empty(len(X)), np.empty(len(X))
    for rows in model._batches(len(X)):
        with torch.no_grad():
            found = mapped(tensors, *_doubled(model, X[rows], y[rows]))
        losses[rows], codes[rows] = numbers(found[0]), numbers(found[1])
    return losses, codes


def gradients(
    model: Network, w: FloatArray, X: Design, y: FloatArray, clip: float
) -> Iterator[tuple[slice, FloatArray]]:
    """Yield rows and the gradient of each one's loss, no longer than the clip.

    A gradient that is no number counts as 0. Frozen parts of w have none, and are left
    out.
    """
    tensors, score = _loaded(model, w)
    trained = {name: tensors.pop(name) for name in model.replica.trained}

    def loss(free: dict[str, Tensor], x: Tensor, label: Tensor) -> Tensor:
        return model.example_losses(score({**free, **tensors}, x), label[None])[0]

    mapped = vmap(grad(loss), in_dims=(None, 0, 0))
    step = max(1, min(model.rows_at_once, NUMBERS // max(1, model.n_trained)))
    for first in range(0, len(X), step):
        rows = slice(first, min(first + step, len(X)))
        found = mapped(trained, *_doubled(model, X[rows], y[rows]))
        own = join(list(found.values()), stack=1)
        own[~np.isfinite(own).all(axis=1)] = 0.0
        yield rows, shortened(np.clip(own, -FARTHEST, FARTHEST), clip)


def _loaded(
    model: Network, w: FloatArray
) -> tuple[dict[str, Tensor], Callable[[dict[str, Tensor], Tensor], Tensor]]:
    """Return the module's tensors at w, and its outputs for one example by them."""
    replica = model.replica
    replica.load(w)
    module = replica.evaluating()
    tensors = {name: t.detach().double() for name, t in replica.tensors.items()}

    def score(tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        found: Tensor = functional_call(module, tensors, (x[None],))
        return found

    return tensors, score


def _doubled(model: Network, X: Design, y: FloatArray) -> tuple[Tensor, Tensor]:
    """Return rows and labels as the module takes them, in double precision."""
    return model.tensor(X).double(), model.labels(y).double()


def _known(classes: Tensor | None) -> Tensor:
    if classes is None:
        raise UsageError("not available under noise: a numeric target")
    return classes
