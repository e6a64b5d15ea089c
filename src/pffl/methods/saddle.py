"""The saddle problem with every function replaced by its second-order expansion.

At w the model is  min_d  q₀(d) + B·max(0, max_z q_z(d)),  where q₀ expands βF and q_z
expands r_z; where βμ = 0 also ‖w + d‖ ≤ R. It costs no round. It is solved in the dual,
which has one variable per cell (and one for the ball):

    φ(λ) = min_d q₀(d) + λᵀq(d),    H(λ) d = −∇q₀(0) − Jᵀλ,    H(λ) = β∇²F + Σ λ_z ∇²r_z
    ∇φ = q(d),    ∇²φ = −A H(λ)⁻¹ Aᵀ,    A = rows ∇q_z(d)

by Newton's method; each of its steps is a small QP over λ ≥ 0, Σλ ≤ B. So λ and H(λ)
agree at the end, and the curvature of each bound is in its own constraint, where a QP
with linearised bounds needs a second-order correction.

Here is one step of `exact.py`, from expansions to the next w: mathematics without
rounds, states or bounds, which can be read and tested alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import daqp
import numpy as np
from numpy.linalg import LinAlgError

from pffl.numerics import project_capped_simplex
from pffl.problem import Expansion, SaddleTerms
from pffl.typing import BoolArray, FloatArray

MAX_NEWTON_STEPS = 60
RIDGES = (1e-13, 1e-10, 1e-7, 1e-4)  # relative; tried in turn until H(λ) factorises
DAMPING = RIDGES  # where βμ = 0, or where the model is too stiff
MIN_INDEPENDENT = 1e-10  # part of a unit vector that the ones before it do not have
LENGTHS = np.linspace(0.02, 0.9, 45)  # parts of a refused step
# Relative; tried in turn until the QP's own gap is closed.
PROXIMAL_TERMS = (1e-9, 1e-11, 1e-7, 1e-5, 1e-3)
CLOSED_SHARE = 0.01  # of the gap at the start


def next_step(
    problem: SaddleTerms,
    here: Expansion,
    multipliers: FloatArray,
    ball_multiplier: float,
) -> SaddleStep:
    """Solve the model at `here`, from a first guess of the multipliers."""
    undamped = (0.0,) if problem.modulus > 0 else ()
    for damping in undamped + DAMPING:  # as little as it takes
        model = SecondOrderModel.at(here, problem, damping=damping)
        step = solve(model, multipliers, ball_multiplier)
        if step.solved:
            break
    return step


def merit(problem: SaddleTerms, at: Expansion, penalty: float) -> float:
    """Return βF + ρ·max(0, max r)."""
    worst = float(at.violation.max(initial=0.0))
    return problem.risk_weight * at.risk + penalty * max(0.0, worst)


def shorten(
    terms: SaddleTerms, here: Expansion, trial: Expansion, penalty: float
) -> float:
    """Return the part of a refused step at which the merit is least.

    Between values and slopes at both ends every function is taken for a cubic, but for
    no less than its two tangents.
    """
    d, t = trial.w - here.w, LENGTHS
    a, b = np.append(here.risk, here.violation), np.append(trial.risk, trial.violation)
    slope = np.append(here.risk_gradient @ d, here.jacobian @ d)
    after = np.append(trial.risk_gradient @ d, trial.jacobian @ d)
    path = np.outer(a, 2 * t**3 - 3 * t**2 + 1) + np.outer(b, 3 * t**2 - 2 * t**3)
    path += np.outer(slope, t**3 - 2 * t**2 + t) + np.outer(after, t**3 - t**2)
    path = np.maximum(path, a[:, None] + np.outer(slope, t))
    path = np.maximum(path, b[:, None] + np.outer(after, t - 1.0))
    worst = np.maximum(path[1:].max(axis=0, initial=0.0), 0.0)
    return float(t[np.argmin(terms.risk_weight * path[0] + penalty * worst)])


@dataclass(frozen=True, eq=False)
class SecondOrderModel:
    """Second-order expansions of βF, of the cells' violations and of the ball.

    Row Z of `values` and `jacobian` is the ball (‖w + d‖²/R − R)/2, where there is one;
    its Hessian is `ball`.
    """

    gradient: FloatArray  # β∇F, (p,)
    hessian: FloatArray  # β∇²F, (p, p)
    values: FloatArray  # r, then the ball's, (Z,) or (Z + 1,)
    jacobian: FloatArray  # J, (Z, p) or (Z + 1, p)
    hessians: FloatArray  # ∇²r_z, (Z, p, p)
    ball: FloatArray | None  # (p, p)
    bound: float  # B

    @classmethod
    def at(
        cls, here: Expansion, problem: SaddleTerms, *, damping: float = 0.0
    ) -> SecondOrderModel:
        """Build the model of a problem around one expansion.

        With `damping`, each parameter gets that part of its typical curvature on top.
        """
        beta, radius = problem.risk_weight, problem.radius
        gradient, jacobian = beta * here.risk_gradient, here.jacobian
        hessian = beta * here.risk_hessian
        if damping > 0:
            hessian = hessian + np.diag(damping * _sizes(here, problem))
        values, ball = here.violation, None
        if problem.modulus == 0:
            outside = 0.5 * (float(here.w @ here.w) / radius - radius)
            values = np.append(values, outside)
            jacobian = np.vstack([jacobian, here.w / radius])
            ball = np.eye(len(here.w)) / radius
        bound = problem.multiplier_bound
        return cls(gradient, hessian, values, jacobian, here.hessians, ball, bound)

    @property
    def n_cells(self) -> int:
        """Number of multipliers whose sum is bounded."""
        return len(self.hessians)

    def curvature(self, lam: FloatArray) -> FloatArray:
        """Return H(λ)."""
        z, p = self.n_cells, len(self.gradient)
        total = self.hessian + (lam[:z] @ self.hessians.reshape(z, p * p)).reshape(p, p)
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
    slopes: FloatArray  # A
    factor: FloatArray  # Cholesky's, of H(λ)

    @property
    def sensitivity(self) -> FloatArray:
        """A H(λ)⁻¹ Aᵀ = −∇²φ."""
        found = self.slopes @ _divide(self.factor, self.slopes.T)
        return np.asarray(0.5 * (found + found.T))


@dataclass(frozen=True, eq=False)
class SaddleStep:
    """The solution of the model: a step, its multipliers, and what it promises."""

    d: FloatArray
    multipliers: FloatArray
    risk_change: float  # q₀(d)
    violation: FloatArray  # q(d) of the cells
    ball_multiplier: float = 0.0  # multiplier of the ball
    solved: bool = True  # whether the model's own duality gap was closed


def solve(
    model: SecondOrderModel, multipliers: FloatArray, ball_multiplier: float = 0.0
) -> SaddleStep:
    """Maximise φ from a first guess of λ.

    Raises
    ------
    LinAlgError
        If no ridge makes H(λ) positive definite.
    """
    lam = project_capped_simplex(multipliers, model.bound)
    if model.ball is not None:
        lam = np.append(lam, ball_multiplier)
    now = first = respond(model, lam)
    for _ in range(MAX_NEWTON_STEPS):
        if slack(model, now) <= 1e-14 * scale(model, now):
            break
        after = _climb(model, now, ascend(model, now) - now.lam)
        if after is None:
            break
        now = after
    z = model.n_cells
    return SaddleStep(
        now.e,
        now.lam[:z],
        float(model.gradient @ now.e + 0.5 * now.e @ model.hessian @ now.e),
        now.values[:z],
        0.0 if model.ball is None else float(now.lam[z]),
        slack(model, now) <= max(0.05 * slack(model, first), 1e-11 * scale(model, now)),
    )


def respond(model: SecondOrderModel, lam: FloatArray) -> Response:
    """Minimise q₀ + λᵀq."""
    gradient = model.gradient + lam @ model.jacobian
    factor = _factorise(model.curvature(lam))
    e = -_divide(factor, gradient)
    bent = model.bent(e)
    return Response(
        lam,
        e,
        float(lam @ model.values + 0.5 * (gradient @ e)),
        model.values + model.jacobian @ e + 0.5 * (bent @ e),
        model.jacobian + bent,
        factor,
    )


def slack(model: SecondOrderModel, at: Response) -> float:
    """Return the model's own duality gap."""
    capped = np.arange(len(at.lam)) < model.n_cells
    return capped_gap(at.values, at.lam, model.bound, capped)


def scale(model: SecondOrderModel, at: Response) -> float:
    """Return the size of the numbers that `slack` is a difference of."""
    largest = float(np.abs(at.values[: model.n_cells]).max(initial=0.0))
    return max(model.bound * largest, float(at.lam @ np.abs(at.values)), 1e-12)


def ascend(model: SecondOrderModel, at: Response) -> FloatArray:
    """Return the λ that maximises the second-order expansion of φ.

    Should the QP fail, one projected gradient step.
    """
    z, bound = model.n_cells, model.bound
    sensitivity = at.sensitivity
    found = maximise_capped(sensitivity, at.values, at.lam, bound, z)
    if found is not None:
        return found
    length = max(float(np.abs(sensitivity).sum(axis=1).max(initial=0.0)), 1e-300)
    moved = at.lam + at.values / length
    cells = project_capped_simplex(moved[:z], bound)
    return np.append(cells, np.maximum(moved[z:], 0.0))


def _climb(
    model: SecondOrderModel, now: Response, direction: FloatArray
) -> Response | None:
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


def _sizes(here: Expansion, problem: SaddleTerms) -> FloatArray:
    """Return the curvature that each parameter has for a typical λ."""
    cells = np.einsum("zii->i", here.hessians) / max(1, problem.n_cells)
    risk = np.diag(here.risk_hessian)
    typical = problem.multiplier_bound * cells + problem.risk_weight * risk
    return np.asarray(typical + 1e-3 * typical.mean())


def _factorise(hessian: FloatArray) -> FloatArray:
    """Cholesky factor of H, with the smallest ridge that lets it exist."""
    from scipy.linalg.lapack import dpotrf

    diagonal = np.diag(hessian)
    floor = max(float(diagonal.mean()), 1e-300)
    for ridge in RIDGES:
        lifted = hessian.copy()
        np.fill_diagonal(lifted, diagonal + ridge * (diagonal + 0.1 * floor))
        factor, failed = dpotrf(lifted.T, lower=1, clean=0, overwrite_a=1)
        if not failed:
            return np.asarray(factor)
    raise LinAlgError("no ridge makes H(λ) positive definite")


def _divide(factor: FloatArray, right: FloatArray) -> FloatArray:
    """Return H⁻¹ times a vector, or the columns of a matrix."""
    from scipy.linalg.lapack import dpotrs

    if not right.size:
        return right
    return np.asarray(dpotrs(factor, right, lower=1)[0])


def maximise_capped(
    matrix: FloatArray,
    slope: FloatArray,
    start: FloatArray,
    bound: float,
    n_capped: int,
) -> FloatArray | None:
    """Maximise slopeᵀδ − ½ δᵀ matrix δ over x = start + δ ≥ 0, Σ_{capped} x ≤ bound.

    A small proximal term around `start` makes a singular matrix harmless and leaves
    fixed points where they are. The solver's word is not taken: of what it returns the
    best by the QP's own duality gap is kept. None if nothing lowers that gap.
    """
    capped = np.arange(len(slope)) < n_capped
    if not (np.isfinite(matrix).all() and np.isfinite(slope).all()):
        return None
    open_gap = capped_gap(slope, start, bound, capped)
    if open_gap <= 0:
        return start
    # Measure x_z in steps over which the objective curves by its own gap, at most B:
    # cells differ in sensitivity by many orders of magnitude.
    units = bound / np.sqrt(np.maximum(np.diag(matrix) * (bound**2 / open_gap), 1.0))
    unit_matrix = matrix * np.outer(units, units) / open_gap
    unit_slope = slope * units / open_gap
    best, best_gap = None, 0.9 * open_gap
    for proximal in PROXIMAL_TERMS:
        quadratic = unit_matrix + proximal * np.eye(len(slope))
        linear = -(unit_slope + quadratic @ (start / units))
        x = _solved(quadratic, linear, units, bound, capped)
        if x is None:
            continue
        left = capped_gap(slope - matrix @ (x - start), x, bound, capped)
        if left < best_gap:
            best, best_gap = x, left
        if left <= CLOSED_SHARE * open_gap:
            break
    return best


def capped_gap(
    slope: FloatArray, x: FloatArray, bound: float, capped: BoolArray
) -> float:
    """How much a concave function with this slope at x can still rise, at most.

    An uncapped coordinate may rise to twice its value or to B, whichever is more.
    """
    if capped.all():
        return bound * float(slope.max(initial=0.0)) - float(x @ slope)
    best = bound * float(slope[capped].max(initial=0.0))
    room = np.maximum(bound, 2.0 * x[~capped])
    best += float(room @ np.maximum(slope[~capped], 0.0))
    return best - float(x @ slope)


def _solved(
    quadratic: FloatArray,
    linear: FloatArray,
    units: FloatArray,
    bound: float,
    capped: BoolArray,
) -> FloatArray | None:
    """Ask DAQP, and make its answer feasible to the last bit."""
    n = len(linear)
    x, _, flag, _ = daqp.solve(
        quadratic,
        linear,
        np.where(capped, units, 0.0)[None],
        np.append(np.where(capped, bound / units, 1e30), bound),
        np.zeros(n + 1),
        np.zeros(n + 1, dtype=np.int32),
        primal_tol=1e-12,
        dual_tol=1e-13,
        eps_prox=0.0,
    )
    if flag <= 0 or not np.isfinite(x).all():
        return None
    x = np.maximum(x, 0.0) * units
    total = float(x[capped].sum())
    if total > bound:
        x[capped] *= bound / total
    return np.asarray(x)


def span_of(vectors: Sequence[FloatArray]) -> FloatArray:
    """Return an orthonormal basis of the span of some vectors, (p, q).

    A vector that depends on those before it adds nothing: what is left of it is
    rounding, and would be a direction that every processor draws for itself.
    """
    rows = np.stack(vectors)
    if len(rows) >= rows.shape[1]:
        return np.eye(rows.shape[1])
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows[lengths > 0] / lengths[lengths > 0, None]
    basis, triangle = np.linalg.qr(rows.T)
    left = np.arange(len(triangle))
    turn, found = None, triangle
    while (flat := np.abs(np.diagonal(found)) <= MIN_INDEPENDENT).any():
        left = np.delete(left, int(np.argmax(flat)))
        turn, found = np.linalg.qr(triangle[:, left])
    return basis if turn is None else basis @ turn
