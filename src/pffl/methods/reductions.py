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

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pffl.flow import Round, Start, Steps
from pffl.methods import base
from pffl.methods.local import Averages
from pffl.methods.pooled import Newton
from pffl.numerics import capped_softmax
from pffl.problem import Expansion, Point, Problem, upper_value, value
from pffl.queries import Expand
from pffl.queries.expand import linear
from pffl.typing import FloatArray

FIRST_CHECK = 10  # iterations before the gap is checked
CHECK_SPACING = 1.5  # times as many iterations until it is checked again
TOLERANCE = 1e-8  # length of the gradient at which a best response is one
MAX_NEWTON_STEPS = 50  # that one best response may take
USUAL_NEWTON_STEPS = 3  # that it takes, rarely more


@dataclass(frozen=True, kw_only=True)
class Reductions(base.Method):
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
    """

    multiplier_bound: base.Positive = 10.0
    risk_weight: base.NonNegative = 1.0
    iterations: base.Count = 200
    target_gap: base.Positive = 1e-3
    dual_step_size: base.Positive | None = None
    name: ClassVar[str] = "reductions"
    saddle: ClassVar[bool] = True
    grid: ClassVar[base.Grid] = {"multiplier_bound": base.MULTIPLIER_BOUNDS}

    @property
    def most_rounds(self) -> int:
        """A best response, from the one before, takes a few steps of Newton's."""
        return USUAL_NEWTON_STEPS * self.iterations

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Algorithm 2; a search for h_{t+1} begins at h_t, of which all is known."""
        base.check_hessians(self, problem, base.GRADIENTS_ONLY)
        theta = violations = np.zeros(problem.n_cells)  # line 1
        search = Newton.at(linear(problem.task).start(problem.seed))
        mixture, point = Averages(), Point(search.origin, theta)
        risks, lowers, gap, checked = 0.0, 0.0, np.inf, (FIRST_CHECK, np.inf)
        at = problem.expand(search.w, (yield Expand(problem.task, search.w, 2)))
        eta = self.dual_step_size or contracting_dual_step(at, problem)
        for t in range(1, self.iterations + 1):  # line 2
            lam = capped_softmax(theta, problem.multiplier_bound)  # line 3
            for _ in range(MAX_NEWTON_STEPS):  # line 4
                if search.w is not at.w:
                    yield Round(point, gap)
                    total = yield Expand(problem.task, search.w, 2)
                    at = problem.expand(search.w, total)
                search = self.searched(problem, search, at, lam)
                if search.done:
                    break
                point = Point(search.origin, 0.0 * lam) if t == 1 else point
            r, risk = at.violation, at.risk
            mixture.add(at.w, lam)  # line 5
            risks, violations = risks + risk, violations + r
            lowers = lowers + value(risk, r, lam, problem.risk_weight)
            gap = upper_value(risks / t, violations / t, problem) - lowers / t  # line 6
            point, search = mixture.point(), Newton.at(at.w)
            weight = problem.risk_weight + float(point.multipliers.sum())
            if gap <= self.target_gap * weight:  # line 7
                break
            if t >= CHECK_SPACING * checked[0]:
                stuck = gap > 0.8 * checked[1] and self.dual_step_size is None
                eta, checked = eta / 2 if stuck else eta, (t, gap)
            theta = theta + eta * r  # line 8
        yield Round(point, gap)
        return point  # line 9

    def searched(
        self, problem: Problem, search: Newton, at: Expansion, lam: FloatArray
    ) -> Newton:
        """Take a step of the search for the w of least βF + λᵀr."""
        beta = problem.risk_weight
        return search.told(
            value(at.risk, at.violation, lam, beta),
            beta * at.risk_gradient + lam @ at.jacobian,
            beta * at.risk_hessian + np.tensordot(lam, at.hessians, axes=1),
            TOLERANCE,
        )


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
