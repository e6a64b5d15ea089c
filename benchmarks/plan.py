"""Forecasts of `pffl plan` against what comes.

    .venv/bin/python benchmarks/plan.py simulated | compas-bgl | compas-cbgl | …

Rows are put into another order again and again. Each time a plan is made, and then a
run with `--promise unseen`, for some shares of calibration rows. *rise*: what all
bounds have to rise by to be shown (of the run: the safest model's upper ends less their
bounds). *rows*: the plan says how many times the rows make the promise in 4 of 5 cases;
runs on so many drawn rows, and on some more and fewer, say how many it really takes.
Prints the tables of benchmarks/plan.md.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import expit

import pffl
from pffl.data.silo import Rows
from pffl.evidence.judged import Judged, upper_ends
from pffl.evidence.record import ModelPath
from pffl.prepare import Options

QUICK = Options(baseline=False, least=False)
SHARES = (0.2, 0.4, 0.6)
PLANS = 5
FACTORS = (0.4, 0.55, 0.75, 1.0, 1.35, 1.8, 2.5)
ONE, BOTH = pffl.BoundedGroupLoss, pffl.ConditionalBoundedGroupLoss
Load = Callable[[int], pffl.Federation]


def simulated(seed: int, rows: int = 4000) -> pffl.Federation:
    """Four groups of 50, 30, 15 and 5 %, whose labels follow different inputs."""
    rng = np.random.default_rng(10_000 + seed)
    group = rng.choice(4, size=rows, p=[0.5, 0.3, 0.15, 0.05])
    X = rng.normal(size=(rows, 12))
    score = 1.6 * X[np.arange(rows), group] + 0.4 * X[:, 5] - 0.3 * (group == 2)
    y = (rng.random(rows) < expit(score)).astype(int)
    return pffl.Federation.from_arrays(
        X,
        y,
        sensitive_features=np.array(list("abcd"))[group],
        silo=rng.integers(3, size=rows),
        test_fraction=0.0,
    )


DATA: dict[str, tuple[Load, Callable[[float], object], tuple[float, ...]]] = {
    "compas-bgl": (
        lambda s: pffl.datasets.compas(test_fraction=0.0, seed=s), ONE, (0.65, 0.68)
    ),
    "compas-cbgl": (
        lambda s: pffl.datasets.compas(test_fraction=0.0, seed=s), BOTH, (0.74, 0.8)
    ),
    "adult-cbgl": (
        lambda s: pffl.datasets.adult(test_fraction=0.0, seed=s), BOTH, (0.5, 0.55)
    ),
    "simulated": (simulated, ONE, (0.72, 0.76)),
}  # fmt: skip


def drawn(federation: pffl.Federation, many: float, seed: int) -> pffl.Federation:
    """Return so many of its rows, drawn at random."""
    pooled = federation.pooled()
    index = np.random.default_rng(seed).permutation(len(pooled.y))[: int(many)]
    return pffl.Federation.from_rows(
        federation.schema,
        Rows(pooled.X[index], pooled.y[index], pooled.group[index]),
        pooled.silo[index],
        federation.silo_names,
        test_fraction=0.0,
        drop_empty=True,
    )


def came(federation: pffl.Federation, constraint: object) -> tuple[bool, float]:
    """Whether the promise was made, and what bounds would have had to rise by."""
    found = pffl.solve(
        federation, constraint, options=QUICK, promise=pffl.Promise(models=2), seed=0
    )
    path, e = found.evidence.path, found.evidence
    if not isinstance(path, ModelPath):
        return False, np.nan
    first = path.candidates[0]
    ends = upper_ends(first.calibration, first.loss_bound, 0.05, weighs=False)
    return Judged(e).by_path, float((ends - e.bounds).max())


def at_shares(load: Load, constraint: object, resplits: int) -> None:
    """Print what was forecast and what came, share by share."""
    told = np.zeros((resplits, len(SHARES), 2))
    real = np.zeros_like(told)
    for r in range(resplits):
        federation = load(r)
        splits = {s.calibration: s for s in pffl.plan(federation, constraint).splits}
        for k, share in enumerate(SHARES):
            told[r, k] = splits[share].chance, splits[share].rise
            real[r, k] = came(federation.with_calibration(share), constraint)
    for k, share in enumerate(SHARES):
        f, a = told[:, k], real[:, k]
        apart = np.abs(f[:, 1] - a[:, 1])
        print(
            f"| {share:.0%} | {100 * f[:, 0].mean():.0f} % "
            f"| {100 * a[:, 0].mean():.0f} % "
            f"| {np.median(f[:, 1]):+.4f} | {np.median(a[:, 1]):+.4f} "
            f"| {np.median(apart):.4f} |",
            flush=True,
        )
    best = SHARES[int(np.median(told[..., 1], axis=0).argmin())]
    really = SHARES[int(np.median(real[..., 1], axis=0).argmin())]
    print(f"\nshare with the smallest rise: forecast {best:.0%}, came {really:.0%}")


def rows(
    load: Load, bounded: Callable[[float], object], bounds: Sequence[float], draws: int
) -> None:
    """Print the rows that were forecast to be needed, and those that were.

    Plans of several orders: the middle one, the smallest and the largest.
    """
    for bound in bounds:
        constraint = bounded(bound)
        plans = [(load(s), pffl.plan(load(s), constraint)) for s in range(PLANS)]
        told = sorted(
            (one.times or np.inf) * federation.rows("train")
            for federation, plan in plans
            for one in plan.confidences
            if one.confidence == plan.confidence
        )
        middle, federation = told[PLANS // 2], plans[0][0]
        shares = [plan.best.calibration or 0.5 for _, plan in plans]
        share, N = float(np.median(shares)), federation.rows("train")
        made = []
        for factor in FACTORS if np.isfinite(middle) else ():
            many = factor * middle
            if many > N and load is not simulated:
                break
            pool = [
                simulated(500 + d, int(many))
                if load is simulated
                else drawn(federation, many, d)
                for d in range(draws)
            ]
            cut = [one.with_calibration(share, seed=1) for one in pool]
            made.append(float(np.mean([came(one, constraint)[0] for one in cut])))
        tried = FACTORS[: len(made)]
        pairs = list(zip(tried, made, strict=True))
        print(
            f"| {bound:g} | {N:,} | {share:.0%} "
            f"| {middle:,.0f} ({told[0]:,.0f} to {told[-1]:,.0f}) | "
            + ", ".join(f"{f * middle:,.0f}: {100 * m:.0f} %" for f, m in pairs)
            + f" | {reached(tried, made)} |",
            flush=True,
        )


def reached(factors: Sequence[float], made: Sequence[float]) -> str:
    """Return the factor at which 4 of 5 promises are made, between two tried."""
    rising = np.maximum.accumulate(made)
    if not len(made) or rising[-1] < 0.8:
        return f"> {factors[-1]:g}" if len(made) else "–"
    if rising[0] >= 0.8:
        return f"< {factors[0]:g}"
    return f"{np.exp(np.interp(0.8, rising, np.log(factors))):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--resplits", type=int, default=20)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--bounds", type=float, nargs="*")
    parser.add_argument("--only", choices=("shares", "rows"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    load, bounded, bounds = DATA[given.data]
    for bound in (given.bounds or bounds) if given.only != "rows" else ():
        print(f"\n{given.data}, bound {bound:g}, {given.resplits} orders\n")
        print("| calibration | promised: forecast | came", end=" | ")
        print("rise: forecast | came | apart |")
        print("|---" * 6 + "|")
        at_shares(load, bounded(bound), given.resplits)
    if given.only == "shares":
        return
    print(
        "\n| bound | rows | calibration | rows forecast | promised of so many rows ",
        end="",
    )
    print("| 4 of 5 at, times the forecast |")
    print("|---" * 6 + "|")
    rows(load, bounded, given.bounds or bounds, given.draws)


if __name__ == "__main__":
    main()
