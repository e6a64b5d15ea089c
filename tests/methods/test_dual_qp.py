"""λ by a QP on gradients per cell: against plain optimisers, and on networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import pffl
from pffl import checkpoint
from pffl.engines import Local, Reference
from pffl.errors import UsageError
from pffl.methods.pffl import best_multipliers
from pffl.problem import Expansion
from pffl.questions import Slopes, Train
from tests.driving import iterate, measure
from tests.helpers import (
    assert_same_total,
    begin,
    group_masks,
    make_federation,
    make_problem,
    setting,
)
from tests.saddle import Oracle

BOUNDS = {"f": 0.55, "m": 0.6}
QP = {
    "multiplier_bound": 3.0,
    "risk_weight": 0.8,
    "dual_rounds": 6,
    "rounds_per_dual": 3,
    "local_steps": 2,
    "step_size": 0.05,
    "dual_update": "qp",
    "target_gap": 1e-12,
}


def plain_qp(risk_gradient, r, J, *, beta, bound, length):
    """Maximise the same function by SLSQP, from several starts."""
    Z = len(r)

    def negative(lam):
        g = beta * risk_gradient + lam @ J
        return 0.5 * length * g @ g - lam @ r, length * J @ g - r

    room = {"type": "ineq", "fun": lambda lam: bound - lam.sum()}
    runs = [
        minimize(
            negative,
            np.full(Z, share * bound / Z),
            jac=True,
            method="SLSQP",
            bounds=[(0.0, bound)] * Z,
            constraints=[room],
            options={"ftol": 1e-14, "maxiter": 500},
        )
        for share in (0.0, 0.5)
    ]
    best = min(runs, key=lambda run: run.fun)
    return best.x, -best.fun


@pytest.mark.parametrize("length", [1e-3, 0.3, 20.0])
@pytest.mark.parametrize("seed", range(4))
def test_multipliers_are_those_of_a_plain_optimiser(seed, length):
    problem = setting(seed=seed)[2]
    rng, Z, p = np.random.default_rng(seed), problem.n_cells, 7
    slope, J, r = rng.normal(size=p), rng.normal(size=(Z, p)), rng.normal(size=Z)
    none = np.zeros((0, 0))
    at = Expansion(np.zeros(p), 1.0, slope, none, r, J, np.zeros((Z, 0, 0)))
    B, beta = problem.multiplier_bound, problem.risk_weight
    lam = best_multipliers(problem, at, np.full(Z, B / (Z + 1)), length)
    assert (lam >= 0).all()
    assert lam.sum() <= B
    expected, value = plain_qp(slope, r, J, beta=beta, bound=B, length=length)
    g = beta * slope + lam @ J
    reached = lam @ r - 0.5 * length * g @ g
    assert reached == pytest.approx(value, rel=1e-6, abs=1e-7)
    np.testing.assert_allclose(lam, expected, atol=1e-3 * B)


def naive_run(oracle, silo, *, dual_rounds, rounds, steps, eta):
    """Run PFFL with the QP on pooled arrays: all λ, and the last w."""
    K, Z = silo.max() + 1, len(oracle.cells)
    w, lams = np.zeros(oracle.X.shape[1]), []
    for _ in range(dual_rounds):
        F = oracle.gradient(w, np.zeros(Z)) / oracle.beta
        J = np.array([oracle.gradient(w, e) - oracle.beta * F for e in np.eye(Z)])
        lam, _ = plain_qp(
            F,
            oracle.violation(w),
            J,
            beta=oracle.beta,
            bound=oracle.budget,
            length=eta * steps * rounds,
        )
        lams.append(lam)
        c = oracle.row_weights(lam)
        for _ in range(rounds):
            local = []
            for k in range(K):
                v = w
                for _ in range(steps):
                    part = oracle.weighted_gradient(v, np.where(silo == k, K * c, 0))
                    v = v - eta * (part + oracle.beta * oracle.l2 * v)
                local.append(v)
            w = np.mean(local, axis=0)
    return np.array(lams), w


@pytest.mark.parametrize("engine_type", [Local, Reference])
def test_a_run_is_the_naive_loops(engine_type):
    federation = make_federation(0)
    oracle = Oracle.of(
        federation,
        group_masks(federation),
        list(BOUNDS.values()),
        kind="logistic",
        beta=0.8,
        budget=3.0,
        l2=0.01,
    )
    silo = federation.pooled("train").silo
    lams, w = naive_run(oracle, silo, dual_rounds=6, rounds=3, steps=2, eta=0.05)
    engine = engine_type(federation)
    problem = make_problem(
        engine,
        pffl.BoundedGroupLoss(BOUNDS),
        model=pffl.LogisticRegression(l2=0.01),
        beta=0.8,
        budget=3.0,
    )
    method = pffl.PFFL(**QP, iterate="last")
    run = iterate(engine, problem, method)
    assert run.rounds == method.planned_rounds == 18 + 6 + 1  # one looks at the gap
    np.testing.assert_allclose(run.point.w, w, atol=1e-5)
    np.testing.assert_allclose(run.point.multipliers, lams[-1], atol=1e-4)
    average = iterate(engine, problem, pffl.PFFL(**QP, iterate="average")).point
    np.testing.assert_allclose(average.multipliers, lams.mean(axis=0), atol=1e-4)


def test_it_reaches_the_saddle_point():
    _, engine, problem, *_ = setting()
    more = {"local_steps": 1, "rounds_per_dual": 3, "target_gap": 1e-5}
    method = pffl.PFFL(
        multiplier_bound=problem.multiplier_bound,
        risk_weight=problem.risk_weight,
        dual_rounds=150,
        dual_update="qp",
        iterate="recent",
        **more,
    )
    run = iterate(engine, problem, method)
    ends, prices = measure(engine, problem, run.point), run.point.multipliers.sum()
    assert ends.upper - ends.lower <= 1e-5 * (problem.risk_weight + prices)
    assert run.rounds < method.planned_rounds


def test_a_checkpoint_goes_on_where_it_was():
    _, engine, problem, *_ = setting()
    method = pffl.PFFL(**QP)

    def after(state, questions):
        for _ in range(questions):
            question = method.question(problem, state)
            state = method.step(problem, state, engine.ask(question))
        return state

    first = begin(engine, problem, method)
    for stop in (1, 4, 5):
        stopped = after(first, stop)
        again = checkpoint.decode(checkpoint.encode(stopped), first)
        one, other = after(stopped, 6), after(again, 6)
        np.testing.assert_array_equal(one.w, other.w)
        np.testing.assert_array_equal(one.solved, other.solved)


def test_a_loss_that_is_no_number_leaves_the_multipliers():
    _, engine, problem, *_ = setting()
    method = pffl.PFFL(**QP)
    state = begin(engine, problem, method)
    total = engine.ask(method.question(problem, state))
    total.cell_losses[0] = np.nan
    after = method.step(problem, state, total)
    before = method.prices(problem, state)
    np.testing.assert_array_equal(method.prices(problem, after), before)
    assert isinstance(method.question(problem, after), Train)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"dual_update": "newton"}, "one of ascent, qp"),
        ({"dual_update": "qp", "dual_step_size": 1.0}, "leave out"),
        ({"dual_update": "qp", "participation": 0.5}, "use 'ascent'"),
    ],
)
def test_what_has_no_meaning_is_refused(more, words):
    with pytest.raises(UsageError, match=words):
        pffl.PFFL(**more)


def test_a_quorum_is_refused_before_round_one():
    problem = setting()[2]
    partial = replace(problem, access=replace(problem.access, partial=True))
    with pytest.raises(UsageError, match="quorum"):
        pffl.PFFL(**QP).setup(partial)


def test_any_models_slopes_are_a_linear_ones():
    _, engine, problem, *_ = setting()
    w = np.random.default_rng(1).normal(size=problem.n_parameters)
    question = Slopes(problem.task, w)
    for view in engine.views(question):
        assert_same_total(question.by_atom(view), question.answer(view), 1e-12)
