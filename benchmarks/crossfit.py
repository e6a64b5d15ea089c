"""A bound for people not seen: one split, or progressive cross-fitting?

    .venv/bin/python benchmarks/crossfit.py least compas --resplits 50
    .venv/bin/python benchmarks/crossfit.py procedure compas --resplits 20
    .venv/bin/python benchmarks/crossfit.py asked compas --resplits 50 --bounds .64 .66

The rows of each silo × cell are put into random order. A fifth is left out, for figures
at the end. Of the others a first part trains a model; the rest is cut into k blocks.
Block b is scored by a model that was trained on all rows before it:

    k = 1          a split into training and calibration rows
    k = 5, 10      progressive cross-fitting: the mean of k bounded probabilities ships

On the first part, before a row is scored, are fixed: standard errors se_z = sd_z/√n_z,
M, the bets γ_j, and the weights a_i ∝ n_zs/(k·n_zsb) of the rows of silo s, cell z and
block b, the largest 1. Every model is the safest: least max_z (μ_z + 2.65·se_z). With
S_j = Σ log(1 − γ_j a_i x_i), x = ℓ/M, each cell's mean loss is below U_z with 95 %, by
the log-sum bound, solved for mean(a)·μ̄.

    least        max_z U_z: the least bound that can be promised to all cells
    procedure    the least ζ at which a run that is asked for ζ promises it
    asked        a bound is given: how often it is promised, and what is then shipped

Results: benchmarks/crossfit.md; coverage, where the population is known:
benchmarks/crossfit_coverage.py.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.optimize import brentq

import pffl
from pffl._solve import prepared
from pffl.bounds import mean as mean_bounds
from pffl.data.rows import Rows
from pffl.driver import drive
from pffl.engines import Local
from pffl.evidence.figures import harmless
from pffl.flow import Start, rounds
from pffl.models.base import LOSS_BOUNDS
from pffl.prepare import Options
from pffl.problem import Point

ACS = Path(__file__).parents[2] / "shared/data/acs_employment_2024_48st_dc.parquet"
DELTA = 0.05
LEFT_OUT = 0.2  # of all rows, for figures of what is shipped
MARGIN = 2.65  # √(2 log(1/0.6δ)): about U_z − mean, in standard errors
PRICE = 100.0  # B: at it the worst cell decides, and the risk only between equals
CHUNK = 100_000


# ---------------------------------------------------------------- rows and models


@dataclass(frozen=True)
class Data:
    """All rows, the constraint, and the cell of each row: cells do not overlap here."""

    federation: pffl.Federation
    constraint: pffl.BoundedGroupLoss | pffl.ConditionalBoundedGroupLoss
    rows: Rows
    silo: np.ndarray
    cell: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def of(cls, federation: pffl.Federation, constraint: object) -> Data:
        """Pool the rows, and find their cells."""
        pooled, schema = federation.pooled(), federation.schema
        rows = Rows(pooled.X, pooled.y, pooled.group)
        cells = constraint.cells(schema, federation.silo_names)
        stratum = rows.group * schema.n_labels + rows.y.astype(int)
        cell = cells.membership.argmax(axis=0)[stratum]
        return cls(federation, constraint, rows, pooled.silo, cell, cells.names)

    def counts(self, chosen: np.ndarray) -> np.ndarray:
        """Rows of each cell."""
        return np.bincount(self.cell[chosen], minlength=len(self.names))

    def order(self, seed: int) -> np.ndarray:
        """Put each silo's rows of a cell into random order: places in [0, 1).

        Any interval of places has its share of every silo × cell, up to a row.
        """
        rng = np.random.default_rng(seed)
        stratum = self.silo * len(self.names) + self.cell
        sizes = np.bincount(stratum)
        order = np.lexsort((rng.random(len(stratum)), stratum))
        rank = np.empty(len(stratum))
        rank[order] = (
            np.arange(len(stratum)) - (np.cumsum(sizes) - sizes)[stratum[order]]
        )
        return (rank + rng.random(len(sizes))[stratum]) / sizes[stratum]


def thinned(data: Data, most: int = 30_000, seed: int = 0) -> Data:
    """Keep about so many rows of each cell that has more, drawn at random."""
    share = np.minimum(most / np.maximum(data.counts(...), 1), 1.0)
    drawn = np.random.default_rng(seed).random(len(data.cell)) < share[data.cell]
    index = np.flatnonzero(drawn)
    rows, silo = data.rows.take(index), data.silo[index]
    return replace(data, rows=rows, silo=silo, cell=data.cell[index])


DATA: dict[str, Callable[[], Data]] = {
    "compas": lambda: Data.of(
        pffl.datasets.compas(test_fraction=0.0), pffl.BoundedGroupLoss(0.0)
    ),
    "compas-label": lambda: Data.of(
        pffl.datasets.compas(test_fraction=0.0), pffl.ConditionalBoundedGroupLoss(0.0)
    ),
    "adult": lambda: Data.of(
        pffl.datasets.adult(test_fraction=0.0), pffl.ConditionalBoundedGroupLoss(0.0)
    ),
    "acs": lambda: acs(),
    "acs-thinned": lambda: thinned(acs()),
}


def acs() -> Data:
    """The whole file, by race."""
    found = pffl.datasets.acs(
        year=2024, filter="filtered", source=ACS, test_fraction=0.0, dtype="float32"
    )
    return Data.of(found, pffl.BoundedGroupLoss(0.0))


class Fitted(NamedTuple):
    """A linear model in the rows' own units, and the pair to start the next from."""

    slope: np.ndarray
    intercept: float
    point: Point

    def scores(self, rows: Rows) -> np.ndarray:
        """Log-odds of the row's own label."""
        parts = [rows.X[i : i + CHUNK] for i in range(0, len(rows), CHUNK)]
        found = [part @ self.slope + self.intercept for part in parts]
        return (2 * rows.y - 1) * np.concatenate([np.zeros(0), *found])


def train(
    data: Data,
    chosen: np.ndarray,
    bounds: np.ndarray,
    start: Fitted | None = None,
    price: float = PRICE,
) -> Fitted:
    """Minimise F + B·max_z (μ_z − ζ_z)⁺ over some rows; inputs are scaled by them."""
    known, index = data.federation, np.flatnonzero(chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = pffl.Federation.from_rows(
            known.schema,
            data.rows.take(index),
            data.silo[index],
            known.silo_names,
            test_fraction=0.0,
            drop_empty=True,
        )
        near = None if start is None else Start(start.point)
        method = pffl.Exact(multiplier_bound=price)
        engine = Local(here)
        problem, _ = prepared(engine, data.constraint, None, method, Options(), seed=0)
        run = drive(engine, rounds(problem.with_bounds(bounds), method, start=near))
    inputs, w = problem.task.model.inputs, run.point.w
    slope = w[:-1] / inputs.scale
    return Fitted(slope, float(w[-1] - inputs.mean @ slope), run.point)


def losses(scores: np.ndarray, M: float = np.inf) -> np.ndarray:
    """Return −log of the label's probability, kept in [e⁻ᴹ, 1 − e⁻ᴹ]."""
    if np.isinf(M):
        return np.logaddexp(0, -scores)
    return -np.log(probabilities(scores, M))


def probabilities(scores: np.ndarray, M: float) -> np.ndarray:
    """Return bounded probabilities of the label that is."""
    least = np.exp(-M)
    return np.clip(np.exp(-np.logaddexp(0, -scores)), least, 1 - least)


# ---------------------------------------------------------------- the promise


class Cut(NamedTuple):
    """Who trains, who is scored in which block, who is left out."""

    begin: np.ndarray
    scored: np.ndarray
    aside: np.ndarray
    seen: tuple[np.ndarray, ...]  # by the model of each block
    block: np.ndarray
    weight: np.ndarray  # a
    counts: np.ndarray  # scored rows of each cell
    level: np.ndarray  # mean(a) of each cell

    @classmethod
    def of(cls, data: Data, place: np.ndarray, first: float, blocks: int) -> Cut:
        """Cut at places."""
        aside, place = place >= 1 - LEFT_OUT, place / (1 - LEFT_OUT)
        begin, scored = place < first, (place >= first) & ~aside
        block = np.floor((place - first) / (1 - first) * blocks).astype(int)
        seen = [begin | (scored & (block < b)) for b in range(blocks)]
        a, n = np.ones(len(place)), data.counts(scored)
        a[scored] = row_weights(
            data.silo[scored], data.cell[scored], block[scored], blocks
        )
        level = np.bincount(data.cell[scored], a[scored], minlength=len(n)) / n
        return cls(begin, scored, aside, tuple(seen), block, a, n, level)


def row_weights(
    silo: np.ndarray, cell: np.ndarray, block: np.ndarray, blocks: int
) -> np.ndarray:
    """Return a_i ∝ n_zs/(k·n_zsb), the largest of each cell 1.

    Silos that lack rows of a cell in some block count together, as one; if these lack
    some as well, all silos do.
    """
    a = np.empty(len(cell))
    for z in np.unique(cell):
        here = cell == z
        table = np.zeros((int(silo.max()) + 1, blocks))
        np.add.at(table, (silo[here], block[here]), 1)
        part = np.where((table > 0).all(axis=1), np.arange(len(table)) + 1, 0)
        merged = np.zeros((len(table) + 1, blocks))
        np.add.at(merged, part, table)
        if merged[0].any() and not merged[0].all():
            part, merged = np.zeros(len(table), int), table.sum(axis=0, keepdims=True)
        if not merged.sum(axis=0).all():
            raise ValueError(f"cell {z}: fewer rows than blocks")
        stratum = part[silo[here]]
        own = merged.sum(axis=1)[stratum] / merged[stratum, block[here]]
        a[here] = own / own.max()
    return a


class Scored(NamedTuple):
    """What the scored rows say of one candidate, and what it is on rows left out."""

    upper: np.ndarray  # U_z, log-sum at δ
    product: np.ndarray  # as `pffl` splits δ: log-sum at .8 δ, Chernoff at .2 δ
    trained: np.ndarray  # the first model's mean loss on its own rows
    means: np.ndarray  # of the cells, on rows left out
    risk: float  # mean loss there
    error: float
    loss_bound: float
    first: Fitted


def moments(values: np.ndarray, cell: np.ndarray, Z: int) -> tuple[np.ndarray, ...]:
    """Mean and variance of each cell."""
    n = np.bincount(cell, minlength=Z)
    mean = np.bincount(cell, values, minlength=Z) / n
    return mean, np.bincount(cell, np.square(values - mean[cell]), minlength=Z) / n


def standard_errors(data: Data, cut: Cut) -> tuple[np.ndarray, Fitted]:
    """Return se_z = sd_z/√n_z by the first part's minimax model, and that model."""
    Z, own = len(data.names), np.flatnonzero(cut.begin)
    fitted = train(data, cut.begin, np.zeros(Z))
    found = losses(fitted.scores(data.rows.take(own)))
    return np.sqrt(moments(found, data.cell[own], Z)[1] / cut.counts), fitted


def chosen_bound(scores: np.ndarray, cell: np.ndarray, Z: int) -> float:
    """Return M, as `pffl` chooses it on training rows."""
    own = moments(losses(scores), cell, Z)[0]
    none = np.zeros(Z)
    for M in LOSS_BOUNDS:
        kept = moments(losses(scores, M), cell, Z)[0]
        if harmless(own, kept, none, none, 1.0):
            return M
    return LOSS_BOUNDS[-1]


def score(
    data: Data, cut: Cut, bounds: np.ndarray, start: Fitted, price: float = PRICE
) -> Scored:
    """Train under bounds, score block after block, and bound what was scored."""
    Z, own = len(data.names), np.flatnonzero(cut.begin)
    first = fitted = train(data, cut.begin, bounds, start, price)
    scores = fitted.scores(data.rows.take(own))
    M = chosen_bound(scores, data.cell[own], Z)
    mean, variance = moments(losses(scores, M), data.cell[own], Z)
    level, n = cut.level, cut.counts
    pairs = zip(level * mean, level**2 * variance, strict=True)
    known = [mean_bounds.Moments.alike(*pair, M) for pair in pairs]
    bound = {"loss_bound": M, "delta": DELTA}
    bets, _ = mean_bounds.plan(n, known=known, **bound)
    sums, totals = np.zeros(bets.gammas.shape), np.zeros(Z)
    left = data.rows.take(np.flatnonzero(cut.aside))
    told = np.zeros(len(left))
    for b, seen in enumerate(cut.seen):
        if b:
            fitted = train(data, seen, bounds, fitted, price)
        index = np.flatnonzero(cut.scored & (cut.block == b))
        found, cell = losses(fitted.scores(data.rows.take(index)), M), data.cell[index]
        x = cut.weight[index] * found / M
        totals += np.bincount(cell, found, minlength=Z)
        for j, gamma in enumerate(bets.gammas.T):
            sums[:, j] += np.bincount(cell, np.log1p(-gamma[cell] * x), minlength=Z)
        told += probabilities(fitted.scores(left), M) / len(cut.seen)
    upper = np.minimum(mean_bounds.upper(bets, sums, n, **bound) / level, M)
    product = np.full(Z, np.nan)
    if len(cut.seen) == 1:
        product = mean_bounds.upper_bounds(bets, sums, n, totals, **bound)
    paid = -np.log(told)
    means, error = moments(paid, data.cell[cut.aside], Z)[0], float(np.mean(told < 0.5))
    risk = float(paid.mean())
    return Scored(upper, product, mean, means, risk, error, M, first)


# ---------------------------------------------------------------- on real rows


class Way(NamedTuple):
    """How the rows that are not left out are cut: the first part, and k blocks."""

    first: float
    blocks: int

    def __str__(self) -> str:
        if self.blocks == 1:
            return f"split, {1 - self.first:.0%} for calibration"
        return f"{self.blocks} blocks after {self.first:.0%}"


SPLITS = tuple(Way(first, 1) for first in (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2))
USUAL = SPLITS[:4]  # at least half of the rows for training
CROSSED = tuple(Way(first, k) for k in (5, 10) for first in (0.2, 0.3, 0.4, 0.5))


def least(
    data: Data, place: np.ndarray, way: Way, margin: float | None, price: float
) -> tuple[float, ...]:
    """Return the least bound of all cells, and figures of what is shipped.

    With a margin s: max_z U_z of the model of least max_z (μ_z + s·se_z). Without: the
    least ζ at which a run that is asked for ζ promises it. Its first candidate, or only
    one, has the largest s with μ_z + s·se_z ≤ ζ on the rows of the first part: it is
    that same model, for the s at which the least max_z (μ_z + s·se_z) is ζ. This grows
    with s: so the search over ζ is one over s, until max_z U_z is no more than ζ.
    """
    cut = Cut.of(data, place, *way)
    errors, start = standard_errors(data, cut)
    tried: dict[float, Scored] = {}

    def beyond(s: float) -> float:
        tried[s] = score(data, cut, -s * errors, start, price)
        return float(tried[s].upper.max() - (tried[s].trained + s * errors).max())

    if margin is None:
        margin = 0.0 if beyond(0.0) <= 0 else brentq(beyond, 0.0, 40.0, xtol=0.02)
    beyond(margin)
    found = tried[margin]
    z = int(found.upper.argmax())
    return (
        float(found.upper[z]), float(found.product.max()), float(found.means.max()),
        found.risk, found.error, found.loss_bound, float(cut.counts[z]), margin,
    )  # fmt: skip


def interval(values: np.ndarray) -> str:
    """Mean and 95 % interval (Student) over resplits."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return f"{values.mean():+.4f} ± {half:.4f}"


def show_least(data: Data, args: argparse.Namespace) -> None:
    """Print the least bound of every way to cut, and differences to the best split."""
    ways = [*SPLITS, *(way for way in CROSSED if way.blocks in args.blocks)]
    if args.few:
        ways = [way for way in ways if way.first in args.few]
    found = np.empty((args.resplits, len(ways), 8))
    for r in range(args.resplits):
        place = data.order(args.seed + r)
        for i, way in enumerate(ways):
            found[r, i] = least(data, place, way, args.margin, args.price)
        progress(f"resplit {r + 1}: {found[r, :, 0].round(4)}")
    bounds, splits = found[..., 0], [i for i, w in enumerate(ways) if w.blocks == 1]
    usual = [i for i in splits if ways[i] in USUAL]
    one, best = (min(s, key=lambda i: bounds[:, i].mean()) for s in (usual, splits))
    print(f"\n{args.resplits} resplits, B = {args.price:g}\n")
    print(
        "| rows | least bound | − best of up to 50 % | smaller in | − best of all "
        "| smaller in | left out: worst cell | mean loss | error | M | its rows "
        "| s |"
    )
    print("|---" * 12 + "|")
    for i, way in enumerate(ways):
        compared = []
        for other in (one, best):
            apart = bounds[:, i] - bounds[:, other]
            told = (interval(apart), f"{np.mean(apart < 0):.0%}")
            compared += ("–", "–") if i == other else told
        m = found[:, i].mean(axis=0)
        figures = (f"{m[0]:.4f}", *compared, *(f"{v:.4f}" for v in m[2:5]))
        told = (str(way), *figures, f"{m[5]:.1f}", f"{m[6]:.0f}", f"{m[7]:.2f}")
        print(f"| {' | '.join(told)} |")
    more = (found[..., 1] - bounds)[:, splits].mean(axis=0)
    print(f"\nChernoff at δ/5 beside it adds {more.min():.4f} to {more.max():.4f}")


PATH = np.arange(6.0, -0.1, -0.5)  # margins s of the split's candidates
POWER = 4.0  # margin of the one candidate of cross-fitting: U has room for 1.35 se_z
HIGH = 1e4  # B at which a bound is met wherever that is possible


def asked(
    data: Data, place: np.ndarray, way: Way, bound: float
) -> tuple[float, float, float, float]:
    """Ask for a bound: whether it is promised, and figures of what is shipped.

    Candidates have least risk with μ_z ≤ ζ − s·se_z. A split tests all of them that are
    possible on training rows, safest first, until one fails; cross-fitting has one.
    """
    cut = Cut.of(data, place, *way)
    errors, fitted = standard_errors(data, cut)
    own, Z, one = np.flatnonzero(cut.begin), len(data.names), way.blocks > 1
    last: Scored | None = None
    for s in PATH[(POWER if one else PATH[0]) >= PATH]:
        target = bound - s * errors
        if last is None and s > 0:  # is it possible?
            fitted = train(data, cut.begin, target, fitted, HIGH)
            found = losses(fitted.scores(data.rows.take(own)))
            if (moments(found, data.cell[own], Z)[0] > target + 1e-4).any():
                continue
        tried = score(data, cut, target, fitted, HIGH)
        if (tried.upper > bound).any():
            break
        last, fitted = tried, tried.first
        if one:
            break
    if last is None:
        return 0.0, np.nan, np.nan, np.nan
    return 1.0, last.risk, last.error, float(last.means.max())


def show_asked(data: Data, args: argparse.Namespace) -> None:
    """Print how often given bounds are promised, and the risk of what is shipped."""
    ways = (*SPLITS[1::2], Way(0.2, 5), Way(0.3, 5), Way(0.5, 5), Way(0.3, 10))
    print(f"\n{args.resplits} resplits\n\n| bound | rows | promised ", end="")
    print("| mean loss | − the split's | error | worst cell |")
    print("|---" * 7 + "|")
    for bound in args.bounds:
        found = np.array(
            [
                [asked(data, data.order(args.seed + r), way, bound) for way in ways]
                for r in range(args.resplits)
            ]
        )
        base = int(found[:, :3, 0].mean(axis=0).argmax())  # promises most
        for i, way in enumerate(ways):
            both = (found[:, i, 0] > 0) & (found[:, base, 0] > 0)
            share, text = found[:, i, 0].mean(), "– | – | – | –"
            if both.sum() > 2:
                risk, error, worst = found[both, i, 1:].mean(axis=0)
                apart = interval(found[both, i, 1] - found[both, base, 1])
                text = f"{risk:.4f} | {apart} | {error:.4f} | {worst:.4f}"
            print(f"| {bound:g} | {way} | {share:.0%} | {text} |", flush=True)


def progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    shown = {"least": show_least, "procedure": show_least, "asked": show_asked}
    parser.add_argument("what", choices=shown)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--resplits", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--margin", type=float, default=MARGIN, help="s of `least`")
    parser.add_argument("--price", type=float, default=PRICE)
    parser.add_argument("--blocks", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--few", type=float, nargs="+", help="first parts to try, only")
    parser.add_argument("--bounds", type=float, nargs="+", default=[])
    args = parser.parse_args()
    args.margin = args.margin if args.what == "least" else None
    data = DATA[args.data]()
    counts = zip(data.names, data.counts(...), strict=True)
    rows = ", ".join(f"{name} {count:,}" for name, count in counts)
    print(f"{data.federation.name}, {len(data.federation)} silos: {rows}")
    shown[args.what](data, args)


if __name__ == "__main__":
    main()
