"""λ where another program trains: projected ascent, from 0.

    λ ← [λ + η (r(w) + margin)]₊ within Σλ ≤ B      after every round, r at the w sent

A cell that never exceeds its bound has λ = 0, exactly: until one does, weights are 1
and the iterates those without bounds. A cell with λ > 0 aims below its bound by a
margin: otherwise it would come near it from above, and never be there. Without a risk
(β = 0) nothing would be descended at λ = 0, and λ begins at B/Z.

Whoever trains is given a weight for each example, c_i(λ) in parts of its mean over all
rows, β + Σλ. The model follows the shares of that sum, so steps grow with it:
η = 0.8 √(β(β + Σλ)) / √(s² + Σρ²), with ρ = max|r| of the cells that count, in units
of what a constant guess loses. There is no proof for a model of any kind: the pair is
measured at the end, and whether losses still swing tells a step that was too long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pffl.numerics import project_capped_simplex
from pffl.problem import Problem, upper_value
from pffl.typing import FloatArray

STEP = 0.8
MARGIN = 0.02  # of the unit: how far below its bound a cell aims that has exceeded it
FIRST = 0.25  # s: of the unit, so that a small first r makes no long step
SLOWEST = 0.1  # part of the step that is taken at least


@dataclass(frozen=True, eq=False)
class Ascent:
    """Where λ stands.

    Attributes
    ----------
    multipliers
        λ, shape (Z,).
    bound, risk_weight, unit
        B, β and what a constant guess loses, as a mean over cells.
    step_size
        η; None takes the one above.
    squares
        Σρ² over the rounds so far.
    pace, worst
        What part of that step is taken, and the cell that was worst in the last round:
        half as much each time that another one takes its place above its bound. Then λ
        was ahead of the training.
    """

    multipliers: FloatArray
    bound: float
    risk_weight: float = 1.0
    unit: float = 1.0
    step_size: float | None = None
    squares: float = 0.0
    pace: float = 1.0
    worst: int | None = None

    @classmethod
    def begin(cls, problem: Problem, step_size: float | None) -> Ascent:
        """Begin at 0; without a risk, at B/Z."""
        B, beta, many = problem.multiplier_bound, problem.risk_weight, problem.n_cells
        start = np.full(many, 0.0 if beta > 0 else B / max(1, many))
        return cls(start, B, beta, float(problem.scales.mean()), step_size)

    def after(self, violation: FloatArray) -> Ascent:
        """Take a step; a cell that no silo reported does not move its λ."""
        lam, beta = self.multipliers, self.risk_weight
        counts = ~np.isnan(violation) & ((violation > 0) | (lam > 0))
        r = np.nan_to_num(violation / self.unit) + MARGIN * counts
        squares = self.squares + float(np.square(r[counts]).max(initial=0.0))
        worst, pace = int(r.argmax()), self.pace
        if r[worst] > 0 and self.worst not in (None, worst):
            pace = max(SLOWEST, 0.5 * pace)
        total = beta + float(lam.sum())
        eta = pace * STEP * math.sqrt((beta or total) * total)
        eta /= math.sqrt(FIRST**2 + squares)
        if self.step_size is not None:
            eta = self.step_size * self.unit
        lam = project_capped_simplex(lam + eta * r, self.bound)
        return replace(self, multipliers=lam, squares=squares, pace=pace, worst=worst)


def example_weights(problem: Problem, multipliers: FloatArray) -> FloatArray:
    """Return what examples weigh by silo, group and label, shape (K, groups, labels).

    It is c_i(λ) over its mean, with p_k by rows: (β + Σ_{z∋i} λ_z m/m_z)/(β + Σλ).
    """
    silos, schema = len(problem.silo_names), problem.schema
    mass, beta = float(problem.masses.sum()), problem.risk_weight
    own = problem.cells.spread(problem.cell_weights(multipliers), silos)
    found = (beta + mass * own) / (beta + float(multipliers.sum()))
    return found.reshape(silos, len(schema.groups), schema.n_labels)


def rank(
    problem: Problem, risk: float, violation: FloatArray, *, minimax: bool
) -> tuple[bool, float]:
    """Return whether a bound is missed, and βF + B·max(0, max r): less is best."""
    missed = not (violation <= 0).all() and not minimax
    return bool(missed), upper_value(risk, violation, problem)
