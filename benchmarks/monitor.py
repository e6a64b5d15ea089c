"""The monitor: how often it rings falsely, and how soon it rings when it should.

    .venv/bin/python benchmarks/monitor.py [--runs 4000] [--only false drift]

False alarms: 10,000 rows a cell, a look after every batch, populations whose mean is
exactly at the bound (the worst that is allowed), and bets that were planned with right,
wrong and no knowledge. Delays: rows of a cell until an alarm when its mean rises by 5,
10 or 20 % above its bound, at once or after 10,000 good rows: skewed losses, and
held-out losses of COMPAS and Adult, drawn with replacement, whose labels turn with a
probability that gives just that mean. Prints the tables of benchmarks/monitor.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import pffl
from pffl.bounds import alarm
from pffl.bounds.mean import BETS, Bets
from pffl.typing import FloatArray

DELTA, ROWS = 0.05, 10_000
M, BOUND = 3.0, 0.6
U = BOUND / M
STEP = 10  # rows that are drawn at a time: every batch is some of these
Draw = Callable[[np.random.Generator, tuple[int, int], int], FloatArray]


# Populations: x = loss / M, with a mean of U in every batch, or below; some have no
# largest loss


def coin(rng: np.random.Generator, shape: tuple[int, int], step: int) -> FloatArray:
    return (rng.random(shape) < U).astype(np.float64)


def rare(rng: np.random.Generator, shape: tuple[int, int], step: int) -> FloatArray:
    """One in fifty loses all; the others little."""
    return np.where(rng.random(shape) < 0.02, 1.0, (U - 0.02) / 0.98)


def skewed(rng: np.random.Generator, shape: tuple[int, int], step: int) -> FloatArray:
    return rng.beta(2.0, 2.0 / U - 2.0, shape)


def level(rng: np.random.Generator, shape: tuple[int, int], step: int) -> FloatArray:
    """Nearly the same for everybody."""
    return U + 0.02 * (rng.random(shape) - 0.5)


def silos(rng: np.random.Generator, shape: tuple[int, int], step: int) -> FloatArray:
    """Ten silos in turn, whose means go from 0.1 to 1.9 times the bound."""
    at = U * np.linspace(0.1, 1.9, 10)[np.arange(shape[1]) % 10]
    return (rng.random(shape) < at).astype(np.float64)


def seasons(rng: np.random.Generator, shape: tuple[int, int], step: int) -> FloatArray:
    """Good and bad times, the bad ones just at the bound."""
    at = U * (0.9 + 0.1 * np.cos(2 * np.pi * step / 100))
    return (rng.random(shape) < at).astype(np.float64)


def log_normal(
    rng: np.random.Generator, shape: tuple[int, int], step: int
) -> FloatArray:
    """Without a largest loss: the standard deviation is 2.5 times the mean."""
    return U * rng.lognormal(-1.0, np.sqrt(2.0), shape)


def pareto(rng: np.random.Generator, shape: tuple[int, int], step: int) -> FloatArray:
    """Without a variance: P(loss > a) falls as a^−1.5."""
    return U / 3.0 * (1.0 + rng.pareto(1.5, shape))


def heavy(rng: np.random.Generator, shape: tuple[int, int], step: int) -> FloatArray:
    """Weighted coins, diluted: one row in ten has ten times the weight of the others.

    Its loss is half the weighted mean, that of the others 1.56 times as much.
    """
    big = rng.random(shape) < 0.1
    t, at = np.where(big, 1.0, 0.1), np.where(big, 0.5 * U, U * 0.14 / 0.09)
    return t * (rng.random(shape) < at) + (1.0 - t) * U


def random_weights(
    rng: np.random.Generator, shape: tuple[int, int], step: int
) -> FloatArray:
    """Skewed losses with weights from 0 to s_max, independent of them, diluted."""
    t = rng.beta(0.7, 2.0, shape)
    return t * skewed(rng, shape, step) + (1.0 - t) * U


POPULATIONS: dict[str, Draw] = {
    "coins": coin,
    "rare disasters": rare,
    "skewed": skewed,
    "nearly constant": level,
    "ten silos that differ": silos,
    "seasons, at most at the bound": seasons,
    "log-normal, no largest loss": log_normal,
    "Pareto (1.5), no variance": pareto,
    "weights, heavy rows lose less": heavy,
    "weights, skewed": random_weights,
}
BATCHES = (10, 50, 250, 1000)  # rows
CELLS = (1, 2, 12)


def plans(draw: Draw) -> Mapping[str, Bets]:
    x = M * draw(np.random.default_rng(9), (1000, 1000), 0)
    made = {"right": [x.var()], "wrong": [x.var() / 10], "none": None}
    return {n: alarm.plan([BOUND], variance=known) for n, known in made.items()}


def log_sums(x: FloatArray, gammas: FloatArray) -> FloatArray:
    """S_j of each run, of losses in parts of the bound, shape (runs, bets)."""
    return np.stack([np.log1p(g * (x - 1.0)).sum(axis=1) for g in gammas], axis=1)


@dataclass
class Watch:
    """Runs of one cell side by side, looked at after every batch of `size` rows."""

    bets: Bets
    size: int
    runs: int

    def __post_init__(self) -> None:
        self.wealth = alarm.Wealth.none((self.runs, 1, BETS))
        self.waiting, self.rows = np.zeros((self.runs, BETS)), 0
        self.largest = np.zeros(self.runs)  # log E
        self.crossed: dict[float, FloatArray] = {}

    def see(self, sums: FloatArray, rows: int) -> None:
        self.waiting += sums
        self.rows += rows
        if self.rows < self.size:
            return
        n = [self.rows]
        gained = alarm.gains(self.bets, self.waiting[:, None], n)
        self.wealth = self.wealth.after(gained, n)
        self.now = self.wealth.log_values(self.bets)[:, 0]
        self.largest = np.maximum(self.largest, self.now)
        self.waiting, self.rows = np.zeros_like(self.waiting), 0


def false_alarms(runs: int, names: Sequence[str]) -> Iterator[str]:
    """A line per population: the share of runs that ever rang, by plan and batch."""
    yield "| population | plan | " + " | ".join(f"{b:,}" for b in BATCHES) + " |"
    yield "|---|---|" + "---|" * len(BATCHES)
    worst: dict[int, float] = dict.fromkeys(CELLS, 0.0)
    naive = {}
    for name in names:
        draw = POPULATIONS[name]
        made, rng = plans(draw), np.random.default_rng(1)
        watches = {
            (plan, size): Watch(bets, size, runs)
            for plan, bets in made.items()
            for size in BATCHES
        }
        total, squares, rang = np.zeros(runs), np.zeros(runs), np.zeros(runs, bool)
        for step in range(ROWS // STEP):
            x = draw(rng, (runs, STEP), step)
            for plan, bets in made.items():
                sums = log_sums(x / U, bets.gammas[0])
                for size in BATCHES:
                    watches[plan, size].see(sums, STEP)
            total, squares = total + x.sum(axis=1), squares + np.square(x).sum(axis=1)
            n = STEP * (step + 1)
            if n % 50 == 0:  # a test at 5 % after every 50 rows, as is often done
                mean = total / n
                spread = np.sqrt(np.maximum(squares / n - mean**2, 1e-12) / n)
                rang |= mean - U > 1.645 * spread
        naive[name] = rang.mean()
        for plan in made:
            shares = []
            for size in BATCHES:
                found = watches[plan, size].largest
                shares.append((found >= np.log(1 / DELTA)).mean())
                for cells in CELLS:  # independent ones: one of them rings
                    one = float((found >= np.log(cells / DELTA)).mean())
                    worst[cells] = max(worst[cells], 1 - (1 - one) ** cells)
            yield (
                f"| {name if plan == 'right' else ''} | {plan} | "
                + " | ".join(f"{100 * s:.1f} %" for s in shares)
                + " |"
            )
    yield ""
    yield "| independent cells | largest share in any of these settings |"
    yield "|---|---|"
    for cells, share in worst.items():
        yield f"| {cells} | {100 * share:.1f} % |"
    yield ""
    yield "| population | a test at 5 % after every 50 rows |"
    yield "|---|---|"
    for name, share in naive.items():
        yield f"| {name} | {100 * share:.0f} % |"


# Drifts


@dataclass(frozen=True)
class Cell:
    """Losses of a cell's people with their own labels, and with the other one."""

    name: str
    own: FloatArray
    other: FloatArray
    loss_bound: float
    variance: float

    @property
    def bound(self) -> float:
        """The mean of these people: it is at its bound when the monitor begins."""
        return float(self.own.mean())

    def draw(
        self, rng: np.random.Generator, shape: tuple[int, int], rise: float
    ) -> FloatArray:
        """Losses in parts of the bound, with a mean of 1 + rise.

        A person's label turns with the probability that gives this mean; where it is to
        fall, some lose nothing.
        """
        place = rng.integers(len(self.own), size=shape)
        own, other = self.own[place], self.other[place]
        if rise >= 0:
            part = rise * self.bound / (self.other.mean() - self.bound)
            found = np.where(rng.random(shape) < part, other, own)
        else:
            found = np.where(rng.random(shape) < -rise, 0.0, own)
        return np.asarray(found / self.bound, np.float64)


def skewed_cell() -> Cell:
    x = np.random.default_rng(5).beta(2.0, 8.0, 200_000) * M
    return Cell("skewed", x, M - x, M, float(x.var()))


def trained(name: str, solution: pffl.Solution, rows: pffl.Federation) -> list[Cell]:
    """The cells of a solved problem: held-out people, moments of training rows."""
    own, seen = solution.predictor, solution.evidence.seen
    p = rows.pooled("test")
    chance = own.predict_proba(p.X)
    y = p.y.astype(int)
    right, wrong = (-np.log(chance[np.arange(len(y)), c]) for c in (y, 1 - y))
    out = []
    for z, cell in enumerate(solution.evidence.cells):
        schema = rows.schema
        strata = [(g, v) for g in schema.groups for v in schema.labels]
        mine = np.isin(schema.strata(p.group, p.y), [strata.index(a) for a in cell.of])
        M = float(solution.loss_bound or 0.0)
        known = float(seen.variances[z])
        out.append(Cell(f"{name}: {cell.cell}", right[mine], wrong[mine], M, known))
    return out


def real_cells() -> list[Cell]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compas = pffl.datasets.compas(silos=10, seed=0)
        adult = pffl.datasets.adult(silos=10, seed=0)
        solved = (
            ("COMPAS", pffl.BoundedGroupLoss(0.62), compas),
            ("COMPAS", pffl.ConditionalBoundedGroupLoss(0.7), compas),
            ("Adult", pffl.BoundedGroupLoss(0.36), adult),
            ("Adult", pffl.ConditionalBoundedGroupLoss(0.6), adult),
        )
        return [
            cell
            for name, bound, rows in solved
            for cell in trained(name, pffl.solve(rows, bound, seed=0), rows)
        ]


def delays(
    cell: Cell, rise: float, good: int, *, runs: int, cells: int = 2, size: int = 50
) -> tuple[FloatArray, float]:
    """Rows until an alarm (infinite: none within 20,000), and alarms before a drift."""
    rng = np.random.default_rng(2)
    bets = alarm.plan([cell.bound], variance=[cell.variance])
    watch = Watch(bets, size, runs)
    limit = np.log(alarm.threshold(cells, 1 - DELTA))
    for _ in range(good // size):
        watch.see(log_sums(cell.draw(rng, (runs, size), -0.05), bets.gammas[0]), size)
    early = float((watch.largest >= limit).mean())
    found = np.full(runs, np.inf)
    for step in range(20_000 // size):
        watch.see(log_sums(cell.draw(rng, (runs, size), rise), bets.gammas[0]), size)
        rings = (watch.now >= limit) & np.isinf(found)
        found[rings] = size * (step + 1)
        if np.isfinite(found).all():
            break
    return found, early


def drifts(runs: int) -> Iterator[str]:
    yield (
        "| cell | M | bound | sd | 5 % | 10 % | 20 % | after 10,000 good rows: 5 % | "
        "10 % | 20 % |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    early = 0.0
    for cell in [skewed_cell(), *real_cells()]:
        told = []
        for good in (0, ROWS):
            for rise in (0.05, 0.1, 0.2):
                found, before = delays(cell, rise, good, runs=runs)
                early = max(early, before)
                told.append(in_words(found))
        figures = (cell.loss_bound, cell.bound, float(cell.own.std()))
        yield (
            f"| {cell.name} | {figures[0]:g} | {figures[1]:.3f} | {figures[2]:.2f} | "
            + " | ".join(told)
            + " |"
        )
    yield ""
    yield f"Alarms in the good time before: {100 * early:.2f} % at most in any setting."


def in_words(found: FloatArray) -> str:
    """Median and the row by which nine of ten have rung."""

    def shown(share: float) -> str:
        at = float(np.sort(found)[int(np.ceil(share * len(found))) - 1])
        return "> 20,000" if np.isinf(at) else f"{at:,.0f}"

    return f"{shown(0.5)} ({shown(0.9)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--only", nargs="*", default=("false", "drift"))
    parser.add_argument("--populations", nargs="*", default=tuple(POPULATIONS))
    given = parser.parse_args()
    parts = {
        "false": lambda: false_alarms(given.runs, given.populations),
        "drift": lambda: drifts(max(20, given.runs // 20)),
    }
    for part in given.only:
        begun = time.process_time()
        for line in parts[part]():
            print(line, flush=True)
        print(f"\n{part}: {time.process_time() - begun:.0f} s of processor time\n")


if __name__ == "__main__":
    main()
