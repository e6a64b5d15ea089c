"""Coverage of what is said under noise: whole runs on people drawn from a population.

    nice -n 15 .venv/bin/python benchmarks/privacy_coverage.py [--runs 500]

A population of 200,000 drawn people is the truth. Each run draws training and held-out
people from it, without replacement, and trains with Noisy FirstOrder at a bound beside
which it ends. Counted: runs in which the ends of training losses do not hold the true
mean loss of the training people in every cell (at most 5 % may), in which the figure
for people not seen is below the population's mean loss in a given cell (at most 5 %
each), and in which *met*, *not met* or *holds* is said falsely.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

import pffl
from pffl.evidence.figures import Judged

PEOPLE, HELD, CONFIDENCE = 3600, 1 / 3, 0.95
BOUND = 0.62


def drawn(data, random):
    """Return a federation of people drawn from the population, as it is trained on."""
    silo = data.silos[0]
    whole = silo.splits["train"]
    people = whole.take(random.permutation(len(whole.y))[:PEOPLE])
    splits = {"train": people, "test": people.take(np.zeros(0, np.int64))}
    silos = (replace(silo, splits=splits),)
    return replace(data, silos=silos, test_fraction=HELD).keyed()


def means(model, w, rows, groups: int, bound: float):
    losses = model.bounded_losses(w, model.inputs.apply(rows.X), rows.y, bound)
    sums = np.bincount(rows.group, losses, groups)
    return sums / np.bincount(rows.group, minlength=groups)


def coverage(epsilon: float, runs: int) -> str:
    """Run many times; return a line of the table."""
    data = pffl.datasets.synthetic(
        200_000, silos=1, features=6, groups=["f", "m"], test_fraction=0.0, seed=0
    )
    ends = [(0.0, 100.0), (0.0, 1.0), (0.0, 10.0)]
    ranges = {n: ends[i % 3] for i, n in enumerate(map(str, data.schema.features))}
    whole = data.silos[0].splits["train"]
    random = np.random.default_rng(0)
    outside, below, false = 0, np.zeros(2), 0
    words: dict[str, int] = {}
    for _ in range(runs):
        people = drawn(data, random)
        found = pffl.solve(
            people,
            pffl.BoundedGroupLoss(BOUND),
            method="first-order",
            seed=0,
            privacy=pffl.Privacy(epsilon, ranges=ranges),
        )
        e, part = found.evidence, found.evidence.privacy
        model, M = found.problem.task.model, part.loss_bound
        mine = people.silos[0].splits["train"]
        here, there = (means(model, found.w, r, 2, M) for r in (mine, whole))
        judged = Judged(e)
        low, high = judged.train.low, judged.train.high
        outside += bool(((here < low) | (here > high)).any())
        below += there > judged.upper
        status = found.status
        words[status] = words.get(status, 0) + 1
        held = bool((here <= BOUND).all())
        false += (status == "met" and not held) or (status == "not met" and held)
        false += judged.certified and not (there <= BOUND).all()
    share = " / ".join(f"{100 * b / runs:.1f} %" for b in below)
    said = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in sorted(words.items()))
    return (
        f"| {epsilon:g} | {runs} | {100 * outside / runs:.1f} % | {share} | {said} | "
        f"{false} |"
    )


if __name__ == "__main__":
    many = 500
    if "--runs" in sys.argv:
        many = int(sys.argv[sys.argv.index("--runs") + 1])
    print("| ε | runs | training means outside | unseen above its figure, f / m | "
          "said of training rows | said falsely |")  # fmt: skip
    print("|---|---|---|---|---|---|")
    for epsilon in (0.5, 1.0, 4.0):
        print(coverage(epsilon, many), flush=True)
