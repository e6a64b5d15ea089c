"""The parts of Exact, each against cvxpy or a closed form."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import pffl
from pffl.engines import Reference
from pffl.models import LogisticRegression
from pffl.prepare import Options
from pffl.problem import Expansion, Problem
from tests.helpers import make_federation, make_problem
from tests.inside import saddle


def psd(rng, n, rank):
    root = rng.normal(size=(n, rank))
    return root @ root.T / n


def draw_qp(seed, singular):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    rank = max(1, n - 2) if singular else n + 2
    scales = np.exp(rng.normal(size=n) * 2)
    matrix = psd(rng, n, rank) * np.outer(scales, scales)
    bound = float(np.exp(rng.normal() * 2))
    n_capped = int(rng.integers(0, n + 1)) if seed % 3 == 0 else n
    start = bound * rng.dirichlet(np.ones(n)) * (rng.random(n) < 0.5)
    slope = rng.normal(size=n)
    slope[n_capped:] = -matrix[n_capped:, n_capped:] @ rng.random(n - n_capped)
    return matrix, slope, start, bound, n_capped


@pytest.mark.parametrize("singular", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_the_capped_qp_is_cvxpys(seed, singular):
    matrix, slope, start, bound, n_capped = draw_qp(seed, singular)
    x = saddle.maximise_capped(matrix, slope, start, bound, n_capped)
    assert x is not None
    assert x.min() >= 0
    assert x[:n_capped].sum() <= bound * (1 + 1e-12)
    free = cp.Variable(len(slope), nonneg=True)
    gain = slope @ (free - start) - cp.quad_form(free - start, cp.psd_wrap(matrix)) / 2
    limits = [cp.sum(free[:n_capped]) <= bound] if n_capped else []
    best = cp.Problem(cp.Maximize(gain), limits).solve(solver=cp.CLARABEL)
    reached = slope @ (x - start) - (x - start) @ matrix @ (x - start) / 2
    assert reached == pytest.approx(best, rel=1e-5, abs=1e-7)


def draw_model(seed, *, l2, beta) -> tuple[Expansion, Problem]:
    """Drawn quadratics in place of losses, in a problem of five cells."""
    engine = Reference(make_federation(0))
    problem = make_problem(
        engine,
        pffl.BoundedGroupLoss(0.4) & pffl.PerSilo(0.6),
        model=LogisticRegression(l2=l2),
        beta=beta,
        budget=3.0,
        options=Options(radius=1.5),
    )
    rng = np.random.default_rng(seed)
    p, z = problem.n_parameters, problem.n_cells
    expansion = Expansion(
        0.3 * rng.normal(size=p),
        1.0,
        rng.normal(size=p),
        psd(rng, p, 3) + l2 * np.eye(p),
        0.5 * rng.normal(size=z),
        rng.normal(size=(z, p)),
        np.array([psd(rng, p, 2) for _ in range(z)]),
    )
    return expansion, problem


def cvxpy_model(at, problem):
    """Solve min_d q₀ + B max(0, max q_z), over the ball where βμ = 0."""
    d = cp.Variable(len(at.w))
    worst = cp.Variable(nonneg=True)

    def expand(slope, hessian):
        return slope @ d + cp.quad_form(d, cp.psd_wrap(hessian)) / 2

    limits = [
        r + expand(slope, hessian) <= worst
        for r, slope, hessian in zip(
            at.violation, at.jacobian, at.hessians, strict=True
        )
    ]
    if problem.modulus == 0:
        limits.append(cp.norm(at.w + d) <= problem.radius)
    risk = problem.risk_weight * expand(at.risk_gradient, at.risk_hessian)
    goal = cp.Minimize(risk + problem.multiplier_bound * worst)
    tolerances = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)
    return cp.Problem(goal, limits).solve(solver=cp.CLARABEL, **tolerances)


@pytest.mark.parametrize(("beta", "l2"), [(1.0, 0.1), (1.0, 0.0), (0.0, 0.1)])
@pytest.mark.parametrize("seed", range(8))
def test_the_model_is_solved_as_by_cvxpy(seed, beta, l2):
    at, problem = draw_model(seed, l2=l2, beta=beta)
    damping = 0.0 if problem.modulus > 0 else 1e-10
    step = saddle.solve(
        saddle.SecondOrderModel.at(at, problem, damping=damping),
        np.full(problem.n_cells, 0.1),
    )
    d, bound = step.d, problem.multiplier_bound
    change = beta * (at.risk_gradient @ d + d @ at.risk_hessian @ d / 2)
    after = at.violation + at.jacobian @ d + (at.hessians @ d) @ d / 2
    value = change + bound * max(0.0, after.max())
    assert step.solved
    assert value == pytest.approx(cvxpy_model(at, problem), abs=2e-7)
    assert step.risk_change == pytest.approx(change, abs=1e-7)
    np.testing.assert_allclose(step.violation, after, atol=1e-7)
    assert step.multipliers.sum() <= bound * (1 + 1e-12)
    if problem.modulus == 0:
        assert np.linalg.norm(at.w + d) <= problem.radius * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_dual_has_the_derivatives_it_claims(seed):
    at, problem = draw_model(seed, l2=0.0, beta=1.0)
    model = saddle.SecondOrderModel.at(at, problem, damping=1e-3)
    rng = np.random.default_rng(seed)
    lam = rng.random(problem.n_cells + 1)
    here, eps = saddle.respond(model, lam), 1e-5
    for i, unit in enumerate(np.eye(len(lam))):
        up = saddle.respond(model, lam + eps * unit)
        down = saddle.respond(model, lam - eps * unit)
        slope = (up.dual - down.dual) / (2 * eps)
        assert slope == pytest.approx(here.values[i], abs=1e-6)
        curve = (up.values - down.values) / (2 * eps)
        np.testing.assert_allclose(curve, -here.sensitivity[i], rtol=1e-4, atol=1e-5)
