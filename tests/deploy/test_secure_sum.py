"""Secure sums: whole numbers mod 2^128, compared with Python's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.engines import Reference
from pffl.errors import Malformed, Refused
from pffl.queries import Census, Evaluate, Expand, View
from tests.deploy.sites import noisy_census, people
from tests.helpers import make_federation, make_problem
from tests.inside import announced, secure_sum, shared
from tests.raising import raises

ONE = 1 << 128
SECRETS = {name: bytes([k + 1]) * 32 for k, name in enumerate("abcd")}


def whole(words: np.ndarray) -> list[int]:
    """Each integer, as Python has it."""
    low, high = words[::2].tolist(), words[1::2].tolist()
    return [a + (b << 64) for a, b in zip(low, high, strict=True)]


def queries() -> tuple[Any, list[Any]]:
    federation = make_federation(3, sizes=(60, 70, 80))
    problem = make_problem(Reference(federation), pffl.BoundedGroupLoss(0.6))
    w = np.linspace(-1, 1, problem.n_parameters)
    asked = [Census(federation.schema), Expand(problem.task, w, 2)]
    return federation, [*asked, Evaluate(problem.task, w, "train")]


def totals(federation: Any, query: Any) -> list[Any]:
    model = None if query.task is None else query.task.model
    schema = federation.schema
    return [
        query.answer(View.of(silo, schema, model, query.split))
        for silo in federation.silos
    ]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, ONE - 1)] * 2), min_size=1, max_size=9))
def test_adding_and_taking_off_is_that_of_integers(pairs: list[tuple[int, int]]):
    def words(numbers: Sequence[int]) -> np.ndarray:
        parts = [(n % 2**64, n >> 64) for n in numbers]
        return np.array(parts, np.uint64).ravel()

    one, other = (words([pair[k] for pair in pairs]) for k in (0, 1))
    assert whole(secure_sum.add([one, other])) == [(a + b) % ONE for a, b in pairs]
    taken = secure_sum._minus(one, other)
    assert whole(taken) == [(a - b) % ONE for a, b in pairs]


@pytest.mark.parametrize("place", range(3), ids=["census", "expand", "evaluate"])
def test_a_sum_is_that_of_the_doubles_up_to_the_grid(place: int):
    federation, asked = queries()
    query = asked[place]
    found = totals(federation, query)
    flats = [secure_sum.encode(query, one, 3) for one in found]
    total = secure_sum.decode(query, secure_sum.add(flats), 3)
    plain = found[0] + found[1] + found[2]
    for name, of in query.answer_type.declared.items():
        if of.per_silo:
            continue
        got, want = (np.asarray(getattr(t, name), float) for t in (total, plain))
        close = 3 * 2.0**-48 if place == 0 else 3 * 2.0**-64
        close += 1e-13 * np.abs(want).max(initial=0.0)
        np.testing.assert_allclose(got, want, rtol=1e-15, atol=close, err_msg=name)


def masked(flats: Sequence[np.ndarray], info: bytes = b"step 1") -> list[np.ndarray]:
    keys = {name: announced(secret) for name, secret in SECRETS.items()}
    names = list(SECRETS)[: len(flats)]
    found = []
    for name, flat in zip(names, flats, strict=True):
        others = {n: keys[n] for n in names if n != name}
        mask = secure_sum.mask(SECRETS[name], name, others, info, len(flat))
        found.append(secure_sum.add([flat, mask]))
    return found


def test_a_masked_answer_is_uniform_and_a_sum_tells_nothing_but_itself():
    rng = np.random.default_rng(0)
    flats = [rng.integers(0, 50, 4000).astype(np.uint64) for _ in range(4)]
    hidden = masked(flats)
    assert np.array_equal(secure_sum.add(hidden), secure_sum.add(flats))
    for one in [*hidden, secure_sum.add(hidden[:3]), secure_sum.add(hidden[1:])]:
        bits = np.unpackbits(one.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)
        both = np.corrcoef(one[::2].astype(float), one[1::2].astype(float))[0, 1]
        assert abs(both) < 5 / np.sqrt(len(one) / 2)  # no carry from word to word
    other = masked(flats, b"step 2")
    assert not any((a == b).any() for a, b in zip(hidden, other, strict=True))
    mixed = [*hidden[:3], other[3]]
    assert not np.array_equal(secure_sum.add(mixed), secure_sum.add(flats))


def test_server_and_one_site_of_four_learn_the_sum_of_three_and_no_single_one():
    """What two know leaves the pairwise masks among the other three."""
    rng = np.random.default_rng(1)
    flats = [rng.integers(0, 9, 600).astype(np.uint64) for _ in range(4)]
    hidden = masked(flats)
    keys = {name: announced(secret) for name, secret in SECRETS.items()}
    curious = "d"
    for k, name in enumerate("abc"):
        both = shared(SECRETS[curious], keys[name])
        pair = secure_sum._stream(both, b"step 1", sorted((curious, name)), 600)
        bare = secure_sum._minus(hidden[k], pair)  # all that it can take off
        bits = np.unpackbits(bare.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)
    rest = secure_sum._minus(secure_sum.add(hidden), flats[3])
    assert np.array_equal(rest, secure_sum.add(flats[:3]))


def test_wrapping_around_is_never_silent():
    federation, asked = queries()
    census, found = asked[0], totals(federation, asked[0])[0]
    for value in (1e30, np.nan, np.inf, -1e30):
        wide = replace(found, feature_sums=np.full_like(found.feature_sums, value))
        with raises(Refused, "too-large-numbers", "feature_sums"):
            secure_sum.encode(census, wide, 3)
    largest = 2.0**126 / 3 / 2.0**48 * 0.999
    edge = replace(found, feature_sums=np.full_like(found.feature_sums, largest))
    flats = [secure_sum.encode(census, edge, 3)] * 3
    total = secure_sum.decode(census, secure_sum.add(flats), 3)
    np.testing.assert_allclose(total.feature_sums, 3 * largest, rtol=1e-15)


def test_sums_with_noise_are_whole_and_of_any_size():
    data = people()
    query = noisy_census(data, 1.0, 1.0)
    one = query.answer(View.of(data.silos[0], data.schema, None, "train"))
    huge = np.full_like(one.sums, 2**62)
    flats = [
        secure_sum.encode(query, replace(one, sums=sums), 3)
        for sums in (huge, -huge, one.sums - 5)
    ]
    total = secure_sum.decode(query, secure_sum.add(flats), 3)
    assert np.array_equal(total.sums, one.sums - 5)


def test_fewer_than_three_sites_too_many_and_left_over_masks_are_refused():
    federation, asked = queries()
    query, found = asked[0], totals(federation, asked[0])
    flats = [secure_sum.encode(query, one, 3) for one in found]
    for many in (0, 1, 2, 1 << 13):
        with raises(Refused, "too-few-sites", many):
            secure_sum.decode(query, flats[0], many)
    with raises(Refused, "masks-left-over"):
        secure_sum.decode(query, secure_sum.add(masked(flats)[:2]), 3)
    with raises(Malformed, "wrong-length"):
        secure_sum.add([flats[0], flats[0][:-2]])
    with raises(Malformed, "bad-message"):
        secure_sum.decode(query, flats[0][:-2], 3)
    with raises(Refused, "wrong-keys"):
        secure_sum.mask(b"k" * 32, "a", {"b": bytes(32), "c": bytes(32)}, b"", 4)
