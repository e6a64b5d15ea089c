"""The saddle problem with every function replaced by its second-order expansion.

At w the model is  min_d  q₀(d) + B·max(0, max_z q_z(d)),  where q₀ expands βF and q_z
expands r_z; where βμ = 0 also ‖w + d‖ ≤ R. It costs no round. It is solved in the dual,
which has one variable per cell (and one for the ball):

    φ(λ) = min_d q₀(d) + λᵀq(d),    H(λ) d = −∇q₀(0) − Jᵀλ,    H(λ) = β∇²F + Σ λ_z ∇²r_z
    ∇φ = q(d),    ∇²φ = −A H(λ)⁻¹ Aᵀ,    A = rows ∇q_z(d)

by Newton's method; each of its steps is a small QP over λ ≥ 0, Σλ ≤ B.
"""

from __future__ import annotations

from dataclasses import dataclass

import daqp
import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from pffl.numerics import project_capped_simplex
from pffl.objective import Expansion, Problem
from pffl.typing import BoolArray, FloatArray

NEWTON_STEPS = 60
PROXIMAL = (
    1e-9,
    1e-11,
    1e-7,
    1e-5,
    1e-3,
)  # relative; tried in turn until the QP is solved
RIDGES = (1e-13, 1e-10, 1e-7, 1e-4)  # relative; tried in turn until H(λ) factorises


@dataclass(frozen=True, eq=False)
class Model:
    """Second-order expansions of βF, of the cells' violations and of the ball.

    Row Z of `values` and `jacobian` is the ball, where there is one; its Hessian is
    `ball`. Steps are measured in coordinates e with d = `basis` e.
    """

    gradient: FloatArray  # β∇F, (p,)
    hessian: FloatArray  # β∇²F, (p, p)
    values: FloatArray  # r, then the ball's, (Z,) or (Z + 1,)
    jacobian: FloatArray
    hessians: FloatArray  # ∇²r_z, (Z, p, p)
    ball: FloatArray | None
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

        With a `basis`, losses keep their Hessians in the coordinates e: d = basis·e
        then bends less, or more, than the expansion says. Ridge and ball are known
        exactly and do not bend.
        """
        beta, radius = problem.risk_weight, problem.radius
        gradient, jacobian = beta * here.risk_gradient, here.jacobian
        hessian, metric = beta * here.risk_hessian, np.eye(len(here.w))
        centre = here.w / radius
        if basis is not None:
            gradient, jacobian = gradient @ basis, jacobian @ basis
            hessian = hessian + problem.modulus * (basis.T @ basis - metric)
            metric, centre = basis.T @ basis, centre @ basis
        if damping > 0:
            hessian = hessian + np.diag(damping * _sizes(here, problem))
        if problem.modulus > 0:
            parts = here.violation, jacobian, here.hessians, None
        else:
            outside = 0.5 * (float(here.w @ here.w) / radius - radius)
            values = np.append(here.violation, outside)
            jacobian = np.vstack([jacobian, centre])
            parts = values, jacobian, here.hessians, metric / radius
        return cls(gradient, hessian, *parts, problem.multiplier_bound, basis)

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
    ball_price: float = 0.0
    solved: bool = True  # whether the model's own duality gap was closed


def solve(model: Model, multipliers: FloatArray, ball_price: float = 0.0) -> Step:
    """Maximise φ from a first guess of λ.

    Raises
    ------
    LinAlgError
        If no H(λ) on the way could be factorised.
    """
    lam = project_capped_simplex(multipliers, model.bound)
    if model.ball is not None:
        lam = np.append(lam, ball_price)
    now = first = respond(model, lam)
    for _ in range(NEWTON_STEPS):
        if slack(model, now) <= 1e-14 * scale(model, now):
            break
        target = ascend(model, now)
        after = _climb(model, now, target - now.lam)
        if after is None:
            break
        now = after
    z = model.n_cells
    d = now.e if model.basis is None else model.basis @ now.e
    return Step(
        d,
        now.lam[:z],
        float(model.gradient @ now.e + 0.5 * now.e @ model.hessian @ now.e),
        now.values[:z],
        0.0 if model.ball is None else float(now.lam[z]),
        slack(model, now) <= max(0.05 * slack(model, first), 1e-11 * scale(model, now)),
    )


def respond(model: Model, lam: FloatArray) -> Response:
    """Minimise q₀ + λᵀq, and differentiate the minimum in λ."""
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
    return _qp_gap(at.values, at.lam, model.bound, capped)


def scale(model: Model, at: Response) -> float:
    """Return the size of the numbers that `slack` is a difference of."""
    largest = float(np.abs(at.values[: model.n_cells]).max(initial=0.0))
    return max(model.bound * largest, float(at.lam @ np.abs(at.values)), 1e-12)


def ascend(model: Model, at: Response) -> FloatArray:
    """Return the λ that maximises the second-order expansion of φ."""
    found = capped_qp(at.sensitivity, at.values, at.lam, model.bound, model.n_cells)
    if found is not None:
        return found
    length = max(float(np.abs(at.sensitivity).sum(axis=1).max()), 1e-300)
    z, moved = model.n_cells, at.lam + at.values / length
    return np.concatenate(
        [project_capped_simplex(moved[:z], model.bound), np.maximum(moved[z:], 0.0)]
    )


def capped_qp(
    matrix: FloatArray,
    slope: FloatArray,
    start: FloatArray,
    bound: float,
    n_capped: int,
) -> FloatArray | None:
    """Maximise slopeᵀδ − ½ δᵀ matrix δ over x = start + δ ≥ 0, Σ_{capped} x ≤ bound.

    A small proximal term around `start` makes a singular matrix harmless and leaves
    fixed points where they are. The solver's word is not taken: what it returns must
    close the QP's own duality gap. Returns None if nothing does.
    """
    capped = np.arange(len(slope)) < n_capped
    if not (np.isfinite(matrix).all() and np.isfinite(slope).all()):
        return None
    open_gap = _qp_gap(slope, start, bound, capped)
    if open_gap <= 0:
        return start
    best, best_gap = None, 0.9 * open_gap
    # Measure x_z in steps over which the objective curves by its own gap, at most B:
    # cells differ in sensitivity by many orders of magnitude.
    units = bound / np.sqrt(np.maximum(np.diag(matrix) * (bound**2 / open_gap), 1.0))
    unit_matrix = matrix * np.outer(units, units) / open_gap
    unit_slope = slope * units / open_gap
    for proximal in PROXIMAL:
        quadratic = unit_matrix + proximal * np.eye(len(slope))
        x, _, flag, _ = daqp.solve(
            quadratic,
            -(unit_slope + quadratic @ (start / units)),
            np.where(capped, units, 0.0)[None],
            np.append(np.where(capped, bound / units, 1e30), bound),
            np.zeros(len(slope) + 1),
            np.zeros(len(slope) + 1, dtype=np.int32),
            primal_tol=1e-12,
            dual_tol=1e-13,
            eps_prox=0.0,
        )
        if flag <= 0 or not np.isfinite(x).all():
            continue
        x = np.maximum(x, 0.0) * units
        total = float(x[capped].sum())
        x[capped] *= min(1.0, bound / total) if total > 0 else 1.0
        left = _qp_gap(slope - matrix @ (x - start), x, bound, capped)
        if left < best_gap:
            best, best_gap = np.asarray(x), left
        if left <= 0.01 * open_gap:
            break
    return best


def _qp_gap(slope: FloatArray, x: FloatArray, bound: float, capped: BoolArray) -> float:
    """How much a concave function with this slope at x can still rise, at most.

    An uncapped coordinate may rise to twice its value or to B, whichever is more.
    """
    best = bound * max(0.0, float(slope[capped].max(initial=0.0)))
    room = np.maximum(bound, 2.0 * x[~capped])
    best += float(room @ np.maximum(slope[~capped], 0.0))
    return best - float(x @ slope)


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
    most = problem.multiplier_bound * cells + problem.risk_weight * np.diag(
        here.risk_hessian
    )
    return np.asarray(most + 1e-3 * most.mean())


def _factorise(hessian: FloatArray) -> tuple[FloatArray, bool]:
    """Cholesky factor of H, with the smallest ridge that lets it exist."""
    diagonal = np.diag(hessian)
    floor = max(float(diagonal.mean()), 1e-300)
    for ridge in RIDGES:
        lifted = hessian + np.diag(ridge * (diagonal + 0.1 * floor))
        try:
            return cho_factor(lifted, lower=True, check_finite=False)
        except LinAlgError:
            continue
    raise LinAlgError("H(λ) is not positive definite")
