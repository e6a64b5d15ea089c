"""λ of Algorithm 1 where somebody else trains: lines 3 and 8 alone.

    λ_z ← B e^{θ_z} / (1 + Σ e^θ)          numerics.capped_softmax
    θ ← θ + η_θ r(w)                       after every round, r at the w that was sent

Whoever trains is given a weight for each example, c_i(λ) in parts of its mean over all
rows, β + Σλ. There is no proof for a model of any kind: the pair is measured at the
end, and whether losses still swing tells a step that was too long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pffl.methods.step_sizes import anytime_dual_step
from pffl.numerics import capped_softmax
from pffl.problem import Problem
from pffl.typing import FloatArray

SLOWEST = 0.1  # part of the step that is taken at least


@dataclass(frozen=True, eq=False)
class Ascent:
    """Where λ stands.

    Attributes
    ----------
    theta
        θ, shape (Z,).
    step_size
        η_θ; None takes one from the r so far, see `anytime_dual_step`.
    squares
        Σ max|r|² over the rounds so far.
    pace, worst
        What part of that step is taken, and the cell that was worst in the last round:
        half as much each time that another one takes its place above its bound. Then λ
        was ahead of the training, as it soon is of a server's momentum.
    """

    theta: FloatArray
    step_size: float | None = None
    squares: float = 0.0
    pace: float = 1.0
    worst: int | None = None

    def multipliers(self, bound: float) -> FloatArray:
        """Line 3: λ."""
        return capped_softmax(self.theta, bound)

    def after(self, violation: FloatArray) -> Ascent:
        """Line 8; a cell that nobody reported does not move its θ."""
        r = np.nan_to_num(violation)
        squares = self.squares + float(np.square(np.abs(r).max(initial=0.0)))
        worst, pace = int(r.argmax()), self.pace
        if r[worst] > 0 and self.worst not in (None, worst):
            pace = max(SLOWEST, 0.5 * pace)
        eta = self.step_size
        if eta is None:
            eta = pace * anytime_dual_step(squares, len(r))
        theta = self.theta + eta * r
        return replace(self, theta=theta, squares=squares, pace=pace, worst=worst)


def example_weights(problem: Problem, multipliers: FloatArray) -> FloatArray:
    """Return what examples weigh by silo, group and label, shape (K, groups, labels).

    It is c_i(λ) over its mean, with p_k by rows: (β + Σ_{z∋i} λ_z m/m_z)/(β + Σλ).
    """
    silos, schema = len(problem.silo_names), problem.schema
    mass, beta = float(problem.masses.sum()), problem.risk_weight
    own = problem.cells.spread(problem.cell_weights(multipliers), silos)
    found = (beta + mass * own) / (beta + float(multipliers.sum()))
    return found.reshape(silos, len(schema.groups), schema.n_labels)
