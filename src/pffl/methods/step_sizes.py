"""Step sizes that need no tuning: from how losses curve, and from how they answered.

η_w = 1/L, with L from one round of `expand` of order 0: a number per cell. η_θ and η_λ
have no such constant without Hessians, and need none: how far the violations moved with
the last step of the prices bounds how far the next may go.
"""

from __future__ import annotations

import math

import numpy as np

from pffl.problem import Problem
from pffl.queries import ExpandTotal
from pffl.queries.expand import POWER
from pffl.typing import FloatArray

STABLE = 1.9  # steps of less than 2/L do not diverge
MAX_DUAL_MOVE = 10.0  # of a θ in one step: λ changes e^10 times at most


def curvatures(problem: Problem, total: ExpandTotal) -> FloatArray:
    """Return L of F and of each r_z, over all silos and in any one, shape (2, 1 + Z).

    In a silo it is that of its part of G_k, per unit of β and λ_z.
    """
    found = np.stack(
        [total.curvatures, typical(problem) * total.peaks ** (1.0 / POWER)]
    )
    found[:, 1:] /= problem.counts
    found[:, 0] += problem.mu
    return found


def typical(problem: Problem) -> FloatArray:
    """Return what L of F and of each cell's sum is about in a silo, shape (1 + Z,).

    Under secure sums powers of it must fit fixed point: it is then what it would be if
    rows were of one size, and a silo had all of the cell.
    """
    unit = np.full(1 + problem.n_cells, problem.unit)
    if problem.task.pool is None:
        return unit
    size = float(np.square(problem.column_sizes).sum() / problem.masses.sum())
    return unit * size * np.append(1.0, problem.counts)


def smoothness(
    curvatures: FloatArray, problem: Problem, multipliers: FloatArray
) -> float:
    """Return L for which steps of 1/L are safe, for G(·; λ) and for every silo's G_k.

    βL_F + Σλ_z L_z bounds the largest eigenvalue of ∇²G over all silos together. A silo
    in which the weighted cells are over-represented curves more than the average by the
    ratio of its weight Σ_i c_i/p_k to the mean one, β + Σλ. That silos' inputs may
    differ in scale, too, is what the second row bounds: no G_k curves more, and steps
    below 2/L_k do not diverge. λ may be of any sign.
    """
    lam = np.abs(multipliers)
    whole, local = curvatures @ np.append(problem.risk_weight, lam)
    return max(float(whole) * concentration(problem, lam), float(local) / STABLE)


def smoothness_by_mass(
    curvatures: FloatArray, problem: Problem, multipliers: FloatArray
) -> float:
    """Return L for steps that every silo divides by its own mass.

    That mass is the ratio by which `smoothness` allows for silos in which weighted
    cells are over-represented, and is divided out there. What is left is the mean
    curvature by unit of weight; and of a silo's risk, whose inputs may differ in scale.
    """
    lam = np.abs(multipliers)
    whole = float(curvatures[0] @ np.append(problem.risk_weight, lam))
    mean = whole / (problem.risk_weight + float(lam.sum()))
    return max(mean, float(curvatures[1, 0]) / STABLE)


def weighted_smoothness(
    curvatures: FloatArray | None, problem: Problem, weights: FloatArray
) -> float | None:
    """Return L for Σ_z λ_z × mean loss of z and the ridge; None where it is not known.

    The problem is one without risk (`Problem.over`).
    """
    if curvatures is None:
        return None
    return smoothness(curvatures, problem, weights) + problem.mu


def concentration(problem: Problem, multipliers: FloatArray) -> float:
    """Largest ratio of a silo's weight Σ_i c_i/p_k to the mean β + Σλ; at least 1."""
    beta = problem.risk_weight
    per_row = problem.cells.spread(
        problem.cell_weights(multipliers), len(problem.silo_counts)
    )
    masses = beta + (per_row * problem.silo_weights).sum(axis=1) / problem.task.shares
    return max(1.0, float(masses.max()) / (beta + float(multipliers.sum())))


def answered_step(
    size: float, growth: float, moved: float, answer: float, farthest: float
) -> float:
    """Return the next η of a price (Malitsky, Mishchenko 2020).

    Parameters
    ----------
    size, growth
        The last η, and how many times the one before it was.
    moved, answer
        Lengths of the last step of the prices, and of the slopes' change with it.
    farthest
        The largest η.
    """
    longer = math.sqrt(1.0 + growth) * size
    if moved > 0 and answer > 0:
        longer = min(longer, 0.5 * moved / answer)
    return min(longer, farthest)


def regret_dual_step(violation: FloatArray, dual_rounds: int) -> float:
    """Return η_θ = √(log(Z+1)/E)/ρ with ρ = max|r|, where nothing has answered yet.

    It minimises the dual term B·log(Z+1)/(η_θ E) + η_θ ρ² B of the corrected Theorem 1.
    """
    rho = max(float(np.abs(violation).max(initial=0.0)), 1e-6)
    return math.sqrt(math.log(len(violation) + 1) / dual_rounds) / rho


def ascent_regret_step(losses: FloatArray, rounds: int) -> float:
    """Return η = √(2/T)/‖L‖: the simplex is √2 wide."""
    return math.sqrt(2 / rounds) / max(float(np.linalg.norm(losses)), 1e-6)
