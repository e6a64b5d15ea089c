"""FedMinMax: the worst group's loss as small as possible, by descent and ascent.

Afroditi Papadaki, Natalia Martinez, Martin Bertran, Guillermo Sapiro, Miguel Rodrigues.
*Minimax Demographic Group Fairness in Federated Learning*, 2022, Algorithm 1. The
groups are the constraint's cells; its bounds play no part.

    min_w max_{μ ∈ simplex}  Σ_a μ_a L_a(w)          L_a = (1/m_a) Σ_{i∈a} ℓ_i

    1  w ← 0, μ_a ← ρ_a = m_a/m
    2  for t = 1 … T:
    3      each silo: a gradient step on (1/m_k) Σ_{i∈k} ω_{a_i} ℓ_i, ω_a = μ_a/ρ_a
    4      w ← Σ_k (m_k/m) w_k
    5      L_a ← Σ_k Σ_{i∈k∩a} ℓ_i / m_a, at the w that was sent
    6      μ ← projection of μ + η_μ L on the simplex
    7  return w

Lines 3 and 4 are one gradient step on Σ μ_a L_a, whatever the weights p_k of the silos:
the problem's are used. More local steps are possible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from pffl.errors import UsageError
from pffl.methods import _steps
from pffl.methods.base import check_choice
from pffl.methods.inner import Inner, LocalTraining
from pffl.numerics import project_simplex
from pffl.problem import Point, Problem
from pffl.questions import Curvature, CurvatureTotal, Train, TrainTotal
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class State:
    """Where the method stands; sums are over rounds."""

    round: int
    inner: Inner
    mu: FloatArray  # μ, on the simplex
    w_sum: FloatArray
    mu_sum: FloatArray
    dual_step_size: float | None  # η_μ


@dataclass(frozen=True, kw_only=True)
class FedMinMax(LocalTraining[State]):
    """Gradient descent in w, projected gradient ascent in the groups' weights.

    Parameters
    ----------
    rounds
        T.
    dual_step_size
        η_μ; None takes half the largest one at which descent and ascent are stable, or,
        for models without curvature, √(2/T)/‖L‖.
    ridge
        Weight of (ridge/2)‖w‖² in the objective; None for the model's μ, 0 for none, as
        in the paper.
    iterate
        What to return: "last" or "average" (guaranteed for convex models).
    local_steps, step_size, schedule, batch_size, …
        J, η_w and the rest of the inner solver, see `LocalTraining`.
    """

    local_steps: int = 1
    rounds: int = 1000
    dual_step_size: float | None = None
    ridge: float | None = None
    iterate: Literal["last", "average"] = "last"
    name: ClassVar[str] = "fedminmax"

    def __post_init__(self) -> None:
        self.check(
            positive=("dual_step_size",),
            nonnegative=("ridge",),
            counts=("rounds",),
            optional=("dual_step_size", "ridge"),
        )
        check_choice(self, "iterate", ("last", "average"))

    @property
    def planned_rounds(self) -> int:
        """T."""
        return self.rounds

    def decay(self, problem: Problem) -> float:
        """Weight of (·/2)‖w‖²."""
        return problem.l2 if self.ridge is None else self.ridge

    def init(self, problem: Problem) -> State:
        """Line 1."""
        if problem.n_cells == 0:
            raise UsageError("FedMinMax needs groups to weigh: give a constraint")
        inner = self.start(problem)
        rho = problem.counts / problem.counts.sum()  # ρ
        blank = np.zeros_like
        return State(0, inner, rho, blank(inner.w), blank(rho), self.dual_step_size)

    def question(self, problem: Problem, state: State) -> Train | Curvature | None:
        """Line 3."""
        if state.round == self.rounds:
            return None
        own = problem.over(problem.cells)
        if state.inner.smoothness is None and self.wants_majorant(problem):
            return self.ask_majorant(problem)
        return self.ask(
            own,
            state.inner,
            state.round,
            cell_weights=own.cell_weights(state.mu),  # ω_a/m
            ridge=self.decay(problem),
        )

    def step(
        self, problem: Problem, state: State, total: TrainTotal | CurvatureTotal
    ) -> State:
        """Lines 4 to 6."""
        own = problem.over(problem.cells)
        if isinstance(total, CurvatureTotal):
            majorant = own.expand(state.inner.w, total)
            whole, local = _steps.curvatures(majorant).max(axis=1)
            L = whole if self.local_steps == 1 else max(whole, local / _steps.STABLE)
            return replace(
                state,
                inner=replace(state.inner, smoothness=float(L) + self.decay(problem)),
                dual_step_size=state.dual_step_size or _steps.ascent_step(majorant),
            )
        asked = self.asked(problem, state.round)
        losses = own.violation_among(total.cell_losses, asked) + own.cells.bounds  # L
        losses = np.where(np.isnan(losses), np.nanmean(losses), losses)
        eta = state.dual_step_size or _steps.ascent_regret_step(losses, self.rounds)
        inner = self.move(own, state.inner, state.round, total)
        return State(
            state.round + 1,
            inner,
            project_simplex(state.mu + eta * losses),
            state.w_sum + inner.w,
            state.mu_sum + state.mu,
            eta,
        )

    def finish(self, problem: Problem, state: State) -> Point:
        """Line 7. The weights are multipliers only of a minimax problem, with B = 1."""
        average = self.iterate == "average" and state.round > 0
        w = state.w_sum / state.round if average else state.inner.w
        mu = state.mu_sum / state.round if average else state.mu
        return Point(w, min(problem.multiplier_bound, 1.0) * mu)
