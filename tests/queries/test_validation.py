"""The gate: never refuses what is true, and refuses what cannot be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.data import Federation, Rows, Silo
from pffl.engines import Reference
from pffl.errors import Refused, UsageError
from pffl.models import (
    HuberRegression,
    LeastSquares,
    LogisticRegression,
    SoftmaxRegression,
)
from pffl.queries import (
    Census,
    Evaluate,
    Expand,
    Gate,
    Policy,
    Train,
    View,
    Witness,
)
from tests.helpers import (
    evaluate_query,
    make_federation,
    make_problem,
    make_schema,
    train_query,
    witness_query,
)
from tests.raising import raises

MODELS = {
    "logistic": (LogisticRegression(), 2),
    "softmax": (SoftmaxRegression(), 3),
    "least squares": (LeastSquares(), 0),
    "huber": (HuberRegression(delta=0.7), 0),
}


def wild(rng, labels, n_silos=3, heaviest=None) -> Federation:
    """Draw silos with columns far from 0, constant ones, huge and tiny ones.

    Rows weigh up to `heaviest`, many of them far less.
    """
    schema = make_schema(features=4, labels=labels)
    offset = rng.choice([0.0, 1.0, 1e4], size=4)
    size = rng.choice([0.0, 1e-3, 1.0, 1e3], size=4)
    dtype = rng.choice([np.float64, np.float32])
    silos = []
    for k in range(n_silos):
        parts = {}
        for split in ("train", "test"):
            n = int(rng.integers(1, 60))
            tails = rng.standard_t(2, size=(n, 4))
            X = (offset + size * tails * rng.choice([0.1, 10.0])).astype(dtype)
            group = rng.integers(2, size=n)
            group[0] = k % 2
            y = rng.integers(max(labels, 1), size=n).astype(float)
            if labels == 0:
                y = 5 * rng.normal(size=n)
            weight = None if heaviest is None else heaviest * rng.random(n) ** 9
            parts[split] = replace(Rows.of(X, y, group), weight=weight)
        silos.append(Silo(f"site {k}", k, parts))
    return Federation(schema, tuple(silos))


def queries(problem, rng, J):
    """Draw one query of each kind, at a w that may be large."""
    w = rng.normal(size=problem.n_parameters) * rng.choice([0.0, 0.1, 1.0, 30.0])
    z = problem.n_cells
    batch = rng.choice([None, 1, 7])
    sizes = rng.choice([1e-3, 0.1, 1.0]) * rng.random(J)
    train = Train(
        problem.task,
        w,
        float(rng.choice([0.0, 1.0])),
        (np.abs if rng.integers(2) else np.positive)(rng.normal(size=z))
        / problem.counts,
        sizes,
        None if batch is None else int(batch),
        float(rng.choice([0.0, 0.5])),
        1,
        2,
        None,
        float(rng.choice([0.0, 1.0, 2.5])),
    )
    yield train
    near, lam = w + rng.normal(size=len(w)), np.abs(rng.normal(size=z)) / problem.counts
    mean = rng.normal(size=len(w))
    past = {"anchor": near, "anchor_weights": lam, "anchor_gradient": mean}
    yield replace(train, round=3, slope=True, loss_power=0.0, **past)
    yield replace(train, round=4, slope=True, loss_power=0.0, by_mass=True)
    yield evaluate_query(problem.task, w)
    yield Evaluate(problem.task, w, "train")
    yield Expand(problem.task, w, 2)
    yield Expand(problem.task, w, 0)
    sharp = 10.0 if problem.task.model.n_outputs == 1 else 0.0
    yield Expand(problem.task, w, sharpness=sharp)
    weights, beta = rng.random(z) / problem.counts, float(rng.integers(2))
    shift = rng.choice([0.0, 1.0, 100.0]) * rng.normal(size=len(w))
    yield Witness(problem.task, w, beta, weights, shift)


def counted(silo, schema, split="train"):
    """Return one silo's census."""
    return Census(schema, split).answer(View.of(silo, schema, None, split))


def recounted(total, counts):
    """Return a census with other counts, and weights to them."""
    return replace(total, counts=counts, weights=counts.astype(np.float64))


def opened(federation, policy=None) -> Gate:
    """Return a gate that knows the federation's census."""
    gate = Gate(policy or Policy(), federation.schema)
    for silo in federation.silos:
        for split in silo.splits:
            gate.census(silo.index, split, counted(silo, federation.schema, split), 0)
    return gate


def answer(federation, query, k):
    view = View.of(
        federation.silos[k], federation.schema, query.task.model, query.split
    )
    return query.answer(view)


@pytest.mark.parametrize("name", MODELS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=10)
def test_an_honest_silo_is_never_refused_or_clipped(name, seed):
    honest_silos_pass(name, seed)


def honest_silos_pass(name, seed):
    rng = np.random.default_rng(seed)
    model, labels = MODELS[name]
    model = replace(
        model, intercept=bool(rng.integers(2)), standardize=bool(rng.integers(4))
    )
    heaviest = rng.choice([None, None, 1e-3, 1e5])
    federation = wild(rng, labels, heaviest=heaviest)
    engine = Reference(federation)
    constraint = (
        pffl.PerSilo(1.0)
        if rng.integers(2) or not labels
        else pffl.BoundedGroupLoss(0.5)
    )
    options = pffl.prepare.Options(
        empty_cells="remove", weighting=str(rng.choice(["silos", "rows"]))
    )
    problem = make_problem(engine, constraint, model=model, options=options)
    gate = opened(federation, Policy(weight_bound=heaviest))
    steps = int(rng.choice([1, 1, 2, 5]))
    for _ in range(2):
        for query in queries(problem, rng, steps):
            if heaviest is not None and isinstance(query, Evaluate):
                none = np.zeros((problem.n_cells, 0))
                query = replace(query, bets=none, levels=none, weight_bound=np.inf)
            for k in range(len(federation)):
                with np.errstate(over="ignore", invalid="ignore"):
                    total = answer(federation, query, k)
                if isinstance(query, Train) and not np.isfinite(total.update).all():
                    continue  # squares with too large a step
                verdict = gate.report(query, k, total)
                assert verdict is total


def test_weights_are_judged_like_counts():
    rng = np.random.default_rng(2)
    federation = wild(rng, 2, heaviest=5.0)
    total = counted(federation.silos[0], federation.schema)
    for bound in (None, 0.1):
        with raises(Refused, "implausible-answer", "weight"):
            opened(federation, Policy(weight_bound=bound))
    for lie, code in (
        (replace(total, weights=2.5 * total.weights), "implausible-sum"),
        (replace(total, weight=2.5 * total.weight), "implausible-answer"),
        (replace(total, weights=0 * total.weights), "implausible-answer"),
        (replace(total, weights=-total.weights), "implausible-sum"),
    ):
        gate = Gate(Policy(weight_bound=50.0), federation.schema)
        with raises(Refused, code, "weight"):
            gate.census(0, "train", lie, 0)
    problem = make_problem(Reference(federation), pffl.PerSilo(1.0))
    gate = opened(federation, Policy(weight_bound=5.0))
    query = Evaluate(problem.task, np.ones(problem.n_parameters), "train", 3.0)
    found = answer(federation, query, 1)
    assert gate.report(query, 1, found) is found
    for column in (0, 7):  # people, and what they weigh
        table = found.strata.copy()
        table[:, column] *= 1.001
        lie = replace(found, strata=table)
        with pytest.raises(Refused):
            gate.report(query, 1, lie)


def setting(name="logistic", seed=3, policy=None):
    rng = np.random.default_rng(seed)
    model, labels = MODELS[name]
    federation = make_federation(seed, labels=labels)
    problem = make_problem(
        Reference(federation), pffl.BoundedGroupLoss(0.6), model=model
    )
    w = rng.normal(size=problem.n_parameters)
    return federation, problem, w, opened(federation, policy)


def tampered(total, name, change):
    value = np.array(getattr(total, name), dtype=float)
    changed = change(value)
    value = value if changed is None else changed
    return replace(total, **{name: float(value) if value.ndim == 0 else value})


def put(value, *place):
    def change(array):
        array[place] = value

    return change


TRAIN_LIES = {
    "negative loss": ("cell_losses", put(-1.0, 0)),
    "another share": ("share", lambda a: a * 2),
    "huge": ("update", put(1e200, 0)),
    "not a number": ("update", put(np.nan, 0)),
}


EVALUATE_LIES = {
    "count": ("strata", put(99.0, 0, 0)),
    "fractional count": ("strata", lambda a: a + np.eye(*a.shape) * 0.5),
    "loss": ("strata", put(-1.0, 0, 1)),
    "correct": ("strata", put(99.0, 0, 5)),
    "positive": ("strata", put(1.5, 0, 6)),
    "bounded risk below 0": ("bounded_risk", lambda a: -a),
    "share": ("share", lambda a: a * 0.5),
}


@pytest.mark.parametrize("lie", EVALUATE_LIES)
@pytest.mark.parametrize("bound", [np.inf, 1.0])
def test_an_evaluate_report_that_cannot_be_is_refused(lie, bound):
    federation, problem, w, gate = setting()
    query = Evaluate(problem.task, w, "test", bound)
    total = answer(federation, query, 1)
    gate.report(query, 1, total)
    false = tampered(total, *EVALUATE_LIES[lie])
    if EVALUATE_LIES[lie][0] == "strata":  # a careful liar keeps the cells in line
        false = replace(false, cells=problem.cells.of_silo(1) @ false.strata)
    with pytest.raises(Refused):
        gate.report(query, 1, false)


SUM_LIES = {
    "a gain": ("logs", put(0.1, 0, 0)),
    "below the chord": ("logs", lambda a: a * 2.0),
    "not a number": ("logs", put(np.nan, 0, 0)),
    "more people than rows": ("people", put(999.0, 0, 0)),
    "half a person": ("people", put(1.5, 0, 0)),
}


EXPAND_LIES = {
    "loss": ("losses", put(-1.0, 1)),
    "risk": ("losses", put(-1.0, 0)),
    "score above the count": ("scores", put(1e3, 0)),
    "score below 0": ("scores", put(-1e-3, 0)),
    "not a number": ("gradients", put(np.nan, 0, 0)),
}
CURVED_LIES = {"below 0": ("curvatures", put(-1.0, 0))}
WITNESS_LIES = {
    "size below 0": ("sizes", put(-1.0, 0)),
    "not finite": ("sizes", put(np.inf, 1)),
}


REPORTS = {  # what is asked, and what no rows can give for an answer
    "train": (
        lambda p, w: train_query(p, 0.1 * w, np.ones(2), loss_power=1.0),
        TRAIN_LIES,
    ),
    "sums": (lambda p, w: evaluate_query(p.task, w), SUM_LIES),
    "expand": (lambda p, w: Expand(p.task, w, 2, sharpness=2.0), EXPAND_LIES),
    "curvature": (lambda p, w: Expand(p.task, w, 0), CURVED_LIES),
    "witness": (
        lambda p, w: witness_query(p, w, np.ones(p.n_cells) / 2),
        WITNESS_LIES,
    ),
}


@pytest.mark.parametrize(
    ("kind", "lie"),
    [(kind, lie) for kind, (_, lies) in REPORTS.items() for lie in lies],
)
def test_a_report_that_cannot_be_is_refused(kind, lie):
    federation, problem, w, gate = setting()
    asking, lies = REPORTS[kind]
    query = asking(problem, w)
    total = answer(federation, query, 1)
    gate.report(query, 1, total)
    with pytest.raises(Refused):
        gate.report(query, 1, tampered(total, *lies[lie]))


CENSUS_LIES = {
    "negative": lambda t: recounted(t, t.counts - 50),
    "more than rows": lambda t: recounted(t, t.counts + 1),
    "too many rows": lambda t: replace(t, rows=t.rows + 10**15),
    "unsaid": lambda t: recounted(t, t.counts * [[0, 1, 1, 1]]),
    "weighted": lambda t: replace(t, weights=t.weights * 0.5),
    "not finite": lambda t: replace(t, feature_sums=t.feature_sums * np.nan),
}


@pytest.mark.parametrize("lie", CENSUS_LIES)
def test_a_census_that_cannot_be_is_refused(lie):
    federation = make_federation(0)
    gate = Gate(Policy(), federation.schema)
    total = counted(federation.silos[0], federation.schema)
    with pytest.raises(Refused):
        gate.census(0, "train", CENSUS_LIES[lie](total), 0)
    gate.census(0, "train", total, 0)
    rows = total.rows.copy()
    moved = replace(recounted(total, total.counts[:, ::-1]), rows=rows)
    with raises(Refused, "changed-census"):
        gate.census(0, "train", moved, 0)


def test_reasons_hold_no_figures():
    federation, problem, w, gate = setting()
    query = train_query(problem, 0.1 * w, np.ones(2), loss_power=1.0)
    total = answer(federation, query, 1)
    for lie in TRAIN_LIES.values():
        with pytest.raises(Refused) as error:
            gate.report(query, 1, tampered(total, *lie))
        assert not any(letter.isdigit() for letter in str(error.value))


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": 0.0},
        {"join_seconds": float("inf")},
        {"retries": -1},
        {"weight_bound": -1.0},
    ],
)
def test_a_policy_of_nonsense_is_refused(wrong):
    with raises(UsageError, "wrong-value", *wrong):
        Policy(**wrong)
