"""Attacks of a curious server: rows from what an honest run is told.

Sums of a cell at several w are equations for its rows. Two Hessians of at most p rows
have one solution that an eigenvalue problem finds; more rows need more equations, and a
least-squares fit from random starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from tests.attacks.askers import Ask
from tests.attacks.product import Curvature, Slopes, Task

STARTS, STEPS, SOLVED = 3, 300, 1e-20


@dataclass(frozen=True)
class Told:
    """What was told of a set of rows at w: sums of losses, slopes, and curvature."""

    w: np.ndarray
    loss: float
    gradient: np.ndarray
    hessian: np.ndarray | None

    @property
    def numbers(self) -> int:
        """How many numbers that is."""
        p = len(self.w)
        return 1 + p + (0 if self.hessian is None else p * (p + 1) // 2)


def of_cell(w: np.ndarray, total: Any, cell: int) -> Told:
    """What a total says of a cell."""
    curved = hasattr(total, "cell_hessians")
    hessian = total.cell_hessians[cell] if curved else None
    return Told(w, total.cell_losses[cell], total.cell_gradients[cell], hessian)


def left_out(w: np.ndarray, total: Any, rows: float) -> Told:
    """What F less all cells says of those who are in none, of a silo of `rows`."""
    return Told(
        w,
        rows * total.risk - total.cell_losses.sum(),
        rows * total.risk_gradient - total.cell_gradients.sum(axis=0),
        rows * total.risk_hessian - total.cell_hessians.sum(axis=0),
    )


@dataclass(frozen=True)
class Trained:
    """A run on F + λᵀr: runs with bounds of their own have their own multipliers."""

    task: Task
    multipliers: np.ndarray
    ridge: float = 1e-2

    def slope(self, w: np.ndarray, total: Any) -> np.ndarray:
        """The gradient of what is minimised."""
        cells = self.multipliers @ total.cell_gradients
        return np.asarray(total.risk_gradient + cells + self.ridge * w)

    def newton(self, ask: Ask, rounds: int) -> list[tuple[Any, Any]]:
        """Train with Hessians, as `Exact`; return each w, and what was told there."""
        w, told = np.zeros(self.task.model.n_parameters), []
        for _ in range(rounds):
            total = ask(Curvature(self.task, w))
            if total is None:
                break
            told.append((w, total))
            cells = np.tensordot(self.multipliers, total.cell_hessians, 1)
            curved = total.risk_hessian + cells + self.ridge * np.eye(len(w))
            w = w - np.linalg.solve(curved, self.slope(w, total))
        return told

    def descent(self, ask: Ask, rounds: int) -> list[tuple[Any, Any]]:
        """Train with gradients only, by L-BFGS; return the same."""
        told: list[tuple[Any, Any]] = []

        def value(w: np.ndarray) -> tuple[float, np.ndarray]:
            if len(told) == rounds or (total := ask(Slopes(self.task, w))) is None:
                raise StopIteration
            told.append((w.copy(), total))
            loss = total.risk + self.multipliers @ total.cell_losses
            return float(loss + self.ridge / 2 * w @ w), self.slope(w, total)

        with suppress(StopIteration):
            start = np.zeros(self.task.model.n_parameters)
            exact = {"gtol": 1e-12, "ftol": 0.0}
            minimize(value, start, jac=True, method="L-BFGS-B", options=exact)
        return told


def by_eigenvectors(told: Sequence[Told], n: int) -> list[np.ndarray]:
    """Return n ≤ p rows whose Hessians the first and the last of `told` are.

    Both are XᵀDX with a diagonal D each: what diagonalises both is X.
    """
    if len(told) < 2 or told[0].hessian is None or told[-1].hessian is None:
        return []
    values, vectors = np.linalg.eigh(told[0].hessian)
    values, vectors = values[-n:], vectors[:, -n:]
    if values[0] <= 0:
        return []
    white = vectors / np.sqrt(values)
    _, turned = np.linalg.eigh(white.T @ told[-1].hessian @ white)
    rows = (vectors * np.sqrt(values)) @ turned
    with np.errstate(divide="ignore", invalid="ignore"):
        return list((rows / rows[-1])[:-1].T)


def by_fit(told: Sequence[Told], n: int, label: float, seed: int) -> list[np.ndarray]:
    """Return n rows with one label that fit all that was told, best of some starts."""
    if not told:
        return []
    rng = np.random.default_rng(seed)
    best, least = np.zeros((0, 0)), np.inf
    for _ in range(STARTS):
        start = rng.normal(size=(n, len(told[0].w) - 1))
        rows, cost = _fit(told, start, label)
        if cost < least:
            best, least = rows, cost
        if least < SOLVED:
            break
    return list(best)


def _fit(told: Sequence[Told], X: np.ndarray, label: float) -> tuple[np.ndarray, float]:
    """Levenberg–Marquardt with the exact Jacobian."""
    damping = 1.0
    residual, jacobian = _equations(told, X, label)
    cost = float(residual @ residual)
    for _ in range(STEPS):
        normal = jacobian.T @ jacobian
        slope = jacobian.T @ residual
        scale = damping * (np.diag(normal) + 1e-12)
        step = np.linalg.solve(normal + np.diag(scale), slope)
        trial = X - step.reshape(X.shape)
        residual_there, jacobian_there = _equations(told, trial, label)
        there = float(residual_there @ residual_there)
        if there < cost:
            shrunk = 1 - there / cost
            X, cost, residual, jacobian = trial, there, residual_there, jacobian_there
            damping = max(damping / 5, 1e-15)
            if cost < SOLVED / 1e4 or (shrunk < 1e-6 and damping < 1e-10):
                break
        else:
            damping *= 4
            if damping > 1e12:
                break
    return X, cost


def _equations(
    told: Sequence[Told], X: np.ndarray, label: float
) -> tuple[np.ndarray, np.ndarray]:
    """Residuals of all that was told, and their derivatives in X."""
    n, d = X.shape
    ones = np.column_stack([X, np.ones(n)])
    upper = np.triu_indices(d + 1)
    residuals, rows = [], []
    for t in told:
        z = ones @ t.w
        s = expit(z)
        slope, bend = s - label, s * (1 - s)
        v = t.w[:-1]
        residuals.append([(np.logaddexp(0, z) - label * z).sum() - t.loss])
        rows.append((slope[:, None] * v).reshape(1, -1))
        residuals.append(ones.T @ slope - t.gradient)
        moved = np.einsum("n,nk,a->kna", bend, ones, v)
        for a in range(d):
            moved[a, :, a] += slope
        rows.append(moved.reshape(d + 1, -1))
        if t.hessian is None:
            continue
        residuals.append((ones.T @ (bend[:, None] * ones) - t.hessian)[upper])
        outer = ones[:, upper[0]] * ones[:, upper[1]]
        turned = np.einsum("n,nu,a->una", bend * (1 - 2 * s), outer, v)
        for place, (i, j) in enumerate(zip(*upper, strict=True)):
            if i < d:
                turned[place, :, i] += bend * ones[:, j]
            if j < d:
                turned[place, :, j] += bend * ones[:, i]
        rows.append(turned.reshape(len(upper[0]), -1))
    return np.concatenate(residuals), np.concatenate(rows)
