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

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pffl.typing import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

Encoding = Literal["onehot", "ordinal"]

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
OLDEST = 130
LARGEST = {"AGEP": 100.0, "WKHP": 99.0}  # years; hours a week


@dataclass(frozen=True, eq=False)
class Input:
    """How one column becomes inputs.

    Attributes
    ----------
    column, features
        Where values come from, and the names of the inputs.
    codes, written
        Codes in order, and what the inputs of each are; None: a number.
    between
        What inputs are between, by the questionnaire; incomes have no ends.
    """

    column: Column
    features: tuple[str, ...]
    codes: IntArray | None
    written: FloatArray | None
    between: dict[str, tuple[float, float]]

    @classmethod
    def of(cls, column: Column, encoding: Encoding, lowest_age: int) -> Input:
        """Build for an encoding, where nobody is younger than the lowest age."""
        name, ordinal = column.name, encoding == "ordinal"
        starts = dict(column.ranges)
        if not column.codes and (ordinal or not starts):
            features: tuple[str, ...] = (name,)
            if name == "AGEP" and not ordinal:
                features = (name, f"{name}²")
            end = LARGEST.get(name)
            ends = {f: (0.0, end**k) for k, f in enumerate(features, 1)} if end else {}
            return cls(column, features, None, None, ends)
        codes = column.codes or tuple(starts)
        if column.asked_from is None or column.asked_from > lowest_age:
            codes = (0, *codes)  # not asked
        values = np.array(codes)
        if ordinal:
            between = {name: (float(codes[0]), float(codes[-1]))}
            return cls(column, (name,), values, values[:, None].astype(float), between)
        words = {0: "none", **starts} if starts else {}
        features = tuple(f"{name}={words.get(code, code)}" for code in codes)
        one_hot = np.eye(len(codes))
        if len(codes) == 2:  # two codes need only one input
            features, one_hot = features[:1], one_hot[:, :1]
        between = dict.fromkeys(features, (0.0, 1.0))
        return cls(column, features, values, one_hot, between)

    def unknown(self, values: FloatArray) -> FloatArray:
        """Return the values that the data dictionary does not have."""
        bad = ~np.isfinite(values)
        if self.column.name == "AGEP":
            bad |= (values < 0) | (values > OLDEST)
        if self.codes is not None:
            bad |= values < self.codes[0]
            if not self.column.ranges:
                bad |= ~np.isin(values, self.codes)
        return values[bad]

    def write(self, values: NDArray[Any]) -> FloatArray:
        """Return the inputs of some rows, shape (rows, features)."""
        if self.codes is None or self.written is None:
            powers = range(1, len(self.features) + 1)
            return np.stack([values.astype(np.float64) ** k for k in powers], axis=1)
        return self.written[np.searchsorted(self.codes, values, side="right") - 1]


TaskName = Literal["employment", "income", "public_coverage"]
Filter = Literal["folktables", "filtered"]


COMPARISONS: dict[str, Callable[[Any, float], Any]] = {
    "<": operator.lt,
    ">": operator.gt,
    "≤": operator.le,
    "≥": operator.ge,
    "==": operator.eq,
}


def holds(condition: str, persons: pd.DataFrame) -> BoolArray:
    """Where a condition such as ``AGEP > 16`` holds; never for a missing value."""
    column, sign, value = condition.split()
    return np.asarray(COMPARISONS[sign](persons[column], float(value)), dtype=bool)


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

    def keep(self, persons: pd.DataFrame) -> BoolArray:
        """Rows that pass the filter; a condition on an absent column is passed."""
        kept = np.ones(len(persons), dtype=bool)
        for condition in self.conditions:
            if condition.split()[0] in persons:
                kept &= holds(condition, persons)
        return kept


TASKS: dict[tuple[str, str], Task] = {
    ("employment", "folktables"): Task(
        (
            "AGEP", "SCHL", "MAR", "RELP", "DIS", "ESP", "CIT", "MIG", "MIL", "ANC",
            "NATIVITY", "DEAR", "DEYE", "DREM", "SEX", "RAC1P",
        ),
        "ESR == 1",
        ("not employed", "employed"),
    ),
    ("employment", "filtered"): Task(
        (
            "AGEP", "SCHL", "MAR", "SEX", "DIS", "ESP", "MIG", "CIT", "MIL", "ANC",
            "NATIVITY", "RELP", "DEAR", "DEYE", "DREM", "RAC1P", "GCL",
        ),
        "ESR == 1",
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
        "PUBCOV == 1",
        ("not covered", "publicly covered"),
        ("AGEP < 65", "PINCP ≤ 30000"),
    ),
}  # fmt: skip
