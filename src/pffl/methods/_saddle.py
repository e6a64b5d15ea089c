"""The saddle problem with every function replaced by its second-order expansion.

At w the model is  min_d  q₀(d) + B·max(0, max_z q_z(d)),  where q₀ expands βF and q_z
expands r_z; where βμ = 0 also ‖w + d‖ ≤ R. It costs no round. It is solved in the dual,
which has one variable per cell (and one for the ball):

    φ(λ) = min_d q₀(d) + λᵀq(d),    H(λ) d = −∇q₀(0) − Jᵀλ,    H(λ) = β∇²F + Σ λ_z ∇²r_z
    ∇φ = q(d),    ∇²φ = −A H(λ)⁻¹ Aᵀ,    A = rows ∇q_z(d)

by Newton's method; each of its steps is a small QP over λ ≥ 0, Σλ ≤ B. So λ and H(λ)
agree at the end, and the curvature of each bound is in its own constraint, where a QP
with linearised bounds needs a second-order correction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.linalg import LinAlgError

from pffl.methods import _capped_qp
from pffl.numerics import project_capped_simplex
from pffl.problem import Expansion, Problem
from pffl.typing import FloatArray

NEWTON_STEPS = 60
RIDGES = (1e-13, 1e-10, 1e-7, 1e-4)  # relative; tried in turn until H(λ) factorises


@dataclass(frozen=True, eq=False)
class Model:
    """Second-order expansions of βF, of the cells' violations and of the ball.

    Row Z of `values` and `jacobian` is the ball (‖w + d‖²/R − R)/2, where there is one;
    its Hessian is `ball`. Steps have coordinates e, with d = `basis` e.
    """

    gradient: FloatArray  # β∇F, (p,)
    hessian: FloatArray  # β∇²F, (p, p)
    values: FloatArray  # r, then the ball's, (Z,) or (Z + 1,)
    jacobian: FloatArray  # J, (Z, p) or (Z + 1, p)
    hessians: FloatArray  # ∇²r_z, (Z, p, p)
    ball: FloatArray | None  # (p, p)
    bound: float  # B
    basis: FloatArray | None = None

    @classmethod
    def at(
        cls,
        here: Expansion,
        problem: Problem,
        *,
        basis: FloatArray | None = None,
        damping: float = 0.0,
    ) -> Model:
        """Build the model of a problem around one expansion.

        With a `basis`, losses keep their Hessians in the coordinates e, and so curve
        less, or more, in d than the expansion says. Ridge and ball are known exactly
        and stay as they are. With `damping`, each parameter gets that part of its
        typical curvature on top.
        """
        beta, radius = problem.risk_weight, problem.radius
        gradient, jacobian = beta * here.risk_gradient, here.jacobian
        hessian, metric = beta * here.risk_hessian, np.eye(len(here.w))
        centre = here.w / radius
        if basis is not None:
            gradient, jacobian = gradient @ basis, jacobian @ basis
            hessian = hessian - problem.modulus * metric
            metric, centre = basis.T @ basis, centre @ basis
            hessian = hessian + problem.modulus * metric
        if damping > 0:
            hessian = hessian + np.diag(damping * _sizes(here, problem))
        values, ball = here.violation, None
        if problem.modulus == 0:
            outside = 0.5 * (float(here.w @ here.w) / radius - radius)
            values = np.append(values, outside)
            jacobian = np.vstack([jacobian, centre])
            ball = metric / radius
        bound = problem.multiplier_bound
        return cls(
            gradient, hessian, values, jacobian, here.hessians, ball, bound, basis
        )

    @property
    def n_cells(self) -> int:
        """Number of multipliers whose sum is bounded."""
        return len(self.hessians)

    def curvature(self, lam: FloatArray) -> FloatArray:
        """Return H(λ)."""
        z = self.n_cells
        total = self.hessian + np.tensordot(lam[:z], self.hessians, axes=1)
        return total if self.ball is None else total + lam[z] * self.ball

    def bent(self, e: FloatArray) -> FloatArray:
        """Return the rows ∇²q_z e."""
        rows = self.hessians @ e
        return rows if self.ball is None else np.vstack([rows, self.ball @ e])


@dataclass(frozen=True, eq=False)
class Response:
    """The minimiser over d of q₀ + λᵀq for one λ, and φ around that λ."""

    lam: FloatArray
    e: FloatArray
    dual: float  # φ(λ), without the constant βF(w)
    values: FloatArray  # q(d) = ∇φ
    sensitivity: FloatArray  # A H(λ)⁻¹ Aᵀ = −∇²φ


@dataclass(frozen=True, eq=False)
class Step:
    """The solution of the model: a step, its multipliers, and what it promises."""

    d: FloatArray
    multipliers: FloatArray
    risk_change: float  # q₀(d)
    violation: FloatArray  # q(d) of the cells
    ball_price: float = 0.0  # multiplier of the ball
    solved: bool = True  # whether the model's own duality gap was closed


def solve(model: Model, multipliers: FloatArray, ball_price: float = 0.0) -> Step:
    """Maximise φ from a first guess of λ.

    Raises
    ------
    LinAlgError
        If no ridge makes H(λ) positive definite.
    """
    lam = project_capped_simplex(multipliers, model.bound)
    if model.ball is not None:
        lam = np.append(lam, ball_price)
    now = first = respond(model, lam)
    for _ in range(NEWTON_STEPS):
        if slack(model, now) <= 1e-14 * scale(model, now):
            break
        after = _climb(model, now, ascend(model, now) - now.lam)
        if after is None:
            break
        now = after
    z = model.n_cells
    return Step(
        now.e if model.basis is None else model.basis @ now.e,
        now.lam[:z],
        float(model.gradient @ now.e + 0.5 * now.e @ model.hessian @ now.e),
        now.values[:z],
        0.0 if model.ball is None else float(now.lam[z]),
        slack(model, now) <= max(0.05 * slack(model, first), 1e-11 * scale(model, now)),
    )


def respond(model: Model, lam: FloatArray) -> Response:
    """Minimise q₀ + λᵀq, and differentiate the minimum in λ."""
    from scipy.linalg import cho_solve

    gradient = model.gradient + lam @ model.jacobian
    factor = _factorise(model.curvature(lam))
    e = -cho_solve(factor, gradient, check_finite=False)
    bent = model.bent(e)
    slopes = model.jacobian + bent  # A
    sensitivity = slopes @ cho_solve(factor, slopes.T, check_finite=False)
    return Response(
        lam,
        e,
        float(lam @ model.values + 0.5 * (gradient @ e)),
        model.values + model.jacobian @ e + 0.5 * (bent @ e),
        0.5 * (sensitivity + sensitivity.T),
    )


def slack(model: Model, at: Response) -> float:
    """Return the model's own duality gap."""
    capped = np.arange(len(at.lam)) < model.n_cells
    return _capped_qp.gap(at.values, at.lam, model.bound, capped)


def scale(model: Model, at: Response) -> float:
    """Return the size of the numbers that `slack` is a difference of."""
    largest = float(np.abs(at.values[: model.n_cells]).max(initial=0.0))
    return max(model.bound * largest, float(at.lam @ np.abs(at.values)), 1e-12)


def ascend(model: Model, at: Response) -> FloatArray:
    """Return the λ that maximises the second-order expansion of φ.

    Should the QP fail, one projected gradient step.
    """
    z, bound = model.n_cells, model.bound
    found = _capped_qp.maximise(at.sensitivity, at.values, at.lam, bound, z)
    if found is not None:
        return found
    length = max(float(np.abs(at.sensitivity).sum(axis=1).max(initial=0.0)), 1e-300)
    moved = at.lam + at.values / length
    cells = project_capped_simplex(moved[:z], bound)
    return np.append(cells, np.maximum(moved[z:], 0.0))


def _climb(model: Model, now: Response, direction: FloatArray) -> Response | None:
    """Go along a direction until φ rises enough; None if rounding forbids it.

    Where φ is flat to rounding, its slope still tells: then the slack must shrink.
    """
    slope = float(now.values @ direction)
    noise = 1e-15 * max(abs(now.dual), scale(model, now))
    length = 1.0
    while slope * length > noise:
        after = respond(model, now.lam + length * direction)
        if after.dual >= now.dual + 1e-4 * length * slope - noise:
            return after
        length *= 0.5
    after = respond(model, now.lam + direction)
    return after if slack(model, after) < 0.9 * slack(model, now) else None


def _sizes(here: Expansion, problem: Problem) -> FloatArray:
    """Return the curvature that each parameter has for a typical λ."""
    cells = np.einsum("zii->i", here.hessians) / max(1, problem.n_cells)
    risk = np.diag(here.risk_hessian)
    typical = problem.multiplier_bound * cells + problem.risk_weight * risk
    return np.asarray(typical + 1e-3 * typical.mean())


def _factorise(hessian: FloatArray) -> tuple[FloatArray, bool]:
    """Cholesky factor of H, with the smallest ridge that lets it exist."""
    from scipy.linalg import cho_factor

    diagonal = np.diag(hessian)
    floor = max(float(diagonal.mean()), 1e-300)
    for ridge in RIDGES:
        lifted = hessian + np.diag(ridge * (diagonal + 0.1 * floor))
        try:
            return cho_factor(lifted, lower=True, check_finite=False)
        except LinAlgError:
            continue
    raise LinAlgError("no ridge makes H(λ) positive definite")
