"""Tilted empirical risk over groups, and a bound on the mean loss of each label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pffl.constraints import Cells, Constraint
from pffl.constraints.base import EVERY_SILO
from pffl.data import Schema
from pffl.methods.descent import Descent, Objective, State
from pffl.methods.step_sizes import weighted_smoothness
from pffl.problem import Problem
from pffl.queries import TrainTotal
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Weights(State):
    """Where the method stands."""

    weights: FloatArray  # λ, one per cell


@dataclass(frozen=True, kw_only=True)
class TiltedLoss(Descent[Weights]):
    """Tilted empirical risk over the cells of the constraint."""

    tilt: float = 2.0
    name: ClassVar[str] = "tilted-loss"

    def __post_init__(self) -> None:
        self.check(positive=("tilt",))

    def own(self, problem: Problem) -> Problem:
        """Step sizes come from the curvature of the cells."""
        return problem.over(problem.cells)

    def start(self, problem: Problem) -> Weights:
        """Line 1."""
        shares = problem.counts / problem.counts.sum()
        return Weights.at_start(problem, weights=shares)

    def tuned(self, problem: Problem, state: Weights) -> Weights:
        """Leave it at that: L follows from the weights of each round."""
        return state

    def objective(self, problem: Problem, state: Weights) -> Objective:
        """Line 3."""
        own = self.own(problem)
        L = weighted_smoothness(state.curvatures, own, state.weights)
        weights = own.cell_weights(state.weights)
        return Objective(problem.task, weights, 0.0, ridge=problem.mu, smoothness=L)

    def step(self, problem: Problem, state: Weights, total: TrainTotal) -> Weights:
        """Lines 4 and 5."""
        asked = self.asked(problem, state.round)
        violation = problem.violation_among(total.cell_losses, asked)
        losses = violation + problem.cells.bounds
        losses = np.where(np.isnan(losses), np.nanmean(losses), losses)  # not asked
        weights = problem.counts * np.exp(self.tilt * (losses - losses.max()))
        moved = self.descend(problem, state, total)
        return replace(moved, weights=weights / weights.sum())


@dataclass(frozen=True)
class BoundedLabelLoss(Constraint):
    """``mean loss of the rows with label y ≤ ζ_y`` for every label.

    With logistic loss misses and false alarms cannot be traded for each other.
    """

    bound: float | Mapping[str, float]
    name: ClassVar[str] = "label-loss"

    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """One cell per label, whatever the group, over all silos."""
        labels = np.arange(schema.n_atoms) % schema.n_labels
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
