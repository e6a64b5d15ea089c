"""A CSV file of a million rows: `Federation.from_table`, pandas and scikit-learn.

    python benchmarks/reading.py [--rows 1000000] [--turns 7]

Theirs is `pandas.read_csv` and a `ColumnTransformer` of `StandardScaler` and
`OneHotEncoder`; ours also checks every record and value, and cuts silos and splits.
CPU seconds, both in turns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

import pffl

NUMBERS = ["age", "income", "hours", "score", "debt", "children"]
CATEGORIES = ["job", "region", "married"]


def people(rows: int) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    age = draw.integers(18, 90, rows)
    columns = {
        "age": age,
        "income": draw.lognormal(10, 1, rows).round(2),
        "hours": draw.normal(38, 9, rows).round(1),
        "score": draw.normal(size=rows).round(4),
        "debt": draw.gamma(2, 3000, rows).round(2),
        "children": draw.integers(0, 5, rows),
        "y": np.where(age + draw.normal(0, 20, rows) > 50, "yes", "no"),
    }
    values = {"job": 8, "region": 20, "married": 3, "sex": 2, "site": 10}
    for name, many in values.items():
        columns[name] = draw.choice([f"{name} {k:02d}" for k in range(many)], rows)
    return pd.DataFrame(columns)


def ours(path: Path) -> object:
    return pffl.Federation.from_table(path, label="y", group="sex", silo="site")


def theirs(path: Path) -> object:
    scaled = ("numbers", StandardScaler(), NUMBERS)
    coded = ("categories", OneHotEncoder(sparse_output=False), CATEGORIES)
    return ColumnTransformer([scaled, coded]).fit_transform(pd.read_csv(path))


def seconds(work: Callable[[Path], object], path: Path) -> float:
    start = time.process_time()
    work(path)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=7)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        path = Path(folder) / "people.csv"
        people(given.rows).to_csv(path, index=False)
        turns = [
            (seconds(ours, path), seconds(theirs, path)) for _ in range(given.turns)
        ]
    mine, other = np.median(turns, axis=0)
    ratio = np.median([a / b for a, b in turns])
    print(f"{given.rows:,} rows: {mine:.2f} s, theirs {other:.2f} s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
