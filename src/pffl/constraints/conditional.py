"""Conditional bounded group loss: bounds per group *and* label.

Reference: Hu, Wu, Smith, Definition 2 (with Pr[h(x) ≠ y]: see docs/paper.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pffl.constraints.base import (
    EVERY_SILO,
    Cells,
    Constraint,
    group_cells,
    resolve_bounds,
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
        ("Female, recidivism") to number.
    labels
        Label names (or codes) to constrain; None for all of them.
    by, upper_bound
        As for `BoundedGroupLoss`.
    """

    bound: float | Mapping[str, float] | None = None
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
        cell_names = tuple(f"{names[g]}, {schema.labels[y]}" for g, y in pairs)
        bound = self.bound
        if isinstance(bound, Mapping) and set(bound) <= set(schema.labels):
            asked = {schema.labels[y] for y in labels}
            unasked = [label for label in bound if label not in asked]
            if unasked:
                raise UsageError(
                    f"{type(self).__name__}: bounds for labels {unasked}, which "
                    "'labels' does not ask for"
                )
            per_label = {
                cell: bound[schema.labels[y]]
                for cell, (_, y) in zip(cell_names, pairs, strict=True)
                if schema.labels[y] in bound
            }
            bound = per_label
        return Cells(
            cell_names,
            resolve_bounds(bound, cell_names, type(self).__name__),
            np.array([np.kron(groups[g], np.eye(schema.n_labels)[y]) for g, y in pairs])
            > 0,
            np.full(len(pairs), EVERY_SILO),
        )

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
            "a conditional bound needs classes, and the target is numeric: use "
            "BoundedGroupLoss"
        )
    codes = []
    for label in range(schema.n_labels) if labels is None else labels:
        if label in schema.labels:
            codes.append(schema.labels.index(str(label)))
        elif str(label).isdigit() and int(label) < schema.n_labels:
            codes.append(int(label))
        else:
            raise UsageError(f"no label {label!r}: there are {list(schema.labels)}")
    return codes
