"""Small federations, and an oracle for G that knows nothing of `pffl`'s engines."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

import pffl
from pffl.data import Attribute, Federation, Rows, Schema, Silo
from pffl.engines import Reference
from pffl.preparation import Options
from pffl.problem import Problem
from pffl.questions import Evaluate, Train, Witness
from tests.driving import prepare

MODELS = {
    "logistic": (pffl.LogisticRegression, 2),
    "softmax": (pffl.SoftmaxRegression, 3),
    "least-squares": (pffl.LeastSquares, 0),
}


def make_schema(
    *,
    features: int = 3,
    labels: int = 2,
    attributes: Sequence[tuple[str, Sequence[str]]] = (("sex", ("f", "m")),),
) -> Schema:
    """Name `features` inputs, the attributes, and `labels` classes (0: a number)."""
    return Schema(
        tuple(f"x{j}" for j in range(features)),
        tuple(Attribute(name, tuple(values)) for name, values in attributes),
        tuple(f"class {c}" for c in range(labels)),
    )


def make_rows(
    rng: np.random.Generator,
    schema: Schema,
    n: int,
    *,
    shift: float = 0.0,
    dtype: Any = np.float64,
) -> Rows:
    """Draw rows whose label depends on the inputs and a little on the group."""
    d, labels = schema.n_features, len(schema.labels)
    X = rng.normal(size=(n, d)) * (1 + np.arange(d)) + shift
    group = rng.integers(len(schema.groups), size=n)
    score = X @ np.linspace(1.0, -0.5, d) / (1 + d) + 0.6 * group
    noise = rng.normal(size=n)
    if labels == 0:
        y = score + noise
    elif labels == 2:
        y = (score + 1.5 * noise > 0.5).astype(float)
    else:
        y = np.clip(np.floor(score + noise + labels / 2), 0, labels - 1)
    return Rows.of(X.astype(dtype), y, group)


def make_federation(
    seed: int = 0,
    *,
    sizes: Sequence[int] = (40, 25, 60),
    test: Sequence[int] | int = 15,
    schema: Schema | None = None,
    labels: int = 2,
    dtype: Any = np.float64,
    heterogeneity: float = 0.5,
) -> Federation:
    """Draw a federation with silos of the given sizes."""
    rng = np.random.default_rng(seed)
    schema = schema or make_schema(labels=labels)
    tests = [test] * len(sizes) if isinstance(test, int) else test
    silos = []
    for k, (train_rows, test_rows) in enumerate(zip(sizes, tests, strict=True)):
        shift = heterogeneity * rng.normal()
        splits = {
            split: make_rows(rng, schema, n, shift=shift, dtype=dtype)
            for split, n in (("train", train_rows), ("test", test_rows))
        }
        silos.append(Silo(f"site {k}", k, splits))
    return Federation(schema, tuple(silos), name="test")


def from_silos(federation: Federation, silos: Sequence[Silo]) -> Federation:
    """Return a federation of other silos with the same schema, numbered anew."""
    numbered = tuple(replace(silo, index=k) for k, silo in enumerate(silos))
    return replace(federation, silos=numbered)


def repartition(federation: Federation, silo_of_row: np.ndarray) -> Federation:
    """Return the same rows, the training rows shared out anew."""
    pooled = {split: federation.pooled(split) for split in federation.splits}
    rows = {s: Rows.of(p.X, p.y, p.group) for s, p in pooled.items()}
    silos = []
    for k, name in enumerate(np.unique(silo_of_row)):
        train = rows["train"].take(np.flatnonzero(silo_of_row == name))
        nobody = np.arange(len(rows["test"])) if k == 0 else np.arange(0)
        silos.append(
            Silo(f"part {k}", k, {"train": train, "test": rows["test"].take(nobody)})
        )
    return replace(federation, silos=tuple(silos))


def make_problem(
    engine: Reference,
    constraint: Any,
    *,
    model: Any = None,
    beta: float = 1.0,
    budget: float = 5.0,
    options: Options | None = None,
    seed: int = 0,
) -> Problem:
    """Ask the census and build the problem, without warnings of small cells."""
    method = pffl.PFFL(risk_weight=beta, multiplier_bound=budget)
    settings = options or Options()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "cells with fewer than 10")
        return prepare(engine, constraint, model, method, settings, seed)[0]


def draw_multipliers(rng: np.random.Generator, problem: Problem) -> np.ndarray:
    """Draw λ ≥ 0 with Σλ ≤ B, on the boundary now and then."""
    lam = rng.dirichlet(np.ones(problem.n_cells + 1))
    lam = lam[:-1] / (1 if rng.random() < 0.7 else max(1 - lam[-1], 1e-9))
    return problem.multiplier_bound * lam


def train_question(
    problem: Problem,
    w: np.ndarray,
    lam: np.ndarray,
    *,
    steps: Sequence[float] = (0.1,),
    **changes: Any,
) -> Train:
    """Build the question that asks for local steps on G(·; λ)."""
    return Train(
        problem.task,
        w,
        problem.risk_weight,
        problem.cell_weights(lam),
        np.asarray(steps, dtype=float),
        **changes,
    )


def evaluate_question(task: Any, w: np.ndarray, split: str = "test") -> Evaluate:
    """Ask for all that `evaluate` can tell of a model: trials and bets with it."""
    if task.model.n_classes == 0:
        return Evaluate(task, w, split, task.model.loss_bound() or np.inf)
    bets = np.linspace(0.1, 0.95, 3 * len(task.cells)).reshape(-1, 3)
    return Evaluate(task, w, split, 1.5, np.array([1.2, 4.0]), bets)


def witness_question(
    problem: Problem, w: np.ndarray, lam: np.ndarray, *, risk_weight: float = 0.7
) -> Witness:
    """Build the question for a plane below βF + λᵀr, its slopes moved along −w/3."""
    weights = problem.cell_weights(lam)
    return Witness(problem.task, w, risk_weight, weights, -w / 3)


def assert_same_total(a: Any, b: Any, tolerance: float) -> None:
    """Compare two totals field by field, relative to each field's size."""
    assert type(a) is type(b)
    for field in fields(a):
        if field.name == "of_silos":  # kept only where silos answer one by one
            continue
        x, y = np.asarray(getattr(a, field.name)), np.asarray(getattr(b, field.name))
        assert x.shape == y.shape, field.name
        if x.dtype.kind == "U":
            assert x == y, field.name
            continue
        scale = max(1.0, float(np.abs(y).max(initial=0.0)))
        np.testing.assert_allclose(
            x, y, rtol=0, atol=tolerance * scale, err_msg=field.name
        )


@dataclass(frozen=True, eq=False)
class Oracle:
    """F, r and G from pooled rows, straight from docs/architecture.md.

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
        federation: Federation,
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
        pooled = federation.pooled("train")
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
        classes = max(1, len(federation.schema.labels)) if kind == "softmax" else 1
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


def group_masks(federation: Federation, split: str = "train") -> np.ndarray:
    """Mark the rows of each group, shape (groups, n)."""
    group = federation.pooled(split).group
    return np.array([group == a for a in range(len(federation.schema.groups))])


def setting(kind="logistic", *, seed=0, sizes=(40, 7, 90), weighting="silos", **prices):
    """Return a federation, an engine, a problem, its oracle and a random (w, λ)."""
    cls, labels = MODELS[kind]
    federation = make_federation(seed, sizes=sizes, labels=labels)
    engine = Reference(federation)
    options = Options(weighting=weighting)
    problem = make_problem(
        engine,
        pffl.BoundedGroupLoss(0.4) & pffl.PerSilo(0.6),
        model=cls(l2=0.02),
        options=options,
        **prices,
    )
    silo = federation.pooled("train").silo
    cells = np.concatenate(
        [group_masks(federation), [silo == k for k in range(len(sizes))]]
    )
    oracle = Oracle.of(
        federation,
        cells,
        [0.4, 0.4] + [0.6] * len(sizes),
        kind=kind,
        l2=0.02,
        weighting=weighting,
        **prices,
    )
    rng = np.random.default_rng(seed + 1)
    w = rng.normal(size=problem.n_parameters)
    return federation, engine, problem, oracle, w, draw_multipliers(rng, problem)


def begin(engine: Any, problem: Problem, method: Any) -> Any:
    """Return a method's first state, with the constants that it asks for."""
    setup = method.setup(problem)
    return method.init(problem, None if setup is None else engine.ask(setup))
