"""Prediction tasks on ACS persons, as folktables 0.0.12 defines them.

Ding, Hardt, Miller, Schmidt: *Retiring Adult: New Datasets for Fair Machine Learning*
(NeurIPS 2021): ACSEmployment, ACSEmploymentFiltered, ACSIncome and ACSPublicCoverage,
with their inputs, filters and labels. A comparison with a missing value is false there,
so a row whose filter column is missing is left out; only then do missing values become
0.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pffl.datasets._acs_columns import COLUMNS, Encoding, Input
from pffl.errors import Problems, UsageError
from pffl.typing import BoolArray, FloatArray

TaskName = Literal["employment", "income", "public_coverage"]
Filter = Literal["folktables", "filtered"]

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    "≥": operator.ge,
    "<": operator.lt,
    "≤": operator.le,
    "=": operator.eq,
}


@dataclass(frozen=True)
class Condition:
    """A comparison that a row must pass."""

    column: str
    sign: str
    value: float

    def __str__(self) -> str:
        return f"{self.column} {self.sign} {self.value:g}"

    def holds(self, values: FloatArray) -> BoolArray:
        """Where it holds; never for a missing value."""
        return np.asarray(COMPARE[self.sign](values, self.value), dtype=bool)


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
    positive: Condition
    labels: tuple[str, str]
    conditions: tuple[Condition, ...] = ()
    lowest_age: int = 0

    @property
    def needed(self) -> tuple[str, ...]:
        """Every column that is read."""
        filtered = (condition.column for condition in self.conditions)
        return tuple(dict.fromkeys((*self.inputs, self.positive.column, *filtered)))

    def bind(
        self, encoding: Encoding, without: tuple[str, ...], absent: tuple[str, ...]
    ) -> tuple[Input, ...]:
        """Inputs but for the protected columns and those that the source lacks."""
        return tuple(
            Input(COLUMNS[name], encoding, self.lowest_age)
            for name in self.inputs
            if name not in without and name not in absent
        )

    def keep(self, columns: Mapping[str, FloatArray]) -> BoolArray:
        """Rows that pass the filter; a condition on an absent column is passed."""
        rows = len(next(iter(columns.values())))
        kept: BoolArray = np.ones(rows, dtype=bool)
        for condition in self.conditions:
            if condition.column in columns:
                kept &= condition.holds(columns[condition.column])
        return kept


_EMPLOYED = Condition("ESR", "=", 1)
_EMPLOYMENT_INPUTS = (
    "AGEP", "SCHL", "MAR", "RELP", "DIS", "ESP", "CIT", "MIG", "MIL", "ANC",
    "NATIVITY", "DEAR", "DEYE", "DREM", "SEX", "RAC1P",
)  # fmt: skip
_FILTERED_INPUTS = (
    "AGEP", "SCHL", "MAR", "SEX", "DIS", "ESP", "MIG", "CIT", "MIL", "ANC",
    "NATIVITY", "RELP", "DEAR", "DEYE", "DREM", "RAC1P", "GCL",
)  # fmt: skip
_INCOME_INPUTS = (
    "AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P",
)  # fmt: skip
_COVERAGE_INPUTS = (
    "AGEP", "SCHL", "MAR", "SEX", "DIS", "ESP", "CIT", "MIG", "MIL", "ANC",
    "NATIVITY", "DEAR", "DEYE", "DREM", "PINCP", "ESR", "ST", "FER", "RAC1P",
)  # fmt: skip

TASKS: dict[tuple[str, str], Task] = {
    ("employment", "folktables"): Task(
        _EMPLOYMENT_INPUTS, _EMPLOYED, ("not employed", "employed")
    ),
    ("employment", "filtered"): Task(
        _FILTERED_INPUTS,
        _EMPLOYED,
        ("not employed", "employed"),
        (
            Condition("AGEP", ">", 16),
            Condition("AGEP", "<", 90),
            Condition("PWGTP", "≥", 1),
        ),
        lowest_age=17,
    ),
    ("income", "folktables"): Task(
        _INCOME_INPUTS,
        Condition("PINCP", ">", 50_000),
        ("at most $50,000", "over $50,000"),
        (
            Condition("AGEP", ">", 16),
            Condition("PINCP", ">", 100),
            Condition("WKHP", ">", 0),
            Condition("PWGTP", "≥", 1),
        ),
        lowest_age=17,
    ),
    ("public_coverage", "folktables"): Task(
        _COVERAGE_INPUTS,
        Condition("PUBCOV", "=", 1),
        ("not covered", "publicly covered"),
        (Condition("AGEP", "<", 65), Condition("PINCP", "≤", 30_000)),
    ),
}


def find_task(task: str, filter: str) -> Task:
    """Return the task, or say which there are."""
    names = list(dict.fromkeys(name for name, _ in TASKS))
    filters = [which for name, which in TASKS if name == task]
    with Problems("acs", UsageError) as problems:
        if task not in names:
            problems.add(f"'task' must be one of {names}. Got '{task}' instead.")
        elif filter not in filters:
            problems.add(
                f"'filter' must be one of {filters} for '{task}'. "
                f"Got '{filter}' instead."
            )
    return TASKS[task, filter]
