"""COMPAS as FedFB's code prepares it (Zeng et al., 2021), for comparisons with it."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import compress

import numpy as np
import pandas as pd

import pffl
from pffl.data import Attribute, Column, Rows, TableEncoder, partition
from pffl.datasets import _people
from pffl.datasets._fetch import fetch

NUMBERS = (
    "age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count",
)  # fmt: skip


def compas(
    source: str | os.PathLike[str] | None = None, sha256: str | None = None
) -> pffl.Federation:
    """Load all 7,214 people, in two silos by scaled age over 0.1.

    Numbers are scaled to [0, 1] over all rows, age category, charge degree and charge
    description are one-hot, the first 70 % of the rows train. Label 1 is no recidivism,
    groups are sex × African-American.

    Parameters
    ----------
    source, sha256
        As for `pffl.datasets.compas`.
    """
    file = _people.COMPAS_FILE
    file = file if sha256 is None else replace(file, sha256=sha256)
    table = pd.DataFrame(_people.read_compas(fetch(file, source=source)))
    black = table["race"] == "African-American"
    recidivist = table["two_year_recid"] == "1"
    labels, target = ("recidivism", "no recidivism"), "no recidivism within two years"
    table = table.assign(
        race=np.where(black, "African-American", "other"),
        **{target: np.where(recidivist, *labels)},
    )
    columns = []
    for name in NUMBERS:
        number = table[name].astype(np.float64)
        table[name] = (number - number.min()) / (number.max() - number.min())
        columns.append(Column(name, "number"))
    for name in ("age_cat", "c_charge_degree", "c_charge_desc"):
        values = tuple(sorted(set(table[name])))
        columns.append(Column(name, "category", values))
    groups = [Attribute(n, tuple(sorted(set(table[n])))) for n in ("sex", "race")]
    encoder = TableEncoder(tuple(columns), tuple(groups), labels, target)
    schema, rows = encoder.schema, encoder.rows(table)
    # A missing description has no input of its own: all others are 0.
    own = [not name.endswith("=") for name in schema.features]
    schema = replace(schema, features=tuple(compress(schema.features, own)))
    X = rows.X if isinstance(rows.X, np.ndarray) else rows.X.toarray()
    rows = replace(rows, X=X[:, own])
    older = table["age"].to_numpy() > 0.1
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
    looked_up = (*NUMBERS, "c_charge_desc")  # read off the rows
    name = "COMPAS (FedFB preparation)"
    return pffl.Federation(schema, silos, name, notes=notes, undeclared=looked_up)


def with_groups_as_inputs(federation: pffl.Federation) -> pffl.Federation:
    """Show models the group too: an input of 0 and 1 for each group but the first.

    As in the comparisons of FedFB's authors. Predictions then need the group.
    """
    groups = federation.schema.groups[1:]

    def widened(rows: Rows) -> Rows:
        own = rows.group[:, None] == np.arange(1, len(groups) + 1)
        return replace(rows, X=np.column_stack([np.asarray(rows.X), own.astype(float)]))

    names = tuple(f"group={group}" for group in groups)
    schema = federation.schema
    schema = replace(schema, features=(*schema.features, *names))
    silos = tuple(
        replace(silo, splits={s: widened(r) for s, r in silo.splits.items()})
        for silo in federation.silos
    )
    notes = (*federation.notes, "the group is an input")
    known = TableEncoder.of_numbers(schema, federation.encoding.typed)
    return replace(federation, schema=schema, silos=silos, encoding=known, notes=notes)
