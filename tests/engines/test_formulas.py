"""What silos add up, against plain loops: counts, steps, expansions, evaluations."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers import make_federation, make_schema, setting
from tests.oracles import (
    MODELS,
    Local,
    Reference,
    ask_census,
    ask_evaluation,
    ask_expansion,
    ask_steps,
    people_of,
)

KINDS = list(MODELS)
ENGINES = pytest.mark.parametrize("engine_type", [Reference, Local])


@ENGINES
def test_a_census_counts_rows_and_adds_inputs(engine_type):
    schema = make_schema(attributes=(("sex", ("f", "m")), ("race", ("p", "q"))))
    federation = make_federation(0, schema=schema, sizes=(40, 1, 9))
    census, rows = ask_census(engine_type(federation)), people_of(federation)
    for k, group, label in np.ndindex(3, 4, 2):
        here = (rows.silo == k) & (rows.group == group) & (rows.y == label)
        assert census.counts[k, group, label] == here.sum()
    np.testing.assert_allclose(census.sums, rows.X.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(census.squares, (rows.X**2).sum(axis=0), rtol=1e-12)


@ENGINES
@pytest.mark.parametrize("weighting", ["silos", "rows"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_step_descends_g(kind, weighting, engine_type):
    federation, _, problem, oracle, w, lam = setting(
        kind, weighting=weighting, beta=0.7
    )
    found = ask_steps(engine_type(federation), problem, w, lam, [0.3])
    np.testing.assert_allclose(
        found.update, -0.3 * oracle.gradient(w, lam), rtol=1e-11, atol=1e-12
    )
    assert found.risk == pytest.approx(oracle.risk(w), rel=1e-12)
    np.testing.assert_allclose(found.violation, oracle.violation(w), rtol=1e-11)


@ENGINES
@pytest.mark.parametrize("proximal", [0.0, 0.8])
@pytest.mark.parametrize("kind", KINDS)
def test_local_steps_are_gradient_descent_in_each_silo(kind, proximal, engine_type):
    federation, _, problem, oracle, w, lam = setting(kind, beta=0.7)
    engine, sizes = engine_type(federation), [0.3, 0.2, 0.1]
    found = ask_steps(engine, problem, w, lam, sizes, proximal=proximal)
    # G_k = (1/p_k) Σ_{i∈k} c_i ℓ_i + β(μ/2)‖w‖², one silo after the other.
    silo = people_of(federation).silo
    c = oracle.row_weights(lam)
    moved = np.zeros_like(w)
    for k in range(3):
        v = w.copy()
        for size in sizes:
            slope = oracle.weighted_gradient(v, np.where(silo == k, 3 * c, 0.0))
            slope += 0.7 * oracle.l2 * v + proximal * (v - w)
            v = v - size * slope
        moved += (v - w) / 3
    np.testing.assert_allclose(found.update, moved, rtol=1e-10, atol=1e-11)


@ENGINES
@pytest.mark.parametrize("kind", KINDS)
def test_an_expansion_is_of_second_order(kind, engine_type):
    federation, _, problem, oracle, w, lam = setting(kind)
    at = ask_expansion(engine_type(federation), problem, w)
    assert at.risk == pytest.approx(oracle.risk(w), rel=1e-12)
    np.testing.assert_allclose(at.violation, oracle.violation(w), rtol=1e-11)
    gradient = oracle.beta * at.risk_gradient + lam @ at.gradients
    np.testing.assert_allclose(gradient, oracle.gradient(w, lam), atol=1e-11)
    hessian = oracle.beta * at.risk_hessian + np.tensordot(lam, at.hessians, axes=1)
    step = 1e-5
    numeric = [
        (oracle.gradient(w + step * e, lam) - oracle.gradient(w - step * e, lam))
        / (2 * step)
        for e in np.eye(len(w))
    ]
    np.testing.assert_allclose(hessian, numeric, rtol=1e-6, atol=1e-6)
    for z, mask in enumerate(oracle.cells):
        alone = oracle.weighted_gradient(w, mask / mask.sum())
        np.testing.assert_allclose(at.gradients[z], alone, atol=1e-12)


def bounded_losses(kind, z, y, M):
    """−log of the label's probability, kept in [e⁻ᴹ, 1 − e⁻ᴹ] or mixed."""
    label = y.astype(int)
    if kind == "logistic":
        p = 1 / (1 + np.exp(-z[:, 0]))
        p = np.clip(np.column_stack([1 - p, p]), np.exp(-M), 1 - np.exp(-M))
    else:
        p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        p = (1 - 3 * np.exp(-M)) * p + np.exp(-M)
    return -np.log(p[np.arange(len(y)), label])


@ENGINES
@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_an_evaluation_adds_up_losses_and_predictions(kind, engine_type):
    federation, _, problem, oracle, w, _ = setting(kind)
    M, bets = 1.5, np.linspace(0.1, 0.95, 15).reshape(5, 3)
    found = ask_evaluation(engine_type(federation), problem, w, M, bets)
    z = oracle.scores(w)
    classes = z.argmax(axis=1) if kind == "softmax" else z[:, 0] > 0
    cut = bounded_losses(kind, z, oracle.y, M)
    expected = {
        "count": np.ones(len(z)),
        "loss": oracle.losses(w),
        "bounded": cut,
        "correct": (classes == oracle.y) * 1.0,
        "positive": (classes == 1) * 1.0,
    }
    rows = people_of(federation)
    for name, values in expected.items():
        by_cell = oracle.cells @ values
        np.testing.assert_allclose(found.cells[name], by_cell, rtol=1e-11)
        for group, label in np.ndindex(*found.strata[name].shape):
            here = (rows.group == group) & (rows.y == label)
            assert found.strata[name][group, label] == pytest.approx(
                values[here].sum(), rel=1e-11, abs=1e-12
            )
    for c, j in np.ndindex(*bets.shape):
        logs = np.log(1 - bets[c, j] * cut[oracle.cells[c]] / M)
        assert found.logs[c, j] == pytest.approx(logs.sum(), rel=1e-11)
