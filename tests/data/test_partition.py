from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pffl.errors import DataError, UsageError
from tests.inside import partition, split_index
from tests.raising import raises

columns = st.lists(st.integers(0, 5), min_size=1, max_size=60)


def assert_partition(codes, names, rows, silos):
    assert codes.shape == (rows,)
    assert codes.dtype == np.int64
    assert len(names) == silos == len(set(names))
    sizes = np.bincount(codes, minlength=silos)
    assert sizes.sum() == rows
    assert len(sizes) == silos
    if rows >= silos:
        assert sizes.min() >= 1


@given(rows=st.integers(1, 80), silos=st.integers(1, 20), seed=st.integers(0, 2**32))
def test_equal_sizes_differ_by_one_at_most(rows, silos, seed):
    codes, names = partition.equal(rows, silos, seed)
    assert_partition(codes, names, rows, silos)
    assert np.ptp(np.bincount(codes, minlength=silos)) <= 1
    np.testing.assert_array_equal(codes, partition.equal(rows, silos, seed)[0])


@given(
    values=columns,
    alpha=st.floats(1e-3, 1e3),
    silos=st.integers(1, 20),
    seed=st.integers(0, 2**32),
)
def test_dirichlet_gives_each_row_one_silo_and_no_silo_nothing(
    values, alpha, silos, seed
):
    codes, names = partition.dirichlet(values, alpha, silos, seed)
    assert_partition(codes, names, len(values), silos)
    again, _ = partition.dirichlet(values, alpha, silos, seed)
    np.testing.assert_array_equal(codes, again)


@given(values=columns, silos=st.integers(1, 20))
def test_bands_follow_the_order_of_the_column(values, silos):
    codes, names = partition.quantile_bands(values, silos)
    assert_partition(codes, names, len(values), silos)
    assert (np.diff(codes[np.argsort(values, kind="stable")]) >= 0).all()


def test_dirichlet_skews_at_small_and_balances_at_large_alpha():
    values = np.repeat([0, 1], 5_000)

    def spread(alpha):
        codes, _ = partition.dirichlet(values, alpha, 10, seed=1)
        share = [values[codes == k].mean() for k in range(10)]
        return np.std(share)

    assert spread(0.1) > 0.3
    assert spread(1_000) < 0.02


def test_dirichlet_gives_each_silo_its_drawn_share():
    # One value only: the sizes are the rounded shares of one Dirichlet draw.
    codes, _ = partition.dirichlet(np.zeros(10_000), 5.0, 4, seed=3)
    generator = np.random.default_rng(3)
    generator.permutation(10_000)
    expected = generator.dirichlet(np.full(4, 5.0)) * 10_000
    assert np.abs(np.bincount(codes) - expected).max() <= 1


def test_names_of_silos_are_in_order():
    names = partition.silo_names(12)
    assert names[0] == "silo 01"
    assert sorted(names) == list(names)
    assert (
        partition.equal(100, 5, seed=0)[0] != partition.equal(100, 5, seed=1)[0]
    ).any()


def test_what_cannot_be_cut_is_refused():
    for silos in (0, -1, 1.5, True):
        with raises(UsageError, "wrong-value", "silos"):
            partition.equal(10, silos)
    for alpha in (0, -1, float("nan"), float("inf")):
        with raises(UsageError, "wrong-value", "alpha"):
            partition.dirichlet([0, 1], alpha, 2)
    with raises(DataError, "no-rows"):
        partition.equal(0, 2)
    with raises(DataError, "missing-values", "1"):
        partition.quantile_bands([1.0, np.nan], 2)


def test_all_rows_of_a_person_are_in_one_split_in_every_silo():
    generator = np.random.default_rng(0)
    person = generator.integers(0, 400, 3_000)
    silo = generator.integers(0, 5, 3_000)
    ids = tuple(f"p{k}" for k in range(400))
    fractions = {"test": 0.2, "validation": 0.1}
    names = tuple("abcde")
    plan, _ = split_index(silo, names, fractions, people=(ids, person), seed=3)
    seen = {
        split: {int(p) for _, index in plan for p in person[index[split]]}
        for split in ("train", "test", "validation")
    }
    assert sum(map(len, seen.values())) == len(set().union(*seen.values()))
    rows = np.concatenate([i for _, index in plan for i in index.values()])
    assert sorted(rows) == list(range(3_000))
    assert len(seen["test"]) / 400 == pytest.approx(0.2, abs=0.06)
    assert len(seen["validation"]) / 400 == pytest.approx(0.1, abs=0.05)

    # A site that knows only its own people comes to the same split.
    alone = np.flatnonzero(silo == 2)
    known, codes = np.unique(person[alone], return_inverse=True)
    own = tuple(ids[k] for k in known)
    ((_, index),) = split_index(
        np.zeros(len(alone), np.int64), ("c",), fractions, people=(own, codes), seed=3
    )[0]
    for split, rows in index.items():
        np.testing.assert_array_equal(alone[rows], plan[2][1][split])


def test_a_silo_of_one_person_has_training_rows():
    person, silo = np.arange(40), np.arange(40) % 20
    ids = tuple(map(str, range(40)))
    for seed in range(5):
        plan, _ = split_index(
            silo, ids[:20], {"test": 0.7}, people=(ids, person), seed=seed
        )
        assert all(len(index["train"]) for _, index in plan)
        assert any(len(index["test"]) for _, index in plan)
