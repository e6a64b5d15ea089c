"""Any `torch.nn.Module` as a model: its state is w, its batches are cut here.

Training is what torch users expect: batch norm normalises by the batch and moves its
running statistics, dropout drops. Statistics are the last entries of w; silos' values
are averaged like weights, but no gradient step, ridge or server optimiser touches them.
Losses, predictions and certificates are taken with the module in evaluation mode.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np

from pffl.data.schema import Schema
from pffl.errors import DataError, MissingExtraError, Problems, UsageError, wrong
from pffl.models.architectures import description_of
from pffl.models.base import UNSCALED, Inputs, Model, Step, Target
from pffl.models.scaled import Design, dense
from pffl.numerics import is_number
from pffl.typing import FloatArray

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("torch", "Network") from error

AT_ONCE = 1 << 16  # numbers of a batch of evaluation, for FEWEST to MOST rows
FEWEST, MOST = 16, 1024
LEAST = {"l2": (0.0, "≥ 0"), "delta": (1e-300, "> 0"), "batch_size": (1, "≥ 1")}

LossName = Literal["cross_entropy", "binary", "squared", "huber"]


@dataclass(frozen=True)
class Loss:
    """What a network's outputs mean: the loss of each example, its class, and so on.

    Attributes
    ----------
    name
        As `Network` takes it.
    of_scores
        From scores, labels and δ to the loss of each example.
    labels
        What labels it is for: "two classes", "classes" or "a numeric target".
    """

    name: str
    of_scores: Callable[[Tensor, Tensor, float], Tensor]
    labels: Literal["two classes", "classes", "a numeric target"]

    @property
    def numeric(self) -> bool:
        """Whether predictions are numbers."""
        return self.labels == "a numeric target"

    @property
    def per_class(self) -> bool:
        """Whether there is a score for each class."""
        return self.labels == "classes"

    def outputs_for(self, schema: Schema) -> int:
        """Return how many outputs these labels need, or refuse them."""
        found = len(schema.labels)
        fits = found == 0 if self.numeric else found >= 2
        if not fits or (self.labels == "two classes" and found != 2):
            advice = "cross_entropy" if found > 2 else "binary" if found else "squared"
            raise DataError(
                f"[wrong-model] the loss '{self.name}' needs {self.labels}; "
                f"'{schema.target}' has "
                f"{f'{found} classes' if found else 'numeric values'}: use '{advice}'"
            )
        return found if self.per_class else 1

    def check_outputs(self, shape: tuple[int, ...], rows: int, outputs: int) -> None:
        """Refuse a module whose outputs do not fit the loss."""
        fits = [(rows, outputs)] if self.per_class else [(rows, 1), (rows,)]
        if shape not in fits:
            raise UsageError(
                f"[wrong-shape] Network: for {rows} rows the module returns outputs "
                f"of shape {shape}; the loss '{self.name}' needs "
                f"{' or '.join(map(str, fits))}"
            )

    def scores(self, outputs: Tensor) -> Tensor:
        """Return outputs as the losses take them: (n, classes), or (n,) for one."""
        return outputs if self.per_class else outputs.reshape(-1)

    def classes(self, z: Tensor) -> Tensor | None:
        """Return predicted label codes, or None for a numeric target."""
        if self.numeric:
            return None
        return z.argmax(dim=1) if self.per_class else z > 0

    def probabilities(self, z: Tensor) -> Tensor:
        """Return class probabilities, shape (n, classes)."""
        if self.numeric:
            raise UsageError(
                f"[predicts-numbers] a network with the loss '{self.name}' predicts "
                "numbers: use predict"
            )
        if self.per_class:
            return torch.softmax(z, dim=1)
        positive = torch.sigmoid(z)
        return torch.stack([1 - positive, positive], dim=1)


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
    loss.name: loss
    for loss in (
        Loss("cross_entropy", _cross_entropy, "classes"),
        Loss("binary", _binary, "two classes"),
        Loss("squared", _squared, "a numeric target"),
        Loss("huber", _huber, "a numeric target"),
    )
}
CHOICES = {"loss": tuple(LOSSES), "initial": ("drawn", "given")}


@dataclass(frozen=True, eq=False)
class Network(Model):
    """A model that is a torch module.

    Parameters
    ----------
    module
        Takes rows, shape (n, features), in its own floating type; returns scores, shape
        (n, classes), for "cross_entropy", otherwise (n, 1) or (n,). It is not changed.
    loss
        "cross_entropy" (two or more classes), "binary" (one score for two classes),
        "squared" or "huber" (a numeric target).
    l2
        μ of the ridge term (μ/2)‖w‖², over all trained parameters.
    delta
        δ of the Huber loss: ``r²`` up to ``|r| = δ``, beyond it ``2δ|r| − δ²``.
    standardize
        Whether features are scaled to mean 0 and variance 1 over all silos. None: yes,
        unless the module says ``scales_inputs = True``, as `celeba_cnn` does.
    initial
        Where training starts: "drawn" draws the weights of every layer anew from the
        run's seed, "given" takes them as they are in `module`.
    device
        Where to compute.
    batch_size
        Rows evaluated at once (not those of a local step, which the method sets). None
        takes few enough for their layers to be computed without fresh memory.

    Raises
    ------
    UsageError
        The module has no parameters, or a parameter is out of its range.

    Examples
    --------
    >>> import pffl, torch
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> module = torch.nn.Sequential(
    ...     torch.nn.Linear(10, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    ... )
    >>> method = pffl.PFFL(dual_rounds=2, rounds_per_dual=2, step_size=0.1)
    >>> bounds = pffl.BoundedGroupLoss(0.9)
    >>> solution = pffl.solve(
    ...     people, bounds, model=pffl.Network(module), method=method, seed=0
    ... )
    >>> solution.predict_proba(people.pooled("test").X[:2]).shape
    (2, 2)
    """

    module: nn.Module
    loss: LossName = "cross_entropy"
    l2: float = 0.0
    delta: float = field(default=1.0, kw_only=True)
    standardize: bool | None = field(default=None, kw_only=True)
    initial: Literal["drawn", "given"] = field(default="drawn", kw_only=True)
    device: str = field(default="cpu", kw_only=True)
    batch_size: int | None = field(default=None, kw_only=True)
    inputs: Inputs = field(
        default_factory=lambda: Inputs.identity(0), repr=False, kw_only=True
    )
    target: Target = field(default=UNSCALED, repr=False, kw_only=True)
    n_outputs: int = field(default=1, repr=False, kw_only=True)
    _threads: threading.local = field(
        default_factory=threading.local, init=False, repr=False
    )

    name: ClassVar[str] = "network"
    framework: ClassVar[Literal["numpy", "torch"]] = "torch"

    def __post_init__(self) -> None:
        with Problems("Network", UsageError) as problems:
            check_parameters(self, problems)

    def bind(self, schema: Schema, inputs: Inputs) -> Self:
        """Return this model for these data; refuse what does not fit them."""
        needed = self._loss.outputs_for(schema)
        if not self.standardized:
            inputs = inputs.unscaled()
        inputs = replace(inputs, deferred=True)
        bound = replace(self, inputs=inputs, n_outputs=needed)
        rows = bound.tensor(bound._two_rows)
        shape = check_takes(bound.replica.evaluating(), rows)
        self._loss.check_outputs(shape, len(rows), needed)
        return bound

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
    def rows_at_once(self) -> int:
        """Rows of a batch of evaluation.

        Pictures of 84 × 84 by 256 take three times as long as by 16 on a CPU: the
        layers' outputs are then given new pages of memory by the system, every time.
        """
        if self.batch_size is not None:
            return self.batch_size
        features = max(1, len(self.inputs.mean))
        return min(max(AT_ONCE // features, FEWEST), MOST)

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
        return replica.vector()

    def tensor(self, X: Design | Tensor) -> Tensor:
        """Return rows as the module takes them: scaled, in its type, on its device.

        Those that are a tensor already stay as they are.
        """
        if isinstance(X, Tensor):
            return X
        given = dense(X)
        rows = torch.from_numpy(given if given.flags.writeable else given.copy())
        rows = rows.to(self.torch_device)
        if self.standardized:
            rows = (rows - self._scaling[0]) / self._scaling[1]
        return rows.to(self._dtype)

    def labels(self, y: FloatArray | Tensor) -> Tensor:
        """Return labels as the losses take them: numbers standardised, or a tensor."""
        if isinstance(y, Tensor):
            return y
        return self.column((y - self.target.mean) / self.target.scale)

    def column(self, values: FloatArray) -> Tensor:
        """Return numbers, one per example, in the module's type, on its device."""
        return torch.tensor(values, dtype=self._dtype, device=self.torch_device)

    def example_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each example from the module's outputs."""
        delta = self.delta / self.target.scale
        losses = self._loss.of_scores(self._loss.scores(z), y, delta)
        return self.target.scale**2 * losses

    @property
    def robust(self) -> bool:
        """Whether one wild value of a numeric target has little weight."""
        return self._loss.name == "huber"

    def residual_losses(self, residual: FloatArray) -> FloatArray:
        """Return the loss of predictions that are so far off (for a numeric target)."""
        most = self.delta if self.robust else np.inf
        clipped = np.clip(residual, -most, most)
        return clipped * (2.0 * residual - clipped)

    def losses(self, w: FloatArray, X: Design, y: FloatArray) -> FloatArray:
        """Return the loss of each example, in batches."""
        return self.losses_and_classes(w, X, y)[0]

    def losses_and_classes(
        self, w: FloatArray, X: Design | Tensor, y: FloatArray | Tensor
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return both from one pass; classes are None for a numeric target."""
        losses, codes = np.empty(len(X)), np.empty(len(X))
        for rows, z in self._evaluated(w, X):
            losses[rows] = numbers(self.example_losses(z, self.labels(y[rows])))
            found = self._loss.classes(self._loss.scores(z))
            if found is not None:
                codes[rows] = numbers(found)
        return losses, None if self._loss.numeric else codes

    def losses_and_gradient(
        self, w: FloatArray, X: Design, y: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the losses and ``Σ_i weights_i ∇ℓ_i(w)``, in evaluation mode.

        The gradient is 0 for running statistics: they are not descended.
        """
        replica = self.replica
        replica.load(w)
        replica.evaluating()
        losses, gradient = np.empty(len(X)), np.zeros(len(w))
        for rows in self._batches(len(X)):
            part = self._loss_gradient(replica, X[rows], y[rows], weights[rows])
            losses[rows] = part[0]
            gradient[: self.n_trained] += part[1]
        return losses, gradient

    def local_step(
        self,
        w: FloatArray,
        X: Design,
        y: FloatArray,
        weights: FloatArray,
        step: Step,
    ) -> FloatArray:
        """Return w after one step in training mode, on all these rows at once."""
        gradient = self.step_gradient(w, X, y, weights, step.key)[: self.n_trained]
        moved = step.take(w[: self.n_trained], gradient)
        return np.concatenate([moved, self.replica.run_statistics()])

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
        with seeded(key, self.torch_device) if self.random else nullcontext():
            _, gradient = self._loss_gradient(replica, X, y, weights)
        return np.pad(gradient, (0, self.n_parameters - self.n_trained))

    def classes(self, w: FloatArray, X: Design) -> FloatArray | None:
        """Return predicted label codes, or None for a numeric target."""
        return self.losses_and_classes(w, X, np.zeros(len(X)))[1]

    def predict_proba(self, w: FloatArray, X: Design) -> FloatArray:
        """Return class probabilities, shape (n, classes)."""
        found = [
            numbers(self._loss.probabilities(self._loss.scores(z)))
            for _, z in self._evaluated(w, X)
        ]
        return np.concatenate(found) if found else np.zeros((0, 2))

    @property
    def clips(self) -> bool:
        """Of two classes, as a logistic regression does."""
        return self.n_classes == 2

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a numeric target."""
        if self._loss.numeric:
            return 0
        return self.n_outputs if self._loss.per_class else 2

    def scores(self, w: FloatArray, X: Design) -> FloatArray:
        """Return the module's outputs, shape (n,), or (n, classes)."""
        found = [numbers(self._loss.scores(z)) for _, z in self._evaluated(w, X)]
        shape = (0, self.n_outputs) if self._loss.per_class else (0,)
        return np.concatenate(found) if found else np.zeros(shape)

    def predict_values(self, w: FloatArray, X: Design) -> FloatArray:
        """Return predicted numbers, in the target's own units."""
        return self.target.mean + self.target.scale * self.scores(w, X)

    def state_dict(self, w: FloatArray) -> dict[str, Tensor]:
        """Return w as torch's `load_state_dict` takes it."""
        replica = Replica(self.module, torch.device("cpu"))
        replica.load(w)
        state: dict[str, Tensor] = replica.module.state_dict()
        return state

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages; see `pffl.models.rebuild`."""
        return {
            "kind": self.name,
            "architecture": description_of(self.module),
            "dtype": str(self._dtype).removeprefix("torch."),
            "loss": self.loss,
            "l2": self.l2,
            "delta": self.delta,
            "standardize": self.standardized,
            "initial": self.initial,
        }

    @cached_property
    def random(self) -> bool:
        """Whether training draws random numbers, as dropout does."""
        module = Replica(self.module, self.torch_device).module
        with torch.no_grad(), seeded((0,), self.torch_device):
            before = rng_state(self.torch_device)
            module.train()(self.tensor(self._two_rows))
            return not torch.equal(before, rng_state(self.torch_device))

    @property
    def _loss(self) -> Loss:
        return LOSSES[self.loss]

    @property
    def _two_rows(self) -> FloatArray:
        """Average rows, to try the module with."""
        return np.repeat(self.inputs.mean[None], 2, axis=0)

    @cached_property
    def _dtype(self) -> torch.dtype:
        """The floating type that the module computes in: its first parameter's."""
        return next(p.dtype for p in self.module.parameters() if p.requires_grad)

    @cached_property
    def _scaling(self) -> tuple[Tensor, Tensor]:
        mean, scale = torch.tensor(self.inputs.mean), torch.tensor(self.inputs.scale)
        return mean.to(self.torch_device), scale.to(self.torch_device)

    def _batches(self, rows: int) -> list[slice]:
        step = self.rows_at_once
        return [slice(a, min(a + step, rows)) for a in range(0, rows, step)]

    def _evaluated(
        self, w: FloatArray, X: Design | Tensor
    ) -> Iterator[tuple[slice, Tensor]]:
        """Yield rows and the module's outputs for them, batch by batch."""
        replica = self.replica
        replica.load(w)
        replica.evaluating()
        for rows in self._batches(len(X)):
            with torch.inference_mode():  # not across the yield: it would leak out
                z = replica.module(self.tensor(X[rows]))
            yield rows, z

    def _loss_gradient(
        self, replica: Replica, X: Design, y: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Losses and weighted gradient of one batch, in the module's present mode."""
        losses = self.example_losses(replica.module(self.tensor(X)), self.labels(y))
        weighted = (losses * self.column(weights)).sum()
        trained = list(replica.trained.values())
        found = torch.autograd.grad(
            weighted, trained, allow_unused=True, materialize_grads=True
        )
        return numbers(losses), join(found)


def check_parameters(network: Network, problems: Problems) -> None:
    """Note everything that is wrong with the parameters of a `Network`."""
    odd = []
    if not isinstance(network.module, nn.Module):
        odd.append(("module", "a torch.nn.Module"))
    elif not any(p.requires_grad for p in network.module.parameters()):
        problems.add("[no-parameters] the module has no parameters to train")
    elif len(kinds := floating_types(network.module)) > 1:
        problems.add(
            f"[mixed-types] the module mixes {' and '.join(kinds)}: give it one type"
        )
    for name, allowed in CHOICES.items():
        if getattr(network, name) not in allowed:
            odd.append((name, f"one of {', '.join(allowed)}"))
    for name, (least, words) in LEAST.items():
        value = getattr(network, name)
        if value is None and name == "batch_size":
            continue
        if not is_number(value) or value < least:
            odd.append((name, f"a finite number {words}"))
    if not isinstance(network.standardize, bool | None):
        odd.append(("standardize", "true, false or None"))
    for name, words in odd:
        problems.add(wrong(name, "Network", words, getattr(network, name)))
    try:
        torch.empty(0, device=network.device)
    except (RuntimeError, AssertionError, TypeError) as reason:
        line = (str(reason).splitlines() or ["unknown"])[0]
        problems.add(
            f"[no-device] The device {network.device!r} cannot be used: {line}"
        )


def floating_types(module: nn.Module) -> list[str]:
    """Names of the floating types of a module's parameters and buffers."""
    tensors = [*module.parameters(), *module.buffers()]
    return sorted({str(t.dtype) for t in tensors if t.is_floating_point()})


def check_takes(module: nn.Module, rows: Tensor) -> tuple[int, ...]:
    """Return the shape of the outputs; refuse a module that cannot take the rows."""
    try:
        with torch.inference_mode():
            return tuple(module(rows).shape)
    except (RuntimeError, ValueError, TypeError, IndexError) as reason:
        line = (str(reason).splitlines() or ["unknown"])[0]
        raise UsageError(
            f"[wrong-shape] Network: the module does not take rows of {rows.shape[1]} "
            f"features: {line}"
        ) from reason


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
        self.sizes = [tensor.numel() for tensor in self.tensors.values()]
        self.n_trained = sum(tensor.numel() for tensor in self.trained.values())
        self.state = torch.cat([t.detach().reshape(-1) for t in self.tensors.values()])
        for name, part in self.split(self.state).items():
            self.tensors[name].data = part
        self._counts = [
            (buffer, buffer.clone())
            for buffer in self.module.buffers()
            if not buffer.is_floating_point()
        ]
        self._mode: tuple[bool, bool] | None = None

    def load(self, w: FloatArray) -> None:
        """Take the state from w."""
        self.state.copy_(torch.tensor(w))
        for buffer, first in self._counts:
            buffer.copy_(first)

    def split(self, stacked: Tensor) -> dict[str, Tensor]:
        """Cut w, or a stack of several, shape (…, p), into the module's tensors."""
        parts = torch.split(stacked, self.sizes, dim=-1)
        return {
            name: part.reshape(*stacked.shape[:-1], *tensor.shape)
            for (name, tensor), part in zip(self.tensors.items(), parts, strict=True)
        }

    def vector(self) -> FloatArray:
        """Return the state as w."""
        return numbers(self.state)

    def run_statistics(self) -> FloatArray:
        """Return the part of w that is not trained."""
        return numbers(self.state[self.n_trained :])

    def training(self, rows: int) -> None:
        """Switch to training.

        A single row has no variance: batch norm keeps its own, as in evaluation.
        """
        self._switch((True, rows == 1))

    def evaluating(self) -> nn.Module:
        """Switch to evaluation, and return the module."""
        self._switch((False, False))
        return self.module

    def _switch(self, mode: tuple[bool, bool]) -> None:
        if mode == self._mode:
            return
        training, single = self._mode = mode
        self.module.train(training)
        if single:
            for part in self.module.modules():
                if isinstance(part, nn.BatchNorm1d):
                    part.train(False)


def join(tensors: Sequence[Tensor], stack: int = 0) -> FloatArray:
    """Flatten tensors, after `stack` leading axes, into one float64 vector each."""
    if not tensors:
        return np.zeros(0)
    flat = [t.detach().reshape(*t.shape[:stack], -1) for t in tensors]
    joined = torch.cat([part.to("cpu", torch.float64) for part in flat], dim=-1)
    return np.asarray(joined.numpy())


def numbers(tensor: Tensor) -> FloatArray:
    """Return a tensor as a float64 array."""
    return np.asarray(tensor.detach().to("cpu", torch.float64).numpy())


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


def rng_state(device: torch.device) -> Tensor:
    """Return the state of the generator that a module on this device draws from."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.get_rng_state()
