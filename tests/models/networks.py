"""Modules and helpers for the tests of networks; imported only where torch is."""

from __future__ import annotations

import torch
from torch import nn

from pffl.models import Inputs, mlp
from tests.helpers import make_schema
from tests.inside import Network

torch.set_num_threads(1)  # tests run side by side; torch's threads would wait for each


class Own(nn.Module):
    """A module of a user's own: frozen and free parameters, buffers of every kind."""

    def __init__(self, outputs: int = 2, hidden: int = 8) -> None:
        super().__init__()
        self.first = nn.Linear(3, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.frozen = nn.Linear(hidden, hidden)
        self.frozen.requires_grad_(False)
        self.scale = nn.Parameter(torch.full((hidden,), 0.5))
        self.last = nn.Linear(hidden, outputs)
        self.register_buffer("shift", torch.arange(float(hidden)))
        self.register_buffer("twice", torch.tensor([2.0]), persistent=False)
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.norm(self.first(x)) * self.scale)
        return self.last(
            torch.tanh(self.frozen(hidden)) + 0.1 * self.shift * self.twice
        )


class Dropping(nn.Module):
    """Dropout that no layer announces."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.dropout(self.first(x), training=self.training)
        return self.last(torch.relu(hidden))


class Choosing(nn.Module):
    """A module that looks at its own weights: `vmap` cannot stack it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        chosen = hidden if float(self.first.weight.detach().sum()) > 0 else hidden.abs()
        return self.last(chosen)


class Small(nn.Module):
    """Rows of three numbers as pictures: a convolution with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Unflatten(1, (1, 3)),
            nn.Conv1d(1, 4, 3, padding=1),
            nn.BatchNorm1d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(12, 2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


MODULES = {
    "dense": lambda: mlp(3, (8,), 2),
    "batch norm": lambda: mlp(3, (8,), 2, batch_norm=True),
    "own": Own,
    "dropout": lambda: nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2)),
    "hidden dropout": Dropping,
    "choosing": Choosing,
    "convolution": Small,
    "recurrent": lambda: nn.Sequential(nn.Unflatten(1, (3, 1)), Last(nn.GRU(1, 2))),
}


class Last(nn.Module):
    """The last output of a recurrent layer, over a sequence."""

    def __init__(self, layer: nn.GRU) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.transpose(0, 1))[0][-1]


class Failing(nn.Module):
    """A convolution that fails on batches of seven rows."""

    def __init__(self) -> None:
        super().__init__()
        self.body = MODULES["convolution"]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and len(x) == 7:
            raise ArithmeticError("seven")
        return self.body(x)


LABELS = {"cross_entropy": 3, "binary": 2, "squared": 0}


def network(loss="cross_entropy", *, hidden=(5,), features=3, labels=None, **options):
    """Return a bound network of doubles."""
    count = LABELS[loss] if labels is None else labels
    module = mlp(features, hidden, count if loss == "cross_entropy" else 1).double()
    model = Network(module, loss, **{"standardize": False, **options})
    return model.bind(
        make_schema(features=features, labels=count), Inputs.identity(features)
    )
