"""A torch module under a bound for every group, with its own Dataset and optimiser.

No Flower is needed: the silos are in this process, one Dataset or DataLoader each.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

import pffl


def people(silo: int, rows: int) -> TensorDataset:
    """Draw inputs, labels, groups; group 1 follows the inputs the other way round."""
    draw = np.random.default_rng([silo, rows])
    group = (draw.random(rows) < 0.25).astype(np.int64)
    x = draw.normal(size=(rows, 4))
    x[:, 1] += group
    score = np.where(group == 1, -1.5, 2.0) * x[:, 0]
    label = (draw.random(rows) < 1 / (1 + np.exp(-score))).astype(np.int64)
    columns = (x.astype(np.float32), label, group)
    return TensorDataset(*map(torch.from_numpy, columns))


def adam(module: nn.Module) -> torch.optim.Optimizer:
    """Any optimiser: it is made anew for each silo and round."""
    return torch.optim.AdamW(module.parameters(), lr=0.02)


def main() -> None:
    """Print the groups' losses without and with a bound."""
    torch.set_num_threads(1)  # more are slower on so little
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    silos = {f"site {k}": (people(k, 300), people(k, 150)) for k in range(3)}
    names = {"groups": ["a", "b"], "labels": ["no", "yes"], "optimizer": adam}
    for price in (1e-9, 10.0):  # without a price no bound is kept
        solution = pffl.solve_loaders(
            net,
            silos,
            pffl.BoundedGroupLoss(0.68),
            multiplier_bound=price,
            rounds=12,
            **names,
        )
        print(solution.status)
        print(solution.cells[["count", "train_loss", "test_loss"]], "\n")
    net.load_state_dict(
        {n: torch.as_tensor(a) for n, a in solution.model.arrays(solution.w).items()}
    )


if __name__ == "__main__":
    main()
