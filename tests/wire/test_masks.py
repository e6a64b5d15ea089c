"""Secure sums against whole numbers and fractions: exact, masked, and never wrapped."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.engines import Reference
from pffl.errors import Malformed, MissingExtraError, Refused
from pffl.queries import (
    Census,
    CensusTotal,
    Expand,
    Train,
    View,
    Witness,
)
from tests.helpers import (
    evaluate_query,
    make_federation,
    make_problem,
    make_schema,
)
from tests.inside import (
    COUNTS,
    GRADIENTS,
    GRIDS,
    SUMS,
    SiteKeys,
    add,
    announced,
    decode,
    encode,
    mask,
    masks,
)
from tests.raising import raises

MODELS = {
    "logistic": (pffl.LogisticRegression(l2=0.5), 2),
    "softmax": (pffl.SoftmaxRegression(), 3),
    "least squares": (pffl.LeastSquares(), 0),
}
KEYS = {f"site {i}": os.urandom(32) for i in range(6)}  # secrets of a run
SCHEMA = make_schema(features=2)
LIMB = st.integers(0, 2**64 - 1)
FLATS = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(LIMB, min_size=n, max_size=n), min_size=1, max_size=9)
)


def numbers(grid):
    """Doubles that one site may send: of any size, whole on the grid of counts."""
    top = grid.largest
    if grid is COUNTS:
        return st.integers(-int(top), int(top)).map(float)
    edges = st.sampled_from([0.0, -0.0, top, -top, 5e-324, 2.0**-grid.exponent / 2])
    return st.floats(-top, top) | st.floats(-1e3, 1e3) | edges


def on_grid(value, grid):
    """Round half to even: Python's own rounding of fractions."""
    return round(Fraction(value) * 2**grid.exponent)


def others(own, names):
    return {name: announced(KEYS[name]) for name in names if name != own}


def masks_of(names, info, length):
    return {n: mask(KEYS[n], n, others(n, names), info, length) for n in names}


def census(**changes):
    """Return a census of one site, and the query."""
    plain = CensusTotal(
        silos=np.zeros(1, np.int64),
        rows=np.array([5]),
        counts=np.array([[1, 2, 2, 0]]),
        weight=np.array([5.0]),
        weights=np.array([[1.0, 2.0, 2.0, 0.0]]),
        target=np.zeros((1, 0)),
        targets=np.zeros((1, 4, 0)),
        feature_sums=np.array([1.5, -2.5]),
        feature_squares=np.array([3.0, 4.0]),
        stored=np.array([0]),
        schema_hash=SCHEMA.hash,
    )
    return Census(SCHEMA), replace(plain, **changes)


# The grid


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(GRIDS), st.integers(1, 5), st.data())
def test_a_sum_is_that_of_the_doubles_rounded_once(grid, sites, data):
    row = st.lists(numbers(grid), min_size=sites, max_size=sites)
    table = np.array(data.draw(st.lists(row, max_size=4)), np.float64)
    table = table.reshape(-1, sites)
    flats = [grid.write(column).ravel() for column in table.T]
    found = grid.read(add(flats).reshape(-1, grid.limbs), sites)
    for row, one in zip(table.tolist(), found.tolist(), strict=True):
        whole = sum(on_grid(v, grid) for v in row)
        assert one == float(Fraction(whole, 2**grid.exponent))


@pytest.mark.parametrize("grid", [GRADIENTS, SUMS])
def test_ties_are_broken_by_what_is_far_below_and_else_go_to_even(grid):
    """Both of a sum that is rounded to a double, and of a double to the grid."""
    unit, half, tiny = 2.0**-grid.exponent, 2.0**-53, 2.0**-120
    sums = [(1.0, half, e) for e in (tiny, -tiny, 0.0)]
    sums += [(1.0 + 2 * half, half, e) for e in (tiny, -tiny, 0.0)]
    sums += [(c * unit, 0.0, 0.0) for c in (0.5, 0.75, 1.5, 1.75, 2.5, 3.25)]
    table = np.array(sums)
    table = np.concatenate([table, -table])
    flats = [grid.write(column).ravel() for column in table.T]
    found = grid.read(add(flats).reshape(-1, grid.limbs), 3).tolist()
    for row, one in zip(table.tolist(), found, strict=True):
        whole = sum(on_grid(v, grid) for v in row)
        assert one == float(Fraction(whole, 2**grid.exponent))
    assert found[:3] == [1 + 2 * half, 1.0, 1.0]


@pytest.mark.parametrize("grid", GRIDS)
def test_digits_of_a_double_are_all_kept(grid):
    """From the smallest that is said to be exact to the largest, and their ties."""
    low = 0 if grid is COUNTS else 52 - grid.exponent
    values = 2.0 ** np.arange(low, math.log2(grid.largest) + 1)
    if grid is not COUNTS:
        values = np.append(values, np.nextafter(values[1:], 0.0))
    values = np.concatenate([values, -values])
    assert np.array_equal(grid.read(grid.write(values), 1), values)
    assert all(Fraction(v) * 2**grid.exponent % 1 == 0 for v in values.tolist())


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_numbers_of_the_most_sites_do_not_wrap(grid, sign):
    """Nor do they touch the field beside them."""
    flat = grid.write(np.array([sign, -sign, 0.0]) * grid.largest).ravel()
    lots = [flat] * masks.MOST_SITES
    found = grid.read(add(lots).reshape(-1, grid.limbs), masks.MOST_SITES)
    assert found.tolist() == [
        c * grid.largest * masks.MOST_SITES for c in (sign, -sign, 0)
    ]


WRONG = [math.nan, math.inf, -math.inf, 1e300]


@pytest.mark.parametrize("value", [*WRONG, float(np.nextafter(SUMS.largest, np.inf))])
def test_what_the_grid_does_not_hold_is_refused(value):
    query, total = census(feature_squares=np.array([0.0, value]))
    with raises(Refused, "too-large-numbers", "feature_squares"):
        encode(query, total)
    query, total = census(feature_squares=np.array([SUMS.largest, 0.0]))
    encode(query, total)


@settings(max_examples=60, deadline=None)
@given(st.floats() | st.floats(SUMS.largest) | st.floats(max_value=-SUMS.largest))
def test_wrapping_around_is_never_silent(value):
    """Either a number is refused, or the sum with it is right."""
    query, total = census(feature_sums=np.array([value, 0.0]))
    try:
        flat = encode(query, total)
    except Refused:
        assert not abs(value) <= SUMS.largest
        return
    found = decode(query, add([flat] * 3), 3).feature_sums[0]
    assert found == float(Fraction(3 * on_grid(value, SUMS), 2**SUMS.exponent))


@pytest.mark.parametrize("count", [2**50 + 1, -(2**50) - 1, 2**62, -(2**63)])
def test_a_count_too_large_is_refused(count):
    query, total = census(rows=np.array([count]))
    with raises(Refused, "too-large-numbers", "rows"):
        encode(query, total)


def test_a_part_of_a_row_is_refused():
    federation, problem = setting("logistic")
    query = evaluate_query(problem.task, np.zeros(problem.n_parameters))
    total = query.answer(view_of(federation, problem, query, 0))
    total.atoms[0, 0] += 0.5
    with raises(Refused, "not-whole"):
        encode(query, total)


# Masks


@settings(max_examples=40, deadline=None)
@given(FLATS)
def test_addition_is_that_of_large_whole_numbers(flats):
    wholes = [sum(limb << 64 * i for i, limb in enumerate(flat)) for flat in flats]
    found = add([np.array(flat, np.uint64) for flat in flats]).tolist()
    expected = sum(wholes) % 2 ** (64 * len(flats[0]))
    assert sum(limb << 64 * i for i, limb in enumerate(found)) == expected


@settings(max_examples=30, deadline=None)
@given(
    st.permutations(sorted(KEYS)),
    st.integers(3, len(KEYS)),
    st.integers(1, 40),
    st.binary(max_size=8),
    st.randoms(),
)
def test_masks_cancel_for_any_set_in_any_order(names, sites, length, info, random):
    chosen = names[:sites]
    made = list(masks_of(chosen, info, length).values())
    random.shuffle(made)
    assert not add(made).any()
    assert all(one.any() for one in made)
    assert add(made[1:]).any()  # whoever is left out


def test_a_mask_is_of_one_query_one_pair_and_one_set():
    names = sorted(KEYS)[:4]
    found = masks_of(names, b"step 1", 8)
    again = masks_of(names, b"step 1", 8)
    for name in names:
        assert np.array_equal(found[name], again[name])
    every = [
        *found.values(),
        *masks_of(names, b"step 2", 8).values(),
        *masks_of(names[:3], b"step 1", 8).values(),
    ]
    assert len({one.tobytes() for one in every}) == len(every)
    # Other names for the same keys, of which no two lists of parts read alike.
    keys = {"a": KEYS["site 0"], "bc": KEYS["site 1"], "ab": KEYS["site 0"]}
    public = {name: announced(one) for name, one in keys.items()}
    third = {"z": announced(KEYS["site 2"])}
    one = mask(keys["a"], "a", {"bc": public["bc"], **third}, b"", 4)
    two = mask(keys["ab"], "ab", {"c": public["bc"], **third}, b"", 4)
    assert not np.array_equal(one, two)


def test_a_masked_answer_is_uniform_and_a_sum_tells_nothing_but_itself():
    names, rng = sorted(KEYS)[:3], np.random.default_rng(0)
    zero = np.zeros(4000, np.uint64)
    for own in names:
        masked = add([zero, mask(KEYS[own], own, others(own, names), b"", 4000)])
        ones = np.unpackbits(masked.view(np.uint8)).reshape(-1, 64).mean(axis=0)
        assert (np.abs(ones - 0.5) < 5 * 0.5 / math.sqrt(4000)).all()
    # The same total of other parts: signs and carries of single sites are not in it.
    values = rng.integers(-(2**40), 2**40, size=(3, 50)).astype(np.float64)
    moved = rng.integers(-(2**40), 2**40, size=50).astype(np.float64)
    other = values + np.stack([moved, -moved, np.zeros(50)])
    for grid in GRIDS:
        sums = [add([grid.write(v).ravel() for v in t]) for t in (values, other)]
        assert np.array_equal(*sums)


def test_masks_that_do_not_cancel_are_noticed():
    """Of another query, run or set; the limb that counts sites says so."""
    names = sorted(KEYS)[:3]
    query, total = census()
    flat = encode(query, total)
    own = masks_of(names, b"one", len(flat))
    masked = {name: add([flat, own[name]]) for name in names}
    assert decode(query, add(list(masked.values())), 3).rows == 15
    wrong = dict(masked)
    elsewhere = mask(KEYS[names[0]], names[0], others(names[0], names), b"2", len(flat))
    wrong[names[0]] = add([flat, elsewhere])
    left_out = list(masked.values())[:2]
    twice = [*left_out, left_out[0]]
    for flats in (list(wrong.values()), [*left_out, flat], twice):
        with raises(Refused, "masks-left-over"):
            decode(query, add(flats), 3)
    with raises(Refused, "masks-left-over"):
        decode(query, add([flat] * 4), 3)


def test_a_sum_out_of_range_is_noticed():
    query, total = census()
    flat = encode(query, total)
    flat[0] = 2**60  # of a site that does not keep to the rules
    with raises(Refused, "masks-left-over"):
        decode(query, add([flat] * 3), 3)


@pytest.mark.parametrize("sites", [1, 2, masks.MOST_SITES + 1])
def test_fewer_than_three_sites_or_too_many_are_refused(sites):
    query, total = census()
    with raises(Refused, "too-few-sites", sites):
        decode(query, encode(query, total), sites)
    public = {str(i): announced(KEYS["site 1"]) for i in range(sites - 1)}
    with raises(Refused, "too-few-sites", sites):
        mask(KEYS["site 0"], "site 0", public, b"", 3)


def test_other_lengths_are_refused():
    query, total = census()
    flat = encode(query, total)
    assert len(flat) == masks.size(query)
    with raises(Malformed, "bad-message", "census"):
        decode(query, flat[:-1], 3)
    with raises(Malformed, "wrong-length"):
        add([flat, flat[:-1]])


def test_without_cryptography_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    with raises(MissingExtraError, "missing-extra"):
        SiteKeys.generate()


# Answers


def view_of(federation, problem, query, index):
    model = None if query.task is None else problem.task.model
    silo = federation.silos[index]
    return View.of(silo, federation.schema, model, query.split)


def setting(name):
    model, labels = MODELS[name]
    federation = make_federation(0, labels=labels)
    bound = pffl.BoundedGroupLoss(0.5)
    return federation, make_problem(Reference(federation), bound, model=model)


def queries(federation, problem):
    rng = np.random.default_rng(3)
    task, p, z = problem.task, problem.n_parameters, problem.n_cells
    w, weights, steps = rng.normal(size=p), rng.random(z), np.full(3, 0.1)
    centre = rng.normal(size=1 + federation.schema.n_features)
    sharp = 1.0 if task.model.n_outputs == 1 else 0.0
    return [
        Census(federation.schema),
        Census(federation.schema, "train", centre),
        Train(task, w, 0.5, weights, steps, loss_power=2.0, slope=True),
        evaluate_query(task, w),
        Expand(task, w, directions=rng.normal(size=(p, 2)), sharpness=sharp),
        Expand(task, w, 2),
        Expand(task, w, 0),
        Witness(task, w, 0.5, weights, rng.normal(size=p)),
    ]


@pytest.mark.parametrize("name", MODELS)
def test_every_answer_comes_back_as_the_sum_of_the_sites(name):
    """Each number against the sum of fractions, which is right to the last digit."""
    federation, problem = setting(name)
    sites = len(federation.silos)
    assert sites >= 3
    for query in queries(federation, problem):
        answers = [
            query.answer(view_of(federation, problem, query, k)) for k in range(sites)
        ]
        found = decode(query, add([encode(query, a) for a in answers]), sites)
        got, sent = found.sent(), [answer.sent() for answer in answers]
        for field in set(got) - {"stored"}:
            parts = np.stack([np.float64(each[field]).ravel() for each in sent], axis=1)
            exact = [float(sum(map(Fraction, row))) for row in parts.tolist()]
            mine, kept = got[field].ravel(), np.abs(parts).min(axis=1) > 2.0**-88
            assert got[field].shape == sent[0][field].shape  # of one silo
            assert np.array_equal(mine[kept], np.array(exact)[kept])
            assert np.allclose(mine, exact, rtol=1e-15, atol=sites * 2.0**-141)


def test_sums_of_a_census_the_size_of_a_country_and_of_tiny_units():
    """Dates in milliseconds of 330 million people; metres in light years."""
    for unit in (1.7e12, 1e-16):
        rows, sums = 330_000_000, np.array([unit * 3.3e8, -unit])
        squares = np.array([unit**2 * 3.3e8, unit**2])
        query, total = census(
            rows=np.array([rows]), feature_sums=sums, feature_squares=squares
        )
        flats = [encode(query, total)] * 200
        found = decode(query, add(flats), 200)
        assert found.rows.tolist() == [200 * rows]
        for mine, theirs in (
            (found.feature_sums, sums),
            (found.feature_squares, squares),
        ):
            exact = [float(200 * Fraction(v)) for v in theirs.tolist()]
            assert mine.tolist() == exact


@pytest.mark.parametrize(
    ("stored", "pooled"),
    [
        ((0, 0, 0), 0),  # all dense
        ((1, 1, 0), 50),  # some are
        ((3, 7, 2), 12),
        ((30, 30, 30), 50),
    ],
)
def test_most_inputs_stored_is_a_bound_under_masks(stored, pooled):
    schema = make_schema(features=50)
    query = Census(schema)
    blank = {
        "feature_sums": np.zeros(50),
        "feature_squares": np.zeros(50),
        "schema_hash": schema.hash,
    }
    totals = [census(stored=np.array([s]), **blank)[1] for s in stored]
    found = decode(query, add([encode(query, t) for t in totals]), 3)
    assert found.stored.tolist() == [pooled]
    assert found.schema_hash == schema.hash
    assert found.silos.tolist() == [0]


def test_answers_to_the_queries_of_a_message_stand_one_after_another():
    federation, problem = setting("logistic")
    asked = queries(federation, problem)
    answers = [
        [q.answer(view_of(federation, problem, q, k)) for q in asked] for k in range(3)
    ]
    flats = [masks.encode_all(asked, own) for own in answers]
    found = masks.decode_all(asked, add(flats), 3)
    for query, total, own in zip(asked, found, zip(*answers, strict=True), strict=True):
        alone = decode(query, add([encode(query, one) for one in own]), 3)
        for name, array in total.arrays().items():
            assert np.array_equal(array, alone.arrays()[name])
    for wrong in (add(flats)[:-1], np.append(add(flats), np.uint64(3))):
        with raises(Malformed, "bad-message"):
            masks.decode_all(asked, wrong, 3)
