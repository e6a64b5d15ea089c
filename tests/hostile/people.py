"""Small populations in natural units, each of which once made a sentence false."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.oracles import Federation

SITES = 5


def incomes(
    unit: float = 1.0, *, rows: int = 1000, test_fraction: float = 0.0
) -> Federation:
    """Incomes of about 50,000 (times `unit`) in five sites, two groups."""
    X, y, group, silo = _drawn(rows)
    return Federation.from_arrays(
        X,
        unit * y,
        sensitive_features={"sex": group},
        silo=silo,
        classification=False,
        test_fraction=test_fraction,
        name="incomes",
    )


def _drawn(rows: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(rows, 3))
    group = rng.integers(2, size=rows)
    y = 50_000 + 12_000 * X[:, 0] + 4_000 * X[:, 1] * group
    y += rng.normal(size=rows) * (9_000 + 5_000 * group)
    return X, y, np.array(["f", "m"])[group], rng.integers(SITES, size=rows)


def income_file(place: Path) -> Path:
    """Write the incomes as a table."""
    X, y, group, silo = _drawn(1000)
    table = pd.DataFrame(X, columns=["age", "skill", "tenure"])
    table = table.assign(sex=group, site=[f"s{k}" for k in silo], income=y)
    table.to_csv(place / "income.csv", index=False)
    return place / "income.csv"


def logits(size: float) -> Federation:
    """Two classes whose inputs are of some size, to be used as they are."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 2))
    group = rng.integers(2, size=300)
    score = X @ [1.5, -1.0] + 0.5 * group + rng.normal(size=300)
    return Federation.from_arrays(
        size * X,
        (score > 0).astype(int),
        sensitive_features={"sex": np.array(["f", "m"])[group]},
        silo=rng.integers(3, size=300),
        test_fraction=0.0,
        name="raw inputs",
    )


def unlike_silos() -> Federation:
    """Two silos whose inputs are of scale 1 and 6: many local steps drift apart."""
    rng = np.random.default_rng(5)
    n = 600
    silo = np.repeat([0, 1], n // 2)
    X = rng.normal(size=(n, 4)) * np.where(silo == 0, 1.0, 6.0)[:, None]
    slope = np.where(silo[:, None] == 0, [1.0, -1.0, 0.5, 0.0], [-0.2, 0.3, 0.0, 0.1])
    group = rng.integers(2, size=n)
    score = (X * slope).sum(axis=1) + rng.normal(size=n)
    return Federation.from_arrays(
        X,
        (score > 0).astype(int),
        sensitive_features={"sex": np.array(["f", "m"])[group]},
        silo=silo,
        test_fraction=0.0,
        name="silos that differ",
    )


def shares() -> Federation:
    """Targets of size 1e-4, which no input explains."""
    rng = np.random.default_rng(2)
    y = 1.5e-4 * rng.choice([-1.0, 1.0], size=400) + 1e-6 * rng.normal(size=400)
    return Federation.from_arrays(
        rng.normal(size=(400, 2)),
        y,
        sensitive_features={"sex": rng.choice(["f", "m"], size=400)},
        silo=rng.integers(2, size=400),
        classification=False,
        test_fraction=0.0,
        name="shares of GDP",
    )


def hundreds() -> Federation:
    """Targets of about 100, for prices of a million."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(500, 3))
    y = 100 + X @ [1.0, 2.0, -1.0] + rng.normal(size=500)
    return _numbers(rng, X, y, "about a hundred")


def wild_values() -> Federation:
    """Targets of 1e4 with a Huber δ of 1: nearly every residual is beyond it."""
    rng = np.random.default_rng(13)
    X = rng.normal(size=(80, 3))
    y = 1e4 * (X @ rng.normal(size=3) + rng.standard_cauchy(size=80))
    return _numbers(rng, X, y, "wild values")


def _numbers(rng: np.random.Generator, X: Any, y: Any, name: str) -> Federation:
    return Federation.from_arrays(
        X,
        y,
        sensitive_features={"sex": rng.choice(["f", "m"], size=len(y))},
        silo=rng.integers(3, size=len(y)),
        classification=False,
        test_fraction=0.0,
        name=name,
    )


def milliseconds() -> Federation:
    """UNIX milliseconds ± 1e5: mean² is 1e14 times the variance."""
    rng = np.random.default_rng(17)
    when = 1.7e12 + 1e5 * rng.normal(size=600)
    other = rng.normal(size=600)
    group = rng.integers(2, size=600)
    score = (when - 1.7e12) / 1e5 + other + rng.normal(size=600)
    return Federation.from_arrays(
        np.stack([when, other], axis=1),
        (score > 0).astype(int),
        sensitive_features={"sex": np.array(["f", "m"])[group]},
        silo=rng.integers(3, size=600),
        test_fraction=0.0,
        name="log file",
    )
