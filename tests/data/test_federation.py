from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from pffl.data import Federation, Rows, Silo
from pffl.errors import DataError
from tests.data.tables import SCHEMA, rows, silo
from tests.inside import as_csr, draw_parts
from tests.raising import raises


def arrays(count=60, seed=0):
    generator = np.random.default_rng(seed)
    return {
        "X": generator.normal(size=(count, 3)),
        "y": np.arange(count) % 2,
        "sensitive_features": generator.choice(["f", "m"], count),
        "silo": generator.choice(["a", "b", "c"], count),
    }


def build(**changes):
    given = {**arrays(), **changes}
    return Federation.from_arrays(given.pop("X"), given.pop("y"), **given)


def test_every_row_is_in_one_split_of_its_silo():
    given = arrays()
    federation = build(validation_fraction=0.1)
    assert federation.splits == ("train", "test", "validation")
    parts = [federation.pooled(split) for split in federation.splits]
    joined = np.concatenate([part.X for part in parts])
    order, expected = (np.lexsort(x.T) for x in (joined, given["X"]))
    np.testing.assert_array_equal(joined[order], given["X"][expected])
    names = np.concatenate([np.array(federation.silo_names)[p.silo] for p in parts])
    np.testing.assert_array_equal(names[order], given["silo"][expected])


@given(count=st.integers(0, 50), test=st.floats(0, 0.9), seed=st.integers(0, 99))
def test_parts_cover_each_row_once_and_leave_one_for_training(count, test, seed):
    parts = draw_parts(
        count, {"test": test, "validation": 0.05}, np.random.default_rng(seed)
    )
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(count))
    assert count == 0 or len(parts["train"]) >= 1


def test_silos_are_views_of_one_copy_in_single_precision_too():
    for kind in (np.float64, np.float32):
        federation = build(X=arrays()["X"].astype(kind))
        parts = [s.rows(split).X for s in federation.silos for split in s.splits]
        assert parts[0].base is not None
        assert all(part.base is parts[0].base for part in parts)
        assert parts[0].dtype == kind


def test_all_problems_of_arrays_are_raised_together():
    with raises(DataError, "wrong-shape", "(3,)", "'silo': (2, 1)"):
        Federation.from_arrays(
            np.zeros(3), [0, 1], sensitive_features=[1, 2, 3], silo=[[1], [2]]
        )
    with raises(DataError, "not-numbers") as caught:
        Federation.from_arrays(
            [["a"], ["b"]],
            [0, np.nan],
            sensitive_features=[None, "x"],
            silo=["s", np.nan],
        )
    assert len(caught.value.codes) == 4


def test_wrong_codes_and_shapes_are_named_with_their_place():
    zero = np.zeros(2, dtype=np.int64)
    wrong = Rows(np.zeros((2, 2)), np.array([0.0, 5.0]), np.array([0, 7]))
    with raises(DataError, "unknown-label", "'two', train") as caught:
        Federation(SCHEMA, (silo(), Silo("two", 1, {"train": wrong})))
    assert caught.value.codes == ("unknown-label", "unknown-group")
    assert "silo 'one'" not in str(caught.value)
    wide = Silo("a", 0, {"train": Rows(np.zeros((2, 3)), np.zeros(2), zero)})
    short = Silo("b", 1, {"train": Rows(np.zeros((2, 2)), np.zeros(3), zero)})
    with raises(DataError, "wrong-shape", "'a', train", "(2, 3)", "'b', train", "3"):
        Federation(SCHEMA, (wide, short))
    with raises(DataError, "no-training-rows", "train"):
        Federation(SCHEMA, (Silo("a", 0, {"test": rows()}),))


def test_rows_on_both_sides_are_counted():
    """By ids where all rows have one; otherwise rows that are equal."""
    train, test = rows(500), rows(100, seed=1)
    who = {"train": np.arange(500), "test": np.arange(498, 598)}
    known = {"train": train, "test": test}
    assert Federation(SCHEMA, (Silo("a", 0, known),)).overlap == 0
    by_id = {name: replace(part, person=who[name]) for name, part in known.items()}
    federation = Federation(SCHEMA, (Silo("a", 0, by_id),))
    assert (federation.by_person, federation.overlap) == (True, 2)
    again = {"train": train.take(slice(0, 9)), "test": train.take(slice(0, 7))}
    parts = {"train": train, "test": Rows.joined([test, train.take(slice(9, 10))])}
    both = Federation(SCHEMA, (Silo("a", 0, again), Silo("b", 1, parts)))
    assert (both.by_person, both.overlap) == (False, 8)
    sparse = {n: replace(r, X=as_csr(csr_array(r.X))) for n, r in parts.items()}
    assert Federation(SCHEMA, (Silo("a", 0, sparse),)).overlap == 1
    assert Federation(SCHEMA, (Silo("a", 0, {"train": rows(9)}),)).overlap == 0
