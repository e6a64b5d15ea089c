"""A CSV file of a million rows: read and encoded, against pandas and scikit-learn.

Processor time, both in turn, several times; the best of each. Also a wrong cell in the
last row. Writes its results to benchmarks/reading.md.

    python -m benchmarks.reading --rows 1000000
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import sklearn
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from pffl.data import Federation
from pffl.errors import DataError

NUMBERS = ["age", "income", "hours", "score", "debt", "children"]
CATEGORIES = ["job", "region", "married"]
JOBS = ["clerk", "nurse", "smith", "teacher", "driver", "cook", "miner", "baker"]
ASKED = 3.0


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


def ours(table: Path | pd.DataFrame) -> object:
    return Federation.from_table(table, label="y", group="sex", silo="site")


def theirs(table: Path | pd.DataFrame) -> object:
    frame = table if isinstance(table, pd.DataFrame) else pd.read_csv(table)
    scaled = ("numbers", StandardScaler(), NUMBERS)
    coded = ("categories", OneHotEncoder(sparse_output=False), CATEGORIES)
    return ColumnTransformer([scaled, coded]).fit_transform(frame)


def refused(table: Path) -> str:
    try:
        ours(table)
    except DataError as error:
        return str(error)
    raise AssertionError("a wrong cell was not noticed")


def spent(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def ratio(
    table: Path | pd.DataFrame, repeats: int, mine: Callable[..., object] = ours
) -> tuple[float, float]:
    """Best times of both, measured in turn."""
    times = [
        (spent(lambda: mine(table)), spent(lambda: theirs(table)))
        for _ in range(repeats)
    ]
    return min(t for t, _ in times), min(t for _, t in times)


def measured(rows: int, repeats: int) -> str:
    frame = people(rows)
    with tempfile.TemporaryDirectory() as folder:
        path, quoted, bad = (Path(folder) / f"{n}.csv" for n in ("a", "b", "c"))
        frame.to_csv(path, index=False)
        frame.to_csv(quoted, index=False, quoting=2)
        lines = path.read_text().splitlines()
        last = lines[-1].split(",")
        last[1] = "12x"
        bad.write_text("\n".join([*lines[:-1], ",".join(last)]) + "\n")
        shown = [
            ("CSV file", *ratio(path, repeats)),
            ("CSV file, text in quotes", *ratio(quoted, repeats)),
            ("DataFrame", *ratio(frame, repeats)),
        ]
        wrong = min(spent(lambda: refused(bad)) for _ in range(repeats))
        message = refused(bad)
    table = [
        f"| {what} | {mine:.2f} s | {other:.2f} s | {mine / other:.2f} | ≤ {ASKED:g} |"
        for what, mine, other in shown
    ]
    versions = (
        f"Python {platform.python_version()}, pandas {pd.__version__}, NumPy "
        f"{np.__version__}, scikit-learn {sklearn.__version__}"
    )
    size = f"{rows:,} rows, {frame.shape[1]} columns"
    return "\n".join(
        [
            "# Reading a table",
            "",
            f"{size} ({len(NUMBERS)} numbers, {len(CATEGORIES)} categories, label, "
            "group, silo). `Federation.from_table` (reading, inference, checks, "
            "encoding, silos, splits, leaks) against `pandas.read_csv` and a "
            "`ColumnTransformer` of `StandardScaler` and `OneHotEncoder`. Processor "
            f"time, both in turn, the best of {repeats}. {versions}. Written by "
            f"`python -m benchmarks.reading --rows {rows} --repeats {repeats}`.",
            "",
            "| input | pffl | pandas, scikit-learn | ratio | asked |",
            "|---|---|---|---|---|",
            *table,
            "",
            f"A wrong cell in the last row is refused after {wrong:.2f} s "
            f"({wrong / shown[0][1]:.2f} of a reading that succeeds):",
            "",
            f"    {message}",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    text = measured(given.rows, given.repeats)
    Path(__file__).with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
