"""The constants of a plan: how many rounds Algorithm 1 needs at most, a priori.

They are worst cases over all multipliers with Σλ ≤ B and all models of the ball, from
the length X of the longest input, the sizes of the cells and the silos, β, μ, B, R:

    L  =  β(l + μ) + B·l·h          l = X²/4 (logistic), X²/2 (softmax)
    𝒢  =  (β + B·h)·s·X + βμR       s = 1, √2: the steepest slope of a loss
    Γ  ≤  (β + B)·log C             what w = 0 pays
    ρ  =  the largest loss on the ball, or the largest bound

with h the largest weight m_kz/(m_z p_k) of a cell in a silo's own objective.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pffl.certificates.loss_bounds import loss_bound_linear, softmax_loss_bound
from pffl.certificates.plan import local_smoothness
from pffl.certify.basis import Basis
from pffl.certify.subject import Subject
from pffl.certify.unseen import longest_input
from pffl.problem import Problem
from pffl.typing import FloatArray

CLASSIFIERS = {"logistic": (0.25, 1.0), "softmax": (0.5, math.sqrt(2.0))}


def plan_unavailable(basis: Basis) -> str | None:
    """Say what is missing for a plan."""
    if basis.model.kind not in CLASSIFIERS:
        return "needs a logistic or softmax regression"
    if basis.modulus <= 0 or basis.multiplier_bound <= 0:
        return "needs a ridge term, a risk weight and a multiplier bound above 0"
    return None


def plan_figures(
    subject: Subject, basis: Basis, target_gap: float
) -> Mapping[str, Any] | None:
    """Return the constants; None where the length of the inputs is unknown."""
    X = basis.feature_bound
    if X is None:
        X = longest_input(subject)
    if X is None:
        return None
    curve, slope = CLASSIFIERS[basis.model.kind]
    problem, R, B = subject.problem, basis.radius, basis.multiplier_bound
    parts = silo_parts(problem)
    heaviest = float((parts / problem.task.shares[:, None]).max())
    smoothness = local_smoothness(
        curve * X * X,
        parts,
        problem.task.shares,
        risk_weight=basis.risk_weight,
        l2=basis.model.l2,
        multiplier_bound=B,
    )
    price = basis.risk_weight + B * heaviest
    classes = max(2, basis.model.outputs)
    several = basis.model.kind == "softmax"
    worst = softmax_loss_bound(R, X, classes) if several else loss_bound_linear(R, X)
    return {
        "target_gap": target_gap,
        "longest_input": X,
        "heaviest": heaviest,
        "smoothness": smoothness,
        "modulus": basis.modulus,
        "gradient_bound": price * slope * X + basis.modulus * R,
        "distance": 2.0 * R,
        "heterogeneity": (basis.risk_weight + B) * math.log(classes),
        "violation_bound": max(worst, float(basis.bounds.max())),
        "local_steps": subject.local_steps,
    }


def silo_parts(problem: Problem) -> FloatArray:
    """Return m_kz/m_z: each silo's part of each cell, shape (K, Z)."""
    silos = range(len(problem.silo_counts))
    counts = problem.silo_counts
    rows = [problem.cells.of_silo(k) @ counts[k] / problem.counts for k in silos]
    return np.asarray(rows, dtype=np.float64)
