"""Networks of our own, which a file can describe and rebuild: a perceptron, LEAF's CNN.

Each builder returns an ordinary `torch.nn.Module` that knows its own `description`: a
name of `ARCHITECTURES` and the numbers it was built with, never code.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from pffl.errors import MissingExtraError, Problems, UsageError

try:
    import torch
    from torch import Tensor, nn
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("torch", "a network") from error

OWN = "own module"
DTYPES = ("float32", "float64")
DEEPEST = 1000
LARGEST = 1 << 20  # of any number in a description: more is a mistake, or an attack


class Perceptron(nn.Module):
    """Dense layers with ReLU between them; see `mlp`."""

    scales_inputs = False

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], outputs: int, batch_norm: bool
    ) -> None:
        super().__init__()
        self.description: dict[str, object] = {
            "name": "mlp",
            "inputs": inputs,
            "hidden": list(hidden),
            "outputs": outputs,
            "batch_norm": batch_norm,
        }
        layers: list[nn.Module] = []
        widths = (inputs, *hidden)
        for before, after in itertools.pairwise(widths):
            layers.append(nn.Linear(before, after))
            if batch_norm:
                layers.append(nn.BatchNorm1d(after))
            layers.append(nn.ReLU())
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return scores, shape (n, outputs)."""
        scores: Tensor = self.layers(x)
        return scores


class CelebACNN(nn.Module):
    """LEAF's network for CelebA; see `celeba_cnn`."""

    scales_inputs = True

    def __init__(self, size: int, classes: int, width: int) -> None:
        super().__init__()
        self.description: dict[str, object] = {
            "name": "celeba_cnn",
            "size": size,
            "classes": classes,
            "width": width,
        }
        self.size = size
        layers: list[nn.Module] = []
        before, side = 3, size
        for _ in range(4):
            layers += [
                nn.Conv2d(before, width, 3, padding=1),
                nn.BatchNorm2d(width),
                nn.MaxPool2d(2, ceil_mode=True),
                nn.ReLU(),
            ]
            before, side = width, -(-side // 2)
        self.blocks = nn.Sequential(*layers)
        self.dense = nn.Linear(width * side * side, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores, shape (n, classes), of rows of size × size × 3 bytes."""
        pictures = x.reshape(-1, self.size, self.size, 3) / 255.0
        # Colours come last in a row, so this is a view in the layout (channels last)
        # in which convolutions are fastest.
        features = self.blocks(pictures.permute(0, 3, 1, 2))
        scores: Tensor = self.dense(features.flatten(1))
        return scores


def mlp(
    inputs: int,
    hidden: Sequence[int] = (64,),
    outputs: int = 1,
    *,
    batch_norm: bool = False,
) -> Perceptron:
    """Build a perceptron: dense layers with ReLU (and batch norm) between them.

    Parameters
    ----------
    inputs
        Number of features.
    hidden
        Width of each hidden layer; none gives a linear model.
    outputs
        Number of classes for the loss "cross_entropy", otherwise 1.
    batch_norm
        Whether each hidden layer is normalised over its batch.
    """
    with Problems("mlp", UsageError) as problems:
        _check_sizes(problems, inputs=inputs, outputs=outputs)
        if isinstance(hidden, str) or not isinstance(hidden, Sequence):
            problems.add(
                f"[wrong-value] 'hidden' must be a list of widths. Got {hidden!r} "
                "instead."
            )
        elif len(hidden) > DEEPEST:
            problems.add(f"[wrong-value] 'hidden' must have at most {DEEPEST} widths")
        else:
            for width in hidden:
                _check_sizes(problems, hidden=width)
        if not isinstance(batch_norm, bool):
            problems.add(
                f"[wrong-value] 'batch_norm' must be true or false. Got {batch_norm!r}."
            )
    return Perceptron(inputs, tuple(hidden), outputs, batch_norm)


def celeba_cnn(size: int = 84, *, classes: int = 2, width: int = 32) -> CelebACNN:
    """Build LEAF's network for CelebA.

    Four blocks of convolution 3 × 3 × 32, batch norm, max pooling by 2 and ReLU, then a
    dense layer. A row of inputs is a picture of size × size × 3 bytes, colours last, as
    `pffl.datasets.celeba` gives it; the network scales it to [0, 1] itself.
    Reference: Caldas et al. 2018, models/celeba/cnn.py.

    Parameters
    ----------
    size
        Height and width of the pictures.
    classes
        Number of classes.
    width
        Number of filters of each block.
    """
    with Problems("celeba_cnn", UsageError) as problems:
        _check_sizes(problems, size=size, classes=classes, width=width)
    return CelebACNN(size, classes, width)


ARCHITECTURES: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "celeba_cnn": celeba_cnn,
}


def build(
    description: object, dtype: object = "float32", *, parameters: int | None = None
) -> nn.Module:
    """Build one of `ARCHITECTURES` from its description; refuse anything else.

    With `parameters`, a network of another size is refused before it takes memory.
    """
    if dtype not in DTYPES:
        raise UsageError(f"'dtype' must be one of {DTYPES}. Got {dtype!r} instead.")
    values = dict(description) if isinstance(description, Mapping) else {}
    name = values.pop("name", None)
    if name == OWN:
        raise UsageError(
            "[own-module] the network is a module of your own, of the class "
            f"{values.get('class')}: read it in Python and pass that module, as "
            "read_model(path, module=…) or runs.load(directory, module=…)"
        )
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise UsageError(
            f"[unknown-architecture] no architecture {name!r}: there are "
            f"{sorted(ARCHITECTURES)}"
        )
    try:
        if parameters is not None:
            with torch.device("meta"):  # shapes only
                found = size_of(ARCHITECTURES[name](**values))
            if found != parameters:
                raise UsageError(
                    f"[wrong-architecture] architecture '{name}' with {values} has "
                    f"{found:,} parameters, not {parameters:,}"
                )
        module = ARCHITECTURES[name](**values)
    except TypeError as error:
        raise UsageError(
            f"[wrong-architecture] architecture '{name}': {error}"
        ) from error
    return module.double() if dtype == "float64" else module


def size_of(module: nn.Module) -> int:
    """Return the length of w: all parameters, and buffers of floating numbers."""
    tensors = [*module.parameters(), *module.buffers()]
    return sum(t.numel() for t in tensors if t.is_floating_point())


def description_of(module: nn.Module) -> Mapping[str, object]:
    """Return the description of one of our own, or what another one is called."""
    if isinstance(module, Perceptron | CelebACNN):
        return dict(module.description)
    return {"name": OWN, "class": type(module).__qualname__}


def _check_sizes(problems: Problems, **sizes: object) -> None:
    for name, value in sizes.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 1 <= value <= LARGEST:  # type: ignore[operator]
            problems.add(
                f"[wrong-value] '{name}' must be a whole number ≥ 1. Got {value!r} "
                "instead."
            )
