"""Bounded group loss: every group's mean loss stays under a bound.

Reference: Agarwal, Dudík, Wu 2019, Definition 2; Hu, Wu, Smith, Definition 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pffl.constraints.base import (
    EVERY_SILO,
    Bound,
    Cells,
    Constraint,
    check_bound,
    group_cells,
    settled,
)
from pffl.data.schema import Schema
from pffl.errors import Problems, UsageError


@dataclass(frozen=True)
class BoundedGroupLoss(Constraint):
    """``mean loss of group a ≤ ζ_a`` for every group.

    Parameters
    ----------
    bound
        ζ: one number for all groups, or a mapping from group to number; groups that it
        does not name are not bounded. "auto" instead of a number lets `solve` choose
        one number on training rows that are set aside (see `choosing`).
    by
        Attributes that cut out the groups: None for all of them crossed, one name, or
        several names (crossed). Join constraints with ``&`` for overlapping cells.
    upper_bound
        fairlearn's name for `bound`.

    Raises
    ------
    UsageError
        There is no bound, or two, or one that is no number.

    Examples
    --------
    >>> both = BoundedGroupLoss(0.6, by="sex") & BoundedGroupLoss(0.7, by="race")
    """

    bound: Bound = None
    by: str | tuple[str, ...] | None = None
    upper_bound: float | None = None
    name: ClassVar[str] = "bgl"

    def __post_init__(self) -> None:
        bound = one_bound(self.bound, self.upper_bound, type(self).__name__)
        object.__setattr__(self, "bound", bound)
        object.__setattr__(self, "upper_bound", None)

    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """One cell per group."""
        names, groups = group_cells(schema, attribute_names(self.by))
        member = np.repeat(groups, schema.n_labels, axis=1)
        everywhere = np.full(len(names), EVERY_SILO)
        cells = Cells(names, np.zeros(len(names)), member, everywhere)
        return cells.bounded(self.bound, type(self).__name__)

    def at(self, bound: float) -> BoundedGroupLoss:
        """Return the constraint with this bound wherever it has ``"auto"``."""
        return replace(self, bound=settled(self.bound, bound))

    @property
    def title(self) -> str:
        """The attributes that cut out the groups."""
        return title(self.by) or self.name

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        return describe(self.name, self.bound, self.by)


def attribute_names(by: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Accept one name where several are possible."""
    return (by,) if isinstance(by, str) else None if by is None else tuple(by)


def title(by: str | Sequence[str] | None) -> str:
    """Attributes in one word."""
    return " × ".join(attribute_names(by) or ())


def one_bound(bound: Bound, upper_bound: float | None, owner: str) -> Bound:
    """Take `bound` or its other name, and check every number of it."""
    with Problems(owner, UsageError) as problems:
        if (bound is None) == (upper_bound is None):
            problems.add(
                "[needs-bound] give `bound=NUMBER` (or 'upper_bound'), and only one"
            )
        chosen = upper_bound if bound is None else bound
        if isinstance(chosen, Mapping):
            for cell, value in chosen.items():
                check_bound(value, f"bound of {cell}", owner, problems)
        elif chosen is not None:
            check_bound(chosen, "bound", owner, problems)
    return 0.0 if chosen is None else chosen


def describe(
    kind: str, bound: Bound, by: str | Sequence[str] | None
) -> Mapping[str, object]:
    """Plain form of a constraint with bounds and attributes."""
    plain = dict(bound) if isinstance(bound, Mapping) else bound
    names = attribute_names(by)
    return {"kind": kind, "bound": plain, "by": None if names is None else list(names)}
