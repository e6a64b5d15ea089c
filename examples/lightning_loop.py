"""A Lightning module under a bound for every group.

Lightning's own Trainer fits the module without bounds, and measures both models.
`pffl.solve_loaders` fits it under a bound: of the module it takes `forward` and
`configure_optimizers`; Trainer, callbacks and `training_step` have no part in it.
"""

from __future__ import annotations

import copy
import logging
import warnings

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

import pffl

BOUND = 0.68


class Net(pl.LightningModule):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores of the classes."""
        return self.layers(x)

    def losses(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """Return the loss of each example."""
        x, labels, _ = batch
        return nn.functional.cross_entropy(self(x), labels, reduction="none")

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """Return what Trainer.fit descends."""
        return self.losses(batch).mean()

    def test_step(self, batch: list[torch.Tensor]) -> None:
        """Log the mean loss of each group."""
        losses, group = self.losses(batch), batch[2]
        for code, name in enumerate("ab"):
            own = losses[group == code]
            self.log(name, own.mean(), on_epoch=True, batch_size=len(own))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimiser, for Trainer.fit and for pffl."""
        return torch.optim.AdamW(self.parameters(), lr=0.02)


def people(silo: int, rows: int) -> TensorDataset:
    """Draw inputs, labels, groups; group b follows the inputs the other way round."""
    draw = np.random.default_rng([silo, rows])
    group = (draw.random(rows) < 0.25).astype(np.int64)
    x = draw.normal(size=(rows, 4))
    x[:, 1] += group
    score = np.where(group == 1, -1.5, 2.0) * x[:, 0]
    label = (draw.random(rows) < 1 / (1 + np.exp(-score))).astype(np.int64)
    columns = (x.astype(np.float32), label, group)
    return TensorDataset(*map(torch.from_numpy, columns))


def trainer(epochs: int = 1) -> pl.Trainer:
    """A Trainer that prints and writes nothing."""
    quiet = {"logger": False, "enable_checkpointing": False}
    quiet |= {"enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(max_epochs=epochs, accelerator="cpu", **quiet)


def measured(net: Net, rows: ConcatDataset) -> str:
    """Return the groups' losses, by Lightning's own measure."""
    found = trainer().test(net, DataLoader(rows, batch_size=len(rows)), verbose=False)
    return ", ".join(f"group {name} {loss:.3f}" for name, loss in found[0].items())


def main() -> None:
    """Print the groups' losses without and with a bound."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    torch.set_num_threads(1)  # more are slower on so little
    pl.seed_everything(0, verbose=False)
    silos = {f"site {k}": (people(k, 300), people(k, 150)) for k in range(3)}
    rows = ConcatDataset([train for train, _ in silos.values()])
    net = Net()
    plain = copy.deepcopy(net)
    trainer(12).fit(plain, DataLoader(rows, batch_size=32, shuffle=True))
    print("Trainer.fit:   ", measured(plain, rows))

    solution = pffl.solve_loaders(
        net,
        silos,
        pffl.BoundedGroupLoss(BOUND),
        groups=["a", "b"],
        labels=["no", "yes"],
        optimizer=lambda module: module.configure_optimizers(),
        rounds=12,
    )
    state = solution.model.arrays(solution.w)
    net.load_state_dict({n: torch.as_tensor(a) for n, a in state.items()})
    print("solve_loaders: ", measured(net, rows))
    print(f"{solution.status}: {solution.message}")


if __name__ == "__main__":
    main()
