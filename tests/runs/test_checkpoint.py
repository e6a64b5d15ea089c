from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import pffl
from pffl.callbacks import Callback
from pffl.checkpoint import (
    LARGE,
    Checkpoint,
    Unreadable,
    decode,
    encode,
    identity,
    lay_out,
    take_up,
)
from pffl.engines import Local, Reference
from pffl.errors import ArtefactError, FederationError
from pffl.methods import METHODS
from pffl.parcel import Parcel, pack, unpack
from pffl.preparation import Options
from pffl.problem import Point
from pffl.typing import BoolArray, FloatArray, IntArray
from tests.helpers import make_federation, make_problem
from tests.inside import Data
from tests.interrupting import Stopping, assert_same_bits, assert_same_outcome
from tests.methods.biased import biased
from tests.raising import raises

FEDERATION = biased(0)
DATA = Data("data", 2, "schema", None)
CONSTRAINT = pffl.BoundedGroupLoss(0.6)
SHORT: dict[str, dict[str, Any]] = {
    "auto": {},
    "exact": {},
    "first-order": {},
    "pffl": {"dual_rounds": 4, "rounds_per_dual": 3},
    "local-bgl": {"dual_rounds": 4, "rounds_per_dual": 3},
    "fcfl": {"stage_one_rounds": 6, "stage_two_rounds": 6},
    "reductions": {"iterations": 5},
    "pooled": {},
}
VARIANTS: dict[str, Any] = {
    **{
        name: method(**SHORT.get(name, {"rounds": 10}))
        for name, method in METHODS.items()
    },
    "pffl, batches and momentum": pffl.PFFL(
        dual_rounds=4,
        rounds_per_dual=3,
        batch_size=7,
        server="momentum",
        participation=0.5,
        iterate="best",
    ),
    "fedavg, adam": pffl.FedAvg(rounds=10, server="adam"),
}


def solve(method: Any, engine: Any = FEDERATION, **more: Any) -> pffl.Solution:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "cells with fewer than 10")
        return pffl.solve(
            engine, CONSTRAINT, method=method, seed=3, gap_every=4, **more
        )


class Seen(Callback):
    """The rounds that were run, by number."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def after_round(self, problem: Any, row: Any) -> bool:
        self.numbers.append(row.number)
        return False


@pytest.mark.parametrize(
    "few", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["few", "more"]
)
@pytest.mark.parametrize("name", VARIANTS)
def test_interrupted_and_resumed_is_uninterrupted(name, few, tmp_path):
    method, counted = VARIANTS[name], Stopping(Local(FEDERATION), at=-1)
    whole = solve(method, counted)
    last = counted.asked
    stops = {2, last // 2, last}  # at every message: tests/test_flow.py
    if not few:
        stops = {1, 3, whole.rounds, whole.rounds + 1}
    for at in sorted(stops):
        place, seen = tmp_path / str(at), Seen()
        stopping = Stopping(Local(FEDERATION), at, FederationError)
        with pytest.raises(FederationError):
            solve(method, stopping, checkpoint=place, callbacks=[seen])
        resumed = solve(method, checkpoint=place, callbacks=[seen])
        assert_same_outcome(resumed, whole)
        assert seen.numbers == [row.number for row in whole.rows], "none run twice"
        assert not any(place.iterdir())


def test_ctrl_c_returns_what_there_is_and_leaves_a_checkpoint(tmp_path):
    method = VARIANTS["pffl"]
    engine = Stopping(Local(FEDERATION), at=5)  # census, setup, 2 rounds
    solution = solve(method, engine, checkpoint=tmp_path)
    assert (solution.status, solution.rounds) == ("interrupted", 3)
    assert Checkpoint(tmp_path).saved() == (3, 3)
    assert_same_outcome(solve(method, checkpoint=tmp_path), solve(method))


def test_the_seed_may_be_left_out_of_a_resumed_run(tmp_path):
    method = VARIANTS["pffl, batches and momentum"]
    first = pffl.solve(
        Stopping(Local(FEDERATION), at=5),
        CONSTRAINT,
        method=method,
        checkpoint=tmp_path,
    )
    second = pffl.solve(FEDERATION, CONSTRAINT, method=method, checkpoint=tmp_path)
    assert second.seed == first.seed
    whole = pffl.solve(FEDERATION, CONSTRAINT, method=method, seed=first.seed)
    assert_same_outcome(second, whole)


def test_a_diverging_run_diverges_alike(tmp_path):
    method = pffl.FedAvg(rounds=30, step_size=1e3)
    whole = solve(method)
    assert whole.status == "diverged"
    for at in range(1, whole.rounds + 2):
        place = tmp_path / str(at)
        stopping = Stopping(Local(FEDERATION), at, FederationError)
        with pytest.raises(FederationError):
            solve(method, stopping, checkpoint=place)
        assert_same_outcome(solve(method, checkpoint=place), whole)


class StopAfter(Callback):
    def __init__(self, number: int) -> None:
        self.number = number

    def after_round(self, problem: Any, row: Any) -> bool:
        return row.number >= self.number


def test_a_run_that_a_callback_ended_stays_ended(tmp_path):
    method = VARIANTS["fedavg"]
    counted = Stopping(Local(FEDERATION), at=-1)
    whole = solve(method, counted, callbacks=[StopAfter(4)])
    last = Stopping(Local(FEDERATION), counted.asked, FederationError)  # in `conclude`
    with pytest.raises(FederationError):
        solve(method, last, callbacks=[StopAfter(4)], checkpoint=tmp_path)
    assert_same_outcome(solve(method, checkpoint=tmp_path), whole)


def test_networks(tmp_path):
    pytest.importorskip("torch")
    from tests.models.networks import network

    federation = make_federation(0)
    method = pffl.PFFL(dual_rounds=3, rounds_per_dual=2, server="yogi", batch_size=8)

    def run(engine: Any, **more: Any) -> pffl.Solution:
        return pffl.solve(
            engine,
            pffl.BoundedGroupLoss(0.9),
            model=network(labels=2),
            method=method,
            seed=1,
            **more,
        )

    counted = Stopping(Reference(federation), at=-1)
    whole = run(counted)
    run(Stopping(Reference(federation), at=5), checkpoint=tmp_path)
    resumed = Stopping(Reference(federation), at=-1)
    assert_same_outcome(run(resumed, checkpoint=tmp_path), whole)
    assert resumed.asked == counted.asked - 3


def test_a_state_with_nan_is_not_saved(tmp_path):
    checkpoint = Checkpoint(tmp_path, {"run": {"seed": 0}})

    def tree(rounds: int, number: float) -> Any:
        state = encode(Point(np.array([number]), np.zeros(1)))
        return {"rounds": rounds, "seconds": 0.0, "state": state}

    checkpoint.offer(lambda: tree(1, 0.0))
    checkpoint.offer(lambda: tree(2, np.nan))
    checkpoint.flush()
    assert checkpoint.saved() == (0, 1)


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_of_a_method_is_in_its_identity(name):
    problem = make_problem(Reference(FEDERATION), CONSTRAINT)
    method = METHODS[name]()
    known = identity(DATA, problem, CONSTRAINT, method, options=Options())
    assert set(known["method"]) == {"kind", *(field.name for field in fields(method))}


@dataclass(frozen=True, eq=False)
class Leaf:
    numbers: FloatArray
    marks: BoolArray
    codes: IntArray
    maybe: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Tree:
    count: int
    value: float
    flag: bool
    text: str
    choice: Literal["a", "b"]
    pair: tuple[int, float]
    names: tuple[str, ...]
    leaf: Leaf
    other: Leaf | None
    limit: float | None


numbers = st.floats(allow_nan=False)
shapes = arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
floats = arrays_of.arrays(
    np.float64, shapes, elements=st.floats(allow_nan=False, allow_infinity=False)
)
leaves = st.builds(
    Leaf,
    floats.map(lambda a: a.T),
    arrays_of.arrays(np.bool_, shapes),
    arrays_of.arrays(np.int64, shapes),
    st.none() | floats,
)
trees = st.builds(
    Tree,
    st.integers(),
    numbers,
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(["a", "b"]),
    st.tuples(st.integers(), numbers),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]))).map(tuple),
    leaves,
    st.none() | leaves,
    st.none() | numbers,
)


def through_bytes(tree: Any) -> Any:
    plain, arrays = lay_out(tree)
    parcel = unpack(pack(Parcel({"tree": plain}, arrays)))
    return take_up(parcel.header["tree"], parcel.arrays)


@given(trees)
def test_what_is_written_is_read(tree):
    back = decode(through_bytes(encode(tree)), tree, known=(Leaf,))
    assert_same_bits(back, tree)
    order = tree.leaf.numbers.flags
    if tree.leaf.numbers.size > 1 and 1 not in tree.leaf.numbers.shape:
        assert back.leaf.numbers.flags.f_contiguous == order.f_contiguous
        assert back.leaf.numbers.flags.c_contiguous == order.c_contiguous


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(trees, st.data())
def test_what_was_not_written_is_refused_or_of_the_kind(tree, data):
    plain, arrays = lay_out(encode(tree))
    key = data.draw(st.sampled_from(sorted(plain["fields"])))
    plain["fields"][key] = data.draw(plain_values)
    try:
        back = decode(take_up(plain, arrays), tree, known=(Leaf,))
    except Unreadable:
        return
    if getattr(tree, key) is not None:
        assert type(getattr(back, key)) is type(getattr(tree, key))


def test_totals_come_back_by_their_class():
    point = Point(np.array([np.nan, 1.0]), np.zeros(0))
    tree = through_bytes(encode(point, finite=False))
    assert_same_bits(decode(tree, None, known=(Point,), finite=False), point)
    with raises(Unreadable, "bad-checkpoint", "finite"):
        decode(tree, None, known=(Point,))
    with raises(Unreadable, "bad-checkpoint", "Leaf"):
        decode(tree, None, known=(Leaf,), finite=False)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_large_array_that_is_mostly_zero_is_small(order):
    wide = np.zeros((5, LARGE), order=order)
    wide[1, 7], wide[4, LARGE - 1], wide[2, 2] = 1e-300, np.inf, -0.0
    plain, arrays = lay_out([wide, wide])  # kept once
    assert sum(array.size for array in arrays.values()) == 6
    back = take_up(plain, arrays)
    assert_same_bits(back[0], wide)
    assert back[0].flags.f_contiguous == wide.flags.f_contiguous
    for shape in ([3], [-1, 5], [10**15], "x", [2.5, 2]):
        with pytest.raises(Unreadable):
            take_up({**plain[0], "$shape": shape}, arrays)


def test_a_checkpoint_that_could_not_be_read_back_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("pffl.checkpoint.LARGEST", 100)
    with raises(ArtefactError, "too-large"):
        Checkpoint(tmp_path).offer(lambda: {"rounds": 1, "seconds": 0.0})
    assert list(tmp_path.iterdir()) == []
