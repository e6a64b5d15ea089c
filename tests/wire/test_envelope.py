"""Queries and answers as bytes: what goes in comes out, and nothing else comes in."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.engines import Reference
from pffl.errors import Malformed, PFFLError
from pffl.parcel import Parcel, pack, unpack
from pffl.queries import (
    Census,
    Evaluate,
    Expand,
    Train,
    View,
    Witness,
    read_query,
)
from pffl.wire import (
    Answer,
    Request,
    query_body,
    read_answer,
    read_request,
    read_total,
    refusal,
    total_body,
    write_answer,
    write_request,
)
from tests.helpers import evaluate_query, make_federation, make_problem
from tests.inside import MOST_QUERIES
from tests.raising import raises

MODELS = {
    "logistic": (pffl.LogisticRegression(l2=0.5), 2),
    "softmax": (pffl.SoftmaxRegression(intercept=False), 3),
    "least squares": (pffl.LeastSquares(standardize=False), 0),
    "huber": (pffl.HuberRegression(delta=0.3), 0),
}
LOGISTIC = dict(pffl.LogisticRegression().describe())
NAMES = st.text(max_size=40)
WHOLE = st.integers(0, 2**53 - 1)


def setting(name, seed=0):
    model, labels = MODELS[name]
    federation = make_federation(seed, labels=labels)
    problem = make_problem(
        Reference(federation), pffl.BoundedGroupLoss(0.5), model=model
    )
    return federation, problem


def ask(problem, rng, kind):
    """Draw a query."""
    w = rng.normal(size=problem.n_parameters)
    if kind == "train":
        p, z = problem.n_parameters, problem.n_cells
        anchors = (p, z, p) if rng.integers(2) else (0, 0, 0)
        return Train(
            problem.task,
            w,
            float(rng.random()),
            rng.normal(size=problem.n_cells),
            rng.random(int(rng.integers(1, 5))),
            None if rng.integers(2) else int(rng.integers(1, 9)),
            float(rng.random()),
            int(rng.integers(2**32)),
            int(rng.integers(100)),
            None if rng.integers(2) else float(rng.random()),
            float(rng.integers(3)),
            bool(rng.integers(2)),
            *(rng.normal(size=n) for n in anchors),
            by_mass=not anchors[0] and bool(rng.integers(2)),
        )
    if kind == "evaluate":
        if rng.integers(2):
            return evaluate_query(problem.task, w)
        return Evaluate(problem.task, w, "test")
    if kind == "witness":
        beta, weights = float(rng.random()), rng.random(problem.n_cells)
        return Witness(problem.task, w, beta, weights, rng.normal(size=len(w)))
    if kind == "slopes":
        sharp = float(rng.integers(2)) if problem.task.model.n_outputs == 1 else 0.0
        directions = rng.normal(size=(len(w), int(rng.integers(3))))
        return Expand(problem.task, w, directions=directions, sharpness=sharp)
    if kind == "smoothness":
        return Expand(problem.task, w, 0)
    return Expand(problem.task, w, 2)


def decoded(body, schema):
    return read_query(body.header, body.arrays, schema)


def answered(schema_hash, query, total):
    return Answer("r", 1, 2, "0", schema_hash, (total_body(query, total),), "s")


def same(a, b):
    for field in fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if field.name == "task":
            continue
        if "hessian" in field.name:  # symmetric to rounding, and sent as a triangle
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
        elif isinstance(x, np.ndarray):
            np.testing.assert_array_equal(x, y)
        else:
            assert x == y


@pytest.mark.parametrize("name", MODELS)
@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(
        ["train", "evaluate", "slopes", "curvature", "smoothness", "witness"]
    ),
    k=st.integers(0, 2),
)
@settings(max_examples=40, deadline=None)
def test_a_query_and_its_answer_arrive_as_they_were_sent(name, seed, kind, k):
    federation, problem = setting(name)
    query = ask(problem, np.random.default_rng(seed), kind)
    schema = federation.schema
    request = Request("r", 1, 2, "0", schema.hash, (query_body(query, k),))
    arrived = read_request(write_request(request))
    again, index = decoded(arrived.bodies[0], schema)
    assert index == k
    assert type(again) is type(query)
    same(query, again)
    assert again.task.shares[k] == problem.task.shares[k]
    assert again.task.model.describe() == problem.task.model.describe()
    np.testing.assert_array_equal(again.task.cells.of_silo(k), problem.cells.of_silo(k))
    model, split = problem.task.model, query.split
    view = View.of(federation.silos[k], schema, model, split)
    far = View.of(federation.silos[k], schema, again.task.model, split)
    total = query.answer(view)
    same(total, again.answer(far))  # to the last bit
    answer = answered(schema.hash, query, total)
    came = read_answer(write_answer(answer))
    same(total, read_total(came.bodies[0], query, k, schema.hash)[0])


def test_a_query_tells_nothing_of_other_silos():
    federation, _ = setting("logistic")
    own = make_problem(Reference(federation), pffl.PerSilo(0.5))
    query = Evaluate(own.task, np.zeros(own.n_parameters))
    parcel = query_body(query, 1)
    assert parcel.arrays["membership"].sum(axis=1).tolist() == [0.0, 4.0, 0.0]
    text = str(parcel.header)
    assert "site" not in text
    assert "shares" not in text


@given(
    NAMES, WHOLE, WHOLE, NAMES, NAMES, st.lists(NAMES, max_size=3), st.integers(1, 5)
)
@settings(max_examples=100, deadline=None)
def test_envelopes_arrive_as_they_were_sent(
    run, session, sequence, version, silo, splits, n
):
    bodies = tuple(
        Parcel({"total": f"x{i}"}, {"a": np.arange(3.0) + i}) for i in range(n)
    )
    sent = Answer(run, session, sequence, version, "h", bodies, silo, tuple(splits))
    got = read_answer(write_answer(sent))
    for field in fields(sent):
        if field.name != "bodies":
            assert getattr(got, field.name) == getattr(sent, field.name)
    assert [dict(b.header) for b in got.bodies] == [dict(b.header) for b in bodies]
    assert [b.arrays["a"].tolist() for b in got.bodies] == [
        b.arrays["a"].tolist() for b in bodies
    ]
    assert got.number == (session, sequence)
    request = Request(run, session, sequence, version, "h", bodies)
    assert read_request(write_request(request)).number == (session, sequence)


@pytest.mark.parametrize("name", ["w 0", "w 2", "w x", "w 1 1", " 1"])
def test_every_array_of_a_message_belongs_to_one_of_its_bodies(name):
    bodies = (Parcel({}, {"w": np.zeros(1)}), Parcel({}, {"w": np.zeros(1)}))
    content = write_request(Request("r", 1, 2, "0", "h", bodies))
    parcel = unpack(content)
    changed = Parcel(parcel.header, {**parcel.arrays, name: np.zeros(1)})
    if name == " 1":  # an array without a name is for its query to refuse
        assert "" in read_request(pack(changed)).bodies[1].arrays
        return
    with raises(Malformed, "bad-message", name):
        read_request(pack(changed))


def test_a_message_holds_not_too_many_queries():
    bodies = (Parcel({}, {}),) * (MOST_QUERIES + 1)
    with pytest.raises(Malformed):
        read_request(write_request(Request("r", 1, 2, "0", "h", bodies)))


def test_a_refusal_arrives_and_has_no_arrays():
    sent = refusal(None, version="1", silo="s", schema="h", reason="x" * 500)
    got = read_answer(write_answer(sent))
    assert len(got.refusal) == 300
    assert refusal(None, version="1", silo="s", schema="h", reason="").refusal
    full = replace(sent, bodies=(Parcel({}, {"a": np.zeros(1)}),))
    with raises(Malformed, "bad-message", "arrays"):
        read_answer(write_answer(full))


def test_half_a_character_is_no_name():
    content = write_answer(Answer("r", 1, 2, "0", "h", (), "north"))
    half = content.replace(b"north", b"\\\\ud800")  # an escape, inside JSON inside JSON
    half = (int.from_bytes(half[:8], "little") + 2).to_bytes(8, "little") + half[8:]
    with raises(Malformed, "bad-message", "silo"):
        read_answer(half)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"share": 1.5}, "share"),
        ({"share": -0.5}, "share"),
        ({"index": -1}, "index"),
        ({"index": 10**9}, "index"),
        ({"index": True}, "index"),
        ({"model": {"kind": "logistic"}}, "model"),
        ({"model": {"kind": "os.system"}}, "model"),
        ({"model": 3}, "model"),
        ({"model": {**LOGISTIC, "l2": 10**400}}, "model"),
        ({"model": {**LOGISTIC, "l2": True}}, "model"),
        ({"model": {**LOGISTIC, "kind": "huber", "delta": 10**400}}, "model"),
        ({"query": "rows"}, "query"),
        ({"seed": 1.5}, "seed"),
        ({"loss_power": 1e301}, "loss_power"),
        ({"more": 1}, "more"),
    ],
)
def test_a_query_with_a_wrong_field_is_refused(change, named):
    code = "unknown-key" if "more" in change else "bad-message"
    federation, problem = setting("logistic")
    parcel = query_body(ask(problem, np.random.default_rng(0), "train"), 0)
    with raises(Malformed, code, named):
        decoded(Parcel({**parcel.header, **change}, parcel.arrays), federation.schema)


@pytest.mark.parametrize(
    "change",
    [
        {"w": np.zeros(3)},
        {"w": np.full(4, np.inf)},
        {"w": np.zeros(4, np.float32)},
        {"w": np.zeros((4, 1))},
        {"membership": np.full((2, 4), 0.5)},
        {"membership": np.zeros((2, 5))},
        {"input_scale": np.zeros(3)},
        {"step_sizes": np.zeros(0)},
        {"cell_weights": np.zeros(3)},
        {"more": np.zeros(1)},
    ],
)
def test_a_query_with_a_wrong_array_is_refused(change):
    federation, problem = setting("logistic")
    parcel = query_body(ask(problem, np.random.default_rng(0), "train"), 0)
    with pytest.raises(Malformed):
        decoded(Parcel(parcel.header, {**parcel.arrays, **change}), federation.schema)


def messages():
    """One request and one answer of each kind, and how to read each to the end."""
    federation, problem = setting("logistic")
    rng, schema = np.random.default_rng(0), federation.schema
    for kind in ("census", "train", "evaluate", "slopes", "curvature", "witness"):
        query = Census(schema) if kind == "census" else ask(problem, rng, kind)
        model = None if kind == "census" else problem.task.model
        view = View.of(federation.silos[0], schema, model, query.split)
        total = query.answer(view)
        bodies = (query_body(query, 0),)
        sent = write_request(Request("r", 1, 2, "0", schema.hash, bodies))
        back = write_answer(answered(schema.hash, query, total))

        def read_sent(content):
            return [decoded(body, schema) for body in read_request(content).bodies]

        def read_back(content, query=query):
            bodies = read_answer(content).bodies
            return [read_total(body, query, 0, schema.hash) for body in bodies]

        yield sent, read_sent
        yield back, read_back


def mutated(rng, content):
    """Flip, insert, cut, repeat; now and then inside numbers of the JSON header."""
    out = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(len(out)))
        way = int(rng.integers(6))
        if way == 0:
            out[place] ^= 1 << int(rng.integers(8))
        elif way == 1:
            out[place:place] = rng.bytes(int(rng.integers(1, 5)))
        elif way == 2:
            del out[place : place + int(rng.integers(1, 20))]
        elif way == 3:
            out[place] = ord(rng.choice(list('0123456789eE-+.,:{}[]"nt')))
        elif way == 4:
            out = out[: max(1, place)]
        else:
            digits = [i for i, c in enumerate(out[:2000]) if 48 <= c <= 57 and i > 8]
            if digits:
                spot = int(rng.choice(digits))
                grown = b"9" * int(rng.choice([1, 5, 30, 400]))
                out[spot:spot] = grown
                out[:8] = (int.from_bytes(out[:8], "little") + len(grown)).to_bytes(
                    8, "little", signed=False
                )
    return bytes(out)


def test_the_decoder_survives_ten_thousand_mutated_messages():
    rng, refused = np.random.default_rng(7), 0
    samples = list(messages())
    for number in range(10_000):
        content, read = samples[number % len(samples)]
        if number % 5 == 0:
            garbage = rng.bytes(int(rng.integers(0, 200)))
            changed = garbage if number % 10 else content[:8] + garbage
        else:
            changed = mutated(rng, content)
        try:
            read(changed)
        except PFFLError:
            refused += 1
    assert refused > 8_000
