"""Tilted empirical risk over groups, and a bound on the mean loss of each label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pffl.constraints import EVERY_SILO, Cells, Constraint
from pffl.data import Schema
from pffl.flow import Round, Start, Steps
from pffl.methods.base import Positive
from pffl.methods.local import Descent, Objective, Trainer
from pffl.problem import Point, Problem


@dataclass(frozen=True, kw_only=True)
class TiltedLoss(Descent):
    """Tilted empirical risk over the cells of the constraint."""

    tilt: Positive = 2.0
    name: ClassVar[str] = "tilted-loss"

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Train, and weigh the cells by what comes back."""
        own = problem.over(problem.cells)  # step sizes come from the cells' curvature
        trainer, w = Trainer(problem, self, own), problem.start()  # line 1
        yield from trainer.tune()
        lam = problem.counts / problem.counts.sum()
        for _ in range(self.rounds):  # line 2
            L = trainer.smoothness(lam)
            weighed = Objective(problem.task, own.cell_weights(lam), 0.0, problem.mu, L)
            w, total = yield from trainer.descend(w, weighed)  # lines 3 and 4
            r = problem.violation_among(total.cell_losses, trainer.silos)
            losses = r + problem.cells.bounds
            losses = np.where(np.isnan(losses), np.nanmean(losses), losses)  # not asked
            lam = problem.counts * np.exp(self.tilt * (losses - losses.max()))
            lam = lam / lam.sum()  # line 5
            yield Round(Point(w, np.zeros(problem.n_cells)))
        return Point(w, np.zeros(problem.n_cells))  # line 6


@dataclass(frozen=True)
class BoundedLabelLoss(Constraint):
    """``mean loss of the rows with label y ≤ ζ_y`` for every label.

    With logistic loss misses and false alarms cannot be traded for each other.
    """

    bound: float | Mapping[str, float]
    name: ClassVar[str] = "label-loss"

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
