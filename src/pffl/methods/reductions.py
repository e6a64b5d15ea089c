"""Reductions: bounded group loss by exponentiated gradient on exact best responses.

Alekh Agarwal, Miroslav Dudík, Zhiwei Steven Wu. *Fair Regression: Quantitative
Definitions and Reduction-Based Algorithms*, 2019, Algorithm 2.

    1  θ ← 0
    2  for t = 1, 2, …:
    3      λ_z ← B e^{θ_z} / (1 + Σ e^θ)                 numerics.capped_softmax
    4      h_t ← argmin_w βF(w) + λᵀ r(w)                      Newton, `pooled.Newton`
    5      Q̄ ← uniform mixture of h_1 … h_t;  λ̄ ← mean of λ_1 … λ_t
    6      upper ← βF(Q̄) + B·max(0, max r(Q̄));  lower ← mean of the minima of line 4
    7      stop if upper − lower ≤ ν·(β + Σλ̄)
    8      θ ← θ + η r(h_t)
    9  return (Q̄, λ̄)

On totals this is the algorithm on pooled rows, where p_k = m_k/m. The minimum over w is
concave in λ, so `lower` is never above its value at λ̄, and the gap of line 7 never
below the true one. Q̄ is a randomised predictor; for convex losses the mean of its
parameters, which is returned, loses no more in any cell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pffl.methods.base import (
    GRADIENTS_ONLY,
    PRICES,
    Grid,
    Method,
    check_hessians,
    check_parameters,
)
from pffl.methods.pooled import Newton
from pffl.numerics import capped_softmax
from pffl.problem import Expansion, Point, Problem, upper_value, value
from pffl.queries import Expand, ExpandTotal
from pffl.queries.expand import linear
from pffl.typing import FloatArray

CHECK = 1.5  # times as many iterations until the gap is checked again
PATIENCE = 50  # rounds that one best response may take
NEWTON_STEPS = 3  # that it takes, rarely more


@dataclass(frozen=True, eq=False)
class State:
    """Where Algorithm 2 stands: sums are over the best responses so far."""

    theta: FloatArray  # θ
    search: Newton  # for the best response to λ(θ)
    searching: int  # rounds of that search
    dual_step_size: float | None  # η
    iteration: int  # t
    w_sum: FloatArray
    multiplier_sum: FloatArray
    risk_sum: float
    violation_sum: FloatArray
    lower_sum: float
    gap: float = np.inf  # ν_t
    checked: tuple[int, float] = (10, np.inf)  # iteration and gap at the last check


@dataclass(frozen=True, kw_only=True)
class Reductions(Method[State]):
    """Exponentiated gradient against an exact oracle for weighted risk minimisation.

    It begins with B/(Z+1) for every cell, and returns the mean over all iterations: an
    inactive bound changes the model a little, by 1/t of that first step.

    Parameters
    ----------
    multiplier_bound, risk_weight
        B and β.
    iterations
        Best responses after which to stop in any case.
    target_gap
        ν: gap, in parts of β + Σλ, at which to stop.
    dual_step_size
        η; None takes the largest one at which dual ascent contracts at θ = 0, and half
        of it whenever the gap has not shrunk by a fifth while t grew by half.
    oracle_tolerance
        Length of the gradient at which a best response is one.
    """

    multiplier_bound: float = 10.0
    risk_weight: float = 1.0
    iterations: int = 200
    target_gap: float = 1e-3
    dual_step_size: float | None = None
    oracle_tolerance: float = 1e-8
    name: ClassVar[str] = "reductions"
    saddle: ClassVar[bool] = True
    steps_without_some: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"multiplier_bound": PRICES}

    def __post_init__(self) -> None:
        check_parameters(
            self,
            positive=(
                "multiplier_bound",
                "target_gap",
                "dual_step_size",
                "oracle_tolerance",
            ),
            nonnegative=("risk_weight",),
            counts=("iterations",),
            optional=("dual_step_size",),
        )

    @property
    def most_rounds(self) -> int:
        """A best response, from the one before, takes a few steps of Newton's."""
        return NEWTON_STEPS * self.iterations

    def init(self, problem: Problem, constants: None = None) -> State:
        """Line 1."""
        check_hessians(self, problem, GRADIENTS_ONLY)
        w, theta = linear(problem.task).start(problem.seed), np.zeros(problem.n_cells)
        return State(
            theta,
            Newton.at(w),
            0,
            self.dual_step_size,
            0,
            np.zeros_like(w),
            np.zeros_like(theta),
            0.0,
            np.zeros_like(theta),
            0.0,
        )

    def query(self, problem: Problem, state: State) -> Expand | None:
        """Line 4: look where the search for h_t is."""
        over = self._over(problem, state)
        return None if over else Expand(problem.task, state.search.w, 2)

    def _over(self, problem: Problem, state: State) -> bool:
        """Line 7."""
        prices = float(state.multiplier_sum.sum()) / max(1, state.iteration)
        closed = state.gap <= self.target_gap * (problem.risk_weight + prices)
        return closed or state.iteration == self.iterations

    def step(self, problem: Problem, state: State, total: ExpandTotal) -> State:
        """Lines 3 to 8, as often as what is known at w suffices for.

        The search for h_{t+1} begins at h_t, about which nothing need be asked again.
        """
        at = problem.expand(state.search.w, total)
        state = self._searched(problem, state, at)
        while state.search.w is at.w and not self._over(problem, state):
            state = self._searched(problem, state, at)
        return state

    def _searched(self, problem: Problem, state: State, at: Expansion) -> State:
        """Lines 3 and 4; and 5 to 8 where h_t is found."""
        lam = capped_softmax(state.theta, problem.multiplier_bound)  # λ
        beta = problem.risk_weight
        search = state.search.told(
            value(at.risk, at.violation, lam, beta),
            beta * at.risk_gradient + lam @ at.jacobian,
            beta * at.risk_hessian + np.tensordot(lam, at.hessians, axes=1),
            self.oracle_tolerance,
        )
        if state.dual_step_size is None:
            eta = contracting_dual_step(at, problem)
            state = replace(state, dual_step_size=eta)
        tried = state.searching + 1
        if not search.done and tried < PATIENCE:
            return replace(state, search=search, searching=tried)
        return self._responded(problem, state, at, lam)

    def _responded(
        self, problem: Problem, state: State, at: Expansion, lam: FloatArray
    ) -> State:
        """Lines 5 to 8, with h_t = `at.w`."""
        t, r = state.iteration + 1, at.violation
        lower = value(at.risk, r, lam, problem.risk_weight)
        risks, violations = state.risk_sum + at.risk, state.violation_sum + r
        lowers = state.lower_sum + lower
        gap = upper_value(risks / t, violations / t, problem) - lowers / t
        eta, checked = state.dual_step_size or 1.0, state.checked
        if t >= CHECK * checked[0]:
            stuck = gap > 0.8 * checked[1] and self.dual_step_size is None
            eta, checked = eta / 2 if stuck else eta, (t, gap)
        return State(
            state.theta + eta * r,
            Newton.at(at.w),
            0,
            eta,
            t,
            state.w_sum + at.w,
            state.multiplier_sum + lam,
            risks,
            violations,
            lowers,
            gap,
            checked,
        )

    def finish(self, problem: Problem, state: State) -> Point:
        """Line 9."""
        if state.iteration == 0:
            return Point(state.search.origin, np.zeros(problem.n_cells))
        t = state.iteration
        return Point(state.w_sum / t, state.multiplier_sum / t)

    def gap(self, state: State) -> float:
        """ν of line 7."""
        return state.gap


def contracting_dual_step(at: Expansion, problem: Problem) -> float:
    """Return the largest η_θ at which dual ascent with exact best responses contracts.

    One step maps θ to θ + η r(w(λ(θ))); its slope is I − η S D with
    S = J H(λ)⁻¹ Jᵀ (how r answers to λ) and D = diag(λ) − λλᵀ/B (how λ answers to θ),
    so η = 2 / max eig(S D), taken at θ = 0. The dual term B·log(Z+1)/(η_θ E) of
    Theorem 1 asks for steps that are as large as possible.
    """
    z, bound = problem.n_cells, problem.multiplier_bound
    lam = np.full(z, bound / (z + 1))
    hessian = problem.risk_weight * at.risk_hessian
    hessian = hessian + np.tensordot(lam, at.hessians, axes=1)
    hessian += 1e-9 * np.trace(hessian) / len(hessian) * np.eye(len(hessian))
    answer = at.jacobian @ np.linalg.solve(hessian, at.jacobian.T)
    mirror = np.diag(lam) - np.outer(lam, lam) / bound
    largest = float(np.linalg.eigvals(answer @ mirror).real.max(initial=0.0))
    return 2.0 / largest if largest > 1e-12 else 1.0
