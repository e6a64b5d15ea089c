"""What a network refuses before it is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pffl.errors import Problems, UsageError
from pffl.models._torch_losses import LOSSES

CHOICES = {"loss": tuple(LOSSES), "initial": ("drawn", "given")}
LEAST = {"l2": (0.0, "≥ 0"), "delta": (1e-300, "> 0"), "batch_size": (1, "≥ 1")}


def check_parameters(network: Any, problems: Problems) -> None:
    """Note everything that is wrong with the parameters of a `Network`."""
    wrong = []
    if not isinstance(network.module, nn.Module):
        wrong.append(("module", "a torch.nn.Module"))
    elif not any(p.requires_grad for p in network.module.parameters()):
        problems.add("the module has no parameters to train")
    elif len(kinds := floating_types(network.module)) > 1:
        problems.add(f"the module mixes {' and '.join(kinds)}: give it one type")
    for name, allowed in CHOICES.items():
        if getattr(network, name) not in allowed:
            wrong.append((name, f"one of {', '.join(allowed)}"))
    for name, (least, words) in LEAST.items():
        value = getattr(network, name)
        if value is None and name == "batch_size":
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not np.isfinite(value) or value < least:
            wrong.append((name, f"a finite number {words}"))
    if not isinstance(network.standardize, bool | None):
        wrong.append(("standardize", "true, false or None"))
    for name, words in wrong:
        problems.add(
            f"The '{name}' parameter of Network must be {words}. "
            f"Got {getattr(network, name)!r} instead."
        )
    try:
        torch.empty(0, device=network.device)
    except (RuntimeError, AssertionError, TypeError) as reason:
        line = (str(reason).splitlines() or ["unknown"])[0]
        problems.add(f"The device {network.device!r} cannot be used: {line}")


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
            f"Network: the module does not take rows of {rows.shape[1]} features: "
            f"{line}"
        ) from reason
