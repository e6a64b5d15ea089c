"""Tables whose encoded matrices are recorded: what an encoder may never change.

``python -m tests.data.matrices`` writes `matrices.json` anew.
"""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pffl
from tests.golden import people as golden

RECORDED = Path(__file__).with_name("matrices.json")
MADE_UP = 30
WORDS = ["late", "good work", "GOOD", "Späti", "7", "no-show, again", "ill"]


def made_up(seed: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table of every kind of column, and what is said of it."""
    rng = np.random.default_rng(seed)
    n = 150 + 10 * seed
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "pay": np.round(rng.gamma(2, 3e4, n), 2),
            "owner": rng.random(n) < 0.4,
            "city": rng.choice(["Ulm", "Bern", "Graz", "Köln", "x=y"], n),
            "code": rng.choice([1.0, 2.0, 10.0], n),
            "zip": rng.choice([f"{k:05d}" for k in range(7)], n),
            "mixed": rng.choice(["a7", "007", "7", "True"], n),
            "sex": rng.choice(["f", "m"], n),
            "branch": rng.choice(["north", "south", "west"], n),
            "hired": rng.choice(["no", "yes"], n),
        }
    )
    options: dict[str, Any] = {"label": "hired", "group": "sex", "silo": "branch"}
    coded = ["code", "mixed", "zip", *["age"] * (seed % 2)]
    columns: dict[str, Any] = {name: {"kind": "category"} for name in coded}
    options["columns"] = columns
    if seed % 3 == 0:  # missing values
        gone = rng.random((n, 3)) < 0.1
        for j, name in enumerate(["pay", "city", "code"]):
            frame.loc[gone[:, j], name] = None
        options["missing"] = "indicator"
    if seed % 4 == 1:
        rng.integers(-9000, 900, n)  # dates were here: later draws stay as recorded
    if seed % 5 == 2:  # texts, and rows that are kept sparse
        texts = rng.choice(WORDS, (n, 3))
        frame["notes"] = [" ".join(row) + f" {i}" for i, row in enumerate(texts)]
        if seed % 3 == 0:
            frame.loc[3:5, "notes"] = None
        columns["notes"] = {"hash": 512 if seed % 2 else 16}
    if seed % 6 == 4:  # a long tail
        tail = np.minimum(rng.geometric(0.05, n), 60)
        frame["ward"] = [f"w{k}" for k in tail]
        columns |= common(frame, ["ward"])
    if seed % 7 == 3:
        frame["price"] = [float(f"{v:.2f}") for v in rng.random(n) * 99]
    if seed % 8 == 5:
        frame["trust"] = rng.choice([0.0, 0.5, 2.0], n)
        options["weight"] = "trust"
        frame["city"] = frame["city"].astype("category")
        frame["age"] = frame["age"].astype("Int64")
    if seed % 9 == 6:
        frame["hired"] = rng.integers(0, 3, n)
    if seed % 10 == 7:
        frame["hired"] = rng.normal(size=n)
        options["classification"] = False
    return frame, options


def common(frame: pd.DataFrame, names: Any, least: int = 5) -> dict[str, Any]:
    """Declare values that are not rare, of columns that have others."""
    counts = {name: frame[name].value_counts() for name in names}
    return {
        name: {"values": sorted(many.index[many >= least])}
        for name, many in counts.items()
        if (many < least).any()
    }


def tables() -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    """Yield all tables that can be made here, each with a name and options."""
    for seed in range(MADE_UP):
        yield (f"made up {seed:02d}", *made_up(seed))
    compas = pd.read_csv(io.BytesIO(golden.compas_file()))
    drop = ["id", "days_b_screening_arrest", "is_recid", "score_text"]
    options = {"label": "two_year_recid", "group": ["sex", "race"], "drop": drop}
    numeric = compas.select_dtypes("number").columns
    texts = compas.columns.difference([*numeric, *drop, "sex", "race"])
    yield "compas", compas, {**options, "columns": common(compas, texts)}
    lines = io.BytesIO(golden.adult_files()[0])
    adult = pd.read_csv(lines, names=list(golden.ADULT), skipinitialspace=True)
    protected = {"inputs": ["race", "native-country"], "silos": 3}
    yield "adult", adult, {"label": "income", "group": "sex", **protected}


def figures(table: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return what a table becomes: names, and hashes of every number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = pffl.Federation.from_table(table, **options)
    found: dict[str, Any] = {
        "features": _hash("\0".join(data.schema.features).encode()),
        "inputs": data.schema.n_features,
        "labels": list(data.schema.labels),
        "groups": list(data.schema.groups),
        "gaps": np.asarray(data.schema.gaps).tolist(),
    }
    for split in data.splits:
        rows = data.pooled(split)
        found[split] = _hash(*_arrays(rows.X), rows.y, rows.group, rows.silo)
    found["again"] = _hash(*_arrays(data.encoding.inputs(table)))
    return found


def _arrays(X: Any) -> list[Any]:
    if isinstance(X, np.ndarray):
        return [X]
    return [X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data]


def _hash(*parts: Any) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else np.ascontiguousarray(part))
    return found.hexdigest()[:32]


def record() -> dict[str, Any]:
    """Return the figures of all tables, as frames and as files."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, frame, options in tables():
            found[name] = figures(frame, options)
            path = Path(folder) / f"{name}.csv"
            frame.to_csv(path, index=False)
            found[f"{name}, file"] = figures(path, options)
    return found


if __name__ == "__main__":
    lines = [f"{json.dumps(n)}: {json.dumps(f)}" for n, f in record().items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
