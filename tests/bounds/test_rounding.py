"""What rounding can do is bounded: long double is the judge (fault 83)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.oracles import (
    Local,
    Options,
    Part,
    Reference,
    federation_of,
    measured_at,
    people_of,
    pffl,
    prepare,
    solver_rounds,
    terms_of,
)

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


def parts(rng, labels, *, offset=0.0, twins=False, weighted=False):
    """Draw three silos; targets around `offset`, inputs nearly equal for `twins`.

    Weights are of very different sizes.
    """
    silos = []
    for _ in range(3):
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
        silos.append(Part(X, y, group[:, None], weight))
    return silos


def made(parts, labels):
    """Make a federation of them."""
    silos = [{"train": part} for part in parts]
    return federation_of(silos, {"sex": ("f", "m")}, labels, "drawn")


def draw(rng, labels, **kinds):
    """Draw a federation."""
    return made(parts(rng, labels, **kinds), labels)


class Judge:
    """F, r and their gradients in long double, from raw rows."""

    def __init__(self, federation, problem):
        rows, terms = people_of(federation), terms_of(problem)
        self.terms, s = terms, LONG(1) * rows.weight
        X = (LONG(1) * rows.X - LONG(1) * terms.input_mean) / terms.input_scale
        self.X = np.column_stack([X, np.ones(len(X), LONG)])
        sizes = np.array([s[rows.silo == k].sum() for k in range(len(rows.silos))])
        self.y, shares = LONG(1) * rows.y, LONG(1) * terms.shares
        self.weights = [(shares / sizes)[rows.silo] * s]
        for z in range(len(terms.bounds)):
            inside = (rows.group == z) * s
            self.weights.append(inside / inside.sum())
        self.bounds = LONG(1) * terms.bounds

    def losses(self, w):
        z = self.X @ (LONG(1) * w).reshape(self.terms.outputs, -1).T
        if self.terms.kind == "softmax":
            top = z.max(axis=1, keepdims=True)
            e = np.exp(z - top)
            total = e.sum(axis=1, keepdims=True)
            codes = self.y.astype(int)
            own = z[np.arange(len(z)), codes][:, None]
            slopes = e / total - np.eye(z.shape[1], dtype=LONG)[codes]
            return (np.log(total) + top - own)[:, 0], slopes
        if self.terms.kind == "logistic":
            slopes = (1 + np.tanh(z / 2)) / 2 - self.y[:, None]
            return np.logaddexp(LONG(0), z[:, 0]) - self.y * z[:, 0], slopes
        scale, cut = LONG(self.terms.target_scale), LONG(self.terms.delta)
        r = LONG(self.terms.target_mean) + scale * z - self.y[:, None]
        c = np.clip(r, -cut, cut)
        return (c * (2 * r - c))[:, 0], 2 * scale * c

    def means(self, w):
        losses, slopes = self.losses(w)
        mu, w = LONG(self.terms.ridge), LONG(1) * w
        values = [c @ losses for c in self.weights]
        values[0] = values[0] + mu * (w @ w) / 2
        gradients = [((slopes * c[:, None]).T @ self.X).ravel() for c in self.weights]
        gradients[0] = gradients[0] + mu * w
        return np.array(values), gradients

    def upper(self, w):
        values, _ = self.means(w)
        worst = max(LONG(0), (values[1:] - self.bounds).max())
        price = LONG(self.terms.multiplier_bound)
        return LONG(self.terms.risk_weight) * values[0] + price * worst

    def value(self, w, lam):
        values, _ = self.means(w)
        over = (LONG(1) * lam) @ (values[1:] - self.bounds)
        return LONG(self.terms.risk_weight) * values[0] + over


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
            w = length * rng.normal(size=judge.terms.parameters)
            at = measured_at(engine, problem, w, hessians=True)
            values, gradients = judge.means(w)
            assert abs(values[0] - at.risk) <= at.risk_error
            true = values[1:] - judge.bounds
            assert (np.abs(true - at.violation) <= at.violation_error).all()
            for mine, theirs, most in zip(
                at.gradients, gradients, at.gradient_errors, strict=True
            ):
                assert np.linalg.norm(mine - theirs) <= most
            # A bound, and still no excuse.
            assert at.risk_error <= 1e-10 * (at.risk + judge.terms.unit * (1 + length))


def wide(rng, labels, *, columns=300):
    """Return silos of mostly zeros; some columns are full, or nearly so."""
    silos = []
    for part in parts(rng, labels):
        n = len(part.y)
        X = rng.normal(size=(n, columns)) * 10.0 ** rng.uniform(-3, 3, columns)
        X *= rng.random(X.shape) < 0.02
        X[:, 0] = part.X[:, 0] + 1e4  # centred before
        X[:, 1] = rng.random(n) < 0.499  # its mean is just below its spread
        X[:, 2] = rng.random(n) < 0.95  # filled up
        silos.append(part._replace(X=X))
    return silos


def compressed(parts, silos):
    """Return the same rows, those of some silos sparse."""
    return [
        part._replace(X=csr_array(part.X)) if k in silos else part
        for k, part in enumerate(parts)
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse", [(0, 1, 2), (1,)])
def test_sparse_rows_are_off_by_no_more_and_excused_less(kind, sparse):
    rng = np.random.default_rng(len(sparse))
    cls, labels = KINDS[kind]
    silos = wide(rng, labels)
    dense, federation = made(silos, labels), made(compressed(silos, sparse), labels)
    for engine in (Reference(federation), Local(federation)):
        problem = problem_of(engine, cls(), 0.5, 10.0)
        judge = Judge(dense, problem)
        for length in (1.0, 1e4):
            w = length * rng.normal(size=judge.terms.parameters)
            at = measured_at(engine, problem, w, hessians=False)
            values, gradients = judge.means(w)
            assert abs(values[0] - at.risk) <= at.risk_error
            true = values[1:] - judge.bounds
            assert (np.abs(true - at.violation) <= at.violation_error).all()
            for mine, theirs, most in zip(
                at.gradients, gradients, at.gradient_errors, strict=True
            ):
                assert np.linalg.norm(mine - theirs) <= most
            if len(sparse) == 3:  # all of them
                usual = measured_at(engine, problem, w, hessians=False, sparse=False)
                assert at.risk_error < usual.risk_error


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
    rounds = 0
    for now in solver_rounds(engine, problem, method):
        assert now.upper >= judge.upper(now.w)
        for w in (now.proved_at, now.w, now.iterate):
            assert now.lower <= judge.value(w, now.multipliers)
        true = judge.upper(now.w) - judge.value(now.proved_at, now.multipliers)
        assert now.upper - now.lower >= true
        rounds += 1
    assert 0 < rounds < 40
