"""What a network's outputs mean: the loss of each example, its class, probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pffl.data.schema import Schema
from pffl.errors import DataError, UsageError


@dataclass(frozen=True)
class Loss:
    """One kind of loss.

    Attributes
    ----------
    losses
        From outputs, labels and δ to the loss of each example.
    classes
        Of the labels: "two", "some" or "none" (numbers).
    """

    losses: Callable[[Tensor, Tensor, float], Tensor]
    classes: str


def _cross_entropy(z: Tensor, y: Tensor, delta: float) -> Tensor:
    return functional.cross_entropy(z, y.long(), reduction="none")


def _binary(z: Tensor, y: Tensor, delta: float) -> Tensor:
    return functional.binary_cross_entropy_with_logits(z, y, reduction="none")


def _squared(z: Tensor, y: Tensor, delta: float) -> Tensor:
    return torch.square(z - y)


def _huber(z: Tensor, y: Tensor, delta: float) -> Tensor:
    # Twice torch's, so that it is the squared error within δ (as HuberRegression's is).
    return 2.0 * functional.huber_loss(z, y, reduction="none", delta=delta)


LOSSES: dict[str, Loss] = {
    "cross_entropy": Loss(_cross_entropy, "some"),
    "binary": Loss(_binary, "two"),
    "squared": Loss(_squared, "none"),
    "huber": Loss(_huber, "none"),
}


def check_labels(loss: str, schema: Schema) -> int:
    """Return how many outputs these labels need, or refuse them."""
    wanted, found = LOSSES[loss].classes, len(schema.labels)
    good = {"two": found == 2, "some": found >= 2, "none": found == 0}[wanted]
    if not good:
        needed = {"two": "two classes", "some": "classes", "none": "a numeric target"}
        advice = "cross_entropy" if found > 2 else "binary" if found else "squared"
        raise DataError(
            f"the loss '{loss}' needs {needed[wanted]}; '{schema.target}' has "
            f"{f'{found} classes' if found else 'numeric values'}: use '{advice}'"
        )
    return found if wanted == "some" else 1


def check_outputs(loss: str, shape: tuple[int, ...], rows: int, outputs: int) -> None:
    """Refuse a module whose outputs do not fit the loss."""
    fits = [(rows, outputs)] if loss == "cross_entropy" else [(rows, 1), (rows,)]
    if shape not in fits:
        raise UsageError(
            f"Network: for {rows} rows the module returns outputs of shape {shape}; "
            f"the loss '{loss}' needs {' or '.join(map(str, fits))}"
        )


def scores(loss: str, outputs: Tensor) -> Tensor:
    """Return outputs as the losses take them: (n, classes), or (n,) for one score."""
    return outputs if loss == "cross_entropy" else outputs.reshape(-1)


def classes(loss: str, z: Tensor) -> Tensor | None:
    """Return predicted label codes, or None for a numeric target."""
    if LOSSES[loss].classes == "none":
        return None
    return z.argmax(dim=1) if loss == "cross_entropy" else z > 0


def probabilities(loss: str, z: Tensor) -> Tensor:
    """Return class probabilities, shape (n, classes)."""
    if LOSSES[loss].classes == "none":
        raise UsageError(
            f"a network with the loss '{loss}' predicts numbers: use predict"
        )
    if loss == "cross_entropy":
        return torch.softmax(z, dim=1)
    positive = torch.sigmoid(z)
    return torch.stack([1 - positive, positive], dim=1)
