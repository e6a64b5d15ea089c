"""A witness is a proof for all models, and says how far it reaches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tests.helpers import make_federation, make_problem, make_schema
from tests.oracles import (
    FAR,
    NEAR,
    Interval,
    LinearModel,
    Local,
    Problem,
    Support,
    Terms,
    UsageError,
    duals_of,
    losses_and_slopes,
    losses_at,
    on_raw_inputs,
    people_of,
    pffl,
    support,
    support_of,
    terms_of,
    without_bounds,
)
from tests.oracles import smallest_common_bound as find
from tests.raising import raises

SEEDS = st.integers(0, 2**32 - 1)
KINDS: dict[str, tuple[LinearModel, int]] = {
    "logistic": (pffl.LogisticRegression(), 2),
    "softmax": (pffl.SoftmaxRegression(), 3),
    "least-squares": (pffl.LeastSquares(), 0),
    "huber": (pffl.HuberRegression(delta=0.7), 0),
}


def bound(kind: str) -> LinearModel:
    model, labels = KINDS[kind]
    return on_raw_inputs(model, make_schema(labels=labels), (-3.0, 2.5))


def draw_targets(rng: np.random.Generator, kind: str, n: int) -> np.ndarray:
    labels = KINDS[kind][1]
    return rng.normal(size=n) if labels == 0 else rng.integers(labels, size=n) * 1.0


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(list(KINDS)), size=st.floats(0.01, 1e4))
def test_a_dual_lies_below_its_loss_everywhere(seed: int, kind: str, size: float):
    # ℓ(s) ≥ u·s − ℓ*(u) for every score s: also far from where u was taken.
    rng = np.random.default_rng(seed)
    model, n = bound(kind), 20
    shape = (n, 3) if kind == "softmax" else (n,)
    y = draw_targets(rng, kind, n)
    z, shift = (size * rng.normal(size=shape) for _ in range(2))
    u, values, sizes = duals_of(model, z, y, rng.choice([0.0, 0.1, 1.0]) * shift)
    for spread in (0.1, 3.0, 100.0, 1e4):
        s = spread * rng.normal(size=shape)
        line = values + (u * s).reshape(n, -1).sum(axis=1)
        room = 1e-13 * (sizes + np.abs(u * s).reshape(n, -1).sum(axis=1) + 1)
        room += 1e-15 * np.abs(s).reshape(n, -1).sum(axis=1)  # Σq is 1 up to rounding
        assert (losses_at(model, s, y) >= line - room).all()


@pytest.mark.parametrize("kind", list(KINDS))
def test_without_a_shift_it_is_the_tangent(kind: str) -> None:
    rng = np.random.default_rng(1)
    model, y = bound(kind), draw_targets(rng, kind, 30)
    z = rng.normal(size=(30, 3) if kind == "softmax" else (30,))
    u, values, _ = duals_of(model, z, y, np.zeros_like(z))
    losses, slopes = losses_and_slopes(model, z, y)
    np.testing.assert_allclose(u, slopes, atol=1e-14)
    line = values + (u * z).reshape(30, -1).sum(axis=1)
    np.testing.assert_allclose(line, losses, atol=1e-13)


def test_an_entropy_keeps_its_digits_where_a_probability_is_tiny() -> None:
    model, one = bound("logistic"), np.ones(1)
    for z in (50.0, 300.0, 700.0):
        # y = 0 and a score of −z: α = e⁻ᶻ, h(α) = α(1 + z) to 20 digits.
        _, values, _ = duals_of(model, -z * one, 0 * one, 0 * one)
        assert values[0] == pytest.approx(np.exp(-z) * (1 + z), rel=1e-12)


@dataclass(frozen=True)
class Drawn:
    """A small problem, and its rows as plain arrays."""

    engine: Local
    problem: Problem
    terms: Terms
    X: np.ndarray
    y: np.ndarray
    cells: np.ndarray

    def losses(self, w: np.ndarray) -> np.ndarray:
        """In long double, straight from the definitions."""
        terms = self.terms
        X = self.X.astype(np.longdouble)
        z = X @ w.reshape(terms.outputs, -1).T.astype(np.longdouble)
        if terms.outputs > 1:
            own = z[np.arange(len(z)), self.y.astype(int)]
            top = z.max(axis=1)
            return np.log(np.exp(z - top[:, None]).sum(axis=1)) + top - own
        if terms.kind == "logistic":
            return np.logaddexp(0, np.where(self.y == 1, -z[:, 0], z[:, 0]))
        size = np.abs(terms.target_mean + terms.target_scale * z[:, 0] - self.y)
        cut = np.minimum(size, terms.delta)
        return cut * (2 * size - cut)

    def worst(self, w: np.ndarray) -> float:
        """The largest mean loss of a cell less its offset."""
        losses = self.losses(w)
        means = np.array([losses[cell].mean() for cell in self.cells])
        return float((means - self.terms.bounds).max())


@lru_cache
def drawn(kind: str, seed: int) -> Drawn:
    model, labels = KINDS[kind]
    federation = make_federation(seed, labels=labels)
    engine = Local(federation, threads=1)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.5), model=model)
    problem = without_bounds(problem)
    pooled, terms = people_of(federation), terms_of(problem)
    X = (pooled.X - terms.input_mean) / terms.input_scale
    X = np.column_stack([X, np.ones(len(pooled.y))])
    cells = np.array([pooled.group == 0, pooled.group == 1])
    return Drawn(engine, problem, terms, X, pooled.y, cells)


def smallest(one: Drawn) -> float:
    """min_w max_z of mean loss, by cvxpy, without any ball."""
    terms = one.terms
    w = cp.Variable((one.X.shape[1], terms.outputs))
    z = one.X @ w
    if terms.outputs > 1:
        own = cp.multiply(np.eye(terms.outputs)[one.y.astype(int)], z)
        losses = cp.log_sum_exp(z, axis=1) - cp.sum(own, axis=1)
    elif terms.kind == "logistic":
        losses = cp.logistic(cp.multiply(1 - 2 * one.y, z[:, 0]))
    else:
        off = terms.target_mean + terms.target_scale * z[:, 0] - one.y
        huber = terms.kind == "huber"
        losses = cp.huber(off, terms.delta) if huber else cp.square(off)
    rows = [cell / cell.sum() @ losses for cell in one.cells]
    program = cp.Problem(cp.Minimize(cp.maximum(*rows)))
    return float(program.solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("seed", range(3))
def test_the_smallest_bound_is_that_of_cvxpy_and_holds_for_all_models(kind, seed):
    one = drawn(kind, seed)
    least = find(one.engine, one.problem)
    assert least.everywhere
    assert least.lower <= smallest(one) * (1 + 1e-6)
    assert least.lower == pytest.approx(smallest(one), rel=2e-6)
    assert least.upper == pytest.approx(least.lower, rel=2e-6)
    assert one.worst(np.array(least.model)) <= least.upper * (1 + 1e-12)


def tried(one: Drawn, seed: int) -> float:
    """The best that scipy finds, from several starts, by a smooth maximum."""
    rng, best = np.random.default_rng(seed), np.inf
    p = one.terms.parameters
    for start in (np.zeros(p), rng.normal(size=p), 20 * rng.normal(size=p)):
        for sharp in (20.0, 2000.0):

            def smooth(w: np.ndarray, sharp: float = sharp) -> float:
                losses = one.losses(w)
                means = np.array([losses[c].mean() for c in one.cells], dtype=float)
                means -= one.terms.bounds
                return float(np.logaddexp.reduce(sharp * means) / sharp)

            start = minimize(smooth, start, method="BFGS").x
        best = min(best, one.worst(start))
    return best


@pytest.mark.parametrize("kind", list(KINDS))
def test_nothing_that_scipy_finds_is_below_what_is_proved(kind: str) -> None:
    for seed in (10, 11):
        one = drawn(kind, seed)
        least = find(one.engine, one.problem)
        assert least.everywhere
        assert tried(one, seed) >= least.lower


def closed_form(one: Drawn, lam: np.ndarray) -> float:
    """min_w Σ c_i (x_iᵀw − y_i)² by an orthogonal factorisation, in long double."""
    c = (lam / one.cells.sum(axis=1)) @ one.cells
    root = np.sqrt(c)
    y = (one.y - one.terms.target_mean) / one.terms.target_scale
    w = np.linalg.lstsq(root[:, None] * one.X, root * y, rcond=None)[0]
    return float((c * one.losses(w)).sum())


def test_least_squares_is_its_closed_form() -> None:
    one = drawn("least-squares", 5)
    least = find(one.engine, one.problem)
    truth = closed_form(one, np.array(least.multipliers))
    value = least.lower + least.reach * least.slope
    assert value <= truth
    assert value == pytest.approx(truth, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(list(KINDS)))
def test_any_witness_of_any_direction_is_a_proof(seed: int, kind: str) -> None:
    # λ, w and v drawn at random, far from any optimum: weak, and never false.
    rng = np.random.default_rng(seed)
    one = drawn(kind, seed % 5)
    lam = rng.dirichlet(np.ones(2))
    p = one.terms.parameters
    w, v = (rng.choice([0.1, 1.0, 10.0]) * rng.normal(size=p) for _ in range(2))
    found = support_of(one.engine, one.problem, w, lam, v)
    for length in (0.1, 1.0, 30.0, 1e3):
        other = rng.normal(size=p)
        other *= length / np.linalg.norm(other)
        assert found.within(length) <= one.worst(other) * (1 + 1e-12)


def test_how_far_a_proof_reaches() -> None:
    exact = Support(0.2, 0.0)
    assert exact.reach(3.0, 0.5) == 4 * FAR * 3.0
    assert exact.proof(3.0) == (0.2, FAR * 3.0)
    rough = Support(0.2, 1e-9)
    assert rough.reach(3.0, 0.5) == pytest.approx(1e-5 * 0.5 / 1e-9)
    assert rough.proof(3.0) == pytest.approx((0.2 - 3e-3, 3e6))
    near = Support(0.2, 1e-5)
    assert near.reach(3.0, 0.5) == NEAR * 3.0
    assert near.proof(3.0) == pytest.approx((0.1, 1e4))
    assert Support(0.2, 0.01).proof(3.0) is None
    assert Support(-0.1, 0.0).proof(3.0) is None
    assert Support(0.0, 0.0).proof(3.0) is None


def test_rounding_is_charged() -> None:
    nothing = {"multipliers": [1.0], "bounds": [0.0]}
    assert support(0.0, [0.0], [0.0, 0.0], **nothing) == Support(0.0, 0.0)
    found = support(1.0, [0.0], [1.0, 2.0], **nothing)
    assert 1e-14 < 1.0 - found.value < 1e-13
    assert found.slope == pytest.approx(2.0 * (1.0 - found.value))


def test_intervals() -> None:
    assert 0.5 in Interval(0.0, 1.0)
    with pytest.raises(UsageError):
        Interval(1.0, 0.0)
    with pytest.raises(UsageError):
        Interval(0.0, np.nan)


@pytest.mark.parametrize(
    ("value", "residual", "sizes", "multipliers"),
    [
        (1.0, [0.0], [1.0, 1.0], [0.0]),
        (1.0, [0.0], [1.0, 1.0], [-1.0]),
        (np.nan, [0.0], [1.0, 1.0], [1.0]),
        (1.0, [np.inf], [1.0, 1.0], [1.0]),
        (1.0, [0.0], [-1.0, 1.0], [1.0]),
        (1.0, [0.0], [1.0, 1.0], [1.0, 1.0]),
    ],
)
def test_refusals(value, residual, sizes, multipliers) -> None:
    with raises(UsageError, "wrong-value"):
        support(value, residual, sizes, multipliers=multipliers, bounds=[0.5])
