"""Columns of the ACS person file, and what is predicted from them.

Codes are those of the Census data dictionaries. The vocabulary of a category is fixed
(it does not depend on the rows at hand), so models of different states and years have
the same inputs. A missing value is 0, as in folktables, and where a query is not put
to everyone, 0 is a category of its own.

The tasks are those of folktables 0.0.12 (Ding, Hardt, Miller, Schmidt: *Retiring Adult:
New Datasets for Fair Machine Learning*, NeurIPS 2021): ACSEmployment,
ACSEmploymentFiltered, ACSIncome and ACSPublicCoverage, with their inputs, filters and
labels. A comparison with a missing value is false there, so a row whose filter column
is missing is left out; only then do missing values become 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pffl.errors import Problems
from pffl.typing import BoolArray, FloatArray

Encoding = Literal["onehot", "ordinal"]
Packed = NDArray[np.uint8] | NDArray[np.float64]

UNKNOWN = 255

FIPS = {
    "AL": 1, "AK": 2, "AZ": 4, "AR": 5, "CA": 6, "CO": 8, "CT": 9, "DE": 10,
    "DC": 11, "FL": 12, "GA": 13, "HI": 15, "ID": 16, "IL": 17, "IN": 18, "IA": 19,
    "KS": 20, "KY": 21, "LA": 22, "ME": 23, "MD": 24, "MA": 25, "MI": 26, "MN": 27,
    "MS": 28, "MO": 29, "MT": 30, "NE": 31, "NV": 32, "NH": 33, "NJ": 34, "NM": 35,
    "NY": 36, "NC": 37, "ND": 38, "OH": 39, "OK": 40, "OR": 41, "PA": 42, "RI": 44,
    "SC": 45, "SD": 46, "TN": 47, "TX": 48, "UT": 49, "VT": 50, "VA": 51, "WA": 53,
    "WV": 54, "WI": 55, "WY": 56, "PR": 72,
}  # fmt: skip
FIFTY_STATES = tuple(state for state in FIPS if state not in ("DC", "PR"))

# RELSHIPP (from 2019) in the words of RELP. Spouses and partners of either sex are
# one code in RELP; "roomer or boarder" (11) has no code of its own any more.
RELP_OF_RELSHIPP = {
    20: 0, 21: 1, 22: 13, 23: 1, 24: 13, 25: 2, 26: 3, 27: 4, 28: 5, 29: 6,
    30: 7, 31: 8, 32: 9, 33: 10, 34: 12, 35: 14, 36: 15, 37: 16, 38: 17,
}  # fmt: skip

RACES = {
    1: "White",
    2: "Black",
    3: "American Indian",
    4: "Alaska Native",
    5: "American Indian or Alaska Native, tribe otherwise specified or not",
    6: "Asian",
    7: "Pacific Islander",
    8: "other race",
    9: "two or more races",
}
SEXES = {1: "male", 2: "female"}
PROTECTED = {"race": ("RAC1P", RACES), "sex": ("SEX", SEXES)}

# Major groups of the Census occupation code list: first code of each.
OCCUPATIONS = {
    10: "management", 500: "business", 800: "finance", 1000: "computing",
    1300: "engineering", 1600: "science", 2000: "social service", 2100: "legal",
    2200: "education", 2600: "arts and media", 3000: "health care",
    3600: "health support", 3700: "protection", 4000: "food", 4200: "cleaning",
    4300: "personal care", 4700: "sales", 5000: "office", 6000: "farming",
    6200: "construction", 6800: "extraction", 7000: "repair", 7700: "production",
    9000: "transport", 9800: "military", 9920: "none in five years",
}  # fmt: skip
BIRTHPLACES = {
    1: "United States", 60: "US island areas", 100: "Europe", 200: "Asia",
    300: "Northern America", 303: "Latin America", 400: "Africa", 500: "Oceania",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """One column of the person file.

    Parameters
    ----------
    name
        Its name, the older one where it changed.
    codes
        The codes of a category; none for a number.
    asked_from
        Age from which everybody has a value; None if some never have.
    ranges
        First code and name of each range of codes, for lists too long to be one-hot.
    """

    name: str
    codes: tuple[int, ...] = ()
    asked_from: int | None = 0
    ranges: tuple[tuple[int, str], ...] = ()


def _coded(name: str, last: int, asked_from: int | None = 0, *more: int) -> Column:
    return Column(name, (*range(1, last + 1), *more), asked_from)


COLUMNS = {
    column.name: column
    for column in (
        Column("AGEP"),
        Column("WKHP", asked_from=None),
        Column("PINCP", asked_from=15),
        _coded("SCHL", 24, 3),
        _coded("MAR", 5),
        Column("RELP", tuple(range(18))),
        _coded("DIS", 2),
        _coded("ESP", 8, None),
        _coded("CIT", 5),
        _coded("MIG", 3, 1),
        _coded("MIL", 4, 17),
        _coded("ANC", 4, 0, 8),  # 8: suppressed in some areas
        _coded("NATIVITY", 2),
        _coded("DEAR", 2),
        _coded("DEYE", 2),
        _coded("DREM", 2, 5),
        _coded("SEX", 2),
        _coded("RAC1P", 9),
        _coded("GCL", 2, None),
        _coded("COW", 9, None),
        _coded("ESR", 6, 16),
        _coded("FER", 2, None, 8),  # 8: suppressed in some areas
        Column("ST", tuple(FIPS.values())),
        Column("OCCP", asked_from=None, ranges=tuple(OCCUPATIONS.items())),
        Column("POBP", ranges=tuple(BIRTHPLACES.items())),
    )
}
LARGEST = {"AGEP": 100.0, "WKHP": 99.0}  # years; hours a week


@dataclass(frozen=True)
class Input:
    """How one column becomes inputs, for one encoding and lowest age.

    A value is first *packed* into one byte (the place of its code in the vocabulary),
    and only later *written* as floating-point inputs, straight to where they stay.
    """

    column: Column
    encoding: Encoding
    lowest_age: int

    @property
    def is_number(self) -> bool:
        """Whether values are kept as numbers."""
        ordinal = self.encoding == "ordinal"
        return not self.column.codes and (ordinal or not self.column.ranges)

    @property
    def vocabulary(self) -> tuple[int, ...]:
        """Codes with a place; 0 only where the query is not put to everyone."""
        asked = self.column.asked_from
        everyone = asked is not None and asked <= self.lowest_age
        codes = self.column.codes or tuple(start for start, _ in self.column.ranges)
        return codes if everyone else (0, *codes)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the inputs; two codes need only one."""
        name = self.column.name
        if self.encoding == "ordinal":
            return (name,)
        if self.is_number:
            return (name, f"{name}²") if name == "AGEP" else (name,)
        words = {0: "none", **dict(self.column.ranges)} if self.column.ranges else {}
        names = tuple(f"{name}={words.get(code, code)}" for code in self.vocabulary)
        return names[:1] if len(names) == 2 else names

    @property
    def between(self) -> dict[str, tuple[float, float]]:
        """What its inputs are between, by the questionnaire; incomes have none."""
        names = self.features
        if self.is_number:
            end = LARGEST.get(self.column.name)
            return (
                {} if end is None else {n: (0, end**k) for k, n in enumerate(names, 1)}
            )
        ends = (self.vocabulary[0], self.vocabulary[-1])
        return dict.fromkeys(names, ends if self.encoding == "ordinal" else (0, 1))

    def pack(self, values: FloatArray) -> tuple[Packed, Counter[float]]:
        """Return numbers or places in the vocabulary, and the values without one."""
        known = np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)
        bad = ~np.isfinite(known)
        if self.is_number:
            return known, Counter(known[bad].tolist())
        vocabulary = np.array(self.vocabulary)
        place = np.searchsorted(vocabulary, known, side="right") - 1
        bad |= place < 0
        if not self.column.ranges:
            bad |= vocabulary[place] != known
        packed = np.where(bad, UNKNOWN, place).astype(np.uint8)
        return packed, Counter(known[bad].tolist())

    def write(self, packed: Packed, out: NDArray[np.floating]) -> None:
        """Write the inputs of some rows into `out`, (n, features)."""
        if self.is_number:
            out[:, 0] = packed
            if out.shape[1] == 2:
                out[:, 1] = np.square(packed)
        elif self.encoding == "ordinal":
            out[:, 0] = np.array(self.vocabulary)[packed.astype(np.intp)]
        elif out.shape[1] == 1:
            out[:, 0] = packed == 0
        else:
            for place in range(out.shape[1]):
                np.equal(packed, place, out=out[:, place])


TaskName = Literal["employment", "income", "public_coverage"]
Filter = Literal["folktables", "filtered"]

COMPARE: dict[str, Callable[[FloatArray, float], BoolArray]] = {
    ">": np.greater,
    "≥": np.greater_equal,
    "<": np.less,
    "≤": np.less_equal,
    "=": np.equal,
}


def holds(condition: str, columns: Mapping[str, FloatArray]) -> BoolArray:
    """Where a condition such as ``AGEP > 16`` holds; never for a missing value."""
    column, sign, value = condition.split()
    return COMPARE[sign](columns[column], float(value))


@dataclass(frozen=True)
class Task:
    """What is predicted of whom, from what.

    Attributes
    ----------
    inputs
        Columns, protected ones included.
    positive, labels
        The condition for label 1, and the names of labels 0 and 1.
    conditions
        The filter.
    lowest_age
        Nobody younger passes the filter.
    """

    inputs: tuple[str, ...]
    positive: str
    labels: tuple[str, str]
    conditions: tuple[str, ...] = ()
    lowest_age: int = 0

    @property
    def label(self) -> str:
        """Column of the label."""
        return self.positive.split()[0]

    @property
    def needed(self) -> tuple[str, ...]:
        """Every column that is read."""
        filtered = (condition.split()[0] for condition in self.conditions)
        return tuple(dict.fromkeys((*self.inputs, self.label, *filtered)))

    def keep(self, columns: Mapping[str, FloatArray]) -> BoolArray:
        """Rows that pass the filter; a condition on an absent column is passed."""
        rows = len(next(iter(columns.values())))
        kept: BoolArray = np.ones(rows, dtype=bool)
        for condition in self.conditions:
            if condition.split()[0] in columns:
                kept &= holds(condition, columns)
        return kept


TASKS: dict[tuple[str, str], Task] = {
    ("employment", "folktables"): Task(
        (
            "AGEP", "SCHL", "MAR", "RELP", "DIS", "ESP", "CIT", "MIG", "MIL", "ANC",
            "NATIVITY", "DEAR", "DEYE", "DREM", "SEX", "RAC1P",
        ),
        "ESR = 1",
        ("not employed", "employed"),
    ),
    ("employment", "filtered"): Task(
        (
            "AGEP", "SCHL", "MAR", "SEX", "DIS", "ESP", "MIG", "CIT", "MIL", "ANC",
            "NATIVITY", "RELP", "DEAR", "DEYE", "DREM", "RAC1P", "GCL",
        ),
        "ESR = 1",
        ("not employed", "employed"),
        ("AGEP > 16", "AGEP < 90", "PWGTP ≥ 1"),
        lowest_age=17,
    ),
    ("income", "folktables"): Task(
        (
            "AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX",
            "RAC1P",
        ),
        "PINCP > 50000",
        ("at most $50,000", "over $50,000"),
        ("AGEP > 16", "PINCP > 100", "WKHP > 0", "PWGTP ≥ 1"),
        lowest_age=17,
    ),
    ("public_coverage", "folktables"): Task(
        (
            "AGEP", "SCHL", "MAR", "SEX", "DIS", "ESP", "CIT", "MIG", "MIL", "ANC",
            "NATIVITY", "DEAR", "DEYE", "DREM", "PINCP", "ESR", "ST", "FER", "RAC1P",
        ),
        "PUBCOV = 1",
        ("not covered", "publicly covered"),
        ("AGEP < 65", "PINCP ≤ 30000"),
    ),
}  # fmt: skip


def check_task(task: str, filter: str, problems: Problems) -> None:
    """Note a task or a filter that there is not."""
    names = list(dict.fromkeys(name for name, _ in TASKS))
    filters = [which for name, which in TASKS if name == task]
    if not filters:
        problems.add(
            f"[wrong-value] 'task' must be one of {names}. Got '{task}' instead."
        )
    elif filter not in filters:
        problems.add(
            f"[wrong-value] 'filter' must be one of {filters} for '{task}'. Got "
            f"'{filter}' instead."
        )
