"""The `local` engine against bare NumPy, against itself, and against `reference`.

.venv/bin/python benchmarks/engine.py
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np
from ratios import header, seconds, show

import pffl
from pffl.data import Attribute, Rows, Schema, Silo
from pffl.driver import drive, drive_many
from pffl.engines import Local, Reference
from pffl.flow import iterate
from pffl.preparation import Options
from pffl.questions import Train
from pffl.solving import prepared

FEATURES = 23


def federation(silos: int, rows: int, seed: int = 0) -> pffl.Federation:
    """Equal silos of random rows."""
    rng = np.random.default_rng(seed)
    schema = Schema(
        tuple(f"x{j}" for j in range(FEATURES)),
        (Attribute("group", ("a", "b")),),
        ("no", "yes"),
    )
    X = rng.standard_normal((silos * rows, FEATURES))
    y = (X[:, 0] + rng.standard_normal(len(X)) > 0).astype(float)
    group = rng.integers(0, 2, len(X))
    parts = [slice(k * rows, (k + 1) * rows) for k in range(silos)]
    return pffl.Federation(
        schema,
        tuple(
            Silo(f"s{k}", k, {"train": Rows.of(X[p], y[p], group[p])})
            for k, p in enumerate(parts)
        ),
        "random",
        synthetic=True,
    )


def question(engine: Reference, steps: int) -> Train:
    """One `train` question with two weighted cells."""
    method = pffl.PFFL()
    problem, _ = prepared(
        engine, pffl.BoundedGroupLoss(0.6), None, method, Options(), seed=0
    )
    w = np.full(problem.n_parameters, 0.01)
    weights = problem.cell_weights(np.array([0.5, 1.5]))
    return Train(problem.task, w, 1.0, weights, np.full(steps, 0.01))


def timed(engine: Reference, ask: Train, repeats: int = 5) -> float:
    """Seconds of one question."""
    return seconds(lambda: engine.ask(ask), repeats)


def against_products() -> None:
    """(a) One full weighted gradient against the two bare products."""
    data = federation(49, 45_730)  # 2,240,770 rows, as the ACS file has
    engine = Local(data)
    ask = question(engine, steps=1)
    X = engine.layout([ask]).X
    w, v = np.ones(FEATURES), np.ones(len(X))
    bare = seconds(lambda: (X @ w, X.T @ v))
    show(
        "(a) full gradient, 2.24 M × 23, against X @ w and X.T @ v",
        seconds(lambda: engine.ask(ask)) / bare,
        "at most 2",
    )


def against_many_silos() -> None:
    """(b) Many small silos against few large ones, same rows."""
    for steps in (1, 5):
        many, few = Local(federation(10_000, 200)), Local(federation(10, 200_000))
        ask_many, ask_few = question(many, steps), question(few, steps)
        ratio = timed(many, ask_many) / timed(few, ask_few)
        show(
            f"(b) 10,000 silos of 200 against 10 of 200,000, J = {steps}",
            ratio,
            "at most 3",
        )


def against_one_by_one() -> None:
    """(c) A stack of 40 configurations of PFFL on COMPAS against 40 runs."""
    data = pffl.datasets.compas()
    points = [
        (
            pffl.BoundedGroupLoss(bound),
            pffl.PFFL(multiplier_bound=b, dual_rounds=5, rounds_per_dual=10),
        )
        for bound in np.linspace(0.6, 0.7, 8)
        for b in (0.1, 0.5, 1.0, 5.0, 10.0)
    ]
    engine = Local(data)
    first, _ = prepared(engine, *points[0][:1], None, points[0][1], Options(), seed=0)
    problems = [
        dataclasses.replace(
            first.with_bounds(np.full(2, constraint.bound)),
            multiplier_bound=method.multiplier_bound,
        )
        for constraint, method in points
    ]
    methods = [method for _, method in points]
    start = time.perf_counter()
    for problem, method in zip(problems, methods, strict=True):
        drive(engine, iterate(problem, method))
    one_by_one = time.perf_counter() - start
    pairs = list(zip(problems, methods, strict=True))
    stack = seconds(
        lambda: drive_many(engine, [iterate(*pair) for pair in pairs]), repeats=2
    )
    show(
        "(c) stack of 40 PFFL runs on COMPAS against 40 runs",
        stack / one_by_one,
        "≤ 0.25",
    )


def against_reference() -> None:
    """(d) `local` against the plain loop."""
    for rows, asked in ((200, "at least 4"), (20, "at least 20")):
        data = federation(10_000, rows)
        plain, fast = Reference(data), Local(data)
        for steps in (1, 5):
            slow_ask, fast_ask = question(plain, steps), question(fast, steps)
            slow = timed(plain, slow_ask, repeats=2)
            ratio = slow / timed(fast, fast_ask)
            show(
                f"(d) reference against local, 10,000 silos of {rows}, J = {steps}",
                ratio,
                asked,
            )


if __name__ == "__main__":
    header()
    against_products()
    against_many_silos()
    against_one_by_one()
    against_reference()
