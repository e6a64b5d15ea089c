from __future__ import annotations

from dataclasses import replace

import numpy as np

from pffl.data import Federation, Rows, Silo
from tests.data.tables import SCHEMA
from tests.data.tables import rows as drawn
from tests.inside import repeated_rows, row_hashes, shared_ids, shared_rows


def discrete(count, seed=0, values=3):
    generator = np.random.default_rng(seed)
    return Rows.of(
        generator.integers(0, values, (count, 2)),
        np.arange(count) % 2,
        generator.integers(0, 2, count),
    )


def joined(*parts):
    return Rows.joined(parts)


def test_repeated_rows_are_counted_exactly():
    train, test = drawn(500), drawn(100, seed=1)
    assert repeated_rows([train], [test]) == 0
    assert repeated_rows([train], [joined(test, train.view(0, 7))]) == 7


def test_twins_that_chance_explains_are_not_an_overlap():
    assert repeated_rows([discrete(500)], [discrete(100, seed=1)]) == 0
    # About one row in 20 has a twin by chance, in train and between train and test.
    train = discrete(5_000, values=170)
    test = discrete(2_000, seed=1, values=170)
    assert np.isin(row_hashes([test]), row_hashes([train])).sum() > 50
    assert repeated_rows([train], [test]) == 0
    assert repeated_rows([train], [joined(test, train.view(0, 300))]) >= 300


def test_rows_in_two_silos_are_counted():
    one, other = drawn(300), drawn(200, seed=1)
    assert shared_rows([one, other]) == 0
    assert shared_rows([one, joined(other, one.view(0, 5))]) == 10
    assert shared_rows([one]) == 0
    assert shared_ids(np.array([1, 2, 2, 3, 1]), np.array([0, 0, 0, 1, 1])) == 2


def test_hashes_do_not_depend_on_how_rows_are_cut():
    rows = drawn(1_000)
    cut = [rows.view(0, 1), rows.view(1, 400), rows.view(400, 1_000)]
    np.testing.assert_array_equal(row_hashes([rows]), row_hashes(cut))
    assert len(set(row_hashes([rows]).tolist())) == 1_000
    zeros = [Rows.of([[zero, 1.0]], [0], [0]) for zero in (0.0, -0.0)]
    assert row_hashes(zeros[:1]) == row_hashes(zeros[1:])


def test_fault_85_equal_rows_are_counted_whether_chance_explains_them_or_not():
    few = np.random.default_rng(0).integers(2, size=(400, 2)).astype(float)
    rows = Rows.of(few, few[:, 0], np.zeros(400))
    discrete = {"train": rows.view(0, 300), "test": rows.view(300, 400)}
    varied = drawn(4_000)
    twins = {"train": varied, "test": joined(drawn(98, seed=1), varied.view(0, 2))}
    for parts, leaked, equal in ((discrete, 0, 100), (twins, 2, 2)):
        federation = Federation(SCHEMA, (Silo("a", 0, parts),))
        assert (federation.leaked, federation.overlap) == (leaked, equal)
    assert Federation(SCHEMA, (Silo("a", 0, {"train": varied}),)).overlap == 0


def test_people_on_both_sides_are_counted_by_their_ids():
    train, test = drawn(50), drawn(20, seed=1)
    who = {"train": np.arange(50), "test": np.arange(48, 68)}
    parts = {"train": train, "test": test}
    known = {name: replace(parts[name], person=who[name]) for name in parts}
    federation = Federation(SCHEMA, (Silo("a", 0, known),))
    assert federation.by_person
    assert federation.overlap == 2
    mixed = {"train": train, "test": known["test"]}
    assert not Federation(SCHEMA, (Silo("a", 0, mixed),)).by_person
