"""Any `torch.nn.Module` as a model: its state is w, its batches are cut here.

Training is what torch users expect: batch norm normalises by the batch and moves its
running statistics, dropout drops. Statistics are the last entries of w; silos' values
are averaged like weights, but no gradient step, ridge or server optimiser touches them.
Losses, predictions and certificates are taken with the module in evaluation mode.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np

from pffl.data.schema import Schema
from pffl.errors import MissingExtraError, Problems, UsageError
from pffl.models.base import Inputs, Step
from pffl.typing import FloatArray

try:
    import torch
    from torch import Tensor, nn
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("torch", "Network") from error

from pffl.models import _torch_losses as outputs
from pffl.models._network_checks import check_parameters, check_takes
from pffl.models._torch_state import (
    Replica,
    draw,
    dtype_of,
    join,
    numbers,
    rng_state,
    seeded,
)
from pffl.models.architectures import description_of

AT_ONCE = 1 << 16  # numbers of a batch of evaluation, for FEWEST to MOST rows
FEWEST, MOST = 16, 256

LossName = Literal["cross_entropy", "binary", "squared", "huber"]


@dataclass(frozen=True, eq=False)
class Network:
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
        δ of the Huber loss: r² up to |r| = δ, beyond it 2δ|r| − δ².
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
    _threads: threading.local = field(
        default_factory=threading.local, init=False, repr=False
    )

    name: ClassVar[str] = "network"
    convex: ClassVar[bool] = False

    def __post_init__(self) -> None:
        with Problems("Network", UsageError) as problems:
            check_parameters(self, problems)

    def bind(self, schema: Schema, inputs: Inputs) -> Self:
        """Return this model for these data; refuse what does not fit them."""
        needed = outputs.check_labels(self.loss, schema)
        if not self.standardized:
            inputs = Inputs.identity(schema.n_features)
        bound = replace(self, inputs=replace(inputs, deferred=True))
        rows = bound.tensor(bound._two_rows)
        shape = check_takes(bound.replica.evaluating(), rows)
        outputs.check_outputs(self.loss, shape, len(rows), needed)
        return bound

    @property
    def standardized(self) -> bool:
        """Whether features are scaled before the module sees them."""
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

    def tensor(self, X: FloatArray) -> Tensor:
        """Return rows as the module takes them: scaled, in its type, on its device."""
        rows = torch.from_numpy(X if X.flags.writeable else X.copy())
        rows = rows.to(self.torch_device)
        if self.standardized:
            rows = (rows - self._scaling[0]) / self._scaling[1]
        return rows.to(self._dtype)

    def labels(self, y: FloatArray) -> Tensor:
        """Return labels as the losses take them."""
        return torch.tensor(y, dtype=self._dtype, device=self.torch_device)

    def example_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each example from the module's outputs."""
        scores = outputs.scores(self.loss, z)
        return outputs.LOSSES[self.loss].losses(scores, y, self.delta)

    def losses(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss of each example, in batches."""
        return self.losses_and_classes(w, X, y)[0]

    def losses_and_classes(
        self, w: FloatArray, X: FloatArray, y: FloatArray
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return both from one pass; classes are None for a numeric target."""
        losses, codes = np.empty(len(X)), np.empty(len(X))
        for rows, z in self._evaluated(w, X):
            losses[rows] = numbers(self.example_losses(z, self.labels(y[rows])))
            found = outputs.classes(self.loss, outputs.scores(self.loss, z))
            if found is not None:
                codes[rows] = numbers(found)
        numeric = outputs.LOSSES[self.loss].classes == "none"
        return losses, None if numeric else codes

    def losses_and_gradient(
        self, w: FloatArray, X: FloatArray, y: FloatArray, weights: FloatArray
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
        X: FloatArray,
        y: FloatArray,
        weights: FloatArray,
        step: Step,
    ) -> FloatArray:
        """Return w after one step in training mode, on all these rows at once."""
        replica, n = self.replica, self.n_trained
        replica.load(w)
        replica.training(len(X))
        with seeded(step.key, self.torch_device) if self.random else nullcontext():
            _, gradient = self._loss_gradient(replica, X, y, weights)
        v = w[:n]
        gradient += step.ridge * v
        gradient += step.proximal * (v - step.anchor[:n])
        return np.concatenate([v - step.size * gradient, replica.run_statistics()])

    def classes(self, w: FloatArray, X: FloatArray) -> FloatArray | None:
        """Return predicted label codes, or None for a numeric target."""
        return self.losses_and_classes(w, X, np.zeros(len(X)))[1]

    def predict_proba(self, w: FloatArray, X: FloatArray) -> FloatArray:
        """Return class probabilities, shape (n, classes)."""
        found = [
            numbers(outputs.probabilities(self.loss, outputs.scores(self.loss, z)))
            for _, z in self._evaluated(w, X)
        ]
        return np.concatenate(found) if found else np.zeros((0, 2))

    def predict_values(self, w: FloatArray, X: FloatArray) -> FloatArray:
        """Return the module's outputs: predicted numbers for a numeric target."""
        found = [
            numbers(outputs.scores(self.loss, z)) for _, z in self._evaluated(w, X)
        ]
        return np.concatenate(found) if found else np.zeros(0)

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
    def _two_rows(self) -> FloatArray:
        """Average rows, to try the module with."""
        return np.repeat(self.inputs.mean[None], 2, axis=0)

    @cached_property
    def _dtype(self) -> torch.dtype:
        return dtype_of(self.module)

    @cached_property
    def _scaling(self) -> tuple[Tensor, Tensor]:
        mean, scale = torch.tensor(self.inputs.mean), torch.tensor(self.inputs.scale)
        return mean.to(self.torch_device), scale.to(self.torch_device)

    def _batches(self, rows: int) -> list[slice]:
        step = self.rows_at_once
        return [slice(a, min(a + step, rows)) for a in range(0, rows, step)]

    def _evaluated(
        self, w: FloatArray, X: FloatArray
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
        self, replica: Replica, X: FloatArray, y: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Losses and weighted gradient of one batch, in the module's present mode."""
        losses = self.example_losses(replica.module(self.tensor(X)), self.labels(y))
        weighted = (losses * self.labels(weights)).sum()
        trained = list(replica.trained.values())
        found = torch.autograd.grad(
            weighted, trained, allow_unused=True, materialize_grads=True
        )
        return numbers(losses), join(found)
