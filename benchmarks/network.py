"""One round of local training over 472 clients of CelebA's shape: ours and plain loops.

    export PYTHONPATH=.
    .venv/bin/python benchmarks/network.py            472 clients, 28 × 28 and 84 × 84
    .venv/bin/python benchmarks/network.py 59 84      an eighth of them, 84 × 84 only

A round is what PFFL asks for: losses of all rows at the w that was sent, then local
steps. All ways take the same steps on the same rows, and take turns, so that whatever
else the machine does meets all of them alike:

- bare: what one writes in torch without a library; pictures in torch's usual layout
  (colours first), one client after the other;
- reference: the plain loop over silos of `pffl`;
- local: the engine that `pffl.solve` uses, on all cores.

Both loops have one thread of torch's: its own threads meet after every layer, which on
a busy machine made the plain loop ten times slower, and would flatter the engine.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from ratios import header, show
from torch import nn

import pffl
from pffl._solve import prepared as prepare
from pffl.data import Rows
from pffl.datasets._celeba import picture_schema
from pffl.engines import Local, Reference
from pffl.models import celeba_cnn, mlp
from pffl.models.network import Network
from pffl.prepare import Options
from pffl.problem import Problem
from pffl.queries import Train, TrainTotal, View

REPEATS = 3
TurnTaking = dict[str, Callable[[], TrainTotal]]


def query(problem: Problem, steps: int, batch: int | None) -> Train:
    """Ask for local steps with weighted cells."""
    weights = problem.cell_weights(np.linspace(0.3, 0.7, problem.n_cells))
    w = problem.task.model.start(0)
    return Train(problem.task, w, 1.0, weights, np.full(steps, 0.05), batch)


def prepared(data: pffl.Federation, model: Network) -> tuple[Reference, Local, Problem]:
    """Both engines and the problem."""
    plain, fast = Reference(data), Local(data)
    constraint, method = pffl.BoundedGroupLoss(0.3), pffl.PFFL()
    problem, _ = prepare(plain, constraint, model, method, Options(), 0)
    return plain, fast, problem


class Bare:
    """The round as one writes it in torch: a module, a loop, a state dictionary."""

    def __init__(self, size: int) -> None:
        self.module = nn.Sequential(
            *(
                layer
                for before in (3, 32, 32, 32)
                for layer in (
                    nn.Conv2d(before, 32, 3, padding=1),
                    nn.BatchNorm2d(32),
                    nn.MaxPool2d(2, ceil_mode=True),
                    nn.ReLU(),
                )
            ),
            nn.Flatten(),
            nn.Linear(32 * (-(-size // 16)) ** 2, 2),
        )
        self.size = size

    def pictures(self, X: np.ndarray) -> torch.Tensor:
        """Bytes with colours last → floats with colours first."""
        rows = torch.from_numpy(X).reshape(-1, self.size, self.size, 3)
        return (rows.permute(0, 3, 1, 2).contiguous().float()) / 255

    def round(self, ask: Train, views: list[View]) -> TrainTotal:
        """Losses of all rows, then local steps, client by client."""
        first = copy.deepcopy(self.module.state_dict())
        totals = []
        for view in views:
            self.module.load_state_dict(first)
            self.module.eval()
            with torch.no_grad():
                losses = self.losses(view.X, view.y).numpy()
            self.module.train()
            weights = torch.tensor(ask.row_weights(view), dtype=torch.float32)
            batches = ask.batches(view.index, len(view))
            for size, rows in zip(ask.step_sizes, batches, strict=True):
                scale = 1.0 if isinstance(rows, slice) else len(view) / len(rows)
                loss = self.losses(view.X[rows], view.y[rows]) @ (weights[rows] * scale)
                self.module.zero_grad()
                loss.backward()
                with torch.no_grad():
                    for parameter in self.module.parameters():
                        parameter -= float(size) * parameter.grad
            state = self.module.state_dict()
            flat = [
                (state[name] - first[name]).reshape(-1)
                for name in first
                if first[name].is_floating_point()
            ]
            update = torch.cat(flat).double().numpy()
            totals.append(ask.total(view, losses.astype(np.float64), ask.w + update))
        self.module.load_state_dict(first)
        return totals[0]

    def losses(self, X: np.ndarray, y: np.ndarray) -> torch.Tensor:
        """Loss of each picture."""
        labels = torch.from_numpy(y).long()
        z = self.module(self.pictures(X))
        return nn.functional.cross_entropy(z, labels, reduction="none")


def in_turns(
    ways: TurnTaking, repeats: int = REPEATS
) -> dict[str, tuple[float, float]]:
    """Best wall and processor seconds of each way, which take turns."""
    best = {name: (float("inf"), float("inf")) for name in ways}
    for _ in range(repeats):
        for name, work in ways.items():
            wall, processor = time.perf_counter(), time.process_time()
            work()
            best[name] = (
                min(best[name][0], time.perf_counter() - wall),
                min(best[name][1], time.process_time() - processor),
            )
    return best


def tell(what: str, ways: TurnTaking) -> None:
    """Print seconds a round of each way, and ratios to the engine's."""
    seconds = in_turns(ways)
    words = ", ".join(
        f"{name} {wall:.2f} s ({cpu:.2f} s of processors)"
        for name, (wall, cpu) in seconds.items()
    )
    print(f"{what}\n    {words}", flush=True)
    for name in ways:
        if name != "local":
            ratio = seconds[name][0] / seconds["local"][0]
            show(f"    {name} against local", ratio, "at least 1, aim 2")


def with_one_thread(work: Callable[[], TrainTotal]) -> Callable[[], TrainTotal]:
    """Let torch use one thread for some work."""

    def alone() -> TrainTotal:
        allowed = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return work()
        finally:
            torch.set_num_threads(allowed)

    return alone


def pictures(clients: int, size: int) -> pffl.Federation:
    """About sixteen pictures of noise for each client, of one gender."""
    rng = np.random.default_rng(0)
    silo = np.repeat(np.arange(clients), rng.integers(5, 28, clients))
    shown = rng.integers(0, 256, (len(silo), size * size * 3), dtype=np.uint8)
    male = rng.integers(0, 2, clients)[silo]
    return pffl.Federation.from_rows(
        picture_schema(size, "Smiling", "Male"),
        Rows.of(shown, rng.integers(0, 2, len(silo)), male),
        silo,
        [f"client {k}" for k in range(clients)],
        name="noise",
    )


def faces(clients: int, size: int, steps: int, batch: int | None) -> None:
    """LEAF's CNN on pictures."""
    data = pictures(clients, size)
    plain, fast, problem = prepared(data, Network(celeba_cnn(size)))
    ask, bare = query(problem, steps, batch), Bare(size)
    a, b = with_one_thread(lambda: plain.ask(ask))(), fast.ask(ask)
    assert np.abs(a.update - b.update).max() < 1e-4 * np.abs(a.update).max()
    views = plain.views(ask)
    tell(
        f"CNN, {clients} clients, {size} × {size}, {data.rows('train'):,} pictures, "
        f"J = {steps}, batch {batch or 'all'}",
        {
            "bare": with_one_thread(lambda: bare.round(ask, views)),
            "reference": with_one_thread(lambda: plain.ask(ask)),
            "local": lambda: fast.ask(ask),
        },
    )


def tables(clients: int, rows: int, steps: int) -> None:
    """A perceptron on a table."""
    data = pffl.datasets.synthetic(clients * rows, silos=clients, features=20)
    plain, fast, problem = prepared(data, Network(mlp(20, (64,), 2)))
    ask = query(problem, steps, 20)
    tell(
        f"perceptron 20–64–2, {clients} clients of {rows} rows, J = {steps}, batch 20",
        {
            "reference": with_one_thread(lambda: plain.ask(ask)),
            "local": lambda: fast.ask(ask),
        },
    )


if __name__ == "__main__":
    header()
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 472
    sizes = [int(text) for text in sys.argv[2:]] or [28, 84]
    tables(many, 40, 5)
    for size in sizes:
        faces(many, size, 1, 10)
