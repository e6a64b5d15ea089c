"""An independent judge: F, r and G on raw rows, in long double, with its own solvers.

Taken from the product are only scaling (of inputs and target), the layout of the
parameters (rows of [W, b]) and who is in which cell. Values are sums of long doubles;
directions of search are double, for a direction proves nothing. Every minimum found
here is *attained*, so a statement that it beats is false.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize

from tests.oracles import Federation, People, Solved, cells_of, people_of

Long = np.longdouble
LARGE = 60  # parameters: beyond, a search is made once, and shorter
STEPS = 60  # of a Newton search
#: Σ over n long doubles, and the product's own doubles w and λ read as they stand.
NOISE = 1e-17


def _long(values: object) -> np.ndarray:
    return np.asarray(values, dtype=Long)


@dataclass(frozen=True, eq=False)
class Loss:
    """One example's loss as a function of its scores, in the user's units.

    A numeric target t is predicted by ``mean + scale · z``.
    """

    kind: str
    outputs: int = 1
    delta: float = 1.0
    mean: float = 0.0
    scale: float = 1.0

    @property
    def square(self) -> float:
        """What a squared residual of 1 in standardised units is worth."""
        return self.scale**2

    def residuals(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Prediction minus target, in standardised units."""
        return z - (y - Long(self.mean)) / Long(self.scale)

    def values(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """ℓ of scores (n, outputs), for y in the user's units."""
        if self.kind == "logistic":
            return np.logaddexp(Long(0), z[:, 0]) - y * z[:, 0]
        if self.kind == "softmax":
            return -_log_softmax(z)[np.arange(len(y)), y.astype(int)]
        r = self.residuals(z[:, 0], y)
        if self.kind == "least-squares":
            return Long(self.square) * r * r
        d = Long(self.delta) / Long(self.scale)
        c = np.clip(r, -d, d)
        return Long(self.square) * c * (2 * r - c)

    def slopes(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """∂ℓ/∂z, shape (n, outputs)."""
        if self.kind == "logistic":
            return (_sigmoid(z[:, 0]) - y)[:, None]
        if self.kind == "softmax":
            out = np.exp(_log_softmax(z))
            out[np.arange(len(y)), y.astype(int)] -= 1
            return out
        r = self.residuals(z[:, 0], y)
        if self.kind == "huber":
            d = Long(self.delta) / Long(self.scale)
            r = np.clip(r, -d, d)
        return (2 * Long(self.square) * r)[:, None]

    def curvatures(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """∂²ℓ/∂z², shape (n, outputs, outputs), double: for directions only."""
        if self.kind == "softmax":
            p = np.exp(_log_softmax(z)).astype(float)
            return p[:, :, None] * (np.eye(p.shape[1]) - p[:, None, :])
        if self.kind == "logistic":
            e = np.exp(-np.abs(z[:, 0]))
            return np.asarray(e / (1 + e) ** 2, dtype=float)[:, None, None]
        r = np.abs(self.residuals(z[:, 0], y)).astype(float)
        flat = 2.0 * self.square * np.ones_like(r)
        if self.kind == "huber":
            d = self.delta / self.scale
            flat *= np.where(r <= d, 1.0, 0.05 * d / np.maximum(r, d))
        return flat[:, None, None]

    def bounded(
        self,
        z: np.ndarray,
        y: np.ndarray,
        bound: float | None,
        target_range: tuple[float, float] | None = None,
    ) -> np.ndarray:
        """ℓ of the predictor that is shipped: bounded by M, or clipped to a range."""
        plain = self.values(z, y)
        if self.kind == "logistic" and bound is not None:
            least = -np.log1p(-np.exp(-Long(bound)))
            return np.clip(plain, least, Long(bound))
        if self.kind == "softmax" and bound is not None:
            floor = np.exp(-Long(bound))
            return -np.log((1 - self.outputs * floor) * np.exp(-plain) + floor)
        if self.kind not in ("logistic", "softmax") and target_range is not None:
            low, high = ((_long(v) - self.mean) / self.scale for v in target_range)
            return self.values(np.clip(z, low, high), y)
        return plain


def _log_softmax(z: np.ndarray) -> np.ndarray:
    shifted = z - z.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _sigmoid(z: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(z))
    return np.where(z >= 0, 1 / (1 + e), e / (1 + e))


@dataclass(frozen=True, eq=False)
class Judge:
    """The rows of one split, weighed as the product says that it weighs them.

    Attributes
    ----------
    X, y
        Inputs as the model sees them, with the constant 1, and targets as given.
    q
        Weight of each row in F.
    s
        How much each row counts.
    cells
        Who is in which cell, shape (Z, n).
    bounds
        ζ.
    ridge
        μ, in the user's units.
    beta, budget
        β and B.
    """

    loss: Loss
    X: np.ndarray
    y: np.ndarray
    q: np.ndarray
    s: np.ndarray
    cells: np.ndarray
    bounds: np.ndarray
    ridge: float
    beta: float
    budget: float

    @property
    def parameters(self) -> int:
        """Length of w."""
        return self.loss.outputs * self.X.shape[1]

    @cached_property
    def double(self) -> np.ndarray:
        """The inputs, for directions."""
        return self.X.astype(float)

    @cached_property
    def shares(self) -> np.ndarray:
        """s_i/m_z for the rows of each cell, shape (Z, n)."""
        parts = self.cells * self.s
        return parts / parts.sum(axis=1)[:, None]

    def with_bounds(self, bounds: object) -> Judge:
        """Return the same rows under other bounds."""
        return replace(self, bounds=np.asarray(bounds, dtype=float))

    def scores(self, w: object) -> np.ndarray:
        """W x + b, shape (n, outputs)."""
        return self.X @ _long(w).reshape(self.loss.outputs, -1).T

    def losses(self, w: object) -> np.ndarray:
        """The model's own, uncut losses."""
        return self.loss.values(self.scores(w), self.y)

    def means(self, losses: np.ndarray) -> np.ndarray:
        """Mean of each cell."""
        return self.shares @ losses

    def violation(self, w: object) -> np.ndarray:
        """r(w)."""
        return self.means(self.losses(w)) - _long(self.bounds)

    def risk(self, w: object) -> np.longdouble:
        """F(w), ridge included."""
        v = _long(w)
        return self.q @ self.losses(w) + Long(self.ridge) / 2 * (v @ v)

    def weights(self, lam: object, beta: float) -> np.ndarray:
        """c_i(λ)."""
        return Long(beta) * self.q + _long(lam) @ self.shares

    def value(self, w: object, lam: object, beta: float | None = None) -> np.longdouble:
        """G(w; λ)."""
        beta = self.beta if beta is None else beta
        v, c = _long(w), self.weights(lam, beta)
        fit = c @ self.losses(w) - _long(lam) @ _long(self.bounds)
        return fit + Long(beta) * Long(self.ridge) / 2 * (v @ v)

    def gradient(self, w: object, c: np.ndarray, ridge: float) -> np.ndarray:
        """Σ c_i ∇ℓ_i(w) + ridge · w."""
        slopes = self.loss.slopes(self.scores(w), self.y) * c[:, None]
        return (slopes.T @ self.X).reshape(-1) + Long(ridge) * _long(w)

    def hessian(self, w: object, c: np.ndarray, ridge: float) -> np.ndarray:
        """Σ c_i ∇²ℓ_i(w) + ridge · I, in double."""
        bend = self.loss.curvatures(self.scores(w), self.y)
        bend = bend * np.asarray(c, dtype=float)[:, None, None]
        q, d = self.loss.outputs, self.X.shape[1]
        out = np.empty((q, d, q, d))
        for a in range(q):
            for b in range(a + 1):
                part = (self.double * bend[:, a, b][:, None]).T @ self.double
                out[a, :, b], out[b, :, a] = part, part.T
        return out.reshape(q * d, q * d) + ridge * np.eye(q * d)

    # ---------------------------------------------------------------- searches

    def upper(self, w: object) -> np.longdouble:
        """Max over λ of G(w; λ)."""
        worst = max(Long(0), self.violation(w).max(initial=Long(0)))
        return Long(self.beta) * self.risk(w) + Long(self.budget) * worst

    def best_response(
        self,
        lam: object,
        start: object,
        *,
        beta: float | None = None,
        radius: float = np.inf,
    ) -> np.ndarray:
        """Search for the w that minimises G(·; λ) within ‖w‖ ≤ radius.

        What is returned is no proof of a minimum, and need not be: G there is
        attained.
        """
        beta = self.beta if beta is None else beta
        c, ridge = self.weights(lam, beta), beta * self.ridge
        w = _inside(_long(start), radius)
        here = self.value(w, lam, beta)
        for _ in range(STEPS):
            gradient = self.gradient(w, c, ridge)
            target = _newton(
                self.hessian(w, c, ridge), gradient.astype(float), w, radius
            )
            step, length, improved = target - w, Long(1), False
            while length > 1e-12:
                trial = _inside(w + length * step, radius)
                there = self.value(trial, lam, beta)
                if there < here:
                    improved = True
                    break
                length /= 4
            if not improved:
                break
            small = here - there <= 1e-19 * abs(here)
            w, here = trial, there
            if small:
                break
        return w

    def true_gap(
        self, w: object, lam: object, *, radius: float = np.inf
    ) -> np.longdouble:
        """A lower bound of the duality gap of (w, λ): any other model may be named."""
        starts = [_long(w), np.zeros(len(_long(w)), dtype=Long)]
        found = [self.best_response(lam, start, radius=radius) for start in starts]
        return self.upper(w) - min(self.value(v, lam) for v in found)

    def smallest_excess(
        self, start: object, *, radius: float = np.inf
    ) -> tuple[np.longdouble, np.ndarray]:
        """Search for the w with the least max_z r_z(w), and return both.

        Newton's method on the smoothed maximum t·log Σ e^{r/t}, t → 0; then SLSQP
        where that is cheap. Attained, so an upper bound of the smallest.
        """
        best_w = _inside(_long(start), radius)
        best = self.violation(best_w).max()
        zero = np.zeros_like(best_w)
        if self.violation(zero).max() < best:
            best, best_w = self.violation(zero).max(), zero
        size = float(max(abs(self.means(self.losses(zero))).max(), 1e-300))
        starts = (best_w, zero) if len(zero) <= LARGE else (best_w,)
        for start_w in starts:
            w = start_w
            for exponent in range(1, 9):
                w = self._smoothed(w, size * 10.0**-exponent, radius)
                worst = self.violation(w).max()
                if worst < best:
                    best, best_w = worst, w
        if len(best_w) <= 30 and len(self.bounds) <= 30 and np.isinf(radius):
            w = self._slsqp(best_w, size)
            worst = self.violation(w).max()
            if worst < best:
                best, best_w = worst, w
        return best, best_w

    def _smoothed(self, w: np.ndarray, t: float, radius: float) -> np.ndarray:
        def smooth(r: np.ndarray) -> np.longdouble:
            top = r.max()
            return top + Long(t) * np.log(np.exp((r - top) / Long(t)).sum())

        value = smooth(self.violation(w))
        for _ in range(25):
            z = self.scores(w)
            r = self.means(self.loss.values(z, self.y)) - _long(self.bounds)
            pi = np.exp((r - r.max()) / Long(t))
            pi /= pi.sum()
            slopes = self.loss.slopes(z, self.y)
            keep = np.flatnonzero(pi > 1e-12)
            jac = np.stack(
                [
                    ((slopes * self.shares[k][:, None]).T @ self.X).reshape(-1)
                    for k in keep
                ]
            ).astype(float)
            weight = pi[keep].astype(float)
            gradient = weight @ jac
            hessian = self.hessian(w, pi @ self.shares, 0.0)
            hessian += (jac.T * weight) @ jac / t - np.outer(gradient, gradient) / t
            target = _newton(hessian, gradient, w, radius)
            step, length, there = target - w, Long(1), value
            while length > 1e-6:
                trial = _inside(w + length * step, radius)
                there = smooth(self.violation(trial))
                if there < value:
                    break
                length /= 3
            if not there < value:
                break
            small = value - there <= 1e-4 * t
            w, value = trial, there
            if small:
                break
        return w

    def _slsqp(self, w: np.ndarray, size: float) -> np.ndarray:
        """Polish in the epigraph: min s subject to r_z(w) ≤ s."""
        p = len(w)

        def rows(x: np.ndarray) -> np.ndarray:
            return x[p] - (self.violation(x[:p]) / size).astype(float)

        def jacobian(x: np.ndarray) -> np.ndarray:
            slopes = self.loss.slopes(self.scores(x[:p]), self.y)
            jac = [
                ((slopes * share[:, None]).T @ self.X).reshape(-1)
                for share in self.shares
            ]
            out = np.ones((len(jac), p + 1))
            out[:, :p] = -np.asarray(jac, dtype=float) / size
            return out

        start = np.append(w.astype(float), float((self.violation(w) / size).max()))
        unit = np.append(np.zeros(p), 1.0)
        try:
            found = minimize(
                lambda x: x[p],
                start,
                jac=lambda x: unit,
                constraints=[{"type": "ineq", "fun": rows, "jac": jacobian}],
                method="SLSQP",
                options={"maxiter": 60, "ftol": 1e-15},
            )
        except (ValueError, FloatingPointError):
            return w
        good = np.isfinite(found.x).all()
        return _long(found.x[:p]) if good else w

    def constants(self) -> np.ndarray:
        """Mean loss of each cell under the best constant model of all rows."""
        if self.loss.kind in ("logistic", "softmax"):
            rate = np.bincount(self.y.astype(int), self.s.astype(float), minlength=2)
            rate = rate / self.s.sum()
            losses = -np.log(np.maximum(rate, NOISE))[self.y.astype(int)]
        else:
            mean = (self.s @ self.y) / self.s.sum()
            z = np.full(len(self.y), mean, dtype=Long)
            flat = replace(self.loss, mean=0.0, scale=1.0)
            losses = flat.values(z[:, None], self.y)
        return self.means(losses)


def _inside(w: np.ndarray, radius: float) -> np.ndarray:
    length = np.sqrt(w @ w)
    return w if length <= radius else w * (Long(radius) * (1 - 1e-15) / length)


def _newton(
    hessian: np.ndarray, gradient: np.ndarray, w: np.ndarray, radius: float
) -> np.ndarray:
    """Where the second-order model is least within ‖v‖ ≤ radius."""
    if len(w) > LARGE and np.isinf(radius):
        shifted = hessian + 1e-13 * np.trace(hessian) * np.eye(len(w))
        return w - _long(np.linalg.solve(shifted, gradient))
    eigenvalues, basis = np.linalg.eigh(hessian)
    floor = 1e-13 * max(float(eigenvalues[-1]), 1e-300)
    eigenvalues = np.maximum(eigenvalues, floor)
    along = basis.T @ gradient
    v = w + _long(-basis @ (along / eigenvalues))
    if np.sqrt(v @ v) <= radius:
        return v
    target = eigenvalues * (basis.T @ w.astype(float)) - along
    low, high = 0.0, float(np.linalg.norm(target)) / radius
    for _ in range(100):
        middle = 0.5 * (low + high)
        outside = np.linalg.norm(target / (eigenvalues + middle)) > radius
        low, high = (middle, high) if outside else (low, middle)
    return _long(basis @ (target / (eigenvalues + high)))


def judge_of(solution: Solved, federation: Federation, split: str) -> Judge:
    """Read rows, scaling and cells, and nothing that was computed."""
    rows = people_of(federation, split)
    mean, scale = (0.0, 1.0) if rows.labels else solution.target
    loss = Loss(solution.kind, solution.outputs, solution.delta, mean, scale)
    inputs = (_long(rows.X) - _long(solution.input_mean)) / _long(solution.input_scale)
    if solution.intercept:
        inputs = np.concatenate([inputs, np.ones((len(rows.y), 1), dtype=Long)], axis=1)
    s = _long(rows.weight)
    sizes = np.array([s[rows.silo == k].sum() for k in range(len(rows.silos))])
    share = np.full(len(sizes), Long(1) / len(sizes))
    if solution.weighting == "rows":
        share = sizes / s.sum()
    return Judge(
        loss,
        inputs,
        _long(rows.y),
        s * (share / np.where(sizes > 0, sizes, 1))[rows.silo],
        s,
        members(rows, solution.cells),
        solution.bounds,
        solution.ridge,
        solution.risk_weight,
        solution.multiplier_bound,
    )


def of_rows(federation: Federation, constraint: Any, kind: str, delta: float) -> Judge:
    """Rows and cells before anything is solved, in a scaling of the judge's own."""
    rows = people_of(federation, "train")
    X, y = rows.X, rows.y
    spread = X.std(axis=0)
    scaled = (_long(X) - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    inputs = np.concatenate([scaled, np.ones((len(y), 1))], axis=1)
    cells = cells_of(constraint, federation)
    cells = cells[cells.any(axis=1)]
    loss = Loss(
        kind,
        len(rows.labels) if kind == "softmax" else 1,
        delta,
        0.0 if rows.labels else float(y.mean()),
        1.0 if rows.labels else float(y.std()),
    )
    s, zero = _long(rows.weight), np.zeros(len(cells))
    return Judge(loss, inputs, _long(y), s / s.sum(), s, cells, zero, 0.0, 0.0, 1.0)


def members(
    rows: People,
    cells: Sequence[tuple[Sequence[tuple[str, str | None]], str | None]],
) -> np.ndarray:
    """Who is in which cell, by the names that the evidence gives."""
    labels: Sequence[str | None] = rows.labels or (None,)
    code = rows.y.astype(int) if rows.labels else np.zeros(len(rows.y), int)
    who = [(rows.groups[g], labels[c]) for g, c in zip(rows.group, code, strict=True)]
    names = [rows.silos[k] for k in rows.silo]
    out = np.zeros((len(cells), len(rows.y)), dtype=bool)
    for row, (of, confined) in zip(out, cells, strict=True):
        inside = {tuple(pair) for pair in of}
        row[:] = [
            person in inside and confined in (None, home)
            for person, home in zip(who, names, strict=True)
        ]
    return out
