"""Any `torch.nn.Module` as a model: its state is w, its batches are cut here.

Training is what torch users expect: batch norm normalises by the batch and moves its
running statistics, dropout drops. Statistics are the last entries of w; silos' values
are averaged like weights, but no gradient step, ridge or server optimiser touches them.
Losses, predictions and certificates are taken with the module in evaluation mode.

Two architectures can be named in a run file and rebuilt from a model file: `mlp` and
`celeba_cnn`. They know their own description, a name and numbers, never code.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self
from weakref import WeakSet

import numpy as np

from pffl.data.schema import Schema
from pffl.errors import DataError, MissingExtraError, Problems, UsageError, wrong
from pffl.models.base import UNSCALED, Inputs, Model, Step, Target
from pffl.models.linear import (
    LeastSquares,
    LinearModel,
    LogisticRegression,
    SoftmaxRegression,
)
from pffl.models.scaled import Design, dense
from pffl.records import NonNegative, check_parameters
from pffl.typing import FloatArray

try:
    import torch
    from torch import Tensor, nn
    from torch.func import functional_call, vmap
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("torch", "Network") from error

BATCH_NUMBERS = 1 << 16  # inputs evaluated at once, within these limits on rows
MIN_BATCH_ROWS, MAX_BATCH_ROWS = 16, 1024
MAX_LAYERS = 1000
MAX_LAYER_SIZE = 1 << 20  # more is a mistake, or an attack
OWN_MODULE = "own module"
LOOPED = (nn.modules.conv._ConvNd, nn.MultiheadAttention, nn.RNNBase)
_UNSTACKABLE: WeakSet[nn.Module] = WeakSet()  # learnt by trying

LossName = Literal["cross_entropy", "binary", "squared"]
#: What outputs mean: losses, slopes and predictions that follow from scores.
LOSSES: dict[str, type[LinearModel]] = {
    "cross_entropy": SoftmaxRegression,
    "binary": LogisticRegression,
    "squared": LeastSquares,
}


def loss_for(name: str, schema: Schema) -> LinearModel:
    """Return what follows from scores under a loss; refuse other labels."""
    link = LOSSES[name]()
    try:
        return replace(link, n_outputs=link.check_labels(schema))
    except DataError as error:
        found = len(schema.labels)
        advice = "cross_entropy" if found > 2 else "binary" if found else "squared"
        raise DataError(
            "wrong-model:loss-for",
            name=name,
            target=schema.target,
            what=f"{found} classes" if found else "numeric values",
            advice=advice,
        ) from error


def scores_of(outputs: Tensor, link: LinearModel) -> Tensor:
    """Return a module's outputs as scores; refuse those that do not fit the loss."""
    rows, several = len(outputs), link.n_outputs > 1
    fits = [(rows, link.n_outputs)] if several else [(rows, 1), (rows,)]
    if outputs.shape not in fits:
        raise UsageError(
            "wrong-shape:scores-of",
            rows=rows,
            shape=tuple(outputs.shape),
            fits=" or ".join(map(str, fits)),
        )
    return outputs if several else outputs.reshape(-1)


@dataclass(frozen=True, eq=False)
class Network(Model):
    """A model that is a torch module.

    Parameters
    ----------
    module
        Takes rows, shape (n, features), in its own floating type; returns scores, shape
        (n, classes), for "cross_entropy", otherwise (n, 1) or (n,). It is not changed.
    loss
        "cross_entropy" (two or more classes), "binary" (one score for two classes) or
        "squared" (a numeric target).
    l2
        μ of the ridge term (μ/2)‖w‖², over all trained parameters.
    standardize
        Whether features are scaled to mean 0 and variance 1 over all silos. None: yes,
        unless the module says ``scales_inputs = True``, as `celeba_cnn` does.
    initial
        Where training starts: "drawn" draws the weights of every layer anew from the
        run's seed, "given" takes them as they are in `module`.
    device
        Where to compute.

    Raises
    ------
    UsageError
        The module has no parameters, or a parameter is out of its range.

    Examples
    --------
    >>> import pffl, torch
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> module = torch.nn.Sequential(
    ...     torch.nn.Linear(10, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    ... )
    >>> method = pffl.methods.PFFL(dual_rounds=2, rounds_per_dual=2, step_size=0.1)
    >>> bounds = pffl.BoundedGroupLoss(0.9)
    >>> solution = pffl.solve(
    ...     people, bounds, model=Network(module), method=method, random_state=0
    ... )
    >>> solution.predict_proba(people.pooled("test").X[:2]).shape
    (2, 2)
    """

    module: nn.Module
    loss: LossName = "cross_entropy"
    l2: NonNegative = 0.0
    standardize: bool | None = field(default=None, kw_only=True)
    initial: Literal["drawn", "given"] = field(default="drawn", kw_only=True)
    device: str = field(default="cpu", kw_only=True)
    inputs: Inputs = field(
        default_factory=lambda: Inputs.identity(0), repr=False, kw_only=True
    )
    target: Target = field(default=UNSCALED, repr=False, kw_only=True)
    n_outputs: int = field(default=1, repr=False, kw_only=True)
    _threads: threading.local = field(
        default_factory=threading.local, init=False, repr=False
    )

    name: ClassVar[str] = "network"

    def __post_init__(self) -> None:
        with Problems("Network", UsageError) as problems:
            check_parameters(self, problems)
            if isinstance(self.module, nn.Module):
                parameters = list(self.module.parameters())
                if not any(p.requires_grad for p in parameters):
                    problems.add("no-parameters")
                tensors = [*parameters, *self.module.buffers()]
                kinds = {str(t.dtype) for t in tensors if t.is_floating_point()}
                if len(kinds) > 1:
                    problems.add("mixed-types", kinds=sorted(kinds))
            else:
                wanted = "a torch.nn.Module"
                problems.add(wrong("module", "Network", wanted, self.module))
            try:
                torch.empty(0, device=self.device)
            except (RuntimeError, AssertionError, TypeError) as reason:
                problems.add("no-device", device=self.device, reason=reason)

    def bind(self, schema: Schema, inputs: Inputs) -> Self:
        """Return this model for these data; refuse what does not fit them."""
        link = loss_for(self.loss, schema)
        inputs = replace(
            inputs if self.standardized else inputs.unscaled(), deferred=True
        )
        bound = replace(self, inputs=inputs, n_outputs=link.n_outputs)
        try:
            bound.scores(bound.start(0), np.repeat(inputs.mean[None], 2, axis=0))
        except (RuntimeError, ValueError, TypeError, IndexError) as reason:
            raise UsageError(
                "wrong-shape:bind", n_features=schema.n_features, reason=reason
            ) from reason
        return bound

    @cached_property
    def link(self) -> LinearModel:
        """What follows from scores: losses, slopes and predictions."""
        link = LOSSES[self.loss](n_outputs=self.n_outputs)
        return link.with_target(self.target)

    def with_target(self, target: Target) -> Self:
        """Return this model with its outputs in units of the target."""
        return replace(self, target=target) if self.standardized else self

    @property
    def standardized(self) -> bool:
        """Whether features are scaled before the module sees them, and the target."""
        if self.standardize is None:
            return not getattr(self.module, "scales_inputs", False)
        return self.standardize

    @property
    def replica(self) -> Replica:
        """The calling thread's copy of the module: threads must not share one."""
        if not hasattr(self._threads, "replica"):
            self._threads.replica = Replica(self.module, self.torch_device)
        replica: Replica = self._threads.replica
        return replica

    @cached_property
    def torch_device(self) -> torch.device:
        """Where to compute."""
        return torch.device(self.device)

    @cached_property
    def n_parameters(self) -> int:
        """Length p of w, statistics included."""
        return len(self.replica.state)

    @cached_property
    def n_trained(self) -> int:
        """Length of the part of w that is descended."""
        return self.replica.n_trained

    def start(self, seed: int) -> FloatArray:
        """Return the first w: drawn from the seed, or as the module was given."""
        replica = Replica(self.module, torch.device("cpu"))
        if self.initial == "drawn":
            draw(replica.module, seed)
        return numbers(replica.state)

    def tensor(self, X: Design) -> Tensor:
        """Return rows as the module takes them: scaled, in its type, on its device."""
        given = dense(X)
        rows = torch.from_numpy(given if given.flags.writeable else given.copy())
        rows = rows.to(self.torch_device)
        if self.standardized:
            rows = (rows - self._scaling[0]) / self._scaling[1]
        return rows.to(self._dtype)

    def losses_and_gradient(
        self, w: FloatArray, X: Design, y: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the losses and ``Σ_i weights_i ∇ℓ_i(w)``, in evaluation mode.

        The gradient is 0 for running statistics: they are not descended.
        """
        replica = self.replica
        replica.load(w)
        replica.module.eval()
        losses, gradient = np.empty(len(X)), np.zeros(len(w))
        for rows in self._batches(len(X)):
            part = self._loss_gradient(replica, X[rows], y[rows], weights[rows])
            losses[rows] = part[0]
            gradient[: self.n_trained] += part[1]
        return losses, gradient

    def local_step(
        self, w: FloatArray, X: Design, y: FloatArray, weights: FloatArray, step: Step
    ) -> FloatArray:
        """Return w after one step in training mode, on all these rows at once."""
        gradient = self.step_gradient(w, X, y, weights, step.key)[: self.n_trained]
        moved = step.take(w[: self.n_trained], gradient)
        return np.concatenate([moved, numbers(self.replica.state[self.n_trained :])])

    def step_gradient(
        self,
        w: FloatArray,
        X: Design,
        y: FloatArray,
        weights: FloatArray,
        key: tuple[int, ...],
    ) -> FloatArray:
        """Return the gradient in training mode; the replica's statistics move."""
        replica = self.replica
        replica.load(w)
        replica.training(len(X))
        with seeded(key, self.torch_device):
            _, gradient = self._loss_gradient(replica, X, y, weights)
        return np.pad(gradient, (0, self.n_parameters - self.n_trained))

    @property
    def stacks(self) -> bool:
        """Whether silos' copies of the module are faster stacked than one by one.

        Stacked convolutions are grouped ones, which take several times as long.
        """
        parts = self.module.modules()
        return self.module not in _UNSTACKABLE and not any(
            isinstance(part, LOOPED) for part in parts
        )

    @property
    def pads(self) -> bool:
        """Whether rows of weight 0 change nothing: batch norm would count them."""
        norm = nn.modules.batchnorm._BatchNorm
        return not any(isinstance(part, norm) for part in self.module.modules())

    def cannot_stack(self) -> None:
        """Remember that `vmap` cannot stack the module, or that it failed."""
        _UNSTACKABLE.add(self.module)

    def stacked_gradients(
        self, w: FloatArray, X: FloatArray, y: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the gradients of silos that have a w each, and their statistics.

        All in training mode and one pass: no silo's loss knows another's weights.
        Shapes are those of `w`, (silos, p), and (silos, n, …) of rows.
        """
        replica, silos, trained = self.replica, len(w), self.n_trained
        replica.load(w[0])
        replica.training(X.shape[1])
        state = torch.tensor(w).to(replica.state)
        moving, rest = state[:, :trained].requires_grad_(), state[:, trained:].clone()
        sizes = [t.numel() for t in replica.tensors.values()]
        columns = torch.split(torch.cat([moving, rest], dim=1), sizes, dim=1)
        named = zip(replica.tensors.items(), columns, strict=True)
        own = {n: part.reshape(silos, *t.shape) for (n, t), part in named}
        statistics = {n: own[n].detach().clone() for n in replica.statistics}
        counts = {  # buffers that are not in w, one copy a silo: vmap may write to them
            n: buffer.expand(silos, *buffer.shape).clone()
            for n, buffer in replica.module.named_buffers()
            if n not in replica.statistics
        }

        def run(own: dict[str, Tensor], rows: Tensor) -> Tensor:
            outputs: Tensor = functional_call(replica.module, own, (rows,))
            return outputs

        rows = self.tensor(X.reshape(-1, X.shape[2])).reshape(silos, X.shape[1], -1)
        outputs = vmap(run, randomness="error")({**own, **statistics, **counts}, rows)
        z = scores_of(outputs.reshape(-1, *outputs.shape[2:]), self.link)
        slopes = self.link.score_slopes(numbers(z), y.reshape(-1))
        pulled = torch.as_tensor((slopes.T * weights.reshape(-1)).T).to(z)
        (gradient,) = torch.autograd.grad(z, [moving], pulled)
        moved = [numbers(t).reshape(silos, -1) for t in statistics.values()]
        return numbers(gradient), np.concatenate([np.zeros((silos, 0)), *moved], axis=1)

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a numeric target."""
        return self.link.n_classes

    def scores(self, w: FloatArray, X: Design) -> FloatArray:
        """Return the module's outputs, shape (n,), or (n, classes)."""
        replica = self.replica
        replica.load(w)
        module = replica.module.eval()
        shape = (0, self.n_outputs) if self.n_outputs > 1 else (0,)
        found = [np.zeros(shape)]
        with torch.inference_mode():
            for rows in self._batches(len(X)):
                z = scores_of(module(self.tensor(X[rows])), self.link)
                found.append(numbers(z))
        return np.concatenate(found)

    def state_dict(self, w: FloatArray) -> dict[str, Tensor]:
        """Return w as torch's `load_state_dict` takes it."""
        replica = Replica(self.module, torch.device("cpu"))
        replica.load(w)
        return dict(replica.module.state_dict())

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages; see `rebuild`."""
        return {
            "kind": self.name,
            "architecture": description_of(self.module),
            "dtype": str(self._dtype).removeprefix("torch."),
            "loss": self.loss,
            "l2": self.l2,
            "standardize": self.standardized,
            "initial": self.initial,
        }

    @cached_property
    def _dtype(self) -> torch.dtype:
        """The floating type that the module computes in: its first parameter's."""
        return next(p.dtype for p in self.module.parameters() if p.requires_grad)

    @cached_property
    def _scaling(self) -> tuple[Tensor, Tensor]:
        mean, scale = torch.tensor(self.inputs.mean), torch.tensor(self.inputs.scale)
        return mean.to(self.torch_device), scale.to(self.torch_device)

    def _batches(self, rows: int) -> list[slice]:
        """Cut rows into batches of evaluation.

        Pictures of 84 × 84 by 256 take three times as long as by 16 on a CPU: the
        layers' outputs are then given new pages of memory by the system, every time.
        """
        step = BATCH_NUMBERS // max(1, len(self.inputs.mean))
        step = min(max(step, MIN_BATCH_ROWS), MAX_BATCH_ROWS)
        return [slice(a, min(a + step, rows)) for a in range(0, rows, step)]

    def _loss_gradient(
        self, replica: Replica, X: Design, y: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Losses and weighted gradient of one batch, in the module's present mode."""
        z = scores_of(replica.module(self.tensor(X)), self.link)
        losses, slopes = self.link.score_losses_and_slopes(numbers(z), y)
        found = torch.autograd.grad(
            z,
            list(replica.trained.values()),
            torch.as_tensor((slopes.T * weights).T).to(z),
            allow_unused=True,
            materialize_grads=True,
        )
        return losses, numbers(torch.cat([part.reshape(-1) for part in found]))


class Replica:
    """A copy of a module whose state is written from, and read as, a vector.

    Trained parameters come first, in the module's order. Behind them stands what is
    averaged but not descended: frozen parameters, and buffers such as the running mean
    and variance of batch norm. Buffers of whole numbers (counts of batches) cannot be
    averaged: they start from what they were in the module.

    All tensors of w are views of one, so a state is loaded or read in one copy.
    """

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self.module = copy.deepcopy(module).to(device)
        parameters = list(self.module.named_parameters())
        self.trained = {n: p for n, p in parameters if p.requires_grad}
        kept = self.module.state_dict().keys()
        self.statistics = {n: p for n, p in parameters if not p.requires_grad} | {
            name: buffer
            for name, buffer in self.module.named_buffers()
            if name in kept and buffer.is_floating_point()
        }
        self.tensors = self.trained | self.statistics
        self.n_trained = sum(tensor.numel() for tensor in self.trained.values())
        self.state = torch.cat([t.detach().reshape(-1) for t in self.tensors.values()])
        parts = torch.split(self.state, [t.numel() for t in self.tensors.values()])
        for tensor, part in zip(self.tensors.values(), parts, strict=True):
            tensor.data = part.reshape(tensor.shape)
        self._counts = [
            (buffer, buffer.clone())
            for buffer in self.module.buffers()
            if not buffer.is_floating_point()
        ]

    def load(self, w: FloatArray) -> None:
        """Take the state from w."""
        self.state.copy_(torch.tensor(w))
        for buffer, first in self._counts:
            buffer.copy_(first)

    def training(self, rows: int) -> None:
        """Switch to training.

        A single row has no variance: batch norm keeps its own, as in evaluation.
        """
        self.module.train()
        for part in self.module.modules() if rows == 1 else ():
            if isinstance(part, nn.BatchNorm1d):
                part.eval()


def numbers(values: Any) -> FloatArray:
    """Return a tensor, or what can be one, as a float64 array."""
    tensor = torch.as_tensor(values).detach()
    return np.asarray(tensor.to("cpu", torch.float64).numpy())


def draw(module: nn.Module, seed: int) -> None:
    """Draw new weights in every layer that can; other parameters stay as they are."""
    with seeded((seed,), torch.device("cpu")):
        for part in module.modules():
            for name in ("reset_parameters", "_reset_parameters"):
                if callable(reset := getattr(part, name, None)):
                    reset()
                    break


@contextmanager
def seeded(key: tuple[int, ...], device: torch.device) -> Iterator[None]:
    """Seed torch's generators by `key`, and leave them afterwards as they were."""
    seed, *spawn = key or (0,)
    sequence = np.random.SeedSequence(seed, spawn_key=tuple(spawn))
    devices = [] if device.type == "cpu" else [device]
    kind = "cuda" if device.type == "cpu" else device.type
    with torch.random.fork_rng(devices, device_type=kind):
        torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))
        yield


class Described(nn.Sequential):
    """Layers that know what they were built from, so that a file can name them."""

    scales_inputs = False
    description: Mapping[str, object]

    @classmethod
    def of(cls, layers: Sequence[nn.Module], name: str, **sizes: object) -> Described:
        """Return the layers, and remember how they were built."""
        module = cls(*layers)
        module.description = {"name": name, **sizes}
        return module


class Pictures(nn.Module):
    """Rows of size × size × 3 bytes become pictures with values in [0, 1]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """Return pictures, colours first.

        Colours come last in a row, so this is a view in the layout (channels last) in
        which convolutions are fastest.
        """
        pictures = x.reshape(-1, self.size, self.size, 3) / 255.0
        return pictures.permute(0, 3, 1, 2)


def mlp(
    inputs: int,
    hidden: Sequence[int] = (64,),
    outputs: int = 1,
    *,
    batch_norm: bool = False,
) -> Described:
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
    widths = (inputs, *hidden)
    check_sizes("mlp", *widths, outputs)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        norm = [nn.BatchNorm1d(after)] if batch_norm else []
        layers += [nn.Linear(before, after), *norm, nn.ReLU()]
    layers.append(nn.Linear(widths[-1], outputs))
    sizes = {"inputs": inputs, "hidden": list(hidden), "outputs": outputs}
    return Described.of(layers, "mlp", **sizes, batch_norm=batch_norm)


def celeba_cnn(size: int = 84, *, classes: int = 2, width: int = 32) -> Described:
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
    check_sizes("celeba_cnn", size, classes, width)
    layers: list[nn.Module] = [Pictures(size)]
    before, side = 3, size
    for _ in range(4):
        layers += [
            nn.Conv2d(before, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.ReLU(),
        ]
        before, side = width, -(-side // 2)
    layers += [nn.Flatten(), nn.Linear(width * side * side, classes)]
    sizes = {"size": size, "classes": classes, "width": width}
    module = Described.of(layers, "celeba_cnn", **sizes)
    module.scales_inputs = True
    return module


ARCHITECTURES: dict[str, Callable[..., Described]] = {
    "mlp": mlp,
    "celeba_cnn": celeba_cnn,
}


def check_sizes(name: str, *sizes: object) -> None:
    """Refuse sizes of layers that are not whole numbers within limits."""
    good = all(type(n) is int and 1 <= n <= MAX_LAYER_SIZE for n in sizes)
    if not good or len(sizes) > MAX_LAYERS:
        raise UsageError(
            "wrong-value:check-sizes",
            name=name,
            max_layer_size=MAX_LAYER_SIZE,
            max_layers=MAX_LAYERS,
            sizes=sizes[:9],
        )


def description_of(module: nn.Module) -> Mapping[str, object]:
    """Return the description of one of our own, or what another one is called."""
    if isinstance(module, Described):
        return dict(module.description)
    return {"name": OWN_MODULE, "class": type(module).__qualname__}


def build(
    description: object, dtype: object = "float32", *, parameters: int | None = None
) -> nn.Module:
    """Build one of `ARCHITECTURES` from its description; refuse anything else.

    With `parameters`, a network of another size is refused before it takes memory.
    """
    values = dict(description) if isinstance(description, Mapping) else {}
    name = values.pop("name", None)
    if name == OWN_MODULE:
        raise UsageError("own-module:build", class_=values.get("class"))
    if name not in ARCHITECTURES or dtype not in ("float32", "float64"):
        raise UsageError(
            "wrong-architecture:build",
            name=name,
            dtype=dtype,
            architectures=sorted(ARCHITECTURES),
        )
    try:
        if parameters is not None:
            with torch.device("meta"):  # shapes only
                state = ARCHITECTURES[name](**values).state_dict().values()
            size = sum(t.numel() for t in state if t.is_floating_point())
            if size != parameters:
                raise UsageError(
                    "wrong-architecture:build-2",
                    name=name,
                    values=values,
                    size=size,
                    parameters=parameters,
                )
        module = ARCHITECTURES[name](**values)
    except TypeError as error:
        raise UsageError(
            "wrong-architecture:build-3", name=name, error=error
        ) from error
    return module.double() if dtype == "float64" else module


def rebuild(values: Mapping[str, Any], parameters: int, module: object) -> Network:
    """Return the unbound network that a `describe()` stands for, without its kind.

    One with a module of the user's own needs that `module`.
    """
    rest = dict(values)
    architecture, dtype = rest.pop("architecture"), rest.pop("dtype")
    if module is None:
        module = build(architecture, dtype, parameters=parameters)
    network = Network(module, **rest)  # type: ignore[arg-type]
    found = {name: network.describe()[name] for name in ("architecture", "dtype")}
    if found != {"architecture": architecture, "dtype": dtype}:
        raise UsageError(
            "other-module", found=found, architecture=architecture, dtype=dtype
        )
    return network
