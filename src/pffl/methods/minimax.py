"""Descent in w, ascent in weights on a simplex: AFL over silos, FedMinMax over cells.

    min_w max_{λ ∈ simplex}  Σ_z λ_z L_z(w) + (ρ/2)‖w‖²

A step of λ that is too long makes it jump from corner to corner for ever, and the mean
of such rounds is not the minimax model either. So the duality gap of the means over the
last rounds is watched, at no cost: their replies have the losses L at w_t, and with one
full local step the update is the gradient h_t = Σ λ_t ∇L(w_t). For convex losses

    upper   max_z mean L_z(w_t) + (ρ/2) mean ‖w_t‖²  ≥  the largest loss of the mean w
    lower   mean (λ_tᵀL(w_t) − h_tᵀw_t) − ‖mean h_t‖²/(2ρ)  ≤  the minimum at the mean λ

and where the gap does not fall from one stretch of rounds to the next while λ goes to
and fro, η_λ is halved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pffl.methods.base import Count, NonNegative, Positive
from pffl.methods.local import Descent, Objective, Trainer, answered_step
from pffl.problem import Problem
from pffl.queries import TrainTotal
from pffl.text import up
from pffl.typing import FloatArray

STRETCH = 25  # rounds until losses have answered to a step of their weights
CAREFUL = 0.4  # part of the step that their answer allows: w is still on its way
SWING_RATIO = 3.0  # way of λ over the distance that it came: above, it swings
MIN_FALL = 0.9  # of the gap before it, at most: less is no fall
MAX_OPEN_GAP = 1e-2  # in parts of the largest loss; a run that ends above reports it
FAR = 10.0  # times as long as the last w: what is compared with, without a ridge


@dataclass(frozen=True, kw_only=True)
class DescentAscent(Descent):
    """min_w max_{λ ∈ simplex} Σ_z λ_z L_z(w) by gradients, one of each a round.

    Parameters
    ----------
    dual_step_size
        η_λ; None takes √(2/T)/‖L‖ and then, for convex models, what the losses'
        answers to the last step of λ allow, halved while the gap does not fall.
    ridge
        Weight of (ridge/2)‖w‖² in the objective; None for the model's μ, 0 for none, as
        in the papers.
    """

    local_steps: Count = 1
    rounds: Count = 1000
    dual_step_size: Positive | None = None
    ridge: NonNegative | None = None

    def decay(self, problem: Problem) -> float:
        """Weight of (·/2)‖w‖²."""
        return problem.mu if self.ridge is None else self.ridge


class Stretch:
    """Some rounds in a row, added up, and the gap that their means have.

    Attributes
    ----------
    rounds
        How many.
    losses, slopes, plane, square
        Sums of L, h, λᵀL − hᵀw and ‖w‖².
    first, last, path
        λ of the first and of the last of them, and how far it went in between.
    """

    def __init__(self, weights: FloatArray, w: FloatArray) -> None:
        self.rounds = 0
        self.losses, self.slopes = np.zeros_like(weights), np.zeros_like(w)
        self.first = self.last = weights
        self.plane = self.square = self.path = 0.0

    def add(
        self, w: FloatArray, weights: FloatArray, losses: FloatArray, slope: FloatArray
    ) -> None:
        """Count one more round: w and λ, and L and h there."""
        self.rounds += 1
        self.losses, self.slopes = self.losses + losses, self.slopes + slope
        self.plane += float(weights @ losses - slope @ w)
        self.square += float(w @ w)
        self.path += float(np.linalg.norm(weights - self.last))
        self.last = weights

    @property
    def swings(self) -> bool:
        """Whether λ oscillated, several times as far as it moved."""
        return self.path > SWING_RATIO * float(np.linalg.norm(self.last - self.first))

    def gap(self, ridge: float, radius: float) -> float:
        """Return the gap of the means; over ‖w‖ ≤ R where there is no ridge."""
        n = self.rounds
        if not n:
            return np.inf
        upper = float(self.losses.max()) / n + 0.5 * ridge * self.square / n
        length = float(np.linalg.norm(self.slopes)) / n
        below = length**2 / (2 * ridge) if ridge > 0 else radius * length
        return upper - self.plane / n + below


class WeightStep:
    """η_λ of every round: fixed, or what losses' answers and the gap allow.

    Attributes
    ----------
    size, growth
        The last η_λ, and how many times the one before it was.
    before
        Weights and losses when it was last looked at.
    stretch, gap
        The rounds since then, none where the gap is not known; and the gap of the
        rounds before them.
    """

    def __init__(
        self, method: DescentAscent, problem: Problem, trainer: Trainer
    ) -> None:
        self.method, self.trainer = method, trainer
        self.ridge, self.convex = method.decay(problem), problem.task.model.convex
        self.size, self.growth, self.gap = method.dual_step_size, 1.0, np.inf
        self.before: FloatArray | None = None
        self.stretch = Stretch(np.zeros(0), np.zeros(0))

    def __call__(
        self,
        weights: FloatArray,
        losses: FloatArray,
        total: TrainTotal,
        objective: Objective,
    ) -> float:
        """Return η_λ after a round at these weights, with the losses at the w sent."""
        round, w, past = self.trainer.done - 1, self.trainer.sent, self.gap
        settled = self.before is None or round % STRETCH == 0
        if settled:
            self.gap = self._reached(w)
        self.size, self.growth = self._next(weights, losses, round, past)
        if settled:
            self.before = np.stack([weights, losses])
            self.stretch = Stretch(weights, w)
        whole = self.method.local_steps == 1 and self.method.batch_size is None
        if whole and self.trainer.silos is None and self.convex:
            size = self.trainer.step_size(objective)
            slope = -total.update / (total.share * size) - self.ridge * w
            self.stretch.add(w, weights, losses, slope)
        return self.size

    def _next(
        self, weights: FloatArray, losses: FloatArray, round: int, past: float
    ) -> tuple[float, float]:
        """Return η_λ, and how many times the one before it is.

        `past` is the gap of the stretch before the last.
        """
        eta = self.size
        if eta is None:
            size = max(float(np.linalg.norm(losses)), 1e-6)
            return math.sqrt(2 / self.method.rounds) / size, 1.0  # the simplex's width
        fixed = self.method.dual_step_size is not None or not self.convex
        if fixed or self.before is None or round % STRETCH:
            return eta, self.growth
        moved, answer = np.linalg.norm([weights, losses] - self.before, axis=1)
        across = 1.0 / max(float(np.ptp(losses)), 1e-12)  # the whole simplex
        new = answered_step(eta, self.growth, CAREFUL * moved, answer, across)
        if self.stretch.swings and MIN_FALL * past < self.gap:
            new = min(new, 0.5 * eta)
        return new, new / eta

    def _reached(self, w: FloatArray) -> float:
        """Return the gap of the means over the last stretch; infinite if unknown."""
        return self.stretch.gap(self.ridge, FAR * float(np.linalg.norm(w)))

    def remark(self, w: FloatArray) -> str | None:
        """Say so where the gap of the last rounds is large."""
        stretch, method = self.stretch, self.method
        if not stretch.rounds:
            return None
        gap = min(self.gap, self._reached(w))
        largest = float(stretch.losses.max()) / stretch.rounds
        if gap <= MAX_OPEN_GAP * largest:
            return None
        fixed = method.dual_step_size is not None and stretch.swings
        advice = "leave out 'dual_step_size'" if fixed else "raise 'rounds'"
        swings = "its weights oscillate, and " if stretch.swings else ""
        return (
            f"{method.name} has not converged: {swings}the duality gap of its last "
            f"rounds is {up(gap, digits=2)}: {advice}"
        )
