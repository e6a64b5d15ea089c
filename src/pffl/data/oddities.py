"""What is allowed in a table and looks like a slip: said before anything is trained."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pffl.data.checks import listing
from pffl.data.column import category_codes
from pffl.data.schema import Attribute
from pffl.typing import IntArray

if TYPE_CHECKING:
    import pandas as pd

RARE, RARE_SHARE = 10, 0.005  # rows of a label that looks like a slip
GONE = ("?", "-", "--", ".", "*")  # what some files write for a missing value


def of_labels(series: pd.Series, labels: Sequence[str]) -> list[str]:
    """Say what looks like a slip: a third label of few rows, two spellings of one."""
    names, codes = category_codes(series)
    counts = dict(zip(names, np.bincount(codes, minlength=len(names)), strict=True))
    few = max(RARE, RARE_SHARE * len(series))
    common = [name for name, count in counts.items() if count >= few]
    rare = [f"'{n}' ({c}{_meant(n, common)})" for n, c in counts.items() if c < few]
    where = f"label '{series.name}'"
    found = _spellings(where, labels)
    if len(labels) > 2 and rare and len(counts) - len(rare) >= 2:
        kept = len(counts) - len(rare)
        found.append(
            f"{where} has {len(labels)} values, so there are {len(labels)} classes; "
            f"few rows have {listing(rare)}: if that is a slip, and {kept} classes are "
            "meant, repair it"
        )
    return found


def _meant(name: str, common: Sequence[str]) -> str:
    folded = {other.casefold(): other for other in common}
    close = difflib.get_close_matches(name.casefold(), folded, n=1)
    return f"; did you mean '{folded[close[0]]}'?" if close else ""


def of_people(person: IntArray, name: str) -> list[str]:
    """Say how many rows the people of an id have."""
    rows = np.bincount(person)
    several = int((rows > 1).sum())
    if not several:
        return []
    return [
        f"id '{name}': {len(rows):,} people in {len(person):,} rows; {several:,} have "
        f"several, at most {rows.max():,}, which stay in one split"
    ]


def of_copies(frame: pd.DataFrame) -> list[str]:
    """Say how many rows are copies of earlier ones."""
    # Rows that differ in a decimal number are no copies, and these are soon compared.
    decimals = [name for name in frame.columns if frame[name].dtype.kind == "f"]
    if decimals:
        frame = frame[frame.duplicated(decimals, keep=False)]
    copies = int(frame.duplicated().sum())
    return [f"{copies:,} rows are copies of earlier ones, and were kept"] * bool(copies)


def of_groups(attribute: Attribute) -> list[str]:
    """Say that there is one group only, or that one is spelt in two ways."""
    where = f"protected attribute '{attribute.name}'"
    found = _spellings(where, attribute.values)
    if len(attribute.values) == 1:
        found.append(
            f"{where} has one value only ('{attribute.values[0]}'): everybody is in "
            "one group, and a bound on it is one on the mean loss of all rows"
        )
    return found


def of_gaps(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Say which values of columns count although they look like missing ones."""
    found = []
    for name in dict.fromkeys(columns):
        if frame[name].dtype.kind not in "iufb":
            counts = frame[name].value_counts()
            seen = [(mark, int(counts[mark])) for mark in GONE if mark in counts.index]
            found += [f"'{mark}' in '{name}' ({count:,})" for mark, count in seen]
    if not found:
        return []
    return [f"values that look like missing ones count as values: {listing(found)}"]


def _spellings(where: str, values: Sequence[str]) -> list[str]:
    alike: dict[str, list[str]] = {}
    for value in values:
        alike.setdefault(" ".join(value.split()).casefold(), []).append(f"'{value}'")
    twins = [" and ".join(same) for same in alike.values() if len(same) > 1]
    return [f"{where}: {listing(twins)} count as different values"] if twins else []
