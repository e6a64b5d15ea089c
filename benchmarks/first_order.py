"""Rounds of `FirstOrder`, and how its results compare with `Exact`'s.

    .venv/bin/python benchmarks/first_order.py [compas law adult weighted wide
        cells sparse]
    .venv/bin/python benchmarks/first_order.py acs --acs FILE.parquet

Prints the tables of first_order.md. A problem is open if its gap, with what rounding
can hide, is not below the target of 1e-6 in parts of β + Σλ and of the losses' unit.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import pffl
from pffl._solve import prepared
from pffl.data import Attribute, Federation, Rows, Schema, Silo
from pffl.engines import Local
from pffl.methods.saddle_bounds import GapMethod, SaddleState
from pffl.prepare import Options
from pffl.problem import Problem

KINDS: tuple[type[GapMethod], ...] = (pffl.FirstOrder, pffl.Exact)
RIDGES = (1e-2, 1e-3, 1e-4, 1e-6, 0.0)
NOTIONS = (pffl.BoundedGroupLoss, pffl.ConditionalBoundedGroupLoss)


def law(n: int = 20_000) -> Federation:
    """Draw people like those of the law school data, with inputs as they come.

    Inputs are correlated, groups skewed (84 % are in one), 95 % pass.
    """
    rng = np.random.default_rng(0)
    group = rng.choice(5, size=n, p=[0.84, 0.06, 0.05, 0.04, 0.01])
    base = rng.normal(size=n) - np.array([0, 1.2, 0.8, 0.3, 0.6])[group]
    lsat = 36 + 5 * (0.8 * base + 0.6 * rng.normal(size=n))
    ugpa = 3.2 + 0.4 * (0.5 * base + 0.85 * rng.normal(size=n))
    zfya = 0.9 * base + 0.4 * rng.normal(size=n)
    zgpa = 0.95 * zfya + 0.2 * rng.normal(size=n)
    tier, full = rng.integers(1, 6, size=n), rng.integers(2, size=n)
    X = np.column_stack([lsat, ugpa, zfya, zgpa, full, tier, lsat * ugpa, lsat**2])
    y = (2.9 + 1.3 * base + rng.logistic(size=n) > 0).astype(float)
    return federation(X, y, group, rng)


def weighted(n: int = 2_000) -> Federation:
    """Draw people of six inputs and three groups whose rows have uneven weights."""
    rng = np.random.default_rng(0)
    group, X = rng.integers(3, size=n), rng.normal(size=(n, 6))
    score = X @ rng.normal(size=6) + 0.8 * X[:, 0] * (group == 1) - 0.5 * group
    y = (score + rng.logistic(size=n) > 0).astype(int)
    return Federation.from_arrays(
        X,
        y,
        sensitive_features=group,
        silo=np.arange(n) % 5,
        sample_weight=rng.lognormal(sigma=1.5, size=n),
        test_fraction=0.0,
    )


def gaussian(n: int, p: int, groups: int) -> Federation:
    """Draw Gaussian inputs and labels with another w per group, half in the first."""
    rng = np.random.default_rng(0)
    shares = np.append(0.5, np.full(groups - 1, 0.5 / (groups - 1)))
    group, X = rng.choice(groups, size=n, p=shares), rng.normal(size=(n, p))
    w = 1.5 * rng.normal(size=(1, p)) + 0.7 * rng.normal(size=(groups, p))
    score = (X * w[group]).sum(axis=1) / np.sqrt(p)
    return federation(X, (score + rng.logistic(size=n) > 0).astype(float), group, rng)


def one_hot(n: int = 60_000, columns: int = 20, width: int = 1_000) -> tuple[Any, ...]:
    """Draw one-hot inputs of skewed categories, labels, 5 groups and 10 silos."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, width + 1)
    codes = rng.choice(width, size=(n, columns), p=shares / shares.sum())
    codes += width * np.arange(columns)
    ends, p = np.arange(0, n * columns + 1, columns), columns * width
    X = csr_array((np.ones(n * columns), codes.ravel(), ends), shape=(n, p))
    group = rng.choice(5, size=n, p=[0.5, 0.125, 0.125, 0.125, 0.125])
    w = 0.4 * rng.normal(size=(1, p)) + 0.2 * rng.normal(size=(5, p))
    score = w[group[:, None], codes].sum(axis=1)
    y = (score + rng.logistic(size=n) > 0).astype(float)
    return X, y, group, rng.integers(10, size=n)


def federation(
    X: np.ndarray, y: np.ndarray, group: np.ndarray, rng: np.random.Generator
) -> Federation:
    """Share rows out over ten silos."""
    names = tuple(f"g{a}" for a in range(group.max() + 1))
    features = tuple(f"x{j}" for j in range(X.shape[1]))
    schema = Schema(features, (Attribute("group", names),), ("no", "yes"))
    silo, rows = rng.integers(10, size=len(y)), Rows.of(X, y, group)
    parts = (rows.take(np.flatnonzero(silo == k)) for k in range(10))
    silos = (Silo(f"silo {k}", k, {"train": part}) for k, part in enumerate(parts))
    return Federation(schema, tuple(silos))


def fewer(data: Federation, n: int) -> Federation:
    """Draw n training rows, of each silo its share."""
    rng, sizes = np.random.default_rng(0), [len(s.rows("train")) for s in data.silos]
    silos = []
    for silo, size in zip(data.silos, sizes, strict=True):
        drawn = rng.permutation(size)[: round(n * size / sum(sizes))]
        part = silo.rows("train").take(np.sort(drawn))
        silos.append(Silo(silo.name, silo.index, {"train": part}))
    return Federation(data.schema, tuple(silos))


def compas() -> Iterator[tuple[Any, ...]]:
    """176 problems: two notions, 8 prices, 11 bounds."""
    engine = Local(pffl.datasets.compas())
    for notion in NOTIONS:
        for price in (0.1, 0.5, 1, 5, 10, 50, 100, 500):
            for bound in np.linspace(0, 0.7, 11):
                yield engine, notion(float(bound)), None, float(price), 1.0


def grid(
    data: Federation,
    bounds: tuple[float, ...],
    prices: tuple[float, ...],
    notions: tuple[Any, ...] = NOTIONS[:1],
) -> Iterator[tuple[Any, ...]]:
    """Yield notions of bounded loss for five ridges, and minimax without one."""
    engine = Local(data)
    for notion, l2 in product(notions, RIDGES):
        model = pffl.LogisticRegression(l2=l2)
        for price, bound in product(prices, bounds):
            yield engine, notion(bound), model, price, 1.0
    yield engine, pffl.MinMax(), pffl.LogisticRegression(l2=0.0), 1.0, 0.0


def run(engine: Local, problem: Problem, method: GapMethod) -> tuple[Any, float]:
    """Run a method; return its last state and its CPU seconds."""
    began = time.process_time()
    state: SaddleState = method.initial(problem, None)
    while not method.finished(state):
        total = engine.ask(method.query(problem, state))
        state = method.step(problem, state, total)
    return state, time.process_time() - began


def compared(name: str, problems: Iterator[tuple[Any, ...]]) -> str:
    """Solve each problem twice, and say how they compare, as a row of the table."""
    rounds, differ, opened, cpu = [], [0.0], np.zeros(2, int), np.zeros(2)
    for engine, constraint, model, price, beta in problems:
        ends = []
        for i, kind in enumerate(KINDS):
            method = kind(multiplier_bound=price, risk_weight=beta)
            problem = prepared(engine, constraint, model, method, Options(), 0)[0]
            state, seconds = run(engine, problem, method)
            end, cpu[i] = state.ending, cpu[i] + seconds
            ends.append(end)
            opened[i] += not (end.closed and end.sure)
            if i == 0:
                rounds.append(state.round)
        if all(end.closed and end.sure for end in ends):
            weight = beta + ends[1].best.multipliers.sum()
            apart = abs(ends[0].upper - ends[1].upper) / max(weight, 1e-9)
            differ.append(float(apart) if np.isfinite(apart) else 0.0)
    middle, most = np.median(rounds), np.quantile(rounds, 0.95)
    return (
        f"| {name} | {len(rounds)} | {middle:.0f} / {most:.0f} / {max(rounds)} | "
        f"{opened[0]} / {opened[1]} | {max(differ):.0e} | {cpu[0] / cpu[1]:.2f} |"
    )


def large(name: str, data: Federation, bound: float) -> str:
    """Solve one large problem twice."""
    engine, words, ratio = Local(data), [], []
    for kind in KINDS:
        method = kind(multiplier_bound=10.0)
        constraint = pffl.BoundedGroupLoss(bound)
        problem = prepared(engine, constraint, None, method, Options(), 0)[0]
        state, seconds = run(engine, problem, method)
        words.append(
            f"{state.round} rounds, {seconds:.2f} s, gap {method.gap(state):.0e}"
        )
        ratio.append(seconds)
    return f"| {name} | {words[0]} | {words[1]} | {ratio[0] / ratio[1]:.3f} |"


def sparse() -> str:
    """Solve 20,000 sparse inputs beside scikit-learn's plain fit."""
    from sklearn.linear_model import LogisticRegression

    X, y, group, silo = one_hot()
    data = pffl.Federation.from_arrays(
        X, y, sensitive_features=group, silo=silo, test_fraction=0.0
    )
    engine, model = Local(data), pffl.LogisticRegression(l2=1e-3, standardize=False)
    rows = []
    for bound in (0.6, 0.3):
        began = time.process_time()
        plain = LogisticRegression(C=1 / (1e-3 * len(y)), max_iter=1000).fit(X, y)
        plain_cpu = time.process_time() - began
        method = pffl.FirstOrder(multiplier_bound=10.0)
        constraint = pffl.BoundedGroupLoss(bound)
        problem = prepared(engine, constraint, model, method, Options(), 0)[0]
        state, seconds = run(engine, problem, method)
        gap = method.gap(state) / (1 + state.best.multipliers.sum())
        rows.append(
            f"| one-hot, 60,000 × {problem.n_parameters:,}, bound {bound:g} | "
            f"{state.round} rounds, {seconds:.2f} s, gap {gap:.0e} | plain lbfgs: "
            f"{int(plain.n_iter_[0])} iterations, {plain_cpu:.2f} s | "
            f"{seconds / plain_cpu:.2f} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Print the rows that were asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=["compas", "law", "adult"])
    parser.add_argument("--acs", help="parquet file of ACS persons")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.names:
        if name == "compas":
            row = compared("COMPAS", compas())
        elif name == "law":
            row = compared("law-like", grid(law(), (0.0, 0.15, 0.3), (10.0, 500.0)))
        elif name == "adult":
            adult = fewer(pffl.datasets.adult(group=("race", "sex")), 10_000)
            problems = grid(adult, (0.3, 0.4, 0.8), (1.0, 100.0), NOTIONS)
            row = compared("Adult, race × sex", problems)
        elif name == "weighted":
            rows = grid(weighted(), (0.3, 0.5, 0.6), (1.0, 10.0), NOTIONS)
            row = compared("rows with weights", rows)
        elif name == "acs":
            acs = pffl.datasets.acs(year=2024, source=given.acs)
            row = compared("ACS, race", grid(acs, (0.3, 0.4, 0.5), (1.0, 10.0)))
        elif name == "wide":
            row = large("20,000 × 1,000, Z = 10", gaussian(20_000, 1_000, 10), 0.53)
        elif name == "cells":
            row = large("50,000 × 100, Z = 500", gaussian(50_000, 100, 500), 0.75)
        else:
            row = sparse()
        print(row, flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
