"""A CSV file of a million rows: read and encoded, against pandas and scikit-learn.

Processor time, both in turn, the best of each. Exits with 1 if reading and encoding
takes more than twice as long as theirs, or all of `from_table` more than three times.

    python -m benchmarks.reading --rows 1000000 --repeats 3
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from pffl.data import Federation

NUMBERS = ["age", "income", "hours", "score", "debt", "children"]
CATEGORIES = ["job", "region", "married"]
JOBS = ["clerk", "nurse", "smith", "teacher", "driver", "cook", "miner", "baker"]
ALLOWED, ALLOWED_IN_ALL = 2.0, 3.0


def people(rows: int, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    age = draw.integers(18, 90, rows)
    return pd.DataFrame(
        {
            "age": age,
            "income": draw.lognormal(10, 1, rows).round(2),
            "hours": draw.normal(38, 9, rows).round(1),
            "score": draw.normal(size=rows).round(4),
            "debt": draw.gamma(2, 3000, rows).round(2),
            "job": draw.choice(JOBS, rows),
            "region": draw.choice([f"region {k:02d}" for k in range(20)], rows),
            "married": draw.choice(["yes", "no", "widowed"], rows),
            "children": draw.integers(0, 5, rows),
            "sex": draw.choice(["f", "m"], rows),
            "site": draw.choice([f"s{k}" for k in range(10)], rows),
            "y": np.where(age + draw.normal(0, 20, rows) > 50, "yes", "no"),
        }
    )


def ours(path: Path, encoding: object) -> None:
    """Read and encode, by what was found out before: what a prediction does."""
    encoding.inputs(path)  # type: ignore[attr-defined]


def whole(path: Path) -> Federation:
    """Read, infer, check, encode, share out: what training does before it begins."""
    return Federation.from_table(path, label="y", group="sex", silo="site")


def theirs(path: Path) -> None:
    parts = [("n", StandardScaler(), NUMBERS), ("c", OneHotEncoder(), CATEGORIES)]
    ColumnTransformer(parts, sparse_threshold=0.0).fit_transform(pd.read_csv(path))


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        people(given.rows).to_csv(path, index=False)
        encoding = whole(path).encoding
        times = [
            (
                seconds(lambda: ours(path, encoding)),
                seconds(lambda: whole(path)),
                seconds(lambda: theirs(path)),
            )
            for _ in range(given.repeats)
        ]
    read, trained, other = (min(each) for each in zip(*times, strict=True))
    print(f"{given.rows:,} rows, CPU seconds, best of {given.repeats}")
    print(f"pandas.read_csv + ColumnTransformer   {other:.2f}")
    print(f"read and encode                       {read:.2f}  ({read / other:.2f} ×)")
    print(f"Federation.from_table, all of it      {trained:.2f}  "
          f"({trained / other:.2f} ×)")  # fmt: skip
    return int(read > ALLOWED * other or trained > ALLOWED_IN_ALL * other)


if __name__ == "__main__":
    sys.exit(main())
