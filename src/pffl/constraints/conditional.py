"""Conditional bounded group loss: bounds per group *and* label.

Reference: Hu, Wu, Smith, Definition 2 (with Pr[h(x) ≠ y]: see docs/paper.md).
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
    find_cell,
    group_cells,
    settled,
)
from pffl.constraints.group_loss import attribute_names, describe, one_bound, title
from pffl.data.schema import Schema
from pffl.errors import UsageError


@dataclass(frozen=True)
class ConditionalBoundedGroupLoss(Constraint):
    """``mean loss of group a among label y ≤ ζ_{a,y}``, for the labels asked for.

    Parameters
    ----------
    bound
        ζ: one number; a mapping from label to number; or from cell name
        ("Female, recidivism") to number. What it does not name is not bounded; "auto"
        as for `BoundedGroupLoss`.
    labels
        Label names (or codes) to constrain; None for all of them.
    by, upper_bound
        As for `BoundedGroupLoss`.

    Raises
    ------
    UsageError
        There is no bound, or two, or one that is no number.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> bounds = pffl.ConditionalBoundedGroupLoss(0.68, labels=["class 1"])
    >>> solution = pffl.solve(people, bounds, seed=0)
    >>> list(solution.cells.index), solution.status
    (['f, class 1', 'm, class 1'], 'met')
    """

    bound: Bound = None
    labels: tuple[str | int, ...] | None = None
    by: str | tuple[str, ...] | None = None
    upper_bound: float | None = None
    name: ClassVar[str] = "cbgl"

    def __post_init__(self) -> None:
        bound = one_bound(self.bound, self.upper_bound, type(self).__name__)
        object.__setattr__(self, "bound", bound)
        object.__setattr__(self, "upper_bound", None)

    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """One cell per group and label."""
        labels = label_codes(schema, self.labels)
        names, groups = group_cells(schema, attribute_names(self.by))
        pairs = [(g, y) for y in labels for g in range(len(names))]
        label_names = schema.label_names
        cells = Cells(
            tuple(f"{names[g]}, {label_names[y]}" for g, y in pairs),
            np.zeros(len(pairs)),
            np.array([np.kron(groups[g], np.eye(schema.n_labels)[y]) for g, y in pairs])
            > 0,
            np.full(len(pairs), EVERY_SILO),
        )
        owner = type(self).__name__
        if isinstance(self.bound, Mapping):
            of_label = {
                place: value
                for name, value in self.bound.items()
                if (place := find_cell(name, label_names)) is not None
            }
            if len(of_label) == len(self.bound):
                unasked = [schema.labels[y] for y in of_label if y not in labels]
                if unasked:
                    raise UsageError(
                        f"[unknown-label] {owner}: bounds for labels {unasked}, which "
                        "'labels' does not ask for"
                    )
                per_label = {
                    cell: of_label[y]
                    for cell, (_, y) in zip(cells.names, pairs, strict=True)
                    if y in of_label
                }
                return cells.bounded(per_label, owner)
        return cells.bounded(self.bound, owner, label_names)

    def at(self, bound: float) -> ConditionalBoundedGroupLoss:
        """Return the constraint with this bound wherever it has ``"auto"``."""
        return replace(self, bound=settled(self.bound, bound))

    @property
    def title(self) -> str:
        """The attributes that cut out the groups."""
        return title(self.by) or self.name

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        labels = None if self.labels is None else list(self.labels)
        return {**describe(self.name, self.bound, self.by), "labels": labels}


def label_codes(schema: Schema, labels: Sequence[str | int] | None) -> list[int]:
    """Codes of the labels asked for, by name or code."""
    if not schema.labels:
        raise UsageError(
            "[numeric-target] a conditional bound needs classes, and the target is "
            "numeric: use BoundedGroupLoss"
        )
    codes = []
    for label in range(schema.n_labels) if labels is None else labels:
        place = find_cell(str(label), schema.label_names)
        if place is not None:
            codes.append(place)
        elif str(label).isdigit() and int(label) < schema.n_labels:
            codes.append(int(label))
        else:
            raise UsageError(
                f"[unknown-label] no label {label!r}: there are {list(schema.labels)}"
            )
    return codes
