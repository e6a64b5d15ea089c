"""What a row adds to a release: from that row alone, and never longer than declared."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from threadpoolctl import threadpool_limits

from pffl.constraints import BoundedGroupLoss, Cells
from pffl.data import Attribute, Schema
from pffl.errors import Malformed, UsageError
from pffl.models import Inputs, LeastSquares, LogisticRegression, SoftmaxRegression
from pffl.queries import (
    Adding,
    Census,
    Evaluate,
    Expand,
    ReleasedSums,
    Task,
    Train,
    View,
)
from tests.inside import blocks_of, seeded_source, unfolded
from tests.raising import raises

FEATURES = 3
BETS = np.array([0.1, 0.5, 0.99])
KINDS = ["logistic", "softmax", "no intercept"]
WILD = st.one_of(
    st.sampled_from([0.0, 1.0, -1e-300, 1e12, 1e308, np.nan, np.inf, -np.inf]),
    st.sampled_from([0.5 + 2.0**-13, -4.0, 4.0]),
    st.floats(-1e9, 1e9),
)
ROW = arrays(np.float64, FEATURES, elements=WILD)
ROWS = arrays(np.float64, (4, FEATURES), elements=WILD)
W = arrays(np.float64, 12, elements=st.one_of(st.floats(-1e3, 1e3), st.just(1e308)))


def schema_of(labels: int = 2) -> Schema:
    names = tuple(f"x{i}" for i in range(FEATURES))
    codes = tuple(f"y{i}" for i in range(labels))
    return Schema(names, (Attribute("sex", ("f", "m")),), codes)


def task_of(clip: float = 4.0, kind: str = "logistic", *, bounds: bool = True) -> Task:
    schema = schema_of(3 if kind == "softmax" else 2)
    model_type = SoftmaxRegression if kind == "softmax" else LogisticRegression
    model = model_type(1e-3, kind != "no intercept", input_bound=clip)
    bound = model.bind(schema, Inputs(np.full(FEATURES, 0.25), np.full(FEATURES, 2.0)))
    cells = Cells.none(schema)
    if bounds:
        cells = BoundedGroupLoss(0.6).cells(schema, ("all",))
    return Task(bound, cells, np.ones(1))


def view_of(task: Task, X, stratum, person=None, *, raw: bool = False) -> View:
    labels, strata = task.model.n_classes, np.asarray(stratum, np.int64)
    X = np.asarray(X, np.float64)
    with np.errstate(all="ignore"):
        inputs = X if raw else task.model.inputs.apply(X)
    return View(0, inputs, (strata % labels).astype(np.float64), strata, person)


def queries(task: Task, w) -> list:
    """Every query that can be released, with all its fields."""
    w = np.resize(w, task.model.n_parameters)
    z, J = len(task.cells), len(BETS)
    ends = np.full(FEATURES, -6.0), np.array([6.0, 6.0, 1e6])
    schema = schema_of(task.model.n_classes)
    bent = 1.0 if task.model.n_outputs == 1 else 0.0
    found = [
        Census(
            schema, noise=np.ones(2), low=ends[0], high=ends[1], longest=math.sqrt(6)
        ),
        Evaluate(
            task, w, loss_bound=3.0, bets=np.tile(BETS, (z, 1)),
            noise=np.array([1.0, 1, 1, 1 if z else 0]),
        ),
        Expand(task, w, 2, noise=np.array([1.0, 1, bent]), loss_bound=3.0),
        Train(
            task, w, 0.5, np.linspace(0.0, 0.3, z), np.ones(1), noise=np.ones(2),
            loss_bound=3.0, people=100.0,
        ),
    ]  # fmt: skip
    assert J == 3
    return found


def parts(query, total: ReleasedSums) -> dict[str, np.ndarray]:
    """The whole numbers of each field."""
    found, start = {}, 0
    for name, part in query.parts.items():
        size = math.prod(part.shape)
        found[name] = total.sums[start : start + size]
        start += size
    return found


def seen(query, task, X, stratum, **more) -> View:
    return view_of(task, X, stratum, raw=isinstance(query, Census), **more)


@settings(max_examples=80, deadline=None)
@given(
    row=ROW,
    others=ROWS,
    w=W,
    stratum=st.integers(0, 3),
    clip=st.floats(1.01, 60),
    kind=st.sampled_from(KINDS),
    bounds=st.booleans(),
)
def test_no_person_changes_more_than_declared(
    row, others, w, stratum, clip, kind, bounds
):
    """Neighbours: the same rows with and without one more, the worst there is."""
    task = task_of(clip, kind, bounds=bounds)
    for query in queries(task, w):
        codes = np.arange(4)
        more = np.vstack([others, row]), np.append(codes, stratum)
        before = query.answer(seen(query, task, others, codes))
        after = query.answer(seen(query, task, *more))
        apart = ReleasedSums(after.sums - before.sums)
        for name, change in parts(query, apart).items():
            part = query.parts[name]
            length = sum(int(v) ** 2 for v in change)
            assert length <= (part.sensitivity * 2.0**part.unit) ** 2, name
            assert query.sigma[name] == part.sensitivity * part.noise


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(KINDS), wild=st.booleans())
def test_a_row_adds_the_same_wherever_and_beside_whomever(seed, kind, wild):
    """Subsets, orders, offsets, memory orders and threads: equal to the last bit."""
    random, task = np.random.default_rng(seed), task_of(2.5, kind)
    n = int(random.integers(2, 60))
    X = random.normal(size=(n, FEATURES)) * 10.0 ** random.integers(-3, 4, FEATURES)
    if wild:
        X[random.integers(n), random.integers(FEATURES)] = random.choice(
            [np.nan, np.inf, -np.inf, 1e308]
        )
    stratum = random.integers(0, 4, n)
    order = random.permutation(n)
    some = order[: random.integers(1, n)]
    for query in queries(task, random.normal(size=12) * 3):

        def whole(rows, query=query, X=X, form=np.ascontiguousarray):
            return query.answer(seen(query, task, form(X[rows]), stratum[rows])).sums

        each = np.array([whole([i]) for i in range(n)])
        assert np.array_equal(whole(order), each.sum(axis=0))
        assert np.array_equal(whole(some), each[some].sum(axis=0))
        assert np.array_equal(whole(some, form=np.asfortranarray), whole(some))
        offset = np.zeros((n + 1, FEATURES + 1))
        offset[1:, 1:] = X
        assert np.array_equal(whole(some, X=offset[1:, 1:]), whole(some))
        with threadpool_limits(1):
            assert np.array_equal(whole(order), each.sum(axis=0))


def test_rows_that_are_longer_than_the_clip_add_nothing():
    """Whatever went wrong before: the length is held in whole numbers."""
    task = task_of(4.0)
    longer = replace(task.model.inputs, longest=math.inf)
    task = replace(task, model=replace(task.model, inputs=longer))
    far = view_of(task, np.full((1, FEATURES), 1e3), [1])
    for query in queries(task, np.ones(4))[2:]:
        found = parts(query, query.answer(far))
        assert found["losses"].any()
        assert not any(v.any() for name, v in found.items() if name != "losses")


def test_the_declared_bounds_are_reached():
    """Rows for which they are sharp: half of them would be too little."""
    task, far = task_of(4.0), np.full((1, FEATURES), 1e9)
    steep = np.array([-1e3, -1e3, -1e3, 0])
    census, evaluate, expand, train = queries(task, steep)
    total = expand.answer(view_of(task, far, [1]))
    for query in (expand, train):
        name = "gradients" if query is expand else "gradient"
        found = np.linalg.norm(query.real(query.answer(view_of(task, far, [1])), name))
        share = 1.0 if query is expand else query.stratum_weights[1] / query.heaviest
        length = share * query.parts[name].sensitivity
        assert found == pytest.approx(length, rel=5e-3)
    bent = unfolded(expand.real(total, "curvatures"), 4)
    # The triangle has each product once: at most the whole matrix's length.
    declared = expand.parts["curvatures"].sensitivity
    assert np.linalg.norm(bent) == pytest.approx(declared, rel=1e-3)
    total = evaluate.answer(view_of(task, far, [1]))
    assert evaluate.real(total, "losses").sum() == pytest.approx(3.0)
    logs = np.linalg.norm(evaluate.real(total, "logs"))
    assert logs == pytest.approx(evaluate.parts["logs"].sensitivity, rel=1e-6)
    top = view_of(task, np.array([[6.0, 6.0, 1e6]]), [0], raw=True)
    sums = np.linalg.norm(census.real(census.answer(top), "features"))
    assert sums == pytest.approx(census.parts["features"].sensitivity, rel=1e-6)


def test_sums_are_the_plain_ones():
    """Against a loop over rows, up to the grid; losses are rounded up, logs down."""
    random, task = np.random.default_rng(0), task_of(2.5)
    X, stratum = random.normal(size=(200, FEATURES)) * 3, random.integers(0, 4, 200)
    w = random.normal(size=4)
    _, evaluate, expand, train = queries(task, w)
    view = view_of(task, X, stratum)
    sets, _ = blocks_of(task.cells)
    told, bent, step = (q.answer(view) for q in (evaluate, expand, train))
    gradient, strata = np.zeros(4), np.zeros((4, 3))
    for k, block in enumerate(sets):
        own_gradient, own_bent, logs = np.zeros(4), np.zeros((4, 4)), np.zeros(3)
        for x, y, a in zip(view.X, view.y, view.stratum, strict=True):
            if not block[a]:
                continue
            one = np.append(x, 1.0)
            assert np.linalg.norm(one) <= 2.5 + 1e-12
            p = 1 / (1 + np.exp(-one @ w))
            kept = min(max(p, math.exp(-3)), 1 - math.exp(-3))
            own = -math.log(kept if y else 1 - kept)
            own_gradient += (p - y) * one
            gradient += train.stratum_weights[a] * (p - y) * one
            own_bent += np.outer(one, one) / 4
            strata[a] += 1, own, (p > 0.5) == y
            logs += np.log(1 - BETS * own / 3.0)
        found = expand.real(bent, "gradients")[k]
        assert found == pytest.approx(own_gradient, abs=0.1)
        found = unfolded(expand.real(bent, "curvatures"), 4)[k]
        assert found == pytest.approx(own_bent, abs=0.1)
        assert evaluate.log_sums(told)[k] == pytest.approx(logs, abs=1e-3)
        assert (evaluate.log_sums(told)[k] <= logs + 1e-12).all()
    for column, name in enumerate(("counts", "losses", "correct")):
        found = evaluate.real(told, name)
        assert found == pytest.approx(strata[:, column], abs=1e-4)
        assert (found >= strata[:, column] - 1e-12).all()
    assert expand.real(bent, "losses") == pytest.approx(sets @ strata[:, 1], abs=1e-4)
    found = train.heaviest * train.real(step, "gradient")
    assert found == pytest.approx(gradient, abs=0.1 * train.heaviest)


def test_a_person_counts_once():
    task, X = task_of(), np.arange(12.0).reshape(4, 3)
    for query in queries(task, np.ones(4)):
        several = seen(query, task, X, [0, 1, 2, 0], person=np.array([7, 8, 7, 7]))
        alone = seen(query, task, X[:2], [0, 1], person=np.array([7, 8]))
        first, second = query.answer(several), query.answer(alone)
        assert np.array_equal(first.sums, second.sums)


def test_noise_has_the_deviation_that_the_account_says():
    """And is what an exact answer has not: the total is that plus noise."""
    task, adding = task_of(), Adding(seeded_source(3))
    for query in queries(task, np.ones(4)):
        query = replace(query, adding=adding)
        view = seen(query, task, np.zeros((5, 3)), [0, 1, 2, 3, 0])
        exact = query.answer(view)
        drawn = [query.pooled(exact, [view]) for _ in range(300)]
        for name, sigma in query.sigma.items():
            off = [query.real(d, name) - query.real(exact, name) for d in drawn]
            assert np.std(off) == pytest.approx(sigma, rel=0.12)
            assert query.deviation(name, adding) == sigma
        assert query.mu == pytest.approx(math.sqrt(len(query.parts)))
        assert query.answer_type is ReleasedSums
        assert query.dims == {"n": len(exact.sums)}


def test_what_has_no_declared_length_is_refused():
    task = task_of()
    view = view_of(task, np.zeros((2, 3)), [0, 1])
    census, evaluate, expand, train = queries(task, np.zeros(4))
    with raises(UsageError, "no-noise"):
        expand.pooled(expand.answer(view), [view])
    for query in (evaluate, expand, train):
        with raises(UsageError, "not-under-noise"):
            query.answer(replace(view, weight=np.ones(2)))
        with raises(Malformed, "wrong-noise"):
            replace(query, noise=np.full(len(query.noise), 1e-9))
        with raises(Malformed, "bad-message", "nothing"):
            replace(query, noise=np.zeros(len(query.noise)))
        free = replace(task.model, input_bound=None)
        with raises(UsageError, "not-under-noise"):
            replace(query, task=replace(task, model=free))
    with raises(UsageError, "not-under-noise"):
        replace(train, step_sizes=np.ones(2))
    with raises(UsageError, "not-under-noise"):
        replace(train, batch_size=5)
    with raises(UsageError, "not-under-noise"):
        replace(expand, directions=np.ones((4, 1)))
    with raises(Malformed, "wrong-bets"):
        replace(evaluate, bets=np.array([[0.1], [0.2]]))
    with raises(Malformed, "needs-ranges"):
        replace(census, low=np.zeros(2))
    schema = schema_of(0)
    bound = LeastSquares(input_bound=2.0).bind(schema, Inputs.identity(FEATURES))
    other = Task(bound, Cells.none(schema), np.ones(1))
    with raises(UsageError, "not-under-noise"):
        replace(expand, task=other)
