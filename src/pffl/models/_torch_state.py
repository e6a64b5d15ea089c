"""A module's state as one vector w: trained parameters first, then statistics."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from pffl.typing import FloatArray


class Replica:
    """A copy of a module whose state is written from, and read as, a vector.

    Trained parameters come first, in the module's order. Behind them stands what is
    averaged but not descended: frozen parameters, and buffers such as the running mean
    and variance of batch norm. Buffers of whole numbers (counts of batches) cannot be
    averaged: they start from what they were in the module.
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
        self._counts = [
            (buffer, buffer.clone())
            for buffer in self.module.buffers()
            if not buffer.is_floating_point()
        ]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Everything in w, by name, in its order."""
        return self.trained | self.statistics

    @property
    def n_trained(self) -> int:
        """How many numbers are descended."""
        return sum(tensor.numel() for tensor in self.trained.values())

    @property
    def n_parameters(self) -> int:
        """Length of w."""
        return sum(tensor.numel() for tensor in self.tensors.values())

    def load(self, w: FloatArray) -> None:
        """Take the state from w."""
        tensors = self.tensors
        with torch.no_grad():
            for name, part in self.split(torch.tensor(w)).items():
                tensors[name].copy_(part)
            for buffer, first in self._counts:
                buffer.copy_(first)

    def split(self, stacked: Tensor) -> dict[str, Tensor]:
        """Cut w, or a stack of several, shape (…, p), into the module's tensors."""
        tensors = self.tensors
        parts = torch.split(stacked, [t.numel() for t in tensors.values()], dim=-1)
        return {
            name: part.reshape(*stacked.shape[:-1], *tensor.shape)
            for (name, tensor), part in zip(tensors.items(), parts, strict=True)
        }

    def vector(self) -> FloatArray:
        """Return the state as w."""
        return join(list(self.tensors.values()))


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


def dtype_of(module: nn.Module) -> torch.dtype:
    """Return the floating type that a module computes in: its first parameter's."""
    return next(p.dtype for p in module.parameters() if p.requires_grad)


def training_mode(module: nn.Module, rows: int) -> None:
    """Switch to training; a single row has no variance, so batch norm keeps its own."""
    module.train()
    if rows == 1:
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d):
                part.eval()


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
