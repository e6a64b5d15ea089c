"""COMPAS and Adult: two small tables of people, fetched on first use.

COMPAS holds names and birth dates. They are dropped while the file is read and never
leave this module. No licence allows redistribution, so neither file is shipped.

Larson, Mattu, Kirchner, Angwin: *How We Analyzed the COMPAS Recidivism Algorithm*,
ProPublica, 2016.
Becker, Kohavi: *Adult*, UCI Machine Learning Repository, 1996.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pffl.data import Attribute, Column, Federation, TableEncoder
from pffl.data import partition as cuts
from pffl.data.columns import category_codes
from pffl.data.read import TextFile, require
from pffl.data.rows import Rows
from pffl.datasets._fetch import PathLike, RemoteFile, fetch, known
from pffl.errors import DataError, Problems, UsageError

if TYPE_CHECKING:
    import pandas as pd

TABLES = known("people.json")
(COMPAS_FILE,) = (RemoteFile(**file) for file in TABLES["compas"]["files"])
ADULT_FILES = tuple(RemoteFile(**file) for file in TABLES["adult"]["files"])
COMPAS_COLUMNS, ADULT_COLUMNS = (TABLES[n]["columns"] for n in ("compas", "adult"))
#: What inputs are between by their meaning; counts beyond are as far as the end.
COMPAS_RANGES, ADULT_RANGES = (
    {column: (low, high) for column, (low, high) in TABLES[name]["ranges"].items()}
    for name in ("compas", "adult")
)
COMPAS_COUNTS = tuple(COMPAS_RANGES)[:5]
ADULT_CATEGORIES = tuple(TABLES["adult"]["categories"])
RECIDIVISM, INCOMES = "recidivism within two years", ("<=50K", ">50K")


def compas(
    *,
    silos: int = 10,
    random_state: int = 0,
    group: str | Sequence[str] = "sex",
    alpha: float = 1.0,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    source: PathLike | None = None,
    sha256: str | None = None,
    cache_dir: PathLike | None = None,
) -> Federation:
    """Load COMPAS (ProPublica, 2016); the label is recidivism within two years.

    Rows are the 6,172 people of ProPublica's analysis. Inputs are age (also under 25
    and over 45), three juvenile counts, the number of priors (also its logarithm) and
    whether the charge is a felony, unscaled (scaling is federated). The silos are ours:
    the people of each age category (under 25, 25 to 45, over 45) are divided over
    the silos by a draw from Dirichlet(`alpha`), so silos differ in size, age and rate
    of recidivism.

    Parameters
    ----------
    silos, alpha
        Number of silos, and how similar they are.
    random_state
        Seed of the silos and of the split.
    group
        Protected attribute: ``"sex"``, ``"race"`` or ``("sex", "race")``; never an
        input.
    test_fraction, validation_fraction
        Share of each silo kept for testing and validation.
    source, sha256
        A copy of the file that you have; `sha256` if it is another edition than
        ProPublica's.
    cache_dir
        Where to keep the file: see `pffl.datasets`.
    """
    with Problems("compas", UsageError) as problems:
        attributes = protected_names(group, ("sex", "race"), problems)
    file = COMPAS_FILE if sha256 is None else replace(COMPAS_FILE, sha256=sha256)
    table = read_compas(fetch(file, source=source, cache_dir=cache_dir))
    # ProPublica keeps charges near the screening, with known outcome, no traffic
    # offences.
    days = table["days_b_screening_arrest"]
    near = np.abs(np.where(days == "", "inf", days).astype(np.float64)) <= 30
    kept = near & (table["is_recid"] != "-1") & (table["c_charge_degree"] != "O")
    kept &= ~np.isin(table["score_text"], ["", "N/A"])
    table = {name: column[kept] for name, column in table.items()}
    recidivist = table["two_year_recid"]
    try:
        numbers = {name: table[name].astype(np.float64) for name in COMPAS_COUNTS}
    except ValueError as error:
        raise DataError("not-numbers:compas", error=error) from error
    if not np.isin(recidivist, ["0", "1"]).all():
        raise DataError("unknown-category:compas")
    numbers["felony"] = table["c_charge_degree"] == "F"
    # The counts have long tails, and risk does not fall evenly with age.
    numbers["log(1 + priors)"] = np.log1p(numbers["priors_count"])
    numbers["under 25"] = table["age_cat"] == "Less than 25"
    numbers["over 45"] = table["age_cat"] == "Greater than 45"
    X = np.column_stack([numbers[name].astype(np.float64) for name in COMPAS_RANGES])
    groups = [np.unique(table[name], return_inverse=True) for name in attributes]
    protected = [
        Attribute(name, tuple(values.tolist()))
        for name, (values, _) in zip(attributes, groups, strict=True)
    ]
    columns = tuple(Column(name, "number") for name in COMPAS_RANGES)
    labels = ("no recidivism", "recidivism")
    encoding = TableEncoder(columns, tuple(protected), labels, RECIDIVISM)
    group_codes = encoding.schema.combine(np.stack([code for _, code in groups], 1))
    return Federation.from_rows(
        encoding.schema,
        Rows(X, recidivist.astype(np.float64), group_codes),
        *cuts.dirichlet(table["age_cat"], alpha, silos, random_state),
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        random_state=random_state,
        name="COMPAS",
        notes=(
            f"ProPublica's filter kept {len(X)} people",
            f"silos: age category by Dirichlet({alpha:g}), seed {random_state}",
            "label: 'no recidivism' → 0, 'recidivism' → 1 (positive)",
        ),
        encoding=encoding,
        ranges=COMPAS_RANGES,
        simulated=True,
        # What is in ProPublica's file is known; in another edition it is looked up.
        undeclared=() if sha256 is None else attributes,
    )


def adult(
    *,
    silos: int = 10,
    alpha: float = 1.0,
    random_state: int = 0,
    group: str | Sequence[str] = "sex",
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    source: PathLike | None = None,
    sha256: Sequence[str] | None = None,
    cache_dir: PathLike | None = None,
) -> Federation:
    """Load Adult, 48,842 people of the US census; the label: over $50,000 a year.

    Inputs are age, capital gain and loss and weekly hours as numbers, and one input for
    each value of every category. ``?``, which stands for an unknown work class,
    occupation or country, is kept as a separate value (``occupation=?``): no row is
    dropped and nothing is guessed. The survey weight (fnlwgt) and education-num (a
    numbering of education) are not inputs, nor is the protected attribute; note that
    relationship (husband, wife) still tells the sex of many.

    Parameters
    ----------
    silos, alpha
        Number of silos, and how similar they are: the people of each occupation are
        divided over them by a draw from Dirichlet(`alpha`).
    random_state
        Seed of the silos and of the split.
    group
        Protected attribute: ``"sex"``, ``"race"`` or ``("sex", "race")``.
    test_fraction, validation_fraction
        Share of each silo kept for testing and validation; both files are joined.
    source
        A folder with copies of ``adult.data`` and ``adult.test``.
    sha256
        Hashes of those two, if they are another edition.
    cache_dir
        Where to keep the files: see `pffl.datasets`.
    """
    import pandas as pd

    with Problems("adult", UsageError) as problems:
        attributes = protected_names(group, ("sex", "race"), problems)
        hashes = [file.sha256 for file in ADULT_FILES] if sha256 is None else sha256
        if isinstance(hashes, str) or len(hashes) != len(ADULT_FILES):
            problems.add("wrong-value:adult")
    tables = []
    for file, own in zip(ADULT_FILES, hashes, strict=True):
        copy = None if source is None else Path(source) / file.name
        edition = replace(file, sha256=own)
        tables.append(read_adult(fetch(edition, source=copy, cache_dir=cache_dir)))
    table = pd.concat(tables, ignore_index=True)
    columns = [Column(name, "number") for name in ADULT_RANGES]
    for name in ADULT_CATEGORIES:
        if name not in attributes:
            values = tuple(sorted(table[name].unique()))
            columns.append(Column(name, "category", values))
    target = "income over $50,000"
    protected = [Attribute(n, category_codes(table[n])[0]) for n in attributes]
    known = tuple(columns), tuple(protected), INCOMES, "income"
    encoding = TableEncoder(*known, target=target)
    unknown = int((table[[*ADULT_CATEGORIES]] == "?").to_numpy().sum())
    return Federation.from_rows(
        encoding.schema,
        encoding.rows(table),
        *cuts.dirichlet(table["occupation"], alpha, silos, random_state),
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        random_state=random_state,
        name="Adult",
        notes=(
            f"{len(table)} people; {unknown} unknown values ('?') kept as a category",
            f"silos: occupation by Dirichlet({alpha:g}), seed {random_state}",
            "label: '<=50K' → 0, '>50K' → 1 (positive)",
        ),
        encoding=encoding,
        ranges=ADULT_RANGES,
        simulated=True,
        # What is in UCI's files is known; in another edition it is looked up.
        undeclared=() if sha256 is None else ADULT_CATEGORIES,
    )


def read_compas(path: Path) -> dict[str, NDArray[np.str_]]:
    """Read the columns that are used, as text; of repeated ones the first.

    Names, birth dates, case numbers and everything else are skipped here.
    """
    text = TextFile.scan(path)
    require(COMPAS_COLUMNS, text.header, f"'{path.name}'")
    places = {name: text.header.index(name) for name in COMPAS_COLUMNS}
    with text.records() as records:  # without pandas, which takes a second to load
        _, *rows = filter(None, records)
    return {name: np.array([row[k] for row in rows]) for name, k in places.items()}


def read_adult(path: Path) -> pd.DataFrame:
    """Read one of Adult's two files, as text.

    ``adult.test`` begins with a line of comment, and its labels end with a full stop.
    """
    import pandas as pd

    told: dict[str, Any] = {"dtype": str, "keep_default_na": False}
    told |= {"skipinitialspace": True, "encoding": "utf-8-sig", "comment": "|"}
    try:
        table = pd.read_csv(path, header=None, **told)
        table = table.set_axis(list(ADULT_COLUMNS), axis=1)
    except ValueError as error:  # a record is too long, or the first too short
        raise DataError(f"[bad-record] '{path.name}': {error}") from error
    return table.assign(income=table["income"].str.rstrip("."))


def protected_names(
    group: str | Sequence[str], known: Sequence[str], problems: Problems
) -> tuple[str, ...]:
    """Names of the protected attributes; what is wrong with them is noted."""
    names = (group,) if isinstance(group, str) else tuple(group)
    if not names or len(set(names)) < len(names) or not set(names) <= set(known):
        problems.add(
            "unknown-group:protected-names", known=", ".join(known), group=group
        )
    return names
