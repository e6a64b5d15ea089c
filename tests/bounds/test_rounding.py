"""What rounding can do is bounded: long double is the judge (fault 83)."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import pffl
from pffl.data import Attribute, Federation, Rows, Schema, Silo
from pffl.data.silo import as_inputs
from pffl.engines import Local, Reference
from pffl.preparation import Options
from pffl.questions import Curvature, Slopes
from tests.driving import prepare

LONG = np.longdouble
KINDS = {
    "squares": (pffl.LeastSquares, 0),
    "huber": (pffl.HuberRegression, 0),
    "logistic": (pffl.LogisticRegression, 2),
    "softmax": (pffl.SoftmaxRegression, 3),
}
pytestmark = pytest.mark.skipif(
    np.finfo(LONG).eps > 1e-18, reason="long double is no longer than double here"
)


def draw(rng, labels, *, offset=0.0, twins=False, weighted=False):
    """Return a federation; targets around `offset`, inputs nearly equal for `twins`.

    Weights are of very different sizes.
    """
    names = tuple(f"class {c}" for c in range(labels))
    schema = Schema(("a", "b", "c"), (Attribute("sex", ("f", "m")),), names)
    silos = []
    for k in range(3):
        n = int(rng.integers(40, 200))
        X = rng.normal(size=(n, 3)) * np.array([1.0, 3.0, 0.1]) + 2.0
        if twins:
            X[:, 1] = X[:, 0] * (1 + 1e-7 * rng.normal(size=n))
        group = rng.integers(2, size=n)
        y = X @ np.array([0.3, 0.1, 2.0]) + group + rng.normal(size=n)
        if labels:
            cuts = np.quantile(y, np.linspace(0, 1, labels + 1)[1:-1])
            y = np.digitize(y, cuts).astype(float)
        else:
            y = y + offset
        weight = 10.0 ** rng.uniform(-5, 5, n) if weighted else None
        rows = replace(Rows.of(X, y, group), weight=weight)
        silos.append(Silo(f"s{k}", k, {"train": rows}))
    return Federation(schema, tuple(silos), name="drawn")


class Judge:
    """F, r and their gradients in long double, from raw rows."""

    def __init__(self, federation, problem):
        rows, model = federation.pooled("train"), problem.task.model
        self.model, self.problem = model, problem
        X = (LONG(1) * rows.X - LONG(1) * model.inputs.mean) / model.inputs.scale
        self.X = np.column_stack([X, np.ones(len(X), LONG)])
        parts = [LONG(1) * silo.rows().weights for silo in federation.silos]
        self.y, sizes = LONG(1) * rows.y, np.array([part.sum() for part in parts])
        shares, s = LONG(1) * problem.task.shares, np.concatenate(parts)
        self.weights = [(shares / sizes)[rows.silo] * s]
        for z in range(problem.n_cells):
            inside = (rows.group == z) * s
            self.weights.append(inside / inside.sum())
        self.bounds = LONG(1) * problem.cells.bounds

    def losses(self, w):
        z = self.X @ (LONG(1) * w).reshape(self.model.n_outputs, -1).T
        if self.model.name == "softmax":
            top = z.max(axis=1, keepdims=True)
            e = np.exp(z - top)
            total = e.sum(axis=1, keepdims=True)
            codes = self.y.astype(int)
            own = z[np.arange(len(z)), codes][:, None]
            slopes = e / total - np.eye(z.shape[1], dtype=LONG)[codes]
            return (np.log(total) + top - own)[:, 0], slopes
        if self.model.name == "logistic":
            slopes = (1 + np.tanh(z / 2)) / 2 - self.y[:, None]
            return np.logaddexp(LONG(0), z[:, 0]) - self.y * z[:, 0], slopes
        target = self.model.target
        r = LONG(target.mean) + LONG(target.scale) * z - self.y[:, None]
        cut = LONG(getattr(self.model, "delta", np.inf))
        c = np.clip(r, -cut, cut)
        return (c * (2 * r - c))[:, 0], 2 * LONG(target.scale) * c

    def means(self, w):
        losses, slopes = self.losses(w)
        mu, w = LONG(self.problem.mu), LONG(1) * w
        values = [c @ losses for c in self.weights]
        values[0] = values[0] + mu * (w @ w) / 2
        gradients = [((slopes * c[:, None]).T @ self.X).ravel() for c in self.weights]
        gradients[0] = gradients[0] + mu * w
        return np.array(values), gradients

    def upper(self, w):
        values, _ = self.means(w)
        worst = max(LONG(0), (values[1:] - self.bounds).max())
        price = LONG(self.problem.multiplier_bound)
        return LONG(self.problem.risk_weight) * values[0] + price * worst

    def value(self, w, lam):
        values, _ = self.means(w)
        over = (LONG(1) * lam) @ (values[1:] - self.bounds)
        return LONG(self.problem.risk_weight) * values[0] + over


def problem_of(engine, model, bound, price):
    method = pffl.Exact(multiplier_bound=price)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        constraint = pffl.BoundedGroupLoss(bound)
        return prepare(engine, constraint, model, method, Options(), 0)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_no_measured_number_is_off_by_more(kind, seed):
    rng = np.random.default_rng(seed)
    cls, labels = KINDS[kind]
    offset, twins = 100.0 * (seed % 2), seed in (2, 3)
    federation = draw(rng, labels, offset=offset, twins=twins, weighted=seed > 3)
    for engine in (Reference(federation), Local(federation)):
        problem = problem_of(engine, cls(), 0.5, 10.0)
        judge = Judge(federation, problem)
        for length in (1.0, 1e3, 1e6):
            w = length * rng.normal(size=problem.n_parameters)
            at = problem.expand(w, engine.ask(Curvature(problem.task, w)))
            errors, (values, gradients) = problem.errors(at), judge.means(w)
            assert abs(values[0] - at.risk) <= errors.risk
            true = values[1:] - judge.bounds
            assert (np.abs(true - at.violation) <= errors.violation).all()
            found = [at.risk_gradient, *at.jacobian]
            for mine, theirs, most in zip(
                found, gradients, errors.gradients, strict=True
            ):
                assert np.linalg.norm(mine - theirs) <= most
            # A bound, and still no excuse.
            assert errors.risk <= 1e-10 * (at.risk + problem.unit * (1 + length))


def wide(rng, labels, *, columns=300):
    """Return a federation of mostly zeros; some columns are full, or nearly so."""
    known = draw(rng, labels)
    names = tuple(f"x{j}" for j in range(columns))
    silos = []
    for silo in known.silos:
        rows = silo.rows()
        X = rng.normal(size=(len(rows), columns)) * 10.0 ** rng.uniform(-3, 3, columns)
        X *= rng.random(X.shape) < 0.02
        X[:, 0] = rows.X[:, 0] + 1e4  # centred before
        X[:, 1] = rng.random(len(rows)) < 0.499  # its mean is just below its spread
        X[:, 2] = rng.random(len(rows)) < 0.95  # filled up
        silos.append(replace(silo, splits={"train": replace(rows, X=X)}))
    schema = replace(known.schema, features=names)
    return replace(known, schema=schema, silos=tuple(silos), encoding=None)


def compressed(federation, silos):
    """Return the same rows, those of some silos sparse."""
    made = []
    for silo in federation.silos:
        rows = silo.rows()
        if silo.index in silos:
            rows = replace(rows, X=as_inputs(csr_array(rows.X)))
        made.append(replace(silo, splits={"train": rows}))
    return replace(federation, silos=tuple(made))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse", [(0, 1, 2), (1,)])
def test_sparse_rows_are_off_by_no_more_and_excused_less(kind, sparse):
    rng = np.random.default_rng(len(sparse))
    cls, labels = KINDS[kind]
    dense = wide(rng, labels)
    federation = compressed(dense, sparse)
    for engine in (Reference(federation), Local(federation)):
        problem = problem_of(engine, cls(), 0.5, 10.0)
        judge = Judge(dense, problem)
        for length in (1.0, 1e4):
            w = length * rng.normal(size=problem.n_parameters)
            at = problem.expand(w, engine.ask(Slopes(problem.task, w)))
            errors, (values, gradients) = problem.errors(at), judge.means(w)
            assert abs(values[0] - at.risk) <= errors.risk
            true = values[1:] - judge.bounds
            assert (np.abs(true - at.violation) <= errors.violation).all()
            found = [at.risk_gradient, *at.jacobian]
            for mine, theirs, most in zip(
                found, gradients, errors.gradients, strict=True
            ):
                assert np.linalg.norm(mine - theirs) <= most
            if len(sparse) == 3:  # all of them
                usual = replace(problem, stored=0).errors(at)
                assert errors.risk < usual.risk


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("price", [1.0, 1e6])
@pytest.mark.parametrize("l2", [1e-3, 1e-8, 0.0])
def test_a_reported_gap_is_never_below_the_true_one(kind, price, l2):
    rng = np.random.default_rng(int(price) % 97 + len(kind))
    cls, labels = KINDS[kind]
    federation = draw(rng, labels, offset=100.0, weighted=l2 == 1e-8)
    engine = Local(federation)
    problem = problem_of(engine, cls(l2=l2), 0.7, price)
    judge, method = Judge(federation, problem), pffl.Exact(multiplier_bound=price)
    state = method.init(problem)
    while (question := method.question(problem, state)) is not None:
        state = method.step(problem, state, engine.ask(question))
        point, bounds = method.finish(problem, state), method.bounds(state)
        upper, lower, at, _ = bounds
        assert upper >= judge.upper(point.w)
        for w in (at, point.w, state.w):
            assert lower <= judge.value(w, point.multipliers)
        assert upper - lower >= judge.upper(point.w) - judge.value(
            at, point.multipliers
        )
    assert state.round < 40
