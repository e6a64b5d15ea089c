"""COMPAS as FedFB's code prepares it (Zeng et al., 2021), for comparisons with it."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

import pffl
from pffl.data import partition
from pffl.datasets import _people
from pffl.datasets._fetch import fetch


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
    table = _people.read_compas(fetch(file, source=source))
    inputs = {}
    for name in _people.COMPAS_NUMBERS:
        number = table[name].astype(np.float64)
        inputs[name] = (number - number.min()) / (number.max() - number.min())
    for name in ("age_cat", "c_charge_degree", "c_charge_desc"):
        inputs |= _people.indicators(table[name])
        # A missing description has no column of its own: all its columns are 0.
        inputs.pop(f"{name}=", None)
    black = table["race"] == "African-American"
    rows, schema = _people.encode_people(
        inputs,
        1.0 - table["two_year_recid"].astype(np.float64),
        table[["sex"]].assign(race=np.where(black, "African-American", "other")),
        labels=("recidivism", "no recidivism"),
        target="no recidivism within two years",
    )
    older = inputs["age"].to_numpy() > 0.1
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
    looked_up = (*_people.COMPAS_NUMBERS, "c_charge_desc")  # read off the rows
    name = "COMPAS (FedFB preparation)"
    return pffl.Federation(schema, silos, name, notes=notes, undeclared=looked_up)
