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

    def training(self, rows: int) -> nn.Module:
        """Switch to training, and return the module.

        A single row has no variance: batch norm keeps its own, as in evaluation.
        """
        self._switch((True, rows == 1))
        return self.module

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


def dtype_of(module: nn.Module) -> torch.dtype:
    """Return the floating type that a module computes in: its first parameter's."""
    return next(p.dtype for p in module.parameters() if p.requires_grad)


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
