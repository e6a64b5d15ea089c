from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pffl.errors import PFFLError
from tests.inside import partition, split_index
from tests.raising import raises

CUTS = {
    "equal": lambda values, silos, seed: partition.equal(len(values), silos, seed),
    "bands": lambda values, silos, seed: partition.quantile_bands(values, silos),
    "dirichlet": lambda values, silos, seed: partition.dirichlet(
        values, 10.0 ** (seed % 7 - 3), silos, seed
    ),
}


@pytest.mark.parametrize("kind", CUTS)
@given(
    values=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_every_row_is_in_one_silo_and_no_silo_is_empty(kind, values, share, seed):
    silos = 1 + int(share * (len(values) - 1))
    codes, names = CUTS[kind](values, silos, seed)
    sizes = np.bincount(codes, minlength=silos)
    assert (len(codes), len(sizes)) == (len(values), silos)
    assert len(set(names)) == silos
    assert sizes.min() >= 1
    np.testing.assert_array_equal(codes, CUTS[kind](values, silos, seed)[0])
    if kind != "dirichlet":
        assert np.ptp(sizes) <= 1
    if kind == "bands":
        assert (np.diff(codes[np.argsort(values, kind="stable")]) >= 0).all()


def test_dirichlet_skews_at_small_and_balances_at_large_alpha():
    values = np.repeat([0, 1], 5_000)

    def spread(alpha):
        codes, _ = partition.dirichlet(values, alpha, 10, seed=1)
        return np.std([values[codes == k].mean() for k in range(10)])

    assert spread(0.1) > 0.3
    assert spread(1_000) < 0.02
    # One value only: the sizes are the rounded shares of one Dirichlet draw.
    codes, _ = partition.dirichlet(np.zeros(10_000), 5.0, 4, seed=3)
    generator = np.random.default_rng(3)
    generator.permutation(10_000)
    expected = generator.dirichlet(np.full(4, 5.0)) * 10_000
    assert np.abs(np.bincount(codes) - expected).max() <= 1


@pytest.mark.parametrize(
    ("cut", "given", "code"),
    [
        *(("equal", (10, silos), "wrong-value") for silos in (0, -1, 1.5, True)),
        *(
            ("dirichlet", ([0, 1], alpha, 2), "wrong-value")
            for alpha in (0, -1, float("nan"), float("inf"))
        ),
        ("equal", (0, 2), "no-rows"),
        ("equal", (2, 3), "no-training-rows"),
        ("quantile_bands", ([1.0, np.nan], 2), "missing-values"),
    ],
)
def test_what_cannot_be_cut_is_refused(cut, given, code):
    with raises(PFFLError, code):
        getattr(partition, cut)(*given)


def test_all_rows_of_a_person_are_in_one_split_in_every_silo():
    generator = np.random.default_rng(0)
    person = generator.integers(0, 400, 3_000)
    silo = generator.integers(0, 5, 3_000)
    ids = tuple(f"p{k}" for k in range(400))
    fractions = {"test": 0.2, "validation": 0.1}
    plan = split_index(silo, tuple("abcde"), fractions, people=(ids, person), seed=3)
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
    own = (tuple(ids[k] for k in known), codes)
    ((_, index),) = split_index(0 * alone, ("c",), fractions, people=own, seed=3)
    for split, rows in index.items():
        np.testing.assert_array_equal(alone[rows], plan[2][1][split])


def test_a_silo_of_one_person_has_training_rows():
    person, silo = np.arange(40), np.arange(40) % 20
    ids = tuple(map(str, range(40)))
    for seed in range(5):
        people = (ids, person)
        plan = split_index(silo, ids[:20], {"test": 0.7}, people=people, seed=seed)
        assert all(len(index["train"]) for _, index in plan)
        assert any(len(index["test"]) for _, index in plan)
