"""A constraint of your own in about 30 lines: a bound on the mean loss of each label.

A constraint says which rows belong to which cell, and what each cell's bound is. Each
row is in one stratum, its group and label (code ``group · labels + label``); a cell
is a set of strata, in one silo or in all. Nothing else has to be written: every method,
engine, verdict and report works with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import pffl
from pffl.constraints import EVERY_SILO, Cells, Constraint
from pffl.data import Schema


@dataclass(frozen=True)
class BoundedLabelLoss(Constraint):
    """``mean loss of the rows with label y ≤ ζ_y`` for every label.

    With logistic loss misses and false alarms cannot be traded for each other.
    """

    bound: float | Mapping[str, float]
    name: ClassVar[str] = "label"

    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """One cell per label, whatever the group, over all silos."""
        labels = np.arange(schema.n_strata) % schema.n_labels
        cells = Cells(
            schema.label_names,
            np.zeros(schema.n_labels),
            labels == np.arange(schema.n_labels)[:, None],
            np.full(schema.n_labels, EVERY_SILO),
        )
        return cells.bounded(self.bound, type(self).__name__)

    def describe(self) -> Mapping[str, object]:
        """Plain form, for `result.json`."""
        bound = self.bound
        return {
            "kind": self.name,
            "bound": dict(bound) if isinstance(bound, Mapping) else bound,
        }


def main() -> None:
    """Bound the loss of both labels, alone and together with a bound per group."""
    federation = pffl.datasets.synthetic(
        3000, silos=5, groups=2, features=6, random_state=2
    )
    labels = BoundedLabelLoss({"class 0": 0.6, "class 1": 0.53})
    groups = pffl.BoundedGroupLoss(0.63)
    for constraint in (labels, groups & labels):
        solution = pffl.solve(
            federation,
            constraint,
            method=pffl.methods.Exact(multiplier_bound=50),
            random_state=0,
        )
        print(f"{solution.status}: {solution.message}")
        print(solution.cells[["bound", "count", "train_loss", "multiplier"]], "\n")


if __name__ == "__main__":
    main()
