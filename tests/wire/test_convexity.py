"""Answers of a silo fit one convex loss: the honest always, turned gradients never."""

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
from pffl.errors import FederationError, Refused
from pffl.preparation import Options
from pffl.questions import Curvature, Evaluate, Slopes, Train
from pffl.wire import Policy, convexity
from pffl.wire.convexity import Told
from tests.engines.sites import QUICK, remote, sites_of, spoil
from tests.helpers import make_federation, make_problem
from tests.wire.test_admission import MODELS, answer, opened

CONTRADICTS = "contradict those of an earlier answer"
ONCE = replace(QUICK, retries=0)


def drawn(rng, labels) -> Federation:
    """Draw silos in hostile units: separable, weighted and sparse ones among them."""
    schema = Schema(
        tuple("abcd"),
        (Attribute("sex", ("f", "m")),),
        tuple(f"class {c}" for c in range(labels)),
    )
    unit, size = (
        10.0 ** rng.choice([-12, 0, 12], size=4),
        10.0 ** rng.choice([-9, 0, 9]),
    )
    offset, apart = rng.choice([0.0, 1.0, 1e5]), rng.choice([0.0, 1.0, 100.0])
    zeros, weighted = rng.choice([0.0, 0.7]), bool(rng.integers(2))
    silos = []
    for k in range(2):
        n = int(rng.integers(4, 300))
        X = np.where(rng.random((n, 4)) < zeros, 0.0, rng.normal(size=(n, 4)) + offset)
        y = apart * (X - offset) @ np.array([1.0, -1.0, 0.5, 2.0]) + rng.normal(size=n)
        cuts = np.quantile(y, np.linspace(0, 1, max(labels, 1) + 1)[1:-1])
        y = np.digitize(y, cuts).astype(float) if labels else size * y
        inputs = as_inputs(csr_array(X * unit)) if zeros else X * unit
        weight = 10.0 ** rng.uniform(-5, 5, n) if weighted else None
        rows = replace(Rows.of(inputs, y, np.arange(n) % 2), weight=weight)
        silos.append(Silo(f"site {k}", k, {"train": rows}))
    return Federation(schema, tuple(silos))


def problem_of(federation, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that bounds ask for nothing
        return make_problem(
            Reference(federation),
            pffl.BoundedGroupLoss(1.0),
            model=model,
            options=Options(empty_cells="remove"),
        )


def walk(seed, name, *, rounds):
    """Let an honest silo answer in several rounds, each question in two ways."""
    rng = np.random.default_rng(seed)
    model, labels = MODELS[name]
    federation = drawn(rng, labels)
    problem = problem_of(federation, model)
    task, p = problem.task, problem.n_parameters
    gate = opened(federation, Policy(weight_bound=1e5))
    first = federation.silos[0]
    alone = Local(Federation(federation.schema, (first,)))
    share = replace(task, shares=task.shares[:1])
    w, length = np.zeros(p), 10.0 ** rng.uniform(-9, 4)
    for _ in range(rounds):
        lam = rng.random(problem.n_cells) / problem.counts
        for question in (
            Curvature(task, w),
            Evaluate(task, w, "train"),
            Slopes(task, w),
            Train(task, w, 1.0, lam, np.array([1e-9]), slope=True),
        ):
            gate.report(question, 0, answer(federation, question, 0))
            # The same sums in another order.
            gate.report(question, 0, alone.ask(replace(question, task=share)))
        # A step that is long or tiny, from where it was or from 0.
        w = w * rng.choice([0.0, 1.0, 1.0]) + length * rng.normal(size=p)


@pytest.mark.parametrize("name", MODELS)
def test_the_honest_are_never_refused_whatever_rows_steps_and_order_of_sums(name):
    for seed in range(2):
        walk(seed, name, rounds=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_honest_are_never_refused_in_many_more_worlds(name):
    for seed in range(2, 30):
        walk(seed, name, rounds=8)


def asked(problem, w):
    """Ask for gradients in every way."""
    lam = np.ones(problem.n_cells) / problem.counts
    return {
        "curvature": Curvature(problem.task, w),
        "slopes": Slopes(problem.task, w),
        "train": Train(problem.task, w, 1.0, lam, np.array([0.1]), slope=True),
    }


def turned(total):
    """Return an answer whose gradients have the other sign."""
    names = ("risk_gradient", "cell_gradients", "gradient")
    own = [name for name in names if name in total.declared]
    return replace(total, **{name: -getattr(total, name) for name in own})


@pytest.mark.parametrize("kind", ["curvature", "slopes", "train"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("step", [1e-4, 1.0])
def test_fault_97_turned_gradients_are_refused_with_the_second_answer(kind, name, step):
    rng = np.random.default_rng(0)
    model, labels = MODELS[name]
    federation = make_federation(3, labels=labels)
    problem = problem_of(federation, model)
    gate, p = opened(federation), problem.n_parameters
    w = 0.3 * rng.normal(size=p)
    here, there = w, w + step * rng.normal(size=p)
    question = asked(problem, here)[kind]
    gate.report(question, 0, turned(answer(federation, question, 0)))
    question = asked(problem, there)[kind]
    with pytest.raises(Refused, match=CONTRADICTS):
        gate.report(question, 0, turned(answer(federation, question, 0)))
    # What was refused is forgotten, and another silo is not blamed.
    question = asked(problem, there)[kind]
    gate.report(question, 1, answer(federation, question, 1))


@pytest.mark.parametrize("kind", ["curvature", "train"])
def test_fault_97_one_plane_of_a_wide_model_is_enough(kind, monkeypatch):
    monkeypatch.setattr(convexity, "LARGE", 1)
    monkeypatch.setattr(convexity, "MOST_NUMBERS", 1)
    federation = make_federation(3)
    problem = problem_of(federation, pffl.LogisticRegression())
    gate, w = opened(federation), np.full(problem.n_parameters, 0.2)
    first, *others = (asked(problem, at)[kind] for at in (w, 1.1 * w, 1.3 * w))
    gate.report(first, 0, turned(answer(federation, first, 0)))
    for question in others:
        with pytest.raises(Refused, match=CONTRADICTS):
            gate.report(question, 0, turned(answer(federation, question, 0)))
    for question in (first, *others, Evaluate(problem.task, w, "train")):
        gate.report(question, 1, answer(federation, question, 1))
    kept = gate._convexity._told.values()
    assert max(len(told.w) for told in kept) == 2
    assert max(len(told.at) for told in kept) <= 2


def test_fault_97_a_lie_about_one_cell_or_only_at_the_end_is_refused():
    federation = make_federation(3)
    problem = problem_of(federation, pffl.LogisticRegression())
    w = np.full(problem.n_parameters, 0.2)
    for change in (
        lambda t: replace(t, cell_gradients=t.cell_gradients * [[1.0], [-1.0]]),
        lambda t: replace(t, risk_gradient=-t.risk_gradient),
    ):
        gate = opened(federation)
        first, second = (Curvature(problem.task, at) for at in (w, 1.5 * w))
        gate.report(first, 0, change(answer(federation, first, 0)))
        with pytest.raises(Refused, match=CONTRADICTS):
            gate.report(second, 0, change(answer(federation, second, 0)))
    # Honest all along, and then a little less loss than at the same w before.
    gate = opened(federation)
    first, last = Curvature(problem.task, w), Evaluate(problem.task, w, "train")
    gate.report(first, 0, answer(federation, first, 0))
    total = answer(federation, last, 0)
    for less in (1 - 1e-3, 1 - 1e-9):
        lie = replace(
            total,
            atoms=scaled(total.atoms, less),
            cells=scaled(total.cells, less),
            risk=less * total.risk,
            bounded_risk=less * total.bounded_risk,
        )
        with pytest.raises(Refused, match=CONTRADICTS):
            gate.report(last, 0, lie)
    assert gate.report(last, 0, total).total is total


def scaled(table, less):
    """Return the columns of `evaluate` with all losses a little smaller."""
    return table * np.array([1, less, less**2, less, less**2, 1, 1, 1])


def below(told, other):
    """Return by how much each plane is above each of the other's losses."""
    return [
        c @ told.values[t] + g @ (at - told.w[t]) - c @ values
        for t, c, g in zip(told.at, told.weights, told.gradients, strict=True)
        for at, values in zip(other.w, other.values, strict=True)
    ]


def test_the_comparison_is_the_formula():
    rng = np.random.default_rng(1)
    for _ in range(200):
        T, Z, p, M = rng.integers(1, 4, size=4)
        told = Told(
            rng.normal(size=(T, p)),
            rng.normal(size=(T, Z)),
            np.zeros((T, Z)),
            rng.integers(T, size=M),
            rng.random((M, Z)),
            rng.normal(size=(M, p)),
            np.zeros(M),
        )
        other = replace(
            told, w=rng.normal(size=(2, p)), values=rng.normal(size=(2, Z)) + 2.0
        )
        other = replace(other, errors=np.zeros((2, Z)))
        above = max(below(told, other))
        assert told.fits(other) == (above <= 0)
        # What rounding can do is granted, and no more: of losses, and of gradients.
        near = 1 + 1e-9
        sums = told.weights.sum(axis=1).min()
        room = replace(other, errors=np.full((2, Z), max(above, 0.0) / sums * near))
        assert told.fits(room)


def test_the_first_and_the_latest_answers_are_kept(monkeypatch):
    monkeypatch.setattr(convexity, "MOST_ANSWERS", 4)
    federation = make_federation(3)
    problem = problem_of(federation, pffl.LogisticRegression())
    gate, rng = opened(federation), np.random.default_rng(0)
    points = [np.zeros(problem.n_parameters)]
    points += list(rng.normal(size=(6, problem.n_parameters)))
    for w in points:
        question = Slopes(problem.task, w)
        gate.report(question, 0, answer(federation, question, 0))
    (all_of_f, of_cells) = gate._convexity._told.values()
    kept = np.array([points[0], *points[-3:]])
    assert np.array_equal(all_of_f.w, kept)
    assert np.array_equal(of_cells.w, kept)
    assert of_cells.at.tolist() == [i for i in range(4) for _ in range(3)]
    again = Slopes(problem.task, points[0])
    total = answer(federation, again, 0)
    with pytest.raises(Refused, match=CONTRADICTS):  # the first is still known
        gate.report(again, 0, replace(total, cell_losses=total.cell_losses + 1e-9))
    monkeypatch.setattr(convexity, "MOST_NUMBERS", 1)
    gate.report(again, 0, total)
    assert [len(told.w) for told in gate._convexity._told.values()] == [2, 2]


@pytest.mark.parametrize("method", [pffl.Exact(), pffl.FirstOrder()])
def test_fault_97_a_site_that_turns_its_gradients_ends_the_run_by_name(method):
    federation = make_federation(3)
    sites = sites_of(federation)

    def turn(arrays):
        for name in {"risk_gradient", "cell_gradients"} & set(arrays):
            arrays[name] = -arrays[name]
        return arrays

    # Of a message with several questions, the first is changed.
    kinds = ("curvature", "slopes", "questions")
    sites["node 1"] = spoil(sites["node 1"], kinds, change=turn)
    engine = remote(federation, sites, policy=ONCE)
    with pytest.raises(FederationError, match=f"'site 1' .*{CONTRADICTS}"):
        pffl.solve(engine, pffl.BoundedGroupLoss(0.6), method=method, seed=0)
