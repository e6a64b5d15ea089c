"""PFFL on a network: λ by exponentiated ascent or by the QP on gradients per cell.

    python -m benchmarks.networks_qp

A perceptron on drawn faces (`reproduction.faces`), a bound on the loss of each gender
that plain training misses, three seeds of pictures and first weights. The QP asks a
question more in every dual round: ascent has as many questions, and so more rounds of
training. Shown is the w that is returned, the best on training rows by
βF + B·max(0, max r) ("value", ridge included): means over the seeds, and ranges.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

import pffl
from pffl.models import mlp
from pffl.models.network import Network
from reproduction.faces import faces

SEEDS, BOUND, QUESTIONS = (0, 1, 2), 0.36, 120
CLIENTS, SIZE, HIDDEN, T = 40, 12, 8, 5
SHARED: dict[str, Any] = {
    "multiplier_bound": 3.0,
    "local_steps": 2,
    "by_mass": False,  # as when the table was made
    "rounds_per_dual": T,
    "dual_rounds": QUESTIONS // T,
}
WAYS: dict[str, dict[str, Any]] = {
    "ascent": {},
    "ascent, η_θ = 5": {"dual_step_size": 5.0},
    "qp": {"dual_update": "qp", "dual_rounds": QUESTIONS // (T + 1)},
}
COLUMNS = ("questions", "value", "worst loss", "violation", "risk")
HELD_OUT = ("held-out worst", "held-out error", "CPU s")


def measured(seed: int, setting: dict[str, Any]) -> list[float]:
    """Train once, and return the figures of a row of the table."""
    data = faces(
        CLIENTS, size=SIZE, look="apart", label_noise=0.1, beard=0.7, seed=seed
    )
    model = Network(mlp(3 * SIZE**2, (HIDDEN,), 2), l2=0.03)
    method, constraint = pffl.PFFL(**SHARED | setting), pffl.BoundedGroupLoss(BOUND)
    began = time.process_time()
    found = pffl.solve(data, constraint, model=model, method=method, seed=seed)
    seconds = time.process_time() - began
    worst = max(cell.train_loss for cell in found.cell_results)
    above, risk = max(0.0, worst - BOUND), found.train.risk
    ridge = found.problem.ridge(found.w)
    return [
        len(found.rows),
        risk + ridge + SHARED["multiplier_bound"] * above,
        worst,
        above,
        risk,
        max(cell.test_loss for cell in found.cell_results),
        found.test.error,
        seconds,
    ]


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    settings = {"no bound, η_w = 0.1": {"step_size": 0.1, "multiplier_bound": 1e-6}}
    for size in (0.03, 0.1):
        for name, way in WAYS.items():
            settings[f"{name}, η_w = {size:g}"] = {"step_size": size, **way}
    print(f"| setting | {' | '.join(COLUMNS + HELD_OUT)} |\n|{'---|' * 9}")
    for name, setting in settings.items():
        runs = np.array([measured(seed, setting) for seed in SEEDS])
        ends = zip(runs.mean(axis=0), runs.min(axis=0), runs.max(axis=0), strict=True)
        words = [f"{m:.3g}" + f" ({a:.3g}–{b:.3g})" * int(a < b) for m, a, b in ends]
        print(f"| {name} | {' | '.join(words)} |", flush=True)


if __name__ == "__main__":
    main()
