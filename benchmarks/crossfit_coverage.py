"""Coverage of the bound by progressive cross-fitting, where the population is known.

    .venv/bin/python benchmarks/crossfit_coverage.py [--repetitions 10000]

People are of 12 kinds; Pr[kind, label] of each silo and cell is drawn once a setting:
every model's true losses are sums. Rows are drawn, cut and weighed as in
benchmarks/crossfit.py; models are fitted to all rows before a block, by

    table      the labels' shares of each kind: learns much from every block
    minimax    a logistic regression, with weights towards the worst cell
    gambler    sure predictions until the first cell had luck, from then on a half

Counted is how often a cell's mean loss, over the k models and the silos' shares of the
scored rows, is above its U; how often the promise of max U to all cells is broken; and
how often the shipped predictor's own loss is above U. δ = 0.05. Two settings are wrong
on purpose.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from crossfit import DELTA, row_weights

from pffl.bounds.mean import Moments, plan
from pffl.bounds.mean import upper as log_sum_upper


@dataclass(frozen=True)
class Setting:
    """A population of finitely many kinds of people, and how rows of it are cut."""

    text: str
    rows: Sequence[Sequence[int]]  # by silo and cell, before the first part is taken
    first: float = 0.3
    blocks: int = 5
    learner: str = "table"
    labels: bool = False  # a cell per group and label, instead of per group
    rare: float = 0.0  # makes the label rare
    uneven: bool = False  # most rows in the last block
    weighed: bool = True  # with the weights a
    peeks: bool = False  # the model of a block has seen it


KINDS, INPUTS, CAP = 12, 4, 3.0


def population(setting: Setting, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return Pr[kind, label] of each silo × cell, shape (S, Z, 2 KINDS), and inputs."""
    silos, cells = np.shape(setting.rows)
    groups = cells // 2 if setting.labels else cells
    phi = np.column_stack([np.ones(KINDS), rng.standard_normal((KINDS, INPUTS))])
    kinds = rng.dirichlet(np.ones(KINDS), (silos, groups))
    slopes = rng.standard_normal((silos, groups, INPUTS + 1)) * 0.7 + phi.std(axis=0)
    chance = 1 / (1 + np.exp(setting.rare - slopes @ phi.T))
    law = np.stack([kinds * (1 - chance), kinds * chance], axis=-1)
    if setting.labels:  # cells: every group with label 0, then with label 1
        law = np.concatenate([law * np.eye(2)[y] for y in (0, 1)], axis=1)
    law = law.reshape(silos, cells, 2 * KINDS)
    return law / law.sum(axis=-1, keepdims=True), phi


def learned(
    name: str, counts: np.ndarray, phi: np.ndarray, lucky: np.ndarray
) -> np.ndarray:
    """Return Pr[label 1] of each kind, bounded, from counts (R, Z, kind, label)."""
    least = np.exp(-CAP)
    seen = counts.sum(axis=1)
    table = (seen[..., 1] + 0.1) / (seen.sum(axis=-1) + 0.2)
    if name == "gambler":  # bets on as long as it has no luck, and then stops
        table = np.where(lucky[:, None], 0.5, np.where(table > 0.5, 1.0, 0.0))
    elif name == "minimax":
        lam, w = np.ones(counts.shape[:2]), np.zeros((len(counts), phi.shape[1]))
        mass = counts / counts.sum(axis=(2, 3), keepdims=True)
        for _ in range(12):
            c = np.einsum("rz,rzdy->rdy", lam / lam.sum(axis=1, keepdims=True), mass)
            for _ in range(3):
                p = 1 / (1 + np.exp(-w @ phi.T))
                slope = (c.sum(axis=-1) * p - c[..., 1]) @ phi + 1e-3 * w
                bend = c.sum(axis=-1) * p * (1 - p)
                curve = np.einsum("rd,di,dj->rij", bend, phi, phi)
                curve += 1e-3 * np.eye(phi.shape[1])
                w = w - np.linalg.solve(curve, slope[..., None])[..., 0]
            p = np.clip(1 / (1 + np.exp(-w @ phi.T)), least, 1 - least)
            both = -np.log(np.stack([1 - p, p], axis=-1))
            lam = lam * np.exp(2 * np.einsum("rzdy,rdy->rz", mass, both))
        table = p
    return np.clip(table, least, 1 - least)


def covered(setting: Setting, repetitions: int, seed: int) -> tuple[float, ...]:
    """Return how often bounds are missed: a cell's, the promise, the predictor's."""
    rng = np.random.default_rng(seed)
    law, phi = population(setting, rng)
    silos, Z, _ = law.shape
    R, k, first = repetitions, setting.blocks, setting.first
    drawn, silo, cell, block = [], [], [], []
    for s in range(silos):
        for z in range(Z):
            n = setting.rows[s][z]
            place = (np.arange(n) + rng.random()) / n
            after = (place - first) / (1 - first) * k * (4 if setting.uneven else 1)
            at = np.clip(np.floor(after), -1, k - 1).astype(int)
            drawn.append(rng.choice(2 * KINDS, (R, n), p=law[s, z]))
            silo += [s] * n
            cell += [z] * n
            block += at.tolist()
    rows, where = np.concatenate(drawn, axis=1), np.array(silo)
    cells, blocks = np.array(cell), np.array(block)
    scored = blocks >= 0
    a = np.ones(len(cells))
    if setting.weighed:
        a[scored] = row_weights(where[scored], cells[scored], blocks[scored], k)
    n = np.bincount(cells[scored], minlength=Z)
    level = np.bincount(cells[scored], a[scored], minlength=Z) / n
    shares = np.zeros((silos, Z))
    np.add.at(shares, (where[scored], cells[scored]), 1.0)
    mixture = np.einsum("sz,szo->zo", shares / n, law)  # of the people that are scored

    def counts(chosen: np.ndarray) -> np.ndarray:
        flat = (np.arange(R)[:, None] * Z + cells[chosen]) * 2 * KINDS + rows[:, chosen]
        found = np.bincount(flat.ravel(), minlength=R * Z * 2 * KINDS)
        return found.reshape(R, Z, KINDS, 2).astype(float)

    lucky, expected, met = np.zeros(R, bool), np.zeros(R), np.zeros(R)
    target, told, bets = np.zeros((R, Z)), np.zeros((R, KINDS)), None
    for b in range(k):
        seen = counts(blocks < (b + 1 if setting.peeks else b))
        p = learned(setting.learner, seen, phi, lucky)
        both = -np.log(np.stack([1 - p, p], axis=-1)).reshape(R, 2 * KINDS)
        if bets is None:
            flat = seen.reshape(R, Z, 2 * KINDS)
            size = flat.sum(axis=-1)
            mean = np.einsum("rzo,ro->rz", flat, both) / size
            square = np.einsum("rzo,ro->rz", flat, both**2) / size
            moments = ((level * mean), (level**2 * (square - mean**2)))
            known = [
                Moments.alike(*pair, CAP)
                for pair in zip(*map(np.ravel, moments), strict=False)
            ]
            bets, _ = plan(np.tile(n, R), delta=DELTA, loss_bound=CAP, known=known)
            gammas = bets.gammas.reshape(R, Z, -1)
            sums = np.zeros(gammas.shape)
        risks = both @ mixture.T
        target += risks / k
        told += p / k
        now = blocks == b
        own = np.take_along_axis(both, rows[:, now], axis=1)
        for z in range(Z):
            of = cells[now] == z
            x = (a[now] * own / CAP)[:, of]
            sums[:, z] += np.log1p(-gammas[:, z, None] * x[..., None]).sum(axis=1)
        met += own[:, cells[now] == 0].sum(axis=1)
        expected += risks[:, 0] * np.count_nonzero(cells[now] == 0)
        rows_so_far = np.count_nonzero(scored & (blocks <= b) & (cells == 0))
        lucky = met < expected - 0.5 * np.sqrt(rows_so_far)
    sizes = {"loss_bound": CAP, "delta": DELTA}
    flat = log_sum_upper(bets, sums.reshape(R * Z, -1), np.tile(n, R), **sizes)
    upper = np.minimum(flat.reshape(R, Z) / level, CAP)
    shipped = -np.log(np.stack([1 - told, told], axis=-1)).reshape(R, -1) @ mixture.T
    return (
        float((upper < target).mean(axis=0).max()),
        float((upper.max(axis=1) < target.max(axis=1)).mean()),
        float((upper < shipped).mean(axis=0).max()),
        float((upper - target).mean()),
    )


SETTINGS = (
    Setting("two cells of 100 and 600", [[60, 300], [25, 200], [15, 100]]),
    Setting("10 blocks", [[60, 300], [25, 200], [15, 100]], blocks=10),
    Setting("half first", [[60, 300], [25, 200], [15, 100]], first=0.5),
    Setting("cells of 30", [[20, 20], [10, 10]], first=0.2),
    Setting("a cell of 3,000", [[50, 2000], [50, 1000]], blocks=10),
    Setting("minimax", [[60, 300], [25, 200], [15, 100]], learner="minimax"),
    Setting(
        "minimax, four cells by label, rare",
        [[200, 400, 30, 60], [100, 300, 20, 40]],
        learner="minimax",
        labels=True,
        rare=2.0,
    ),
    Setting("gambler", [[60, 300], [25, 200], [15, 100]], learner="gambler"),
    Setting("gambler, 10 blocks", [[200, 300]], learner="gambler", blocks=10),
    Setting("uneven blocks", [[2000, 900], [1000, 500]], first=0.02, uneven=True),
    Setting(
        "**wrong**: the same without weights",
        [[2000, 900], [1000, 500]],
        first=0.02,
        uneven=True,
        weighed=False,
    ),
    Setting(
        "**wrong**: trained on what it scores",
        [[60, 300], [25, 200], [15, 100]],
        peeks=True,
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(f"{args.repetitions:,} repetitions, δ = {DELTA:g}\n")
    print("| population | blocks | cell above its U | promise broken ", end="")
    print("| predictor above its U | mean U − mean loss |")
    print("|---" * 6 + "|")
    for number, setting in enumerate(SETTINGS):
        *missed, width = covered(setting, args.repetitions, args.seed + number)
        shares = " | ".join(f"{share:.2%}" for share in missed)
        text = f"| {setting.text} | {setting.blocks} | {shares} | {width:.3f} |"
        print(text, flush=True)


if __name__ == "__main__":
    main()
