"""λ of Algorithm 1 where somebody else trains: lines 3 and 8 alone.

    λ_z ← B e^{θ_z} / (1 + Σ e^θ)          numerics.capped_softmax
    θ ← θ + η_θ r(w)                       after every round, r at the w that was sent

Whoever trains is given a weight for each example, c_i(λ) in parts of its mean over all
rows, β + Σλ. There is no proof for a model of any kind: the pair is measured at the
end, and whether losses still swing tells a step that was too long.

A server's momentum goes on where λ has pushed, and swings by itself: Flower's FedAdam
does, with its defaults, under weights that never change. So a step of our own looks
ahead. If what losses changed by in a round is c times what they changed by in the one
before, they will go on by c/(1 − c) of the last change, and λ is that of θ and a step
along it. c is measured, and it is 0 where losses answer at once, or only noise moves
them. Where r stands still nothing is added: fixed points are those of lines 3 and 8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pffl.methods.step_sizes import anytime_dual_step
from pffl.numerics import capped_softmax
from pffl.problem import Problem
from pffl.typing import FloatArray

SLOWEST = 0.1  # part of the step that is taken at least
MEMORY = 0.8  # of the round before, in what is known of how changes go on
FARTHEST = 0.75  # the largest c: three times the last change


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
        was ahead of the training.
    last, change
        r of the last round, and by how much it had changed then.
    along, moved
        Products of a change with the one before it, and their squares; c is the ratio.
    ahead
        What is added to θ for changes that are still to come.
    """

    theta: FloatArray
    step_size: float | None = None
    squares: float = 0.0
    pace: float = 1.0
    worst: int | None = None
    last: FloatArray | None = None
    change: FloatArray | None = None
    along: float = 0.0
    moved: float = 0.0
    ahead: FloatArray | float = 0.0

    def multipliers(self, bound: float) -> FloatArray:
        """Line 3: λ."""
        return capped_softmax(self.theta + self.ahead, bound)

    def after(self, violation: FloatArray) -> Ascent:
        """Line 8; a cell that nobody reported does not move its θ."""
        r = np.nan_to_num(violation)
        squares = self.squares + float(np.square(np.abs(r).max(initial=0.0)))
        worst, pace = int(r.argmax()), self.pace
        if r[worst] > 0 and self.worst not in (None, worst):
            pace = max(SLOWEST, 0.5 * pace)
        free = anytime_dual_step(squares, len(r))
        eta = pace * free if self.step_size is None else self.step_size
        theta = self.theta + eta * r
        known = replace(self, theta=theta, squares=squares, pace=pace, worst=worst)
        return known._looking(violation, free if self.step_size is None else 0.0)

    def _looking(self, violation: FloatArray, eta: float) -> Ascent:
        """Look ahead by a step along the change of r that is still to come."""
        if self.last is None:
            return replace(self, last=violation)
        change = np.nan_to_num(violation - self.last)
        before, along, moved = self.change, self.along, self.moved
        if before is not None:
            along = MEMORY * along + float(change @ before)
            moved = MEMORY * moved + 0.5 * float(change @ change + before @ before)
        c = min(max(along / moved, 0.0), FARTHEST) if moved > 0 else 0.0
        ahead = eta * c / (1.0 - c) * change
        seen = replace(self, last=violation, change=change, ahead=ahead)
        return replace(seen, along=along, moved=moved)


def example_weights(problem: Problem, multipliers: FloatArray) -> FloatArray:
    """Return what examples weigh by silo, group and label, shape (K, groups, labels).

    It is c_i(λ) over its mean, with p_k by rows: (β + Σ_{z∋i} λ_z m/m_z)/(β + Σλ).
    """
    silos, schema = len(problem.silo_names), problem.schema
    mass, beta = float(problem.masses.sum()), problem.risk_weight
    own = problem.cells.spread(problem.cell_weights(multipliers), silos)
    found = (beta + mass * own) / (beta + float(multipliers.sum()))
    return found.reshape(silos, len(schema.groups), schema.n_labels)
