"""How often promises for people not seen are broken, where the truth is known.

    python benchmarks/promise_coverage.py [--draws 400] [--trainings 5]

A population is a pool of rows for each silo and cell; people are drawn from it with
replacement, so its mean losses are the truth. On a training sample the product trains
its path (`pffl._certify`); then calibration rows are drawn again and again, and the
path is tested: as the product does (log-sum bound, fixed sequence, every cell at δ),
with a union over cells and models instead (log-sum at δ/(Z·models), the least
constrained that passes), and along the same sequence by empirical Bernstein bounds. The
first figure is how often a promise was made, the second how often it is broken: some
cell's true mean loss, for the mixture of silos in its calibration rows, is above the
bound. *worst*: the same sequence tested at a bound that its safest model breaks by a
hair; a promise of it is false."""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit

import pffl
from pffl.bounds.mean import Bets, upper_bounds
from pffl.data import Federation
from pffl.evidence.record import ModelPath
from pffl.prepare import Options

DELTA, POOL, MODELS = 0.05, 4000, 12
QUICK = Options(baseline=False, smallest_bound=False)


@dataclass(frozen=True)
class World:
    """A population: groups, how many calibration rows of each, and how they differ.

    `apart` moves the groups' labels apart, `skew` makes positives rare, `silos` differ
    by `drift`. Bounds are about `tight` times the smallest that is possible.
    """

    name: str
    rows: tuple[int, ...]
    by_label: bool
    apart: float = 1.0
    skew: float = 0.0
    silos: int = 1
    drift: float = 0.0
    tight: tuple[float, ...] = (1.1, 1.25)


WORLDS = (
    World("BGL, 2 cells of 300 and 100", (300, 100), False),
    World("BGL, 2 cells of 3,000 and 30", (3000, 30), False),
    World("BGL, 6 cells of 50 to 3,000", (3000, 1000, 300, 200, 100, 50), False),
    World("BGL, 12 cells of 60 to 600", (600, 300, 200, 100, 80, 60) * 2, False),
    World("CBGL, 4 cells", (400, 150), True),
    World("CBGL, 12 cells", (900, 600, 400, 300, 250, 200), True, apart=0.5),
    World(
        "BGL, skewed losses, 2 cells",
        (500, 200),
        False,
        skew=3.0,
        tight=(1.25, 1.6),
    ),
    World("BGL, 4 silos that differ", (600, 300, 200), False, silos=4, drift=1.5),
)


def drawn(world: World, rng: Any, group: int, silo: int, n: int) -> tuple[Any, Any]:
    """Draw people of one group and silo."""
    turn = world.apart * group / max(1, len(world.rows) - 1)
    X = rng.normal(size=(n, 3)) + world.drift * np.array([silo, 0, -silo]) / 4
    score = 1.4 * X[:, 0] * (1 - turn) + 1.4 * X[:, 1] * turn + 0.3 * turn
    y = rng.uniform(size=n) < expit(score - world.skew + 0.2 * world.drift * silo)
    return X, y.astype(float)


@dataclass(frozen=True, eq=False)
class Pool:
    """The population of one cell in one silo."""

    X: Any
    y: Any
    n: int  # calibration rows


def pools_of(world: World, rng: Any) -> list[list[Pool]]:
    """Return the pools of every cell, silo by silo."""
    cells: list[list[Pool]] = []
    for group, rows in enumerate(world.rows):
        drawn_here = [drawn(world, rng, group, k, POOL) for k in range(world.silos)]
        labels: list[float | None] = [0.0, 1.0] if world.by_label else [None]
        for label in labels:
            own = []
            for X, y in drawn_here:
                mine = np.full(len(y), True) if label is None else y == label
                share = float(mine.mean())
                n = max(10, round(rows * share / world.silos))
                own.append(Pool(X[mine], y[mine], n))
            cells.append(own)
    return cells


def training(world: World, rng: Any, bound: float) -> tuple[ModelPath, pffl.Solution]:
    """Train the product's path; its calibration rows only say how many there are."""
    parts = [
        (group, silo, *drawn(world, rng, group, silo, 2 * rows // world.silos + 60))
        for group, rows in enumerate(world.rows)
        for silo in range(world.silos)
    ]
    federation = Federation.from_arrays(
        np.concatenate([X for _, _, X, _ in parts]),
        np.concatenate([y for *_, y in parts]).astype(int),
        sensitive_features=np.concatenate(
            [[f"g{g:02}"] * len(y) for g, *_, y in parts]
        ),
        silo=np.concatenate([[f"s{k}"] * len(y) for _, k, _, y in parts]),
        test_fraction=0.4,
        seed=int(rng.integers(2**31)),
    )
    kind = pffl.ConditionalBoundedGroupLoss if world.by_label else pffl.BoundedGroupLoss
    asked = replace(QUICK, certify=True, models=MODELS)
    found = pffl.solve(federation, kind(bound), options=asked, seed=0)
    path = found.evidence.path
    if not isinstance(path, ModelPath):
        raise TypeError("a promise was asked for")
    return path, found


def losses(found: pffl.Solution, w: Any, pool: Pool, M: float) -> Any:
    """Return the bounded losses of everybody in a pool."""
    scaled = found.problem.task.model.inputs.apply(pool.X)
    X = np.column_stack([scaled, np.ones(len(pool.y))])
    least = np.exp(-M)
    return -np.log(np.clip(expit((2 * pool.y - 1) * (X @ w)), least, 1 - least))


def bernstein(mean: Any, variance: Any, n: Any, M: float, delta: float) -> Any:
    """Return the empirical Bernstein bound of Maurer and Pontil."""
    log = np.log(2 / delta)
    return mean + np.sqrt(2 * variance * log / n) + 7 * M * log / (3 * (n - 1))


def tried(
    path: ModelPath,
    found: pffl.Solution,
    cells: list[list[Pool]],
    bound: float,
    draws: int,
    rng: Any,
) -> dict[str, tuple[int, int]]:
    """Return how many promises were made, and how many of them are false."""
    n = np.array([sum(pool.n for pool in own) for own in cells], float)
    Z, C = len(cells), len(path.candidates)
    times = [
        [rng.multinomial(p.n, np.full(len(p.y), 1 / len(p.y)), size=draws) for p in own]
        for own in cells
    ]
    true, ways = np.zeros((C, Z)), ("ours", "union", "bernstein", "worst")
    passed = {way: np.zeros((C, draws), bool) for way in ways}
    for c, one in enumerate(path.candidates):
        M, w = one.loss_bound, np.array(np.array(one.model))
        held = one.calibration
        bets = Bets(np.array(held.bets), np.array(held.bet_weights))
        below = np.zeros((draws, Z, bets.gammas.shape[1]))
        total, square = np.zeros((2, draws, Z))
        for z, own in enumerate(cells):
            for pool, counts in zip(own, times[z], strict=True):
                ell = losses(found, w, pool, M)
                logs = np.log1p(-bets.gammas[z] * ell[:, None] / M)
                below[:, z] += counts @ logs
                total[:, z] += counts @ ell
                square[:, z] += counts @ ell**2
                true[c, z] += pool.n / n[z] * ell.mean()
        for way, delta in (("ours", DELTA), ("union", DELTA / (Z * C))):
            upper = upper_bounds(bets, below, n, total, loss_bound=M, delta=delta)
            passed[way][c] = (upper <= bound).all(axis=1)
            if way == "ours":
                hard = true[0].max() * (1 - 1e-9)
                passed["worst"][c] = (upper <= hard).all(axis=1)
        mean = total / n
        variance = np.maximum(square / n - mean**2, 0) * n / (n - 1)
        upper = bernstein(mean, variance, n, M, DELTA)
        passed["bernstein"][c] = (upper <= bound).all(axis=1)
    good = (true <= bound).all(axis=1)
    out = {}
    for way, shown in passed.items():
        if way == "union":  # any that passes: the least constrained of them
            chosen = np.where(shown.any(axis=0), C - 1 - shown[::-1].argmax(axis=0), -1)
        else:
            chosen = np.logical_and.accumulate(shown, axis=0).sum(axis=0) - 1
        kept = good if way != "worst" else (true < true[0].max()).all(axis=1)
        out[way] = int((chosen >= 0).sum()), int(((chosen >= 0) & ~kept[chosen]).sum())
    return out


def smallest(world: World, cells: list[list[Pool]], rng: Any) -> float:
    """Return about the smallest common bound that is possible in the population."""
    _, found = training(world, rng, 0.01)
    w, M = found.w, found.evidence.terms.loss_bound or 20.0
    return max(
        sum(p.n * losses(found, w, p, M).mean() for p in own) / sum(p.n for p in own)
        for own in cells
    )


def main() -> None:
    """Print one line for each population and bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--trainings", type=int, default=5)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| population | bound | draws | ours | union | Bernstein | worst |")
    print("|---|---|---|---|---|---|---|")
    for number, world in enumerate(WORLDS):
        rng = np.random.default_rng(number)
        cells = pools_of(world, rng)
        least = smallest(world, cells, rng)
        for tight in world.tight:
            bound, sums = least * tight, {}
            for _ in range(asked.trainings):
                path, found = training(world, rng, bound)
                pairs = tried(path, found, cells, bound, asked.draws, rng)
                for way, pair in pairs.items():
                    before = sums.get(way, (0, 0))
                    sums[way] = before[0] + pair[0], before[1] + pair[1]
            draws = asked.draws * asked.trainings
            shown = [
                f"{100 * made / draws:.1f} %, {100 * broken / draws:.2f} %"
                for made, broken in sums.values()
            ]
            head = f"| {world.name} | {bound:.3f} ({tight:g}) | {draws:,} | "
            print(head + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
