"""Step sizes from constants of the problem, so that defaults need no tuning."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from pffl.models.linear import LinearModel
from pffl.problem import Expansion, Problem
from pffl.typing import FloatArray, IntArray

STABLE = 1.9  # steps of less than 2/L do not diverge
UNTUNED = 0.1  # η_w where neither the user nor the model's curvature says anything


class LocalTraining(Protocol):
    """The parameters of a method that trains in local steps."""

    @property
    def local_steps(self) -> int:
        """J."""

    @property
    def step_size(self) -> float | None:
        """η_w, or None for 1/L."""

    @property
    def schedule(self) -> str:
        """Either "constant" or "decay"."""


def wanted(method: LocalTraining, problem: Problem) -> bool:
    """Whether the step sizes need the majorant of a `curvature` round."""
    linear = isinstance(problem.task.model, LinearModel)
    return linear and (method.step_size is None or method.schedule == "decay")


def step_sizes(
    method: LocalTraining,
    problem: Problem,
    smoothness: float | None,
    round: int,
) -> FloatArray:
    """η_w of each of the J local steps of a round, where L is known or not."""
    L = smoothness
    if L is None:
        return np.full(method.local_steps, method.step_size or UNTUNED)
    if method.schedule == "constant" or problem.modulus == 0:
        return np.full(method.local_steps, method.step_size or 1.0 / L)
    t = round * method.local_steps + np.arange(method.local_steps)
    return np.divide(2.0, 8.0 * L + problem.modulus * t)


def smoothness(majorant: Expansion, problem: Problem, multipliers: FloatArray) -> float:
    """Return L for which steps of 1/L are safe, for G(·; λ) and for every silo's G_k.

    The majorant gives the largest eigenvalue of ∇²G over all silos together. A silo in
    which the weighted cells are over-represented curves more than the average by the
    ratio of its weight Σ_i c_i/p_k to the mean one, β + Σλ. That silos' inputs may
    differ in scale, too, is what the peaks bound: no G_k curves more than
    β·peak₀ + Σλ_z·peak_z, and steps below 2/L_k do not diverge.
    """
    beta, lam = problem.risk_weight, multipliers
    hessian = beta * majorant.risk_hessian + np.tensordot(
        lam, majorant.hessians, axes=1
    )
    largest = float(np.linalg.eigvalsh(hessian)[-1]) * concentration(problem, lam)
    if majorant.peaks is None:
        return largest
    local = beta * majorant.peaks[0] + float(lam @ majorant.peaks[1:])
    return max(largest, local / STABLE)


def curvatures(majorant: Expansion) -> FloatArray:
    """Return L_z of each cell's mean loss, over all silos and in any one, (2, Z)."""
    whole = np.linalg.eigvalsh(majorant.hessians)[:, -1]
    local = np.zeros_like(whole) if majorant.peaks is None else majorant.peaks[1:]
    return np.stack([whole, local])


def weighted_smoothness(
    curvatures: FloatArray, problem: Problem, weights: FloatArray
) -> float:
    """Return L for Σ_z λ_z × mean loss of z, with λ of any sign, and the ridge.

    As `smoothness`, with Σ|λ_z|L_z for the largest eigenvalue: weights may change in
    every round. The problem is one without risk (`Problem.over`).
    """
    size = np.abs(weights)
    whole, local = curvatures @ size
    largest = max(whole * concentration(problem, size), local / STABLE)
    return float(largest) + problem.l2


def concentration(problem: Problem, multipliers: FloatArray) -> float:
    """Largest ratio of a silo's weight Σ_i c_i/p_k to the mean β + Σλ; at least 1."""
    beta = problem.risk_weight
    per_row = problem.cells.spread(
        problem.cell_weights(multipliers), len(problem.silo_counts)
    )
    masses = beta + (per_row * problem.silo_counts).sum(axis=1) / problem.task.shares
    return max(1.0, float(masses.max()) / (beta + float(multipliers.sum())))


def contracting_dual_step(majorant: Expansion, problem: Problem) -> float:
    """Return the largest η_θ at which dual ascent with exact best responses contracts.

    One step maps θ to θ + η r(w(λ(θ))); its slope is I − η S D with
    S = J H(λ)⁻¹ Jᵀ (how r answers to λ) and D = diag(λ) − λλᵀ/B (how λ answers to θ),
    so η = 2 / max eig(S D), taken at θ = 0. The dual term B·log(Z+1)/(η_θ E) of
    Theorem 1 asks for steps that are as large as possible.
    """
    z, bound = problem.n_cells, problem.multiplier_bound
    lam = np.full(z, bound / (z + 1))
    hessian = problem.risk_weight * majorant.risk_hessian
    hessian = hessian + np.tensordot(lam, majorant.hessians, axes=1)
    hessian += 1e-9 * np.trace(hessian) / len(hessian) * np.eye(len(hessian))
    answer = majorant.jacobian @ np.linalg.solve(hessian, majorant.jacobian.T)
    mirror = np.diag(lam) - np.outer(lam, lam) / bound
    largest = float(np.linalg.eigvals(answer @ mirror).real.max(initial=0.0))
    return 2.0 / largest if largest > 1e-12 else 1.0


def contracting_local_step(
    majorant: Expansion, problem: Problem, multipliers: FloatArray, silo: IntArray
) -> float:
    """Return the same where every silo has cells, λ_k and budget B of its own.

    The slope is I − η J H⁻¹ Jᵀ P D, with P = diag(p_k) and, in each silo,
    D = diag(λ_k) − λ_k λ_kᵀ/B; its largest eigenvalue is that of H⁻¹ Jᵀ P D J.
    """
    slopes, weights = majorant.jacobian, problem.task.shares[silo] * multipliers
    hessian = problem.risk_weight * majorant.risk_hessian
    hessian = hessian + np.tensordot(weights, majorant.hessians, axes=1)
    spread = (slopes * weights[:, None]).T @ slopes
    for k, share in enumerate(problem.task.shares):
        mean = multipliers[silo == k] @ slopes[silo == k]
        spread -= share * np.outer(mean, mean) / problem.multiplier_bound
    largest = largest_answer(spread, hessian, 1e-9)
    return 2.0 / largest if largest > 1e-12 else 1.0


def regret_dual_step(violation: FloatArray, dual_rounds: int) -> float:
    """Return η_θ = √(log(Z+1)/E)/ρ with ρ = max|r|, for models without curvature.

    It minimises the dual term B·log(Z+1)/(η_θ E) + η_θ ρ² B of the corrected Theorem 1.
    """
    rho = max(float(np.abs(violation).max(initial=0.0)), 1e-6)
    return math.sqrt(math.log(len(violation) + 1) / dual_rounds) / rho


def ascent_step(majorant: Expansion) -> float:
    """Return half the largest η at which descent in w and ascent in weights are stable.

    For min_w max_λ Σ λ_z L_z(w) over the simplex, a step each a round. Near the saddle,
    a mode of curvature h whose coupling to λ is j is stable if and only if η j² < h,
    whatever η_w ≤ 1/h; so η < 1 / max eig(J H⁻¹ Jᵀ), along the simplex.
    """
    slopes = majorant.jacobian - majorant.jacobian.mean(axis=0)
    largest = largest_answer(slopes.T @ slopes, majorant.hessians.mean(axis=0), 1e-6)
    return 0.5 / largest if largest > 1e-12 else 1.0


def ascent_regret_step(losses: FloatArray, rounds: int) -> float:
    """Return η = √(2/T)/‖L‖, for models without curvature: the simplex is √2 wide."""
    return math.sqrt(2 / rounds) / max(float(np.linalg.norm(losses)), 1e-6)


def largest_answer(spread: FloatArray, hessian: FloatArray, floor: float) -> float:
    """Return max eig(H⁻¹ A), with H a little above singular."""
    from scipy.linalg import eigh

    size = max(float(np.trace(hessian)) / len(hessian), 1e-12)
    lifted = hessian + floor * size * np.eye(len(hessian))
    return float(eigh(spread, lifted, eigvals_only=True)[-1])
