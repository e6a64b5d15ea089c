"""What one person can change in a release is never more than is declared."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pffl.constraints import Cells
from pffl.data import Attribute, Schema
from pffl.errors import Malformed, UsageError
from pffl.models import Inputs, LeastSquares, LogisticRegression, SoftmaxRegression
from pffl.queries import Noised, Tally, Task, View
from tests.inside import CURVED, UNIT, Adding, seeded_source, unfolded
from tests.raising import raises

FEATURES = 3
WILD = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e12, -1e12, 0.5 + 2.0**-13]),
    st.floats(-1e9, 1e9),
)


def schema_of(labels: int) -> Schema:
    names = tuple(f"x{i}" for i in range(FEATURES))
    codes = tuple(f"y{i}" for i in range(labels))
    return Schema(names, (Attribute("sex", ("f", "m")),), codes)


def task_of(clip: float, labels: int = 2, *, intercept: bool = True) -> Task:
    schema = schema_of(labels)
    kind = LogisticRegression if labels == 2 else SoftmaxRegression
    model = kind(1e-3, intercept, input_bound=clip)
    bound = model.bind(schema, Inputs(np.full(FEATURES, 0.25), np.full(FEATURES, 2.0)))
    return Task(bound, Cells.none(schema), np.ones(1))


def view_of(task: Task, X, atom, person=None) -> View:
    labels = task.model.n_classes
    atoms = np.asarray(atom, np.int64)
    inputs = task.model.inputs.apply(np.asarray(X, np.float64))
    return View(0, inputs, (atoms % labels).astype(np.float64), atoms, person)


def noised(task: Task, w, sets, **kwargs) -> Noised:
    noise = np.ones(6)
    if not np.isin(sets, (0.0, 1.0)).all() or task.model.n_outputs > 1:
        noise[4] = 0.0
    noise[5] = kwargs.pop("logs", 1.0)
    bets = kwargs.pop("bets", np.array([0.1, 0.5, 0.99]))
    return Noised(
        task,
        w,
        noise,
        sets=sets,
        loss_bound=kwargs.pop("M", 3.0),
        bets=bets if noise[5] else np.zeros(0),
    )


@settings(max_examples=60, deadline=None)
@given(
    row=arrays(np.float64, FEATURES, elements=WILD),
    others=arrays(np.float64, (4, FEATURES), elements=WILD),
    w=arrays(np.float64, 12, elements=st.floats(-1e3, 1e3)),
    sets=arrays(np.float64, (3, 6), elements=st.floats(0, 1)),
    atom=st.integers(0, 3),
    clip=st.floats(1.01, 60),
    kind=st.sampled_from(["blocks", "weights", "softmax", "no intercept"]),
)
def test_no_person_changes_more_than_declared(row, others, w, sets, atom, clip, kind):
    """Neighbours: the same rows with and without one more, the worst there is."""
    task = task_of(clip, 3 if kind == "softmax" else 2, intercept=kind[:2] != "no")
    atoms = task.cells.membership.shape[1]
    weights = sets[:, :atoms] if kind != "blocks" else np.eye(atoms)
    query = noised(task, np.resize(w, task.model.n_parameters), weights)
    codes = np.arange(4) % atoms
    before = query.answer(view_of(task, others, codes))
    after = query.answer(
        view_of(task, np.vstack([others, row]), np.append(codes, atom))
    )
    for name in query.asked_for:
        unit = 2.0 ** -query.total_type.declared[name].unit
        change = (getattr(after, name) - getattr(before, name)) * unit
        length = math.sqrt(float((change.astype(float) ** 2).sum()))
        assert length <= query.sensitivity[name] * (1 + 1e-12), name
        if name in ("counts", "losses", "correct"):  # no looser than it must be
            assert query.sensitivity[name] <= 3.01 * math.sqrt(3)


def test_the_declared_bounds_are_reached():
    """Rows for which they are sharp: half of them would be too little."""
    task, atoms = task_of(4.0), 4
    far = np.full((1, FEATURES), 1e9)
    query = noised(task, np.array([-1e3, -1e3, -1e3, 0]), np.eye(atoms))
    total = query.answer(view_of(task, far, [1]))
    gradient = np.linalg.norm(query.real(total, "gradients"))
    assert gradient == pytest.approx(query.sensitivity["gradients"], rel=1e-3)
    bent = unfolded(query.real(total, "curvatures"), 4)
    # The triangle has each product once: at most the whole matrix's length.
    assert np.linalg.norm(bent) == pytest.approx(
        query.sensitivity["curvatures"], rel=1e-3
    )
    assert query.real(total, "losses").sum() == pytest.approx(3.0)
    logs = np.linalg.norm(query.real(total, "logs"))
    assert logs == pytest.approx(query.sensitivity["logs"], rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    row=arrays(np.float64, FEATURES, elements=WILD),
    others=arrays(np.float64, (4, FEATURES), elements=WILD),
    longest=st.floats(0.1, 10),
)
def test_no_person_changes_more_of_a_tally(row, others, longest):
    schema = schema_of(2)
    low, high = np.array([-1.0, 0.0, 0.0]), np.array([1.0, 1e6, 1.0])
    query = Tally(schema, low, high, longest, np.ones(2))
    view = View(0, others, np.zeros(4), np.arange(4))
    more = View(0, np.vstack([others, row]), np.zeros(5), np.append(np.arange(4), 2))
    before, after = query.answer(view), query.answer(more)
    for name in ("counts", "features"):
        change = (getattr(after, name) - getattr(before, name)) * 2.0**-UNIT
        assert np.linalg.norm(change) <= query.sensitivity[name] * (1 + 1e-12)


def test_sums_are_the_plain_ones():
    """Against a loop over rows, up to the grid."""
    random, task = np.random.default_rng(0), task_of(2.5)
    X, atom = random.normal(size=(200, FEATURES)) * 3, random.integers(0, 4, 200)
    w = random.normal(size=4)
    sets = np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]])
    query, view = noised(task, w, sets), view_of(task, X, atom)
    total, model = query.answer(view), task.model
    for k, weights in enumerate(sets):
        gradient, loss, bent, right, many = np.zeros(4), 0.0, np.zeros((4, 4)), 0, 0
        logs = np.zeros(3)
        for x, y, a in zip(view.X, view.y, view.atom, strict=True):
            if not weights[a]:
                continue
            one = np.append(x, 1.0)
            assert np.linalg.norm(one) <= 2.5 + 1e-12
            p = 1 / (1 + np.exp(-one @ w))
            kept = min(max(p, math.exp(-3)), 1 - math.exp(-3))
            own = -math.log(kept if y else 1 - kept)
            gradient += (p - y) * one
            bent += np.outer(one, one) / 4
            loss, many, right = loss + own, many + 1, right + ((p > 0.5) == y)
            logs += np.log(1 - query.bets * own / 3.0)
        assert query.real(total, "gradients")[k] == pytest.approx(gradient, abs=0.1)
        found = unfolded(query.real(total, "curvatures"), 4)[k]
        assert found == pytest.approx(bent, abs=0.1)
        assert query.real(total, "losses")[k] == pytest.approx(loss, abs=1e-4)
        assert query.real(total, "losses")[k] >= loss
        assert query.log_sums(total)[k] == pytest.approx(logs, abs=1e-3)
        assert (query.log_sums(total)[k] <= logs + 1e-12).all()
        assert query.real(total, "counts")[k] == many
        assert query.real(total, "correct")[k] == right
    assert model.inputs.longest == pytest.approx(math.sqrt(2.5**2 - 1))


def test_a_person_counts_once():
    task = task_of(4.0)
    query = noised(task, np.ones(4), np.eye(4))
    X = np.arange(12.0).reshape(4, 3)
    several = view_of(task, X, [0, 1, 2, 0], np.array([7, 8, 7, 7]))
    alone = view_of(task, X[:2], [0, 1], np.array([7, 8]))
    first, second = query.answer(several), query.answer(alone)
    for name in query.asked_for:
        assert np.array_equal(getattr(first, name), getattr(second, name))


def test_noise_has_the_deviation_that_the_account_says():
    task = task_of(4.0)
    adding = Adding(seeded_source(3))
    query = replace(noised(task, np.ones(4), np.eye(4)), adding=adding)
    view = view_of(task, np.zeros((5, 3)), [0, 1, 2, 3, 0])
    exact = query.answer(view)
    drawn = [query.pooled(exact, [view]) for _ in range(400)]
    for name, sigma in query.sigma.items():
        unit = 2.0 ** -query.total_type.declared[name].unit
        many = [getattr(one, name) - getattr(exact, name) for one in drawn]
        spread = np.std(np.array(many) * unit)
        assert spread == pytest.approx(sigma, rel=0.1)
        assert query.deviation(name, adding) == sigma
    assert query.mu == pytest.approx(math.sqrt(6))


@pytest.mark.parametrize(
    ("shared", "colluding", "each", "total"),
    [(False, 0, 1.0, 5.0), (True, 0, 0.2, 1.0), (True, 1, 0.25, 1.25)],
)
def test_shares_of_noise(shared, colluding, each, total):
    """What the honest sites add is enough; without secure sums each adds it all."""
    adding = Adding(seeded_source(0), 5, shared, colluding)
    assert (adding.each, adding.total) == pytest.approx((each, total))
    assert (5 - colluding) * adding.each >= 1.0 - 1e-12


def test_refusals():
    task = task_of(4.0)
    view = view_of(task, np.zeros((2, 3)), [0, 1])
    query = noised(task, np.zeros(4), np.eye(4))
    with raises(UsageError, "no-noise"):
        query.pooled(query.answer(view), [view])
    with raises(UsageError, "not-under-noise"):
        query.answer(replace(view, weight=np.ones(2)))
    with raises(Malformed, "bad-message", "0", "1"):
        noised(task, np.zeros(4), 2 * np.eye(4))
    with raises(Malformed, "wrong-noise"):
        replace(query, noise=np.full(6, 1e-9))
    with raises(Malformed, "bad-message", "nothing"):
        replace(query, noise=np.zeros(6), bets=np.zeros(0))
    free = replace(task.model, input_bound=None)
    with raises(UsageError, "not-under-noise"):
        noised(replace(task, model=free), np.zeros(4), np.eye(4))
    numeric = LeastSquares(input_bound=2.0)
    schema = schema_of(0)
    bound = numeric.bind(schema, Inputs.identity(FEATURES))
    other = Task(bound, Cells.none(schema), np.ones(1))
    with raises(UsageError, "not-under-noise"):
        noised(other, np.zeros(4), np.eye(2))


def test_grid():
    assert CURVED == 2 * 12 + 2
    assert UNIT == 24
