"""Small convex problems, written plainly: the oracle of the certificate tests."""

from __future__ import annotations

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from scipy.optimize import minimize


@dataclass(frozen=True, eq=False)
class Problem:
    """F and r of CONTRIBUTING.md by loops over rows."""

    X: np.ndarray
    y: np.ndarray
    silo: np.ndarray
    cells: np.ndarray  # (Z, n) bool
    bounds: np.ndarray
    beta: float
    budget: float
    l2: float
    squared: bool = False

    @property
    def q(self) -> np.ndarray:
        """Weight of each example in F, with p_k = 1/K."""
        _, index, rows = np.unique(self.silo, return_inverse=True, return_counts=True)
        return 1.0 / (len(rows) * rows[index])

    def losses(self, w: np.ndarray) -> np.ndarray:
        z = self.X @ w
        if self.squared:
            return (z - self.y) ** 2
        return np.logaddexp(0.0, z) - self.y * z

    def slopes(self, w: np.ndarray) -> np.ndarray:
        z = self.X @ w
        if self.squared:
            return 2 * (z - self.y)
        return 1 / (1 + np.exp(-z)) - self.y

    def risk(self, w: np.ndarray) -> float:
        return float(self.q @ self.losses(w) + 0.5 * self.l2 * w @ w)

    def risk_gradient(self, w: np.ndarray) -> np.ndarray:
        return self.X.T @ (self.q * self.slopes(w)) + self.l2 * w

    def means(self, w: np.ndarray) -> np.ndarray:
        return np.array([self.losses(w)[cell].mean() for cell in self.cells])

    def violation(self, w: np.ndarray) -> np.ndarray:
        return self.means(w) - self.bounds

    def jacobian(self, w: np.ndarray) -> np.ndarray:
        slopes = self.slopes(w)
        return np.array([self.X[c].T @ slopes[c] / c.sum() for c in self.cells])

    def lagrangian(self, w: np.ndarray, lam: np.ndarray) -> float:
        return self.beta * self.risk(w) + float(lam @ self.violation(w))

    def lagrangian_gradient(self, w: np.ndarray, lam: np.ndarray) -> np.ndarray:
        return self.beta * self.risk_gradient(w) + self.jacobian(w).T @ lam

    def best_response(self, lam: np.ndarray, radius: float | None = None) -> float:
        """Return a value that is attained, hence ≥ min_v G(v; λ)."""
        start = np.zeros(self.X.shape[1])
        kwargs: dict[str, object] = {"method": "BFGS", "options": {"gtol": 1e-9}}
        if radius is not None:
            ball = {"type": "ineq", "fun": lambda v: radius**2 - v @ v}
            kwargs = {"method": "SLSQP", "constraints": [ball], "tol": 1e-12}
        found = minimize(
            lambda v: self.lagrangian(v, lam),
            start,
            jac=lambda v: self.lagrangian_gradient(v, lam),
            **kwargs,
        )
        w = found.x
        if radius is not None and np.linalg.norm(w) > radius:
            w = w * radius / np.linalg.norm(w)
        return self.lagrangian(w, lam)


def draw(seed: int, *, squared: bool = False, overlap: bool = False) -> Problem:
    """Draw a problem with 3 silos, 2 to 4 cells and a few dozen rows."""
    rng = np.random.default_rng(seed)
    n, p, groups = int(rng.integers(12, 60)), int(rng.integers(1, 5)), 2
    X = rng.normal(size=(n, p)) * rng.choice([0.3, 1.0, 3.0])
    y = rng.normal(size=n) if squared else (rng.random(n) < 0.5).astype(float)
    group = np.arange(n) % groups
    rng.shuffle(group)
    cells = np.array([group == a for a in range(groups)])
    if overlap:
        other = rng.random(n) < 0.5
        other[:2] = [True, False]
        cells = np.vstack([cells, other, ~other])
    silo = np.concatenate([[0, 1, 2], rng.choice(3, n - 3, p=[0.7, 0.2, 0.1])])
    return Problem(
        X,
        y,
        silo,
        cells,
        bounds=rng.uniform(0.1, 1.0, len(cells)),
        beta=float(rng.choice([0.2, 1.0, 3.0])),
        budget=float(rng.choice([0.5, 5.0, 50.0])),
        l2=float(rng.choice([1e-3, 0.1, 1.0])),
        squared=squared,
    )


def draw_multipliers(rng: np.random.Generator, problem: Problem) -> np.ndarray:
    """Draw λ ≥ 0 with sum at most B."""
    lam = rng.dirichlet(np.ones(len(problem.cells) + 1))[:-1]
    return problem.budget * lam


def draw_model(rng: np.random.Generator, p: int, radius: float) -> np.ndarray:
    """Draw a model inside the ball."""
    w = rng.normal(size=p)
    return w / np.linalg.norm(w) * radius * rng.random()


def cvx_means(problem: Problem, w: cp.Variable) -> list[cp.Expression]:
    """Mean loss per cell as cvxpy expressions."""
    z = problem.X @ w
    if problem.squared:
        losses = cp.square(z - problem.y)
    else:
        losses = cp.logistic(z) - cp.multiply(problem.y, z)
    return [cp.sum(losses[np.flatnonzero(c)]) / c.sum() for c in problem.cells]


def minimax(problem: Problem, radius: float) -> float:
    """Return min over the ball of the worst cell's mean loss, by cvxpy."""
    w = cp.Variable(problem.X.shape[1])
    worst = cp.maximum(*cvx_means(problem, w))
    ball = [cp.norm(w) <= radius]
    return float(cp.Problem(cp.Minimize(worst), ball).solve(solver=cp.CLARABEL))
