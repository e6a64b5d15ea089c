"""An oracle for F, r and G that knows nothing of `pffl` but rows: plain, and cvxpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from tests.oracles import people_of


@dataclass(frozen=True, eq=False)
class Oracle:
    """F, r and G from pooled rows, straight from CONTRIBUTING.md.

    `X` is scaled and has a column of ones; `cells` marks each cell's rows, (Z, n).
    """

    kind: str
    X: np.ndarray
    y: np.ndarray
    risk_weights: np.ndarray  # p_k / m_k of each row
    cells: np.ndarray
    bounds: np.ndarray
    beta: float
    budget: float
    l2: float  # in the losses' unit
    classes: int = 1
    shift: float = 0.0  # a numeric target's mean and standard deviation
    stretch: float = 1.0

    @classmethod
    def of(
        cls,
        federation: Any,
        cells: np.ndarray,
        bounds: Sequence[float],
        *,
        kind: str = "logistic",
        beta: float = 1.0,
        budget: float = 5.0,
        l2: float = 1e-3,
        weighting: str = "silos",
        standardize: bool = True,
    ) -> Oracle:
        """Pool the rows, scale them, and count."""
        pooled = people_of(federation)
        X = np.asarray(pooled.X, dtype=np.float64)
        if standardize:
            deviation = X.std(axis=0)
            X = (X - X.mean(axis=0)) / np.where(deviation > 1e-9, deviation, 1.0)
        X = np.column_stack([X, np.ones(len(X))])
        sizes = np.bincount(pooled.silo)
        shares = {
            "silos": np.full(len(sizes), 1 / len(sizes)),
            "rows": sizes / sizes.sum(),
        }[weighting]
        classes = max(1, len(pooled.labels)) if kind == "softmax" else 1
        numeric = kind == "least-squares"
        shift, stretch = (pooled.y.mean(), pooled.y.std()) if numeric else (0.0, 1.0)
        return cls(
            kind,
            X,
            pooled.y,
            (shares / sizes)[pooled.silo],
            np.asarray(cells, dtype=bool).reshape(len(bounds), len(X)),
            np.asarray(bounds, dtype=float),
            beta,
            budget,
            l2 * stretch**2,
            classes,
            shift,
            stretch,
        )

    def scores(self, w: np.ndarray) -> np.ndarray:
        return self.X @ w.reshape(self.classes, -1).T

    def losses(self, w: np.ndarray) -> np.ndarray:
        z = self.scores(w)
        if self.kind == "softmax":
            own = z[np.arange(len(z)), self.y.astype(int)]
            return logsumexp(z, axis=1) - own
        z = z[:, 0]
        if self.kind == "least-squares":
            return (self.shift + self.stretch * z - self.y) ** 2
        return np.where(self.y == 1, np.logaddexp(0, -z), np.logaddexp(0, z))

    def slopes(self, w: np.ndarray) -> np.ndarray:
        z = self.scores(w)
        if self.kind == "softmax":
            pi = np.exp(z - logsumexp(z, axis=1, keepdims=True))
            return pi - np.eye(self.classes)[self.y.astype(int)]
        if self.kind == "least-squares":
            return 2 * self.stretch * (self.shift + self.stretch * z - self.y[:, None])
        return expit(z) - self.y[:, None]

    def weighted_gradient(self, w: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return (self.slopes(w) * weights[:, None]).T.dot(self.X).ravel()

    def risk(self, w: np.ndarray) -> float:
        return float(self.risk_weights @ self.losses(w) + self.l2 / 2 * w @ w)

    def violation(self, w: np.ndarray) -> np.ndarray:
        losses = self.losses(w)
        return np.array([losses[cell].mean() for cell in self.cells]) - self.bounds

    def row_weights(self, lam: np.ndarray) -> np.ndarray:
        """Return c_i(λ) = β p_k/m_k + Σ_{z∋i} λ_z/m_z, one row after the other."""
        c = self.beta * self.risk_weights
        for multiplier, cell in zip(lam, self.cells, strict=True):
            for i in np.flatnonzero(cell):
                c[i] += multiplier / cell.sum()
        return c

    def value(self, w: np.ndarray, lam: np.ndarray) -> float:
        return self.beta * self.risk(w) + float(lam @ self.violation(w))

    def gradient(self, w: np.ndarray, lam: np.ndarray) -> np.ndarray:
        return (
            self.weighted_gradient(w, self.row_weights(lam)) + self.beta * self.l2 * w
        )

    def upper(self, w: np.ndarray) -> float:
        worst = self.violation(w).max(initial=0.0)
        return self.beta * self.risk(w) + self.budget * max(0.0, worst)

    def least(self, lam: np.ndarray, radius: float | None = None) -> float:
        """Return a value of G(·; λ) that is attained, hence ≥ its minimum.

        With `radius`, over the ball ‖w‖ ≤ radius.
        """
        start = np.zeros(self.classes * self.X.shape[1])
        options: dict[str, Any] = {"method": "BFGS", "options": {"gtol": 1e-10}}
        if radius is not None:
            ball = {
                "type": "ineq",
                "fun": lambda w: radius**2 - w @ w,
                "jac": lambda w: -2 * w,
            }
            options = {"method": "SLSQP", "constraints": [ball], "tol": 1e-13}
        c = self.row_weights(lam)
        found = minimize(
            lambda w: self.value(w, lam),
            start,
            jac=lambda w: self.weighted_gradient(w, c) + self.beta * self.l2 * w,
            **options,
        ).x
        if radius is not None:
            found = found * min(1.0, radius / max(np.linalg.norm(found), 1e-300))
        return min(self.value(found, lam), self.value(start, lam))

    def saddle(self, radius: float | None = None) -> tuple[float, np.ndarray]:
        """Return min_w βF(w) + B·max(0, max r(w)) and its w, by cvxpy."""
        cp = pytest.importorskip("cvxpy")
        w = cp.Variable((self.X.shape[1], self.classes))
        z = self.X @ w
        if self.kind == "softmax":
            own = cp.multiply(np.eye(self.classes)[self.y.astype(int)], z)
            losses = cp.log_sum_exp(z, axis=1) - cp.sum(own, axis=1)
        elif self.kind == "least-squares":
            losses = cp.square(self.shift + self.stretch * z[:, 0] - self.y)
        else:
            losses = cp.logistic(cp.multiply(1 - 2 * self.y, z[:, 0]))
        risk = self.risk_weights @ losses + self.l2 / 2 * cp.sum_squares(w)
        worst = cp.Variable(nonneg=True)
        limits = [] if radius is None else [cp.norm(w, "fro") <= radius]
        for cell, bound in zip(self.cells, self.bounds, strict=True):
            limits.append(cell / cell.sum() @ losses - bound <= worst)
        goal = cp.Minimize(self.beta * risk + self.budget * worst)
        problem = cp.Problem(goal, limits)
        # Tighter ones make Clarabel stall now and then on exponential cones.
        tolerances = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-7)
        problem.solve(solver=cp.CLARABEL, **tolerances)
        assert problem.status == cp.OPTIMAL
        return float(problem.value), w.value.T.ravel()
